{{/* The names of everything, and the parts that every pod shares. */}}

{{- define "reput.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "reput" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-reput" (.Release.Name | trunc 34 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* "true" where a shard is a StatefulSet of replicas for each of its services; else an ordinal of one StatefulSet is a shard. */}}
{{- define "reput.isReplicated" -}}
{{- or (gt (int .Values.replicas) 1) .Values.replication.withOneReplica -}}
{{- end -}}

{{/* How many in-sync replicas a `replicated` append needs. */}}
{{- define "reput.minInSync" -}}
{{- .Values.replication.minInSync | default (min 2 (int .Values.replicas)) -}}
{{- end -}}

{{/* "true" where a door has RocketMQ's fast port, the one two below. */}}
{{- define "reput.hasFastPort" -}}
{{- ne (get .Values.gateway.settings "REPUT_GATEWAY_REMOTING_VIP_CHANNEL" | toString) "off" -}}
{{- end -}}

{{/* Where the name servers are, as clients list them: HOST:PORT;... Takes (dict "root" $ "namespace" TEXT). */}}
{{- define "reput.nameservers" -}}
{{- $name := include "reput.fullname" .root -}}
{{- $all := list -}}
{{- if .root.Values.nameserver.enabled -}}
{{- range $ordinal := until (int .root.Values.nameserver.replicas) -}}
{{- $all = append $all (printf "%s-nameserver-%d.%s-nameserver.%s.svc:9876" $name $ordinal $name $.namespace) -}}
{{- end -}}
{{- end -}}
{{- join ";" (concat $all .root.Values.nameserver.external) -}}
{{- end -}}

{{/* The components that are installed, with blanks between. */}}
{{- define "reput.components" -}}
gateway commitlog consumequeue index consumer schedule
{{- if .Values.nameserver.enabled }} nameserver{{ end -}}
{{- end -}}

{{/* Takes (dict "root" $ "component" NAME), and "shard" NUMBER for what belongs to one shard with replicas. */}}
{{- define "reput.selectorLabels" -}}
app.kubernetes.io/name: reput
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .shard }}
reput.io/shard: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "reput.labels" -}}
{{ include "reput.selectorLabels" . }}
app.kubernetes.io/part-of: reput
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{/* A new chart with the same services restarts nothing: pods do not carry its version. */}}
{{- define "reput.podLabels" -}}
{{ include "reput.selectorLabels" . }}
app.kubernetes.io/part-of: reput
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{- define "reput.image" -}}
{{- with (.Values.global).imageRegistry -}}
{{ trimSuffix "/" . }}/
{{- end -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "reput.priorityClassName" -}}
{{- .Values.priorityClass.name | default (ternary (printf "%s-store" (include "reput.fullname" .)) "" .Values.priorityClass.create) -}}
{{- end -}}

{{/* What a pod may do and where it goes. Takes (dict "root" $ "component" NAME "values" VALUES). */}}
{{- define "reput.podSpec" -}}
serviceAccountName: {{ include "reput.fullname" .root }}-{{ .component }}
automountServiceAccountToken: false # {{ if and .shard (eq .component "commitlog") }}one container has a token, below{{ else }}nothing here speaks to the API server{{ end }}
enableServiceLinks: false # variables of other Services would look like settings
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  # As far as the cluster goes: one zone, or one node, must do.
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "reput.selectorLabels" $ | nindent 8 }}
  {{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := .values.affinity }}
{{- if .shard }}
{{- $affinity = merge (deepCopy .values.affinity) (include "reput.replicaAffinity" . | fromYaml) }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where the pods of a replica go: commit logs of one shard apart, everything else of a shard to a node that has its commit log.
What `affinity` says of the same kind counts instead. */}}
{{- define "reput.replicaAffinity" -}}
{{- $commitlogs := dict "root" .root "component" "commitlog" "shard" .shard -}}
{{- if ne .component "commitlog" -}}
podAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "reput.selectorLabels" $commitlogs | nindent 12 }}
        # The commit log of the same replica: it has the same ordinal.
        matchLabelKeys: [apps.kubernetes.io/pod-index]
{{- else if eq .root.Values.replication.antiAffinity "hard" -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: {{ .root.Values.replication.topologyKey }}
      labelSelector:
        matchLabels:
          {{- include "reput.selectorLabels" $commitlogs | nindent 10 }}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: {{ .root.Values.replication.topologyKey }}
        labelSelector:
          matchLabels:
            {{- include "reput.selectorLabels" $commitlogs | nindent 12 }}
{{- end }}
{{- end -}}

{{- define "reput.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Probes, on the port that answers health and nothing else, since probes know no TLS. */}}
{{- define "reput.probes" -}}
# Until the service serves: a restart would go on where the recovery was, and costs no more than its start.
startupProbe:
  grpc: {port: 8090}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ div (add .values.startupSeconds 1) 2 }}
readinessProbe:
  {{- if and .shard (eq .component "commitlog") }}
  # It leads, or has all that is confirmed: a roll-out and a drain wait for it. No call depends on it.
  grpc: {port: 8090, service: in-sync}
  {{- else }}
  grpc: {port: 8090}
  {{- end }}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
# Only whether the process answers: one that waits for its disk, or for another service, would win nothing by a restart.
livenessProbe:
  grpc: {port: 8090, service: liveness}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{/* Environment that every service has. */}}
{{- define "reput.environment" -}}
{{- $upper := upper .component -}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- {name: REPUT_{{ $upper }}_ADDRESS, value: "0.0.0.0:{{ .port }}"}
- {name: REPUT_{{ $upper }}_HEALTH_ADDRESS, value: "0.0.0.0:8090"}
{{- if .root.Values.metrics.enabled }}
- {name: REPUT_{{ $upper }}_METRICS_ADDRESS, value: "0.0.0.0:9090"}
{{- end }}
{{- if .root.Values.tls.enabled }}
- {name: REPUT_TLS_CERTIFICATE, value: /etc/reput/tls/tls.crt}
- {name: REPUT_TLS_KEY, value: /etc/reput/tls/tls.key}
- {name: REPUT_TLS_CA, value: /etc/reput/tls/ca.crt}
{{- end }}
{{- range $name, $value := .values.settings }}
{{- /* A large number of a file of values is a float, which would be printed as 1e+09. */}}
- {name: {{ $name }}, value: {{ ternary (printf "%.0f" $value) (toString $value) (and (kindIs "float64" $value) (eq (float64 (int64 $value)) $value)) | quote }}}
{{- end }}
{{- end -}}

{{- define "reput.ports" -}}
- {name: grpc, containerPort: {{ .port }}}
- {name: health, containerPort: 8090}
{{- if .root.Values.metrics.enabled }}
- {name: metrics, containerPort: 9090}
{{- end }}
{{- end -}}

{{- define "reput.consoleIsExposed" -}}
{{- and .Values.gateway.console.enabled (or .Values.gateway.console.exposed .Values.gateway.ingress.console.enabled .Values.gateway.route.console.enabled) -}}
{{- end -}}

{{- define "reput.tlsMount" -}}
{{- if .root.Values.tls.enabled -}}
- {name: tls, mountPath: /etc/reput/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "reput.tlsVolume" -}}
{{- if .root.Values.tls.enabled -}}
- name: tls
  secret: {secretName: {{ include "reput.fullname" .root }}-tls-{{ .component }}, defaultMode: 0440}
{{- end }}
{{- end -}}
