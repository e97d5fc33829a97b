"""A checked search request, and its answer: one page."""

import json
from dataclasses import dataclass, field

from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome
from gateway.queries.limits import check_not_negative, check_topic
from gateway.queries.page import PageEntry
from gateway.search.filter import Conditions
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class OffsetWindow:
    """Positions `[begin, end)` of a queue; None is no limit."""

    begin_offset: int | None = None
    end_offset: int | None = None


EVERYWHERE = OffsetWindow()
ALWAYS = TimeWindow()


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """The place and the conditions of a search.

    Attributes:
        topic: the topic.
        broker_name: the only shard; empty: all.
        queue_id: the only queue (of each shard); None: all.
        offsets: positions of the queue; needs `queue_id`.
        times: store times.
        newest_first: from each queue's end to its begin.
        conditions: all must hold.

    Raises:
        InvalidArgumentError: a field is not valid; the error names it.
    """

    topic: str
    broker_name: str = ""
    queue_id: int | None = None
    offsets: OffsetWindow = EVERYWHERE
    times: TimeWindow = ALWAYS
    newest_first: bool = False
    conditions: Conditions = field(default_factory=Conditions)

    def __post_init__(self) -> None:
        check_topic(self.topic)
        for name, number in (
            ("queue_id", self.queue_id),
            ("begin_queue_offset", self.offsets.begin_offset),
            ("end_queue_offset", self.offsets.end_offset),
        ):
            if number is not None:
                check_not_negative(number, name)
        if self.queue_id is None and self.offsets != EVERYWHERE:
            raise InvalidArgumentError("queue offsets need a queue: set queue_id.", field="queue_id")

    def sealed_fields(self) -> dict[str, str | int | None]:
        """The fields that a page token is bound to."""
        conditions = self.conditions
        return {
            "topic": self.topic,
            "broker": self.broker_name,
            "queue": self.queue_id,
            "begin_offset": self.offsets.begin_offset,
            "end_offset": self.offsets.end_offset,
            "begin": self.times.begin_millis,
            "end": self.times.end_millis,
            "newest_first": int(self.newest_first),
            "tags": json.dumps(sorted(conditions.tags)),
            "properties": json.dumps(conditions.properties, sort_keys=True),
            "needle": conditions.needle.hex(),
            "cel": conditions.cel,
        }


@dataclass(slots=True)
class SearchAnswer:
    """A page.

    Attributes:
        entries: matches in the order of the scan.
        scanned_ranges: the positions that were searched, in that order.
        next_page_token: gets the next page; empty at the end.
        completeness: whether matches may be missing.
        outcomes: of the shards asked on this page, and of those that an earlier page skipped.
        stop: why the page ends.
        scanned_record_count: positions searched.
        scanned_bytes: total size of the records that were read.
        passed_count: positions that this page and those before have passed: searched, or outside the window.
        total_count: all positions at the begin of the search; 0 when they were not counted.
        unreadable_count: messages that could not be read or searched.
        cel_error_count: messages for which the expression has no value; they do not match.
        cel_error: the reason for the first of them.
    """

    entries: list[PageEntry] = field(default_factory=list)
    scanned_ranges: list[pb.SearchMessagesResponse.ScannedRange] = field(default_factory=list)
    next_page_token: str = ""
    completeness: message_pb2.Completeness = message_pb2.COMPLETENESS_COMPLETE
    outcomes: tuple[ShardOutcome, ...] = ()
    stop: pb.SearchStop = pb.SEARCH_STOP_END
    scanned_record_count: int = 0
    scanned_bytes: int = 0
    passed_count: int = 0
    total_count: int = 0
    unreadable_count: int = 0
    cel_error_count: int = 0
    cel_error: str = ""
