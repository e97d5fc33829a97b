"""A message of RocketMQ's contract on its way in and out."""

import gzip
import hashlib
import zlib

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.message_rules import BODY_BYTES_MAX, check_sent
from gateway.rocketmq.messages import resource_of, to_delivered, to_message, to_new_message, to_pulled
from gateway.rocketmq.names import full_name
from gateway.rocketmq.status import RefusedError
from gateway.rocketmq.topic_types import check_type, type_of, types_of
from reput.consumer.v1.consumer_service_pb2 import Delivery
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


def stored_from(sent: v2.Message, **fields: object) -> message_pb2.StoredMessage:
    """What a store has of a sent message."""
    new = to_new_message(sent)
    return message_pb2.StoredMessage(topic=new.topic, body=new.body, properties=new.properties, **fields)


def body_of(message: v2.Message) -> tuple[bytes, int]:
    system = message.system_properties
    assert system.body_digest.type == v2.MD5
    assert system.body_digest.checksum == hashlib.md5(message.body).hexdigest().upper()
    return message.body, system.body_encoding


PACKED = gzip.compress(b"plain" * 100, mtime=0)


@pytest.mark.parametrize(
    "body",
    [PACKED, PACKED[:9] + b"\xff" + PACKED[10:], gzip.compress(b"plain") + gzip.compress(b"plain" * 99)],
    ids=["one", "of another system", "two in a row"],
)
def test_gzip_is_stored_and_delivered_unpacked_so_that_every_consumer_reads_it(body: bytes) -> None:
    stored = stored_from(message(body, body_encoding=v2.GZIP))
    assert stored.body == b"plain" * 100
    assert body_of(to_pulled(stored)) == body_of(to_message(stored)) == (b"plain" * 100, v2.IDENTITY)


@pytest.mark.parametrize(
    "body",
    [b"hello", PACKED[:-9], PACKED + b"more", b"\x1f\x8b", PACKED * 17],
    ids=["plain", "half", "more", "begin", "many"],
)
def test_bytes_that_are_no_gzip_come_back_as_they_were_sent_with_their_encoding(body: bytes) -> None:
    """As RocketMQ's own contract tests want it; a remoting consumer reads the stored bytes."""
    stored = stored_from(message(body, body_encoding=v2.GZIP))
    assert (stored.body, stored.sys_flag) == (body, 0)
    delivered = to_delivered(
        Delivery(message=stored, receipt_handle="handle", delivery_attempt=1), v2.Resource(name="Orders"), 0
    )
    for one in (delivered, to_pulled(stored), to_message(stored)):
        assert body_of(one) == (body, v2.GZIP)
        assert not one.user_properties


@pytest.mark.parametrize(
    ("body", "sys_flag", "expected"),
    [
        (zlib.compress(b"plain"), 0x001, (b"plain", v2.IDENTITY)),
        (zlib.compress(b"plain"), 0x301, (b"plain", v2.IDENTITY)),
        (gzip.compress(b"plain"), 0x001, (b"plain", v2.IDENTITY)),
        (b"hello", 0x001, (b"hello", v2.GZIP)),
        (b"hello", 0x301, (b"hello", v2.IDENTITY)),
        (b"hello", 0x000, (b"hello", v2.IDENTITY)),
    ],
    ids=["zlib", "zlib by name", "a proxy's gzip", "a proxy's GZIP that is none", "damaged zlib", "plain"],
)
def test_what_a_broker_or_its_proxy_has_stored_is_delivered_readable(
    body: bytes, sys_flag: int, expected: tuple[bytes, int]
) -> None:
    assert body_of(to_pulled(message_pb2.StoredMessage(body=body, sys_flag=sys_flag))) == expected


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
    "of a type nobody knows": (message(message_type=77), v2.UNSUPPORTED),
    "wrong CRC-32": (message(body_digest=v2.Digest(type=v2.CRC32, checksum="1")), v2.MESSAGE_CORRUPTED),
    "wrong MD5": (message(body_digest=v2.Digest(type=v2.MD5, checksum="")), v2.MESSAGE_CORRUPTED),
    "wrong SHA-1": (message(body_digest=v2.Digest(type=v2.SHA1, checksum="00")), v2.MESSAGE_CORRUPTED),
    "nothing in a gzip": (message(gzip.compress(b""), body_encoding=v2.GZIP), v2.MESSAGE_BODY_EMPTY),
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


def owned(**properties: str) -> v2.Message:
    sent = message()
    sent.user_properties.update(properties)
    return sent


