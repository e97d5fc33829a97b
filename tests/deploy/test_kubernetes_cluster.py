"""The manifests and the chart at a real control plane: what its API server, controllers and scheduler make of them.

Nodes are kwok's: no container runs, every pod that is scheduled is Ready at once (tests/support/control_plane.py).
"""

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.component_settings import load_environment
from tests.deploy.manifest_rules import breaches
from tests.deploy.manifests import COMPONENTS, OF_SHARD, STORES, Document, of_kind, parsed, rendered, workloads
from tests.deploy.seeded_mistakes import MISTAKES, Mistake
from tests.deploy.test_kubernetes import INSTALLATION
from tests.support.control_plane import NODE_COUNT, WAIT_OPTION, ControlPlane
from tools.control_plane_build import missing_programs
from tools.render_manifests import CHART, KUSTOMIZE, differences, template

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(missing_programs()), reason="needs tools/control_plane_build.py to have run"),
]

WORKLOADS = {
    component: f"{load['kind'].lower()}/reput-{component}" for component, load in workloads(INSTALLATION).items()
}
RENDERINGS = {
    "the default": (),
    "three shards": ("--set", "shards=3"),
    "without TLS": ("--set", "tls.enabled=false"),
    "with sign-in": ("--set", "auth.enabled=true,auth.jwt.issuer=https://id.example.org,auth.jwt.audience=reput"),
    "with an archive": ("--set", "gateway.archive.claimName=reput-archive"),
    "with what a team adds to its pods": (
        "--set-json",
        'index={"podLabels": {"team": "a"}, "extraEnv": [{"name": "OTEL_SERVICE_NAME", "value": "index"}],'
        ' "extraVolumes": [{"name": "more", "emptyDir": {"sizeLimit": "1Mi"}}],'
        ' "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}], "serviceAccount": {"annotations": {"role": "r"}}}',
    ),
    "three replicas": ("--set", "replicas=3"),
    "three shards of two replicas, apart": ("--set", "shards=3,replicas=2,replication.antiAffinity=hard"),
    "one replica, to which more can be added": ("--set", "replication.withOneReplica=true,tls.enabled=false"),
    "replicas with an API server that is known": (
        "--set",
        "replicas=2,replication.minInSync=1,networkPolicy.apiServer.addresses={10.0.0.1/32}",
    ),
    "without autoscaling and metrics": ("--set", "gateway.autoscaling.enabled=false,metrics.enabled=false"),
    "with doors for clients outside the cluster": (
        "--set-json",
        'gateway.remoting={"addresses": ["192.0.2.1:30911"], "service": {"type": "NodePort"}}',
        "--set",
        "nameserver.service.type=NodePort,nameserver.external={10.0.0.9:9876}",
    ),
    "without door and name servers": ("--set", "gateway.remoting.enabled=false,nameserver.enabled=false"),
}
WITH_OTHER_KINDS = (
    "--set",
    "tls.certManager.enabled=true,metrics.serviceMonitor.enabled=true,metrics.alertRules.enabled=true,"
    "metrics.dashboards.enabled=true",
)


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    return control_plane


def _pods(cluster: ControlPlane, namespace: str, component: str) -> list[Document]:
    pods: list[Document] = cluster.get("pods", "-l", f"app.kubernetes.io/component={component}", namespace=namespace)
    return sorted((pod for pod in pods if "deletionTimestamp" not in pod["metadata"]), key=_name)


def _name(item: Document) -> str:
    name: str = item["metadata"]["name"]
    return name


def _images(cluster: ControlPlane, namespace: str) -> set[str]:
    return {
        pod["spec"]["containers"][0]["image"]
        for component in COMPONENTS
        for pod in _pods(cluster, namespace, component)
    }


def _await_roll_out(cluster: ControlPlane, namespace: str) -> None:
    for workload in WORKLOADS.values():
        cluster.kubectl("rollout", "status", workload, "-n", namespace, WAIT_OPTION)


def _await_gateways(cluster: ControlPlane, namespace: str) -> None:
    """A Deployment that is autoscaled begins with one pod; the autoscaler sees to its least number."""
    cluster.wait_until(lambda: len(_pods(cluster, namespace, "gateway")) == 2)
    _await_roll_out(cluster, namespace)


