"""`reput import` through a gateway: what it refuses is refused before the first append, and a failure says where to go on."""

import io
import json
import pathlib
import sys
from collections.abc import Callable

import grpc
import pytest

import cli.main
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from tests.cli.transfer.conftest import Serve

BYTES_MAX = 4 << 20
QUEUE_COUNT = 4


class Gateway(gateway_grpc.GatewayServiceServicer):
    """Takes what it is given.

    Attributes:
        requests: all of them.
        fails_at: which append fails; None: none.
        listing: what it says when it is asked for topics.
    """

    def __init__(self) -> None:
        self.requests: list[pb.AppendMessagesRequest] = []
        self.fails_at: int | None = None
        self.listing: grpc.StatusCode | message_pb2.Completeness = message_pb2.COMPLETENESS_COMPLETE

    def ListTopics(self, request: pb.ListTopicsRequest, context: grpc.ServicerContext) -> pb.ListTopicsResponse:
        if isinstance(self.listing, grpc.StatusCode):
            context.abort(self.listing, "refused")
        queues = [pb.ListTopicsResponse.Queue(broker_name="a", queue_id=number) for number in range(QUEUE_COUNT)]
        topic = pb.ListTopicsResponse.Topic(topic="Known", queues=queues)
        return pb.ListTopicsResponse(topics=[topic], completeness=self.listing)

    def AppendMessages(
        self, request: pb.AppendMessagesRequest, context: grpc.ServicerContext
    ) -> pb.AppendMessagesResponse:
        if len(self.requests) == self.fails_at:
            context.abort(grpc.StatusCode.UNAVAILABLE, "refused")
        self.requests.append(request)
        return pb.AppendMessagesResponse(results=[message_pb2.AppendResult() for _ in request.messages])

    def bodies(self) -> list[bytes]:
        return [message.body for request in self.requests for message in request.messages]


@pytest.fixture
def server(serve: Serve) -> Gateway:
    gateway = Gateway()
    serve(gateway)
    return gateway


Write = Callable[..., pathlib.Path]


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Write:
    def write_rows(*rows: dict[str, object]) -> pathlib.Path:
        path = tmp_path / "lines.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write_rows


def reput(*arguments: object) -> int:
    return cli.main.main([str(argument) for argument in arguments])


def line(number: int, **more: object) -> dict[str, object]:
    return {"topic": "Known", "queue_id": 0, "body": f"body {number}", "unique_key": f"U{number}"} | more


def test_batches_counted_bodies_only_and_were_refused_as_too_large(server: Gateway, write: Write) -> None:
    properties = dict.fromkeys(("p",), "v" * 30000)
    file = write(*(line(number, properties=properties) for number in range(256)))

    assert reput("import", file) == 0
    assert len(server.bodies()) == 256
    assert max(request.ByteSize() for request in server.requests) < BYTES_MAX


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "belongs to the broker"),
        ({"topic": "no/topic"}, "characters"),
        ({"topic": "t" * 128}, "at most 127"),
        ({"body": ""}, "the body has 0 bytes"),
        ({"body": "b" * (BYTES_MAX + 1)}, "can be stored"),
        ({"queue_id": QUEUE_COUNT}, f"the queues 0 to {QUEUE_COUNT - 1}"),
        ({"queue_id": -1}, "the queues"),
        ({"properties": {"p": "v" * 40_000}}, "at most 32767"),
        ({"properties": {"p": "a\x02b"}}, "U+0002"),
        ({"properties": {"p": ""}}, "empty name or value"),
        ({"born_time": -1}, "1970"),
        ({"born_time": 10**15}, "Timestamp"),
        ({"born_time": 10**29}, "64-bit"),
        ({"unique_key": ""}, "unique_key"),
    ],
)
def test_what_the_gateway_refuses_was_seen_only_after_others_were_appended(
    change: dict[str, object], reason: str, server: Gateway, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(*(line(number) for number in range(300)), line(300, **change))

    assert reput("import", file, "--deduplicate") == 2
    told = capsys.readouterr().err
    assert "line 301: " in told
    assert reason in told
    assert server.requests == []


def test_without_deduplicate_no_unique_key_is_needed_and_a_new_topic_has_any_queue(
    server: Gateway, write: Write
) -> None:
    assert reput("import", write(line(0, topic="New", queue_id=70, unique_key=""))) == 0
    assert len(server.bodies()) == 1


@pytest.mark.parametrize("listing", [grpc.StatusCode.PERMISSION_DENIED, message_pb2.COMPLETENESS_PARTIAL])
def test_who_may_not_list_all_topics_may_import(
    listing: "grpc.StatusCode | message_pb2.Completeness", server: Gateway, write: Write
) -> None:
    server.listing = listing

    assert reput("import", write(line(0, queue_id=QUEUE_COUNT))) == 0
    assert len(server.bodies()) == 1


def test_a_failed_import_did_not_say_where_to_go_on(
    server: Gateway, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(*map(line, range(600)))
    server.fails_at = 1
    assert reput("import", file) == 4
    assert "--fromLine 257 --deduplicate" in capsys.readouterr().err
    server.fails_at = None

    assert reput("import", file, "--fromLine", 257, "--deduplicate") == 0
    assert server.bodies() == [f"body {number}".encode() for number in range(600)]
    assert server.requests[1].deduplicate


def test_a_bad_line_of_stdin_says_where_to_go_on(
    server: Gateway, write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(*map(line, range(300)), line(300, topic="no/topic")).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    assert reput("import", "-") == 2
    told = capsys.readouterr().err
    assert "256 messages were appended" in told
    assert "--fromLine 257" in told
    assert "line 301: " in told
    assert len(server.bodies()) == 256


def test_a_store_begins_with_the_line_that_is_told(tmp_path: pathlib.Path, write: Write) -> None:
    file = write({"topic": "no message"}, {"topic": "no message"})

    assert reput("import", file, "--store", tmp_path / "out", "--fromLine", 3) == 1
    assert reput("import", file, "--store", tmp_path / "out", "--fromLine", 2) == 2


@pytest.mark.parametrize("field", ["born_time", "store_time"])
def test_a_time_that_no_record_can_hold_ended_in_a_traceback(
    field: str, broker_store: pathlib.Path, tmp_path: pathlib.Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reput("export", "--store", broker_store, "-m", 1) == 0
    row = json.loads(capsys.readouterr().out)

    assert reput("import", write(row | {field: 10**19}), "--store", tmp_path / "out") == 2
    assert "line 1: the time" in capsys.readouterr().err
