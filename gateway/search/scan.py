"""The scan behind one page of a search (gateway/search/search_messages.py says in which order).

`ShardScan` makes the calls to one shard: for its queues, their ranges, units, and records with their bodies. Each call runs on
another thread (`ask_until_gone`), so a cancelled search ends at once. It gets half of the time that is left, so a shard that
hangs leaves time for the others.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from gateway.ports.deadline import Cancellation, Deadline, ran_out_of_time
from gateway.ports.shard import (
    ARCHIVE_PROBLEM,
    BuildProgress,
    Shard,
    get_record,
    get_records,
    get_units,
    held_elsewhere,
    list_queues,
    queues_progress,
    search_offset,
    store_millis,
)
from gateway.ports.shards import FanOut, Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome, judge, least_built, raise_first_error, was_dropped
from gateway.queries.page import PAGE_BYTES_MAX, Page
from gateway.search.filter import MessageFilter
from gateway.search.message_view import MessageView
from gateway.search.question import Cursor, Meter, OffsetWindow, SearchAnswer, SearchQuestion
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumequeue.v1.consumequeue_service_pb2 import QueueUnit
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
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

Answer = TypeVar("Answer")
# Ports answer in milliseconds. This bounds the time for which a cancelled search still holds a thread.
ASK_SECONDS_MAX = 10.0


class CallerGoneError(Exception):
    """The call was cancelled; its answer is no longer needed.

    Args:
        pending: a call to a port that has not ended yet and holds its thread until it does.
    """

    def __init__(self, pending: "futures.Future[Any] | None" = None) -> None:
        super().__init__("the call was cancelled")
        self.pending = pending


def ask_until_gone(
    threads: FanOut,
    call: Callable[[Deadline], Answer],
    cancellation: Cancellation,
    deadline: Deadline,
    *,
    seconds_max: float = ASK_SECONDS_MAX,
) -> Answer:
    """The answer of a call that gets half of the time that is left. Errors of the call are raised.

    Args:
        threads: one of them makes the call, which must not submit to these threads itself (deadlock).
        call: gets its own deadline.
        cancellation: of the search.
        deadline: of the search.
        seconds_max: the most time that the call may take.

    Raises:
        CallerGoneError: the search was cancelled before there was an answer.
        DeadlineExceededError: no time is left.
    """
    if cancellation.is_set:
        raise CallerGoneError
    seconds = min(deadline.remaining_seconds() / 2, seconds_max)
    own = Deadline.after(seconds, deadline.clock)
    asked = threads.start(lambda: call(own))
    pair: list[futures.Future[Any]] = [asked, cancellation.happened]
    futures.wait(pair, return_when=futures.FIRST_COMPLETED)
    if not asked.done():
        raise CallerGoneError(None if asked.cancel() else asked)
    return asked.result()


class ShardFailedError(Exception):
    """The shard did not answer.

    Args:
        error: the reason.
    """

    def __init__(self, error: StoreError) -> None:
        super().__init__(error.message)
        self.error = error


class ShardScan:
    """Calls one shard for one search.

    Args:
        shard: the shard.
        fan_out: the threads that make the calls, one at a time.
        cancellation: of the call.
        deadline: of the call.

    Attributes:
        outcome: how the shard took part so far.
    """

    def __init__(self, shard: Shard, fan_out: FanOut, cancellation: Cancellation, deadline: Deadline) -> None:
        self.shard = shard
        self.outcome = ShardOutcome(shard.broker_name)
        self._fan_out = fan_out
        self._cancellation = cancellation
        self._deadline = deadline

    def note(self, problem: StoreError) -> None:
        """Note that matches may be missing; the first reason is kept."""
        self.outcome = replace(self.outcome, error=self.outcome.error or problem, complete=False)

    def queues(self, question: SearchQuestion) -> list[queue_pb.Queue]:
        """The topic's queues by number. Queues that are not built yet are missing; this is noted if it may hide matches."""
        topic = question.topic
        if self.shard.has(ARCHIVE_PROBLEM):
            self._note_problem(self._ask(partial(self.shard.call, ARCHIVE_PROBLEM, topic)))
        held = self._ask(partial(held_elsewhere, self.shard, topic))
        # Before the queues, so that messages built between the two calls are not missed.
        progress = self._ask(partial(queues_progress, self.shard))
        queues = self._ask(partial(list_queues, self.shard, topic))
        self._note_progress(progress, behind=progress.is_behind and not _is_built(question, queues))
        if not _is_in_the_log(question, queues):
            self._note_problem(held)
        return sorted(queues, key=lambda queue: queue.queue_id)

    def window(self, queue: queue_pb.Queue, offsets: OffsetWindow, times: TimeWindow) -> tuple[int, int]:
        """The positions of a queue that contain the whole window; by time as SearchOffset finds them."""
        begin = max(queue.min_offset, offsets.begin_offset or 0)
        end = queue.max_offset if offsets.end_offset is None else min(queue.max_offset, offsets.end_offset)
        if begin >= end:
            return begin, begin
        begin_millis, end_millis = times.begin_millis, times.end_millis
        search = partial(search_offset, self.shard, queue.topic, queue.queue_id)
        # Where part of an archive cannot be read, the position is not reliable: the time of each record is checked anyway.
        if begin_millis is not None:
            found = self._ask(partial(search, begin_millis, gateway_pb.BOUNDARY_LOWER))
            self._note_problem(found.problem)
            if found.problem is None:
                begin = max(begin, found.answer.queue_offset)
        if end_millis is not None:
            found = self._ask(partial(search, end_millis, gateway_pb.BOUNDARY_UPPER))
            self._note_problem(found.problem)
            if found.problem is None:
                end = min(end, found.answer.queue_offset + 1)
        return begin, max(begin, end)

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> list[queue_pb.QueueUnit]:
        """All units of `[begin, end)`, in queue order; without those that retention removed or an archive lacks."""
        units: list[queue_pb.QueueUnit] = []
        while begin < end:
            found = self._ask(partial(get_units, self.shard, topic, queue_id, begin, end - begin))
            stretch = found.answer
            self._note_problem(found.problem)
            self._note_progress(found.progress, behind=found.progress.is_behind and end >= stretch.max_offset)
            given = [unit for unit in stretch.units if begin <= unit.queue_offset < end]
            units += given
            if given:
                begin = given[-1].queue_offset + 1
            elif begin < stretch.min_offset:
                begin = stretch.min_offset
            else:
                break
        return units

    def records(self, units: Sequence[queue_pb.QueueUnit]) -> list[StoredMessage | StoreError]:
        """The record of each unit, in order, with its body."""
        records: list[StoredMessage | StoreError] = []
        while len(records) < len(units):
            offsets = [unit.commit_log_offset for unit in units[len(records) :]]
            outcomes = self._ask(partial(get_records, self.shard, offsets, PAGE_BYTES_MAX))
            assert outcomes, "an empty answer would be an endless loop"
            for index, outcome in enumerate(outcomes):
                if isinstance(outcome, StoredMessage) and outcome.body_omitted:
                    if index:
                        break
                    records.append(self._whole(outcome.commit_log_offset))
                    break
                records.append(outcome)
        return records

    def _whole(self, commit_log_offset: int) -> StoredMessage | StoreError:
        """A record whose body is too large for an answer with several records."""
        try:
            return self._ask(partial(get_record, self.shard, commit_log_offset))
        except ShardFailedError as failed:
            return failed.error

    def _note_problem(self, problem: StoreError | None) -> None:
        if problem is not None:
            self.note(problem)

    def _note_progress(self, progress: BuildProgress, *, behind: bool) -> None:
        known = least_built((self.outcome.progress, progress))
        self.outcome = replace(self.outcome, progress=known, complete=self.outcome.complete and not behind)

    def _ask(self, call: Callable[[Deadline], Answer]) -> Answer:
        def ask(deadline: Deadline) -> Answer:
            try:
                return call(deadline)
            except StoreError as error:
                raise ShardFailedError(error) from error

        return ask_until_gone(self._fan_out, ask, self._cancellation, self._deadline)


def _is_in_the_log(question: SearchQuestion, queues: Sequence[queue_pb.Queue]) -> bool:
    """Whether the queue has all its messages from where the search begins."""
    begin_offset = question.offsets.begin_offset
    return begin_offset is not None and any(
        queue.queue_id == question.queue_id and queue.min_offset <= begin_offset for queue in queues
    )


def _is_built(question: SearchQuestion, queues: Sequence[queue_pb.Queue]) -> bool:
    """Whether all positions in question are built, while the builder is behind.

    Only positions tell: a message that is not built yet may have any store time, where the clock of a broker was set back.
    """
    end_offset = question.offsets.end_offset
    return end_offset is not None and any(
        queue.queue_id == question.queue_id and queue.max_offset >= end_offset for queue in queues
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
