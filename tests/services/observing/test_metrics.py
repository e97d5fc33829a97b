"""The metrics page beside callers that connect and send nothing.

The page for Prometheus: off by default, the status's own numbers, and none rather than wrong ones.
"""

import json
import pathlib
import socket
import threading
import urllib.request
from wsgiref.simple_server import WSGIServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.message.v1 import message_pb2
from services.observing import metrics
from services.observing.metrics import CONNECTION_COUNT_MAX, Metrics, PageServer, builder_metrics, commitlog_metrics
from services.serving.lanes import Lanes
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidSettingError
from tests.support.service import Service
from tests.support.waiting import WAIT_SECONDS_MAX


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"page"]


@pytest.fixture
def server():
    server = PageServer("127.0.0.1", 0, application)
    yield server
    server.close()


def read(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=WAIT_SECONDS_MAX) as answer:
        return answer.read()


def silent_connection(server):
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=WAIT_SECONDS_MAX)
    connection.sendall(b"GET /met")
    return connection


def test_the_oldest_of_too_many_silent_connections_gives_way_to_a_scraper(server):
    silent = [silent_connection(server) for _ in range(CONNECTION_COUNT_MAX)]

    assert read(server) == b"page"
    assert silent[0].recv(100) == b""
    for connection in silent:
        connection.close()


def test_a_connection_that_stays_silent_is_closed(monkeypatch, server):
    monkeypatch.setattr(metrics._QuietHandler, "timeout", 0.2)

    with silent_connection(server) as silent:
        assert silent.recv(100) == b""
    assert read(server) == b"page"


def resolver(*hosts):
    """Finds these addresses for each name, in this order."""

    def resolve(_host, port, **_):
        families = [socket.AF_INET6 if ":" in host else socket.AF_INET for host in hosts]
        return [
            (family, socket.SOCK_STREAM, 6, "", (host, port, 0, 0)[: 4 if ":" in host else 2])
            for family, host in zip(families, hosts, strict=True)
        ]

    return resolve


def test_a_host_name_with_only_an_address_of_ipv6_was_not_bound(monkeypatch):
    """The machine need not have that address: the binding itself is recorded."""
    bound = []
    monkeypatch.setattr(WSGIServer, "__init__", lambda self, address, _: bound.append((self.address_family, address)))
    monkeypatch.setattr(PageServer, "serve_forever", lambda _: None)

    PageServer("metrics.example", 5557, application, resolver("2001:db8::1"))
    assert bound == [(socket.AF_INET6, ("2001:db8::1", 5557))]


def test_a_host_name_whose_address_of_ipv6_comes_first_was_not_bound_to_ipv4():
    """`localhost` is such a name on many machines."""
    server = PageServer("localhost", 0, application, resolver("::1", "127.0.0.1"))
    try:
        assert read(server) == b"page"
    finally:
        server.close()


SERVICE_NAME = "reput.commitlog.v1.CommitLogService"


