"""Traces across real processes, to a receiver of OTLP that the test is: one chain of parents from the caller to the log."""

import contextlib
import json
import pathlib
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from tests.support.waiting import WAIT_SECONDS_MAX

pytest.importorskip("opentelemetry.sdk", reason="needs the extra `otel`")

from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from deploy.processes import short_directory
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.observing import tracing
from services.observing.meters import Meters
from services.observing.span_export import SpanQueue
from store.errors import InvalidSettingError
from tests.support.service import Service, hosted_service
from tests.support.stack import new_message

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
SECRET = "a-key-that-nobody-may-see"
SETTINGS = {"REPUT_COMMITLOG_FILE_SIZE_BYTES": "1048576", "REPUT_INDEX_HASH_SLOT_COUNT": "1000"}


class Receiver(otlp_grpc.TraceServiceServicer):
    """Keeps what it was sent: spans with the name of the service that they are of."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._spans: list[tuple[str, trace_pb2.Span]] = []
        self.raw = b""

    def Export(self, request: otlp.ExportTraceServiceRequest, context: grpc.ServicerContext):
        with self._changed:
            self.raw += request.SerializeToString()
            for resource in request.resource_spans:
                names = {row.key: row.value.string_value for row in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self._spans += [(names["service.name"], span) for span in scope.spans]
            self._changed.notify_all()
        return otlp.ExportTraceServiceResponse()

    def wait_for(self, service: str, name: str, **fields: bytes) -> trace_pb2.Span:
        def find() -> trace_pb2.Span | None:
            for owner, span in self._spans:
                is_wanted = owner == service and span.name == name
                if is_wanted and all(getattr(span, field) == value for field, value in fields.items()):
                    return span
            return None

        with self._changed:
            assert self._changed.wait_for(find, WAIT_SECONDS_MAX), [(owner, span.name) for owner, span in self._spans]
            return find()


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, str]]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    receiver = Receiver()
    otlp_grpc.add_TraceServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield receiver, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


def below(receiver: Receiver, parent: bytes, *chain: tuple[str, str]) -> list[trace_pb2.Span]:
    """The spans of a chain of services and names, each the child of the one before."""
    spans = []
    for service, name in chain:
        spans.append(receiver.wait_for(service, name, parent_span_id=parent, trace_id=bytes.fromhex(TRACE_ID)))
        parent = spans[-1].span_id
    return spans


GATEWAY = "reput.gateway.v1.GatewayService/QueryMessageByKey"
QUESTION = pb.QueryMessageByKeyRequest(topic="Orders", key=SECRET)


@pytest.mark.parametrize("way", ["ports", "sockets"])
def test_a_query_is_one_chain_of_parents_through_the_services(tmp_path: pathlib.Path, receiver, way: str) -> None:
    """On sockets the services use the short ways between them (services/local/wire.py), on ports gRPC alone."""
    spans, endpoint = receiver
    with contextlib.ExitStack() as services:
        sockets = services.enter_context(short_directory())
        settings = {**SETTINGS, "REPUT_LOG_LEVEL": "debug"}
        settings |= {"REPUT_OTLP_ENDPOINT": endpoint} if way == "ports" else {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}

        def start(name: str) -> Service:
            if way == "sockets" and name != "gateway":
                settings[f"REPUT_{name.upper()}_ADDRESS"] = f"unix:{sockets}/{name}"
            service = services.enter_context(Service(name, tmp_path, settings))
            settings[f"REPUT_{name.upper()}_TARGET"] = service.address
            return service

        start("commitlog")
        start("index")
        # The queues take no part.
        queues = services.enter_context(hosted_service("consumequeue", tmp_path, settings))
        settings["REPUT_CONSUMEQUEUE_TARGET"] = queues.address
        gateway = start("gateway")
        append = pb.AppendMessagesRequest(messages=[new_message("Orders", SECRET.encode(), keys=[SECRET])])
        gateway.stub.AppendMessages(append, timeout=WAIT_SECONDS_MAX)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not gateway.stub.QueryMessageByKey(QUESTION, timeout=WAIT_SECONDS_MAX).messages:
            assert time.monotonic() < deadline

        metadata = [("traceparent", TRACEPARENT)]
        assert gateway.stub.QueryMessageByKey(QUESTION, timeout=WAIT_SECONDS_MAX, metadata=metadata).messages
        with pytest.raises(grpc.RpcError):
            gateway.stub.QueryMessageById(
                pb.QueryMessageByIdRequest(offset_msg_id="7F00000100002A9F00000000FFFFFFFF"),
                timeout=WAIT_SECONDS_MAX,
                metadata=metadata,
            )

        root = bytes.fromhex(SPAN_ID)
        call, search, _ = below(
            spans, root, ("reput-gateway", GATEWAY), ("reput-gateway", "index.search"),
            ("reput-index", "reput.index.v1.IndexService/SearchKey"),
        )  # fmt: skip
        records = [("reput-gateway", "commitlog.get-many")]
        if way == "ports":  # over a socket the gateway gets the file, and reads it
            records += [("reput-commitlog", "reput.commitlog.v1.CommitLogService/BatchGetMessages")]
        below(spans, call.span_id, *records)
        assert call.start_time_unix_nano <= search.start_time_unix_nano
        assert search.end_time_unix_nano <= call.end_time_unix_nano
        assert call.status.code == trace_pb2.Status.STATUS_CODE_UNSET
        refused = spans.wait_for("reput-gateway", "reput.gateway.v1.GatewayService/QueryMessageById")
        assert refused.status.code == trace_pb2.Status.STATUS_CODE_UNSET, "the caller asked for what is not there"
        assert [row.value.string_value for row in refused.attributes if row.key == "error.type"] == ["RECORD_NOT_FOUND"]
        traced = [json.loads(line) for line in gateway.log().splitlines() if TRACE_ID in line]
        assert gateway.stop() == 0
    spans.wait_for("reput-gateway", "reput.gateway.v1.GatewayService/AppendMessages")
    assert SECRET.encode() not in spans.raw, "spans hold no key and no body"
    assert all(re.fullmatch("[0-9a-f]{16}", line["span_id"]) for line in traced)


def test_who_is_told_not_to_record_sends_nothing_and_a_dead_collector_holds_nobody_up(tmp_path: pathlib.Path) -> None:
    settings = {
        **SETTINGS, "REPUT_OTLP_ENDPOINT": "http://127.0.0.1:1", "REPUT_COMMITLOG_METRICS_ADDRESS": "127.0.0.1:0",
    }  # fmt: skip
    with Service("commitlog", tmp_path, settings) as log:
        not_recorded = [("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-00")]
        for metadata in (not_recorded, None):
            log.stub.GetStatus(commitlog_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX, metadata=metadata)
        [page] = [
            line["address"] for line in map(json.loads, log.log().splitlines()) if line["event"] == "metrics.listening"
        ]
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        failed = ""
        while not failed and time.monotonic() < deadline:
            with urllib.request.urlopen(f"http://{page}/metrics", timeout=WAIT_SECONDS_MAX) as answer:
                [failed] = re.findall(r'trace_spans_total\{outcome="failed"\} ([1-9].*)', answer.read().decode()) or [
                    ""
                ]
        assert float(failed) == 1, "one call was to be recorded"
        assert log.stop() == 0


class Held(SpanExporter):
    """A collector that takes its time."""

    def __init__(self) -> None:
        self.released, self.began = threading.Event(), threading.Event()
        self.count = 0

    def export(self, spans):
        self.began.set()
        self.released.wait(WAIT_SECONDS_MAX)
        self.count += len(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def test_a_full_queue_drops_and_counts_and_every_span_is_counted_once() -> None:
    exporter, spans = Held(), Meters().counter("trace_spans", "Spans.", ("outcome",))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SpanQueue(exporter, spans, span_count_max=10, batch_seconds=0.0))
    tracer = provider.get_tracer("test")
    tracer.start_span("first").end()
    assert exporter.began.wait(WAIT_SECONDS_MAX)
    for _ in range(30):
        tracer.start_span("more").end()
    exporter.released.set()
    provider.shutdown()

    counts = {labels[0]: counter.read() for labels, counter in spans.items()}
    assert counts == {"exported": 11, "dropped": 20, "failed": 0}
    assert exporter.count == 11


def test_off_is_off_and_only_grpc_is_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_tracer", None)
    assert not tracing.switch_on("gateway", "", {})
    assert not tracing.switch_on("gateway", "http://127.0.0.1:1", {"OTEL_SDK_DISABLED": "true"})
    with pytest.raises(InvalidSettingError, match="grpc"):
        tracing.switch_on("gateway", "http://127.0.0.1:1", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
    assert not tracing.is_on()
    assert tracing.current_traceparent() == ""
    with tracing.step("index.search") as span:
        assert span is None