def test_a_delivery_timestamp_becomes_the_delivery_time_of_the_new_message() -> None:
    due = Timestamp(seconds=1_700_000_000, nanos=5_000_000)
    assert to_new_message(message(message_type=v2.DELAY, delivery_timestamp=due)).delivery_time == due
    assert not to_new_message(message()).HasField("delivery_time")


def test_a_lite_topic_is_stored_and_told_as_one_and_the_light_queue_is_not_shown() -> None:
    stored = stored_from(message(lite_topic="chat-1", message_type=v2.LITE))
    assert dict(stored.properties) == {"__LITE_TOPIC": "chat-1"}
    stored.properties["INNER_MULTI_DISPATCH"] = "%LMQ%$Orders$chat-1"
    stored.properties["INNER_MULTI_QUEUE_OFFSET"] = "7"
    for found in (to_message(stored), to_pulled(stored)):
        assert (found.system_properties.lite_topic, found.system_properties.message_type) == ("chat-1", v2.LITE)
        assert not found.user_properties
    assert not to_message(stored_from(message())).system_properties.HasField("lite_topic")


def test_a_message_of_a_transaction_is_a_half_message_of_a_producer_group_named_as_its_topic() -> None:
    """As `SendMessageActivity.buildMessageProperty` of RocketMQ's proxy."""
    plain = to_new_message(message(message_type=v2.TRANSACTION))
    assert dict(plain.properties) == {"TRAN_MSG": "true", "PGROUP": plain.topic}
    patient = message(message_type=v2.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=90))
    assert to_new_message(patient).properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "90"


@pytest.mark.parametrize(
    ("properties", "kind", "due"),
    [
        ({"TRAN_MSG": "true", "__transactionId__": "t", "TRANSACTION_CHECK_TIMES": "2"}, v2.TRANSACTION, None),
        ({"TIMER_DELIVER_MS": "7001", "TIMER_OUT_MS": "8000", "TIMER_ROLL_TIMES": "1"}, v2.DELAY, 7_001),
        ({"TIMER_DELAY_MS": "5", "TIMER_OUT_MS": "8000", "TIMER_ENQUEUE_MS": "1"}, v2.DELAY, 8_000),
        ({"DELAY": "3"}, v2.DELAY, None),
        ({}, v2.NORMAL, None),
    ],
)
def test_what_made_a_message_wait_is_told_by_its_type_and_not_by_user_properties(
    properties: dict[str, str], kind: int, due: int | None
) -> None:
    found = to_message(message_pb2.StoredMessage(topic="T", body=b"x", properties={**properties, "colour": "red"}))
    assert dict(found.user_properties) == {"colour": "red"}
    assert found.system_properties.message_type == kind
    has_due = found.system_properties.HasField("delivery_timestamp")
    assert (found.system_properties.delivery_timestamp.ToMilliseconds() if has_due else None) == due


