"""What the chart makes beyond its default: ways in, keys, claims that are there, its test and its package; by the real helm."""

import base64
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.component_settings import load_environment
from tests.deploy.manifest_rules import breaches
from tests.deploy.manifests import Document, environment, of_kind, parsed, rendered, shard_sets, workloads
from tests.support.control_plane import ControlPlane
from tools.control_plane_build import missing_programs
from tools.render_manifests import CHART, KUBERNETES_VERSION, find_helm, template

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
def cluster(control_plane: ControlPlane) -> ControlPlane:
    return control_plane


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


def notes(cluster: ControlPlane, *arguments: str) -> str:
    """What helm would say to who installs."""
    said = cluster.helm("install", "reput", str(CHART), "-n", "messages", "--dry-run=server", *arguments)
    return said.rpartition("NOTES:")[2]


def component(documents: list[Document], name: str, ordinal: int = 0) -> Any:
    (container,) = workloads(documents)[name]["spec"]["template"]["spec"]["containers"]
    return load_environment(name, container, ordinal)


OUTSIDE = {
    "remoting": {
        "addresses": ["192.0.2.1:30911", "192.0.2.1:30921", "192.0.2.1:30931"],
        "service": {"type": "NodePort", "annotations": {"a": "b"}},
    }
}


def test_doors_for_clients_outside_the_cluster_are_at_the_ports_that_they_are_told() -> None:
    two = ("--set-json", f"gateway={json.dumps(OUTSIDE)}", "--set", "shards=2,nameserver.service.type=LoadBalancer")
    documents = rendered(*two)
    assert breaches(documents) == []
    for shard, port in (("0", 30911), ("1", 30921)):
        service = one(documents, "Service", f"reput-broker-{shard}")
        assert (service["spec"]["type"], service["metadata"]["annotations"]) == ("NodePort", {"a": "b"})
        assert [(p["port"], p["nodePort"]) for p in service["spec"]["ports"]] == [(port, port), (port - 2, port - 2)]
        assert component(documents, "commitlog", int(shard)).door() == ("192.0.2.1", port)
    # A third shard may be added without a restart of the others: its address is told already.
    assert component(documents, "commitlog", 2).door() == ("192.0.2.1", 30931)
    # A name server is not asked for another one's routes, so each has an address of its own.
    for ordinal in "01":
        outside = one(documents, "Service", f"reput-nameserver-{ordinal}")["spec"]
        assert (outside["type"], outside["selector"]["apps.kubernetes.io/pod-index"]) == ("LoadBalancer", ordinal)
    assert "addresses has 3 addresses and shards is 4" in refusal(*two, "--set", "shards=4")


def test_shards_of_a_mixed_cluster_register_at_rocketmq_s_name_servers_and_may_reach_them() -> None:
    documents = rendered("--set", "nameserver.external={10.0.0.9:9876,ns.rocketmq.svc:9877}")
    assert breaches(documents) == []
    listed = component(documents, "commitlog").nameservers.split(";")
    assert len(listed) == 4
    assert listed[2:] == ["10.0.0.9:9876", "ns.rocketmq.svc:9877"]
    egress = one(documents, "NetworkPolicy", "reput-commitlog")["spec"]["egress"]
    assert {"to": [{"ipBlock": {"cidr": "10.0.0.9/32"}}], "ports": [{"protocol": "TCP", "port": 9876}]} in egress
    assert {"ports": [{"protocol": "TCP", "port": 9877}]} in egress
    only = rendered("--set", "nameserver.enabled=false,nameserver.external={10.0.0.9:9876}")
    assert component(only, "commitlog").nameservers == "10.0.0.9:9876"
    assert "nameserver" not in workloads(only)


def test_door_and_name_servers_are_switched_off_each_and_nothing_is_left_of_them() -> None:
    documents = rendered("--set", "gateway.remoting.enabled=false")
    assert breaches(documents) == []
    assert "nameserver" in workloads(documents)  # for brokers of RocketMQ
    text = template("--set", "gateway.remoting.enabled=false,nameserver.enabled=false")
    assert "egress: [] # it calls nobody" in text
    stated = re.sub(r"(^| )#.*", "", text, flags=re.MULTILINE)
    for word in ("nameserver", "NAMESERVER", "REMOTING", "door", "BROKER_ADDRESS", "9876", "10909", "reput-broker"):
        assert word not in stated, word


def test_doors_stay_where_clients_must_sign_in_and_the_notes_say_that_name_servers_check_no_one(
    cluster: ControlPlane,
) -> None:
    documents = rendered("--set", "auth.enabled=true,gateway.settings.REPUT_GATEWAY_CLIENT_CA=/ca.crt")
    assert breaches(documents) == []
    settings = component(documents, "gateway")
    assert (settings.auth, list(settings.doors())) == ("on", ["broker-0"])
    assert settings.client_ca is not None
    assert "name servers check no one" in notes(cluster, "--set", "auth.enabled=true")
    assert "name servers check no one" not in notes(cluster)


def test_the_notes_say_what_clients_over_remoting_are_given(cluster: ControlPlane) -> None:
    assert "reput-nameserver-0.reput-nameserver.messages.svc:9876;reput-nameserver-1." in notes(cluster)
    assert "-Dtls.enable=true" in notes(cluster)
    assert "-Dtls.enable=true" not in notes(cluster, "--set", "tls.enabled=false")
    assert "-Dtls.enable=true" not in notes(cluster, "--set-string", "gateway.settings.REPUT_GATEWAY_PUBLIC_TLS=false")
    assert "give gateway.remoting.addresses" in notes(cluster, "--set", "gateway.remoting.service.type=LoadBalancer")
    assert "no name server" in notes(cluster, "--set", "nameserver.enabled=false")


def test_an_upgrade_whose_name_servers_would_wait_for_a_certificate_is_refused(cluster: ControlPlane) -> None:
    """deploy/make-secrets of an older version made no Secret for name servers."""
    namespace = cluster.make_namespace("older-secrets")
    here = ("reput", str(CHART), "-n", namespace)
    cluster.helm("install", *here, "--set", "nameserver.enabled=false")
    for name in ("gateway", "nameserver"):
        cluster.kubectl("create", "secret", "generic", f"reput-tls-{name}", "-n", namespace)
        done = cluster.run("helm", "upgrade", *here, "--set", "nameserver.enabled=true")
        assert (done.returncode == 0) == (name == "nameserver")
        assert ("Run deploy/make-secrets again" in done.stderr) == (name == "gateway")


def test_the_priority_class_is_made_when_it_is_wanted() -> None:
    documents = rendered("--set", "priorityClass.create=true")
    assert [item["metadata"]["name"] for item in of_kind(documents, "PriorityClass")] == ["reput-store"]
    for load in shard_sets(documents):
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
    (pod,) = parsed(cluster.helm("get", "hooks", "reput", "-n", namespace))
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
