"""Bugs of RocketMQ's CommitLog and checkpoint that must not happen here, each named after its issue.

Torn records (#7437) are in tests/torture/test_torn_tail.py, logs without `__CRC32#` (#7480) in test_golden_stores.py.
"""

import random
import shutil
from pathlib import Path

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.settings import CommitLogSettings
from store.errors import InvalidMessageError, StoreCorruptedError, StoreError
from store.files.file_system import RealFileSystem
from store.format.checkpoint import decode_checkpoint
from store.format.record import encode_blank
from tests.commitlog_svc.support import BORN_HOST, append, make_log, new_message, open_log
from tests.support.crashing import copy_open_store
from tests.torture.memory_files import MemoryFileSystem

FILE_BYTES = 16384
PROPERTIES_BYTES_MAX = 32767


def _first_file(root: Path) -> Path:
    return root / "commitlog" / ("0" * 20)


def _crash(live: Path, target: Path) -> Path:
    """The root as kill -9 would leave it, without what we remember of it ourselves."""
    copy_open_store(live, target)
    shutil.rmtree(target / "reput")
    return target


def test_rmq_10017_bytes_of_a_reused_file_are_no_records(tmp_path: Path) -> None:
    """Whole records with right CRCs, of another place: the log ends before them, and they are gone afterwards."""
    live = tmp_path / "live"
    with open_log(live) as log:
        old = append(log, *[new_message(b"old %03d" % number, queue_id=0) for number in range(20)])
        crashed = _crash(live, tmp_path / "crashed")
    data = bytearray(_first_file(crashed).read_bytes())
    kept_end = old[4].commit_log_offset
    # The file's second life: four records, then the first life's bytes, one record further on.
    stale = bytes(data[old[5].commit_log_offset : old[19].commit_log_offset])
    data[kept_end : kept_end + len(stale)] = stale
    data[kept_end + len(stale) :] = bytes(len(data) - kept_end - len(stale))
    _first_file(crashed).write_bytes(data)

    with open_log(crashed) as log:
        assert (kept_end, 4) == (log.opened.found.end_offset, log.opened.found.record_count)
        assert kept_end == log.opened.found.cut_offset
        receipt = append(log, new_message(b"new", queue_id=0))[0]
        assert (kept_end, 4) == (receipt.commit_log_offset, receipt.queue_offset)
        end = receipt.commit_log_offset + receipt.store_size_bytes
    assert not any(_first_file(crashed).read_bytes()[end:])


def test_rmq_10038_a_blank_before_old_bytes_closes_its_file(tmp_path: Path) -> None:
    """RocketMQ leaves what was there behind a blank's eight bytes; its first fix of #10017 tripped over that."""
    live = tmp_path / "live"
    with open_log(live) as log:
        receipts = append(log, *[new_message(b"%04d" % number * 100, queue_id=0) for number in range(60)])
        crashed = _crash(live, tmp_path / "crashed")
    second = [receipt for receipt in receipts if receipt.commit_log_offset >= FILE_BYTES]
    first = [receipt for receipt in receipts if receipt.commit_log_offset < FILE_BYTES]
    assert second
    blank_at = first[-1].commit_log_offset + first[-1].store_size_bytes
    data = bytearray(_first_file(crashed).read_bytes())
    left = FILE_BYTES - blank_at
    assert encode_blank(left) == data[blank_at : blank_at + 8]
    noise = bytes(data[: left - 8])  # records of the file's own first bytes
    data[blank_at + 8 :] = noise
    _first_file(crashed).write_bytes(data)

    with open_log(crashed) as log:
        assert len(receipts) == log.opened.found.record_count
        assert log.opened.found.cut_offset is None
        assert len(receipts) == append(log, new_message(queue_id=0))[0].queue_offset
        requests = list(next(log.following.follow(-1, 0)).requests)
        assert [receipt.commit_log_offset for receipt in first] == [r.commit_log_offset for r in requests][: len(first)]


@pytest.mark.parametrize("damaged", [0, 1, 7, 18])
def test_rmq_467_good_records_behind_a_damaged_one_are_never_skipped_over(tmp_path: Path, damaged: int) -> None:
    """The log stops at the damaged record and serves nothing: skipping it would leave a hole in its queue."""
    live = tmp_path / "live"
    with open_log(live) as log:
        receipts = append(log, *[new_message(b"%03d" % number, queue_id=0) for number in range(20)])
        crashed = _crash(live, tmp_path / "crashed")
    data = bytearray(_first_file(crashed).read_bytes())
    data[receipts[damaged].commit_log_offset + 89] ^= 1
    _first_file(crashed).write_bytes(data)

    with pytest.raises(StoreCorruptedError) as stopped:
        make_log(crashed).recover()

    assert str(receipts[damaged].commit_log_offset) == stopped.value.metadata["commitLogOffset"]
    assert bytes(data) == _first_file(crashed).read_bytes()


