"""The records of transactions: half messages, what becomes of them, and op records; pure.

    half message    RMQ_SYS_TRANS_HALF_TOPIC, queue 0: the message with REAL_TOPIC and REAL_QID (`parseHalfMessageInner`)
    committed       its own topic and queue, sys_flag 8, the offset of the half message as prepared_transaction_offset; with
                    the other properties of the half message, as the real 5.5.0 stores it (`EndTransactionProcessor`; that
                    of 5.3.3 keeps REAL_TOPIC and REAL_QID)
    renewed         the half message again, with TRANSACTION_CHECK_TIMES (`renewHalfMessageInner`)
    given up        the half message in TRANS_CHECK_MAX_TIME_TOPIC, queue 0 (`DefaultTransactionalMessageCheckListener`)
    op record       RMQ_SYS_TRANS_OP_HALF_TOPIC, queue 0, tag "d", body "QUEUE_OFFSET,QUEUE_OFFSET,": these half messages are
                    ended (`TransactionalMessageServiceImpl.getOpMessage`)

Each is written with the op record of its half message in one request (ADR 0057).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.due_record import CLOSED_TOPICS, STATE_PREFIX, SYS_FLAG_BITS
from services.convert import timestamp_to_millis
from services.following.moved_record import copy_of, shorten
from store.errors import InvalidMessageError
from store.format.delivery.waiting_handles import TRANSACTION, WaitingHandle, encode_handle
from store.format.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    CRC32,
    KEYS,
    MOVED_FROM,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
)
from store.format.request_mark import REQUEST_MARK
from store.format.sys_flag import TRANSACTION_MASK, TransactionType
from store.format.topic import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, validate_topic

# RocketMQ's REMOVE_TAG.
ENDED_TAG = "d"
# RocketMQ's transactionOpMsgMaxSize.
OP_BODY_BYTES_MAX = 4_096
# Longest wait for the next check after checks that no producer got. Each of them is two copies of the half message; one that
# waits is stored again each hour in any case (checker.py).
UNHEARD_MILLIS_MAX = 3_600_000
# Left out of a record that has no room for the request mark; nothing depends on them.
_DISPENSABLE = (WAIT, "TRACE_ON", "MSG_REGION", "CLUSTER", TRANSACTION_ID)
# Without these a half message, or the message itself, could not be found or would be another one.
_KEPT = (
    TAGS, KEYS, UNIQ_KEY, SHARDING_KEY, REAL_TOPIC, REAL_QUEUE_ID, TRAN_MSG, PRODUCER_GROUP, TRANSACTION_CHECK_TIMES,
    CHECK_IMMUNITY_TIME_IN_SECONDS, MOVED_FROM,
)  # fmt: skip
# What only the store needs.
_HIDDEN = (
    REAL_TOPIC,
    REAL_QUEUE_ID,
    TRANSACTION_CHECK_TIMES,
    TRAN_PREPARED_QUEUE_OFFSET,
    MOVED_FROM,
    CRC32,
    REQUEST_MARK,
)
_QUEUE_ID_MAX = 65_535
# A producer may ask for 18 digits of seconds; times stay below 64 bits.
_IMMUNITY_SECONDS_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """The fields of a half message that transactions need.

    Attributes:
        topic: of the message.
        unique_key: of the message; may be empty.
        made_millis: when it was made, but not after it was stored (ms since 1970).
        store_millis: when this record was stored (ms since 1970).
        check_count: how often producers were asked.
        own_immunity: its own immunity time as the producer spelled it; empty: none.
        producer_group: whose producers know its verdict; empty, or the topic: those of the topic, too.
        unheard_millis: when producers should have been asked last, and none was (ms since 1970); 0: no record says it.
        unheard_count: how many checks of this life no producer got; no record says it.
    """

    topic: str
    unique_key: str
    made_millis: int
    store_millis: int
    check_count: int
    own_immunity: str
    producer_group: str = ""
    unheard_millis: int = 0
    unheard_count: int = 0

    @property
    def asked(self) -> tuple[str, ...]:
        """Which producers can be asked: those of any of these topics, and groups as `asked_group` has them.

        RocketMQ's proxy writes the topic as the producer group, without its namespace: any producer of the topic may be asked.
        A group of producers over remoting may have that name, too. Of another group no other producer knows the verdict.
        """
        group = self.producer_group
        if not group:
            return (self.topic,)
        of_group = asked_group(group)
        return (self.topic, of_group) if group in (self.topic, self.topic.partition("%")[2]) else (of_group,)


def asked_group(producer_group: str) -> str:
    """A producer group among topics: no topic begins so."""
    return f"\0{producer_group}"


def asked_hash(asked: Sequence[str]) -> int:
    """63 bits of a HalfMessage's `asked`."""
    return key_hash("\0".join(asked), "")


