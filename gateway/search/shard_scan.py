"""What a scan asks of one shard: its queues, where each begins and ends, units, and records with their bodies.

Every call to a port runs on another thread (asking.py), so that a caller that goes is free at once, and has half of the
time that is left, so that a shard that hangs leaves some for the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from gateway.completeness import ShardOutcome
from gateway.deadline import Deadline
from gateway.fan_out import FanOut
from gateway.limits import PAGE_BYTES_MAX
from gateway.ports import Boundary, BuildProgress, FoundRecord, QueueRange, Shard, Unit
from gateway.search.asking import ask_until_gone
from gateway.search.cancellation import Cancellation
from gateway.search.question import OffsetWindow, SearchQuestion
from gateway.time_window import TimeWindow
from store.errors import StoreError

Answer = TypeVar("Answer")


class ShardFailedError(Exception):
    """The shard did not answer.

    Args:
        error: why.
    """

    def __init__(self, error: StoreError) -> None:
        super().__init__(error.message)
        self.error = error


class ShardScan:
    """Asks one shard for one call.

    Args:
        shard: the shard.
        fan_out: the threads on which it is asked, one at a time.
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
        """Matches may be missing; the first reason is kept."""
        self.outcome = replace(self.outcome, error=self.outcome.error or problem, complete=False)

    def queues(self, question: SearchQuestion) -> list[QueueRange]:
        """The topic's queues by number. One that is not built yet is not among them: that is noted where it may matter."""
        topic = question.topic
        if self.shard.archive is not None:
            self._note_problem(self._ask(partial(self.shard.archive.problem, topic)))
        # Before the queues, so that what is built between the two calls is not missed.
        progress = self._ask(partial(self.shard.queues.progress, 0, 0.0))
        queues = self._ask(partial(self.shard.queues.list_queues, topic))
        self._note_progress(progress, behind=progress.is_behind and not _is_built(question, queues, progress))
        return sorted(queues, key=lambda queue: queue.queue_id)

    def window(self, queue: QueueRange, offsets: OffsetWindow, times: TimeWindow) -> tuple[int, int]:
        """The positions of a queue among which all of a window are; by time as SearchOffset finds them."""
        begin = max(queue.min_offset, offsets.begin_offset or 0)
        end = queue.max_offset if offsets.end_offset is None else min(queue.max_offset, offsets.end_offset)
        if begin >= end:
            return begin, begin
        begin_millis, end_millis = times.begin_millis, times.end_millis
        search = partial(self.shard.queues.search_offset, queue.topic, queue.queue_id)
        # Where part of an archive cannot be had, a position says nothing: each record's time is looked at anyway.
        if begin_millis is not None:
            found = self._ask(partial(search, begin_millis, Boundary.LOWER))
            self._note_problem(found.problem)
            if found.problem is None:
                begin = max(begin, found.queue_offset)
        if end_millis is not None:
            found = self._ask(partial(search, end_millis, Boundary.UPPER))
            self._note_problem(found.problem)
            if found.problem is None:
                end = min(end, found.queue_offset + 1)
        return begin, max(begin, end)

    def units(self, topic: str, queue_id: int, begin: int, end: int) -> list[Unit]:
        """All units of `[begin, end)`, in queue order; there are none where retention or an archive has left a hole."""
        units: list[Unit] = []
        while begin < end:
            stretch = self._ask(partial(self.shard.queues.units, topic, queue_id, begin, end - begin))
            self._note_problem(stretch.problem)
            self._note_progress(stretch.progress, behind=stretch.progress.is_behind and end >= stretch.max_offset)
            given = [unit for unit in stretch.units if begin <= unit.queue_offset < end]
            units += given
            if given:
                begin = given[-1].queue_offset + 1
            elif begin < stretch.min_offset:
                begin = stretch.min_offset
            else:
                break
        return units

    def records(self, units: Sequence[Unit]) -> list[FoundRecord | StoreError]:
        """The record of each unit, in order, with its body."""
        records: list[FoundRecord | StoreError] = []
        while len(records) < len(units):
            offsets = [unit.commit_log_offset for unit in units[len(records) :]]
            outcomes = self._ask(partial(self.shard.records.get_many, offsets, PAGE_BYTES_MAX))
            assert outcomes, "a reader that answers nothing would be asked for ever"
            for index, outcome in enumerate(outcomes):
                if isinstance(outcome, FoundRecord) and outcome.body_omitted:
                    if index:
                        break
                    records.append(self._whole(outcome.commit_log_offset))
                    break
                records.append(outcome)
        return records

    def _whole(self, commit_log_offset: int) -> FoundRecord | StoreError:
        """A record whose body fits no answer of several."""
        try:
            return self._ask(partial(self.shard.records.get, commit_log_offset))
        except ShardFailedError as failed:
            return failed.error

    def _note_problem(self, problem: StoreError | None) -> None:
        if problem is not None:
            self.note(problem)

    def _note_progress(self, progress: BuildProgress, *, behind: bool) -> None:
        self.outcome = replace(self.outcome, progress=progress, complete=self.outcome.complete and not behind)

    def _ask(self, call: Callable[[Deadline], Answer]) -> Answer:
        def ask(deadline: Deadline) -> Answer:
            try:
                return call(deadline)
            except StoreError as error:
                raise ShardFailedError(error) from error

        return ask_until_gone(self._fan_out, ask, self._cancellation, self._deadline)


def _is_built(question: SearchQuestion, queues: Sequence[QueueRange], progress: BuildProgress) -> bool:
    """Whether all that the question is about is built, however far behind the builder is: queues are built in order."""
    end_millis, built_millis, end_offset = (
        question.times.end_millis,
        progress.built_up_to_millis,
        question.offsets.end_offset,
    )
    if end_millis is not None and built_millis is not None and end_millis < built_millis:
        return True
    return end_offset is not None and any(
        queue.queue_id == question.queue_id and queue.max_offset >= end_offset for queue in queues
    )
