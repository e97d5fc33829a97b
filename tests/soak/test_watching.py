"""The rule by which memory, descriptors and threads of a process are flat."""

import os
from collections.abc import Callable

import pytest

from tests.soak.watching import FLOOR, JUDGED_SECONDS_MIN, Life, Measures, Sample, Watch, growth_problems, quarters
from tests.support.waiting import wait_until

LIFE = Life("r3", "commitlog_svc", 17)
SECONDS = 2 * JUDGED_SECONDS_MIN


def samples(measure: Callable[[float], float], seconds: float = SECONDS) -> list[Sample]:
    """A life in which PSS follows the share of its time that is over, and the rest stays."""
    return [Sample(seconds * n / 100, Measures(measure(n / 100), 40, 20)) for n in range(101)]


def test_the_quarters_of_a_life_have_their_medians() -> None:
    assert [each.pss_mib for each in quarters(samples(lambda share: int(share * 4)))] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("measure", "is_flat"),
    [
        (lambda share: 100.0, True),
        (lambda share: 100.0 if share < 0.6 else 100.0 + FLOOR.pss_mib, True),
        (lambda share: 20.0 + min(share, 0.2) * 1000, True),  # caches that fill at first
        (lambda share: 100.0 + 100.0 * share, False),
        (lambda share: 1000.0 + 250.0 * share, True),  # within a tenth and the floor
        (lambda share: 1000.0 + 400.0 * share, False),
    ],
)
def test_a_life_is_flat_when_its_last_quarter_is_near_its_second_one(
    measure: Callable[[float], float], is_flat: bool
) -> None:
    assert (growth_problems({LIFE: samples(measure)}) == []) is is_flat


def test_the_watch_ended_when_a_member_was_replaced() -> None:
    def pid_of(member: str) -> int:
        assert member == "r1", "it was started"
        return os.getpid()

    with Watch(pid_of, ["r2", "r1"], seconds=1.0) as watch:
        wait_until(lambda: watch.lives, "a sample of the other member")
    assert {(life.member, life.pid) for life in watch.lives} >= {("r1", os.getpid())}


def test_a_short_life_is_not_judged() -> None:
    assert growth_problems({LIFE: samples(lambda share: 1000 * share, JUDGED_SECONDS_MIN / 2)}) == []
