"""RocketMQ's records of what is in flight by POP: the records of its revive topic.

    rmq_sys_REVIVE_LOG_<cluster>, tag `ck`     messages of one queue were handed out
        {"so": start, "d": [0, 1, 3], "n": 3, "bm": 0, "pt": pop time, "it": invisible time, "q": queue, "t": topic,
         "c": group, "bn": broker name, "rp": times it was put again, "sp": true when the delivery is no attempt (since 5.5)}
    tag `ack`     {"ao": position, "so": ..., "pt": ..., "q": ..., "t": ..., "c": ..., "bn": ...}
    tag `bAck`    {"aol": [positions], ...}

`d` are positions minus `so`; without it they are `so` to `so + n - 1`. A bit of `bm` says that the message at that index is
acknowledged. Times are ms since 1970 and ms. A checkpoint and its acknowledgements have `t`, `c`, `q`, `so`, `pt` and `bn` in
common. Until 1 s before the invisible time ends the record waits in the timer topic, with the revive topic in `REAL_TOPIC`;
an acknowledgement until it ends. Sources: `PopCheckPoint`, `AckMsg`, `BatchAckMsg`, `PopReviveService` and
`PopMessageProcessor` of RocketMQ 5.3.3.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from store.errors import StoreCorruptedError
from store.format.java_text import java_string_hash

REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
TAGS_CODES = frozenset(map(java_string_hash, (CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG)))
# As many bits as `bm` has.
CHECK_POINT_COUNT_MAX = 32
# `n` is a byte of Java; without `d` it says how many positions there are.
COUNT_MAX = 127
# A checkpoint is delivered so much before its invisible time ends (PopAckConstants.ackTimeInterval).
DELIVERED_BEFORE_MILLIS = 1_000

PopKey = tuple[str, str, int, int, int]
Fields = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckPoint:
    """Messages of one queue that were handed out together.

    Attributes:
        consumer_group: which group has them.
        topic: theirs, which may be a retry topic.
        queue_id: their queue.
        start_offset: where the pop began.
        pop_millis: when (ms since 1970).
        invisible_millis: how long they are hidden.
        queue_offsets: the positions that are not acknowledged.
        put_count: how often the broker wrote it again because it could not read the messages.
        is_suspended: the delivery is no attempt: a broker since 5.5 keeps the `reconsume_times` of its messages.
    """

    consumer_group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_millis: int
    invisible_millis: int
    queue_offsets: Sequence[int]
    put_count: int = 0
    is_suspended: bool = False

    @property
    def key(self) -> PopKey:
        """The key that its acknowledgements have, too."""
        return self.consumer_group, self.topic, self.queue_id, self.start_offset, self.pop_millis


@dataclass(frozen=True, slots=True)
class PopAck:
    """Messages of a checkpoint that are acknowledged."""

    key: PopKey
    queue_offsets: Sequence[int]


def decode_check_point(body: bytes) -> CheckPoint | None:
    """The checkpoint in the body of a record; None for one that names no topic or group, which RocketMQ skips.

    Raises:
        StoreCorruptedError: it is none; as `decode_ack`.
    """
    return _decode(body, _check_point)


def decode_ack(body: bytes) -> PopAck | None:
    """The acknowledgement in the body of a record, of one message or a batch."""
    return _decode(body, _ack)


def encode_check_point(point: CheckPoint, broker_name: str) -> bytes:
    """The body of a record that makes a broker of this name deliver messages again; at most CHECK_POINT_COUNT_MAX."""
    return json.dumps(
        {
            "bm": 0,
            "bn": broker_name,
            "c": point.consumer_group,
            "d": [offset - point.start_offset for offset in point.queue_offsets],
            "it": point.invisible_millis,
            "n": len(point.queue_offsets),
            "pt": point.pop_millis,
            "q": point.queue_id,
            "ro": 0,
            "so": point.start_offset,
            "t": point.topic,
        }
        | ({"sp": True} if point.is_suspended else {}),
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()


def _check_point(fields: Fields) -> CheckPoint | None:
    if not fields.get("t") or not fields.get("c"):
        return None
    start, bits = _number(fields, "so"), _number(fields, "bm")
    count, diffs = _number(fields, "n"), fields.get("d")
    if count > COUNT_MAX or not isinstance(diffs, list | None):
        raise ValueError(f"n is {count}, or d no list")
    diffs = diffs or list(range(count))
    puts = str(fields.get("rp") or "0")
    return CheckPoint(
        str(fields["c"]),
        str(fields["t"]),
        _number(fields, "q"),
        start,
        _number(fields, "pt"),
        _number(fields, "it"),
        [_whole(start + _whole(diff)) for at, diff in enumerate(diffs) if not bits >> at & 1],
        int(puts) if puts.isdecimal() else 0,
        fields.get("sp") is True,
    )


def _ack(fields: Fields) -> PopAck | None:
    topic, group = _either(fields, "t", "topic"), _either(fields, "c", "consumerGroup")
    if not topic or not group:
        return None
    offsets = _either(fields, "aol", "ackOffsetList")
    key = (
        str(group),
        str(topic),
        _number(fields, "q", "queueId"),
        _number(fields, "so", "startOffset"),
        _number(fields, "pt", "popTime"),
    )
    return PopAck(key, [_whole(offset) for offset in offsets] if offsets else [_number(fields, "ao", "ackOffset")])


def _either(fields: Fields, *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _number(fields: Fields, *names: str) -> int:
    return _whole(_either(fields, *names) or 0)


def _whole(value: Any) -> int:
    """A number of 64 bits; 1e999 of JSON is an infinite one."""
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} is no number of 64 bits")
    return number


def _decode(body: bytes, decode: Callable[[Fields], T]) -> T:
    try:
        fields = json.loads(body.decode(errors="replace"))
        if not isinstance(fields, dict):
            raise ValueError("it is no JSON object")
        return decode(fields)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StoreCorruptedError(
            f"a record of a revive topic cannot be read: {error}", file="commitlog", offset=-1
        ) from error
