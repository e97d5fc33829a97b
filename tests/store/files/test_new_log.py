"""A new log that is filled with records of another one."""

from pathlib import Path

from store.files.file_system import RealFileSystem
from store.files.new_log import NewLog
from store.format.request_mark import TAIL_SIZE_BYTES, RequestMark, decode_request_mark
from store.walk.log_reader import LogReader
from tests.commitlog_svc.internal import append_internal, internal_record
from tests.commitlog_svc.support import open_log


def test_a_copied_record_of_a_request_is_a_request_of_its_own(tmp_path: Path) -> None:
    """Its request is not copied with it. With the old mark a recovery took the record for half of a request and cut it."""
    with open_log(tmp_path / "source") as log:
        receipts = append_internal(log, internal_record(b"one"), internal_record(b"two"))
        file = next((tmp_path / "source" / "commitlog").iterdir())
        begin, end = receipts[0].commit_log_offset, receipts[0].end_offset
        frame = bytearray(file.read_bytes()[begin:end])
    assert RequestMark(0, receipts[1].end_offset - end) == decode_request_mark(frame[-TAIL_SIZE_BYTES:])

    copied = tmp_path / "copy" / "commitlog"
    copied.mkdir(parents=True)
    copy = NewLog(RealFileSystem(), copied, 4096)
    copy.add("orders", frame)
    copy.finish()

    assert RequestMark(0, 0) == decode_request_mark(
        next(copied.iterdir()).read_bytes()[: len(frame)][-TAIL_SIZE_BYTES:]
    )
    assert b"one" == LogReader(tmp_path / "copy").record(0, len(frame)).body
