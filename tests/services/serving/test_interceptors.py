"""A request of very many tiny fields is refused before protobuf makes objects of them.

Around every RPC: typed errors on all kinds of calls, bugs answered INTERNAL, streams counted.
"""

import threading
import weakref
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.message import DecodeError

from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services import status
from services.methods import METHODS
from services.serving.calls.open_work import OpenWork
from services.serving.deadline import remaining_seconds
from services.serving.interceptors import FIELD_COUNT_MAX, StatusInterceptor, check_field_count
from services.serving.lanes import Lanes
from store.errors import InvalidArgumentError, InvalidMessageError, OffsetOutOfRangeError, StoreError
from tests.services.loopback import commit_log_server, get_request, stub
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX

EMPTY_MESSAGE = b"\x0a\x00"


@pytest.mark.parametrize(
    "field", [EMPTY_MESSAGE, b"\x10\x01", b"\x9d\x06abcd", b"\x99\x06abcdefgh", b"\x0a\x01x"], ids=bytes.hex
)
def test_a_request_of_a_million_tiny_fields_is_refused_before_it_is_parsed(field: bytes) -> None:
    check_field_count(field * FIELD_COUNT_MAX, "/m")
    with pytest.raises(InvalidArgumentError, match="more than 131,072 fields"):
        check_field_count(field * (FIELD_COUNT_MAX + 1), "/m")


def test_a_request_of_few_large_messages_passes_the_count_of_fields() -> None:
    request = log_pb.AppendMessagesRequest(messages=[new_message("T", bytes(1 << 20)) for _ in range(4)])
    check_field_count(request.SerializeToString(), "/m")


@pytest.mark.parametrize("damaged", [b"\xff" * 600_000, b"\x0b" * 600_000, b"\x0a\xff\xff\xff\x7f" + bytes(600_000)])
def test_what_protobuf_refuses_is_left_to_protobuf(damaged: bytes) -> None:
    check_field_count(damaged, "/m")
    with pytest.raises(DecodeError):
        log_pb.AppendMessagesRequest.FromString(damaged)


GET_MESSAGE = "/reput.commitlog.v1.CommitLogService/GetMessage"


def fail_out_of_range(*_):
    raise OffsetOutOfRangeError("offset 5 is outside the log [0, 3)", firstOffset=0, lastOffset=3)


def test_a_refusal_in_the_middle_of_a_stream_arrives_after_what_was_sent():
    def reput(request, context):
        yield pb.ReputResponse(next_offset=1)
        fail_out_of_range()

    with commit_log_server(reput=reput) as server:
        responses = stub(server).Reput(pb.ReputRequest(), timeout=WAIT_SECONDS_MAX)
        assert next(responses).next_offset == 1
        with pytest.raises(grpc.RpcError) as caught:
            next(responses)

    returned = status.from_rpc_error(caught.value)
    assert type(returned) is OffsetOutOfRangeError
    assert returned.metadata == {"firstOffset": "0", "lastOffset": "3"}


def test_a_refusal_on_a_two_way_stream_is_typed():
    def append(requests, context):
        for _ in requests:
            yield pb.AppendMessageStreamResponse()
            raise InvalidMessageError("no", field="topic", index=0)

    with commit_log_server(append_message_stream=append) as server, pytest.raises(grpc.RpcError) as caught:
        list(stub(server).AppendMessageStream(iter([pb.AppendMessageStreamRequest()] * 2), timeout=WAIT_SECONDS_MAX))

    assert type(status.from_rpc_error(caught.value)) is InvalidMessageError


def test_a_bug_is_internal_and_does_not_tell_its_text_to_strangers():
    def divide(request, context):
        raise ZeroDivisionError("secret path")

    with commit_log_server(get_message=divide) as server, pytest.raises(grpc.RpcError) as caught:
        stub(server).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)

    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.value.details()
    assert type(status.from_rpc_error(caught.value)) is StoreError


