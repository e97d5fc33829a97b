"""HaSlave against a master that does what RocketMQ's does, and what no healthy one does."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.rocketmq_ha.slave import HaSlave
from services.calling.backoff import Backoff
from store.errors import StoreError, StoreReadOnlyError
from tests.commitlog_svc.rocketmq_ha.scripted_master import ScriptedMaster
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.waiting import wait_until

FILE_BYTES = 16384


@pytest.fixture(scope="module")
def log_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of several files."""
    root = tmp_path_factory.mktemp("source")
    with open_log(root) as log:
        for number in range(60):
            append(log, *(new_message(b"%d" % number * 300, topic) for topic in ("orders", "other")))
        data = log.read_bytes(0, log.status.end_offset)
    assert len(data) > 4 * FILE_BYTES
    return data


@contextmanager
def mirrored(
    root: Path, master: ScriptedMaster, changes: list[StoreError] | None = None, **options: Any
) -> Iterator[tuple[CommitLog, HaSlave]]:
    """A log that mirrors the master; `changes` gets why it has to start again."""
    changes = [] if changes is None else changes
    with open_log(root, mirror=f"rocketmq://{master.address}", **options) as log:
        slave = HaSlave(
            log,
            master.address,
            nothing_seconds=0.04,
            silence_seconds=0.5,
            backoff=Backoff(first_seconds=0.01, max_seconds=0.05),
            on_changed=changes.append,
        )
        slave.start()
        try:
            yield log, slave
        finally:
            slave.close()


def wait_for_end(log: CommitLog, end_offset: int) -> None:
    wait_until(lambda: log.status.flushed_offset == end_offset, lambda: log.status.flushed_offset)


@pytest.mark.parametrize("batch_bytes", [1, 7, 1000, 32768])
def test_an_empty_log_gets_the_masters_whole_log_byte_by_byte(
    tmp_path: Path, log_bytes: bytes, batch_bytes: int
) -> None:
    with ScriptedMaster(log_bytes if batch_bytes > 1 else log_bytes[: FILE_BYTES + 900], FILE_BYTES) as master:
        master.batch_bytes = batch_bytes
        with mirrored(tmp_path, master) as (log, slave):
            end = whole_end(log_bytes, len(master.log))
            wait_for_end(log, end)
            wait_until(lambda: master.reports and master.reports[-1] == end, lambda: master.reports[-3:])
            wait_until(lambda: slave.state.is_at_end)
            assert log.read_bytes(0, end) == log_bytes[:end]
            assert [config.topic for config in log.topics.all()] == ["orders", "other"]
            with pytest.raises(StoreReadOnlyError, match=f"mirrors rocketmq://{master.address}"):
                append(log, new_message(b"no", "orders"))


def whole_end(log_bytes: bytes, limit: int) -> int:
    """The end of the last whole record before a limit, by the sizes of the records."""
    at = 0
    while at < limit:
        size = int.from_bytes(log_bytes[at : at + 4], "big")
        if at + size > limit:
            break
        at += size
    return at


def test_a_restart_of_the_master_inside_a_record_costs_nothing(tmp_path: Path, log_bytes: bytes) -> None:
    with ScriptedMaster(log_bytes, FILE_BYTES) as master:
        master.close_after_bytes = {2: FILE_BYTES + 2000}  # the first two are probes, for the last file and for byte 1
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, len(log_bytes))
            assert log.read_bytes(0, len(log_bytes)) == log_bytes
    assert master.requests[:3] == [0, 1, 1]
    assert FILE_BYTES < master.requests[3] < FILE_BYTES + 2000  # the last whole record again


def test_a_restart_of_the_mirror_goes_on_where_it_was(tmp_path: Path, log_bytes: bytes) -> None:
    half = whole_end(log_bytes, len(log_bytes) // 2)
    with ScriptedMaster(log_bytes[: half + 50], FILE_BYTES) as master:
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, half)
        master.log = log_bytes
        begun = len(master.requests)
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, len(log_bytes))
            assert log.read_bytes(0, len(log_bytes)) == log_bytes
        assert 0 < half - master.requests[begun] < 1000  # its last record again


@pytest.mark.parametrize("removed_count", [1, 2, 3])
def test_a_master_that_removed_files_is_mirrored_from_its_first_one(
    tmp_path: Path, log_bytes: bytes, removed_count: int
) -> None:
    with ScriptedMaster(log_bytes, FILE_BYTES) as master:
        master.first_offset = removed_count * FILE_BYTES
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, len(log_bytes))
            assert log.status.first_offset == master.first_offset
            data = log.read_bytes(master.first_offset, len(log_bytes))
            assert data.rstrip(b"\0") == log_bytes[master.first_offset :].rstrip(b"\0")


def shorter(master: ScriptedMaster, log_bytes: bytes) -> str:
    master.log = log_bytes[: whole_end(log_bytes, len(log_bytes) - 2000)]
    return "ends before"


def other(master: ScriptedMaster, log_bytes: bytes) -> str:
    master.log = bytes(byte ^ 1 for byte in log_bytes)
    return "other bytes"


def without_old_files(master: ScriptedMaster, log_bytes: bytes) -> str:
    master.log = log_bytes + bytes(3 * FILE_BYTES)
    master.first_offset = len(log_bytes) // FILE_BYTES * FILE_BYTES + FILE_BYTES
    return "has removed its log files"


def jumping(master: ScriptedMaster, log_bytes: bytes) -> str:
    master.skip_bytes = 8
    return "it was asked for"


