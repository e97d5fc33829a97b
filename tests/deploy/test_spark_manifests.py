"""The manifests of deploy/spark, checked without a cluster: what a pod may do, and that every name leads somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import PIPELINE_VERBS

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy" / "spark"
Document = dict[str, Any]


def _documents() -> Iterator[tuple[str, Document]]:
    for path in sorted(MANIFESTS.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield path.name, document


def _one(kind: str) -> Document:
    (found,) = [document for _, document in _documents() if document["kind"] == kind]
    return found


def _cron_pod() -> Document:
    pod: Document = _one("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod


def _confined(pod: Document, container: Document) -> None:
    assert pod["runAsNonRoot"] is True
    assert pod["runAsUser"] > 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _mounted(volumes: list[Document], mounts: list[Document]) -> dict[str, bool]:
    """Mount paths and whether they are read-only; every mount has its volume, every volume a mount and a bound."""
    names = [volume["name"] for volume in volumes]
    assert sorted(names) == sorted(mount["name"] for mount in mounts)
    assert all("persistentVolumeClaim" in volume or volume["emptyDir"]["sizeLimit"] for volume in volumes)
    return {mount["mountPath"]: mount.get("readOnly", False) for mount in mounts}


def test_the_manifests_are_of_these_kinds_and_versions() -> None:
    assert {(document["apiVersion"], document["kind"]) for _, document in _documents()} == {
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication"),
        ("batch/v1", "CronJob"),
        ("v1", "ServiceAccount"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    }


def test_the_application_is_confined_and_bounded() -> None:
    spec = _one("SparkApplication")["spec"]
    for role in ("driver", "executor"):
        part = spec[role]
        _confined(part["podSecurityContext"], part["securityContext"])
        assert part["cores"] >= 1
        assert part["coreLimit"]
        assert part["memory"]
        assert part["memoryOverhead"]
        mounted = _mounted(spec["volumes"], part["volumeMounts"])
        assert mounted["/store"] is True
        assert mounted["/tmp"] is False
    # One Python worker of 1.5 GiB for each core.
    overhead_gib = int(spec["executor"]["memoryOverhead"].removesuffix("g"))
    assert overhead_gib >= 1.5 * spec["executor"]["cores"]
    (store,) = [volume for volume in spec["volumes"] if volume["name"] == "store"]
    assert store["persistentVolumeClaim"]["readOnly"] is True
    assert any(volume["name"].startswith("spark-local-dir-") for volume in spec["volumes"])


def test_the_cron_job_is_confined_and_bounded() -> None:
    pod = _cron_pod()
    (container,) = pod["containers"]
    _confined(pod["securityContext"], container["securityContext"])
    assert pod["automountServiceAccountToken"] is False
    assert pod["restartPolicy"] == "Never"
    for kind in ("requests", "limits"):
        assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"][kind].keys()
    mounted = _mounted(pod["volumes"], container["volumeMounts"])
    assert mounted == {"/store": True, "/archive": False, "/scratch": False, "/tmp": False}
    assert _one("CronJob")["spec"]["concurrencyPolicy"] == "Forbid"
    assert {variable["name"]: variable["value"] for variable in container["env"]}["SPARK_LOCAL_DIRS"] in mounted


def test_only_the_driver_speaks_to_the_api_server() -> None:
    accounts = {
        document["metadata"]["name"]: document["automountServiceAccountToken"]
        for _, document in _documents()
        if document["kind"] == "ServiceAccount"
    }
    spec = _one("SparkApplication")["spec"]
    assert accounts == {spec["driver"]["serviceAccount"]: True, spec["executor"]["serviceAccount"]: False}
    binding, role = _one("RoleBinding"), _one("Role")
    assert [subject["name"] for subject in binding["subjects"]] == [spec["driver"]["serviceAccount"]]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert all("*" not in rule["verbs"] + rule["resources"] for rule in role["rules"])


def test_verbs_files_and_versions_are_those_of_the_project() -> None:
    import pyspark

    from cli.main import version

    spec = _one("SparkApplication")["spec"]
    assert spec["arguments"][0] in PIPELINE_VERBS
    assert spec["mainApplicationFile"] == "local:///opt/reput/cli/submit.py"
    assert (ROOT / "cli" / "submit.py").is_file()
    assert spec["sparkVersion"] == pyspark.__version__
    (container,) = _cron_pod()["containers"]
    assert container["command"] == ["reput", "pipeline", "archive"]
    assert spec["image"] == f"reput-spark:{version()}"


def test_the_jobs_fit_the_installation_that_the_chart_makes() -> None:
    """A defect: image, claim, user and path of the store were those of no installation."""
    installed = yaml.safe_load_all((ROOT / "deploy/kustomize/stores.yaml").read_text(encoding="utf-8"))
    (log,) = [
        each for each in installed if each["kind"] == "StatefulSet" and each["metadata"]["name"].endswith("-commitlog")
    ]
    pod, claims = log["spec"]["template"], log["spec"]["volumeClaimTemplates"]
    (service,) = pod["spec"]["containers"]
    environment = {each["name"]: each.get("value", "") for each in service["env"]}
    (store,) = [mount for mount in service["volumeMounts"] if mount["name"] == claims[0]["metadata"]["name"]]
    log_of_shard_0 = {**pod["metadata"]["labels"], "apps.kubernetes.io/pod-index": "0"}

    spec, cron = _one("SparkApplication")["spec"], _cron_pod()
    assert cron["containers"][0]["image"] == service["image"]
    arguments = cron["containers"][0]["args"]
    assert arguments[arguments.index("--broker-name") + 1] == environment["REPUT_BROKER_NAME"].replace("$(SHARD)", "0")
    for volumes, parts, user in (
        (cron["volumes"], [(cron, cron["containers"][0])], cron["securityContext"]),
        (
            spec["volumes"],
            [(spec[role], spec[role]) for role in ("driver", "executor")],
            spec["driver"]["podSecurityContext"],
        ),
    ):
        assert {name: pod["spec"]["securityContext"][name] for name in ("runAsUser", "fsGroup")}.items() <= user.items()
        (volume,) = [each for each in volumes if each["name"] == "store"]
        claim = volume["persistentVolumeClaim"]["claimName"]
        assert claim == f"{claims[0]['metadata']['name']}-{log['metadata']['name']}-0"
        for part, container in parts:
            (mount,) = [each for each in container["volumeMounts"] if each["name"] == "store"]
            assert f"{store['mountPath']}/{mount['subPath']}" == environment["REPUT_STORE"]
            (near,) = part["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            assert near["labelSelector"]["matchLabels"].items() <= log_of_shard_0.items()


def test_the_readme_names_every_file_and_no_other() -> None:
    named = set(re.findall(r"`([a-z]+\.yaml)`", (MANIFESTS / "README.md").read_text(encoding="utf-8")))
    assert named == {path.name for path in MANIFESTS.glob("*.yaml")}
