"""Which log files go, when, and what is told of it."""

import contextlib
import errno
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.retention.retention import BUILDER_GRACE_MILLIS, SPARED_MILLIS, parse_delete_hours
from commitlog_svc.settings import CommitLogSettings
from store.errors import InvalidArgumentError, OffsetOutOfRangeError
from tests.commitlog_svc.retention_bench import HOUR_MILLIS, Bench, Machine, SizedFileSystem
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.waiting import wait_until

RESERVED_MILLIS = 72 * HOUR_MILLIS
YEARS_10_MILLIS = 10 * 365 * 24 * HOUR_MILLIS


def local_hour(millis: int) -> int:
    return time.localtime(millis / 1000).tm_hour


def test_files_go_when_they_expire_and_the_last_one_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(4)
    bench.turn()
    bench.turn(RESERVED_MILLIS - 1)
    assert [0, 100, 200, 300] == bench.offsets

    bench.settle()

    assert [300] == bench.offsets
    assert [(0, 300, 3, "expired")] == bench.told
    assert 300 == bench.files.first_offset


def test_age_counts_from_completion_not_from_the_first_byte(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(2)
    bench.safe_offset = 50
    bench.turn(10 * RESERVED_MILLIS)
    bench.safe_offset = 150
    bench.turn()
    bench.turn(RESERVED_MILLIS - 1)
    assert [0, 100] == bench.offsets

    bench.turn(1)

    assert [100] == bench.offsets


def test_expired_files_wait_for_their_hour(tmp_path: Path) -> None:
    machine = Machine()
    hours = frozenset((local_hour(machine.wall_millis + 3 * HOUR_MILLIS), local_hour(machine.wall_millis)))
    bench = Bench(tmp_path, machine, delete_hours=hours)
    bench.add_files(3)
    bench.turn()
    bench.turn(RESERVED_MILLIS + HOUR_MILLIS)  # noon and one hour
    bench.settle(step_millis=1000)
    assert [0, 100, 200] == bench.offsets

    bench.turn(2 * HOUR_MILLIS)
    bench.settle()

    assert [200] == bench.offsets


def test_at_level_clean_expired_files_go_at_any_hour_and_others_stay(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delete_hours=frozenset())
    bench.add_files(2)
    bench.turn()
    bench.turn(RESERVED_MILLIS)
    bench.add_files(2)
    bench.press("clean")
    bench.settle()

    assert [100, 200, 300] == bench.offsets  # the file 100 was complete only when 200 began
    assert [(0, 100, 1, "disk-clean")] == bench.told


def test_clean_forcibly_takes_unexpired_files_but_spares_the_last_hour(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.turn()
    bench.press("clean-forcibly")
    bench.settle()
    assert [0, 100, 200] == bench.offsets

    bench.turn(SPARED_MILLIS)
    bench.settle()

    assert [200] == bench.offsets
    assert [(0, 200, 2, "disk-clean-forcibly")] == bench.told


def test_full_takes_what_it_must_and_stops_when_that_was_enough(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(5)
    bench.turn()
    bench.press("full")
    assert [100, 200, 300, 400] == bench.offsets
    bench.machine.set_level("clean-forcibly")  # that one file was enough
    bench.settle()

    assert [100, 200, 300, 400] == bench.offsets


def test_without_force_a_full_disk_costs_no_message(tmp_path: Path) -> None:
    bench = Bench(tmp_path, clean_file_forcibly_enabled=False)
    bench.add_files(3)
    bench.turn()
    bench.press("full")
    bench.settle(300, step_millis=1000)

    assert [0, 100, 200] == bench.offsets


@pytest.mark.parametrize("level", ["ok", "clean", "clean-forcibly"])
@pytest.mark.parametrize("needed_offset", [0, 99, 100, 150, 200])
def test_what_a_builder_needs_stays(tmp_path: Path, level: str, needed_offset: int) -> None:
    bench = Bench(tmp_path)
    bench.add_files(4)
    bench.turn()
    bench.needed = {"index": needed_offset, "consumequeue": 350}
    bench.press(level)
    bench.turn(RESERVED_MILLIS)
    bench.settle(step_millis=1000)

    assert bench.offsets[0] == needed_offset // 100 * 100
    assert all(not event.lost_builder_next_offsets for event in bench.retention.events)


def test_a_full_disk_takes_what_a_builder_needs_after_a_grace_and_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(4)
    bench.turn()
    bench.needed = {"index": 40, "consumequeue": 350}
    bench.press("full")
    bench.turn(BUILDER_GRACE_MILLIS - 1)
    assert [0, 100, 200, 300] == bench.offsets

    bench.turn(1)

    assert [100, 200, 300] == bench.offsets
    assert {"index": 40} == bench.retention.events[-1].lost_builder_next_offsets
    assert "disk-clean-forcibly" == bench.retention.events[-1].reason
    bench.needed["index"] = 350
    bench.turn(100)
    assert {"index": 40} == bench.retention.events[0].lost_builder_next_offsets
    assert {} == bench.retention.events[-1].lost_builder_next_offsets


def test_a_disk_that_was_full_only_for_a_moment_takes_nothing_from_a_builder(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.needed = {"index": 0}
    for _ in range(10):
        bench.press("full")
        bench.turn(BUILDER_GRACE_MILLIS // 2)
        bench.press("ok")

    assert [0, 100, 200] == bench.offsets


def test_what_the_recovery_snapshot_needs_stays_whatever_the_disk_says(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(5)
    bench.safe_offset = 299
    bench.turn()
    bench.press("full")
    bench.settle(step_millis=1000)

    assert [200, 300, 400] == bench.offsets


def test_two_files_have_their_time_between_them_and_a_batch_its_end(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        delete_files_interval_millis=100,
        delete_file_batch_count_max=3,
        clean_resource_interval_millis=10_000,
    )
    bench.add_files(9)
    bench.turn()
    bench.turn(RESERVED_MILLIS)
    went_at: list[int] = []
    while len(bench.offsets) > 1:
        count = len(bench.offsets)
        bench.turn(50)
        went_at += [bench.machine.boot_millis] * (count - len(bench.offsets))

    # The first of eight went in the turn before.
    assert [100, 9800, 100, 100, 9800, 100] == [b - a for a, b in itertools.pairwise(went_at)]


@pytest.mark.parametrize("jump_millis", [YEARS_10_MILLIS, -2 * HOUR_MILLIS, 25 * HOUR_MILLIS])
def test_rmq_9455_a_clock_jump_expires_nothing(tmp_path: Path, jump_millis: int) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.turn()
    bench.machine.wall_millis += jump_millis
    bench.settle(step_millis=1000)
    again = bench.again()
    again.machine.wall_millis += jump_millis
    again.settle(step_millis=1000)

    assert [0, 100, 200] == again.offsets
    assert [] == again.told


def test_a_clock_ten_years_ahead_after_a_boot_expires_nothing_and_a_weekend_off_counts(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.turn()
    bench.machine.reboot(YEARS_10_MILLIS)
    bench = bench.again()
    bench.settle()
    assert [0, 100, 200] == bench.offsets

    bench.machine.reboot(RESERVED_MILLIS)
    bench = bench.again()
    bench.settle()
    assert [200] == bench.offsets


@pytest.mark.parametrize("jump_millis", [RESERVED_MILLIS, 6 * 24 * HOUR_MILLIS])
def test_a_jump_and_then_a_boot_do_not_pass_for_time(tmp_path: Path, jump_millis: int) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.turn()
    bench.machine.wall_millis += jump_millis
    bench.turn(50)
    bench.machine.reboot(1000)
    bench = bench.again()
    bench.settle()

    assert [0, 100, 200] == bench.offsets


def test_file_times_say_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (1, 1))
    bench.settle()

    assert [0, 100, 200] == bench.offsets


def test_ages_survive_a_kill(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(2)
    bench.turn()
    bench.turn(RESERVED_MILLIS - 1000)
    bench = bench.again()
    bench.turn()
    assert [0, 100] == bench.offsets

    bench.turn(1000)

    assert [100] == bench.offsets


def test_a_file_that_recovery_cut_short_begins_a_new_age(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(2)
    bench.turn()
    bench.turn(RESERVED_MILLIS - 1000)
    bench = bench.again(log_end_offset=60)
    bench.turn(2000)

    assert [0, 100] == bench.offsets


def test_a_file_that_cannot_be_removed_is_still_there_and_no_event_says_otherwise(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.turn()
    fault = bench.machine.fs.fail("unlink", errno.EPERM, path="commitlog/", lasting=True)
    with pytest.raises(OSError, match="permitted"):
        bench.turn(RESERVED_MILLIS)
    assert [] == bench.told
    assert 0 == bench.files.first_offset
    assert [] == bench.again().told

    fault.clear()
    bench.settle()

    assert [200] == bench.offsets
    assert [(0, 200, 2, "expired")] == bench.told


def test_an_event_is_on_the_disk_before_its_file_goes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(2)
    bench.turn()
    seen = []
    unlink = bench.machine.fs.unlink

    def killed_at_unlink(path: object) -> None:
        unlink(path)  # type: ignore[arg-type]
        seen.append((tmp_path / "state" / "retention.json").read_text())
        raise KeyboardInterrupt

    bench.machine.fs.unlink = killed_at_unlink  # type: ignore[method-assign]  # the process dies in this call
    with pytest.raises(KeyboardInterrupt):
        bench.turn(RESERVED_MILLIS)
    bench.machine.fs.unlink = unlink  # type: ignore[method-assign]  # and the next one lives

    assert [(0, 100, 1, "expired")] == bench.again().told
    assert '"end_offset":100' in seen[0]


class Killed(BaseException):
    """The process dies."""


@pytest.mark.parametrize("is_done", [False, True])
def test_a_kill_at_any_call_of_a_removal_loses_no_event_and_a_second_start_finds_the_same(
    tmp_path: Path, *, is_done: bool
) -> None:
    for nth in range(1, 200):
        bench = Bench(tmp_path / str(nth), delete_files_interval_millis=0)
        bench.add_files(4)
        bench.turn()
        bench.machine.pass_time(RESERVED_MILLIS)
        left = die_at_call(bench.machine.fs, nth, is_done=is_done)
        with contextlib.suppress(Killed):
            bench.settle(1)
        revive(bench.machine.fs)
        bench.files.close()

        again = bench.again()
        first_offset = again.offsets[0]
        assert [(0, first_offset, first_offset // 100, "expired")] * bool(first_offset) == again.told
        assert again.told == bench.again().told
        again.settle()
        assert ([300], [(0, 300, 3, "expired")]) == (again.offsets, again.told)
        if left[0] > 0:
            assert nth > 20, "three removals are more calls than that"
            return
    raise AssertionError("it never came to its end")


WRITING_CALLS = ("open", "pwrite", "fdatasync", "rename", "fsync_dir", "unlink", "mkdirs")


def die_at_call(fs: SizedFileSystem, nth: int, *, is_done: bool) -> list[int]:
    """The nth call that may write raises Killed, before or after it is done; how many are left until then."""
    left = [nth]

    def watched(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            left[0] -= 1
            if left[0] == 0 and not is_done:
                raise Killed
            result = real(*arguments)
            if left[0] == 0:
                raise Killed
            return result

        return call

    for kind in WRITING_CALLS:
        setattr(fs, kind, watched(getattr(fs, kind)))
    return left


def revive(fs: SizedFileSystem) -> None:
    """The next process's calls are its own."""
    for kind in WRITING_CALLS:
        delattr(fs, kind)


def test_a_disk_too_full_for_the_event_is_freed_all_the_same_and_the_event_comes_after(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.turn()
    bench.machine.fs.fail("pwrite", errno.ENOSPC, path="retention.json")
    bench.press("full")

    assert [100, 200] == bench.offsets
    assert [(0, 100, 1, "disk-clean-forcibly")] == bench.told == bench.again().told


def test_a_kill_on_a_disk_too_full_for_events_leaves_one_that_says_outside(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.add_files(3)
    bench.turn()
    bench.machine.fs.fail("pwrite", errno.ENOSPC, path="retention.json", lasting=True)
    bench.press("full")
    assert [100, 200] == bench.offsets

    assert [(0, 100, 1, "outside")] == bench.again().told


def test_where_the_log_began_is_known_from_its_first_file_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.turn()
    bench.add_files(4)
    bench.safe_offset = -1
    bench.turn()
    for offset in (0, 100):
        bench.files.path_of(offset).unlink()

    assert [(0, 200, 2, "outside")] == bench.again().told


@pytest.mark.parametrize("text", ["04", "4", "04;16", "00;23;", " 4 ; 5 "])
def test_hours_are_read_as_rocketmq_reads_them(text: str) -> None:
    assert parse_delete_hours(text) == {int(word) for word in text.split(";") if word.strip()}


@pytest.mark.parametrize("text", ["", ";", "24", "-1", "4,5", "four", "04:00", "²"])
def test_hours_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_delete_hours(text)
    with pytest.raises(ValueError, match="list of hours"):
        CommitLogSettings(store=tmp_path, delete_when_hours=text)


EXPIRING: dict[str, Any] = {
    "file_size_bytes": 4096,
    "file_reserved_seconds": 1,
    "delete_when_hours": ";".join(map(str, range(24))),
    "delete_files_interval_millis": 0,
    "delete_file_batch_count_max": 50,
}


def test_a_registered_follower_holds_files_over_a_restart_until_it_is_removed(tmp_path: Path) -> None:
    def report_builders(log: CommitLog) -> None:
        for builder in ("consumequeue", "index"):
            log.followers.report(builder, log.status.confirm_offset, 0, log.status.confirm_offset)

    def held_offset(log: CommitLog) -> int:
        assert log.opened.retention is not None
        return log.opened.retention._held_offset

    with open_log(tmp_path, **EXPIRING) as log:
        receipts = [append(log, new_message(b"x" * 900))[0] for _ in range(40)]
        middle = receipts[20].commit_log_offset
        file_offset = middle // 4096 * 4096
        log.followers.report("schedule", middle, 0, log.status.confirm_offset)
        report_builders(log)
        wait_until(lambda: held_offset(log) == file_offset)
        assert log.status.first_offset == file_offset

    with open_log(tmp_path, **EXPIRING) as log:
        report_builders(log)
        wait_until(lambda: held_offset(log) == file_offset)
        assert log.status.first_offset == file_offset, "it has not reported again, and needs everything"

        log.followers.remove("schedule")

        wait_until(lambda: log.status.first_offset > middle)
        assert not any(event.lost_builder_next_offsets for event in log.status.retention_events)


def test_the_log_begins_later_in_every_answer_and_a_restart_finds_it_so(tmp_path: Path) -> None:
    root = tmp_path / "s"
    settings = EXPIRING
    with open_log(root, file_size_bytes=4096) as log:
        receipts = [append(log, new_message(b"x" * 900, unique_key=f"{i}"))[0] for i in range(5)]
    early = (root / "reput" / "commitlog" / "snapshot.json").read_bytes()
    with open_log(root, **settings) as log:
        receipts += [append(log, new_message(b"x" * 900, unique_key=f"{i}"))[0] for i in range(5, 40)]
        wait_until(lambda: log.status.flushed_offset > receipts[-1].commit_log_offset)
        for builder in ("consumequeue", "index"):
            log.followers.report(builder, log.status.flushed_offset, 0, log.status.flushed_offset)
        first_offset = receipts[-1].commit_log_offset // 4096 * 4096
        assert first_offset > 0
        wait_until(lambda: log.status.first_offset == first_offset, lambda: log.status.retention_events)
        gone = [r for r in receipts if r.commit_log_offset < first_offset]
        there = [r for r in receipts if r.commit_log_offset >= first_offset]
        for receipt in gone:
            with pytest.raises(OffsetOutOfRangeError) as error:
                log.opened.reads.get(receipt.commit_log_offset)
            assert str(first_offset) == error.value.metadata["firstOffset"]
        with pytest.raises(OffsetOutOfRangeError):
            log.following.follow(gone[-1].commit_log_offset, 0)
        batches = log.following.follow(-1, 0)
        shown: list[int] = []
        while len(shown) < len(there):
            batch = next(batches)
            assert first_offset == batch.log_first_offset
            shown += [request.commit_log_offset for request in batch.requests]
        assert [r.commit_log_offset for r in there] == shown
        assert (0, first_offset) == (
            log.status.retention_events[0].begin_offset,
            log.status.retention_events[-1].end_offset,
        )
        state = (root / "reput" / "commitlog" / "snapshot.json").read_bytes()

    for name, snapshot in (
        ("the newest snapshot", None),
        ("an older one", state),
        ("one whose record is gone", early),
        ("none", b""),
    ):
        if snapshot is not None:
            (root / "reput" / "commitlog" / "snapshot.json").write_bytes(snapshot)
        with open_log(root, **settings) as log:
            assert first_offset == log.status.first_offset, name
            assert b"x" * 900 == log.opened.reads.get(there[0].commit_log_offset).body
            assert first_offset == log.status.retention_events[-1].end_offset
            more = append(log, new_message(b"more", queue_id=there[-1].queue_id))[0]
            assert there[-1].queue_offset < more.queue_offset
