"""deploy/examples/copied-store.yaml: a broker's store on Kubernetes, read-only; its own command and settings at work."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cli.main import version
from tests.support.command import run_command
from tests.support.fixture_stores import read_rows, unpack_store
from tests.support.ports import free_port
from tests.support.stack import NO_REMOTING
from tests.support.waiting import wait_until

yaml = pytest.importorskip("yaml", reason="needs PyYAML")
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")

ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENT: dict[str, Any] = yaml.safe_load((ROOT / "deploy/examples/copied-store.yaml").read_text(encoding="utf-8"))
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_the_manifest_fits_its_schema_and_the_pod_may_write_nowhere_but_to_its_scratch_space() -> None:
    for release in ("1.32", "1.35"):
        kubernetes_validate.validate(DEPLOYMENT, release, strict=True)
    assert CONTAINER["image"] == f"reput:{version()}"
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True
    (store,) = [mount for mount in CONTAINER["volumeMounts"] if mount["name"] == "store"]
    assert store["readOnly"] is True
    assert CONTAINER["args"][1].startswith(store["mountPath"] + "/")
    writable = [mount["name"] for mount in CONTAINER["volumeMounts"] if not mount.get("readOnly")]
    assert [volume["name"] for volume in POD["volumes"] if "emptyDir" in volume] == writable


def test_a_broker_s_store_is_found_in_with_the_command_and_the_settings_of_the_manifest(tmp_path: Path) -> None:
    root = unpack_store("broker", tmp_path / "store")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    (mounted,) = [mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == "store"]
    arguments = [argument.replace(mounted, str(tmp_path)) for argument in CONTAINER["args"]]
    ports = {"8080": free_port(), "8081": free_port(), "8090": free_port()}
    settings = {each["name"]: each["value"].rpartition(":")[2] for each in CONTAINER["env"]}
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REPUT_")}
    environ |= NO_REMOTING | {name: f"127.0.0.1:{ports[port]}" for name, port in settings.items()}
    assert CONTAINER["command"][0] == "reput"
    command = [sys.executable, "-m", "cli.main", *CONTAINER["command"][1:], *arguments]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=log, stderr=log)
    try:
        port = ports[str(CONTAINER["readinessProbe"]["grpc"]["port"])]
        wait_until(lambda: _is_ready(port), "the readiness probe")
        sent = next(row for row in read_rows("broker.sends.jsonl") if row["keys"])
        here = ("--address", environ["REPUT_GATEWAY_ADDRESS"])
        # The gateway is ready as soon as it can answer, which may be before the services of the pod's shard can.
        answers: list[subprocess.CompletedProcess[str]] = []

        def is_answered() -> bool:
            answers.append(run_command("queryMsgById", "-i", sent["offset_msg_id"], "-o", "json", *here))
            return "SERVICE_UNAVAILABLE" not in answers[-1].stderr

        wait_until(is_answered, "an answer of the shard")
        found = answers[-1]
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout)["messages"][0]["topic"] == sent["topic"]
        by_key = ("queryMsgByKey", "-t", sent["topic"], "-k", sent["keys"].split()[0], "-o", "json", *here)
        # Until the index is built, the answer says that it is partial.
        wait_until(lambda: run_command(*by_key).returncode == 0, lambda: run_command(*by_key).stderr)
        refused = run_command("send", "-t", sent["topic"], "-b", "x", *here)
        assert "STORE_READ_ONLY" in refused.stderr
    finally:
        process.terminate()
        assert process.wait(30) == 0
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def _is_ready(port: int) -> bool:
    """What the probe of the manifest asks."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
