"""Both query clients against a gateway that answers as a test says: parts that are missing, bodies, trouble."""

import asyncio
import inspect
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import (
    AsyncQueryClient,
    BodyCompressionError,
    BodyOmittedError,
    Completeness,
    InvalidRequestError,
    PartialAnswerError,
    QueryClient,
    RetryPolicy,
    SendReceipt,
    UnavailableError,
)
from reput_client.errors import DeadlineExceededError, DiskFullError, ServiceUnavailableError
from services.status import DETAILS_KEY
from tests.reput_client.fake_gateway import refusal

QUICK = RetryPolicy(attempt_count_max=4, pause_seconds_first=0.001, pause_seconds_max=0.002)
COMPLETE = message_pb2.COMPLETENESS_COMPLETE
TRUNCATED = message_pb2.COMPLETENESS_TRUNCATED
PARTIAL = message_pb2.COMPLETENESS_PARTIAL
NOW = datetime(2026, 1, 2, tzinfo=UTC)
GONE = refusal(grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE")
WRONG = refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")


class FakeQueries(grpc.GenericRpcHandler):
    """Answers each call with the next of `script`: a response, or a Status; the chunks of a body in a list."""

    def __init__(self, script: Any) -> None:
        self.script = deque(script)
        self.methods: list[str] = []
        self.requests: list[bytes] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        if details.method.endswith("/DownloadBody"):
            return grpc.unary_stream_rpc_method_handler(self._download)
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.methods.append("call")
        self.requests.append(request)
        answer = self.script.popleft()
        if isinstance(answer, status_pb2.Status):
            _abort(context, answer)
        return answer.SerializeToString()

    def _download(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self.methods.append("download")
        for chunk in self.script.popleft():
            if isinstance(chunk, status_pb2.Status):
                _abort(context, chunk)
            yield pb.DownloadBodyResponse(chunk=chunk).SerializeToString()


def _abort(context: grpc.ServicerContext, status: status_pb2.Status) -> None:
    context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    context.abort(code, status.message)


Ask = Callable[..., Any]


@pytest.fixture(params=[QueryClient, AsyncQueryClient], ids=lambda each: each.__name__)
def ask(request: Any) -> Iterator[Ask]:
    """`ask(script, question, **options)`: the fake and what `question(client)` came to, a list for what is iterated."""
    servers = []

    def run(script: Any, question: Callable[[Any], Any], **options: Any) -> tuple[FakeQueries, Any]:
        fake = FakeQueries(script)
        server = grpc.server(futures.ThreadPoolExecutor(4))
        servers.append(server)
        server.add_generic_rpc_handlers((fake,))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        options = {"retry": QUICK, **options}
        if request.param is QueryClient:
            with QueryClient(address, **options) as client:
                found = question(client)
                return fake, list(found) if hasattr(found, "__next__") else found

        async def main() -> Any:
            async with AsyncQueryClient(address, **options) as client:
                found = question(client)
                if isinstance(found, AsyncIterator):
                    return [item async for item in found]
                return await found if inspect.isawaitable(found) else found

        return fake, asyncio.run(main())

    yield run
    for server in servers:
        server.stop(0).wait()


def page(completeness: int, bodies: list[bytes], token: str = "", shards: Any = ()) -> pb.QueryMessageByKeyResponse:
    messages = [message_pb2.StoredMessage(topic="T", body=body) for body in bodies]
    return pb.QueryMessageByKeyResponse(
        messages=messages, completeness=completeness, next_page_token=token, shards=shards
    )


RECEIPTS = [SendReceipt(message_pb2.AppendResult(freshness_token=token)) for token in ("t1", "t2")]


@pytest.mark.parametrize(
    ("after", "expected"),
    [((), []), ("t1", ["t1"]), (RECEIPTS[0], ["t1"]), ([RECEIPTS[0], "t3", RECEIPTS[1], "t1"], ["t1", "t3", "t2"])],
)
def test_every_query_takes_receipts_or_their_tokens_on_every_page(ask, after: Any, expected: list[str]) -> None:
    pages = [page(TRUNCATED, [], "a"), page(COMPLETE, [])]
    rows = pb.QueryMessageByOffsetResponse(completeness=COMPLETE)
    for request_class, script, question in (
        (pb.QueryMessageByKeyRequest, pages, lambda client: client.by_key("T", "k", after=after).pages()),
        (pb.QueryMessageByUniqueKeyRequest, pages, lambda client: client.by_unique_key("T", "u", after=after).pages()),
        (pb.QueryMessageByOffsetRequest, [rows], lambda client: client.by_offset("T", 0, after=after).pages()),
        (
            pb.SearchOffsetRequest,
            [pb.SearchOffsetResponse(completeness=COMPLETE)],
            lambda client: client.search_offset("T", 0, NOW, after=after),
        ),
    ):
        fake, _ = ask(script, question)
        assert len(fake.requests) == len(script)
        assert all(list(request_class.FromString(each).freshness_tokens) == expected for each in fake.requests)


def test_a_time_is_answered_with_the_span_of_the_queue(ask) -> None:
    answer = pb.SearchOffsetResponse(completeness=COMPLETE)
    question = lambda client: client.search_offset("T", 0, NOW)  # noqa: E731
    _, found = ask([answer], question)
    assert (found.first_store_time, found.last_store_time) == (None, None)
    answer.first_store_time.FromMilliseconds(1_700_000_000_001)
    answer.last_store_time.FromMilliseconds(1_700_000_000_002)
    _, found = ask([answer], question)
    assert [int(each.timestamp() * 1000) for each in (found.first_store_time, found.last_store_time)] == [
        1_700_000_000_001,
        1_700_000_000_002,
    ]


DOWN = pb.ShardOutcome(broker_name="broker-b", error=GONE)
BEHIND = pb.ShardOutcome(broker_name="broker-a", indexed_up_to_offset=10, log_end_offset=30)
WELL = pb.ShardOutcome(broker_name="broker-c", indexed_up_to_offset=30, log_end_offset=30)


def test_once_a_page_was_partial_the_run_stays_so(ask) -> None:
    kept: list[Any] = []

    def question(client: Any) -> Any:
        kept.append(client.by_key("T", "k"))
        return kept[0].pages()

    script = [page(TRUNCATED, [b"0"], "a"), page(PARTIAL, [b"1"], "b", [DOWN, BEHIND, WELL]), page(COMPLETE, [b"2"])]
    _, pages = ask(script, question)
    assert [[message.body for message in each.items] for each in pages] == [[b"0"], [b"1"], [b"2"]]
    assert [each.completeness for each in pages] == [
        Completeness.TRUNCATED,
        Completeness.PARTIAL,
        Completeness.COMPLETE,
    ]
    assert kept[0].completeness is Completeness.PARTIAL
    assert [type(shard.error) for shard in pages[1].shards] == [ServiceUnavailableError, type(None), type(None)]


def test_a_partial_page_is_an_error_for_who_wants_all_and_says_what_is_missing(ask) -> None:
    script = [page(TRUNCATED, [b"0"], "a"), page(PARTIAL, [b"1"], "b", [DOWN, BEHIND, WELL])]
    with pytest.raises(PartialAnswerError) as caught:
        ask(script, lambda client: client.by_key("T", "k").pages(), require_complete=True)
    assert dict(caught.value.missing) == {
        "broker-a": "built up to 10 of 30 bytes",
        "broker-b": "refused: SERVICE_UNAVAILABLE",
    }
    assert "broker-c" not in str(caught.value)


@pytest.mark.parametrize("require_complete", [False, True])
def test_a_partial_position_is_an_error_for_who_wants_all(ask, require_complete: bool) -> None:
    script = [pb.SearchOffsetResponse(queue_offset=3, completeness=PARTIAL, shards=[BEHIND])]
    question = lambda client: client.search_offset("T", 0, NOW)  # noqa: E731
    if require_complete:
        with pytest.raises(PartialAnswerError, match="broker-a: built up to 10 of 30 bytes"):
            ask(script, question, require_complete=True)
    else:
        assert ask(script, question)[1].completeness is Completeness.PARTIAL


TEXT = b"hello, hello, hello, hello"


@pytest.mark.parametrize(
    ("sys_flag", "stored", "compression", "body"),
    [
        (0, TEXT, "none", TEXT),
        (0x300, TEXT, "none", TEXT),  # a kind without the bit that says compressed
        (0x001, zlib.compress(TEXT), "zlib", TEXT),
        (0x301, zlib.compress(TEXT), "zlib", TEXT),
        (0x101, b"\x04\x22\x4d\x18", "lz4", None),
        (0x201, b"\x28\xb5\x2f\xfd", "zstd", None),
        (0x701, b"?", "unknown", None),
        (0x301, b"not zlib", "zlib", None),
        (0x301, zlib.compress(TEXT)[:-5], "zlib", None),
    ],
)
def test_a_body_is_inflated_or_it_is_said_why_not(ask, sys_flag: int, stored: bytes, compression: str, body) -> None:
    message = message_pb2.StoredMessage(body=stored, sys_flag=sys_flag)
    _, got = ask([pb.QueryMessageByIdResponse(message=message)], lambda client: client.by_id("0" * 32))
    assert (got.stored_body, got.compression) == (stored, compression)
    if body is not None:
        assert got.body == body
    else:
        with pytest.raises(BodyCompressionError):
            _ = got.body


def test_what_inflates_without_an_end_is_refused(ask, monkeypatch) -> None:
    monkeypatch.setattr("reput_client.bodies.INFLATED_BYTES_MAX", 1000)
    message = message_pb2.StoredMessage(body=zlib.compress(b"x" * 1001), sys_flag=1)
    _, got = ask([pb.QueryMessageByIdResponse(message=message)], lambda client: client.by_id("0" * 32))
    with pytest.raises(BodyCompressionError):
        _ = got.body


def test_an_omitted_body_is_not_an_empty_one_and_can_be_downloaded(ask) -> None:
    stored = message_pb2.StoredMessage(offset_msg_id="0" * 32, body_omitted=True, broker_name="broker-a")
    _, got = ask([pb.QueryMessageByIdResponse(message=stored)], lambda client: client.by_id("0" * 32))
    with pytest.raises(BodyOmittedError) as caught:
        _ = got.body
    assert caught.value.metadata == {"offsetMsgId": "0" * 32}
    assert ask([[b"one ", b"two"]], lambda client: client.download_body(got))[1] == b"one two"


def test_a_download_that_breaks_begins_anew(ask) -> None:
    fake, body = ask([[b"one ", GONE], [GONE], [b"one ", b"two"]], lambda client: client.download_body("0" * 32))
    assert body == b"one two"
    assert len(fake.methods) == 3


def test_a_question_is_asked_again_until_it_is_answered(ask) -> None:
    busy = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL", retry_seconds=0.001)
    script = [GONE, page(TRUNCATED, [b"0"], "a"), busy, GONE, page(COMPLETE, [b"1"])]
    fake, pages = ask(script, lambda client: client.by_key("T", "k").pages())
    assert [message.body for each in pages for message in each.items] == [b"0", b"1"]
    assert len(fake.methods) == 5


def test_attempts_have_an_end_and_the_last_error_is_told(ask) -> None:
    busy = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "DISK_FULL")
    script = deque([GONE] * 3 + [busy] * 10)
    with pytest.raises(DiskFullError):
        ask(script, lambda client: client.status())


def test_time_has_an_end_though_attempts_are_left(ask) -> None:
    later = refusal(grpc.StatusCode.UNAVAILABLE, "STORE_RECOVERING", retry_seconds=60)
    with pytest.raises(UnavailableError):
        ask([later] * 2, lambda client: client.status(), timeout_seconds=5)
    with pytest.raises(DeadlineExceededError):
        ask([later], lambda client: client.status(), timeout_seconds=0)


def test_what_another_try_does_not_cure_is_not_tried_again(ask) -> None:
    with pytest.raises(InvalidRequestError):
        ask([WRONG, page(COMPLETE, [])], lambda client: client.by_key("T", "k").pages())
