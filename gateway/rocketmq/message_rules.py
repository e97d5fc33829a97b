"""What a sent message may hold: the limits and codes of RocketMQ's proxy (`SendMessageActivity`, `GrpcValidator`)."""

import re
import time
from collections.abc import Callable

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.rocketmq.names import check_lite_topic, topic_of
from gateway.rocketmq.status import RefusedError
from services.convert import TIMESTAMP_SECONDS_MAX
from services.message_copy import SYSTEM_PROPERTIES

BODY_BYTES_MAX = 4 << 20
# Of the names and values of user properties, the tag and the keys, in UTF-8.
PROPERTIES_BYTES_MAX = 16 << 10
USER_PROPERTY_COUNT_MAX = 128
# A message group has fewer bytes.
MESSAGE_GROUP_BYTES_END = 64
CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f]")  # Java's `Character.isISOControl`
# What RocketMQ's proxy allows; the gateway has a setting.
DELIVERY_AHEAD_SECONDS_MAX = 86_400
RECOVERY_SECONDS_MAX = 3_600

# Names that are no user's: those, and what RocketMQ's requests and replies write.
RESERVED_PROPERTIES = SYSTEM_PROPERTIES | {
    *("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE", "TIMER_DELAY_LEVEL"),
}


def check_sent(
    message: v2.Message,
    wall_clock: Callable[[], float] = time.time,
    *,
    delivery_ahead_seconds_max: int = DELIVERY_AHEAD_SECONDS_MAX,
) -> None:
    """Refuse what RocketMQ's proxy refuses, whatever the topic takes.

    Args:
        message: as it came.
        wall_clock: seconds since 1970.
        delivery_ahead_seconds_max: how far ahead a delivery time may lie.

    Raises:
        RefusedError: with the code for the first thing that is wrong.
    """
    topic_of(message.topic)
    system = message.system_properties
    check_body_size(len(message.body))
    size_bytes = _check_user_properties(message)
    size_bytes += _check_text(system.tag, "tag", v2.ILLEGAL_MESSAGE_TAG)
    if "|" in system.tag:
        raise RefusedError(v2.ILLEGAL_MESSAGE_TAG, "the tag holds |, which separates tags in filters: leave it out")
    size_bytes += sum(_check_text(key, "key", v2.ILLEGAL_MESSAGE_KEY) for key in system.keys)
    if size_bytes > PROPERTIES_BYTES_MAX:
        raise RefusedError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"user properties, tag and keys have {size_bytes} bytes: use at most {PROPERTIES_BYTES_MAX}",
        )
    if not system.message_id.strip():
        raise RefusedError(v2.ILLEGAL_MESSAGE_ID, "system_properties.message_id is empty: the client must set it")
    if _check_text(system.message_group, "message group", v2.ILLEGAL_MESSAGE_GROUP) >= MESSAGE_GROUP_BYTES_END:
        raise RefusedError(
            v2.ILLEGAL_MESSAGE_GROUP, f"the message group must have fewer than {MESSAGE_GROUP_BYTES_END} bytes"
        )
    if system.HasField("lite_topic"):
        check_lite_topic(system.lite_topic)
    if system.priority < 0:
        raise RefusedError(
            v2.BAD_REQUEST,
            f"the priority is {system.priority}: it must be 0 or more, and the highest is delivered first",
        )
    if not 0 <= system.delivery_timestamp.seconds <= TIMESTAMP_SECONDS_MAX:
        raise RefusedError(v2.ILLEGAL_DELIVERY_TIME, "delivery_timestamp is outside the years 1970 to 9999")
    if system.delivery_timestamp.seconds - wall_clock() > delivery_ahead_seconds_max:
        raise RefusedError(
            v2.ILLEGAL_DELIVERY_TIME,
            f"delivery_timestamp is more than {delivery_ahead_seconds_max} s ahead: choose an earlier time, or set "
            "REPUT_GATEWAY_DELIVERY_DELAY_SECONDS_MAX",
        )
    if system.message_type == v2.TRANSACTION and system.HasField("delivery_timestamp"):
        raise RefusedError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            "a message of a transaction has a delivery_timestamp: its consumers get it when it is committed, so leave it out",
        )
    if (
        system.message_type == v2.TRANSACTION
        and system.orphaned_transaction_recovery_duration.seconds > RECOVERY_SECONDS_MAX
    ):
        raise RefusedError(
            v2.BAD_REQUEST, f"orphaned_transaction_recovery_duration must be at most {RECOVERY_SECONDS_MAX} s"
        )


def check_body_size(size_bytes: int) -> None:
    """RefusedError for a body without bytes, or with too many."""
    if not size_bytes:
        raise RefusedError(v2.MESSAGE_BODY_EMPTY, "the body is empty: a message has at least one byte")
    if size_bytes > BODY_BYTES_MAX:
        raise RefusedError(v2.MESSAGE_BODY_TOO_LARGE, f"the body has {size_bytes} bytes: use at most {BODY_BYTES_MAX}")


def _check_user_properties(message: v2.Message) -> int:
    """Their bytes."""
    properties = message.user_properties
    if len(properties) > USER_PROPERTY_COUNT_MAX:
        raise RefusedError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"there are {len(properties)} user properties: use at most {USER_PROPERTY_COUNT_MAX}",
        )
    taken = RESERVED_PROPERTIES.intersection(properties)
    if taken:
        raise RefusedError(
            v2.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {min(taken)} belongs to the system: leave it out"
        )
    size_bytes = 0
    for name, value in properties.items():
        if _has_control_character(name) or _has_control_character(value):
            raise RefusedError(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {name!r} has a control character in its name or value: leave it out",
            )
        size_bytes += len(name.encode()) + len(value.encode())
    return size_bytes


def _check_text(text: str, what: str, code: "v2.Code") -> int:
    """The bytes of a text that may be absent."""
    if not text:
        return 0
    if text.isspace():
        raise RefusedError(code, f"the {what} is blank: fill it or leave it out")
    if _has_control_character(text):
        raise RefusedError(code, f"the {what} has a control character: leave it out")
    return len(text.encode())


def _has_control_character(text: str) -> bool:
    return CONTROL_CHARACTER.search(text) is not None
