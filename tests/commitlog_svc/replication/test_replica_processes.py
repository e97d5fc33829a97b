"""Replicas as processes with a real etcd: a leader that is killed loses no append that was acknowledged as replicated."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.commitlog_svc.support import new_message
from tests.support.etcd import ETCD, MISSING, running_etcd
from tests.support.ports import free_port
from tests.support.service import Service
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.skipif(ETCD is None, reason=MISSING)
FILE_BYTES = str(1 << 20)


def start(name: str, root: Path, coordinator: str, **more: str) -> Service:
    settings = {
        "REPUT_COMMITLOG_COORDINATOR": coordinator,
        "REPUT_COMMITLOG_REPLICA_NAME": name,
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": FILE_BYTES,
        "REPUT_COMMITLOG_LEASE_SECONDS": "2",
        "REPUT_COMMITLOG_RENEW_SECONDS": "0.5",
        **more,
    }
    return Service("commitlog", root / name, settings)


def status(service: Service) -> pb.GetStatusResponse:
    return service.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)


def append(service: Service, body: bytes) -> int:
    request = pb.AppendMessagesRequest(messages=[new_message(body)], flush=message_pb2.FLUSH_MODE_REPLICATED)
    return service.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results[0].commit_log_offset


@pytest.fixture
def services() -> Iterator[dict[str, Service]]:
    started: dict[str, Service] = {}
    yield started
    for service in started.values():
        service.kill()


def test_a_leader_that_is_killed_loses_no_replicated_append_and_comes_back_as_a_follower(
    tmp_path: Path, services: dict[str, Service]
) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        coordinator = f"etcd://{etcd.endpoint}/reput"
        for name in ("r1", "r2", "r3"):
            services[name] = start(name, tmp_path, coordinator)
            wait_until(lambda: status(services["r1"]).role == "leader", "the first one leads")
        wait_until(lambda: len(status(services["r1"]).in_sync) == 3, "all are in sync")
        offsets = {append(services["r1"], b"%d" % number): b"%d" % number for number in range(30)}
        services["r1"].kill()
        others = {name: services[name] for name in ("r2", "r3")}
        wait_until(lambda: any(status(one).role == "leader" for one in others.values()), "another one leads")
        leader = next(one for one in others.values() if status(one).role == "leader")
        wait_until(lambda: len(status(leader).in_sync) == 2, "two are in sync")
        offsets[append(leader, b"after")] = b"after"
        services["r1"] = start("r1", tmp_path, coordinator)
        wait_until(lambda: len(status(leader).in_sync) == 3, "the first one is back")
        offsets[append(leader, b"with all")] = b"with all"
        end_offset = status(leader).log_end_offset
        for service in services.values():
            wait_until(lambda one=service: status(one).confirm_offset == end_offset, "all is shown")  # type: ignore[misc]
            for offset, body in offsets.items():
                message = service.stub.GetMessage(
                    pb.GetMessageRequest(commit_log_offset=offset), timeout=WAIT_SECONDS_MAX
                ).message
                assert message.body == body
        # Each election has an epoch of its own; a starved leader may have lost and won another one.
        assert status(services["r1"]).role == "follower"
        assert status(leader).epoch >= 2
        with pytest.raises(grpc.RpcError) as refused:
            append(services["r1"], b"no")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def shown(page: str) -> dict[str, float]:
    """The samples of a metrics page that are about replicas, by name and labels."""
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=WAIT_SECONDS_MAX) as answer:
        text = answer.read().decode()
    return {
        name: float(value) for name, value in re.findall(r"^(reput_\S*(?:replica|shard_led)\S*) (\S+)$", text, re.M)
    }


def test_pages_say_how_many_replicas_are_needed_what_was_put_aside_and_whether_the_shard_is_led(
    tmp_path: Path, services: dict[str, Service]
) -> None:
    log_page, gateway_page = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with running_etcd(tmp_path / "etcd") as etcd:
        more = {"REPUT_COMMITLOG_METRICS_ADDRESS": log_page, "REPUT_COMMITLOG_MIN_IN_SYNC": "3"}
        services["r1"] = start("r1", tmp_path, f"etcd://{etcd.endpoint}/reput", **more)
        wait_until(lambda: status(services["r1"]).role == "leader", "the first one leads")
        page = shown(log_page)
        assert (page["reput_replicas_in_sync"], page["reput_replicas_in_sync_min"]) == (1, 3)
        assert (page["reput_replica_leads"], page["reput_replica_put_aside_bytes"]) == (1, 0)
        aside = tmp_path / "r1" / "reput" / "commitlog" / "cut-4096-20260131-120000"
        aside.mkdir()
        (aside / f"{4096:020}").write_bytes(b"x" * 700)
        assert shown(log_page)["reput_replica_put_aside_bytes"] == 700

        nowhere = ",".join(f"{name}=127.0.0.1:{free_port()}" for name in ("consumequeue", "index"))
        shards = f"broker-a@r1=commitlog={services['r1'].address},{nowhere};alone=commitlog={services['r1'].address},{nowhere}"
        settings = {"REPUT_GATEWAY_SHARDS": shards, "REPUT_GATEWAY_METRICS_ADDRESS": gateway_page}
        services["gateway"] = Service("gateway", tmp_path / "none", settings)
        led = 'reput_gateway_shard_led{broker_name="broker-a"}'

        def shards_led() -> dict[str, float]:
            return {name: value for name, value in shown(gateway_page).items() if "shard_led" in name}

        wait_until(lambda: shards_led() == {led: 1.0}, shards_led)
        services["r1"].kill()
        wait_until(lambda: shards_led() == {led: 0.0}, shards_led)