def _refusals(cluster: ControlPlane, namespace: str) -> list[str]:
    """Pods that controllers could not make: a workload is accepted whatever its pods are."""
    events = cluster.get("events", namespace=namespace)
    return [event["message"] for event in events if event["reason"] == "FailedCreate"]


def test_apply_k_reaches_ready_where_pods_must_be_restricted(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("by-kustomize")
    said = cluster.kubectl("apply", "-k", str(KUSTOMIZE), "-n", namespace)
    assert "Warning" not in said
    _await_roll_out(cluster, namespace)
    assert _refusals(cluster, namespace) == []
    _await_gateways(cluster, namespace)
    assert [len(_pods(cluster, namespace, component)) for component in OF_SHARD] == [1] * len(OF_SHARD)
    assert list(map(_name, _pods(cluster, namespace, "nameserver"))) == ["reput-nameserver-0", "reput-nameserver-1"]
    for component in OF_SHARD:
        (pod,) = _pods(cluster, namespace, component)
        # What the shard's settings are made of.
        assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
    assert len({pod["spec"]["nodeName"] for pod in _pods(cluster, namespace, "gateway")}) == 2
    claims = cluster.get("persistentvolumeclaims", namespace=namespace)
    assert {_name(claim): claim["status"]["phase"] for claim in claims} == {
        f"store-reput-{component}-0": "Bound" for component in STORES
    }
    # What is applied again changes nothing, and restarts nothing.
    generations = [
        load["metadata"]["generation"] for load in cluster.get("statefulset,deployment", namespace=namespace)
    ]
    cluster.kubectl("apply", "-k", str(KUSTOMIZE), "-n", namespace)
    again = [load["metadata"]["generation"] for load in cluster.get("statefulset,deployment", namespace=namespace)]
    assert again == generations


def test_a_restricted_namespace_refuses_what_it_should(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("restricted")
    for mistake in [mistake for mistake in MISTAKES if mistake.refused_by == "pods"]:
        pod = _pod(mistake.made_in(INSTALLATION))
        refused = cluster.run("kubectl", "create", "--dry-run=server", "-n", namespace, "-f", "-", text=json.dumps(pod))
        assert refused.returncode != 0, mistake.name
        assert "violates PodSecurity" in refused.stderr, mistake.name
        assert mistake.says in refused.stderr, mistake.name
    accepted = json.dumps(_pod(INSTALLATION))
    assert "Warning" not in cluster.kubectl("create", "--dry-run=server", "-n", namespace, "-f", "-", text=accepted)


def _pod(documents: list[Document]) -> Document:
    template_ = copy.deepcopy(workloads(documents)["index"]["spec"]["template"])
    spec = template_["spec"]
    # The claim and what belongs to the whole installation are not there for a pod alone.
    spec["volumes"].append({"name": "store", "emptyDir": {}})
    for absent in ("serviceAccountName", "priorityClassName"):
        spec.pop(absent, None)
    labels = template_["metadata"]["labels"] | {"apps.kubernetes.io/pod-index": "0"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "index", "labels": labels}, "spec": spec}


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.refused_by in ("server", "schema")], ids=lambda m: m.name)
def test_the_api_server_refuses_a_mistake(cluster: ControlPlane, mistake: Mistake) -> None:
    refused = _dry_run(cluster, mistake.made_in(INSTALLATION))
    assert mistake.says in refused


def test_the_api_server_accepts_the_whole_as_it_is(cluster: ControlPlane) -> None:
    assert _dry_run(cluster, INSTALLATION) == ""


def _dry_run(cluster: ControlPlane, documents: list[Document]) -> str:
    """What the API server says against the documents; empty when nothing."""
    made = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    arguments = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts", "-f", "-")
    done = cluster.run("kubectl", "apply", *arguments, text=made)
    return "" if done.returncode == 0 else done.stderr


def test_the_rendering_equals_the_chart() -> None:
    assert differences(KUSTOMIZE) == []


