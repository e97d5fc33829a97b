"""A recovery that is killed again and again goes on where it was, and says how far it is."""

import threading
from pathlib import Path

import pytest

from commitlog_svc.__main__ import say_progress
from commitlog_svc.recovery.recovery import CHECKPOINT_SECONDS, RecoveredLog, RecoveryProgress, recover_log
from store.errors import FlushFailedError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_files import MappedFileQueue
from store.format.derived.queue_unit import QueueUnit, encode_queue_unit
from tests.commitlog_svc.support import append, make_log, new_message, open_log
from tests.support.faulty_file_system import FaultyFileSystem
from tests.support.fixture_stores import walk_frames
from tests.support.waiting import WAIT_SECONDS_MAX

pytestmark = pytest.mark.usefixtures("kernel_mode")  # the log is walked with the kernel and without

MESSAGE_COUNT = 400


class KilledError(BaseException):
    """What a kill looks like from inside."""


class SlowClock:
    """Every look at it takes a second; the walk is killed when it has taken so long."""

    def __init__(self, killed_at: float = float("inf")) -> None:
        self.now = 0.0
        self.killed_at = killed_at

    def __call__(self) -> float:
        self.now += 1.0
        if self.now > self.killed_at:
            raise KilledError
        return self.now


def make_store(root: Path) -> Path:
    """A log of many small files without any memory of its end."""
    with open_log(root) as log:
        for number in range(0, MESSAGE_COUNT, 20):
            append(log, *[new_message(b"%d" % at + bytes(200), queue_id=at % 7) for at in range(number, number + 20)])
    (root / "reput" / "commitlog" / "snapshot.json").unlink()
    return root


def recover(root: Path, clock: SlowClock, fs: FileSystem | None = None) -> tuple[RecoveredLog, RecoveryProgress]:
    fs = fs or RealFileSystem()
    files = MappedFileQueue(fs, root / "commitlog", 16384)
    progress = RecoveryProgress()
    files.load()
    try:
        found = recover_log(fs, root, files, was_aborted=True, read_only=False, progress=progress, clock=clock)
    finally:
        files.close()
    return found, progress


def test_a_recovery_that_is_killed_over_and_over_comes_to_its_end(tmp_path: Path) -> None:
    root = make_store(tmp_path / "s")
    expected_end = max(offset + len(frame) for offset, frame in walk_frames(root))
    begins = []
    for _ in range(100):
        try:
            found, progress = recover(root, SlowClock(killed_at=CHECKPOINT_SECONDS + 3))
        except KilledError:
            continue
        finally:
            begins.append(None)
        break
    else:
        raise AssertionError("never came to its end")
    assert len(begins) > 3, "nothing was killed"
    assert found.end_offset == expected_end
    assert found.walked_from_offset > 0
    counts = {("orders", queue): len(range(queue, MESSAGE_COUNT, 7)) for queue in range(7)}
    assert found.queue_offsets == counts
    assert (progress.next_offset, progress.begin_offset) == (expected_end, found.walked_from_offset)


def test_a_kill_costs_no_more_than_the_work_since_the_last_checkpoint(tmp_path: Path) -> None:
    root = make_store(tmp_path / "s")
    file_count = len(list((root / "commitlog").iterdir()))
    with pytest.raises(KilledError):
        recover(root, SlowClock(killed_at=file_count))  # near the end: each file is one piece and one look
    found, _ = recover(root, SlowClock())
    walked_anew = MESSAGE_COUNT - found.record_count
    assert walked_anew > MESSAGE_COUNT // 2, "began from the start"


def test_what_a_checkpoint_says_was_walked_is_on_the_disk_first(tmp_path: Path) -> None:
    root = make_store(tmp_path / "s")
    fs = FaultyFileSystem()
    fs.fail("fdatasync", 5, path="s/commitlog/0000", lasting=True)
    with pytest.raises(FlushFailedError):
        recover(root, SlowClock(), fs)
    assert not (root / "reput" / "commitlog" / "snapshot.json").exists()


def test_a_full_disk_does_not_keep_a_log_from_being_recovered(tmp_path: Path) -> None:
    root = make_store(tmp_path / "s")
    fs = FaultyFileSystem()
    full = fs.fail("open", 28, path="snapshot.json.tmp", lasting=True)
    found, _ = recover(root, SlowClock(), fs)
    assert full.hits > 1
    assert found.record_count == MESSAGE_COUNT


def test_a_queue_whose_records_were_retired_is_found_also_after_a_killed_recovery(tmp_path: Path) -> None:
    root = tmp_path / "s"
    units = bytearray(20 * 100)
    with open_log(root) as log:
        for number in range(3):
            receipt = append(log, new_message(topic="Old", queue_id=5))[0]
            unit = encode_queue_unit(QueueUnit(receipt.commit_log_offset, receipt.store_size_bytes, 0))
            units[number * 20 : number * 20 + 20] = unit
        for _ in range(10):
            append(log, *[new_message(bytes(300)) for _ in range(20)])
    (root / "consumequeue" / "Old" / "5").mkdir(parents=True)
    (root / "consumequeue" / "Old" / "5" / ("0" * 20)).write_bytes(units)
    (root / "commitlog" / ("0" * 20)).unlink()
    (root / "reput" / "commitlog" / "snapshot.json").unlink()
    with pytest.raises(KilledError):
        recover(root, SlowClock(killed_at=CHECKPOINT_SECONDS + 4))
    assert (root / "reput" / "commitlog" / "snapshot.json").exists()
    found, _ = recover(root, SlowClock())
    assert found.walked_from_offset > 16384
    assert found.queue_offsets["Old", 5] == 3


def test_progress_is_seen_while_the_log_is_recovered(tmp_path: Path) -> None:
    root = make_store(tmp_path / "s")
    reached, go_on = threading.Event(), threading.Event()

    class Halting(RealFileSystem):
        def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
            if log.recovery_progress.record_count > MESSAGE_COUNT // 4:
                reached.set()
                assert go_on.wait(WAIT_SECONDS_MAX)
            return super().pread(fd, size_bytes, position)

    log = make_log(root, Halting())
    thread = threading.Thread(target=log.recover, daemon=True)
    thread.start()
    assert reached.wait(WAIT_SECONDS_MAX)
    progress = log.recovery_progress
    assert log.status.state == "recovering"
    assert 0 < progress.next_offset < progress.end_offset
    assert MESSAGE_COUNT // 4 < progress.record_count < MESSAGE_COUNT
    said, done = [], threading.Event()

    def say(event: str, **fields: int) -> None:
        said.append((event, fields))
        done.set()

    say_progress(log, done, say, interval_seconds=0.001)
    assert said[0][0] == "log.recovering"
    assert said[0][1]["next_offset"] == progress.next_offset
    go_on.set()
    thread.join(WAIT_SECONDS_MAX)
    assert log.status.state == "serving"
    log.close()