@pytest.mark.parametrize("damaged", [1, 7, 18])
def test_rmq_501_appends_after_a_damaged_tail_take_its_place_and_its_queue_offset(tmp_path: Path, damaged: int) -> None:
    """Behind the durable mark of an unclean stop, damage is a tail: what is appended leaves no hole in the queue."""
    live = tmp_path / "live"
    with open_log(live, flush_interval_millis=60_000) as log:
        kept = append(log, *[new_message(b"%03d" % number, queue_id=0) for number in range(damaged)])
        lost = append(log, *[new_message(b"%03d" % number, queue_id=0) for number in range(damaged, 20)], sync=False)
        copy_open_store(live, tmp_path / "crashed")
    crashed = tmp_path / "crashed"
    data = bytearray(_first_file(crashed).read_bytes())
    data[lost[0].commit_log_offset + 89] ^= 1
    _first_file(crashed).write_bytes(data)

    with open_log(crashed) as log:
        receipt = append(log, new_message(b"after", queue_id=0))[0]
        assert (lost[0].commit_log_offset, damaged) == (receipt.commit_log_offset, receipt.queue_offset)
        requests = list(next(log.following.follow(-1, 0)).requests)
        assert list(range(damaged + 1)) == [request.queue_offset for request in requests]
        assert [receipt.commit_log_offset for receipt in kept] == [r.commit_log_offset for r in requests][:-1]


def _largest_value(size_bytes: int) -> dict[str, str]:
    """One property so large that the stored properties take this many bytes, with unique key and CRC."""
    fixed = len("UNIQ_KEY") + 1 + 32 + 1 + len("p") + 1 + 1 + 20
    return {"p": "x" * (size_bytes - fixed)}


@pytest.mark.parametrize("size_bytes", [32766, 32767, 32768, 32769, 65535, 65536, 70_000])
def test_rmq_3786_properties_that_do_not_fit_their_length_are_refused_and_burn_no_queue_offset(
    tmp_path: Path, size_bytes: int
) -> None:
    """The length is a signed 16-bit number: 32,768 would wrap and make the whole log unreadable from there on (#6570)."""
    with open_log(tmp_path, file_size_bytes=1 << 20) as log:
        append(log, new_message(queue_id=0))
        end_offset = log.status.end_offset
        large = new_message(queue_id=0, properties=_largest_value(size_bytes))
        for batch in ([large], [new_message(queue_id=0), large], [large, new_message(queue_id=0)]):
            if size_bytes <= PROPERTIES_BYTES_MAX:
                receipt = append(log, large)[0]
                assert size_bytes == len(log.opened.reads.get(receipt.commit_log_offset).properties_bytes)
                return
            with pytest.raises(InvalidMessageError) as refused:
                append(log, *batch)
            assert "properties" == refused.value.metadata["field"]
            assert end_offset == log.status.end_offset
        assert 1 == append(log, new_message(queue_id=0))[0].queue_offset


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_rmq_6570_a_body_above_the_limit_is_refused_and_burns_no_queue_offset(tmp_path: Path, over: int) -> None:
    with open_log(tmp_path, file_size_bytes=1 << 20, message_size_bytes_max=1000) as log:
        body = b"x" * (1000 + over)
        for batch in ([new_message(body, queue_id=0)], [new_message(queue_id=0), new_message(body, queue_id=0)]):
            if over <= 0:
                assert body == log.opened.reads.get(append(log, *batch)[-1].commit_log_offset).body
                continue
            with pytest.raises(StoreError):
                append(log, *batch)
            assert 0 == log.status.end_offset
        assert (3 if over <= 0 else 0) == append(log, new_message(queue_id=0))[0].queue_offset


HOUR, YEAR = 3_600_000, 31_557_600_000


