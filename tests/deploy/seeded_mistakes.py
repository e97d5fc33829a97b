"""Mistakes that people make in such manifests, one a row, and who refuses each.

    rules    manifest_rules.py, without a cluster
    schema   the published schemas, without a cluster (what the API server refuses under strict validation too)
    server   the API server's own validation
    pods     Pod Security at the level `restricted`, asked with the pod itself: a workload with such a pod is accepted

A path leads to what is changed: a component and `spec`, `pod` or `box` (its container), or a kind and a name, which lead to
the object's spec; then keys, numbers of items, and names of items.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.deploy.manifests import OF_SHARD, Document, of_kind, workloads

Change = Callable[[list[Document]], object]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake.

    Attributes:
        name: what is wrong, in words.
        make: changes the documents so.
        refused_by: `rules`, `schema`, `server` or `pods`.
        says: part of the refusal.
    """

    name: str
    make: Change
    refused_by: str
    says: str

    def made_in(self, documents: Iterable[Document]) -> list[Document]:
        """The documents with the mistake; the given ones stay as they are."""
        changed = copy.deepcopy(list(documents))
        self.make(changed)
        return changed


def _find(documents: list[Document], words: list[str]) -> Any:
    first, second, *rest = words
    if first in workloads(documents):
        place = workloads(documents)[first]["spec"]
        if second != "spec":
            place = place["template"]["spec"]
        if second == "box":
            place = place["containers"][0]
    else:
        (place,) = [item["spec"] for item in of_kind(documents, first) if item["metadata"]["name"] == second]
    for word in rest:
        if isinstance(place, list):
            place = place[int(word)] if word.isdigit() else next(item for item in place if item["name"] == word)
        else:
            place = place[word]
    return place


def put(path: str, value: object) -> Change:
    """Set what the path leads to."""
    *parents, last = path.split()
    return lambda documents: _find(documents, parents).__setitem__(last, value)


def cut(path: str) -> Change:
    """Take away what the path leads to."""
    *parents, last = path.split()
    return lambda documents: _find(documents, parents).pop(int(last) if last.isdigit() else last)


def add(path: str, *values: object) -> Change:
    """Add items to the list that the path leads to."""
    return lambda documents: _find(documents, path.split()).extend(values)


def drop(kind: str, name: str) -> Change:
    """Take an object away."""

    def without(documents: list[Document]) -> None:
        documents[:] = [item for item in documents if (item["kind"], item["metadata"]["name"]) != (kind, name)]

    return without


def each(*changes: Change) -> Change:
    """All of the changes."""
    return lambda documents: [change(documents) for change in changes]


def volume(component: str, **source: object) -> Change:
    """One volume more, mounted."""
    mount = add(f"{component} box volumeMounts", {"name": "more", "mountPath": "/more"})
    return each(add(f"{component} pod volumes", {"name": "more", **source}), mount)


def _last_first(documents: list[Document]) -> None:
    _find(documents, ["index", "box", "env"]).reverse()


def _mount_tokens(documents: list[Document]) -> None:
    for account in of_kind(documents, "ServiceAccount"):
        account["automountServiceAccountToken"] = True


COMPONENT = "app.kubernetes.io/component"
OF_SHARD_0 = "dns:///reput-commitlog-0.reput-commitlog.somewhere.svc:8082"
MISSPELT = "dns:///reput-comitlog-$(SHARD).reput-commitlog.$(POD_NAMESPACE).svc:8082"

