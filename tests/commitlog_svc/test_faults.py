"""The log on a disk that fails in one call: what is refused, what is fenced, what goes on by itself.

Every call of every run is failed in tests/torture/test_failing_calls.py; here each kind of failure is looked at closely.
"""

import errno
import os
from pathlib import Path

import pytest

from commitlog_svc.commit_log import CommitLog
from store.errors import DiskFullError, FlushFailedError, ResourceBusyError, StoreCorruptedError, StoreError
from store.files.file_system import RealFileSystem
from tests.commitlog_svc.internal import append_internal, internal_record
from tests.commitlog_svc.support import append, make_log, new_message, open_log
from tests.support.faulty_file_system import FaultyFileSystem
from tests.support.waiting import wait_until


def bodies(log: CommitLog) -> list[bytes]:
    """Every body of the log, by brute force over the offsets that Reput shows."""
    found: list[bytes] = []
    if log.status.first_offset == log.status.flushed_offset:
        return found
    for batch in log.following.follow(-1, 0):
        found += [log.opened.reads.get(request.commit_log_offset).body for request in batch.requests]
        if batch.next_offset >= log.status.flushed_offset:
            return found
    return found


def append_until_refused(log: CommitLog, kind: type[Exception]) -> int:
    """How many messages went in before one was refused with that error."""
    for count in range(1000):
        try:
            append(log, new_message(b"%04d" % count + bytes(500)))
        except kind:
            return count
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize(
    ("kind", "path", "first_body_count"),
    [
        ("fsync_dir", "config", 0),  # the topic table's directory
        ("fdatasync", "topics.json", 0),
        ("fdatasync", "reput/commitlog/0000", 0),  # a new segment, before it has its name
        ("fsync_dir", "/commitlog", 0),  # the directory that gets it
        ("fdatasync", "s/commitlog/0000", 0),  # the records themselves
    ],
)
def test_rmq_2706_any_refused_flush_on_the_way_of_an_append_fences(
    tmp_path: Path, kind: str, path: str, first_body_count: int
) -> None:
    fs = FaultyFileSystem()
    fenced: list[StoreError] = []
    log = make_log(tmp_path / "s", fs, on_fenced=fenced.append)
    log.recover()
    fault = fs.fail(kind, errno.EIO, path=path)
    with pytest.raises(FlushFailedError):
        append(log, new_message())
    assert fault.hits == 1
    flush_count = fs.count("fdatasync")
    with pytest.raises(FlushFailedError):
        append(log, new_message(), sync=False)
    assert (log.status.state, len(fenced)) == ("fenced", 1)
    assert "check the disk" in log.status.problem or "refused" in log.status.problem
    log.close()
    assert fs.count("fdatasync") == flush_count, "flushed after a refused flush"
    assert (tmp_path / "s" / "abort").exists()


@pytest.mark.parametrize(
    ("kind", "path", "number"),
    [
        ("pwrite", "topics.json", errno.EIO),
        ("open", "reput/commitlog/0000", errno.EROFS),
        ("rename", "0000", errno.EIO),
    ],
)
def test_a_disk_that_fails_before_the_record_is_written_fences_with_its_words(
    tmp_path: Path, kind: str, path: str, number: int
) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        fs.fail(kind, number, path=path)
        with pytest.raises(FlushFailedError, match=os.strerror(number)):
            append(log, new_message())
        assert log.status.state == "fenced"