def test_a_handler_may_still_end_a_call_itself():
    def abort(request, context):
        context.abort(grpc.StatusCode.ABORTED, "own words")

    with commit_log_server(get_message=abort) as server, pytest.raises(grpc.RpcError) as caught:
        stub(server).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)

    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.ABORTED, "own words")


def test_an_error_of_a_service_behind_passes_through_as_what_it_was():
    """A gateway that lets an RpcError escape answers with the error that the service behind it gave."""
    with (
        commit_log_server(get_message=fail_out_of_range) as behind,
        commit_log_server(get_message=lambda request, _: stub(behind).GetMessage(request)) as front,
        pytest.raises(grpc.RpcError) as caught,
    ):
        stub(front).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)

    assert type(status.from_rpc_error(caught.value)) is OffsetOutOfRangeError


def test_an_unknown_method_is_unimplemented():
    with commit_log_server() as server, pytest.raises(grpc.RpcError) as caught:
        grpc.insecure_channel(server.address).unary_unary("/reput.commitlog.v1.CommitLogService/Nope")(
            b"", timeout=WAIT_SECONDS_MAX
        )

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_method_without_a_row_in_the_table_is_not_served(monkeypatch):
    """A new RPC is closed until somebody has stated its lane, roles and retry class."""
    monkeypatch.delitem(METHODS, GET_MESSAGE)
    answer = pb.GetMessageResponse()
    with commit_log_server(get_message=lambda *_: answer) as server, pytest.raises(grpc.RpcError) as caught:
        stub(server).GetMessage(get_request(), timeout=WAIT_SECONDS_MAX)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_that_is_no_message_of_its_kind_is_the_callers_fault():
    with commit_log_server(get_message=fail_out_of_range) as server, pytest.raises(grpc.RpcError) as caught:
        grpc.insecure_channel(server.address).unary_unary(GET_MESSAGE)(b"\xff\xff", timeout=WAIT_SECONDS_MAX)

    assert type(status.from_rpc_error(caught.value)) is InvalidArgumentError


def test_a_call_without_a_request_is_refused():
    with commit_log_server(get_message=fail_out_of_range) as server, pytest.raises(grpc.RpcError) as caught:
        grpc.insecure_channel(server.address).stream_unary(GET_MESSAGE)(iter([]), timeout=WAIT_SECONDS_MAX)

    assert type(status.from_rpc_error(caught.value)) is InvalidArgumentError


def test_what_waits_for_a_reader_is_bytes_and_not_the_answers_objects():
    """A message that stays until its slow reader takes it would cost several times its bytes."""
    alive = weakref.WeakSet()
    second_asked_for = threading.Event()

    class Answer:
        def __init__(self, number):
            self.number = number
            alive.add(self)

    def numbered(number):
        second_asked_for.set()
        return Answer(number)

    handler = grpc.unary_stream_rpc_method_handler(
        lambda request, context: map(numbered, range(1)),
        response_serializer=lambda answer: bytes([answer.number]) * 200_000,  # more than fits into a caller's window
    )
    lanes = Lanes(worker_count=4)
    wrapped = StatusInterceptor(OpenWork(), lanes).intercept_service(
        lambda _: handler, SimpleNamespace(method="/reput.gateway.v1.GatewayService/DownloadBody")
    )
    context = SimpleNamespace(cancel=lambda: None, peer=lambda: "", code=lambda: None, is_active=lambda: True)
    waiting = wrapped.stream_stream(iter([b""]), context)

    assert next(waiting) == bytes(200_000)
    assert second_asked_for.is_set()
    assert not alive


@pytest.mark.parametrize(("timeout", "low", "high"), [(5.0, 3.0, 5.5), (None, 7.0, 7.0)])
def test_a_handler_sees_what_its_caller_has_left(timeout, low, high):
    seen = []

    def get(request, context):
        seen.append(remaining_seconds(context, default=7.0))
        return pb.GetMessageResponse()

    with commit_log_server(get_message=get) as server:
        stub(server).GetMessage(get_request(), timeout=timeout)

    assert low <= seen[0] <= high
