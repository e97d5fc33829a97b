"""What the manifests of an installation must keep to, beyond what the API server checks: each rule names its breaches.

`breaches(documents)` is empty for a sound installation. Settings are read by the services' own code, network policies are
evaluated edge by edge, and durations are compared with the constants of the servers that they are for.
"""

import re
from collections.abc import Iterable, Iterator

from services.serving.server import GRACE_SECONDS, IN_SYNC_NAME, LAST_ANSWERS_SECONDS, LIVENESS_NAME
from store.errors import InvalidSettingError
from tests.deploy.component_settings import load_environment
from tests.deploy.manifests import (
    NAMESPACE,
    OF_SHARD,
    ORDINAL,
    STORES,
    Document,
    containers,
    environment,
    labels_of,
    matches,
    of_kind,
    replicated_shards,
    shard_sets,
    without_other_shards,
    workloads,
)
from tests.deploy.network_edges import only_needed_edges_are_open
from tests.deploy.remoting_rules import doors_lead_to_their_shards, shards_register_at_every_name_server
from tests.deploy.replica_rules import (
    accounts_may_only_keep_their_leases,
    replica_ordinals,
    replicas_stand_apart_and_hand_over,
    shards_are_counted,
)

MEMORY_MIB_MAX = 512
UID = 65532
ORDINAL_LABEL = "apps.kubernetes.io/pod-index"
MODULES = {"gateway": "gateway", **{name: f"{name}_svc" for name in (*OF_SHARD, "nameserver")}}
# ServiceServer._drain: open work, the streams that were not waited for, the last answers; then the files are closed.
DRAIN_SECONDS_MAX = 2 * GRACE_SECONDS + LAST_ANSWERS_SECONDS
CLOSE_SECONDS = 10
STARTUP_SECONDS_MIN = {"gateway": 30, "nameserver": 30, **dict.fromkeys(OF_SHARD, 300)}


def breaches(documents: Iterable[Document]) -> list[str]:
    """Every breach of every rule, in words."""
    found = list(documents)
    shards = replicated_shards(found)
    parts = [without_other_shards(found, shard) for shard in shards] or [found]
    return [*shards_are_counted(found), *(breach for part in parts for rule in RULES for breach in rule(part))]


def _mebibytes(quantity: str) -> float:
    number, unit = re.fullmatch(r"([0-9.]+)(\w*)", quantity).groups()  # type: ignore[union-attr]
    return float(number) * {"Mi": 1, "Gi": 1024, "Ki": 1 / 1024, "": 1 / 1024**2}[unit]


def _all_components_are_there(documents: list[Document]) -> Iterator[str]:
    missing = {"gateway", *OF_SHARD} - workloads(documents).keys()
    if missing:
        yield f"no workload for {sorted(missing)}"


def _pods_are_confined(documents: list[Document]) -> Iterator[str]:
    for component, pod, container in containers(documents):
        security = pod.get("securityContext", {})
        expected = {"runAsNonRoot": True, "runAsUser": UID, "runAsGroup": UID, "fsGroup": UID}
        if not expected.items() <= security.items():
            yield f"{component}: the pod does not run as {UID}: {security}"
        if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{component}: seccompProfile is {security.get('seccompProfile')}"
        for field in ("automountServiceAccountToken", "enableServiceLinks"):
            if pod.get(field) is not False:
                yield f"{component}: {field} is not false"
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.get(field):
                yield f"{component}: {field}"
        confined = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        if container.get("securityContext") != confined:
            yield f"{component}: the container's securityContext is {container.get('securityContext')}"


def _images_are_pinned(documents: list[Document]) -> Iterator[str]:
    for component, _, container in containers(documents):
        tag = re.search(r"(@sha256:[0-9a-f]{64}|:[\w.-]+)$", container["image"])
        if tag is None or tag[1] == ":latest":
            yield f"{component}: image {container['image']} has no fixed version"
        if container["command"] != ["python", "-P", "-m", MODULES[component]]:
            yield f"{component}: command is {container['command']}"


def _resources_are_bounded(documents: list[Document]) -> Iterator[str]:
    for component, pod, container in containers(documents):
        requests, limits = container["resources"].get("requests", {}), container["resources"].get("limits", {})
        if not {"cpu", "memory", "ephemeral-storage"} <= requests.keys():
            yield f"{component}: requests are {requests}"
        if not {"memory", "ephemeral-storage"} <= limits.keys() or _mebibytes(limits["memory"]) > MEMORY_MIB_MAX:
            yield f"{component}: limits are {limits}, above {MEMORY_MIB_MAX} MiB or missing"
        for volume in pod.get("volumes", []):
            kinds = volume.keys() - {"name"}
            if kinds == {"projected"} and component == "commitlog" and replicated_shards(documents):
                continue  # the token for the Lease
            # A claim that is only read, such as an archive, ties no pod to what it wrote.
            is_read = (volume.get("persistentVolumeClaim") or {}).get("readOnly") is True
            is_store = component in STORES and volume["name"] == "store" and "persistentVolumeClaim" in kinds
            if not kinds <= {"emptyDir", "secret", "configMap"} and not is_read and not is_store:
                yield f"{component}: volume {volume['name']} is of {kinds}"
            if "emptyDir" in kinds and not (volume["emptyDir"] or {}).get("sizeLimit"):
                yield f"{component}: volume {volume['name']} has no sizeLimit"