def page(address: str) -> dict[str, float]:
    """Every sample by its name, with the value of its label."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_SECONDS_MAX) as answer:
        text = answer.read().decode()
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def samples(metrics) -> dict[str, float]:
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_a_recovering_log_shows_how_far_it_is_and_no_offsets_of_the_log():
    status = pb.GetStatusResponse(
        state="recovering",
        recovery=pb.RecoveryProgress(begin_offset=100, next_offset=400, end_offset=1000, record_count=3),
    )

    shown = samples(commitlog_metrics(status))

    assert shown["reput_commitlog_ready"] == 0
    assert shown["reput_commitlog_recovery_begin_offset_bytes"] == 100
    assert shown["reput_commitlog_recovery_next_offset_bytes"] == 400
    assert shown["reput_commitlog_recovery_end_offset_bytes"] == 1000
    assert "reput_commitlog_flushed_offset_bytes" not in shown
    assert "reput_disk_free_bytes" not in shown


def test_a_fenced_log_and_a_full_disk_are_seen():
    status = pb.GetStatusResponse(
        state="fenced", problem="the disk refused", log_flushed_offset=77,
        disk=pb.DiskUsage(total_bytes=9, free_bytes=1, level="full"), builder_next_offsets={"index": 5},
    )  # fmt: skip

    shown = samples(commitlog_metrics(status))

    assert shown["reput_commitlog_fenced"] == 1
    assert shown["reput_commitlog_problem"] == 1
    assert shown["reput_commitlog_flushed_offset_bytes"] == 77
    assert (shown["reput_disk_free_bytes"], shown["reput_disk_full"]) == (1, 1)
    assert shown["reput_commitlog_builder_next_offset_bytes index"] == 5


def test_a_builder_shows_its_lag_and_its_failures():
    status = queue_pb.GetStatusResponse(next_offset=60, log_end_offset=100, failure_count=3, catching_up=True)

    shown = samples(builder_metrics("consumequeue")(status))

    assert shown["reput_builder_lag_bytes consumequeue"] == 40
    assert shown["reput_builder_failures consumequeue"] == 3
    assert shown["reput_builder_catching_up consumequeue"] == 1


def test_a_status_that_fails_leaves_its_numbers_out_and_is_counted():
    class Broken(pb_grpc.CommitLogServiceServicer):
        def GetStatus(self, request, context):
            raise RuntimeError("no status")

    metrics = Metrics(Lanes(worker_count=4))
    metrics.add_service(SERVICE_NAME, Broken())
    address = metrics.serve("127.0.0.1:0")

    page(address)
    shown = page(address)

    assert shown["reput_status_failures_total"] == 2
    assert not [name for name in shown if name.startswith("reput_commitlog_")]
    assert shown["reput_reput_streams"] == 0
    metrics.close()


def test_there_is_no_page_unless_it_is_asked_for():
    server = ServiceServer("commitlog", ServiceSettings())
    server.start()

    assert server.metrics_address == ""

    server.stop()
    server.serve_until_stopped()


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:http", "203.0.113.1:0"])
def test_an_address_that_cannot_be_listened_at_is_refused_by_name(address):
    server = ServiceServer("commitlog", ServiceSettings(metrics_address=address))

    with pytest.raises(InvalidSettingError, match="metrics_address"):
        server.start()

    server.stop()
    server.serve_until_stopped()


def test_a_running_log_shows_what_is_on_its_disk_and_who_follows_it(tmp_path: pathlib.Path):
    settings = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "65536", "REPUT_COMMITLOG_METRICS_ADDRESS": "127.0.0.1:0"}
    with Service("commitlog", tmp_path / "store", settings) as service:
        lines = [json.loads(line) for line in service.log().splitlines()]
        [address] = [line["address"] for line in lines if line["event"] == "metrics.listening"]
        message = message_pb2.NewMessage(topic="orders", body=b"x")
        request = pb.AppendMessagesRequest(messages=[message], flush=message_pb2.FLUSH_MODE_SYNC)
        service.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
        tail = service.stub.Reput(pb.ReputRequest(start_offset=-1), timeout=WAIT_SECONDS_MAX)
        assert next(tail).requests
        status = service.stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)

        shown = page(address)

        assert status.log_flushed_offset > 0
        assert shown["reput_commitlog_flushed_offset_bytes"] == status.log_flushed_offset
        assert shown["reput_commitlog_fenced"] == 0
        assert shown["reput_reput_streams"] == 1
        assert shown["reput_rpc_calls tails"] == 1
        assert shown["process_resident_memory_bytes"] > 0
        assert service.stop() == 0


def test_many_may_read_the_page_at_the_same_time():
    metrics = Metrics(Lanes(worker_count=4))
    address = metrics.serve("127.0.0.1:0")
    pages: list[dict[str, float]] = []
    readers = [threading.Thread(target=lambda: pages.append(page(address))) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()

    assert len(pages) == 8
    metrics.close()