def test_kustomize_build_is_the_chart_s_default(cluster: ControlPlane) -> None:
    built = parsed(cluster.kubectl("kustomize", str(KUSTOMIZE)))
    by_helm = rendered()
    for document in by_helm:
        for label in ("app.kubernetes.io/managed-by", "helm.sh/chart"):
            document["metadata"]["labels"].pop(label, None)
    assert sorted(map(_key, built)) == sorted(map(_key, by_helm))
    assert {_key(one): one for one in built} == {_key(one): one for one in by_helm}


def _key(document: Document) -> tuple[str, str]:
    return document["kind"], _name(document)


@pytest.mark.parametrize("arguments", RENDERINGS.values(), ids=RENDERINGS)
def test_each_way_to_install_is_accepted_and_keeps_the_rules(cluster: ControlPlane, arguments: tuple[str, ...]) -> None:
    documents = rendered(*arguments)
    assert _dry_run(cluster, documents) == ""
    assert breaches(documents) == []


def test_a_volume_is_filled_from_a_snapshot_of_one_shard() -> None:
    source = "apiGroup=snapshot.storage.k8s.io,{0}kind=VolumeSnapshot,{0}name=broker-a".format(
        "commitlog.storage.dataSource."
    )
    arguments = ("--set", f"commitlog.storage.dataSource.{source},global.imageRegistry=registry.example.org/")
    documents = rendered(*arguments)
    (log,) = [each for each in of_kind(documents, "StatefulSet") if _name(each) == "reput-commitlog"]
    (claim,) = log["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["dataSource"] == {
        "apiGroup": "snapshot.storage.k8s.io",
        "kind": "VolumeSnapshot",
        "name": "broker-a",
    }
    (container,) = log["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.org/reput:")
    with pytest.raises(subprocess.CalledProcessError):
        template(*arguments, "--set", "shards=2")


def test_the_archive_is_mounted_where_the_gateway_looks_for_it() -> None:
    """A defect: the setting could be given, and nothing could be mounted there."""
    documents = rendered("--set", "gateway.archive.claimName=reput-archive")
    (pod,) = [each["spec"]["template"]["spec"] for each in of_kind(documents, "Deployment")]
    (container,) = pod["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "archive"]
    assert load_environment("gateway", container).archive == Path(mount["mountPath"])
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "archive"]
    assert volume["persistentVolumeClaim"] == {"claimName": "reput-archive", "readOnly": True}


def test_parts_for_other_people_s_kinds_are_rendered_whole() -> None:
    documents = rendered(*WITH_OTHER_KINDS)
    by_kind: dict[str, list[Any]] = {}
    for document in documents:
        by_kind.setdefault(document["kind"], []).append(document)
    made = {certificate["spec"]["secretName"] for certificate in by_kind["Certificate"]}
    assert {f"reput-tls-{component}" for component in COMPONENTS} <= made
    uris = {tuple(certificate["spec"].get("uris", ())) for certificate in by_kind["Certificate"]}
    assert {(f"spiffe://reput/{component}",) for component in COMPONENTS} <= uris
    assert len(by_kind["Issuer"]) == 2
    (monitor,) = by_kind["ServiceMonitor"]
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    scraped = [
        _name(service)
        for service in by_kind["Service"]
        if selected <= service["metadata"]["labels"].items()
        and any(port["name"] == monitor["spec"]["endpoints"][0]["port"] for port in service["spec"]["ports"])
    ]
    assert sorted(scraped) == [
        "reput-commitlog",
        "reput-consumequeue",
        "reput-consumer",
        "reput-gateway-headless",
        "reput-index",
        "reput-nameserver",
        "reput-schedule",
    ]
    (rules,) = by_kind["PrometheusRule"]
    assert rules["spec"]["groups"]
    dashboards = by_kind["ConfigMap"]
    assert all(json.loads(text)["panels"] for dashboard in dashboards for text in dashboard["data"].values())


