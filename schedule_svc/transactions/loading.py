"""Reads the half messages that wait from the log: op records first, then the units of the half topic that none of them names.

Both topics are read page by page, from the positions of the newest full state on. Records of half messages are not read here.

OpPositions: where a start has to read op records from.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.transactions.half_messages import CheckRules, ended_by
from schedule_svc.transactions.pending_table import PendingTable
from services.reading.queue_reader import Reader, checked, is_removed
from store.errors import ServiceUnavailableError, StoreError
from store.format.derived.queue_unit import QueueUnit
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC

# Pairs that are kept; every second one goes when there are more.
PAIR_COUNT_MAX = 1_024


class OpPositions:
    """Pairs of positions of both topics at one moment: half messages behind the one are ended by op records behind the other.

    An op record always comes after the half messages that it names.

    Args:
        half_queue_offset: of the half topic: everything before it has ended.
        op_queue_offset: of the op topic: no op record before it names a half message behind.
    """

    def __init__(self, half_queue_offset: int, op_queue_offset: int) -> None:
        self._halves = [half_queue_offset]
        self._ops = [op_queue_offset]

    def note(self, half_next_offset: int, op_next_offset: int) -> None:
        """Both topics end here now."""
        if half_next_offset > self._halves[-1]:
            self._halves.append(half_next_offset)
            self._ops.append(op_next_offset)
        elif half_next_offset == self._halves[-1]:
            self._ops[-1] = max(self._ops[-1], op_next_offset)  # no half message came meanwhile
        if len(self._halves) > PAIR_COUNT_MAX:
            del self._halves[1:-1:2], self._ops[1:-1:2]

    def op_offset(self, half_queue_offset: int) -> int:
        """Op records of half messages at or behind a queue offset are at or behind this one; earlier pairs are forgotten."""
        place = max(bisect_right(self._halves, half_queue_offset) - 1, 0)
        del self._halves[:place], self._ops[:place]
        return self._ops[0]


PAGE_COUNT = 1_000
OP_BODY_BYTES_PAGE_MAX = 4 << 20


class Loaded:
    """The half messages that wait, as the log has them.

    Args:
        reader: of queues and records.
        rules: when producers are asked.
        half_queue_offset: everything of the half topic before it has ended.
        op_queue_offset: no op record before it names a half message behind that.

    Attributes:
        table: of the half messages.
        positions: of both topics.
        op_next_offset: end of the op topic.
        removed_count: half messages without a verdict that retention removed.

    Raises:
        StoreError: the log or the queues cannot be read.
    """

    def __init__(self, reader: Reader, rules: CheckRules, half_queue_offset: int, op_queue_offset: int) -> None:
        halves = reader.range(HALF_TOPIC, 0)
        half_end = halves.max_offset
        # Without a full state it is not known what became of the removed ones.
        begin = min(half_queue_offset or halves.min_offset, half_end)
        ended = bytearray(half_end - begin)
        self.op_next_offset = op_queue_offset
        for queue_offset, record in _op_records(reader, op_queue_offset):
            self.op_next_offset = queue_offset + 1
            for half in ended_by(record) if record is not None else ():
                if begin <= half < half_end:
                    ended[half - begin] = 1
        self.table = PendingTable(rules, begin)
        self.removed_count = 0
        for first, units in _pages(reader, HALF_TOPIC, begin, half_end):
            # What is missing before the first unit of the queue is gone.
            self.removed_count += ended[self.table.next_queue_offset - begin : first - begin].count(0)
            for queue_offset, unit in enumerate(units, first):
                if ended[queue_offset - begin]:
                    self.table.pass_ended(queue_offset)
                else:
                    self.table.add(queue_offset, unit.commit_log_offset, 0)
        self.removed_count += ended[self.table.next_queue_offset - begin :].count(0)
        self.table.next_queue_offset = half_end
        self.positions = OpPositions(begin, min(op_queue_offset, self.op_next_offset))
        self.positions.note(self.table.next_queue_offset, self.op_next_offset)


def _pages(reader: Reader, topic: str, begin: int, end: int) -> Iterator[tuple[int, Sequence[QueueUnit]]]:
    """The units of queue 0 of a topic, with the position of the first of each page."""
    while begin < end:
        run = reader.units(topic, 0, begin, min(PAGE_COUNT, end - begin))
        if run.queue_offset >= end:
            return  # retention removed them
        if not run.units:
            raise ServiceUnavailableError(
                f"topic {topic} has no unit at {begin}, but ends at {end}: its queue is being built again"
            )
        yield run.queue_offset, run.units
        begin = run.queue_offset + len(run.units)


def _op_records(reader: Reader, begin: int) -> Iterator[tuple[int, StoredMessage | None]]:
    """The op records from a position on, with their positions; None for one that retention removed meanwhile."""
    for first, units in _pages(reader, OP_HALF_TOPIC, begin, reader.range(OP_HALF_TOPIC, 0).max_offset):
        read = 0
        while read < len(units):
            for found in reader.records(units[read:], OP_BODY_BYTES_PAGE_MAX):
                outcome = checked(found, OP_HALF_TOPIC, 0, first + read)
                if isinstance(outcome, StoreError):
                    if not is_removed(outcome):
                        raise outcome
                    yield first + read, None
                elif outcome.body_omitted:
                    break
                else:
                    yield first + read, outcome
                read += 1
