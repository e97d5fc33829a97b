"""States and changes as `reput.schedule.v1.StateRecord`, the body of a record of the state topic, and back."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from reput.schedule.v1 import state_pb2 as pb
from schedule_svc.state.schedule_state import Passed, ScheduleState, TransactionsState

# Positions of a piece of a full state: some 2 to 10 bytes each, far below the limit of a message (4 MiB).
PIECE_COUNT_MAX = 100_000


def level_change(level: int, next_offset: int) -> pb.Change:
    """A delay level is delivered up to a position."""
    return pb.Change(level=pb.LevelPosition(level=level, next_offset=next_offset))


def timers_change(ended: Sequence[tuple[int, int]]) -> pb.Change:
    """Messages of the timer topic wait no longer: their positions, and when they were due (ms since 1970)."""
    offset_steps, due_steps = _steps_of_both(ended)
    return pb.Change(timers_done=pb.TimersDone(queue_offset_steps=offset_steps, due_steps=due_steps))


def timers_pieces(
    next_queue_offset: int, passed: Passed, pending: Sequence[int], done: Sequence[tuple[int, int]]
) -> Iterator[pb.FullState]:
    """The full state of the timers, in pieces.

    Args:
        next_queue_offset: see TimersState, as the others.
        passed: ...
        pending: sorted positions.
        done: positions and when they were due, sorted.
    """
    yield pb.FullState(
        timers=pb.TimersPassed(
            next_queue_offset=next_queue_offset, due_millis=passed.due_millis, due_queue_offset=passed.queue_offset
        )
    )
    for begin in range(0, max(len(pending), len(done)), PIECE_COUNT_MAX):
        end = begin + PIECE_COUNT_MAX
        offset_steps, due_steps = _steps_of_both(done[begin:end])
        yield pb.FullState(
            pending_steps=steps_of(pending[begin:end]), done_steps=offset_steps, done_due_steps=due_steps
        )


def apply_change(state: ScheduleState, change: pb.Change) -> None:
    """Apply a change; one of a later version is passed over."""
    match change.WhichOneof("change"):
        case "level":
            state.levels[change.level.level] = change.level.next_offset
        case "timers_done":
            done = change.timers_done
            state.timers.end(_both_of(done.queue_offset_steps, done.due_steps))
        case _:
            pass


def apply_piece(state: ScheduleState, piece: pb.FullState) -> None:
    """Add a piece of a full state to its draft."""
    for position in piece.levels:
        state.levels[position.level] = position.next_offset
    timers = state.timers
    if piece.HasField("timers"):
        timers.next_queue_offset = piece.timers.next_queue_offset
        timers.passed = Passed(piece.timers.due_millis, piece.timers.due_queue_offset)
    timers.pending.update(itertools.accumulate(piece.pending_steps))
    timers.done.update(_both_of(piece.done_steps, piece.done_due_steps))
    if piece.HasField("transactions"):
        state.transactions = TransactionsState(piece.transactions.half_offset, piece.transactions.op_offset)


def _steps_of_both(ended: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return steps_of([offset for offset, _ in ended]), steps_of([due_millis for _, due_millis in ended])


def _both_of(offset_steps: Iterable[int], due_steps: Iterable[int]) -> Iterator[tuple[int, int]]:
    return zip(itertools.accumulate(offset_steps), itertools.accumulate(due_steps), strict=True)


def steps_of(queue_offsets: Sequence[int]) -> list[int]:
    """The differences of positions, each from the one before."""
    return [after - before for before, after in itertools.pairwise((0, *queue_offsets))]