def test_rules_and_panels_find_the_jobs_that_the_monitor_makes() -> None:
    """What a job is called is said in one file and asked for in others; a rule that finds no job is silent for ever."""
    documents = rendered(*WITH_OTHER_KINDS)
    (monitor,) = [document for document in documents if document["kind"] == "ServiceMonitor"]
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    services = [
        document
        for document in documents
        if document["kind"] == "Service" and selected <= document["metadata"]["labels"].items()
    ]
    jobs = {_job(service, monitor["spec"]) for service in services}
    asked = [
        text
        for document in documents
        if document["kind"] in ("PrometheusRule", "ConfigMap")
        for text in re.findall(r'job(=~?)\\*"([^"\\]+)', json.dumps(document).replace("\\\\", ""))
    ]
    assert len(asked) >= 4
    for operator, wanted in asked:
        for job in jobs:
            assert re.fullmatch(wanted if operator == "=~" else re.escape(wanted), job), (job, wanted)
    assert jobs == {f"reput-{component}" for component in COMPONENTS}


def _job(service: Document, monitor: Document) -> str:
    """The job of a Service's targets, as Prometheus and its operator define it."""
    labels = service["metadata"]["labels"]
    target = {f"__meta_kubernetes_service_label_{re.sub('[^a-zA-Z0-9_]', '_', name)}": labels[name] for name in labels}
    target["job"] = labels.get(monitor.get("jobLabel", ""), _name(service))
    (endpoint,) = monitor["endpoints"]
    for rule in endpoint.get("relabelings", []):
        text = ";".join(target.get(label, "") for label in rule["sourceLabels"])
        found = re.fullmatch(rule.get("regex", "(.*)"), text)
        if found is not None:
            target[rule["targetLabel"]] = found.expand(rule.get("replacement", "$1").replace("$", "\\"))
    job: str = target["job"]
    return job


def test_helm_installs_upgrades_rolls_back_and_leaves_the_volumes(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("by-helm")
    priority = ("--set", "priorityClass.create=true,priorityClass.name=by-helm")
    # One name server, because a roll-out waits 35 s between two.
    here = (
        "reput",
        str(CHART),
        "-n",
        namespace,
        "--wait",
        WAIT_OPTION,
        *priority,
        "--set",
        "nameserver.replicas=1",
    )
    # As the chart was before it had doors and name servers: their parts appear, and no field that cannot change does.
    cluster.helm("install", *here, "--set", "gateway.remoting.enabled=false,nameserver.enabled=false")
    cluster.helm("upgrade", *here)
    _await_roll_out(cluster, namespace)
    assert _images(cluster, namespace) == {"reput:0.3.0"}
    doors = {_name(service): service["spec"] for service in cluster.get("services", namespace=namespace)}
    assert doors["reput-broker-0"]["clusterIP"] not in ("", "None")
    before = {_name(pod): pod["metadata"]["uid"] for name in OF_SHARD for pod in _pods(cluster, namespace, name)}

    cluster.helm("upgrade", *here, "--set", "image.tag=0.1.1")
    _await_roll_out(cluster, namespace)
    assert _images(cluster, namespace) == {"reput:0.1.1"}

    refused = cluster.run("helm", "upgrade", *here, "--set", "shards=0")
    assert refused.returncode != 0
    assert "minimum" in refused.stderr
    assert _images(cluster, namespace) == {"reput:0.1.1"}

    cluster.helm("rollback", "reput", "2", "-n", namespace, "--wait", WAIT_OPTION)
    _await_roll_out(cluster, namespace)
    assert _images(cluster, namespace) == {"reput:0.3.0"}
    after = {_name(pod): pod["metadata"]["uid"] for name in OF_SHARD for pod in _pods(cluster, namespace, name)}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())

    cluster.helm("uninstall", "reput", "-n", namespace, "--wait")
    assert len(cluster.get("persistentvolumeclaims", namespace=namespace)) == len(STORES)


