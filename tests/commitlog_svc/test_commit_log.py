"""Append, read and follow on one log; rolling, group commit and fencing."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from commitlog_svc.servicer import CommitLogServicer
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import (
    DiskFullError,
    FlushFailedError,
    InvalidMessageError,
    OffsetOutOfRangeError,
    RecordCorruptedError,
    RecordNotFoundError,
    StoreError,
    StoreRecoveringError,
)
from store.files.file_system import RealFileSystem
from store.files.mapped_files import MappedFileQueue
from store.format.record import BLANK_MAGIC, decode_header
from store.walk.checks import FullCheck
from store.walk.cursor import RecordCursor
from tests.commitlog_svc.support import BORN_HOST, append, make_log, new_message, open_log

NO_CONTEXT: Any = None


class FaultyFileSystem(RealFileSystem):
    """The real disk, until it is told to fail."""

    def __init__(self) -> None:
        self.fails_to_flush = False
        self.is_full = False
        self.flush_count = 0

    def fdatasync(self, fd: int) -> None:
        self.flush_count += 1
        if self.fails_to_flush:
            raise FlushFailedError("the disk refused", file="x")
        super().fdatasync(fd)

    def fallocate(self, fd: int, position: int, size_bytes: int) -> None:
        if self.is_full:
            raise DiskFullError("no space left", file="x")
        super().fallocate(fd, position, size_bytes)


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        message = new_message(
            b"body", keys=["k1", "k2"], tags="A", properties={"b": "2", "a": "1", "WAIT": "false"}, flag=-7, queue_id=3
        )
        message.born_time.FromMilliseconds(1_700_000_000_123)
        first, second = append(log, message, new_message(b"x", queue_id=3))
        record = log.opened.reads.get(first.commit_log_offset)

    assert (b"body", "orders", 3, 0, -7) == (
        record.body, record.topic, record.queue_id, record.queue_offset, record.flag,
    )  # fmt: skip
    assert ("k1", "k2") == record.keys
    assert 1_700_000_000_123 == record.born_time_millis
    assert BORN_HOST == record.born_host
    assert "127.0.0.1:10911" == str(record.store_host)
    names = list(record.properties)
    assert ["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "a", "b", "__CRC32#"] == names
    assert first.unique_key == record.unique_key
    assert 32 == len(first.unique_key)
    assert (record.next_offset, 1) == (second.commit_log_offset, second.queue_offset)


def test_queues_are_taken_in_turn_or_by_sharding_key(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        turns = [append(log, new_message())[0].queue_id for _ in range(9)]
        sharded = {append(log, new_message(properties={"__SHARDINGKEY": "customer-7"}))[0].queue_id for _ in range(5)}

    assert [0, 1, 2, 3, 4, 5, 6, 7, 0] == turns
    assert 1 == len(sharded)


def test_a_file_is_closed_with_a_blank_when_a_record_does_not_fit(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4096) as log:
        receipts = append(log, *[new_message(bytes([65 + i]) * 900, queue_id=0) for i in range(10)])
        bodies = [log.opened.reads.get(receipt.commit_log_offset).body[:1] for receipt in receipts]
        blank_offset = receipts[2].commit_log_offset + receipts[2].store_size_bytes
        if receipts[3].commit_log_offset != 4096:
            blank_offset = receipts[3].commit_log_offset + receipts[3].store_size_bytes
        data = (tmp_path / "s" / "commitlog" / ("0" * 20)).read_bytes()
        with pytest.raises(RecordNotFoundError):
            log.opened.reads.get(blank_offset)

    assert [bytes([65 + i]) for i in range(10)] == bodies
    assert list(range(10)) == [receipt.queue_offset for receipt in receipts]
    header = decode_header(data, blank_offset)
    assert (BLANK_MAGIC, 4096 - blank_offset) == (header.magic, header.size_bytes)
    assert {4096} == {path.stat().st_size for path in (tmp_path / "s" / "commitlog").iterdir()}


def test_a_record_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4096) as log:
        with pytest.raises(InvalidMessageError) as refused:
            append(log, new_message(), new_message(b"x" * 4090))

        assert ("body", "1") == (refused.value.metadata["field"], refused.value.metadata["index"])
        assert 0 == log.status.end_offset


def test_an_offset_outside_or_inside_a_record_is_told_from_damage(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        inner = append(log, new_message(b"inner"))[0]
        frame = (tmp_path / "s" / "commitlog" / ("0" * 20)).read_bytes()[: inner.store_size_bytes]
        outer = append(log, new_message(b"before" + frame + b"behind"))[0]
        for offset in (-1, log.status.end_offset, 1 << 62):
            with pytest.raises(OffsetOutOfRangeError):
                log.opened.reads.get(offset)
        for offset in range(outer.commit_log_offset + 1, log.status.end_offset):
            with pytest.raises(RecordNotFoundError):
                log.opened.reads.get(offset)
        path = tmp_path / "s" / "commitlog" / ("0" * 20)
        for at in range(inner.store_size_bytes):
            damaged = bytearray(frame)
            damaged[at] ^= 1
            with path.open("r+b") as file:
                file.write(damaged)
            with pytest.raises(RecordCorruptedError):
                log.opened.reads.get(inner.commit_log_offset)
        with path.open("r+b") as file:
            file.write(frame)

        assert b"inner" == log.opened.reads.get(0).body


def test_many_writers_get_every_place_once(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        receipts: list[tuple[int, int, int]] = []
        lock = threading.Lock()

        def write() -> None:
            for _ in range(50):
                mine = append(log, new_message(b"m" * 100), new_message(b"n" * 200))
                with lock:
                    receipts.extend((r.commit_log_offset, r.queue_id, r.queue_offset) for r in mine)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        batches = log.following.follow(-1, 1000)
        followed: list[tuple[int, int, int]] = []
        while len(followed) < 800:
            followed += [(r.commit_log_offset, r.queue_id, r.queue_offset) for r in next(batches).requests]

    assert sorted(receipts) == followed
    assert 800 == len({(queue_id, queue_offset) for _, queue_id, queue_offset in receipts})


def test_reput_never_passes_what_is_flushed(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", flush_interval_millis=60_000) as log:
        batches = log.following.follow(-1, 0)
        append(log, new_message(), sync=False)

        heartbeat = next(batches)
        assert ([], 0, 0) == (heartbeat.requests, heartbeat.next_offset, heartbeat.log_end_offset)

        last = append(log, new_message(), sync=True)[0]
        batch = next(batches)
        assert 2 == len(batch.requests)
        assert last.commit_log_offset + last.store_size_bytes == batch.next_offset == batch.log_end_offset


def test_what_somebody_waits_for_was_not_flushed_before_its_interval_was_over(tmp_path: Path) -> None:
    """Followers see what is flushed: the end of a queue was not known for as long."""
    with open_log(tmp_path / "s", flush_interval_millis=60_000) as log:
        servicer = CommitLogServicer(log, "broker-a", "127.0.0.1:10911")
        append(log, new_message(), sync=False)
        end_offset = servicer.GetStatus(pb.GetStatusRequest(), NO_CONTEXT).log_end_offset
        assert log._commits.wait_beyond(0, 0.1) == 0
        servicer.GetStatus(pb.GetStatusRequest(flush_soon=True), NO_CONTEXT)
        assert log._commits.wait_beyond(0, 10) == end_offset


def test_reput_starts_at_records_only(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        append(log, new_message())
        with pytest.raises(OffsetOutOfRangeError):
            log.following.follow(log.status.end_offset + 1, 0)
        with pytest.raises(RecordNotFoundError):
            log.following.follow(5, 0)


def test_async_appends_are_flushed_within_the_interval(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", flush_interval_millis=5) as log:
        append(log, new_message(), sync=False)

        assert log.status.end_offset == log._commits.wait_beyond(0, 5)


def test_the_first_failed_flush_fences_the_log_for_good(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fenced: list[StoreError] = []
    log = make_log(tmp_path / "s", fs, on_fenced=fenced.append)
    log.recover()
    append(log, new_message(b"kept"))
    fs.fails_to_flush = True
    with pytest.raises(FlushFailedError):
        append(log, new_message(b"unknown"))
    fs.fails_to_flush = False
    flush_count = fs.flush_count

    for _ in range(3):
        with pytest.raises(FlushFailedError):
            append(log, new_message(b"refused"))
    assert b"kept" == log.opened.reads.get(0).body
    assert "fenced" == log.status.state
    assert 1 == len(fenced)
    log.close()
    assert flush_count == fs.flush_count
    assert (tmp_path / "s" / "abort").exists()


def test_a_full_disk_refuses_the_batch_whole_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs, file_size_bytes=4096) as log:
        append(log, new_message(b"a" * 1000, queue_id=0))
        fs.is_full = True
        before = (tmp_path / "s" / "commitlog" / ("0" * 20)).read_bytes()
        with pytest.raises(DiskFullError):
            append(log, *[new_message(b"b" * 1000, queue_id=0) for _ in range(4)])
        assert before == (tmp_path / "s" / "commitlog" / ("0" * 20)).read_bytes()
        assert "disk-full" == log.status.state
        assert b"a" * 1000 == log.opened.reads.get(0).body
        fs.is_full = False

        receipts = append(log, *[new_message(b"b" * 1000, queue_id=0) for _ in range(4)])

        assert [1, 2, 3, 4] == [receipt.queue_offset for receipt in receipts]
        assert "serving" == log.status.state
    assert [] == [name for name in os.listdir(tmp_path / "s" / "reput" / "commitlog") if name.isdigit()]


def test_a_failed_write_that_cannot_be_trusted_fences(tmp_path: Path) -> None:
    class Unwritable(RealFileSystem):
        broken = False

        def pwritev(self, fd: int, parts: object, position: int) -> None:  # type: ignore[override]
            if self.broken:
                raise OSError(errno.EIO, "input/output error")
            super().pwritev(fd, parts, position)  # type: ignore[arg-type]

    fs = Unwritable()
    with open_log(tmp_path / "s", fs) as log:
        append(log, new_message(b"kept"))
        fs.broken = True
        with pytest.raises(FlushFailedError):
            append(log, new_message())
        assert "fenced" == log.status.state


def test_nothing_is_served_before_recovery(tmp_path: Path) -> None:
    log = make_log(tmp_path / "s")

    with pytest.raises(StoreRecoveringError):
        append(log, new_message())
    with pytest.raises(StoreRecoveringError):
        log.opened.reads.get(0)
    with pytest.raises(StoreRecoveringError):
        CommitLogServicer(log, "broker-a", "127.0.0.1:10911").ListTopics(pb.ListTopicsRequest(), None)
    assert "recovering" == log.status.state
    log.close()
    assert not (tmp_path / "s").exists()


def test_store_times_never_run_backwards(tmp_path: Path) -> None:
    times = iter([5_000, 9_000, 9_000, 1_000, 1_000, 1_000, 1_000])
    log = make_log(tmp_path / "s")
    log._clock_millis = lambda: next(times, 1_000)
    log.recover()
    stored = [append(log, new_message(queue_id=0))[0].store_time_millis for _ in range(3)]
    log.close()

    assert sorted(stored) == stored


def test_the_walk_sees_every_record_and_blank(tmp_path: Path) -> None:
    with open_log(tmp_path / "s", file_size_bytes=4096) as log:
        receipts = append(log, *[new_message(b"z" * size) for size in range(1, 1500, 50)])
    files = MappedFileQueue(RealFileSystem(), tmp_path / "s" / "commitlog", 1, writable=False)
    files.load()
    cursor = RecordCursor(files, 0, FullCheck(files))

    seen = list(cursor)

    assert [receipt.commit_log_offset for receipt in receipts] == [record.commit_log_offset for record in seen]
    assert cursor.why is None
    files.close()
