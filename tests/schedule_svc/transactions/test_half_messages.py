"""Records of transactions, compared with those that Apache RocketMQ 5.3.3 and 5.5.0 stored (tests/fixtures)."""

import functools
import pathlib
import tempfile
from collections.abc import Callable

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.transactions.half_messages import (
    CheckRules,
    HalfMessage,
    committed,
    ended_by,
    for_check,
    given_up,
    half_of,
    key_hash,
    op_records,
    renewed,
)
from services.convert import millis_to_timestamp
from store.format.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    KEYS,
    MOVED_FROM,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRAN_MSG,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
)
from store.format.record import Record, decode_record
from store.format.sys_flag import TransactionType, transaction_type
from store.format.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from tests.support.fixture_stores import unpack_store, walk_frames


def stored(record: Record) -> StoredMessage:
    """A record as the commitlog service answers it."""
    return StoredMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.commit_log_offset,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_time=millis_to_timestamp(record.born_time_millis),
        born_host=str(record.born_host),
        store_time=millis_to_timestamp(record.store_time_millis),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body=record.body,
        properties=record.properties,
        tags=record.tags,
        unique_key=record.unique_key,
    )


@functools.cache
def broker_records(fixture: str = "broker") -> dict[str, list[StoredMessage]]:
    """The records of transactions that the real broker wrote: half, op, committed."""
    found: dict[str, list[StoredMessage]] = {HALF_TOPIC: [], OP_HALF_TOPIC: [], "committed": []}
    with tempfile.TemporaryDirectory() as directory:
        for _, frame in walk_frames(unpack_store(fixture, pathlib.Path(directory))):
            record = decode_record(frame)
            if record.topic in found:
                found[record.topic].append(stored(record))
            elif transaction_type(record.sys_flag) is TransactionType.COMMIT:
                found["committed"].append(stored(record))
    return found


@pytest.mark.parametrize("fixture", ["broker", "rocketmq-5.5"])
def test_a_committed_message_is_what_the_real_broker_stores(fixture: str) -> None:
    """Topic, queue, body, flags, born data and properties; 5.3.3 leaves names of the half message in them."""
    found = broker_records(fixture)
    halves = {half.commit_log_offset: half for half in found[HALF_TOPIC]}
    assert len(found["committed"]) >= 2
    for theirs in found["committed"]:
        ours = committed(halves[theirs.prepared_transaction_offset])
        if fixture == "broker":
            del theirs.properties[REAL_TOPIC], theirs.properties[REAL_QUEUE_ID]
        expected = InternalRecord(
            topic=theirs.topic,
            queue_id=theirs.queue_id,
            body=theirs.body,
            flag=theirs.flag,
            sys_flag=theirs.sys_flag,
            properties=theirs.properties,
            born_time=theirs.born_time,
            born_host=theirs.born_host,
            reconsume_times=theirs.reconsume_times,
            prepared_transaction_offset=theirs.prepared_transaction_offset,
        )
        assert ours == expected


def test_a_renewed_half_message_is_what_the_real_broker_stores() -> None:
    """But for the name of its source, which is ours."""
    halves = broker_records()[HALF_TOPIC]
    originals = {half.unique_key: half for half in halves if TRANSACTION_CHECK_TIMES not in half.properties}
    checked = [half for half in halves if half.properties.get(TRANSACTION_CHECK_TIMES) == "1"]
    assert len(checked) >= 4
    for theirs in checked:
        original = originals[theirs.unique_key]
        ours = renewed(original, 1)
        assert ours.properties.pop(MOVED_FROM) == f"0 {original.queue_offset} {HALF_TOPIC}"
        assert dict(ours.properties) == dict(theirs.properties)
        assert (ours.topic, ours.queue_id, ours.body, ours.sys_flag, ours.born_time, ours.born_host) == (
            theirs.topic,
            theirs.queue_id,
            theirs.body,
            theirs.sys_flag,
            theirs.born_time,
            theirs.born_host,
        )


def test_an_op_record_is_what_the_real_broker_stores() -> None:
    for theirs in broker_records()[OP_HALF_TOPIC]:
        (ours,) = op_records(ended_by(theirs))
        assert (ours.topic, ours.queue_id, ours.body, dict(ours.properties)) == (
            theirs.topic,
            theirs.queue_id,
            theirs.body,
            dict(theirs.properties),
        )


def test_half_messages_of_the_real_broker_are_understood() -> None:
    for half in broker_records()[HALF_TOPIC]:
        understood = half_of(half)
        assert understood is not None
        assert understood.topic == half.properties[REAL_TOPIC]
        assert understood.unique_key == half.unique_key
        assert understood.check_count == int(half.properties.get(TRANSACTION_CHECK_TIMES, "0"))


def test_op_records_are_cut_where_rocketmq_cuts_them() -> None:
    """`getOpMessage`: nothing is added to 4,096 bytes and more."""
    offsets = list(range(10**6, 10**6 + 2_000))
    records = op_records(offsets)
    assert [offset for record in records for offset in ended_by(as_stored(record))] == offsets
    assert {len(record.body) for record in records[:-1]} == {4_096}
    assert op_records([]) == []


def as_stored(record: InternalRecord) -> StoredMessage:
    """An op record as it is read."""
    return StoredMessage(topic=record.topic, body=record.body, tags=record.properties.get(TAGS, ""))


@pytest.mark.parametrize(
    ("tags", "body", "expected"),
    [
        ("d", b"1,2,", [1, 2]),
        ("d", b"3", [3]),
        ("d", b"x,4,,-5,", [4]),
        ("", b"1,", []),
        ("x", b"1,", []),
        ("d", b"", []),
    ],
)
def test_only_numbers_of_records_with_the_right_tag_count(tags: str, body: bytes, expected: list[int]) -> None:
    assert ended_by(StoredMessage(tags=tags, body=body)) == expected