def _mounts_have_volumes(documents: list[Document]) -> Iterator[str]:
    for component, workload in workloads(documents).items():
        pod = workload["spec"]["template"]["spec"]
        claims = [claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])]
        volumes = sorted([volume["name"] for volume in pod["volumes"]] + claims)
        mounts = {mount["name"]: mount for container in pod["containers"] for mount in container["volumeMounts"]}
        if volumes != sorted(mounts):
            yield f"{component}: volumes {volumes}, mounts {sorted(mounts)}"
        for volume in pod["volumes"]:
            if "secret" in volume and not mounts.get(volume["name"], {}).get("readOnly"):
                yield f"{component}: the Secret in {volume['name']} is mounted for writing"
        if component in STORES:
            store = environment(pod["containers"][0]).get("REPUT_STORE", "")
            claims += [volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
            mounted = mounts.get("store", {}).get("mountPath", "//")
            if "store" not in claims or not f"{store}/".startswith(mounted + "/"):
                yield f"{component}: the store {store!r} is not on the claim's volume"
        elif claims:
            yield f"{component}: keeps nothing and has a claim"


def _probes_fit_the_service(documents: list[Document]) -> Iterator[str]:
    for component, _, container in containers(documents):
        health = environment(container).get(f"REPUT_{component.upper()}_HEALTH_ADDRESS", "").rpartition(":")[2]
        ports = {str(port["containerPort"]) for port in container["ports"]}
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(name, {})
            grpc = probe.get("grpc", {})
            if str(grpc.get("port")) != health or health not in ports:
                yield f"{component}: {name} asks {grpc}, health is told on {health!r}"
            is_of_replica = component == "commitlog" and bool(replicated_shards(documents))
            asked = {"livenessProbe": LIVENESS_NAME, "readinessProbe": IN_SYNC_NAME if is_of_replica else ""}
            if grpc.get("service", "") != asked.get(name, ""):
                yield f"{component}: {name} asks for the service {grpc.get('service', '')!r}"
        startup = container.get("startupProbe", {})
        seconds = startup.get("failureThreshold", 3) * startup.get("periodSeconds", 10)
        if seconds < STARTUP_SECONDS_MIN[component]:
            yield f"{component}: {seconds} s are too few for a start"


def _pods_end_in_peace(documents: list[Document]) -> Iterator[str]:
    for component, pod, container in containers(documents):
        pre_stop = container.get("lifecycle", {}).get("preStop", {})
        sleep = pre_stop.get("sleep", {}).get("seconds", 0)
        sleep += sum(map(int, re.findall(r"--timeout (\d+)", " ".join(pre_stop.get("exec", {}).get("command", [])))))
        needed = sleep + DRAIN_SECONDS_MAX + CLOSE_SECONDS
        if pod.get("terminationGracePeriodSeconds", 30) < needed:
            yield f"{component}: the grace period is shorter than preStop and drain, {needed} s"
        if component == "gateway" and not sleep:
            yield f"{component}: no preStop, so that balancers send calls to a port that is closed"


def _settings_are_understood(documents: list[Document]) -> Iterator[str]:
    for component, _, container in containers(documents):
        unresolved = [name for name, value in environment(container).items() if "$(" in value]
        if unresolved:
            yield f"{component}: {unresolved} refer to variables that are not there yet"
        try:
            load_environment(component, container)
        except InvalidSettingError as error:
            yield f"{component}: {error.message}"


def _targets_are_names_of_the_installation(documents: list[Document]) -> Iterator[str]:
    services = {service["metadata"]["name"]: service["spec"] for service in of_kind(documents, "Service")}
    sets = {item["metadata"]["name"]: item["spec"] for item in of_kind(documents, "StatefulSet")}
    shards = replicated_shards(documents)
    for component, _, container in containers(documents):
        for name, text in environment(container).items():
            # With replicas the gateway names each ordinal, and nobody else any but its own.
            value, known = text, {"{i}", str(ORDINAL)}
            if shards:
                value = text.replace("{i}", shards[0])
                known = set(map(str, replica_ordinals(documents))) if component == "gateway" else {str(ORDINAL)}
            for host, port in re.findall(r"dns:///([^:,;]+):(\d+)", value):
                pod, service, *rest = host.split(".")
                called, _, ordinal = pod.rpartition("-")
                if rest != [NAMESPACE, "svc"] or ordinal not in known:
                    yield f"{component}: {name}: {host} is not ORDINAL.SERVICE.{NAMESPACE}.svc"
                if sets.get(called, {}).get("serviceName") != service or int(port) not in [
                    port["port"] for port in services.get(service, {}).get("ports", [])
                ]:
                    yield f"{component}: {name}: nothing is called {host}:{port}"


def _stores_have_names_of_their_own(documents: list[Document]) -> Iterator[str]:
    services = {service["metadata"]["name"]: service["spec"] for service in of_kind(documents, "Service")}
    for item in of_kind(documents, "StatefulSet"):
        name, spec = item["metadata"]["name"], item["spec"]
        service = services.get(spec["serviceName"], {})
        if service.get("clusterIP") != "None" or service.get("publishNotReadyAddresses") is not True:
            yield f"{name}: its Service must be headless and name pods that are not ready"
        if item in shard_sets(documents) and spec.get("persistentVolumeClaimRetentionPolicy") != {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
        }:
            yield f"{name}: volumes may go with it"
        if spec.get("podManagementPolicy") != "Parallel":
            yield f"{name}: a shard waits for another"
    classes = {item["spec"]["template"]["spec"].get("priorityClassName") for item in shard_sets(documents)}
    if len(classes) > 1:
        yield f"the services of one shard have priorities of their own: {sorted(map(str, classes))}"
    names = [
        environment(container)["REPUT_BROKER_NAME"] for name, _, container in containers(documents) if name in OF_SHARD
    ]
    if len(set(names)) > 1:
        yield f"the services of one shard disagree about its name: {sorted(set(names))}"


def _chosen(selector: Document, workload: Document) -> bool:
    """Whether a Service's selector chooses pods of the workload; one may choose an ordinal, which Kubernetes makes a label."""
    ordinal = selector.get(ORDINAL_LABEL, "0")
    labels = labels_of(workload) | ({ORDINAL_LABEL: ordinal} if workload["kind"] == "StatefulSet" else {})
    return selector.items() <= labels.items() and int(ordinal) < workload["spec"].get("replicas", 1)


def _selectors_select(documents: list[Document]) -> Iterator[str]:
    by_component = workloads(documents)
    for item in of_kind(documents, "Service"):
        chosen = [name for name, load in by_component.items() if _chosen(item["spec"]["selector"], load)]
        if len(chosen) != 1:
            yield f"Service {item['metadata']['name']} selects {chosen}"
        for port in item["spec"]["ports"]:
            pod = by_component[chosen[0]]["spec"]["template"]["spec"] if chosen else {"containers": []}
            if port["targetPort"] not in [entry["name"] for part in pod["containers"] for entry in part["ports"]]:
                yield f"Service {item['metadata']['name']}: no container has the port {port['targetPort']}"
    guarded = {
        name
        for budget in of_kind(documents, "PodDisruptionBudget")
        for name, load in by_component.items()
        if matches(budget["spec"]["selector"], labels_of(load)) and budget["spec"].get("maxUnavailable") == 1
    }
    if guarded != set(by_component):
        yield f"disruption budgets of one pod guard {sorted(guarded)} only"
    for component, workload in by_component.items():
        for constraint in workload["spec"]["template"]["spec"].get("topologySpreadConstraints") or [{}]:
            if not matches(constraint.get("labelSelector", {"matchExpressions": "none"}), labels_of(workload)):
                yield f"{component}: is not spread over zones and nodes"
    for scaler in of_kind(documents, "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        scaled = [load for load in by_component.values() if load["metadata"]["name"] == target["name"]]
        if not scaled or scaled[0]["kind"] != target["kind"] or "replicas" in scaled[0]["spec"]:
            yield f"the autoscaler of {target['name']} has nothing to scale, or a fixed number works against it"
        if scaler["spec"]["minReplicas"] < 2:
            yield f"one {target['name']} is no spare"


RULES = (
    _all_components_are_there,
    _pods_are_confined,
    _images_are_pinned,
    _resources_are_bounded,
    _mounts_have_volumes,
    _probes_fit_the_service,
    _pods_end_in_peace,
    _settings_are_understood,
    _targets_are_names_of_the_installation,
    _stores_have_names_of_their_own,
    _selectors_select,
    only_needed_edges_are_open,
    replicas_stand_apart_and_hand_over,
    accounts_may_only_keep_their_leases,
    doors_lead_to_their_shards,
    shards_register_at_every_name_server,
)
