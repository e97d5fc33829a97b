"""What lies before and behind a message of a message group, as a look at all messages says it."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from consumer_svc.state.message_groups import FEW_COUNT_MAX
from consumer_svc.state.queue_state import (
    Ended,
    HandedOut,
    Hidden,
    Lease,
    Moved,
    Postponed,
    QueueChange,
    QueueRef,
    QueueState,
    Released,
    Returned,
)

REF = QueueRef("g", "t", 0)
STEP_COUNT = 400


def scanned_behind(state: QueueState, lease: Lease) -> list[int]:
    """Those behind a message, by a look at each."""
    return sorted(
        at
        for at, other in state.leases.items()
        if at > lease.queue_offset and other.message_group == lease.message_group and not other.is_released
    )


def scanned_is_behind(state: QueueState, lease: Lease) -> bool:
    """Whether a message is behind another, by a look at each."""
    return any(
        other.queue_offset < lease.queue_offset and other.message_group == lease.message_group
        for others in (state.leases, state.waiting)
        for other in others.values()
    )


class History:
    """Random changes of a queue, likely and unlikely ones.

    Args:
        seed: of what is random.
        offset_max: the highest position.
        group_count: how many message groups there are.
    """

    def __init__(self, seed: int, offset_max: int, group_count: int) -> None:
        self.random = random.Random(seed)
        self.offset_max, self.group_count = offset_max, group_count
        self.state = QueueState()

    def asked(self) -> Iterator[Lease]:
        """Leases that are there, and some that are not."""
        yield from self.random.sample(list(self.state.leases.values()), min(4, len(self.state.leases)))
        yield from (self.lease() for _ in range(2))

    def change(self) -> QueueChange:
        """The next change."""
        many = range(self.random.choice((1, 3, 30)))
        match self.random.choices(range(8), (6, 3, 3, 2, 4, 4, 1, 3))[0]:
            case 0:
                return HandedOut(REF, 0, [self.lease() for _ in many], [self.waiting() for _ in many])
            case 1:
                return Ended(REF, [self.offset() for _ in many], moved=self.random.random() < 0.5)
            case 2:
                return Hidden(REF, self.offset(), 0, is_released=self.random.random() < 0.5)
            case 3:
                return Released(REF, [self.offset() for _ in many])
            case 4:
                chosen = self.random.sample(list(self.state.leases.values()), min(len(many), len(self.state.leases)))
                return Returned(REF, [lease.returned() for lease in chosen])
            case 5:
                lease = next(self.asked())
                return Released(REF, scanned_behind(self.state, lease))
            case 6:
                return Moved(REF, self.offset()) if self.random.random() < 0.2 else Returned(REF, [self.waiting()])
            case _:
                again = [replace(lease, is_released=False) for lease in self.asked()]
                return HandedOut(REF, 0, again)

    def offset(self) -> int:
        """A position."""
        return self.random.randint(0, self.offset_max)

    def lease(self) -> Lease:
        """A message in flight; mostly of the message group of its position."""
        at = self.offset()
        return Lease(at, 1, 0, 0, message_group=self.group(at), is_released=self.random.random() < 0.2)

    def waiting(self) -> Postponed:
        """A message that waits."""
        at = self.offset()
        return Postponed(at, 1, 0, self.group(at))

    def group(self, at: int) -> str:
        """A message group."""
        return str((at if self.random.random() < 0.9 else self.offset()) % self.group_count)


@pytest.mark.parametrize(("offset_max", "group_count"), [(6, 1), (40, 1), (60, 3), (200, 7), (100, 100)])
@pytest.mark.parametrize("seed", range(6))
def test_random_histories_are_answered_as_a_look_at_every_message_does(
    seed: int, offset_max: int, group_count: int
) -> None:
    history = History(seed, offset_max, group_count)
    state = history.state
    for _ in range(STEP_COUNT):
        state.apply(history.change())
        if state.leases and history.random.random() < 0.1:
            # the expirer marks a lease itself before its end is applied
            history.random.choice(list(state.leases.values())).is_released = True
        if history.random.random() < 0.7:
            for lease in history.asked():
                assert list(state.behind(lease)) == scanned_behind(state, lease)
                assert state.is_behind(lease) is scanned_is_behind(state, lease)


@pytest.mark.parametrize("count", [FEW_COUNT_MAX, FEW_COUNT_MAX + 1])
def test_a_delivery_that_counts_again_is_behind_again(count: int) -> None:
    state = QueueState()
    leases = [Lease(at, 1, 0, 0, message_group="A") for at in range(count)]
    state.apply(HandedOut(REF, count, leases))
    state.apply(Released(REF, range(count)))
    assert state.behind(leases[0]) == []
    state.apply(Hidden(REF, count - 1, 0))
    assert state.behind(leases[0]) == [count - 1]
    state.apply(HandedOut(REF, count, [replace(leases[1], is_released=False)]))
    assert state.behind(leases[0]) == [1, count - 1]


def test_what_is_over_is_not_kept_by_message_group() -> None:
    state = QueueState()
    for at in range(10_000):
        lease = Lease(at, 1, 0, 0, message_group=f"group {at}")
        state.apply(HandedOut(REF, at + 1, [lease]))
        assert not state.is_behind(lease)
        state.apply(Ended(REF, [at]))
    assert state._message_groups is None


def test_a_message_that_returns_in_another_message_group_is_before_those_of_that_group() -> None:
    state = QueueState()
    before, lease = Lease(0, 1, 0, 0, message_group="A"), Lease(1, 1, 0, 0, message_group="B")
    state.apply(HandedOut(REF, 2, [before, lease]))
    assert not state.is_behind(lease)
    state.apply(Returned(REF, [replace(before, message_group="B").returned()]))
    assert state.is_behind(lease)
