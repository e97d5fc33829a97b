"""Where a message waits: delayed, timed and half messages become records of system topics before they are written.

| the message asks for | topic of the record | queue | the store adds |
| --- | --- | --- | --- |
| a delay level: DELAY above 0 | `SCHEDULE_TOPIC_XXXX` | level - 1 | REAL_TOPIC, REAL_QID; TIMER_... go |
| a time: TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS | `rmq_sys_wheel_timer` | 0 | TIMER_OUT_MS, REAL_TOPIC, REAL_QID |
| a verdict: TRAN_MSG=true | `RMQ_SYS_TRANS_HALF_TOPIC` | 0 | `__transactionId__`, REAL_TOPIC, REAL_QID |

A level wins over a time, the first of the three times counts, a level above the largest is the largest, and a time that has
passed, or a delay below zero, makes an ordinary message. All as in RocketMQ 5.3.3: `HookUtils.handleScheduleMessage`,
`TransactionalMessageBridge.parseHalfMessageInner`, `SendMessageProcessor.attachRecallHandle`. Refused here, and not there: a
transaction that also has a delay (RocketMQ's clients drop the delay), and values that RocketMQ reads as something else or
fails at.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from commitlog_svc.append.records import WaitingMessage
from store.errors import InvalidMessageError
from store.format.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRAN_MSG,
    TRANSACTION_ID,
)
from store.format.topic import HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, WAITING_TOPICS

TIMER_PRECISION_MILLIS = 1_000  # RocketMQ's `timerPrecisionMs`
TIMERS = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)  # the first one counts
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class WaitingLimits(NamedTuple):
    """What a store allows: how many delay levels it has, and how far ahead a time may be (seconds)."""

    level_count: int
    timer_max_delay_seconds: int


class WaitingPlace(NamedTuple):
    """The record of a message that waits: its topic, queue and properties, and what its receipt says."""

    topic: str
    queue_id: int
    properties: dict[str, str]
    waiting: WaitingMessage


def asked_properties(properties: Mapping[str, str], delay_level: int, delivery_millis: int | None) -> dict[str, str]:
    """The user's properties of a message, and its fields `delay_level` and `delivery_time` as RocketMQ's properties.

    Args:
        properties: of the user.
        delay_level: 0: none.
        delivery_millis: since 1970; None: none.

    Raises:
        InvalidMessageError: a negative level, or a field beside another one or a property that asks for a delay.
    """
    asked = dict(properties)
    if delay_level < 0:
        raise InvalidMessageError(f"delay_level is {delay_level}: 0 or more is allowed", field="delay_level")
    if not delay_level and delivery_millis is None:
        return asked
    field = "delay_level" if delay_level else "delivery_time"
    others = [name for name in (DELAY, *TIMERS) if name in asked]
    if delay_level and delivery_millis is not None:
        others.append("delivery_time")
    if others:
        raise InvalidMessageError(f"{field} is given, and so is {others[0]}: give one of them", field=field)
    if delivery_millis is None:
        asked[DELAY] = str(delay_level)
    else:
        asked[TIMER_DELIVER_MS] = str(delivery_millis)
    return asked


def find_place(
    topic: str,
    queue_id: int,
    unique_key: str,
    properties: Mapping[str, str],
    now_millis: int,
    limits: WaitingLimits,
    *,
    field: str = "properties",
    reconsume_times: int = 0,
) -> WaitingPlace | None:
    """The place where a message waits; None for an ordinary one.

    Args:
        topic, queue_id, unique_key: of the message.
        properties: the user's, with those of `asked_properties`.
        now_millis: the store's time, since 1970.
        limits: see WaitingLimits.
        field: where the wish to wait comes from, for refusals: `delivery_time`, `delay_level`, `properties` or
            `wire_properties`.
        reconsume_times: a message of a transaction that was sent back and is delayed is none of a transaction any more, as for
            RocketMQ's broker (`SendMessageProcessor.sendMessage`).

    Raises:
        InvalidMessageError: with `field`, and the `property` when that is `properties` or `wire_properties`.
    """
    where = "wire_properties" if field == "wire_properties" else "properties"
    level = _number(properties, DELAY, where) if DELAY in properties else 0
    real = {REAL_TOPIC: topic, REAL_QUEUE_ID: str(queue_id)}
    if _is_half(properties, where) and not (reconsume_times > 0 and level > 0):
        delays = [name for name in TIMERS if name in properties] + ([DELAY] if level > 0 else [])
        if delays:
            raise _refusal(delays[0], "delays a message of a transaction: leave it or TRAN_MSG out", field)
        if CHECK_IMMUNITY_TIME_IN_SECONDS in properties:
            _natural(properties, CHECK_IMMUNITY_TIME_IN_SECONDS, where)
        half = {**properties, TRANSACTION_ID: unique_key, **real}
        return WaitingPlace(HALF_TOPIC, 0, half, WaitingMessage(topic, queue_id, is_half=True))
    if level > 0:
        level = min(level, limits.level_count)
        delayed = {name: value for name, value in properties.items() if name not in TIMERS}
        delayed |= {DELAY: str(level), **real}
        return WaitingPlace(SCHEDULE_TOPIC, level - 1, delayed, WaitingMessage(topic, queue_id))
    for name in TIMERS:
        if name in properties:
            return _timed(name, topic, queue_id, {**properties, **real}, now_millis, limits, field)
    return None


def waiting_of(topic: str, properties: Mapping[str, str]) -> WaitingMessage | None:
    """How the message of a record of a topic waits; None for an ordinary record, a recall, and one that does not say."""
    queue_id = properties.get(REAL_QUEUE_ID, "")
    real_topic = properties.get(REAL_TOPIC, "")
    if topic not in WAITING_TOPICS or not real_topic or not _NUMBER.fullmatch(queue_id):
        return None
    if topic != TIMER_TOPIC:
        return WaitingMessage(real_topic, int(queue_id), is_half=topic == HALF_TOPIC)
    out = properties.get(TIMER_OUT_MS, "")
    if TIMER_DEL_UNIQKEY in properties or not _NUMBER.fullmatch(out):
        return None
    return WaitingMessage(real_topic, int(queue_id), _recall_millis(real_topic, int(out)))


def _timed(
    name: str,
    topic: str,
    queue_id: int,
    properties: dict[str, str],
    now_millis: int,
    limits: WaitingLimits,
    field: str,
) -> WaitingPlace | None:
    value = _number(properties, name, "wire_properties" if field == "wire_properties" else "properties")
    deliver_millis = (
        value if name == TIMER_DELIVER_MS else now_millis + value * (1000 if name == TIMER_DELAY_SEC else 1)
    )
    ahead_millis = deliver_millis - now_millis
    if ahead_millis <= 0:
        return None
    if ahead_millis > limits.timer_max_delay_seconds * 1000:
        raise _refusal(
            name,
            f"asks for a delay of {-(-ahead_millis // 1000)} s, and at most {limits.timer_max_delay_seconds} s are allowed: "
            "ask for less, or set REPUT_COMMITLOG_TIMER_MAX_DELAY_SECONDS",
            field,
            delaySecondsMax=limits.timer_max_delay_seconds,
        )
    # The multiple of the precision below the time; a time that is one goes to the one before.
    out_millis = (deliver_millis - 1) // TIMER_PRECISION_MILLIS * TIMER_PRECISION_MILLIS
    properties[TIMER_OUT_MS] = str(out_millis)
    return WaitingPlace(TIMER_TOPIC, 0, properties, WaitingMessage(topic, queue_id, _recall_millis(topic, out_millis)))


def _recall_millis(topic: str, out_millis: int) -> int:
    """The time in a recall handle, 0 when there is none."""
    return 0 if topic.startswith(RETRY_PREFIX) else out_millis + 1


def _is_half(properties: Mapping[str, str], field: str) -> bool:
    value = properties.get(TRAN_MSG, "false")
    if value.lower() not in ("true", "false"):
        raise _refusal(TRAN_MSG, f"is {value[:32]!r}: true and false are allowed", field)
    return value.lower() == "true"


def _number(properties: Mapping[str, str], name: str, field: str) -> int:
    text = properties[name]
    if not _NUMBER.fullmatch(text):
        raise _refusal(name, f"is {text[:32]!r}: a number of at most 18 digits is needed", field)
    return int(text)


def _natural(properties: Mapping[str, str], name: str, field: str) -> int:
    number = _number(properties, name, field)
    if number < 0:
        raise _refusal(name, f"is {number}: 0 or more is allowed", field)
    return number


def _refusal(name: str, why: str, field: str, **metadata: object) -> InvalidMessageError:
    if field in ("properties", "wire_properties"):
        return InvalidMessageError(f"the property {name} {why}", field=field, property=name, **metadata)
    return InvalidMessageError(f"{field} {why}", field=field, **metadata)
