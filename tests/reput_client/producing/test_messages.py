"""Messages put together by hand against protobuf's own: the same bytes, and the same refusals."""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.encoding import (
    MESSAGE_BYTES_MAX,
    FlushMode,
    as_field,
    encode_request,
    encode_request_tail,
    to_message,
)
from reput_client.errors import InvalidMessageError
from reput_client.producing import messages

MADE = b"0123456789ABCDEF" * 2
NO_FIELDS: dict[str, Any] = {
    "keys": (),
    "tags": "",
    "properties": None,
    "queue_id": None,
    "unique_key": "K",
    "born_time": None,
    "flag": 0,
    "delivery_time": None,
    "delay_level": 0,
}
# Sizes on both sides of where a varint grows.
TEXTS = st.one_of(st.text(max_size=20), st.integers(0, 300).map("é".__mul__))
BODIES = st.one_of(st.binary(max_size=20), st.sampled_from([127, 128, 16_383, 16_384, 70_000]).map(b"x".__mul__))
INTS = st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from([0, 1, 127, 128, (1 << 31) - 1]))
MESSAGES = st.fixed_dictionaries(
    {
        "topic": TEXTS,
        "body": BODIES,
        "keys": st.one_of(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=4).map(tuple)),
        "tags": TEXTS,
        "properties": st.one_of(st.none(), st.dictionaries(TEXTS, TEXTS, max_size=4)),
        "queue_id": st.one_of(st.none(), INTS),
        "unique_key": TEXTS,
        "born_time": st.one_of(st.none(), st.datetimes(datetime(1971, 1, 1), timezones=st.just(UTC))),
        "flag": INTS,
    }
)


def plain(**fields: Any) -> bytes:
    return as_field(to_message(**{**NO_FIELDS, **fields}))


def by_hand(**fields: Any) -> bytes:
    return messages.MessageEncoder(lambda count: [MADE] * count).encode(messages.NewMessage(**{**NO_FIELDS, **fields}))


@pytest.fixture(params=[plain, by_hand], ids=lambda encode: encode.__name__)
def encode(request: Any) -> Callable[..., bytes]:
    return request.param


def expected(fields: dict[str, Any]) -> message_pb2.NewMessage:
    message = message_pb2.NewMessage(
        topic=fields["topic"],
        body=fields["body"],
        keys=fields["keys"],
        tags=fields["tags"],
        properties=fields["properties"] or {},
        flag=fields["flag"],
        queue_id=fields["queue_id"],
        unique_key=fields["unique_key"],
    )
    if fields["born_time"] is not None:
        message.born_time.FromDatetime(fields["born_time"])
    return message


@given(fields=MESSAGES, more=MESSAGES)
@example(
    fields={**NO_FIELDS, "topic": "T", "body": b"x", "queue_id": 0},
    more={**NO_FIELDS, "topic": "T", "body": b"x", "queue_id": None},
)
def test_what_protobuf_reads_is_what_was_given(fields: dict, more: dict) -> None:
    for encode_one in (plain, by_hand):
        request = encode_request([encode_one(**fields), encode_one(**more)], encode_request_tail(FlushMode.SYNC))
        parsed = pb.AppendMessageStreamRequest.FromString(request)
        assert parsed == pb.AppendMessageStreamRequest(
            messages=[expected(fields), expected(more)], flush=2, deduplicate=True
        )


@given(fields=MESSAGES)
def test_by_hand_it_is_the_same_bytes(fields: dict) -> None:
    """But for several properties, whose order protobuf leaves open."""
    fields["properties"] = dict(list((fields["properties"] or {}).items())[:1])
    fields["topic"], fields["body"] = fields["topic"] or "T", fields["body"] or b"x"
    assert by_hand(**fields) == plain(**fields)


@given(batch=st.lists(MESSAGES, max_size=6))
@example(batch=[{**NO_FIELDS, "topic": "T", "body": b"x", **own} for own in ({}, {"queue_id": 0}, {"tags": "A"}, {})])
def test_a_message_of_a_batch_has_the_bytes_that_it_has_alone(batch: list[dict]) -> None:
    """Messages of a batch share what the one before had: topic, queue, tags."""
    encoder = messages.MessageEncoder(lambda count: [MADE] * count)
    given_messages = [messages.NewMessage(**{**NO_FIELDS, **fields}) for fields in (*batch, *batch)]
    assert encoder.encode_all(iter(given_messages)) == [encoder.encode(message) for message in given_messages]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"topic": "%RETRY%group", "keys": ("a",), "tags": "TagA"},
        {"keys": ["a", "b" * 127, "c" * 128, "ключ"], "tags": "标签"},
        {"properties": {"p": "v", "q" * 200: "w" * 20_000}, "queue_id": 0, "flag": 7},
        {"queue_id": 70_000, "flag": (1 << 31) - 1, "unique_key": None},
        {"body": b"x" * 5000, "unique_key": "0A" * 28},
    ],
)
def test_the_ordinary_goes_by_hand(fields: dict, monkeypatch) -> None:
    full = {"topic": "T", "body": b"x", **fields}
    want = plain(**{**full, "unique_key": full.get("unique_key", "K") or MADE.decode()})
    monkeypatch.setattr(messages, "to_message", None)
    got = by_hand(**full)
    parse = pb.AppendMessageStreamRequest.FromString
    assert parse(got) == parse(want)