def garbled(master: ScriptedMaster, log_bytes: bytes) -> str:
    master.log = log_bytes + bytes(3) + b"\x70" + log_bytes[4:400]
    return "not whole, good records"


@pytest.mark.parametrize("spoil", [shorter, other, without_old_files, jumping, garbled])
def test_a_master_with_another_log_stops_the_mirror_and_changes_nothing(
    tmp_path: Path, log_bytes: bytes, spoil: Callable[[ScriptedMaster, bytes], str]
) -> None:
    with ScriptedMaster(log_bytes, FILE_BYTES) as master:
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, len(log_bytes))
        problem = spoil(master, log_bytes)
        with mirrored(tmp_path, master) as (log, slave):
            wait_until(lambda: slave.state.state == "stopped", lambda: slave.state)
            assert problem in slave.state.problem
            assert log.status.end_offset == len(log_bytes)
            assert log.read_bytes(0, 1 << 20) == log_bytes + bytes(-len(log_bytes) % FILE_BYTES)
            assert not slave.state.is_at_end


@pytest.fixture(scope="module")
def two_ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, int]:
    """A log, one with the same begin that goes on with other records, and where the equal part ends."""
    root = tmp_path_factory.mktemp("ends")
    with open_log(root / "a") as log:
        for number in range(20):
            append(log, new_message(b"%d" % number * 300, "orders"))
        common = log.status.end_offset
    shutil.copytree(root / "a", root / "b")
    ends = []
    for name, count in (("a", 30), ("b", 90)):
        with open_log(root / name) as log:
            for number in range(count):
                append(log, new_message(b"%s %d" % (name.encode(), number) * 90, "orders"))
            ends.append(log.read_bytes(0, log.status.end_offset))
    assert ends[0][:common] == ends[1][:common]
    return ends[0], ends[1], common


@pytest.mark.parametrize("is_shorter", [False, True], ids=["longer since", "still shorter"])
def test_a_master_that_lost_its_end_and_went_on_is_followed_and_what_it_lost_is_kept_aside(
    tmp_path: Path, two_ends: tuple[bytes, bytes, int], is_shorter: bool
) -> None:
    """The mirror stopped for ever, and its new messages were never seen."""
    before, after, common = two_ends
    after = after[: whole_end(after, common + (len(before) - common) // 2)] if is_shorter else after
    changes: list[StoreError] = []
    with ScriptedMaster(before, FILE_BYTES) as master:
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, len(before))
        master.log = after
        with mirrored(tmp_path, master, changes):
            wait_until(lambda: changes)
        assert (changes[0].reason(), changes[0].metadata["commitLogOffset"]) == ("LOG_CHANGED", str(common))
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, len(after))
            assert log.read_bytes(0, len(after)) == after
        (aside,) = (tmp_path / "reput" / "commitlog").glob(f"cut-{common}-*")
        kept = b"".join(path.read_bytes() for path in sorted(aside.iterdir()))
        assert kept.rstrip(b"\0") == before[common:].rstrip(b"\0")


def test_a_master_that_lost_more_than_it_can_have_left_unflushed_stops_the_mirror(
    tmp_path: Path, two_ends: tuple[bytes, bytes, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after, common = two_ends
    monkeypatch.setattr("commitlog_svc.rocketmq_ha.slave.CUT_BYTES_MAX", len(before) - common)
    changes: list[StoreError] = []
    with ScriptedMaster(before, FILE_BYTES) as master:
        with mirrored(tmp_path, master) as (log, _):
            wait_for_end(log, len(before))
        master.log = after
        with mirrored(tmp_path, master, changes) as (log, slave):
            wait_until(lambda: slave.state.state == "stopped", lambda: slave.state)
            assert common in master.requests, "it asked how much is equal"
            assert log.status.end_offset == len(before)
    assert changes == []


def test_reports_name_only_what_is_on_the_disk(tmp_path: Path, log_bytes: bytes) -> None:
    with (
        ScriptedMaster(log_bytes, FILE_BYTES) as master,
        mirrored(tmp_path, master, flush_interval_millis=60_000) as (log, _),
    ):
        wait_until(lambda: log.status.end_offset == len(log_bytes))
        assert max(master.requests + master.reports) == 1
        log.flushes.wait_flushed(len(log_bytes))
        wait_until(lambda: master.reports and master.reports[-1] == len(log_bytes))


def test_a_master_that_says_nothing_is_left_and_asked_again(tmp_path: Path, log_bytes: bytes) -> None:
    with ScriptedMaster(log_bytes, FILE_BYTES) as master, mirrored(tmp_path, master) as (log, slave):
        wait_for_end(log, len(log_bytes))
        begun = len(master.requests)
        master.is_silent = True
        wait_until(lambda: "nothing was heard" in slave.state.problem, lambda: slave.state)
        assert slave.state.state == "connecting"
        master.is_silent = False
        wait_until(lambda: slave.state.state == "copying", lambda: slave.state)
        assert len(master.requests) > begun


def test_an_empty_master_is_followed_from_its_first_message_on(tmp_path: Path, log_bytes: bytes) -> None:
    with ScriptedMaster(b"", FILE_BYTES) as master, mirrored(tmp_path, master) as (log, slave):
        wait_until(lambda: slave.state.state == "copying" and slave.state.is_at_end, lambda: slave.state)
        master.log = log_bytes
        wait_for_end(log, len(log_bytes))
        assert log.read_bytes(0, len(log_bytes)) == log_bytes