def half_record(**properties: str) -> StoredMessage:
    """A half message without checks."""
    given = {REAL_TOPIC: "T", REAL_QUEUE_ID: "2", UNIQ_KEY: "k", TRAN_MSG: "true", **properties}
    return StoredMessage(
        topic=HALF_TOPIC,
        queue_offset=9,
        body=b"b",
        flag=5,
        properties={name: value for name, value in given.items() if value},
        born_time=millis_to_timestamp(1_000_000),
        store_time=millis_to_timestamp(1_000_100),
        reconsume_times=3,
    )


@pytest.mark.parametrize(
    "missing",
    [
        {REAL_TOPIC: ""},
        {REAL_TOPIC: "no topic!"},
        {REAL_TOPIC: OP_HALF_TOPIC},
        {REAL_TOPIC: "rmq_sys_REPUT_SCHEDULE_STATE"},
        {REAL_QUEUE_ID: ""},
        {REAL_QUEUE_ID: "x"},
        {REAL_QUEUE_ID: "65536"},
    ],
)
def test_a_half_message_without_its_queue_is_none(missing: dict[str, str]) -> None:
    assert half_of(half_record(**missing)) is None


def test_a_producer_ahead_of_the_store_is_not_asked_early() -> None:
    record = half_record()
    record.born_time.CopyFrom(millis_to_timestamp(9_000_000))
    half = half_of(record)
    assert half is not None
    assert CheckRules().next_check_millis(half) == 1_000_100 + 6_000


# `TransactionalMessageServiceImpl.getImmunityTime`: what is no number, and -1, is transactionTimeOut.
@pytest.mark.parametrize(("text", "millis"), [("", 6_000), ("2", 2_000), ("60", 60_000), ("x", 6_000), ("-1", 6_000)])
def test_the_first_check_comes_after_the_immunity_time(text: str, millis: int) -> None:
    half = HalfMessage("T", "k", 1_000, 1_010, 0, text)
    assert CheckRules().next_check_millis(half) == 1_000 + millis


def test_the_next_check_comes_an_interval_after_the_last() -> None:
    assert CheckRules().next_check_millis(HalfMessage("T", "k", 1_000, 50_000, 1, "")) == 80_000
    assert CheckRules().next_check_millis(HalfMessage("T", "k", 1_000, 50_000, 1, "600")) == 601_000


# `TransactionalMessageUtil.getImmunityTime`: never less than transactionTimeOut.
@pytest.mark.parametrize(("text", "millis"), [("2", 6_000), ("60", 60_000), ("x", 6_000), ("-1", 6_000)])
def test_a_verdict_is_too_late_after_the_own_immunity_time(text: str, millis: int) -> None:
    half = HalfMessage("T", "k", 1_000, 1_010, 0, text)
    assert not CheckRules().is_too_late(half, 1_000 + millis)
    assert CheckRules().is_too_late(half, 1_001 + millis)


def test_a_message_without_own_immunity_time_is_never_too_late() -> None:
    assert not CheckRules().is_too_late(HalfMessage("T", "k", 1_000, 1_010, 0, ""), 1 << 50)


def test_a_half_message_that_is_given_up_keeps_everything() -> None:
    """`DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner`."""
    record = half_record(TRANSACTION_CHECK_TIMES="15")
    copy = given_up(record)
    assert (copy.topic, copy.queue_id, copy.body, copy.flag, copy.reconsume_times) == (
        CHECK_MAX_TIME_TOPIC,
        0,
        b"b",
        5,
        3,
    )
    assert copy.properties.pop(MOVED_FROM) == f"0 9 {HALF_TOPIC}"
    assert dict(copy.properties) == dict(record.properties)


def test_a_producer_is_asked_with_the_message_of_its_consumers() -> None:
    record = half_record(**{CHECK_IMMUNITY_TIME_IN_SECONDS: "3", TRANSACTION_CHECK_TIMES: "2", KEYS: "a b", "own": "x"})
    message = for_check(record)
    assert (message.topic, message.queue_id, message.body) == ("T", 2, b"b")
    assert dict(message.properties) == {
        UNIQ_KEY: "k",
        TRAN_MSG: "true",
        CHECK_IMMUNITY_TIME_IN_SECONDS: "3",
        KEYS: "a b",
        "own": "x",
    }
    assert record.topic == HALF_TOPIC, "the record itself is as it was"


@pytest.mark.parametrize("make", [committed, given_up, lambda record: renewed(record, 15)])
def test_a_half_message_without_room_for_a_mark_can_still_be_ended(
    make: Callable[[StoredMessage], InternalRecord],
) -> None:
    """Its properties take 32,767 bytes; the request mark and the CRC of a request need 60 of them."""
    record = half_record(WAIT="true", TRACE_ON="true", MSG_REGION="DefaultRegion", CLUSTER="c")
    used = sum(len(name) + len(value) + 2 for name, value in record.properties.items())
    record.properties["own"] = "x" * (32_767 - used - len("own") - 2)
    copy = make(record)
    size = sum(len(name) + len(value) + 2 for name, value in copy.properties.items())
    assert size <= 32_767 - 60
    assert copy.properties[UNIQ_KEY] == "k"
    if copy.topic != "T":
        assert copy.properties[REAL_TOPIC] == "T"


def test_hashes_tell_topic_and_key_apart() -> None:
    hashes = {key_hash(topic, key) for topic, key in (("a", "bc"), ("ab", "c"), ("a", ""), ("", "a"))}
    assert len(hashes) == 4
    assert all(0 <= one < 1 << 63 for one in hashes)
