"""The audit's CronJob in the chart: it names each replica once, on clones of the StatefulSets' claims, and is confined."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import PIPELINE_VERBS, _build_app
from pipeline.audit.cluster_logs import Replica, parse_replicas
from tests.deploy.manifest_rules import breaches
from tests.deploy.manifests import Document, environment, of_kind, rendered, workloads
from tests.deploy.test_chart_ways import one, refusal
from tests.support.control_plane import ControlPlane
from tools.control_plane_build import missing_programs

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(missing_programs()), reason="needs tools/control_plane_build.py to have run"),
]

ON = "audit.enabled=true,audit.claimName=audits"
SHAPES = {
    "shards": f"{ON},shards=2",
    "replicas": f"{ON},shards=2,replicas=3,commitlog.storage.className=fast",
    "all": f"{ON},audit.console=true,audit.pushTo=http://push:9091,gateway.archive.claimName=old,audit.rereadDays=0",
}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    return control_plane


def made(shape: str) -> tuple[list[Document], Any, Any]:
    """All documents, the audit's pod and its container."""
    documents = rendered("--set", SHAPES[shape])
    pod = one(documents, "CronJob", "reput-audit")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return documents, pod, container


def claims_of(documents: list[Document]) -> set[str]:
    """The claims that the StatefulSets make."""
    return {
        f"{claim['metadata']['name']}-{item['metadata']['name']}-{ordinal}"
        for item in of_kind(documents, "StatefulSet")
        for claim in item["spec"].get("volumeClaimTemplates", [])
        for ordinal in range(item["spec"]["replicas"])
    }


def replicas_of(container: Document) -> list[Replica]:
    """What the job takes its arguments for."""
    return parse_replicas(text.removeprefix("--shard=") for text in container["args"] if text.startswith("--shard="))


@pytest.mark.parametrize("shape", SHAPES)
def test_it_reads_a_clone_of_each_claim_once_and_writes_none(shape: str) -> None:
    documents, pod, container = made(shape)
    clones = {
        volume["name"]: volume["ephemeral"]["volumeClaimTemplate"]["spec"]["dataSource"]["name"]
        for volume in pod["volumes"]
        if "ephemeral" in volume
    }
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}

    assert sorted(clones.values()) == sorted(claims_of(documents))
    parts = [str(part) for replica in replicas_of(container) for part in replica.parts]
    assert sorted(parts) == sorted(path for path, mount in mounts.items() if mount["name"] in clones)
    for path in parts:
        assert mounts[path]["readOnly"] is True
        assert mounts[path]["subPath"] == "store"
        _, _, shard, replica, component = path.split("/")
        names = {f"store-reput-{component}-{shard}-{replica}", f"store-reput-{component}-{shard}"}
        assert clones[mounts[path]["name"]] in names
    assert sorted(volume["name"] for volume in pod["volumes"]) == sorted(mount["name"] for mount in mounts.values())
    assert breaches(documents) == []


def test_shards_and_replicas_have_the_names_that_the_services_have() -> None:
    documents, _, container = made("replicas")
    (log,) = [
        item["spec"]["template"]["spec"]["containers"][0]
        for item in of_kind(documents, "StatefulSet")
        if item["metadata"]["name"] == "reput-commitlog-1"
    ]
    values = environment(log, ordinal=2)

    keys = {replica.key for replica in replicas_of(container)}
    assert f"{values['REPUT_BROKER_NAME']}@{values['REPUT_COMMITLOG_REPLICA_NAME']}" in keys
    assert len(keys) == 6


def test_its_arguments_are_those_that_the_command_takes(tmp_path: Path) -> None:
    _, _, container = made("all")
    assert container["command"] == ["reput", "pipeline", "audit-cluster"]
    assert "audit-cluster" in PIPELINE_VERBS
    app = _build_app((), {"pipeline": ("audit-cluster",)})
    shown = CliRunner().invoke(app, ["pipeline", "audit-cluster", "--help"], terminal_width=200).output
    for argument in container["args"]:
        assert argument.partition("=")[0] in shown
    assert {"--archive=/archive", "--push-to=http://push:9091", "--reread-days=0"} <= set(container["args"])


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_confined_and_bounded(shape: str) -> None:
    _, pod, container = made(shape)

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for kind in ("requests", "limits"):
        assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"][kind].keys()
    assert all(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume)
    assert {variable["name"]: variable["value"] for variable in container["env"]}["TMPDIR"] == "/scratch"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", ["1.32", "1.35"])
def test_every_document_with_the_audit_fits_its_schema(shape: str, version: str) -> None:
    documents, _, _ = made(shape)
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_gateways_show_its_reports_when_that_is_asked_for() -> None:
    documents, _, _ = made("all")
    pod = workloads(documents)["gateway"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "reports"]

    assert environment(container)["REPUT_GATEWAY_CONSOLE_REPORTS"] == mount["mountPath"]
    assert mount["readOnly"] is True


def test_an_audit_without_a_place_for_its_reports_is_refused() -> None:
    assert "audit.claimName is empty" in refusal("--set", "audit.enabled=true")


def test_the_api_server_takes_the_cron_job(cluster: ControlPlane) -> None:
    jobs = [one(rendered("--set", SHAPES[shape]), "CronJob", "reput-audit") for shape in SHAPES]
    for job in jobs:
        cluster.kubectl(
            "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=json.dumps(job)
        )