_RULES = (
    ("a memory limit above the promise", put("index box resources limits memory", "2Gi"), "512 MiB"),
    ("no memory limit", cut("gateway box resources limits memory"), "limits are"),
    ("no CPU request", cut("gateway box resources requests cpu"), "requests are"),
    (
        "a root that can be written",
        put("commitlog box securityContext readOnlyRootFilesystem", False),
        "securityContext",
    ),
    (
        "a token of the API server in the pod",
        cut("commitlog pod automountServiceAccountToken"),
        "automountServiceAccount",
    ),
    ("variables of other Services in the pod", cut("gateway pod enableServiceLinks"), "enableServiceLinks"),
    ("another user than the volume's", put("index pod securityContext runAsUser", 1000), "does not run as 65532"),
    ("an image without a version", put("gateway box image", "reput:latest"), "no fixed version"),
    ("scratch space without a bound", volume("index", emptyDir={}), "sizeLimit"),
    ("a directory of the node", volume("index", hostPath={"path": "/var"}), "hostPath"),
    ("a store beside its volume", put("index box env REPUT_STORE value", "/tmp/store"), "not on the claim's volume"),
    (
        "a liveness probe that kills what recovers",
        cut("commitlog box livenessProbe grpc service"),
        "for the service ''",
    ),
    ("a probe on the port with TLS", put("index box readinessProbe grpc port", 8084), "health is told on"),
    ("a probe of TCP only", put("index box readinessProbe", {"tcpSocket": {"port": 8084}}), "readinessProbe asks"),
    (
        "a start that no recovery fits into",
        put("commitlog box startupProbe failureThreshold", 3),
        "too few for a start",
    ),
    ("no startup probe", cut("commitlog box startupProbe"), "startupProbe"),
    ("killed before it has drained", put("commitlog pod terminationGracePeriodSeconds", 10), "grace period"),
    ("no preStop", cut("gateway box lifecycle"), "preStop"),
    (
        "a setting that nobody has",
        add("index box env", {"name": "REPUT_INDEX_SLOTS", "value": "1"}),
        "REPUT_INDEX_SLOTS",
    ),
    ("a setting that does not fit", add("index box env", {"name": "REPUT_WORKER_COUNT", "value": "x"}), "worker_count"),
    ("variables used before they are there", _last_first, "not there yet"),
    ("shards with one name", put("index box env REPUT_BROKER_NAME value", "broker-0"), "disagree about its name"),
    (
        "builders that all follow shard 0",
        put("index box env REPUT_COMMITLOG_TARGET value", OF_SHARD_0),
        "is not ORDINAL",
    ),
    ("a misspelt target", put("consumequeue box env REPUT_COMMITLOG_TARGET value", MISSPELT), "nothing is called"),
    (
        "a volume for what is kept in the log",
        put("consumer spec volumeClaimTemplates", [{"metadata": {"name": "kept"}}]),
        "keeps nothing and has a claim",
    ),
    (
        "shards that are not counted",
        each(*(put(f"{name} spec replicas", 2) for name in OF_SHARD)),
        "the gateway counts 1",
    ),
    ("recovering stores without a name", cut("Service reput-commitlog publishNotReadyAddresses"), "must be headless"),
    (
        "volumes that go",
        put("commitlog spec persistentVolumeClaimRetentionPolicy whenScaled", "Delete"),
        "volumes may go",
    ),
    ("a Service that selects nothing", put(f"Service reput-gateway selector {COMPONENT}", "gate"), "selects []"),
    (
        "a blind budget",
        put(f"PodDisruptionBudget reput-index selector matchLabels {COMPONENT}", "idx"),
        "budgets of one pod",
    ),
    ("no budget", drop("PodDisruptionBudget", "reput-commitlog"), "budgets of one pod"),
    ("all pods on one node", cut("gateway pod topologySpreadConstraints"), "not spread"),
    ("replicas beside an autoscaler", put("gateway spec replicas", 2), "fixed number"),
    ("one gateway alone", put("HorizontalPodAutoscaler reput-gateway minReplicas", 1), "no spare"),
    (
        "no default deny",
        each(*(drop("NetworkPolicy", f"reput-{end}") for end in ("deny", "index"))),
        "no policy denies",
    ),
    ("an edge too few", cut("NetworkPolicy reput-commitlog ingress 0 from 2"), "index -> commitlog:8082 is closed"),
    (
        "an edge too many",
        each(put("NetworkPolicy reput-index ingress", [{}]), put("NetworkPolicy reput-consumequeue egress", [{}])),
        "consumequeue -> index:8084 is open",
    ),
    ("no way to DNS", cut("NetworkPolicy reput-gateway egress 0"), "may not ask for names"),
    (
        "one service of a shard before the others",
        put("commitlog pod priorityClassName", "x"),
        "priorities of their own",
    ),
    ("accounts with tokens", _mount_tokens, "its token is mounted"),
    (
        "a door that nothing leads to",
        put("gateway box env REPUT_GATEWAY_REMOTING_ADDRESS value", "broker-0=0.0.0.0:10921"),
        "leads to the port 10911, its door is at 0.0.0.0:10921",
    ),
    (
        "a door for no shard",
        put("gateway box env REPUT_GATEWAY_REMOTING_ADDRESS value", "b=0.0.0.0:10911"),
        "its door is None",
    ),
    (
        "clients that are sent to a name of no Service",
        put("commitlog box env REPUT_COMMITLOG_BROKER_ADDRESS value", "reput-gateway.$(POD_NAMESPACE).svc:10911"),
        "nothing is called",
    ),
    (
        "clients that are sent to a port of no door",
        put(
            "commitlog box env REPUT_COMMITLOG_BROKER_ADDRESS value", "reput-broker-$(SHARD).$(POD_NAMESPACE).svc:8081"
        ),
        "leads to the port None",
    ),
    (
        "a shard that was scaled up and is told the door of another",
        put("commitlog box env REPUT_COMMITLOG_BROKER_ADDRESS value", "reput-broker-0.$(POD_NAMESPACE).svc:10911"),
        "it has no Service, and it is told",
    ),
    ("a door without its fast port", cut("Service reput-broker-0 ports 1"), "the fast port of"),
    (
        "doors before another service",
        put(f"Service reput-broker-0 selector {COMPONENT}", "nameserver"),
        "does not lead to the gateways",
    ),
    (
        "routes without a door",
        put("gateway box env REPUT_GATEWAY_REMOTING_ADDRESS name", "LEFT_OUT"),
        "without doors it registers",
    ),
    (
        "a Service without its door",
        put("gateway box env REPUT_GATEWAY_REMOTING_ADDRESS name", "LEFT_OUT"),
        "there are no doors",
    ),
    ("a name server without routes", put("nameserver spec replicas", 3), "the name servers are"),
    (
        "name servers that are asked at another port",
        put("Service reput-nameserver ports remoting targetPort", "grpc"),
        "it listens at 9876",
    ),
    (
        "a door that is closed to clients",
        cut("NetworkPolicy reput-gateway ingress 0 ports 1"),
        "a client -> gateway:10911 is closed",
    ),
    (
        "a name server that is closed to clients",
        cut("NetworkPolicy reput-nameserver ingress 0"),
        "a client -> nameserver:9876 is closed",
    ),
    (
        "a name server that is closed to shards",
        cut("NetworkPolicy reput-commitlog egress 1"),
        "commitlog -> nameserver:9876 is closed",
    ),
)
_SCHEMA = (
    ("a misspelt field of a probe", put("index box livenessProbe failureTreshold", 3), "failureTreshold"),
    ("a field at the wrong place", put("index pod readOnlyRootFilesystem", True), "readOnlyRootFilesystem"),
    ("a text where a number belongs", put("index spec replicas", "one"), "replicas"),
    ("a capability list that is none", put("index box securityContext capabilities", ["ALL"]), "capabilities"),
)
_SERVER = (
    ("fewer shards than none", put("index spec replicas", -1), "greater than or equal to 0"),
    ("a startup that must succeed often", put("index box startupProbe successThreshold", 30), "successThreshold"),
    ("a budget with two rules", put("PodDisruptionBudget reput-index minAvailable", 1), "cannot be both set"),
    ("a selector for other pods", put("gateway spec selector matchLabels app", "other"), "selector"),
    (
        "a request above its limit",
        put("index box resources requests memory", "1Gi"),
        "less than or equal to memory limit",
    ),
    ("a port that has no number", put("index box livenessProbe grpc port", 0), "between 1 and 65535"),
    ("a mount without its volume", cut("index pod volumes 0"), "volumeMounts"),
    ("fewer at most than at least", put("HorizontalPodAutoscaler reput-gateway maxReplicas", 1), "maxReplicas"),
    ("a roll-out that may not begin", put("gateway spec strategy rollingUpdate maxSurge", 0), "maxUnavailable"),
    ("a claim of no size", cut("index spec volumeClaimTemplates 0 spec resources"), "resources"),
    (
        "a preStop longer than all",
        put("gateway box lifecycle preStop sleep seconds", 600),
        "terminationGracePeriodSeconds",
    ),
)
_PODS = (
    ("root", put("index pod securityContext runAsUser", 0), "runAsUser=0"),
    ("perhaps root", put("index pod securityContext runAsNonRoot", False), "runAsNonRoot"),
    ("any system call", cut("index pod securityContext seccompProfile"), "seccompProfile"),
    ("a capability kept", cut("index box securityContext capabilities"), "unrestricted capabilities"),
    (
        "a way to more rights",
        put("index box securityContext allowPrivilegeEscalation", True),
        "allowPrivilegeEscalation",
    ),
    ("the node's directory, at the pod", volume("index", hostPath={"path": "/var"}), "hostPath"),
    ("the node's network", put("index pod hostNetwork", True), "host namespaces"),
)
_BY_JUDGE = {"rules": _RULES, "schema": _SCHEMA, "server": _SERVER, "pods": _PODS}
MISTAKES = tuple(Mistake(name, make, judge, says) for judge, rows in _BY_JUDGE.items() for name, make, says in rows)
