"""A checked search request, and its answer: one page.

Budgets: what one call of a scan may cost. To search further, a caller sends the page token.

    budget    counts                                             default     at most
    records   positions of queues, also those that the tag       100,000     1,000,000
              code alone rules out
    bytes     sizes of the records that are read                 64 MiB      1 GiB
    millis    wall time                                          5,000       20,000

The limits bound the time for which one caller keeps a thread of the gateway busy. A time budget also ends when a fifth of
the time to the caller's deadline is left, so that the answer arrives in time. Each call decides at least one position, or
passes an empty queue, whatever its budgets. So a caller that follows the page tokens reaches the end.

Cursor: the position inside a page token at which a scan goes on.

    shard, queue, begin, end    what is left: `[begin, end)` of this queue, the queues behind it in this shard, and all
                                shards behind this one
    queue = -1                  the scan of this shard has not begun
    skipped:NAME                a shard that did not answer on an earlier page: no later page is complete
    passed, total               the positions that the scan has passed, of all counted ones; only if the caller counts

A queue's range is fixed when the scan reaches the queue. So a scan ends although messages are appended meanwhile, and it
returns each message once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.ports.deadline import Deadline
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome
from gateway.queries.page import PageEntry, check_not_negative, check_topic
from gateway.search.filter import Conditions
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
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


RECORDS_DEFAULT = 100_000
RECORDS_MAX = 1_000_000
BYTES_DEFAULT = 64 << 20
BYTES_MAX = 1 << 30
MILLIS_DEFAULT = 5_000
MILLIS_MAX = 20_000
# The time to decide the records of a batch, also when reading them took all the time. Without it, a slow read would be
# repeated for each message.
DECIDING_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets that a caller gave: 0 means the default, and larger values are cut to the limit (table above).

    Raises:
        InvalidArgumentError: one is negative.
    """

    max_records: int = 0
    max_bytes: int = 0
    max_millis: int = 0

    def __post_init__(self) -> None:
        for name in ("max_records", "max_bytes", "max_millis"):
            check_not_negative(getattr(self, name), name)


class Meter:
    """Counts one call against its budgets.

    Args:
        budgets: of the call.
        deadline: the caller's deadline.

    Attributes:
        record_count: positions decided.
        size_bytes: total size of the records read.
        has_moved: whether the page has decided at least one position or passed a queue.
    """

    def __init__(self, budgets: Budgets, deadline: Deadline) -> None:
        self._records_max = min(budgets.max_records or RECORDS_DEFAULT, RECORDS_MAX)
        self._bytes_max = min(budgets.max_bytes or BYTES_DEFAULT, BYTES_MAX)
        millis = min(budgets.max_millis or MILLIS_DEFAULT, MILLIS_MAX)
        self._deadline = deadline
        self._stop_at_seconds = deadline.clock() + millis / 1000
        self.record_count = 0
        self.size_bytes = 0
        self.has_moved = False
        self._decide_until_seconds = 0.0

    def begin_batch(self) -> None:
        """Call it after reading a batch of records, before deciding them."""
        self._decide_until_seconds = self._deadline.clock() + DECIDING_SECONDS

    @property
    def free_records(self) -> int:
        """Positions that may still be decided."""
        return self._records_max - self.record_count

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be read. The first record is read whatever its size."""
        return self._bytes_max - self.size_bytes

    @property
    def time_is_over(self) -> bool:
        """Whether the page must end now."""
        return self._deadline.clock() >= self._stop_at_seconds or self._deadline.is_near()

    @property
    def batch_is_over(self) -> bool:
        """Whether to leave the rest of the batch to the next page; False in the first DECIDING_SECONDS of the batch."""
        return self._deadline.clock() >= self._decide_until_seconds and self.time_is_over

    def stop(self) -> "gateway_pb.SearchStop | None":
        """The budget that is used up; None before the scan has moved."""
        if not self.has_moved:
            return None
        if self.free_records <= 0:
            return gateway_pb.SEARCH_STOP_RECORDS
        return gateway_pb.SEARCH_STOP_TIME if self.time_is_over else None


_SKIPPED = "skipped:"
QUEUE_NOT_BEGUN = -1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the order of shards and queues. `skipped` names shards of earlier pages. The scan has passed
    `passed_count` of `total_count` positions; both are 0 when they are not counted."""

    broker_name: str
    queue_id: int = QUEUE_NOT_BEGUN
    begin_offset: int = 0
    end_offset: int = 0
    skipped: frozenset[str] = frozenset()
    passed_count: int = 0
    total_count: int = 0

    def to_fields(self) -> dict[str, str | int]:
        """The fields of a page token."""
        fields: dict[str, str | int] = {
            "shard": self.broker_name,
            "queue": self.queue_id,
            "begin": self.begin_offset,
            "end": self.end_offset,
        }
        if self.total_count:
            fields |= {"passed": self.passed_count, "total": self.total_count}
        return fields | {_SKIPPED + name: 1 for name in self.skipped}

    @classmethod
    def from_fields(cls, fields: Mapping[str, str | int]) -> "Cursor | None":
        """The cursor of these fields; None at the beginning. The token is sealed, so the fields come from `to_fields`."""
        if not fields:
            return None
        skipped = frozenset(name.removeprefix(_SKIPPED) for name in fields if name.startswith(_SKIPPED))
        return cls(
            str(fields["shard"]),
            int(fields["queue"]),
            int(fields["begin"]),
            int(fields["end"]),
            skipped,
            int(fields.get("passed", 0)),
            int(fields.get("total", 0)),
        )