class Clock:
    """Milliseconds since 1970, as told."""

    def __init__(self, now: int = 1_750_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize("jump", [-48 * HOUR, -2 * HOUR, -30_000, -1, 10 * YEAR, 0])
def test_rmq_9455_a_clock_that_jumped_never_keeps_the_log_from_starting(tmp_path: Path, jump: int) -> None:
    """While stopped and while running: it starts, and store times follow the clock, but not back by less than a minute."""
    clock = Clock()

    def open_at_clock() -> CommitLog:
        log = CommitLog(tmp_path, CommitLogSettings(store=tmp_path, file_size_bytes=FILE_BYTES), None, clock)
        log.recover()
        return log

    times: list[int] = []

    def append_some(log: CommitLog) -> None:
        for _ in range(3):
            now, greatest = clock.now, times[-1] if times else 0
            times.append(append(log, new_message(queue_id=0))[0].store_time_millis)
            assert times[-1] == (greatest if now <= greatest <= now + 60_000 else now)

    log = open_at_clock()
    append_some(log)
    clock.now += jump
    append_some(log)
    log.close()
    clock.now += jump
    log = open_at_clock()
    try:
        assert 6 == len(next(log.following.follow(-1, 0)).requests)
        append_some(log)
        clock.now -= 2 * jump
        append_some(log)
        requests = next(log.following.follow(-1, 0)).requests
        assert list(range(12)) == [request.queue_offset for request in requests]
        assert times == [request.store_time_millis for request in requests]
    finally:
        log.close()


def test_one_record_of_2050_does_not_move_later_ones_and_the_status_tells_it(tmp_path: Path) -> None:
    clock = Clock()

    def open_at_clock() -> CommitLog:
        log = CommitLog(tmp_path, CommitLogSettings(store=tmp_path, file_size_bytes=FILE_BYTES), None, clock)
        log.recover()
        return log

    now, clock.now = clock.now, 2_524_608_000_000
    wild = clock.now
    log = open_at_clock()
    append(log, new_message(b"wild"))
    for after in (1, 2):  # the second time after a start
        clock.now = now + after
        assert append(log, new_message(b"next"))[0].store_time_millis == now + after
        assert log.status.ahead_millis == wild - now - after
        assert "records of the future, the latest of 2050-01-01 00:00:00 UTC" in log.status.problem
        log.close()
        log = open_at_clock()
    clock.now = wild
    assert log.status.problem == ""
    log.close()


class WatchedDisk(MemoryFileSystem):
    """Looks at each checkpoint before it is written: what it says must be on the disk already."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self.appended: list[tuple[int, int]] = []  # store time, end of the record
        self.checkpoint_count = 0
        self.wrong: list[str] = []

    def rename(self, source: str | Path, target: str | Path) -> None:
        super().rename(source, target)
        if Path(target) == self._root / "checkpoint":
            self._look(self.bytes_of(Path(target)))

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        super().pwrite(fd, data, position)
        if self._open[fd] is self._names.get(str(self._root / "checkpoint")):
            self._look(self.bytes_of(self._root / "checkpoint"))

    def _look(self, data: bytes) -> None:
        self.checkpoint_count += 1
        said = decode_checkpoint(data).physic_msg_timestamp
        for store_time_millis, end_offset in list(self.appended):
            # Of two records of one millisecond the later may still be on its way: RocketMQ goes back three seconds anyway.
            if store_time_millis < said and not self._is_durable(end_offset):
                self.wrong.append(f"the checkpoint says {said}, the record up to {end_offset} is not on the disk")

    def _is_durable(self, end_offset: int) -> bool:
        first = (end_offset - 1) // FILE_BYTES * FILE_BYTES
        file = self._durable_names.get(str(self._root / "commitlog" / f"{first:020d}"))
        if file is None:
            return False
        now = bytes(file.data[: end_offset - first])
        return file.durable[: end_offset - first] == now


def test_rmq_678_the_checkpoint_never_says_flushed_before_it_is(tmp_path: Path) -> None:
    """Every checkpoint that is ever written, against what the disk holds at that moment (#10073 is its sister)."""
    random_ = random.Random(678)
    clock = Clock()
    disk = WatchedDisk(tmp_path)
    disk.mkdirs(tmp_path)
    settings = CommitLogSettings(store=tmp_path, file_size_bytes=FILE_BYTES, flush_interval_millis=3)
    log = CommitLog(tmp_path, settings, disk, clock)
    log.recover()
    try:
        for number in range(300):
            clock.now += random_.randrange(3)
            receipt = log.opened.appends.append_messages(
                [new_message(b"%d" % number * 10)], sync=random_.random() < 0.1, born_host=BORN_HOST
            )[0]
            disk.appended.append((receipt.store_time_millis, receipt.commit_log_offset + receipt.store_size_bytes))
            if number % 7 == 0:
                log._safe_points.write_checkpoint()
            if number % 50 == 0:
                log._safe_points.write()
    finally:
        log.close()

    assert disk.wrong == []
    assert disk.checkpoint_count > 20
    assert disk.appended[-1][0] == decode_checkpoint(disk.bytes_of(tmp_path / "checkpoint")).physic_msg_timestamp


class AppendsWhileFlushing(RealFileSystem):
    """A disk whose next flush of anything takes so long that another message is appended meanwhile."""

    def __init__(self) -> None:
        self.log: CommitLog | None = None
        self.clock = Clock()

    def fdatasync(self, fd: int) -> None:
        log, self.log = self.log, None
        if log is not None:
            self.clock.now += 60_000
            log.opened.appends.append_messages([new_message(b"meanwhile")], sync=False, born_host=BORN_HOST)
        super().fdatasync(fd)


def test_rmq_678_an_append_during_a_flush_does_not_move_the_time_of_what_was_flushed(tmp_path: Path) -> None:
    """The time of the newest flushed record is taken while others append."""
    disk = AppendsWhileFlushing()
    settings = CommitLogSettings(store=tmp_path, file_size_bytes=FILE_BYTES, flush_interval_millis=60_000)
    log = CommitLog(tmp_path, settings, disk, disk.clock)
    log.recover()
    try:
        log.opened.appends.append_messages(
            [new_message()], sync=True, born_host=BORN_HOST
        )  # makes the topic and the file
        disk.log = log
        flushed = log.opened.appends.append_messages([new_message()], sync=True, born_host=BORN_HOST)[0]
        assert disk.log is None
        assert log.status.flushed_offset == flushed.commit_log_offset + flushed.store_size_bytes
        assert flushed.store_time_millis == log._safe_points.flushed_store_time_millis
    finally:
        log.close()