@dataclass(frozen=True, slots=True)
class CheckRules:
    """When producers are asked.

    Attributes:
        timeout_millis: RocketMQ's transactionTimeOut: for so long no producer is asked.
        interval_millis: RocketMQ's transactionCheckInterval: between two checks.
        count_max: RocketMQ's transactionCheckMax.
    """

    timeout_millis: int = 6_000
    interval_millis: int = 30_000
    count_max: int = 15

    def next_check_millis(self, half: HalfMessage) -> int:
        """When producers are to be asked next (ms since 1970); after the last check: when it is given up.

        After a check that none got: an interval, twice as long after each further one, up to UNHEARD_MILLIS_MAX.
        """
        immune_until = half.made_millis + self._immunity_millis(half)
        if half.unheard_millis:
            longest = max(self.interval_millis, UNHEARD_MILLIS_MAX)
            again = min(self.interval_millis << max(half.unheard_count - 1, 0), longest)
            return max(immune_until, half.unheard_millis + again)
        return max(immune_until, half.store_millis + self.interval_millis) if half.check_count else immune_until

    def is_too_late(self, half: HalfMessage, now_millis: int) -> bool:
        """Whether a verdict that answers no check comes after the immunity time that the message sets itself.

        Source: `EndTransactionProcessor.rejectCommitOrRollback` and `TransactionalMessageUtil.getImmunityTime`.
        """
        if not half.own_immunity:
            return False
        immunity = max(_seconds(half.own_immunity, 0) * 1_000, self.timeout_millis)
        return now_millis - half.made_millis > immunity

    def _immunity_millis(self, half: HalfMessage) -> int:
        """Source: `TransactionalMessageServiceImpl.getImmunityTime`; unlike in a verdict it may be less than the timeout."""
        seconds = _seconds(half.own_immunity, -1)
        if seconds == -1:
            return self.timeout_millis
        return max(-_IMMUNITY_SECONDS_MAX, min(seconds, _IMMUNITY_SECONDS_MAX)) * 1_000


