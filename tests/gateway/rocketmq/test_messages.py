"""A message of RocketMQ's contract on its way in and out."""

import gzip
import hashlib
import zlib

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.messages import BODY_BYTES_MAX, full_name, resource_of, to_message, to_new_message
from gateway.rocketmq.status import RefusedError
from reput.message.v1 import message_pb2


def message(body: bytes = b"body", **system: object) -> v2.Message:
    return v2.Message(
        topic=v2.Resource(name="Orders"),
        body=body,
        system_properties=v2.SystemProperties(**{"message_id": "0123456789ABCDEF", **system}),
    )


def test_every_field_that_a_producer_sets_is_stored() -> None:
    sent = message(
        tag="TagA",
        keys=["k1", "k2"],
        message_type=v2.FIFO,
        message_group="g",
        trace_context="00-trace",
        born_timestamp=Timestamp(seconds=1_700_000_000, nanos=123_000_000),
    )
    sent.user_properties["colour"] = "red"
    assert to_new_message(sent) == message_pb2.NewMessage(
        topic="Orders",
        body=b"body",
        tags="TagA",
        keys=["k1", "k2"],
        unique_key="0123456789ABCDEF",
        properties={"colour": "red", "__SHARDINGKEY": "g", "TRACE_CONTEXT": "00-trace"},
        born_time=Timestamp(seconds=1_700_000_000, nanos=123_000_000),
    )


def test_gzip_is_unpacked_before_storing() -> None:
    assert to_new_message(message(gzip.compress(b"plain" * 100), body_encoding=v2.GZIP)).body == b"plain" * 100


@pytest.mark.parametrize(
    ("digest_type", "checksum"),
    [
        (v2.CRC32, f"{zlib.crc32(b'body'):X}"),
        (v2.MD5, hashlib.md5(b"body").hexdigest().upper()),
        (v2.SHA1, hashlib.sha1(b"body").hexdigest()),
        (v2.DIGEST_TYPE_UNSPECIFIED, "anything"),
    ],
)
def test_a_right_digest_passes(digest_type: int, checksum: str) -> None:
    assert to_new_message(message(body_digest=v2.Digest(type=digest_type, checksum=checksum))).body == b"body"


REFUSED = {
    "delayed": (message(message_type=v2.DELAY), v2.UNSUPPORTED),
    "delayed by time alone": (message(delivery_timestamp=Timestamp(seconds=1)), v2.UNSUPPORTED),
    "transactional": (message(message_type=v2.TRANSACTION), v2.UNSUPPORTED),
    "of a type nobody knows": (message(message_type=77), v2.UNSUPPORTED),
    "of a lite topic": (message(lite_topic="l"), v2.UNSUPPORTED),
    "with a priority": (message(priority=3), v2.UNSUPPORTED),
    "without an id": (message(message_id=""), v2.ILLEGAL_MESSAGE_ID),
    "wrong CRC-32": (message(body_digest=v2.Digest(type=v2.CRC32, checksum="1")), v2.MESSAGE_CORRUPTED),
    "wrong MD5": (message(body_digest=v2.Digest(type=v2.MD5, checksum="")), v2.MESSAGE_CORRUPTED),
    "wrong SHA-1": (message(body_digest=v2.Digest(type=v2.SHA1, checksum="00")), v2.MESSAGE_CORRUPTED),
    "no gzip": (message(b"plain", body_encoding=v2.GZIP), v2.MESSAGE_CORRUPTED),
    "half a gzip": (message(gzip.compress(b"x" * 999)[:-9], body_encoding=v2.GZIP), v2.MESSAGE_CORRUPTED),
    "a gzip bomb": (
        message(gzip.compress(bytes(BODY_BYTES_MAX + 1)), body_encoding=v2.GZIP),
        v2.MESSAGE_BODY_TOO_LARGE,
    ),
    "packed in a way nobody knows": (message(body_encoding=9), v2.UNSUPPORTED),
}


@pytest.mark.parametrize(("sent", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_stored_as_it_is_meant_is_refused(sent: v2.Message, code: int) -> None:
    with pytest.raises(RefusedError) as refused:
        to_new_message(sent)
    assert refused.value.code == code


@pytest.mark.parametrize("name", ["KEYS", "TAGS", "UNIQ_KEY", "__SHARDINGKEY", "TRACE_CONTEXT"])
def test_the_systems_properties_cannot_be_set_by_the_side_door(name: str) -> None:
    sent = message()
    sent.user_properties[name] = "value"
    with pytest.raises(RefusedError) as refused:
        to_new_message(sent)
    assert refused.value.code == v2.ILLEGAL_MESSAGE_PROPERTY_KEY


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (v2.Resource(name="Orders"), "Orders"),
        (v2.Resource(resource_namespace="ns", name="Orders"), "ns%Orders"),
        (v2.Resource(name="%RETRY%group"), "%RETRY%group"),
        (v2.Resource(name="%DLQ%group"), "%DLQ%group"),
    ],
)
def test_a_name_with_its_namespace_is_one_resource(resource: v2.Resource, name: str) -> None:
    assert full_name(resource) == name
    assert resource_of(name) == resource


def test_what_was_stored_comes_back_with_rocketmqs_names() -> None:
    stored = message_pb2.StoredMessage(
        topic="ns%Orders",
        queue_id=3,
        queue_offset=12,
        reconsume_times=2,
        sys_flag=1,
        tags="TagA",
        keys=["k1", "k2"],
        unique_key="U",
        offset_msg_id="I",
        born_host="1.2.3.4:5",
        store_host="6.7.8.9:10911",
        born_time=Timestamp(seconds=5),
        store_time=Timestamp(seconds=6),
        properties={
            "KEYS": "k1 k2",
            "TAGS": "TagA",
            "UNIQ_KEY": "U",
            "__SHARDINGKEY": "g",
            "TRACE_CONTEXT": "t",
            "TIMER_DELIVER_MS": "7001",
            "DLQ_ORIGIN_TOPIC": "O",
            "DLQ_ORIGIN_MESSAGE_ID": "OI",
            "colour": "red",
        },
    )
    found = to_message(stored, b"body")
    assert found == v2.Message(
        topic=v2.Resource(resource_namespace="ns", name="Orders"),
        user_properties={"colour": "red"},
        body=b"body",
        system_properties=v2.SystemProperties(
            tag="TagA",
            keys=["k1", "k2"],
            message_id="U",
            body_digest=v2.Digest(type=v2.MD5, checksum=hashlib.md5(b"body").hexdigest().upper()),
            body_encoding=v2.GZIP,
            message_type=v2.DELAY,
            born_timestamp=Timestamp(seconds=5),
            born_host="1.2.3.4:5",
            store_timestamp=Timestamp(seconds=6),
            store_host="6.7.8.9:10911",
            delivery_timestamp=Timestamp(seconds=7, nanos=1_000_000),
            queue_id=3,
            queue_offset=12,
            delivery_attempt=3,
            message_group="g",
            trace_context="t",
            dead_letter_queue=v2.DeadLetterQueue(topic="O", message_id="OI"),
        ),
    )


def test_a_message_without_a_unique_key_goes_by_its_offset_msg_id() -> None:
    assert to_message(message_pb2.StoredMessage(offset_msg_id="I"), b"").system_properties.message_id == "I"
