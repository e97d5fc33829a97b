"""The scan behind one page of a search (gateway/search/search_messages.py says in which order)."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gateway.ports.cancellation import Cancellation
from gateway.ports.deadline import Deadline, ran_out_of_time
from gateway.ports.fan_out import FanOut
from gateway.ports.shard import Shard, store_millis
from gateway.ports.shards import Shards
from gateway.queries.completeness import ShardOutcome, judge, raise_first_error
from gateway.queries.dropped import was_dropped
from gateway.queries.page import Page
from gateway.search.asking import CallerGoneError
from gateway.search.budgets import Meter
from gateway.search.cursor import Cursor
from gateway.search.filter import MessageFilter
from gateway.search.message_view import MessageView
from gateway.search.question import SearchAnswer, SearchQuestion
from gateway.search.shard_scan import ShardFailedError, ShardScan
from reput.consumequeue.v1.consumequeue_service_pb2 import QueueUnit
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import (
    BrokerNotFoundError,
    DeadlineExceededError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreError,
)

# Units of a queue in one call: 20 bytes each, and the tag code rules out most of them.
UNIT_COUNT = 512
# Records in one read. The clock and the cancellation are checked between two reads.
READ_COUNT = 128
READ_BYTES = 1 << 20
# Ranges of one answer. They fit into the room that its messages leave below 4 MiB, also with the longest shard names.
RANGE_COUNT_MAX = 1_000

ViewOf = Callable[[StoredMessage], MessageView]


class _StopError(Exception):
    """The page ends at the cursor."""

    def __init__(self, reason: pb.SearchStop) -> None:
        super().__init__(pb.SearchStop.Name(reason))
        self.reason = reason


class Scan:
    """One page of a scan.

    Attributes:
        answer: the page.
        knows_topic: whether a shard has a queue of the topic.
    """

    def __init__(
        self,
        question: SearchQuestion,
        message_filter: MessageFilter,
        page: Page,
        meter: Meter,
        view_of: ViewOf,
        cancellation: Cancellation,
    ) -> None:
        self.answer = SearchAnswer(entries=page.entries)
        self.knows_topic = False
        self._question = question
        self._filter = message_filter
        self._page = page
        self._meter = meter
        self._view_of = view_of
        self._cancellation = cancellation
        self._cursor = Cursor("")
        self._passed_count = 0

    def run(self, shards: Shards, threads: FanOut, cursor: Cursor | None, deadline: Deadline) -> Cursor | None:
        """Fill the page; returns where the next one begins, None at the end."""
        end: Cursor | None = None
        self._passed_count = cursor.passed_count if cursor is not None else 0
        scans: list[ShardScan] = []
        skipped = cursor.skipped if cursor is not None else frozenset[str]()
        outcomes = [_skipped_earlier(name) for name in sorted(skipped)]
        if cursor is not None and cursor.broker_name not in {shard.broker_name for shard in shards}:
            outcomes.append(_unknown(cursor.broker_name))
            skipped |= {cursor.broker_name}
        failed: list[ShardOutcome] = []
        for shard in _in_order(shards, self._question.broker_name, cursor):
            scan = ShardScan(shard, threads, self._cancellation, deadline)
            scans.append(scan)
            begun = cursor if cursor is not None and cursor.broker_name == shard.broker_name else None
            self._cursor = begun or Cursor(shard.broker_name)
            try:
                self._check_budgets()
                self._scan_shard(scan, begun)
            except ShardFailedError as failure:
                # The shard may only be slow: the next page asks it first, and leaves it out if it hangs.
                if ran_out_of_time(failure.error) and self._meter.has_moved:
                    end, self.answer.stop = self._cursor, pb.SEARCH_STOP_TIME
                    break
                scan.note(failure.error)
                failed.append(scan.outcome)
                skipped |= {shard.broker_name}
            except DeadlineExceededError:
                if not self._meter.has_moved:
                    raise
                end, self.answer.stop = self._cursor, pb.SEARCH_STOP_TIME
                break
            except _StopError as stop:
                end, self.answer.stop = self._cursor, stop.reason
                break
            self._meter.has_moved = True
        if failed and len(failed) == len(scans) and not self.answer.scanned_ranges:
            raise_first_error(failed)
        answer = self.answer
        answer.outcomes = (*outcomes, *(scan.outcome for scan in scans))
        answer.completeness = judge(answer.outcomes, more=end is not None)
        answer.scanned_record_count = self._meter.record_count
        answer.scanned_bytes = self._meter.size_bytes
        answer.passed_count = self._passed_count
        return replace(end, skipped=skipped) if end is not None else None

    def _scan_shard(self, scan: ShardScan, begun: Cursor | None) -> None:
        question = self._question
        for queue in scan.queues(question):
            if question.queue_id not in (None, queue.queue_id):
                continue
            self.knows_topic = True
            if begun is not None and queue.queue_id < begun.queue_id:
                continue
            if begun is not None and queue.queue_id == begun.queue_id:
                begin, end = begun.begin_offset, begun.end_offset
            else:
                self._check_budgets()
                begin, end = scan.window(queue, question.offsets, question.times)
                self._passed_count += queue.max_offset - queue.min_offset - (end - begin)
            self._cursor = Cursor(scan.shard.broker_name, queue.queue_id, begin, end)
            # When the page before ended at the end of this queue, this page has not moved yet.
            is_ahead = begun is None or queue.queue_id != begun.queue_id or begin < end
            if begin < end:
                self._scan_queue(scan, queue.queue_id)
            self._meter.has_moved = self._meter.has_moved or is_ahead

    def _scan_queue(self, scan: ShardScan, queue_id: int) -> None:
        """Scans what the cursor has left of its queue."""
        if len(self.answer.scanned_ranges) >= RANGE_COUNT_MAX:
            raise _StopError(pb.SEARCH_STOP_PAGE)
        cursor = self._cursor
        first = cursor.end_offset if self._question.newest_first else cursor.begin_offset
        self.answer.scanned_ranges.append(
            pb.SearchMessagesResponse.ScannedRange(
                broker_name=cursor.broker_name, queue_id=queue_id, begin_offset=first, end_offset=first
            )
        )
        try:
            while self._cursor.begin_offset < self._cursor.end_offset:
                self._check_budgets()
                self._scan_stretch(scan, queue_id)
        finally:
            if self.answer.scanned_ranges[-1].begin_offset == self.answer.scanned_ranges[-1].end_offset:
                self.answer.scanned_ranges.pop()

    def _scan_stretch(self, scan: ShardScan, queue_id: int) -> None:
        """Scans the next UNIT_COUNT positions of the queue."""
        begin, end = self._cursor.begin_offset, self._cursor.end_offset
        if self._question.newest_first:
            begin = max(begin, end - UNIT_COUNT)
        else:
            end = min(end, begin + UNIT_COUNT)
        units = scan.units(self._question.topic, queue_id, begin, end)
        if self._question.newest_first:
            units.reverse()
        done_count = 0
        while done_count < len(units):
            self._check_budgets()
            batch = self._batch(units[done_count:])
            self._scan_batch(scan, batch)
            done_count += len(batch)
        # The positions that are left have no units.
        self._advance(begin if self._question.newest_first else end)

    def _batch(self, units: list[QueueUnit]) -> list[QueueUnit]:
        """The first units: as many as the budgets and the limits of one read allow, at least one."""
        batch: list[QueueUnit] = []
        read_count = size_bytes = 0
        for unit in units[: max(self._meter.free_records, 1)]:
            if not self._filter.rules_out(unit.tags_code):
                read_count += 1
                size_bytes += unit.record_size_bytes
            over_budget = size_bytes > self._meter.free_bytes
            if over_budget and not batch and self._meter.size_bytes:
                raise _StopError(pb.SEARCH_STOP_BYTES)
            if batch and (over_budget or read_count > READ_COUNT or size_bytes > READ_BYTES):
                break
            batch.append(unit)
        return batch

    def _scan_batch(self, scan: ShardScan, batch: list[QueueUnit]) -> None:
        wanted = [unit for unit in batch if not self._filter.rules_out(unit.tags_code)]
        outcomes = dict(
            zip((unit.queue_offset for unit in wanted), scan.records(wanted) if wanted else (), strict=True)
        )
        in_window = [
            outcome
            for unit in wanted
            if isinstance(outcome := outcomes[unit.queue_offset], StoredMessage)
            and self._is_of(unit, outcome)
            and self._question.times.holds(store_millis(outcome))
        ]
        self._meter.begin_batch()
        chosen = self._matches(in_window)
        for unit in batch:
            if self._cancellation.is_set:
                raise CallerGoneError
            if self._page.missing_count <= 0:
                raise _StopError(pb.SEARCH_STOP_PAGE)
            if (found := outcomes.get(unit.queue_offset)) is not None:
                self._decide(scan, unit, found, chosen)
                self._meter.size_bytes += unit.record_size_bytes
            self._meter.record_count += 1
            self._meter.has_moved = True
            self._advance(unit.queue_offset + (0 if self._question.newest_first else 1))

    def _decide(
        self,
        scan: ShardScan,
        unit: QueueUnit,
        outcome: StoredMessage | StoreError,
        chosen: "Iterator[StoreError | bool]",
    ) -> None:
        """Add the record if it matches; _StopError when the page has no room for it or the time was over."""
        error: StoreError | None = None
        if isinstance(outcome, StoreError):
            if was_dropped(outcome, unit.commit_log_offset):
                return
            error = outcome
            if isinstance(outcome, OffsetOutOfRangeError | RecordNotFoundError):
                error = self._points_astray(unit, "no record starts there")
        elif not self._is_of(unit, outcome):
            what = f"there is message {outcome.queue_offset} of queue {outcome.queue_id} of {outcome.topic!r}"
            error = self._points_astray(unit, what)
        elif self._question.times.holds(store_millis(outcome)):
            match = next(chosen, None)
            if match is None:
                if self._cancellation.is_set:
                    raise CallerGoneError
                raise _StopError(pb.SEARCH_STOP_TIME)
            if match is True and not self._page.add(scan.shard.broker_name, outcome):
                raise _StopError(pb.SEARCH_STOP_PAGE)
            error = match if isinstance(match, StoreError) else None
        if error is not None:
            self.answer.unreadable_count += 1
            scan.note(error)

    def _matches(self, records: list[StoredMessage]) -> "Iterator[StoreError | bool]":
        """For each record, in order, whether it matches, or why this is unknown; fewer when the time was over."""
        for result in self._filter.decide(map(self._view_of, records), self._gives_up):
            if result.cel_error:
                self.answer.cel_error_count += 1
                self.answer.cel_error = self.answer.cel_error or result.cel_error
            yield result.error or result.matches

    def _gives_up(self) -> bool:
        """Whether to leave the rest of a batch undecided."""
        return self._cancellation.is_set or self._meter.batch_is_over

    def _advance(self, position: int) -> None:
        """Move the cursor: all positions up to this one, in the direction of the scan, are decided."""
        scanned = self.answer.scanned_ranges[-1]
        if self._question.newest_first:
            self._passed_count += self._cursor.end_offset - position
            self._cursor = replace(self._cursor, end_offset=position)
            scanned.begin_offset = position
        else:
            self._passed_count += position - self._cursor.begin_offset
            self._cursor = replace(self._cursor, begin_offset=position)
            scanned.end_offset = position

    def _check_budgets(self) -> None:
        if self._cancellation.is_set:
            raise CallerGoneError
        if self._page.missing_count <= 0:
            raise _StopError(pb.SEARCH_STOP_PAGE)
        stop = self._meter.stop()
        if stop is not None:
            raise _StopError(stop)

    def _is_of(self, unit: QueueUnit, record: StoredMessage) -> bool:
        place = (self._question.topic, self._cursor.queue_id, unit.queue_offset)
        return (record.topic, record.queue_id, record.queue_offset) == place

    def _points_astray(self, unit: QueueUnit, what: str) -> StoreCorruptedError:
        topic, queue_id = self._question.topic, self._cursor.queue_id
        return StoreCorruptedError(
            f"Queue {queue_id} of {topic!r} says that its message {unit.queue_offset} is at byte "
            f"{unit.commit_log_offset} of the log, but {what}: rebuild the queues from the log.",
            file=f"consumequeue/{topic}/{queue_id}",
            offset=unit.queue_offset,
            commitLogOffset=unit.commit_log_offset,
        )


def _in_order(shards: Shards, broker_name: str, cursor: Cursor | None) -> list[Shard]:
    """The shards of a page, sorted by name, so that gateways with another order can use each other's tokens."""
    asked = [shards.named(broker_name)] if broker_name else sorted(shards, key=lambda shard: shard.broker_name)
    return [shard for shard in asked if cursor is None or shard.broker_name >= cursor.broker_name]


def _unknown(broker_name: str) -> ShardOutcome:
    error = BrokerNotFoundError(
        f"The page before ended in the shard {broker_name!r}, which this gateway does not know.", brokerName=broker_name
    )
    return ShardOutcome(broker_name, error, complete=False)


def _skipped_earlier(broker_name: str) -> ShardOutcome:
    error = ServiceUnavailableError(
        f"{broker_name} did not answer on an earlier page of this search: search it alone, by broker_name.",
        service=broker_name,
    )
    return ShardOutcome(broker_name, error, complete=False)