def _seconds(text: str, default: int) -> int:
    """A whole number as Java's Long.parseLong reads it; `default` when it is none."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > 18:
        return default
    return int(text)


def half_of(record: StoredMessage) -> HalfMessage | None:
    """The half message in a record of the half topic; None when it does not say where its message belongs."""
    properties = record.properties
    topic = properties.get(REAL_TOPIC, "")
    if record.topic != HALF_TOPIC or not _is_open(topic) or real_queue_id(properties) is None:
        return None
    stored = timestamp_to_millis(record.store_time, "store_time")
    made = timestamp_to_millis(record.born_time, "born_time") if record.HasField("born_time") else stored
    return HalfMessage(
        topic,
        properties.get(UNIQ_KEY, ""),
        # A producer whose clock is ahead: RocketMQ asks it at once.
        min(made, stored),
        stored,
        max(_seconds(properties.get(TRANSACTION_CHECK_TIMES, "0"), 0), 0),
        properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS, ""),
        properties.get(PRODUCER_GROUP, ""),
    )


def _is_open(topic: str) -> bool:
    """Whether a message can be committed to a topic: in some it would count as something else."""
    try:
        validate_topic(topic)
    except InvalidMessageError:
        return False
    return topic not in CLOSED_TOPICS and not topic.startswith(STATE_PREFIX)


def real_queue_id(properties: Mapping[str, str]) -> int | None:
    """The queue of the message; None when there is no such number."""
    text = properties.get(REAL_QUEUE_ID, "")
    return int(text) if text.isdecimal() and len(text) < 6 and int(text) <= _QUEUE_ID_MAX else None


def key_hash(topic: str, unique_key: str) -> int:
    """63 bits that a topic and a unique key have in common with few others."""
    digest = blake2b(f"{topic}\0{unique_key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def committed(record: StoredMessage) -> InternalRecord:
    """The message of a half message, for its topic."""
    queue_id = real_queue_id(record.properties)
    assert queue_id is not None
    copy = _copy(record, record.properties[REAL_TOPIC], queue_id)
    copy.sys_flag = copy.sys_flag & ~TRANSACTION_MASK | TransactionType.COMMIT
    copy.prepared_transaction_offset = record.commit_log_offset
    for name in (MOVED_FROM, REAL_TOPIC, REAL_QUEUE_ID):  # that offset names the source
        del copy.properties[name]
    shorten(copy, _DISPENSABLE, _KEPT)
    return copy


def renewed(record: StoredMessage, check_count: int) -> InternalRecord:
    """The half message again, after so many checks.

    RocketMQ loses `flag` and `reconsume_times` here; we keep them.
    """
    copy = _copy(record, HALF_TOPIC)
    copy.properties.pop(TRANSACTION_CHECK_TIMES, None)
    if check_count:
        copy.properties[TRANSACTION_CHECK_TIMES] = str(check_count)
    shorten(copy, (MOVED_FROM, *_DISPENSABLE), _KEPT)
    return copy


def given_up(record: StoredMessage) -> InternalRecord:
    """The half message as operators find it when no producer gave a verdict."""
    copy = _copy(record, CHECK_MAX_TIME_TOPIC)
    shorten(copy, _DISPENSABLE, _KEPT)
    return copy


def _copy(record: StoredMessage, topic: str, queue_id: int = 0) -> InternalRecord:
    copy = copy_of(record, topic, queue_id)
    copy.sys_flag &= SYS_FLAG_BITS
    return copy


def for_check(record: StoredMessage) -> StoredMessage:
    """The message of a half message as its consumers would get it, for a producer that is asked."""
    message = StoredMessage()
    message.CopyFrom(record)
    message.topic = record.properties[REAL_TOPIC]
    message.queue_id = real_queue_id(record.properties) or 0
    message.queue_offset = 0
    for name in _HIDDEN:
        message.properties.pop(name, None)
    return message


def op_records(queue_offsets: Sequence[int]) -> list[InternalRecord]:
    """The op records that end these half messages: one for each 4,096 bytes, as RocketMQ's."""
    records: list[InternalRecord] = []
    parts: list[bytes] = []
    for queue_offset in queue_offsets:
        if sum(map(len, parts)) >= OP_BODY_BYTES_MAX:
            records.append(_op_record(b"".join(parts)))
            parts.clear()
        parts.append(b"%d," % queue_offset)
    return [*records, _op_record(b"".join(parts))] if parts else records


def ended_by(record: StoredMessage) -> list[int]:
    """The queue offsets of half messages that an op record ends."""
    if record.tags != ENDED_TAG:
        return []
    parts = record.body.split(b",")
    return [int(part) for part in parts if part.isdigit() and len(part) < 19]


def _op_record(body: bytes) -> InternalRecord:
    return InternalRecord(topic=OP_HALF_TOPIC, body=body, properties={WAIT: "true", TAGS: ENDED_TAG})


def transaction_id_of(half: HalfMessage, broker_name: str, commit_log_offset: int) -> str:
    """The id of the transaction of a half message at an offset of the log (bytes)."""
    return encode_handle(TRANSACTION, WaitingHandle(half.topic, broker_name, commit_log_offset, half.unique_key))
