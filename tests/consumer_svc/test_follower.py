"""What the follower asks of the state for each batch of the log."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from consumer_svc.follower import LIGHT_COUNT_A_CHANGE, ConsumerFollower
from consumer_svc.state_topic import FULL_CHANGE_COUNT


@pytest.mark.parametrize(
    ("change_count", "light_count", "has_many"),
    [
        (FULL_CHANGE_COUNT, 0, True),
        (FULL_CHANGE_COUNT, LIGHT_COUNT_A_CHANGE * (FULL_CHANGE_COUNT + 1), False),
        (FULL_CHANGE_COUNT + 1, LIGHT_COUNT_A_CHANGE * (FULL_CHANGE_COUNT + 1), True),
    ],
)
def test_positions_are_counted_under_the_lock_because_groups_come_and_go(
    change_count: int, light_count: int, has_many: bool
) -> None:
    lock = threading.Lock()

    def count() -> int:
        assert lock.locked()
        return light_count

    states = SimpleNamespace(light_count=count)
    follower: Any = SimpleNamespace(
        _writer=SimpleNamespace(changes_behind_full=change_count), _life=SimpleNamespace(lock=lock, states=states)
    )
    assert ConsumerFollower.has_many_changes(follower) is has_many


def test_a_batch_of_the_log_does_not_count_the_positions_of_all_groups() -> None:
    # Neither the life nor its states are asked.
    follower: Any = SimpleNamespace(_writer=SimpleNamespace(changes_behind_full=FULL_CHANGE_COUNT - 1))
    assert not ConsumerFollower.has_many_changes(follower)


def test_a_full_state_that_replaces_an_older_one_was_written_twice() -> None:
    """The one that a life began with was not known to be under way, and the older one is far behind the log."""
    fulls: list[Future[int]] = []

    def write_full() -> Future[int]:
        fulls.append(Future())
        return fulls[-1]

    follower: Any = SimpleNamespace(
        _is_older=True,
        _full=None,
        _writer=SimpleNamespace(),
        _life=SimpleNamespace(write_full=write_full),
        _expirer=SimpleNamespace(start=lambda: None),
        has_state=lambda: True,
        has_many_changes=lambda: True,
        write_full=write_full,
    )
    ConsumerFollower.begin(follower)
    ConsumerFollower._keep_full_state(follower)
    assert len(fulls) == 1