def test_a_full_disk_at_a_new_segment_refuses_goes_on_reading_and_resumes_alone(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        append(log, new_message(b"first"))
        full = fs.fail("fallocate", errno.ENOSPC, lasting=True)
        count = append_until_refused(log, DiskFullError)
        assert log.status.state == "disk-full"
        assert "free some" in log.status.problem
        assert len(bodies(log)) == count + 1
        full.clear()
        wait_until(lambda: log.status.state == "serving")
        append(log, new_message(b"last"))
        assert bodies(log)[-1] == b"last"
        assert len(bodies(log)) == count + 2
    with open_log(tmp_path / "s") as log:
        assert len(bodies(log)) == count + 2


def test_a_record_of_a_service_was_taken_where_a_message_found_no_room_and_is_there_after_a_restart(
    tmp_path: Path,
) -> None:
    """An acknowledgement on a full disk was answered with OK: the last file had room for it, and not for a message."""
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        append(log, new_message(b"first"))
        full = fs.fail("fallocate", errno.ENOSPC, lasting=True)
        append_until_refused(log, DiskFullError)
        taken = append_internal(log, internal_record(b"acknowledged"))
        with pytest.raises(DiskFullError):
            append(log, new_message(b"refused" + bytes(600)))
        full.clear()
    with open_log(tmp_path / "s") as log:
        assert log.opened.reads.get(taken[0].commit_log_offset).body == b"acknowledged"


@pytest.mark.parametrize("short_bytes", [0, 1, 100, 700, 1500])
def test_a_write_that_ran_out_of_room_half_way_leaves_nothing(tmp_path: Path, short_bytes: int) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        append(log, new_message(b"before"))
        fs.fail("pwritev", errno.ENOSPC, short_bytes=short_bytes)
        with pytest.raises(DiskFullError):
            append(log, *[new_message(b"refused" + bytes(300)) for _ in range(5)])
        file = tmp_path / "s" / "commitlog" / ("0" * 20)
        assert not file.read_bytes()[log.status.end_offset :].strip(b"\0")
        append(log, new_message(b"after"))
        assert bodies(log) == [b"before", b"after"]
        assert [log.opened.reads.get(log.status.first_offset).queue_offset] == [0]
    with open_log(tmp_path / "s") as log:
        assert bodies(log) == [b"before", b"after"]


def test_a_full_disk_that_cannot_even_overwrite_refuses_until_it_can_and_is_not_fenced(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        append(log, new_message(b"before"))
        full = [
            fs.fail("pwritev", errno.ENOSPC, short_bytes=400, lasting=True),
            fs.fail("pwrite", errno.ENOSPC, path="s/commitlog/0000", lasting=True),
        ]
        for _ in range(3):
            with pytest.raises(DiskFullError):
                append(log, new_message(b"refused" * 90))
        assert log.status.state == "disk-full"
        assert bodies(log) == [b"before"]
        for fault in full:
            fault.clear()
        append(log, new_message(b"after"))
        assert (log.status.state, bodies(log)) == ("serving", [b"before", b"after"])
        file = tmp_path / "s" / "commitlog" / ("0" * 20)
        assert not file.read_bytes()[log.status.end_offset :].strip(b"\0"), "left behind the end"


def test_no_file_handle_left_is_a_busy_answer_and_passes(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        none_left = fs.fail("open", errno.EMFILE, lasting=True)
        with pytest.raises(ResourceBusyError):
            append(log, new_message())
        none_left.clear()
        append(log, new_message(b"after"))
        assert bodies(log) == [b"after"]


def test_a_start_on_a_disk_without_room_for_the_abort_marker_serves_reads_and_appends_later(tmp_path: Path) -> None:
    with open_log(tmp_path / "s") as log:
        append(log, new_message(b"first"))
    fs = FaultyFileSystem()
    full = fs.fail("open", errno.ENOSPC, path="s/abort", lasting=True)
    with open_log(tmp_path / "s", fs) as log:
        assert bodies(log) == [b"first"]
        with pytest.raises(DiskFullError):
            append(log, new_message())
        assert log.status.state == "disk-full"
        full.clear()
        wait_until(lambda: log.status.state == "serving")
        assert (tmp_path / "s" / "abort").exists()
        append(log, new_message(b"second"))
        assert bodies(log) == [b"first", b"second"]


def test_bytes_that_the_disk_cannot_read_are_named_and_never_an_answer(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        receipt = append(log, new_message(b"first"))[0]
        fs.fail("pread", errno.EIO, path="s/commitlog/0000")
        with pytest.raises(StoreCorruptedError, match="0000"):
            log.opened.reads.get(receipt.commit_log_offset)
        assert log.opened.reads.get(receipt.commit_log_offset).body == b"first"


def test_a_real_read_error_names_file_and_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(100))
    fs = RealFileSystem()
    fd = fs.open(path, os.O_RDONLY)

    def pread(fd: int, size_bytes: int, position: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(StoreCorruptedError, match=f"{path} at byte 40"):
        fs.pread(fd, 10, 40)
    fs.close(fd)


def test_new_directories_are_on_the_disk_before_the_first_answer(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(RealFileSystem):
        def fsync_dir(self, path: str | Path) -> None:
            super().fsync_dir(path)
            synced.append(str(path))

    root = tmp_path / "a" / "b"
    with open_log(root, Watched()) as log:
        append(log, new_message())
        missing = {str(tmp_path), str(tmp_path / "a"), str(root), str(root / "commitlog"), str(root / "config")}
        assert missing <= set(synced)


def test_a_durable_mark_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        fs.fail("pwrite", errno.EIO, path="commitlog/durable", lasting=True)
        append(log, new_message(b"first"))
        append(log, new_message(b"second"))
        assert log.status.state == "serving"
        fs.clear()
    with open_log(tmp_path / "s") as log:
        assert bodies(log) == [b"first", b"second"]


def test_locks_are_given_back_when_the_abort_marker_cannot_be_removed(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    log = make_log(tmp_path / "s", fs)
    log.recover()
    fs.fail("unlink", errno.EIO, path="s/abort")
    with pytest.raises(OSError, match="Input/output"):
        log.close()
    with open_log(tmp_path / "s") as again:
        append(again, new_message())


def test_a_stop_on_a_full_disk_keeps_everything_and_says_that_it_was_not_clean(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        append(log, new_message(b"first"))
        fs.fail("open", errno.ENOSPC, path="snapshot.json", lasting=True)
    assert (tmp_path / "s" / "abort").exists()
    with open_log(tmp_path / "s") as log:
        assert bodies(log) == [b"first"]
