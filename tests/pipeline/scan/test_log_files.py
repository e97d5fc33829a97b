"""What may be read of a log: not the file made ahead, and of a running owner's log nothing that may still be cut."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.scan.log_files import NOTED_TOPIC_COUNT_MAX, readable_log, safe_offset
from store.errors import UnsupportedStoreError
from store.files.file_system import RealFileSystem
from store.format.checkpoint import StoreCheckpoint, encode_checkpoint, encode_durable_mark
from tests.pipeline.logs import FILE_BYTES, write_files
from tests.store.files.test_files import JAVA_LIKE_HOLDER
from tests.support.archives import written_to

FS = RealFileSystem()
FILES = [number * FILE_BYTES for number in range(4)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log of four files, and one that was made ahead."""
    write_files(tmp_path)
    return tmp_path


def test_a_log_that_nobody_writes_to_goes_to_the_end_of_its_last_written_file(root: Path) -> None:
    (root / "reput" / "commitlog").mkdir(parents=True)
    (root / "reput" / "commitlog" / "durable").write_bytes(encode_durable_mark(5))

    log = readable_log(FS, root)

    assert (log.first_offsets, log.end_offset, log.mark, log.is_live) == (FILES, 4 * FILE_BYTES, None, False)


def test_a_running_owners_log_goes_to_its_mark_and_files_behind_it_are_left_out(root: Path) -> None:
    for mark, count in ((0, 0), (1, 1), (FILE_BYTES, 1), (FILE_BYTES + 1, 2), (9 * FILE_BYTES, 4)):
        with written_to(root, mark):
            log = readable_log(FS, root)
        assert (log.first_offsets, log.mark, log.is_live) == (FILES[:count], mark, True)
        assert log.end_offset == min(mark, count * FILE_BYTES)


def test_a_log_with_replicas_goes_to_what_is_confirmed_and_on_the_disk(root: Path) -> None:
    for durable, confirmed in ((500, 300), (300, 500)):
        with written_to(root, durable, confirmed_offset=confirmed):
            assert safe_offset(FS, root) == 300
    (root / "checkpoint").write_bytes(b"torn")
    (root / "reput" / "commitlog" / "confirmed").write_bytes(b"torn")
    with written_to(root, 500):
        assert safe_offset(FS, root) == 0


def test_the_confirmed_mark_of_a_log_that_has_no_replicas_any_more_does_not_hold_it_back(root: Path) -> None:
    (root / "checkpoint").write_bytes(encode_checkpoint(StoreCheckpoint(confirm_phy_offset=400)))
    with written_to(root, 500, confirmed_offset=300):
        assert safe_offset(FS, root) == 400


def test_an_old_mark_does_not_hold_back_the_log_of_a_broker(root: Path) -> None:
    with (
        written_to(root, 300),
        subprocess.Popen(
            [sys.executable, "-c", JAVA_LIKE_HOLDER, str(root / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as broker,
    ):
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        log = readable_log(FS, root)
        broker.communicate(b"")

    assert (log.first_offsets, log.end_offset, log.mark, log.is_live) == (FILES, 4 * FILE_BYTES, None, True)


def test_what_is_no_store_has_no_log(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match="has no commitlog/"):
        readable_log(FS, tmp_path)


def test_a_log_whose_store_may_hold_more_elsewhere_was_read_without_a_word(root: Path) -> None:
    assert readable_log(FS, root).notes() == []
    for number in range(NOTED_TOPIC_COUNT_MAX + 2):
        (root / f"compaction/compactionLog/t{number}/0").mkdir(parents=True)
    notes = readable_log(FS, root).notes()
    assert notes[0].startswith("messages may be missing: topic t0 uses compacted topics")
    assert notes[NOTED_TOPIC_COUNT_MAX:] == ["likewise of 2 more topics"]
