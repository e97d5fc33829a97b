"""The gateway's RPCs over a real socket: what a client sees, and appends as they pass through to a commitlog."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.appends.forwarder import AppendForwarder
from gateway.ports.shards import FanOut, Shards
from gateway.queries.page import BODY_CHUNK_BYTES, PageTokens
from gateway.reput.servicer import GatewayServicer, add_to_server
from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from services.status import from_rpc_error, status_of
from store.errors import (
    DiskFullError,
    InvalidArgumentError,
    InvalidFreshnessTokenError,
    InvalidMessageError,
    InvalidPageTokenError,
    ServiceUnavailableError,
    StoreError,
)
from store.format.freshness_token import encode_freshness_token
from tests.gateway.memory_shard import MemoryShard
from tests.services.loopback import commit_log_server
from tests.support.waiting import WAIT_SECONDS_MAX

SERVICE_NAME = "reput.gateway.v1.GatewayService"


@contextlib.contextmanager
def serving(memory: MemoryShard, commitlog_address: str) -> Iterator[pb_grpc.GatewayServiceStub]:
    """A gateway on a memory shard, whose appends go to the address; ended with the block."""
    fan_out = FanOut(2)
    servicer = GatewayServicer(Shards([memory.shard()], fan_out), PageTokens("secret"))
    server = ServiceServer("gateway", ServiceSettings(address="127.0.0.1:0", worker_count=8))
    with grpc.insecure_channel(commitlog_address) as backend:
        forwarder = AppendForwarder([backend])
        server.add(SERVICE_NAME, lambda served, grpc_server: add_to_server(served, grpc_server, forwarder), servicer)
        ended = threading.Thread(target=server.serve_until_stopped)
        address = server.start()
        ended.start()
        try:
            with grpc.insecure_channel(address) as channel:
                yield pb_grpc.GatewayServiceStub(channel)
        finally:
            server.stop()
            ended.join()
            fan_out.close()


@pytest.fixture(scope="module")
def gateway(records):
    with serving(MemoryShard(records), "127.0.0.1:1") as stub:
        yield stub


def refusal(call) -> StoreError:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return from_rpc_error(refused.value)


def append_request(*bodies: bytes) -> pb.AppendMessagesRequest:
    return pb.AppendMessagesRequest(messages=[message_pb2.NewMessage(topic="t", body=body) for body in bodies])


def stream_request(body: bytes) -> pb.AppendMessageStreamRequest:
    return pb.AppendMessageStreamRequest(messages=[message_pb2.NewMessage(topic="t", body=body)])


def test_a_page_and_the_next_one_by_its_token(gateway):
    request = pb.QueryMessageByKeyRequest(topic="b_order", key="AaAa", page_size=40)
    first = gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)
    request.page_token = first.next_page_token
    second = gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)

    assert (len(first.messages), len(second.messages), second.next_page_token) == (40, 22, "")
    assert first.completeness == message_pb2.COMPLETENESS_TRUNCATED
    assert second.completeness == message_pb2.COMPLETENESS_COMPLETE
    assert {message.broker_name for message in first.messages} == {"broker-a"}
    assert [shard.broker_name for shard in first.shards] == ["broker-a"]
    request.key = "BBBB"
    assert isinstance(
        refusal(lambda: gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)), InvalidPageTokenError
    )


def test_a_queue_said_complete_with_a_part_of_its_messages_and_had_no_pages(gateway, records):
    """With 64 of 226 messages, so that a loop until COMPLETE stopped early."""
    rows = [record for record in records if (record.topic, record.queue_id) == ("b_order", 1)]
    request = pb.QueryMessageByOffsetRequest(topic="b_order", queue_id=1, page_size=30)
    found, answers = [], []
    while not answers or request.page_token:
        answers.append(gateway.QueryMessageByOffset(request, timeout=WAIT_SECONDS_MAX))
        found += [message.queue_offset for message in answers[-1].messages]
        request.page_token = answers[-1].next_page_token

    assert found == [record.queue_offset for record in rows]
    *before, last = answers
    assert {answer.completeness for answer in before} == {message_pb2.COMPLETENESS_TRUNCATED}
    assert (last.completeness, last.next_queue_offset) == (message_pb2.COMPLETENESS_COMPLETE, len(rows))
    assert [answer.next_queue_offset for answer in before] == [30 * page for page in range(1, len(answers))]

    old = pb.QueryMessageByOffsetRequest(topic="b_order", queue_id=1, queue_offset=30, max_messages=7)
    assert [m.queue_offset for m in gateway.QueryMessageByOffset(old, timeout=WAIT_SECONDS_MAX).messages] == list(
        range(30, 37)
    )
    old.page_size = 3
    assert len(gateway.QueryMessageByOffset(old, timeout=WAIT_SECONDS_MAX).messages) == 3
    old.page_token, old.queue_id = before[0].next_page_token, 0
    assert isinstance(
        refusal(lambda: gateway.QueryMessageByOffset(old, timeout=WAIT_SECONDS_MAX)), InvalidPageTokenError
    )
    for field in ("page_size", "max_messages"):
        wrong = pb.QueryMessageByOffsetRequest(topic="b_order", queue_id=1, **{field: -1})
        ask = partial(gateway.QueryMessageByOffset, wrong, timeout=WAIT_SECONDS_MAX)
        assert refusal(ask).metadata["field"] == field


def test_the_window_that_was_used_is_told(gateway):
    request = pb.QueryMessageByKeyRequest(
        topic="b_order", key="AaAa", begin_time=Timestamp(seconds=5, nanos=1), end_time=Timestamp(seconds=253402300799)
    )
    answer = gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX)

    assert answer.begin_time == Timestamp(seconds=5, nanos=1_000_000)
    assert answer.end_time == Timestamp(seconds=253402300799)
    assert not gateway.QueryMessageByKey(
        pb.QueryMessageByKeyRequest(topic="b_order", key="AaAa"), timeout=WAIT_SECONDS_MAX
    ).HasField("begin_time")


@pytest.mark.parametrize(
    ("times", "field"),
    [
        ({"begin_time": Timestamp(seconds=-1)}, "begin_time"),
        ({"end_time": Timestamp(seconds=253402300800)}, "end_time"),
        ({"end_time": Timestamp(nanos=-1)}, "end_time"),
        ({"begin_time": Timestamp(seconds=2), "end_time": Timestamp(seconds=1)}, "begin_time"),
    ],
)
def test_wrong_times_are_refused_by_field(gateway, times, field):
    request = pb.QueryMessageByKeyRequest(topic="b_order", key="AaAa", **times)
    error = refusal(lambda: gateway.QueryMessageByKey(request, timeout=WAIT_SECONDS_MAX))

    assert isinstance(error, InvalidArgumentError)
    assert error.metadata["field"] == field


def test_a_search_without_a_time_is_refused_by_field(gateway):
    error = refusal(lambda: gateway.SearchOffset(pb.SearchOffsetRequest(topic="b_order"), timeout=WAIT_SECONDS_MAX))

    assert error.metadata["field"] == "time"


@pytest.mark.parametrize("size_bytes", [0, 1, BODY_CHUNK_BYTES, BODY_CHUNK_BYTES + 1, 4 << 20])
def test_a_body_of_any_size_comes_whole_by_download_and_answers_stay_below_grpcs_limit(records, size_bytes):
    record = next(record for record in records if record.keys)
    body = bytes(range(256)) * (size_bytes // 256) + bytes(size_bytes % 256)
    grown = replace(record, commit_log_offset=0, body=body, store_size_bytes=size_bytes + 300)
    # A client with gRPC's default limit of 4 MiB.
    with serving(MemoryShard([grown]), "127.0.0.1:1") as gateway:
        key = pb.QueryMessageByKeyRequest(topic=record.topic, key=record.keys[0])
        shown = gateway.QueryMessageByKey(key, timeout=WAIT_SECONDS_MAX).messages[0]
        by_id = pb.QueryMessageByIdRequest(offset_msg_id=shown.offset_msg_id)
        by_offset = pb.QueryMessageByOffsetRequest(
            topic=record.topic, queue_id=record.queue_id, queue_offset=record.queue_offset
        )
        assert gateway.QueryMessageById(by_id, timeout=WAIT_SECONDS_MAX).message == shown
        assert list(gateway.QueryMessageByOffset(by_offset, timeout=WAIT_SECONDS_MAX).messages) == [shown]
        chunks = list(
            gateway.DownloadBody(pb.DownloadBodyRequest(offset_msg_id=shown.offset_msg_id), timeout=WAIT_SECONDS_MAX)
        )

    assert shown.body_omitted == (size_bytes == 4 << 20)
    assert shown.body == (b"" if shown.body_omitted else body)
    assert b"".join(chunk.chunk for chunk in chunks) == body
    assert all(len(chunk.chunk) <= BODY_CHUNK_BYTES for chunk in chunks)
    assert {chunk.body_size_bytes for chunk in chunks} == {size_bytes}


@pytest.mark.parametrize("is_built", [True, False])
def test_every_query_with_a_token_is_whole_or_partial_as_its_builder_is(records, is_built):
    """Each answer, also a position inside the queue, is PARTIAL while the message of the token is not built."""
    record = next(r for r in reversed(records) if (r.topic, r.queue_id) == ("b_order", 1))
    built = record.commit_log_offset + (record.store_size_bytes if is_built else 0)
    tokens = [encode_freshness_token("broker-a", record.commit_log_offset)]
    topic = {"topic": "b_order", "freshness_tokens": tokens}
    time = Timestamp(seconds=1)
    memory = MemoryShard(records, built_offset=built)

    def on_wait(past_offset: int, wait_seconds: float) -> None:
        if wait_seconds and not is_built:
            raise ServiceUnavailableError("not to be waited for")

    memory.on_wait = on_wait
    with serving(memory, "127.0.0.1:1") as gateway:
        for ask, request in (
            (gateway.QueryMessageByKey, pb.QueryMessageByKeyRequest(key="nosuch", **topic)),
            (gateway.QueryMessageByUniqueKey, pb.QueryMessageByUniqueKeyRequest(unique_key="nosuch", **topic)),
            (gateway.QueryMessageByOffset, pb.QueryMessageByOffsetRequest(queue_id=1, max_messages=1, **topic)),
            (gateway.FindMessage, pb.FindMessageRequest(text="nosuch", freshness_tokens=tokens)),
            (gateway.SearchMessages, pb.SearchMessagesRequest(queue_id=1, body_text="nosuch", **topic)),
            (gateway.SearchOffset, pb.SearchOffsetRequest(queue_id=1, time=time, **topic)),
        ):
            answer = ask(request, timeout=WAIT_SECONDS_MAX)
            (shard,) = answer.shards
            assert (shard.broker_name, shard.indexed_up_to_offset) == ("broker-a", built)
            assert shard.HasField("error") != is_built, type(answer)
            if is_built:
                # Behind other messages perhaps, which it then says as it always did.
                assert shard.log_end_offset > built
            else:
                assert answer.completeness == message_pb2.COMPLETENESS_PARTIAL
                assert f"byte {record.commit_log_offset}" in shard.error.message
            request.freshness_tokens.append("no token")
            assert isinstance(
                refusal(lambda a=ask, r=request: a(r, timeout=WAIT_SECONDS_MAX)), InvalidFreshnessTokenError
            )


def test_a_position_says_its_shard_and_the_time_span_of_its_queue(gateway, records):
    stored = [r.store_time_millis for r in records if (r.topic, r.queue_id) == ("b_order", 1)]
    answer = gateway.SearchOffset(
        pb.SearchOffsetRequest(topic="b_order", queue_id=1, time=Timestamp(seconds=1)), timeout=WAIT_SECONDS_MAX
    )
    assert [answer.first_store_time.ToMilliseconds(), answer.last_store_time.ToMilliseconds()] == [
        stored[0],
        stored[-1],
    ]
    (shard,) = answer.shards
    assert shard.broker_name == "broker-a"
    assert shard.indexed_up_to_offset == shard.log_end_offset > 0
    assert answer.completeness == message_pb2.COMPLETENESS_COMPLETE


def test_status_names_every_service(gateway):
    answer = gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)

    assert [row.service for row in answer.services] == ["commitlog", "consumequeue", "index"]


def test_an_append_and_its_receipts_pass_through(records):
    def append(request: commitlog_pb.AppendMessagesRequest, context: grpc.ServicerContext):
        assert 0 < context.time_remaining() <= WAIT_SECONDS_MAX * 1.05  # gRPC rounds what it sends up, by some percent
        results = [message_pb2.AppendResult(unique_key=message.body.decode()) for message in request.messages]
        return commitlog_pb.AppendMessagesResponse(results=results)

    with (
        commit_log_server(append_messages=append) as backend,
        serving(MemoryShard(records), backend.address) as gateway,
    ):
        answer = gateway.AppendMessages(append_request(b"one", b"two"), timeout=WAIT_SECONDS_MAX)

    assert [result.unique_key for result in answer.results] == ["one", "two"]


def test_a_refused_append_arrives_as_the_commitlog_refused_it(records):
    def append(request: commitlog_pb.AppendMessagesRequest, context: grpc.ServicerContext):
        if request.messages[0].body == b"full":
            raise DiskFullError("full", freeBytes=1)
        raise InvalidMessageError("topic is odd", field="topic", index=3)

    with (
        commit_log_server(append_messages=append) as backend,
        serving(MemoryShard(records), backend.address) as gateway,
    ):
        direct_error = refusal(lambda: gateway.AppendMessages(append_request(b"x"), timeout=WAIT_SECONDS_MAX))
        with pytest.raises(grpc.RpcError) as full:
            gateway.AppendMessages(append_request(b"full"), timeout=WAIT_SECONDS_MAX)

    assert isinstance(direct_error, InvalidMessageError)
    assert direct_error.metadata == {"field": "topic", "index": "3"}
    assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    status = status_of(full.value)
    assert {detail.TypeName() for detail in status.details} == {"google.rpc.ErrorInfo", "google.rpc.RetryInfo"}


def test_an_append_without_a_commitlog_is_unavailable(gateway):
    error = refusal(lambda: gateway.AppendMessages(append_request(b"x"), timeout=WAIT_SECONDS_MAX))

    assert isinstance(error, ServiceUnavailableError)
    assert error.metadata["service"] == "commitlog"


def test_an_append_stream_answers_each_request_before_the_next_and_ends_with_the_requests(records):
    ended = threading.Event()

    def append_stream(requests, context):
        for request in requests:
            yield commitlog_pb.AppendMessageStreamResponse(
                results=[message_pb2.AppendResult(unique_key=request.messages[0].body.decode())]
            )
        ended.set()

    with (
        commit_log_server(append_message_stream=append_stream) as backend,
        serving(MemoryShard(records), backend.address) as gateway,
    ):
        received = threading.Semaphore(0)

        def requests():
            for number in range(5):
                yield stream_request(str(number).encode())
                assert received.acquire(timeout=WAIT_SECONDS_MAX)

        answers = []
        for response in gateway.AppendMessageStream(requests(), timeout=WAIT_SECONDS_MAX):
            answers.append(response.results[0].unique_key)
            received.release()
        assert ended.wait(WAIT_SECONDS_MAX)

    assert answers == ["0", "1", "2", "3", "4"]


def test_a_cancelled_append_stream_is_cancelled_at_the_commitlog(records):
    entered, gone = threading.Event(), threading.Event()

    def append_stream(requests, context):
        context.add_callback(gone.set)
        yield commitlog_pb.AppendMessageStreamResponse()
        entered.set()
        gone.wait(WAIT_SECONDS_MAX)

    with (
        commit_log_server(append_message_stream=append_stream) as backend,
        serving(MemoryShard(records), backend.address) as gateway,
    ):
        never = threading.Event()

        def requests():
            yield stream_request(b"x")
            never.wait(10)

        call = gateway.AppendMessageStream(requests())
        next(call)
        assert entered.wait(WAIT_SECONDS_MAX)
        call.cancel()
        assert gone.wait(WAIT_SECONDS_MAX)
        never.set()


def test_a_stream_that_the_commitlog_ends_arrives_as_it_was_ended(records):
    def append_stream(requests, context):
        next(requests)
        yield commitlog_pb.AppendMessageStreamResponse()
        raise DiskFullError("full")

    with (
        commit_log_server(append_message_stream=append_stream) as backend,
        serving(MemoryShard(records), backend.address) as gateway,
    ):
        done = threading.Event()

        def requests():
            yield stream_request(b"x")
            done.wait(WAIT_SECONDS_MAX)

        call = gateway.AppendMessageStream(requests(), timeout=WAIT_SECONDS_MAX)
        next(call)
        error = refusal(lambda: next(call))
        done.set()

    assert isinstance(error, DiskFullError)


def test_a_stream_whose_commitlog_reads_nothing_is_held_back(records):
    """1 MiB requests: what flows before the commitlog takes any is bounded by gRPC's windows, not by the stream."""
    sent_count, release = 0, threading.Event()

    def append_stream(requests, context):
        yield commitlog_pb.AppendMessageStreamResponse()
        release.wait(WAIT_SECONDS_MAX)
        for _ in requests:
            yield commitlog_pb.AppendMessageStreamResponse()

    with (
        commit_log_server(append_message_stream=append_stream) as backend,
        serving(MemoryShard(records), backend.address) as gateway,
    ):
        paused = threading.Event()

        def requests():
            nonlocal sent_count
            for _ in range(200):
                yield stream_request(bytes(1 << 20))
                sent_count += 1
                paused.set()

        call = gateway.AppendMessageStream(requests(), timeout=WAIT_SECONDS_MAX)
        next(call)
        # Held back: a whole second passes without another request being taken.
        while paused.wait(1):
            paused.clear()
        held_at = sent_count
        release.set()
        answers = sum(1 for _ in call)

    assert held_at < 64
    assert answers == 200
