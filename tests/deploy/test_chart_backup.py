"""The backups' CronJobs in the chart: one for each shard, on the node and on the claim of its commit log, and confined."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import VERBS, _build_app
from tests.deploy.manifest_rules import breaches
from tests.deploy.manifests import Document, environment, of_kind, rendered
from tests.deploy.test_chart_audit import claims_of
from tests.deploy.test_chart_ways import one, refusal
from tests.support.control_plane import ControlPlane
from tools.control_plane_build import missing_programs

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(bool(missing_programs()), reason="needs tools/control_plane_build.py to have run"),
]

SHAPES = {
    "claim": "backup.enabled=true,backup.claimName=backups,shards=2",
    "bucket": "backup.enabled=true,backup.to=s3://bucket/reput,shards=2,replicas=3,backup.replica=1,backup.serviceAccountName=b",
}
POD_NAME = "statefulset.kubernetes.io/pod-name"


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> ControlPlane:
    return control_plane


def made(shape: str) -> tuple[list[Document], list[tuple[Any, Any]]]:
    """All documents; the pod and the container of each shard's job."""
    documents = rendered("--set", SHAPES[shape])
    found = []
    for shard in range(2):
        pod = one(documents, "CronJob", f"reput-backup-{shard}")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        found.append((pod, container))
    assert len(of_kind(documents, "CronJob")) == len(found)
    return documents, found


@pytest.mark.parametrize(("shape", "pods"), [("claim", ["0", "1"]), ("bucket", ["0-1", "1-1"])])
def test_each_shard_has_a_job_where_its_commit_log_is_which_reads_its_claim(shape: str, pods: list[str]) -> None:
    documents, found = made(shape)
    for (pod, container), ordinal in zip(found, pods, strict=True):
        (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"] == {POD_NAME: f"reput-commitlog-{ordinal}"}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        claim = volumes["store"]["persistentVolumeClaim"]["claimName"]
        assert claim == f"store-reput-commitlog-{ordinal}"
        assert claim in claims_of(documents)
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "store"]
        assert (mount["readOnly"], mount["subPath"], mount["mountPath"]) == (True, "store", "/store")
        assert sorted(volumes) == sorted(mount["name"] for mount in container["volumeMounts"])
    assert breaches(documents) == []


def test_shards_have_the_names_that_the_commit_logs_have() -> None:
    documents, found = made("claim")
    (log,) = [item for item in of_kind(documents, "StatefulSet") if item["metadata"]["name"] == "reput-commitlog"]
    for ordinal, (_, container) in enumerate(found):
        name = environment(log["spec"]["template"]["spec"]["containers"][0], ordinal=ordinal)["REPUT_BROKER_NAME"]
        assert f"--broker-name={name}" in container["args"]


@pytest.mark.parametrize(("shape", "to"), [("claim", "/backups"), ("bucket", "s3://bucket/reput")])
def test_its_arguments_are_those_that_the_command_takes(shape: str, to: str) -> None:
    _, found = made(shape)
    app = _build_app(("backup", "restore"), {})
    shown = CliRunner().invoke(app, ["backup", "--help"], terminal_width=200).output
    for _, container in found:
        assert container["command"] == ["reput", "backup"]
        assert container["command"][1] in VERBS
        assert {"--store=/store", f"--to={to}", "--keep=30"} <= set(container["args"])
        for argument in container["args"]:
            assert argument.partition("=")[0] in shown


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_confined_and_bounded(shape: str) -> None:
    documents, found = made(shape)
    for pod, container in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        for kind in ("requests", "limits"):
            assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"][kind].keys()
        assert all(volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume)
    policy = one(documents, "NetworkPolicy", "reput-backup")["spec"]
    assert [rule["ports"][0]["port"] for rule in policy["egress"]] == [53]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", ["1.32", "1.35"])
def test_every_document_with_backups_fits_its_schema(shape: str, version: str) -> None:
    documents, _ = made(shape)
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("values", ["backup.enabled=true", f"{SHAPES['claim']},backup.to=s3://b/p"])
def test_one_place_must_be_named(values: str) -> None:
    assert "set either backup.to" in refusal("--set", values)


def test_the_api_server_takes_the_cron_jobs(cluster: ControlPlane) -> None:
    for shape in SHAPES:
        for job in of_kind(made(shape)[0], "CronJob"):
            cluster.kubectl(
                "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", text=json.dumps(job)
            )
