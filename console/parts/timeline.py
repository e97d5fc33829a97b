"""What happened to a message, in the order of time, from the records that were made of it.

    born ── stored ── [waits for its time] ── retry ── retry ── dead letter        one event for each record
    now: group a consumed it, group b gets it again at ...                         from its tracks (parts/tracks.py)

A consumer that acknowledges leaves no record with a time, so what groups have done is shown as the state now.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from console.parts.message_row import MessageRow, topic_kind

SHOWN_EVENT_COUNT = 40
WAITING_TOPICS = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
# What producers and consumers did with records of other system topics is no part of the life of a message.
_KINDS_BY_TOPIC = {**dict.fromkeys(WAITING_TOPICS, "waits"), HALF_TOPIC: "half", GIVEN_UP_TOPIC: "given-up"}


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    Attributes:
        kind: `born`, `stored`, `again` (stored once more), `waits`, `half`, `given-up`, `retry` or `dead-letter`.
        millis: when, since 1970.
        topic: where its record is; empty for `born`.
        href: the page of the record; empty for `born`, and for the message of the page.
        detail: of `born` the address of the producer.
    """

    kind: str
    millis: int
    topic: str = ""
    href: str = ""
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        """For the page's JSON."""
        return {"kind": self.kind, "millis": str(self.millis), "topic": self.topic, "href": self.href}


def timeline_of(message: Any, row: MessageRow, born_millis: int, others: Iterable[MessageRow]) -> list[Event]:
    """The events of a message.

    Args:
        message: the message of the page.
        row: the same as a row.
        born_millis: when its producer made it.
        others: the other records that are of this message: copies, retries, dead letters, those of system topics.
    """
    records = sorted([row, *others], key=lambda each: (each.store_time_millis, each.offset_msg_id))
    events = [Event("born", born_millis, detail=message.born_host)]
    is_stored = False
    for each in records:
        kind = _KINDS_BY_TOPIC.get(each.topic) or topic_kind(each.topic)
        if kind == "system":
            continue
        if not kind:
            kind, is_stored = "again" if is_stored else "stored", True
        events.append(Event(kind, each.store_time_millis, each.topic, "" if each is row else each.href))
    return events[:SHOWN_EVENT_COUNT]
