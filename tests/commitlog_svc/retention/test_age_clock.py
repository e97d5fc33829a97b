"""Ages: what really passed counts, whatever the wall clock says."""

import dataclasses
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from commitlog_svc.retention.age_clock import BELIEVED_MILLIS_MAX, AgeClock, read_boot_id

YEARS_10_MILLIS = 10 * 365 * 86_400_000
HOUR_MILLIS = 3_600_000


@dataclasses.dataclass
class Clocks:
    wall: int = 1_700_000_000_000
    boot: int = 50_000
    boot_id: str = "a"

    def start(self) -> AgeClock:
        return AgeClock(lambda: self.wall, lambda: self.boot, self.boot_id)


@pytest.mark.parametrize("jump_millis", [YEARS_10_MILLIS, -2 * HOUR_MILLIS, -YEARS_10_MILLIS, 59_999])
def test_a_jump_while_running_ages_nothing(jump_millis: int) -> None:
    clocks = Clocks()
    clock = clocks.start()
    clocks.boot += 1000
    clocks.wall += 1000 + jump_millis

    assert 1000 == clock.now_millis() == clock.read().age_millis


@pytest.mark.parametrize("jump_millis", [YEARS_10_MILLIS, -2 * HOUR_MILLIS])
def test_a_restart_within_one_boot_counts_what_passed_in_between(jump_millis: int) -> None:
    clocks = Clocks()
    last = clocks.start().read()
    clocks.boot += 5000
    clocks.wall += jump_millis
    clock = clocks.start()
    clock.resume(last)

    assert last.age_millis + 5000 == clock.now_millis()


@pytest.mark.parametrize(
    ("difference_millis", "believed_millis"),
    [
        (0, 0),
        (HOUR_MILLIS, HOUR_MILLIS),
        (BELIEVED_MILLIS_MAX, BELIEVED_MILLIS_MAX),
        (BELIEVED_MILLIS_MAX + 1, 0),
        (YEARS_10_MILLIS, 0),
        (-1, 0),
        (-2 * HOUR_MILLIS, 0),
    ],
)
def test_across_boots_the_wall_clock_is_believed_within_a_week(difference_millis: int, believed_millis: int) -> None:
    clocks = Clocks()
    last = clocks.start().read()
    clocks.boot, clocks.boot_id = 700, "b"
    clocks.wall += difference_millis
    clock = clocks.start()
    clock.resume(last)
    clocks.boot += 30

    assert last.age_millis + believed_millis + 30 == clock.now_millis()


def test_a_jump_of_a_minute_is_told_once_and_slow_drift_is_not() -> None:
    clocks = Clocks()
    clock = clocks.start()
    with capture_logs() as logs:
        for _ in range(100):
            clocks.boot += 600_000
            clocks.wall += 601_000
            clock.read()
    assert [] == logs

    clocks.wall -= HOUR_MILLIS
    with capture_logs() as logs:
        clock.read()
        clock.read()

    assert [("clock.jumped", -HOUR_MILLIS)] == [(line["event"], line["jump_millis"]) for line in logs]


def test_a_jump_between_two_processes_is_told() -> None:
    clocks = Clocks()
    last = clocks.start().read()
    clocks.wall += YEARS_10_MILLIS
    with capture_logs() as logs:
        clocks.start().resume(last)

    assert ["clock.jumped"] == [line["event"] for line in logs]


def test_it_never_runs_backwards_even_if_the_boot_clock_does() -> None:
    clocks = Clocks()
    clock = clocks.start()
    last = dataclasses.replace(clock.read(), age_millis=77, boot_millis=clocks.boot + 5)
    clock.resume(last)
    clocks.boot -= 1000

    assert 77 == clock.now_millis()


def test_a_system_without_a_boot_id_is_a_new_boot_each_time(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path / "none") != read_boot_id(tmp_path / "none")
    (tmp_path / "id").write_text("0c2a\n")
    assert "0c2a" == read_boot_id(tmp_path / "id")