def test_more_shards_leave_those_that_are_there_alone(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("growing")
    here = ("reput", str(CHART), "-n", namespace, "--wait", WAIT_OPTION, "--set", "priorityClass.create=false")
    cluster.helm("install", *here)
    first = {_name(pod): pod["metadata"]["uid"] for name in OF_SHARD for pod in _pods(cluster, namespace, name)}
    volumes = {_name(claim): claim["spec"]["volumeName"] for claim in cluster.get("pvc", namespace=namespace)}

    cluster.helm("upgrade", *here, "--set", "shards=3")
    _await_roll_out(cluster, namespace)
    pods = {_name(pod): pod for name in OF_SHARD for pod in _pods(cluster, namespace, name)}
    assert sorted(pods) == sorted(f"reput-{name}-{ordinal}" for name in OF_SHARD for ordinal in range(3))
    assert first.items() <= {name: pod["metadata"]["uid"] for name, pod in pods.items()}.items()
    for name, pod in pods.items():
        assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == name.rpartition("-")[2]
    assert all(
        len({pods[f"reput-{name}-{i}"]["spec"]["nodeName"] for i in range(3)}) == NODE_COUNT for name in OF_SHARD
    )

    # What is taken away comes back with its volume.
    cluster.kubectl("scale", "statefulset", "reput-commitlog", "--replicas=1", "-n", namespace)
    cluster.wait_until(lambda: len(_pods(cluster, namespace, "commitlog")) == 1)
    cluster.kubectl("scale", "statefulset", "reput-commitlog", "--replicas=3", "-n", namespace)
    _await_roll_out(cluster, namespace)
    bound = {_name(claim): claim["spec"]["volumeName"] for claim in cluster.get("pvc", namespace=namespace)}
    assert volumes.items() <= bound.items()
    assert len(bound) == 3 * len(STORES)


def test_an_upgrade_that_forgets_the_shards_is_refused_and_takes_nothing(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("shrinking")
    upgrade = ("upgrade", "reput", str(CHART), "-n", namespace)
    own = ("--set", "priorityClass.create=false")
    cluster.helm("install", *upgrade[1:], *own, "--set", "shards=3")

    def replicas() -> list[int]:
        sets = cluster.get("statefulset", namespace=namespace)
        return [load["spec"]["replicas"] for load in sets if _name(load) != "reput-nameserver"]

    refused = cluster.run("helm", *upgrade, *own, "--set", "image.tag=0.1.1")
    assert refused.returncode != 0
    assert "has 3 replicas and shards is 1" in refused.stderr
    assert "allowFewerShards" in refused.stderr
    assert replicas() == [3, 3, 3, 3, 3]

    cluster.helm(*upgrade, "--reset-then-reuse-values", "--set", "image.tag=0.1.1")
    assert replicas() == [3, 3, 3, 3, 3]
    cluster.helm(*upgrade, "--reset-then-reuse-values", "--set", "shards=2,allowFewerShards=true")
    assert replicas() == [2, 2, 2, 2, 2]


def test_a_second_pod_of_a_kind_may_not_be_evicted(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("draining")
    cluster.helm(
        "install",
        "reput",
        str(CHART),
        "-n",
        namespace,
        "--wait",
        WAIT_OPTION,
        "--set",
        "shards=3,priorityClass.create=false",
    )
    _await_gateways(cluster, namespace)
    nodes = [f"node-{number}" for number in range(NODE_COUNT)]
    try:
        # What is evicted cannot come back, as while nodes are being drained.
        cluster.kubectl("cordon", *nodes)
        for component in COMPONENTS:
            first, second, *_ = map(_name, _pods(cluster, namespace, component))
            budget = f"reput-{component}"
            cluster.wait_until(
                lambda budget=budget: (
                    cluster.get("pdb", budget, namespace=namespace)["status"].get("disruptionsAllowed") == 1
                )
            )
            assert "Success" in _evict(cluster, namespace, first)
            assert "would violate the pod's disruption budget" in _evict(cluster, namespace, second)
    finally:
        cluster.kubectl("uncordon", *nodes)
    _await_roll_out(cluster, namespace)


def _evict(cluster: ControlPlane, namespace: str, pod: str) -> str:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    done = cluster.run("kubectl", "create", "--raw", path, "-f", "-", text=json.dumps(eviction))
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "path",
    sorted((Path(CHART).parents[1] / "examples").glob("*/kustomization.yaml")),
    ids=lambda path: path.parent.name,
)
def test_each_example_is_accepted_and_keeps_the_rules(cluster: ControlPlane, path: Path) -> None:
    documents = parsed(cluster.kubectl("kustomize", str(path.parent)))
    for document in documents:
        document["metadata"].pop("namespace", None)  # it is not there in a dry run
    assert _dry_run(cluster, documents) == ""
    assert breaches(documents) == []
