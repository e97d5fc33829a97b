"""Bad input through the running services: a clear status with one ErrorInfo, and no trace on the disk."""

import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from reput.gateway.v1 import gateway_service_pb2 as pb
from tests.support.stack import HostedStack, hosted_stack, new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

BODY_BYTES_MAX = 4 * 1024 * 1024
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    """Services with one topic that holds one message."""
    sizes = {
        "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(32 << 20),
        "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "4000",
        "REPUT_INDEX_HASH_SLOT_COUNT": "500",
        "REPUT_INDEX_ENTRY_COUNT_MAX": "1000",
    }
    with hosted_stack(tmp_path_factory.mktemp("bad-input") / "store", settings=sizes) as running:
        message = new_message("T", b"hello", keys=["k"], queue_id=0)
        running.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX)
        running.wait_until_built()
        _wait_for_checkpoint(running)
        yield running


def _wait_for_checkpoint(running: HostedStack) -> None:
    """Return once the index's own writing of its first message is over: slots and header go with the checkpoint."""
    checkpoint = running.store / "reput" / "index" / "checkpoint.json"
    wait_until(
        lambda: checkpoint.exists() and json.loads(checkpoint.read_text())["next_offset"] >= _log_end(running),
        "the index writes its checkpoint",
    )


def _trace(store: pathlib.Path) -> dict[str, str]:
    """What an append could have left: topics, and the digests of log, queues and index."""
    return {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("commitlog", "consumequeue", "index", "config")
        for path in sorted((store / folder).rglob("*"))
        if path.is_file()
    }


def _refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    status = rpc_status.from_call(caught.value)
    assert status is not None, "the error carries google.rpc.Status"
    infos = []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            infos.append(info)
    assert len(infos) == 1, "exactly one ErrorInfo"
    assert infos[0].domain == "reput"
    assert caught.value.details(), "a message for a person"
    return caught.value.code(), infos[0].reason, dict(infos[0].metadata)


BAD_MESSAGES = {
    "an empty topic": ({"topic": ""}, "topic"),
    "a topic of 128 characters": ({"topic": "t" * 128}, "topic"),
    "a retry topic of 256 characters": ({"topic": "%RETRY%" + "t" * 249}, "topic"),
    "a topic that climbs out": ({"topic": "../../x"}, "topic"),
    "a topic with a slash": ({"topic": "a/b"}, "topic"),
    "a topic with a NUL": ({"topic": "a\0b"}, "topic"),
    "a topic in Chinese": ({"topic": "订单"}, "topic"),
    "a topic of dots": ({"topic": ".."}, "topic"),
    "an empty body": ({"body": b""}, "body"),
    "a body over 4 MiB": ({"body": b"x" * (BODY_BYTES_MAX + 1)}, None),
    "properties over 32767 bytes": ({"properties": {"p": "x" * 32_767}}, "properties"),
    "a property value with U+0001": ({"properties": {"p": "a\x01b"}}, "properties"),
    "a property name with U+0002": ({"properties": {"p\x02": "a"}}, "properties"),
    "a property that the store owns": ({"properties": {"UNIQ_KEY": "x"}}, "properties"),
    "a delay that is no number": ({"properties": {"DELAY": "soon"}}, "properties"),
    "a transaction that is delayed": ({"properties": {"TRAN_MSG": "true", "DELAY": "1"}}, "properties"),
    "a negative delay level": ({"delay_level": -1}, "delay_level"),
    "a topic of the broker's timers": ({"topic": "rmq_sys_wheel_timer"}, "topic"),
    "a key with a space": ({"keys": ["a b"]}, "keys"),
    "a key with U+0001": ({"keys": ["a\x01"]}, "keys"),
    "an empty key": ({"keys": [""]}, "keys"),
    "a negative queue": ({"queue_id": -1}, "queue_id"),
    "a queue beyond the topic's": ({"queue_id": 8}, "queue_id"),
    "a huge queue": ({"queue_id": 2**31 - 1}, "queue_id"),
}