def test_keys_may_come_from_an_iterator(encode) -> None:
    data = encode(topic="T", body=b"x", keys=(key for key in "ab"))
    assert pb.AppendMessageStreamRequest.FromString(data).messages[0].keys == ["a", "b"]


def test_a_key_is_made_for_what_is_not_ordinary_too() -> None:
    (message,) = pb.AppendMessageStreamRequest.FromString(by_hand(topic="", body=b"x", unique_key=None)).messages
    assert message.unique_key == MADE.decode()


class Text(str):
    """A `str` that is not quite one."""


@pytest.mark.parametrize(
    "fields",
    [
        {"body": bytearray(b"x")},
        {"body": memoryview(b"xy")[:1]},
        {"body": memoryview(b"abcd").cast("I")},
        {"body": b""},
        {"topic": ""},
        {"topic": b"T"},
        {"topic": Text("T")},
        {"tags": Text("A"), "keys": [Text("k")]},
        {"keys": deque(["a", "b"])},
        {"keys": {"a": 1}},
        {"keys": [b"a"]},
        {"properties": MappingProxyType({"p": "v"})},
        {"properties": [("p", "v")]},
        {"flag": -1, "queue_id": -1},
        {"born_time": datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)},
        {"topic": "t" * 256, "tags": "g" * 256},
    ],
)
def test_what_is_not_ordinary_arrives_all_the_same(fields: dict, encode) -> None:
    (message,) = pb.AppendMessageStreamRequest.FromString(encode(**{"topic": "T", "body": b"x", **fields})).messages
    want = {**NO_FIELDS, "topic": "T", "body": b"x", **fields}
    want["body"] = bytes(want["body"])
    if "keys" in fields:
        want["keys"] = [k if isinstance(k, str) else k.decode() for k in fields["keys"]]
    assert message == expected(want)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"body": "text"}, TypeError),
        ({"body": None}, TypeError),
        ({"keys": "one"}, TypeError),
        ({"keys": (1,)}, TypeError),
        ({"keys": [None]}, TypeError),
        ({"keys": ["\ud800"]}, ValueError),
        ({"topic": 7}, TypeError),
        ({"topic": "\ud800"}, ValueError),
        ({"tags": "\ud800"}, ValueError),
        ({"tags": 7}, TypeError),
        ({"properties": {"a": 1}}, TypeError),
        ({"properties": {1: "a"}}, TypeError),
        ({"properties": {"a": "\ud800"}}, ValueError),
        ({"queue_id": "1"}, TypeError),
        ({"queue_id": True}, TypeError),
        ({"flag": True}, TypeError),
        ({"queue_id": 1 << 31}, ValueError),
        ({"flag": 1 << 31}, ValueError),
        ({"unique_key": 7}, TypeError),
        ({"unique_key": b"\xff"}, ValueError),
        ({"unique_key": "\ud800"}, ValueError),
        ({"born_time": datetime(2026, 1, 2)}, ValueError),
        ({"body": b"x" * (MESSAGE_BYTES_MAX + 1)}, InvalidMessageError),
        ({"body": b"x" * MESSAGE_BYTES_MAX}, InvalidMessageError),
    ],
)
def test_what_is_wrong_is_refused_in_the_same_way(fields: dict, error: type[Exception], encode) -> None:
    with pytest.raises(error):
        encode(**{"topic": "T", "body": b"x", **fields})


def test_a_priority_is_a_property_of_the_message_beside_the_applications_own(encode) -> None:
    own = {"colour": "red"}
    request = encode_request(
        [encode(topic="T", body=b"x", properties=own, priority=3), encode(topic="T", body=b"x", priority=0)], b""
    )
    first, second = pb.AppendMessageStreamRequest.FromString(request).messages
    assert dict(first.properties) == {"colour": "red", "_SYS_MSG_PRIORITY_": "3"}
    assert dict(second.properties) == {"_SYS_MSG_PRIORITY_": "0"}
    assert own == {"colour": "red"}


def test_a_lite_topic_is_a_property_of_the_message_beside_the_applications_own(encode) -> None:
    own = {"colour": "red"}
    request = encode_request([encode(topic="T", body=b"x", properties=own, lite_topic="chat-1")], b"")
    (message,) = pb.AppendMessageStreamRequest.FromString(request).messages
    assert dict(message.properties) == {"colour": "red", "__LITE_TOPIC": "chat-1"}
    assert own == {"colour": "red"}
    for wrong in ("", "a b", "x" * 65, "é"):
        with pytest.raises(ValueError, match="lite_topic is"):
            encode(topic="T", body=b"x", lite_topic=wrong)


@pytest.mark.parametrize("priority", [-1, 1 << 31])
def test_a_number_that_is_no_priority_is_refused_before_it_is_sent(encode, priority: int) -> None:
    with pytest.raises(ValueError, match=f"priority is {priority}: 0 to 2147483647"):
        encode(topic="T", body=b"x", priority=priority)


def test_the_caches_have_an_end() -> None:
    for i in range(2 * messages.CACHED_SIZE_COUNT):
        by_hand(topic=f"t{i}", tags=f"g{i}", body=b"x" * (1 + i))
    assert messages._front.cache_info().currsize == messages.CACHE_COUNT
    assert messages._tags_field.cache_info().currsize == messages.CACHE_COUNT
    assert messages._varint.cache_info().currsize == messages.CACHED_SIZE_COUNT
