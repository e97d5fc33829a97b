"""The calls of a scan to one shard: its queues, their ranges, units, and records with their bodies.

Each call to a port runs on another thread (asking.py), so a cancelled search ends at once. It gets half of the time that is
left, so a shard that hangs leaves time for the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from gateway.ports.cancellation import Cancellation
from gateway.ports.deadline import Deadline
from gateway.ports.fan_out import FanOut
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
)
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome, least_built
from gateway.queries.limits import PAGE_BYTES_MAX
from gateway.search.asking import ask_until_gone
from gateway.search.question import OffsetWindow, SearchQuestion
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError

Answer = TypeVar("Answer")


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
    """Whether the search begins where the queue has all that was ever in it."""
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
