"""Levels of the disk under the log, and what a full one means for appends."""

import errno
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2

from commitlog_svc.retention.disk_space import LOOK_SECONDS, DiskLevel, DiskLimits, DiskSpace
from services.status import to_status
from store.errors import DiskFullError
from store.files.file_system import PathLike, RealFileSystem
from store.files.overlay_file_system import OverlayFileSystem
from tests.commitlog_svc.retention_bench import SizedFileSystem
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.waiting import wait_until

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40


@pytest.mark.parametrize(
    ("total_bytes", "free_bytes", "level"),
    [
        # A test's tmpfs: the ratios decide.
        (64 * MIB, 17 * MIB, "ok"),
        (64 * MIB, 16 * MIB, "clean"),
        (64 * MIB, 64 * MIB * 15 // 100, "clean-forcibly"),
        (64 * MIB, 64 * MIB * 10 // 100, "full"),
        (64 * MIB, 0, "full"),
        # 10 TiB: 95 % used is no emergency, the watermarks decide.
        (10 * TIB, 2 * TIB, "ok"),
        (10 * TIB, TIB // 2, "ok"),
        (10 * TIB, 10 * GIB + 1, "ok"),
        (10 * TIB, 10 * GIB, "clean"),
        (10 * TIB, 3 * GIB, "clean-forcibly"),
        (10 * TIB, 1 * GIB, "full"),
        # 8 GiB: below the watermarks all the time, but hardly used.
        (8 * GIB, 7 * GIB, "ok"),
        (8 * GIB, 2 * GIB, "clean"),
        (0, 0, "ok"),  # a file system that does not count
    ],
)
def test_a_level_needs_its_ratio_and_its_watermark(total_bytes: int, free_bytes: int, level: str) -> None:
    assert level == DiskLimits().level(total_bytes, free_bytes).word


def test_usage_is_what_df_says(tmp_path: Path) -> None:
    total_bytes, free_bytes = RealFileSystem().disk_usage(tmp_path)

    assert 0 < free_bytes < total_bytes
    assert OverlayFileSystem().disk_usage(tmp_path)[0] == total_bytes


def test_an_answer_is_never_older_than_half_a_second(tmp_path: Path) -> None:
    fs, now = SizedFileSystem(), [0.0]
    disk = DiskSpace(fs, tmp_path, DiskLimits(), lambda: now[0])
    assert DiskLevel.OK is disk.usage.level
    fs.free_bytes = 1
    now[0] = LOOK_SECONDS - 0.01
    disk.refuse_full()
    now[0] = LOOK_SECONDS

    with pytest.raises(DiskFullError) as refused:
        disk.refuse_full()

    assert "1" == refused.value.metadata["freeBytes"]
    fs.free_bytes = 60
    now[0] += LOOK_SECONDS
    disk.refuse_full()


def test_a_disk_that_does_not_answer_keeps_its_level(tmp_path: Path) -> None:
    class Mute(SizedFileSystem):
        is_mute = False

        def disk_usage(self, path: PathLike) -> tuple[int, int]:
            if self.is_mute:
                raise OSError(errno.EIO, "no answer")
            return super().disk_usage(path)

    fs = Mute()
    fs.free_bytes = 5
    disk = DiskSpace(fs, tmp_path, DiskLimits(), lambda: 0.0)
    assert DiskLevel.FULL is disk.look().level
    fs.is_mute = True

    assert DiskLevel.FULL is disk.look().level


def test_rmq_4826_a_full_disk_refuses_appends_keeps_reading_and_writing_resumes_alone(tmp_path: Path) -> None:
    fs = SizedFileSystem()
    with open_log(tmp_path / "s", fs) as log:
        receipt = append(log, new_message(b"before"))[0]
        fs.free_bytes = 5
        wait_until(lambda: log.status.state == "disk-full", "the log notices that its disk is full")
        end_offset = log.status.end_offset
        with pytest.raises(DiskFullError) as refused:
            append(log, new_message(b"refused"))
        assert end_offset == log.status.end_offset
        assert b"before" == log.opened.reads.get(receipt.commit_log_offset).body
        usage = log.status.disk_usage
        assert usage is not None
        assert (100, 5, "full") == (usage.total_bytes, usage.free_bytes, usage.level.word)

        fs.free_bytes = 60
        wait_until(lambda: log.status.state == "serving", "the log notices that its disk has room")
        after = append(log, new_message(b"after"))[0]
        assert end_offset == after.commit_log_offset

    status = to_status(refused.value)
    assert grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] == status.code
    assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)
