"""When a leader takes its disk for stuck; tests/cluster/test_disks.py has a real one."""

from collections.abc import Iterable

import pytest

from commitlog_svc.replication.disk_watch import DiskWatch

SECONDS_MAX = 5.0
STEP_SECONDS = 0.1


def looks(until: float, flushed_offset: int = 100, *, is_another_ahead: bool = True) -> list[tuple[float, int, bool]]:
    """Ten looks a second, up to a time."""
    return [(number * STEP_SECONDS, flushed_offset, is_another_ahead) for number in range(round(until / STEP_SECONDS))]


def stuck_at(looked: Iterable[tuple[float, int, bool]]) -> list[float]:
    watch = DiskWatch(SECONDS_MAX, 0.0)
    return [round(now, 1) for now, offset, is_ahead in looked if watch.is_stuck(now, offset, is_ahead)]


def test_a_flush_that_stands_still_while_another_replica_is_ahead_is_stuck_once() -> None:
    assert stuck_at(looks(20.0)) == [5.1]


@pytest.mark.parametrize(
    "looked",
    [
        pytest.param(looks(20.0, is_another_ahead=False), id="nobody has more, so all disks may be slow"),
        pytest.param([(now, round(now / 4), True) for now, *_ in looks(20.0)], id="it is slow and moves"),
        pytest.param([*looks(4.9), (4.9, 100, False), *((5 + now, 100, True) for now, *_ in looks(4.9))], id="in time"),
        pytest.param([*looks(4.0), (14.0, 100, True), (15.0, 100, True)], id="this process stood still itself"),
    ],
)
def test_a_disk_that_is_slow_or_not_alone_is_not_stuck(looked: list[tuple[float, int, bool]]) -> None:
    assert stuck_at(looked) == []
