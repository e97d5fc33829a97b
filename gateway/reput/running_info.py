"""RocketMQ's ConsumerRunningInfo, as a client wrote it, as a GetConsumerRunningInfoResponse.

What a client says may be anything: a value of another kind is left out, as if it was not said.
"""

import json
import math
import re
from collections.abc import Container, Iterable, Mapping
from typing import Any

from gateway.groups.asked_members import Told
from gateway.ports.delivery import TAG, message_filter
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import millis_to_timestamp
from services.rocketmq.fastjson import Key, loads
from store.errors import ServiceUnavailableError

# A client may say 16 MiB. What is not its stacks is read as Python's objects, which take 30 times as much.
REST_BYTES_MAX = 4 << 20
QUEUE_COUNT_MAX, TOPIC_COUNT_MAX, PROPERTY_COUNT_MAX = 4_096, 1_024, 256
TEXT_CHARACTERS_MAX = 1_024
STACK_CHARACTERS_MAX = 1 << 20
INT32_MAX = (1 << 31) - 1
# 253402300799999 is the last millisecond of the year 9999, and of a Timestamp.
MILLIS_MAX = 253_402_300_799_999
# Stacks are most of an answer, and one with objects as keys, as of each push consumer, is read slowly: they go first.
_STACK = re.compile(rb'"jstack"\s*:\s*("(?:[^"\\]++|\\.)*+")', re.DOTALL)


def info_of(told: Told) -> pb.GetConsumerRunningInfoResponse:
    """What a member tells; ServiceUnavailableError when that is nothing that can be read."""
    try:
        stack, rest = _without_stack(told.body)
        if len(rest) > REST_BYTES_MAX:
            raise ServiceUnavailableError(
                f"the member answered with {len(rest):,} bytes, and {REST_BYTES_MAX:,} are read", service="client"
            )
        document = loads(rest)
        if not isinstance(document, Mapping):
            raise ValueError("it is no object")
    except ValueError as error:
        raise ServiceUnavailableError(
            "the member answered with something that is no running information", service="client"
        ) from error
    properties = list(_table(document, "properties").items())[:PROPERTY_COUNT_MAX]
    subscriptions = document.get("subscriptionSet")
    queues = [
        _queue_of(key.members(), row)
        for key, row in list(_table(document, "mqTable").items())[:QUEUE_COUNT_MAX]
        if isinstance(key, Key) and isinstance(row, Mapping)
    ]
    topics = [
        _topic_of(topic, row)
        for topic, row in list(_table(document, "statusTable").items())[:TOPIC_COUNT_MAX]
        if isinstance(row, Mapping)
    ]
    queues.sort(key=_place_of)
    topics.sort(key=lambda each: each.topic)
    return pb.GetConsumerRunningInfoResponse(
        properties={_cut(name): _cut(value) for name, value in properties},
        subscriptions=_subscriptions(subscriptions if isinstance(subscriptions, list) else ()),
        queues=queues,
        topics=topics,
        stack_trace=_sound(stack[:STACK_CHARACTERS_MAX]),
        told_by_gateway=told.is_by_gateway,
    )


def keep_topics(info: pb.GetConsumerRunningInfoResponse, shown: Container[str]) -> None:
    """Leave out what is of other topics than those that a caller may see."""
    for rows in (info.subscriptions, info.queues, info.topics):
        for number in range(len(rows) - 1, -1, -1):
            if rows[number].topic not in shown:
                del rows[number]


def _without_stack(body: bytes) -> tuple[str, bytes]:
    """The stacks, and the rest of an answer; ValueError."""
    found = _STACK.search(body)
    if found is None:
        return "", body
    begin, end = found.span(1)
    return json.loads(found[1]), b'%b""%b' % (body[:begin], body[end:])


def _subscriptions(rows: Iterable[Any]) -> list[pb.TopicSubscription]:
    found = []
    for row in list(rows)[:TOPIC_COUNT_MAX]:
        if isinstance(row, Mapping):
            wanted = pb.TopicSubscription(topic=_text(row, "topic"), filter=pb.MessageFilter())
            expression = _text(row, "subString")
            if expression not in ("", "*"):
                is_sql = _text(row, "expressionType") not in ("", TAG)
                wanted.filter.CopyFrom(message_filter(expression, is_sql=is_sql))
            found.append(wanted)
    return sorted(found, key=lambda each: each.topic)


def _queue_of(queue: Mapping[str, Any], row: Mapping[Any, Any]) -> pb.ConsumerRunningQueue:
    answer = pb.ConsumerRunningQueue(
        topic=_text(queue, "topic"),
        queue_id=_number(queue, "queueId", INT32_MAX),
        broker_name=_text(queue, "brokerName"),
        consumer_offset=_number(row, "commitOffset"),
        cached_message_count=_number(row, "cachedMsgCount", INT32_MAX),
        cached_mebibytes=_number(row, "cachedMsgSizeInMiB", INT32_MAX),
        cached_min_offset=_number(row, "cachedMsgMinOffset"),
        cached_max_offset=_number(row, "cachedMsgMaxOffset"),
        locked=row.get("locked") is True,
        dropped=row.get("droped") is True,  # RocketMQ writes it so
    )
    for field, name in (("last_pull_time", "lastPullTimestamp"), ("last_consume_time", "lastConsumeTimestamp")):
        millis = _number(row, name, MILLIS_MAX)
        if millis:
            getattr(answer, field).CopyFrom(millis_to_timestamp(millis))
    return answer


def _place_of(queue: pb.ConsumerRunningQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _topic_of(topic: Any, row: Mapping[Any, Any]) -> pb.ConsumerRunningTopic:
    return pb.ConsumerRunningTopic(
        topic=_cut(topic),
        pull_millis=_float(row, "pullRT"),
        pulled_per_second=_float(row, "pullTPS"),
        consume_millis=_float(row, "consumeRT"),
        consumed_per_second=_float(row, "consumeOKTPS"),
        failed_per_second=_float(row, "consumeFailedTPS"),
        failed_count_in_hour=_number(row, "consumeFailedMsgs"),
    )


def _table(document: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _cut(value: object) -> str:
    return _sound(str(value)[:TEXT_CHARACTERS_MAX])


def _text(row: Mapping[Any, Any], name: str) -> str:
    value = row.get(name)
    return _cut(value) if isinstance(value, str) else ""


def _sound(text: str) -> str:
    """Without halves of surrogate pairs, which are no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _number(row: Mapping[Any, Any], name: str, most: int = (1 << 63) - 1) -> int:
    value = row.get(name)
    return value if type(value) is int and 0 <= value <= most else 0


def _float(row: Mapping[Any, Any], name: str) -> float:
    value = row.get(name)
    if type(value) is float and math.isfinite(value):
        return value
    return float(value) if type(value) is int and abs(value) < 1 << 63 else 0.0
