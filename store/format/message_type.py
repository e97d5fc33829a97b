"""The type of a message, as RocketMQ 5.5.0 tells it by the message's properties; and what a priority means for its queue.

    TRAN_MSG is "true" in any case                                 TRANSACTION
    DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC or TIMER_DELAY_MS     DELAY
    __SHARDINGKEY                                                  FIFO
    _SYS_MSG_PRIORITY_                                             PRIORITY
    __LITE_TOPIC                                                   LITE
    none of them                                                   NORMAL

The first line that holds decides (`TopicMessageType.parseFromMessageProperty`). A message of the type PRIORITY goes to the
queue with the number of its priority, whatever its sender chose and whatever its topic is for; one of another type loses the
property (`SendMessageProcessor.sendMessage`).
"""

import re
from collections.abc import Mapping

from store.format.properties import (
    DELAY,
    LITE_TOPIC,
    PRIORITY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRAN_MSG,
)

DELAYING = frozenset((DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS))
PRIORITY_MAX = (1 << 31) - 1
_NATURAL = re.compile(r"\+?0*([0-9]{1,10})")


def message_type_of(properties: Mapping[str, str]) -> str:
    """The type of a message with these properties: a value of MESSAGE_TYPES."""
    if properties.get(TRAN_MSG, "").lower() == "true":
        return "TRANSACTION"
    if not DELAYING.isdisjoint(properties):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    if PRIORITY in properties:
        return "PRIORITY"
    return "LITE" if LITE_TOPIC in properties else "NORMAL"


def priority_of(properties: Mapping[str, str]) -> int | None:
    """The priority that the property says, whatever the type (`Message.getPriority`); None: no number of 0 to 2^31 - 1."""
    found = _NATURAL.fullmatch(properties.get(PRIORITY, ""))
    priority = -1 if found is None else int(found[1])
    return priority if 0 <= priority <= PRIORITY_MAX else None


def queue_of_priority(priority: int, write_queue_count: int) -> int:
    """The queue of a priority in a topic with so many queues to write to."""
    return min(priority, write_queue_count - 1)
