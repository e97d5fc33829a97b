"""Locks of queues: RocketMQ's RebalanceLockManager, and what a start of the service adds."""

import random

import pytest

from consumer_svc.queue_locks import CLIENT_ID_LENGTH_MAX, LOCK_SECONDS, QUEUE_COUNT_MAX, QueueLocks
from consumer_svc.state.queue_state import QueueRef
from store.errors import InvalidArgumentError, ResourceBusyError

FIRST, SECOND = QueueRef("g", "t", 0), QueueRef("g", "t", 1)


class Clock:
    """Stands until a test moves it; seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def lock(locks: QueueLocks, client_id: str, *queues: QueueRef, renew: bool = False, consumed: bool = False):
    return locks.lock(client_id, queues, renew=renew, was_consumed=lambda _: consumed)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def locks(clock: Clock) -> QueueLocks:
    return QueueLocks(clock)


def test_a_queue_belongs_to_the_first_until_it_unlocks_it(locks: QueueLocks) -> None:
    assert lock(locks, "a", FIRST) == [FIRST]
    assert lock(locks, "b", FIRST, SECOND) == [SECOND]
    locks.unlock("b", [FIRST])  # of another member: without effect
    assert lock(locks, "b", FIRST) == []
    locks.unlock("a", [FIRST, SECOND])
    assert lock(locks, "b", FIRST) == [FIRST]
    assert lock(locks, "a", FIRST, SECOND) == []


def test_a_group_has_locks_until_all_are_unlocked_or_over(locks: QueueLocks, clock: Clock) -> None:
    assert not locks.has_some("g")
    lock(locks, "a", FIRST)
    clock.now += LOCK_SECONDS / 2
    lock(locks, "b", SECOND)
    locks.unlock("b", [SECOND])
    assert (locks.has_some("g"), locks.has_some("other")) == (True, False)
    clock.now += LOCK_SECONDS / 2
    assert not locks.has_some("g")
    lock(locks, "a", FIRST)
    locks.unlock("a", [FIRST])
    assert not locks.has_some("g")
    lock(locks, "a", FIRST)
    locks.begin_again()
    assert not locks.has_some("g")


def test_another_group_has_locks_of_its_own(locks: QueueLocks) -> None:
    other = QueueRef("other", "t", 0)
    assert lock(locks, "a", FIRST) == [FIRST]
    assert lock(locks, "b", other) == [other]


def test_a_lock_is_over_sixty_seconds_after_it_was_asked_for_last(locks: QueueLocks, clock: Clock) -> None:
    assert LOCK_SECONDS == 60.0  # REBALANCE_LOCK_MAX_LIVE_TIME
    lock(locks, "a", FIRST)
    clock.now += 59.9
    assert lock(locks, "a", FIRST) == [FIRST]
    clock.now += 59.9
    assert lock(locks, "b", FIRST) == []
    clock.now += 0.2
    assert lock(locks, "b", FIRST) == [FIRST]
    assert lock(locks, "a", FIRST, renew=True) == []


def test_after_a_start_only_the_member_that_had_a_queue_gets_it(locks: QueueLocks, clock: Clock) -> None:
    assert lock(locks, "b", FIRST, SECOND, consumed=True) == []
    assert lock(locks, "a", FIRST, renew=True, consumed=True) == [FIRST]
    assert lock(locks, "b", FIRST, renew=True, consumed=True) == []
    clock.now += LOCK_SECONDS
    assert lock(locks, "b", SECOND, consumed=True) == [SECOND]


def test_a_queue_that_was_unlocked_after_the_start_is_free_at_once(locks: QueueLocks) -> None:
    lock(locks, "a", FIRST, renew=True, consumed=True)
    locks.unlock("a", [FIRST])
    assert lock(locks, "b", FIRST, consumed=True) == [FIRST]


def test_a_queue_without_a_position_is_free_at_once_after_a_start(locks: QueueLocks) -> None:
    assert lock(locks, "a", FIRST) == [FIRST]


@pytest.mark.parametrize(
    ("client_id", "queues"),
    [
        ("", [FIRST]),
        ("c" * (CLIENT_ID_LENGTH_MAX + 1), [FIRST]),
        ("a", []),
        ("a", [FIRST] * (QUEUE_COUNT_MAX + 1)),
        ("a", [QueueRef("g", "", 0)]),
        ("a", [QueueRef("g", "t" * 256, 0)]),
        ("a", [FIRST, QueueRef("g", "t", -1)]),
        ("a", [QueueRef("g", "t", 1 << 30)]),
    ],
)
def test_names_and_numbers_that_are_none_lock_nothing(
    locks: QueueLocks, client_id: str, queues: list[QueueRef]
) -> None:
    with pytest.raises(InvalidArgumentError):
        lock(locks, client_id, *queues)
    with pytest.raises(InvalidArgumentError):
        locks.unlock(client_id, queues)
    assert lock(locks, "b", FIRST) == [FIRST]


def test_locks_that_are_over_make_room_and_those_that_hold_are_limited(
    clock: Clock,
) -> None:
    locks = QueueLocks(clock, count_max=40_000)
    clock.now += LOCK_SECONDS

    def lock_many(group: str) -> None:
        for number in range(4_000):
            lock(locks, "a", QueueRef(group, "t", number))

    lock_many("g")
    with pytest.raises(ResourceBusyError):
        lock(locks, "a", QueueRef("more", "t", 0))
    assert lock(locks, "a", FIRST) == [FIRST]  # it is known
    clock.now += LOCK_SECONDS
    lock_many("others")


def test_no_queue_is_ever_held_by_two_whatever_is_asked(clock: Clock) -> None:
    seed = random.randrange(1 << 32)
    random_ = random.Random(seed)
    locks = QueueLocks(clock)
    held: dict[tuple[QueueRef, str], float] = {}  # until when, as the member knows
    for step in range(5_000):
        clock.now += random_.expovariate(0.2)
        client_id, ref = random_.choice("abc"), random_.choice([FIRST, SECOND])
        has = held.get((ref, client_id), 0.0) > clock.now
        if random_.random() < 0.01:
            locks = QueueLocks(clock)  # the service starts again
        elif random_.random() < 0.1:
            locks.unlock(client_id, [ref])
            held.pop((ref, client_id), None)
        elif lock(locks, client_id, ref, renew=has, consumed=True):
            held[ref, client_id] = clock.now + LOCK_SECONDS
        holders = [name for (of, name), until in held.items() if of == ref and until > clock.now]
        assert len(holders) <= 1, f"seed {seed}, step {step}: {holders}"