@pytest.mark.parametrize("name", BAD_MESSAGES)
def test_a_bad_message_writes_nothing_of_its_request(stack: HostedStack, name: str) -> None:
    """The good message before it is not written either, and the error names the index."""
    fields, field = BAD_MESSAGES[name]
    message = {"topic": "T", "body": b"x", **fields}
    before = _trace(stack.store)
    end = _log_end(stack)
    request = pb.AppendMessagesRequest(messages=[new_message("T", b"good"), new_message(**message)])

    code, _, metadata = _refused(lambda: stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX))

    assert code in (INVALID, grpc.StatusCode.RESOURCE_EXHAUSTED if field is None else INVALID)
    if field is not None:
        assert metadata["index"] == "1"
        assert metadata["field"].startswith(field)
    assert end == _log_end(stack)
    assert before == _trace(stack.store)


def _log_end(stack: HostedStack) -> int:
    rows = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
    return next(row.log_end_offset for row in rows if row.service == "commitlog")


@pytest.mark.parametrize("size_bytes", [1, BODY_BYTES_MAX - 1, BODY_BYTES_MAX])
def test_bodies_up_to_the_limit_come_back_whole(stack: HostedStack, size_bytes: int) -> None:
    """A body too large for a page is left out of it and comes by DownloadBody."""
    body = bytes(i % 251 for i in range(1000)) * (size_bytes // 1000 + 1)
    message = new_message("Big", body[:size_bytes], keys=[f"size-{size_bytes}"])
    result = stack.gateway.AppendMessages(
        pb.AppendMessagesRequest(messages=[message]), timeout=WAIT_SECONDS_MAX
    ).results[0]

    found = stack.gateway.QueryMessageById(
        pb.QueryMessageByIdRequest(offset_msg_id=result.offset_msg_id), timeout=WAIT_SECONDS_MAX
    ).message
    chunks = stack.gateway.DownloadBody(
        pb.DownloadBodyRequest(offset_msg_id=result.offset_msg_id), timeout=WAIT_SECONDS_MAX
    )
    assert body[:size_bytes] == b"".join(chunk.chunk for chunk in chunks)
    if found.body_omitted:
        assert size_bytes > BODY_BYTES_MAX // 2
        assert found.body == b""
    else:
        assert body[:size_bytes] == found.body


def _time(seconds: int) -> Timestamp:
    return Timestamp(seconds=seconds)


Query = Callable[[HostedStack], object]
BAD_QUERIES: dict[str, tuple[Query, grpc.StatusCode, str]] = {
    "an unknown topic by key": (
        lambda s: s.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="Nope", key="k"), timeout=WAIT_SECONDS_MAX
        ),
        NOT_FOUND,
        "TOPIC_NOT_FOUND",
    ),
    "an unknown topic by unique key": (
        lambda s: s.gateway.QueryMessageByUniqueKey(
            pb.QueryMessageByUniqueKeyRequest(topic="Nope", unique_key="k"), timeout=WAIT_SECONDS_MAX
        ),
        NOT_FOUND,
        "TOPIC_NOT_FOUND",
    ),
    "an unknown topic by offset": (
        lambda s: s.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="Nope"), timeout=WAIT_SECONDS_MAX
        ),
        NOT_FOUND,
        "TOPIC_NOT_FOUND",
    ),
    "a queue that is not there": (
        lambda s: s.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="T", queue_id=99), timeout=WAIT_SECONDS_MAX
        ),
        NOT_FOUND,
        "QUEUE_NOT_FOUND",
    ),
    "a shard that is not there": (
        lambda s: s.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="T", broker_name="broker-z"), timeout=WAIT_SECONDS_MAX
        ),
        NOT_FOUND,
        "BROKER_NOT_FOUND",
    ),
    "a negative queue offset": (
        lambda s: s.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="T", queue_offset=-1), timeout=WAIT_SECONDS_MAX
        ),
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "an empty key": (
        lambda s: s.gateway.QueryMessageByKey(pb.QueryMessageByKeyRequest(topic="T"), timeout=WAIT_SECONDS_MAX),
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "begin after end": (
        lambda s: s.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="T", key="k", begin_time=_time(20), end_time=_time(10)),
            timeout=WAIT_SECONDS_MAX,
        ),
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "a time before 1970": (
        lambda s: s.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="T", key="k", begin_time=_time(-1)), timeout=WAIT_SECONDS_MAX
        ),
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "a page of -1": (
        lambda s: s.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="T", key="k", page_size=-1), timeout=WAIT_SECONDS_MAX
        ),
        INVALID,
        "INVALID_ARGUMENT",
    ),
    "a made-up page token": (
        lambda s: s.gateway.QueryMessageByKey(
            pb.QueryMessageByKeyRequest(topic="T", key="k", page_token="AAAA"), timeout=WAIT_SECONDS_MAX
        ),
        INVALID,
        "INVALID_PAGE_TOKEN",
    ),
    "an id that is none": (
        lambda s: s.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id="hello"), timeout=WAIT_SECONDS_MAX
        ),
        INVALID,
        "INVALID_MESSAGE_ID",
    ),
    "an id of another broker's offset": (
        lambda s: s.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id="0A0A0A0A00002A9F00000000000FFFFF"), timeout=WAIT_SECONDS_MAX
        ),
        NOT_FOUND,
        "RECORD_NOT_FOUND",
    ),
    "an IPv6 id of no record": (
        lambda s: s.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id="20010DB8" + "0" * 24 + "00002A9F" + "00000000000FFFFF"),
            timeout=WAIT_SECONDS_MAX,
        ),
        NOT_FOUND,
        "RECORD_NOT_FOUND",
    ),
    "an id inside a record": (
        lambda s: s.gateway.QueryMessageById(
            pb.QueryMessageByIdRequest(offset_msg_id="7F00000100002A9F0000000000000007"), timeout=WAIT_SECONDS_MAX
        ),
        NOT_FOUND,
        "RECORD_NOT_FOUND",
    ),
}


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_a_bad_query_has_its_status_and_reason(stack: HostedStack, name: str) -> None:
    """Each with exactly one ErrorInfo of the domain reput."""
    query, code, reason = BAD_QUERIES[name]

    assert (code, reason) == _refused(lambda: query(stack))[:2]