NOW_SECONDS = 1_700_000_000
DAY_SECONDS = 86_400
# What RocketMQ's proxy refuses (GrpcValidator, SendMessageActivity): beside it, what it still takes.
RULES = {
    "an empty body": (message(b""), message(b"x"), v2.MESSAGE_BODY_EMPTY),
    "a large body": (message(bytes((4 << 20) + 1)), message(bytes(4 << 20)), v2.MESSAGE_BODY_TOO_LARGE),
    "many properties": (
        owned(**{f"p{n}": "" for n in range(129)}),
        owned(**{f"p{n}": "" for n in range(128)}),
        v2.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    "large properties": (owned(p="x" * 16_384), owned(p="x" * 16_383), v2.MESSAGE_PROPERTIES_TOO_LARGE),
    "large keys": (message(keys=["é" * 8_192, "x"]), message(keys=["é" * 8_192]), v2.MESSAGE_PROPERTIES_TOO_LARGE),
    "a large tag": (message(tag="x" * 16_385), message(tag="x" * 16_384), v2.MESSAGE_PROPERTIES_TOO_LARGE),
    "a control character in a name": (owned(**{"a\n": "b"}), owned(a="b"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    "a control character in a value": (owned(a="\x9f"), owned(a="\xa0"), v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
    "no id": (message(message_id=""), message(message_id="1"), v2.ILLEGAL_MESSAGE_ID),
    "a blank id": (message(message_id=" "), message(message_id=" 1"), v2.ILLEGAL_MESSAGE_ID),
    "a blank tag": (message(tag="  "), message(tag=""), v2.ILLEGAL_MESSAGE_TAG),
    "two tags in one": (message(tag="a|b"), message(tag="a,b"), v2.ILLEGAL_MESSAGE_TAG),
    "a control character in a tag": (message(tag="a\x7f"), message(tag="ä"), v2.ILLEGAL_MESSAGE_TAG),
    "a blank key": (message(keys=["a", "\t "]), message(keys=["a", ""]), v2.ILLEGAL_MESSAGE_KEY),
    "a control character in a key": (message(keys=["a\x00"]), message(keys=["a"]), v2.ILLEGAL_MESSAGE_KEY),
    "a long message group": (
        message(message_group="é" * 32),
        message(message_group="x" * 63),
        v2.ILLEGAL_MESSAGE_GROUP,
    ),
    "no lite topic": (message(lite_topic=""), message(), v2.ILLEGAL_LITE_TOPIC),
    "a long lite topic": (message(lite_topic="x" * 65), message(lite_topic="x" * 64), v2.ILLEGAL_LITE_TOPIC),
    "a lite topic with another character": (
        message(lite_topic="é"),
        message(lite_topic="aZ_-9"),
        v2.ILLEGAL_LITE_TOPIC,
    ),
    "a negative priority": (message(priority=-1), message(priority=0), v2.BAD_REQUEST),
    "a blank message group": (message(message_group=" "), message(message_group=""), v2.ILLEGAL_MESSAGE_GROUP),
    "a control character in a message group": (
        message(message_group="a\x01"),
        message(message_group="a"),
        v2.ILLEGAL_MESSAGE_GROUP,
    ),
    "a delivery in two days": (
        message(delivery_timestamp=Timestamp(seconds=NOW_SECONDS + DAY_SECONDS + 1)),
        message(delivery_timestamp=Timestamp(seconds=NOW_SECONDS + DAY_SECONDS)),
        v2.ILLEGAL_DELIVERY_TIME,
    ),
    "a time for a transaction": (
        message(message_type=v2.TRANSACTION, delivery_timestamp=Timestamp(seconds=NOW_SECONDS + 5)),
        message(message_type=v2.TRANSACTION),
        v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    "a late question about a transaction": (
        message(message_type=v2.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=3_601)),
        message(message_type=v2.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=3_600)),
        v2.BAD_REQUEST,
    ),
}


def test_a_gateway_may_allow_another_delay_than_a_day() -> None:
    in_two_days = message(delivery_timestamp=Timestamp(seconds=NOW_SECONDS + 2 * DAY_SECONDS))
    check_sent(in_two_days, lambda: NOW_SECONDS, delivery_ahead_seconds_max=2 * DAY_SECONDS)
    with pytest.raises(RefusedError, match="172799 s ahead"):
        check_sent(in_two_days, lambda: NOW_SECONDS, delivery_ahead_seconds_max=2 * DAY_SECONDS - 1)


@pytest.mark.parametrize("seconds", [-1, 253_402_300_800])
def test_a_delivery_time_outside_of_1970_to_9999_is_refused(seconds: int) -> None:
    with pytest.raises(RefusedError) as refused:
        check_sent(message(delivery_timestamp=Timestamp(seconds=seconds)), lambda: NOW_SECONDS)
    assert refused.value.code == v2.ILLEGAL_DELIVERY_TIME


@pytest.mark.parametrize(("refused", "taken", "code"), RULES.values(), ids=RULES.keys())
def test_each_limit_of_rocketmqs_proxy_has_its_code(refused: v2.Message, taken: v2.Message, code: int) -> None:
    check_sent(taken, lambda: NOW_SECONDS)
    with pytest.raises(RefusedError) as error:
        check_sent(refused, lambda: NOW_SECONDS)
    assert error.value.code == code


@pytest.mark.parametrize(
    "name",
    [
        "KEYS",
        "TAGS",
        "UNIQ_KEY",
        "__SHARDINGKEY",
        "TRACE_CONTEXT",
        "TTL",
        "__REPUT_BODY_ENCODING__",
        "_SYS_MSG_PRIORITY_",
        "__LITE_TOPIC",
        "INNER_MULTI_DISPATCH",
    ],
)
def test_the_systems_properties_cannot_be_set_by_the_side_door(name: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_sent(owned(**{name: "value"}))
    assert refused.value.code == v2.ILLEGAL_MESSAGE_PROPERTY_KEY


SENT_BY_TYPE = {
    v2.NORMAL: message(message_type=v2.NORMAL),
    v2.FIFO: message(message_type=v2.FIFO, message_group="g"),
    v2.DELAY: message(message_type=v2.NORMAL, delivery_timestamp=Timestamp(seconds=1)),
    v2.TRANSACTION: message(message_type=v2.TRANSACTION),
    v2.PRIORITY: message(message_type=v2.PRIORITY, priority=0),
    v2.LITE: message(message_type=v2.LITE, lite_topic="chat-1"),
}
# Each wins over the priority, as for `TopicMessageType.parseFromMessageProperty`.
WITH_A_PRIORITY = {
    v2.FIFO: message(message_group="g", priority=3),
    v2.DELAY: message(delivery_timestamp=Timestamp(seconds=1), priority=3),
    v2.TRANSACTION: message(message_type=v2.TRANSACTION, priority=3),
}


@pytest.mark.parametrize(("kind", "sent"), WITH_A_PRIORITY.items())
def test_a_message_of_another_type_that_has_a_priority_too_stays_of_that_type(kind: int, sent: v2.Message) -> None:
    assert type_of(sent) == kind
    check_type(sent, message_pb2.MessageType.Value(f"MESSAGE_TYPE_{v2.MessageType.Name(kind)}"))
    with pytest.raises(RefusedError) as refused:
        check_type(sent, message_pb2.MESSAGE_TYPE_PRIORITY)
    assert refused.value.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@pytest.mark.parametrize("priority", [0, 3, (1 << 31) - 1])
def test_a_priority_is_stored_as_rocketmqs_property_and_delivered(priority: int) -> None:
    new = to_new_message(message(message_type=v2.PRIORITY, priority=priority))
    assert dict(new.properties) == {"_SYS_MSG_PRIORITY_": str(priority)}
    found = to_message(message_pb2.StoredMessage(topic="T", body=b"x", properties=new.properties))
    assert (found.system_properties.message_type, found.system_properties.priority) == (v2.PRIORITY, priority)
    assert found.system_properties.HasField("priority")
    assert not found.user_properties
    assert not to_message(message_pb2.StoredMessage(topic="T", body=b"x")).system_properties.HasField("priority")


@pytest.mark.parametrize("name", ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE"])
def test_a_topic_with_a_type_takes_messages_of_that_type_only(name: str) -> None:
    number = message_pb2.MessageType.Value(f"MESSAGE_TYPE_{name}")
    assert types_of(number) == (v2.MessageType.Value(name),)
    for kind, sent in SENT_BY_TYPE.items():
        assert type_of(sent) == kind
        if kind in types_of(number):
            check_type(sent, number)
            continue
        with pytest.raises(RefusedError) as refused:
            check_type(sent, number)
        assert refused.value.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@pytest.mark.parametrize("number", [message_pb2.MESSAGE_TYPE_UNSPECIFIED, message_pb2.MESSAGE_TYPE_MIXED, 99])
def test_a_topic_without_one_type_takes_all_types(number: int) -> None:
    """A route names no PRIORITY, as RocketMQ's of a MIXED topic, which takes it all the same."""
    assert types_of(number) == (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)
    for kind, sent in SENT_BY_TYPE.items():
        is_taken = kind != v2.PRIORITY or number != message_pb2.MESSAGE_TYPE_UNSPECIFIED
        if kind != v2.LITE and is_taken:
            check_type(sent, number)


@pytest.mark.parametrize("number", [message_pb2.MESSAGE_TYPE_UNSPECIFIED, message_pb2.MESSAGE_TYPE_MIXED, 99])
def test_a_lite_topic_is_refused_where_no_subscription_would_reach_it(number: int) -> None:
    with pytest.raises(RefusedError, match="not of the type LITE") as refused:
        check_type(SENT_BY_TYPE[v2.LITE], number)
    assert refused.value.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


def test_a_priority_is_refused_where_messages_are_not_delivered_by_it() -> None:
    with pytest.raises(RefusedError, match="make it with the type PRIORITY") as refused:
        check_type(SENT_BY_TYPE[v2.PRIORITY], message_pb2.MESSAGE_TYPE_UNSPECIFIED)
    assert refused.value.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


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
        body=b"body",
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
    found = to_message(stored)
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
    assert to_message(message_pb2.StoredMessage(offset_msg_id="I")).system_properties.message_id == "I"


def test_a_message_of_the_largest_reconsume_times_failed_each_receive_that_had_it():
    """Found by fuzzing: a producer may say any number, and one more is none of 32 bits."""
    stored = message_pb2.StoredMessage(topic="t", body=b"x", reconsume_times=(1 << 31) - 1)
    for found in (to_message(stored), to_pulled(stored)):
        assert found.system_properties.delivery_attempt == (1 << 31) - 1
