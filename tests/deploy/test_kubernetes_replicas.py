"""The chart's value `replicas`: what is rendered, and what a real control plane makes of it."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.coordination.access import CoordinatorAccess
from services.coordination.opening import open_record_store
from store.errors import CoordinatorUnavailableError, RecordConflictError
from tests.deploy.component_settings import load_environment
from tests.deploy.manifest_rules import breaches
from tests.deploy.manifests import (
    OF_SHARD,
    STORES,
    Document,
    containers,
    environment,
    of_kind,
    rendered,
    replicated_shards,
    without_other_shards,
    workloads,
)
from tests.deploy.seeded_mistakes import add, cut, drop, put
from tests.support.control_plane import NODE_COUNT, WAIT_OPTION, ControlPlane
from tests.support.waiting import WAIT_SECONDS_MAX
from tools.control_plane_build import missing_programs
from tools.render_manifests import CHART, template

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(missing_programs()), reason="needs tools/control_plane_build.py to have run"),
]

OF_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["delete"]}
FOLLOWS_ANOTHER = "dns:///reput-commitlog-0-1.reput-commitlog.$(POD_NAMESPACE).svc:8082"


def _rendered(*values: str) -> list[Document]:
    arguments = [part for value in values for part in ("--set", value)]
    return rendered(*arguments)


def _first_role_rules(documents: list[Document]) -> list[Document]:
    rules: list[Document] = of_kind(documents, "Role")[0]["rules"]
    return rules


def _give_tokens_to_all(documents: list[Document]) -> None:
    (account,) = [one for one in of_kind(documents, "RoleBinding") if one["metadata"]["name"] == "reput-leases"]
    account["subjects"].append({"kind": "ServiceAccount", "name": "reput-gateway", "namespace": "default"})


# What is wrong, the change, and part of the breach.
MISTAKES: tuple[tuple[str, Callable[[list[Document]], object], str], ...] = (
    ("replicas on one node", cut("commitlog pod affinity podAntiAffinity"), "may all be on one node"),
    ("a leader that just ends", cut("commitlog box lifecycle"), "does not hand over"),
    ("killed before it has handed over", put("commitlog pod terminationGracePeriodSeconds", 30), "grace period"),
    (
        "ready before it is in sync",
        cut("commitlog box readinessProbe grpc service"),
        "readinessProbe asks for the service ''",
    ),
    ("one name for all", put("commitlog box env REPUT_COMMITLOG_REPLICA_NAME value", "r1"), "it is replica 'r1'"),
    ("more in sync than there are", put("commitlog box env REPUT_COMMITLOG_MIN_IN_SYNC value", "4"), "are needed"),
    (
        "builders that all follow one replica",
        put("index box env REPUT_COMMITLOG_TARGET value", FOLLOWS_ANOTHER),
        "is not ORDINAL",
    ),
    ("a replica that no gateway knows", put("commitlog spec replicas", 4), "the gateway knows the replicas"),
    ("a shard that no gateway knows", put("gateway box env REPUT_GATEWAY_SHARD_COUNT value", "1"), "counts 1 shards"),
    ("followers without a name", cut("Service reput-commitlog publishNotReadyAddresses"), "must be headless"),
    ("no replication through the network", cut("NetworkPolicy reput-commitlog ingress 0 from 5"), "closed"),
    ("no budget", drop("PodDisruptionBudget", "reput-commitlog-0"), "budgets of one pod"),
    ("a right too many", lambda documents: _first_role_rules(documents).append(OF_LEASES), "the roles allow"),
    ("Leases of others", lambda documents: _first_role_rules(documents)[0].pop("resourceNames"), "the roles allow"),
    ("rights for the gateway", _give_tokens_to_all, "the Leases are kept by"),
    (
        "a token for all",
        add("index pod volumes", {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
        "of {'projected'}",
    ),
)


def test_each_mistake_with_replicas_is_refused() -> None:
    sound = _rendered("replicas=3", "shards=2")
    assert breaches(sound) == []
    for name, change, says in MISTAKES:
        made = copy.deepcopy(sound)
        # A path names a component: then one shard is enough to be wrong.
        part = without_other_shards(made, "0")
        change(part)
        made = part + [
            item for item in made if item not in part and item["metadata"]["labels"].get("reput.io/shard") == "1"
        ]
        assert says in "\n".join(breaches(made)), name


def test_without_replicas_nothing_of_replicas_is_rendered() -> None:
    text = template("--set", "replicas=1")
    assert text == template()
    for word in ("Lease", "leases", "r0", "in-sync", "preStop:\n              exec", "COORDINATOR", "reput.io/shard"):
        assert word not in text, word


def test_each_pod_is_one_replica_of_one_shard_and_follows_its_own_commit_log() -> None:
    documents = _rendered("replicas=3", "shards=2")
    assert replicated_shards(documents) == ["0", "1"]
    for shard in ("0", "1"):
        part = without_other_shards(documents, shard)
        for component, _, container in containers(part):
            if component not in OF_SHARD:
                continue
            for ordinal in range(3):
                values = environment(container, ordinal)
                assert values["REPUT_BROKER_NAME"] == f"broker-{shard}"
                # The same on all replicas of a shard: it is in the bytes of their logs.
                assert values["REPUT_STORE_HOST"] == f"10.0.{shard}.1:10911"
                own = f"dns:///reput-commitlog-{shard}-{ordinal}.reput-commitlog.somewhere.svc:8082"
                name = "REPUT_COMMITLOG_REPLICA_ADDRESS" if component == "commitlog" else "REPUT_COMMITLOG_TARGET"
                assert values[name] == own
        (log,) = workloads(part)["commitlog"]["spec"]["template"]["spec"]["containers"]
        settings = load_environment("commitlog", log)
        assert (settings.flush_mode, settings.min_in_sync, settings.replica_name) == ("replicated", 2, "r7")
    (gateway,) = workloads(documents)["gateway"]["spec"]["template"]["spec"]["containers"]
    targets = load_environment("gateway", gateway).shard_targets()
    assert [(one.broker_name, one.replica) for one in targets] == [
        (f"broker-{s}", f"r{r}") for s in "01" for r in "012"
    ]
    assert targets[4].schedule == "dns:///reput-schedule-1-1.reput-schedule.somewhere.svc:8086"


@pytest.mark.parametrize(
    ("values", "min_in_sync"),
    [
        (("replicas=3",), 2),
        (("replicas=2",), 2),
        (("replicas=2", "replication.minInSync=1"), 1),
        (("replicas=3", "replication.minInSync=3"), 3),
        (("replicas=1", "replication.withOneReplica=true"), 1),
    ],
)
def test_an_append_needs_so_many_in_sync_replicas(values: tuple[str, ...], min_in_sync: int) -> None:
    (container,) = workloads(_rendered(*values))["commitlog"]["spec"]["template"]["spec"]["containers"]
    assert load_environment("commitlog", container).min_in_sync == min_in_sync


def test_what_the_values_say_of_the_flush_mode_and_of_affinity_counts() -> None:
    documents = _rendered(
        "replicas=3",
        "commitlog.settings.REPUT_COMMITLOG_FLUSH_MODE=sync",
        "commitlog.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=x",
        "replication.antiAffinity=hard",
        "replication.topologyKey=topology.kubernetes.io/zone",
    )
    pod = workloads(documents)["commitlog"]["spec"]["template"]["spec"]
    assert load_environment("commitlog", pod["containers"][0]).flush_mode == "sync"
    assert pod["affinity"]["nodeAffinity"]
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "topology.kubernetes.io/zone"


@pytest.mark.parametrize("values", ["replicas=2,replication.minInSync=3", "replicas=1,replication.minInSync=2"])
def test_more_in_sync_replicas_than_there_are_cannot_be_asked_for(values: str) -> None:
    with pytest.raises(Exception, match="non-zero exit status"):
        template("--set", values)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    return control_plane


def _helm(verb: str, namespace: str, *values: str) -> tuple[str, ...]:
    arguments = [
        part for value in ("priorityClass.create=false", "nameserver.replicas=1", *values) for part in ("--set", value)
    ]
    return (verb, "reput", str(CHART), "-n", namespace, *arguments)


def _install(cluster: ControlPlane, name: str, *values: str) -> str:
    namespace = cluster.make_namespace(name)
    cluster.helm(*_helm("install", namespace, *values))
    _await_stores(cluster, namespace)
    return namespace


def _await_stores(cluster: ControlPlane, namespace: str) -> None:
    for one in cluster.get("statefulset", namespace=namespace):
        cluster.kubectl("rollout", "status", f"statefulset/{one['metadata']['name']}", "-n", namespace, WAIT_OPTION)


def _pods(cluster: ControlPlane, namespace: str, component: str) -> dict[str, Any]:
    pods = cluster.get("pods", "-l", f"app.kubernetes.io/component={component}", namespace=namespace)
    return {pod["metadata"]["name"]: pod for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def test_the_replicas_of_a_shard_run_apart_with_a_volume_each_where_pods_must_be_restricted(
    cluster: ControlPlane,
) -> None:
    namespace = _install(cluster, "apart", "replicas=3", "shards=2", "replication.antiAffinity=hard")
    events = cluster.get("events", namespace=namespace)
    assert [event["message"] for event in events if event["reason"] == "FailedCreate"] == []
    pods = _pods(cluster, namespace, "commitlog")
    assert sorted(pods) == [f"reput-commitlog-{shard}-{ordinal}" for shard in range(2) for ordinal in range(3)]
    for shard in range(2):
        nodes = {pods[f"reput-commitlog-{shard}-{ordinal}"]["spec"]["nodeName"] for ordinal in range(3)}
        assert len(nodes) == NODE_COUNT
    for name, pod in pods.items():
        assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == name.rpartition("-")[2]
        mounted = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
        assert mounted.count("/var/run/secrets/kubernetes.io/serviceaccount") == 1
    claims = cluster.get("persistentvolumeclaims", namespace=namespace)
    assert {claim["metadata"]["name"]: claim["status"]["phase"] for claim in claims} == {
        f"store-reput-{component}-{shard}-{ordinal}": "Bound"
        for component in STORES
        for shard in range(2)
        for ordinal in range(3)
    }
    # A roll-out takes one replica of a shard after the other.
    before = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
    cluster.helm(*_helm("upgrade", namespace, "replicas=3", "shards=2", "image.tag=0.1.1"))
    _await_stores(cluster, namespace)
    after = {name: pod["metadata"]["uid"] for name, pod in _pods(cluster, namespace, "commitlog").items()}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())

    # One of each shard may be evicted, a second one of the same shard may not.
    nodes = [f"node-{number}" for number in range(NODE_COUNT)]
    cluster.kubectl("cordon", *nodes)
    try:
        for shard in range(2):
            budget = f"reput-commitlog-{shard}"
            cluster.wait_until(lambda budget=budget: _allowed(cluster, namespace, budget) == 1)
            assert "Success" in _evict(cluster, namespace, f"reput-commitlog-{shard}-0")
            assert "disruption budget" in _evict(cluster, namespace, f"reput-commitlog-{shard}-1")
    finally:
        cluster.kubectl("uncordon", *nodes)


def _allowed(cluster: ControlPlane, namespace: str, budget: str) -> int | None:
    allowed: int | None = cluster.get("pdb", budget, namespace=namespace)["status"].get("disruptionsAllowed")
    return allowed


def _evict(cluster: ControlPlane, namespace: str, pod: str) -> str:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    done = cluster.run("kubectl", "create", "--raw", path, "-f", "-", text=json.dumps(eviction))
    return done.stdout + done.stderr


def test_a_commit_log_may_keep_the_leases_of_its_shards_and_do_nothing_else(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    namespace = _install(cluster, "keeps-leases", "replicas=2", "shards=2")
    token = tmp_path / "token"
    token.write_text(cluster.kubectl("create", "token", "reput-commitlog", "-n", namespace).strip())
    access = CoordinatorAccess(ca=cluster.ca, token_file=token)
    # The coordinator as the pods name it.
    (container,) = workloads(_rendered("replicas=2", "shards=2"))["commitlog"]["spec"]["template"]["spec"]["containers"]
    coordinator = load_environment("commitlog", container).coordinator.replace("somewhere", namespace)
    for shard in ("broker-0", "broker-1"):
        store = open_record_store(f"{coordinator}?server={cluster.server}", shard, access)
        assert store.read(WAIT_SECONDS_MAX) is None
        version = store.write(b'{"epoch":1}', None, WAIT_SECONDS_MAX)
        store.write(b'{"epoch":2}', version, WAIT_SECONDS_MAX)
        with pytest.raises(RecordConflictError):
            store.write(b"{}", version, WAIT_SECONDS_MAX)
        found = store.read(WAIT_SECONDS_MAX)
        assert found is not None
        assert found.data == b'{"epoch":2}'
        assert cluster.has("lease", f"reput-{shard}", namespace=namespace)

    # A shard that is not there, another namespace, and everything else.
    for address in (f"{coordinator}?server={cluster.server}", f"kubernetes://default/reput?server={cluster.server}"):
        other = open_record_store(address, "broker-2" if namespace in address else "broker-0", access)
        with pytest.raises(CoordinatorUnavailableError, match="forbidden"):
            other.read(WAIT_SECONDS_MAX)

    def may(account: str, verb: str, what: str) -> bool:
        user = f"system:serviceaccount:{namespace}:{account}"
        done = cluster.run("kubectl", "auth", "can-i", verb, what, "--as", user, "-n", namespace)
        return done.stdout.strip() == "yes"

    assert may("reput-commitlog", "update", "lease/reput-broker-1")
    for verb in ("delete", "patch", "list", "watch", "deletecollection"):
        assert not may("reput-commitlog", verb, "lease/reput-broker-1"), verb
    for what in ("pods", "secrets", "secrets/reput-receipt", "configmaps", "statefulsets.apps", "leases"):
        assert not may("reput-commitlog", "get", what), what
    for component in ("gateway", "consumequeue", "index", "consumer", "schedule"):
        for verb in ("get", "create", "update"):
            assert not may(f"reput-{component}", verb, "lease/reput-broker-0"), component


def test_replicas_are_added_and_taken_away_and_the_others_keep_their_volumes(cluster: ControlPlane) -> None:
    namespace = _install(cluster, "growing-replicas", "replication.withOneReplica=true")
    first = _pods(cluster, namespace, "commitlog")
    assert list(first) == ["reput-commitlog-0-0"]
    volumes = {
        claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in cluster.get("pvc", namespace=namespace)
    }

    cluster.helm(*_helm("upgrade", namespace, "replicas=3"))
    _await_stores(cluster, namespace)
    assert sorted(_pods(cluster, namespace, "commitlog")) == [f"reput-commitlog-0-{ordinal}" for ordinal in range(3)]
    cluster.helm(*_helm("upgrade", namespace, "replicas=2", "shards=2"))
    _await_stores(cluster, namespace)
    cluster.wait_until(lambda: len(_pods(cluster, namespace, "commitlog")) == 4)
    bound = {
        claim["metadata"]["name"]: claim["spec"]["volumeName"] for claim in cluster.get("pvc", namespace=namespace)
    }
    assert volumes.items() <= bound.items()

    for values, says in (
        (("replicas=2",), "shards is 1"),
        (("shards=2",), "has the replicas of a shard and replicas is 1"),
    ):
        refused = cluster.run("helm", *_helm("upgrade", namespace, *values))
        assert refused.returncode != 0
        assert says in refused.stderr
    assert len(_pods(cluster, namespace, "commitlog")) == 4


def test_the_messages_of_a_shard_without_replicas_become_those_of_its_first_replica(cluster: ControlPlane) -> None:
    """The steps of docs/kubernetes.md."""
    namespace = _install(cluster, "adopting", "shards=1")
    before = cluster.get("pvc", "store-reput-commitlog-0", namespace=namespace)["spec"]["volumeName"]
    refused = cluster.run("helm", *_helm("upgrade", namespace, "replicas=3"))
    assert refused.returncode != 0
    assert "has 1 shards without replicas" in refused.stderr

    page = (CHART.parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    section = page.partition("### Replicas for a shard that has messages")[2]
    script = section.partition("```sh\n")[2].partition("```")[0]
    script = script.replace("-n messages", f"-n {namespace}").replace("namespace: messages", f"namespace: {namespace}")
    script = script.replace("deploy/helm/reput", str(CHART))
    script = script.replace("--reset-then-reuse-values", "--reset-then-reuse-values --set priorityClass.create=false")
    done = cluster.run("bash", "-euc", script)
    assert done.returncode == 0, done.stdout + done.stderr
    _await_stores(cluster, namespace)
    after = cluster.get("pvc", "store-reput-commitlog-0-0", namespace=namespace)
    assert (after["spec"]["volumeName"], after["status"]["phase"]) == (before, "Bound")
    assert sorted(_pods(cluster, namespace, "commitlog")) == [f"reput-commitlog-0-{ordinal}" for ordinal in range(3)]