@pytest.mark.parametrize(
    "fields",
    [
        {"page_size": 0},
        {"page_size": 2**31 - 1},
        {"end_time": _time(253_402_300_799)},
    ],
)
def test_the_edges_of_what_is_allowed_answer(stack: HostedStack, fields: dict[str, object]) -> None:
    """The default page, a clamped one, the year 9999."""
    answer = stack.gateway.QueryMessageByKey(
        pb.QueryMessageByKeyRequest(topic="T", key="k", **fields), timeout=WAIT_SECONDS_MAX
    )

    assert [b"hello"] == [message.body for message in answer.messages]


def test_an_offset_out_of_range_is_empty_and_has_the_range(stack: HostedStack) -> None:
    """Huge and past the end alike."""
    for queue_offset in (1, 2**63 - 1):
        answer = stack.gateway.QueryMessageByOffset(
            pb.QueryMessageByOffsetRequest(topic="T", queue_id=0, queue_offset=queue_offset), timeout=WAIT_SECONDS_MAX
        )
        assert (0, 0, 1) == (len(answer.messages), answer.min_offset, answer.max_offset)


def test_a_bad_request_on_a_stream_is_answered_and_the_stream_goes_on(stack: HostedStack) -> None:
    """In order, the second with its error."""
    requests = [
        pb.AppendMessageStreamRequest(messages=[new_message("S", b"first")]),
        pb.AppendMessageStreamRequest(messages=[new_message("../x", b"bad")]),
        pb.AppendMessageStreamRequest(messages=[new_message("S", b"third")]),
    ]

    answers = list(stack.gateway.AppendMessageStream(iter(requests), timeout=WAIT_SECONDS_MAX))

    assert [1, 0, 1] == [len(answer.results) for answer in answers]
    assert answers[1].error.code == INVALID.value[0]
    assert not answers[0].HasField("error")
