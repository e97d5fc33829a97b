"""DelayLevels: delivers the messages of `SCHEDULE_TOPIC_XXXX`.

Queue n - 1 has the messages of level n, and all of them wait equally long. So each queue is delivered from its front, and what
is known of it is one number: the position of the next message. A message is due at its store time and the delay of its level.
Messages of one level come in the order in which they were stored.
"""

from collections.abc import Iterator, Sequence

from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1 import state_pb2
from schedule_svc.batches import BATCH_COUNT_MAX, BatchReader, EndedBatch, UnderWay, is_lost
from schedule_svc.due_record import level_due
from schedule_svc.life import NEVER_MILLIS, Life
from schedule_svc.state.codec import level_change
from services.convert import timestamp_to_millis
from services.reading.queue_reader import UnitRun, checked
from store.errors import StoreError
from store.format.topic import SCHEDULE_TOPIC

LOOK_MILLIS = 500  # on a store that is only read


class DelayLevels:
    """A WaitingKind (`life.py`); see the top of this file.

    Args:
        life: what the kinds share.
        batches: reads messages.
        next_offsets: the position of the next message, by level.
        delays_millis: how long messages wait, by level from 1 on; in a queue behind them as long as in the last.

    Attributes:
        delivered_count: messages appended.
        skipped_count: messages that were not there any more, or could not be delivered.
    """

    name = "levels"
    topics = frozenset((SCHEDULE_TOPIC,))

    def __init__(
        self, life: Life, batches: BatchReader, next_offsets: dict[int, int], delays_millis: Sequence[int]
    ) -> None:
        self.delivered_count = 0
        self.skipped_count = 0
        self._life = life
        self._batches = batches
        self._next_offsets = next_offsets
        self._delays_millis = delays_millis
        self._due_millis: dict[int, int] = {}  # of the first message, by level
        self._first_bytes: dict[int, int] = {}  # its place in the log, or that of one before it
        self._under_way = UnderWay()

    def begin(self) -> None:
        """See WaitingKind."""

    def work(self) -> int:
        """See WaitingKind: a batch of each level."""
        wait_millis = NEVER_MILLIS
        failure: StoreError | None = None
        for level in self._levels():
            try:
                self._work_at(level)
            except StoreError as error:  # the other levels go on
                failure = failure or error
            wait_millis = min(wait_millis, self._due_millis.get(level, NEVER_MILLIS))
        if failure is not None:
            raise failure
        if self._life.is_read_only:  # what is due is another's to deliver
            return max(wait_millis, self._life.clock.millis() + LOOK_MILLIS)
        return wait_millis

    def _work_at(self, level: int) -> None:
        if level not in self._due_millis:
            self._look(level)
        if self._due_millis.get(level, NEVER_MILLIS) <= self._life.clock.millis() and not self._life.is_read_only:
            self._deliver(level)

    def pass_to(self, level: int, position: int) -> None:
        """Note that a broker has delivered everything before a position; the caller holds the lock of the life."""
        self._next_offsets[level] = max(position, self._next_offsets.get(level, 0))
        self._due_millis.pop(level, None)  # it is looked at again, also after a look that was under way here

    def has_state(self) -> bool:
        """See WaitingKind."""
        return bool(self._next_offsets)

    def pieces(self) -> Iterator[state_pb2.FullState]:
        """See WaitingKind."""
        if self._next_offsets:
            positions = [
                state_pb2.LevelPosition(level=level, next_offset=offset)
                for level, offset in sorted(self._next_offsets.items())
            ]
            yield state_pb2.FullState(levels=positions)

    def needed_offset(self) -> int:
        """See WaitingKind: a first message that was not looked at yet is behind the one before it, or anywhere."""
        with self._life.lock:
            needed = [self._under_way.needed_offset()]
            waiting = [level for level in self._levels() if self._next_offsets.get(level, 0) < self._end(level)]
            needed += [self._first_bytes.get(level, 0) for level in waiting]
        return min(needed)

    def stop(self, *, is_clean: bool) -> None:
        """See WaitingKind."""

    def pending_count(self) -> int:
        """Messages that wait, or whose request is under way."""
        with self._life.lock:
            waiting = sum(max(0, self._end(level) - self._next_offsets.get(level, 0)) for level in self._levels())
            return waiting + self._under_way.message_count()

    def oldest_due_millis(self) -> int:
        """When the first message of all is due; NEVER_MILLIS for none."""
        return min([self._under_way.oldest_due_millis(), *self._due_millis.values()])

    def due_of(self, message: StoredMessage) -> int:
        """When a message of the topic is due (ms since 1970)."""
        delay = self._delays_millis[min(message.queue_id, len(self._delays_millis) - 1)]
        return timestamp_to_millis(message.store_time, "store_time") + delay

    def next_offset(self, level: int) -> int:
        """The position of the next message of a level."""
        return self._next_offsets.get(level, 0)

    def positions(self) -> Sequence[tuple[int, int, int]]:
        """Of each level that has had messages, by level: it, the position of the next message, and the end of its queue."""
        with self._life.lock:
            return [(level, self.next_offset(level), self._end(level)) for level in self._levels()]

    def _levels(self) -> Sequence[int]:
        """The levels that have had messages."""
        return [queue_id + 1 for queue_id in sorted(self._life.reader.recent.ends(SCHEDULE_TOPIC))]

    def _end(self, level: int) -> int:
        return self._life.reader.recent.end(SCHEDULE_TOPIC, level - 1)

    def _run(self, level: int, count: int) -> UnitRun | None:
        """The next units of a level; None while there are none."""
        next_offset = self._next_offsets.get(level, 0)
        if next_offset >= self._end(level):
            return None
        run = self._life.reader.units(SCHEDULE_TOPIC, level - 1, next_offset, count)
        return run if run.units else None

    def _look(self, level: int) -> None:
        """Find out when the first message of a level is due."""
        run = self._run(level, 1)
        if run is None:
            return
        self._first_bytes[level] = run.units[0].commit_log_offset
        (outcome,) = self._batches.read(run.units)
        if isinstance(outcome, StoreError):
            if not is_lost(outcome):
                raise outcome
            self._due_millis[level] = self._life.clock.millis()  # it is skipped at once
        else:
            self._due_millis[level] = self.due_of(outcome)

    def _deliver(self, level: int) -> None:
        """Submit the next due messages of a level; what is first then is looked at later."""
        self._under_way.wait_for_room()
        run = self._run(level, BATCH_COUNT_MAX)
        if run is None:
            self._due_millis.pop(level, None)
            return
        units = run.units[: self._batches.fitting_count([unit.record_size_bytes for unit in run.units])]
        now_millis = self._life.clock.millis()
        offset = run.queue_offset
        next_offset = self._next_offsets.get(level, 0)
        ended = EndedBatch("level", self._count)
        ended.skip_removed(next_offset, offset - next_offset)
        for found in self._batches.read(units):
            outcome = checked(found, SCHEDULE_TOPIC, level - 1, offset)
            if isinstance(outcome, StoreError):
                if not is_lost(outcome):
                    if offset == run.queue_offset:
                        raise outcome
                    break  # the messages before it go; it is first the next time
                ended.skip(offset, units[offset - run.queue_offset].commit_log_offset, outcome)
            elif self.due_of(outcome) > now_millis:
                break
            elif (record := level_due(outcome)) is None:
                ended.skip(offset, outcome.commit_log_offset, outcome)
            else:
                ended.append(outcome, record)
            offset += 1
        first_due_millis = self._due_millis.pop(level, NEVER_MILLIS)
        if offset == next_offset:
            return
        with self._life.lock:
            self._next_offsets[level] = offset
            change = level_change(level, offset)
            written = self._life.change([change], ended.records, may_lose=True, on_written=ended.on_written)
            first_byte = units[0].commit_log_offset
            self._under_way.add(
                written, offset - run.queue_offset, first_byte, first_due_millis
            )  # at every moment in one place
        self._look(level)

    def _count(self, delivered_count: int, skipped_count: int) -> None:
        with self._life.lock:
            self.delivered_count += delivered_count
            self.skipped_count += skipped_count
