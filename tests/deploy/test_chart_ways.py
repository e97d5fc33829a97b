"""What the chart makes beyond its default: ways in, keys, claims that are there, its test and its package; by the real helm."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifest_rules import breaches
from tests.deploy.manifests import Document, environment, of_kind, workloads
from tests.support.control_plane import ControlPlane, running_control_plane
from tools.control_plane_build import missing_programs
from tools.render_manifests import CHART, KUBERNETES_VERSION, find_helm, template

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(missing_programs()), reason="needs tools/control_plane_build.py to have run"),
]

PARENTS = [{"name": "front", "namespace": "ingress"}]
OPEN = {
    "ingress": {
        "grpc": {"enabled": True, "host": "messages.example.org", "className": "nginx", "annotations": {"a": "b"}},
        "console": {"enabled": True, "host": "console.example.org", "tls": [{"secretName": "t", "hosts": ["x.org"]}]},
    },
    "route": {
        "grpc": {"enabled": True, "hostNames": ["messages.example.org"], "parentRefs": PARENTS},
        "console": {"enabled": True, "hostNames": ["console.example.org"], "parentRefs": PARENTS},
        "backendTls": {"enabled": True, "caConfigMapName": "reput-ca"},
    },
}
COPIED = ("--set", "commitlog.storage.existingClaim=copied-store,commitlog.storage.readOnly=true")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running_control_plane(tmp_path_factory.mktemp("control-plane") / "cluster") as plane:
        yield plane


def rendered(*arguments: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(template(*arguments)) if document is not None]


def refusal(*arguments: str) -> str:
    command = [find_helm(), "template", "reput", str(CHART), "--kube-version", KUBERNETES_VERSION, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


def one(documents: list[Document], kind: str, name: str) -> Any:
    (found,) = [item for item in of_kind(documents, kind) if item["metadata"]["name"] == name]
    return found


def test_ingresses_and_routes_lead_to_ports_that_the_gateway_s_service_has() -> None:
    documents = rendered("--set-json", f"gateway={json.dumps(OPEN)}")
    ports = {port["name"]: port["port"] for port in one(documents, "Service", "reput-gateway")["spec"]["ports"]}
    for part, kind in (("grpc", "GRPCRoute"), ("console", "HTTPRoute")):
        ingress = one(documents, "Ingress", f"reput-{part}")["spec"]
        (rule,) = ingress["rules"]
        (path,) = rule["http"]["paths"]
        assert path["backend"]["service"] == {"name": "reput-gateway", "port": {"name": part}}
        route = one(documents, kind, f"reput-{part}")["spec"]
        assert route["parentRefs"] == PARENTS
        assert route["hostnames"] == [rule["host"]]
        assert route["rules"] == [{"backendRefs": [{"name": "reput-gateway", "port": ports[part]}]}]
    policy = one(documents, "BackendTLSPolicy", "reput-gateway")["spec"]
    # The name that deploy/make-secrets and cert-manager put into the gateway's certificate.
    assert policy["validation"]["hostname"] == "reput-gateway.default.svc"
    assert breaches(documents) == []


def test_the_console_answers_to_the_names_by_which_browsers_call_it() -> None:
    (container,) = workloads(rendered("--set-json", f"gateway={json.dumps(OPEN)}"))["gateway"]["spec"]["template"][
        "spec"
    ]["containers"]
    settings = environment(container)
    assert settings["REPUT_GATEWAY_CONSOLE_HOST_NAMES"] == "console.example.org"
    assert settings["REPUT_GATEWAY_CONSOLE_ADDRESS"] == "0.0.0.0:8080"


def test_a_way_to_a_console_that_is_off_is_refused() -> None:
    open_console = "gateway.ingress.console.enabled=true,gateway.ingress.console.host=c.example.org"
    assert "there is no console" in refusal("--set", f"gateway.console.enabled=false,{open_console}")


def test_the_api_server_takes_the_ingresses(cluster: ControlPlane) -> None:
    ingresses = of_kind(rendered("--set-json", f"gateway={json.dumps(OPEN)}"), "Ingress")
    made = json.dumps({"apiVersion": "v1", "kind": "List", "items": ingresses})
    cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=made)


def test_a_copied_store_is_mounted_read_only_and_only_derived_files_have_new_volumes() -> None:
    documents = rendered(*COPIED)
    assert breaches(documents) == []
    log = one(documents, "StatefulSet", "reput-commitlog")["spec"]
    assert "volumeClaimTemplates" not in log
    pod = log["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "store"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "store"]
    assert volume["persistentVolumeClaim"] == {"claimName": "copied-store", "readOnly": True}
    assert (mount["mountPath"], mount["subPath"], mount["readOnly"]) == ("/var/lib/reput/store", "store", True)
    read_only = {name for name, load in workloads(documents).items() if _is_read_only(load)}
    assert read_only == {"commitlog", "consumer", "schedule"}


def _is_read_only(workload: Document) -> bool:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return environment(container).get("REPUT_READ_ONLY") == "true"


def test_a_claim_belongs_to_one_shard_and_read_only_needs_one() -> None:
    assert "a claim is of one shard" in refusal(*COPIED, "--set", "shards=2")
    assert "nothing to be read" in refusal("--set", "commitlog.storage.readOnly=true")


def test_large_numbers_of_a_values_file_reach_the_service_as_they_stand(tmp_path: Path) -> None:
    """A defect: helm reads them as floats, and the service was given 1.073741824e+09."""
    values = tmp_path / "values.yaml"
    values.write_text(
        "commitlog: {settings: {REPUT_COMMITLOG_FILE_SIZE_BYTES: 1073741824, REPUT_COMMITLOG_LEASE_SECONDS: 2.5}}\n"
    )
    (container,) = workloads(rendered("-f", str(values)))["commitlog"]["spec"]["template"]["spec"]["containers"]
    settings = environment(container)
    assert settings["REPUT_COMMITLOG_FILE_SIZE_BYTES"] == "1073741824"
    assert settings["REPUT_COMMITLOG_LEASE_SECONDS"] == "2.5"


def test_helm_itself_refuses_a_wrong_value_of_a_setting() -> None:
    assert "REPUT_COMMITLOG_FLUSH_MODE" in refusal("--set", "commitlog.settings.REPUT_COMMITLOG_FLUSH_MODE=sink")
    assert "REPUT_WORKER_COUNT" in refusal("--set-string", "index.settings.REPUT_WORKER_COUNT=3")


def test_the_priority_class_is_made_when_it_is_wanted() -> None:
    documents = rendered("--set", "priorityClass.create=true")
    assert [item["metadata"]["name"] for item in of_kind(documents, "PriorityClass")] == ["reput-store"]
    for load in of_kind(documents, "StatefulSet"):
        assert load["spec"]["template"]["spec"]["priorityClassName"] == "reput-store"
    assert breaches(documents) == []


def test_keys_are_made_once_and_survive_upgrades_and_removal(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("keys")
    here = ("reput", str(CHART), "-n", namespace, "--set", "keys.create=true")

    def keys() -> dict[str, bytes]:
        found = cluster.get("secrets", "-l", "app.kubernetes.io/component=keys", namespace=namespace)
        return {each["metadata"]["name"]: base64.b64decode(each["data"]["secret"]) for each in found}

    cluster.helm("install", *here)
    made = keys()
    assert made.keys() == {"reput-page-token", "reput-receipt"}
    assert all(len(key) >= 32 for key in made.values())
    assert len(set(made.values())) == 2
    cluster.helm("upgrade", *here, "--set", "image.tag=0.1.1")
    assert keys() == made
    cluster.helm("uninstall", "reput", "-n", namespace)
    assert keys() == made
    cluster.helm("install", *here)
    assert keys() == made


def test_helm_test_runs_a_pod_that_policies_treat_as_a_client(cluster: ControlPlane) -> None:
    namespace = cluster.make_namespace("tested")
    cluster.helm("install", "reput", str(CHART), "-n", namespace, "--set", "helmTest.topic=Greetings")
    hooks = list(yaml.safe_load_all(cluster.helm("get", "hooks", "reput", "-n", namespace)))
    (pod,) = [hook for hook in hooks if hook is not None]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    # The rule that denies everything to the pods of the installation must not choose it.
    for policy in cluster.get("networkpolicies", namespace=namespace):
        wanted = policy["spec"]["podSelector"]["matchLabels"]
        assert not wanted.items() <= pod["metadata"]["labels"].items()
    made = json.dumps(pod)
    said = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-", text=made)
    assert "Warning" not in said


def test_a_packaged_chart_renders_what_its_folder_renders(tmp_path: Path) -> None:
    helm = find_helm()
    made = subprocess.run(
        [helm, "package", str(CHART), "--destination", str(tmp_path)], check=True, capture_output=True, text=True
    )
    (package,) = tmp_path.glob("reput-*.tgz")
    assert os.path.basename(package) in made.stdout
    command = [helm, "template", "reput", str(package), "--skip-tests", "--kube-version", KUBERNETES_VERSION]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == template()
    contents = subprocess.run(["tar", "-tzf", str(package)], check=True, capture_output=True, text=True).stdout
    assert {"reput/README.md", "reput/values.schema.json"} <= set(contents.split())
