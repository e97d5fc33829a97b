"""Records read from log files, in order and to the end."""

import os
from pathlib import Path

import pytest

from store.errors import StoreCorruptedError
from store.files.file_system import RealFileSystem
from store.walk.frame_walk import FrameFilter
from store.walk.frame_walk import walk_frames as walk_frames_of
from store.walk.log_reader import LogReader
from tests.store.walk.logs import closed, frames_of, message
from tests.support.fixture_stores import walk_frames


def test_every_frame_of_a_real_log_is_met_once(broker_store):
    expected = [(offset, len(frame)) for offset, frame in walk_frames(broker_store)]

    found = [(r.commit_log_offset, r.record_size_bytes) for r in LogReader(broker_store).dispatch_requests()]

    assert found == expected


def test_reading_starts_in_the_middle_and_in_a_later_file(broker_store):
    everything = list(LogReader(broker_store).dispatch_requests())

    for at in (1, 500, 1500, len(everything) - 1):
        start = everything[at].commit_log_offset
        assert list(LogReader(broker_store).dispatch_requests(start)) == everything[at:]


def test_a_record_is_read_by_offset_and_size(broker_store):
    for request in list(LogReader(broker_store).dispatch_requests())[::500]:
        record = LogReader(broker_store).record(request.commit_log_offset, request.record_size_bytes)
        assert (record.topic, record.store_time_millis) == (request.topic, request.store_time_millis)


def test_an_empty_root_has_no_records(tmp_path):
    assert list(LogReader(tmp_path).dispatch_requests()) == []


class ReadOnlyFileSystem(RealFileSystem):
    """A disk that refuses to open a file for writing."""

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        assert flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT) == 0, path
        return super().open(path, flags, mode)


def test_a_walk_needs_no_permission_to_write(broker_store):
    reader = LogReader(broker_store, ReadOnlyFileSystem())
    request = next(reader.dispatch_requests())
    assert reader.record(request.commit_log_offset, request.record_size_bytes).topic == request.topic
    walked = walk_frames_of(ReadOnlyFileSystem(), broker_store, FrameFilter(), lambda topic, frame: None)
    assert walked.record_count == len(list(reader.dispatch_requests()))


def test_a_reader_goes_on_in_the_next_file_where_one_is_missing(tmp_path):
    """Files of any sizes; each record states its place."""
    directory = tmp_path / "commitlog"
    directory.mkdir()
    for base, size in ((0, 1000), (5000, 800)):
        (directory / f"{base:020d}").write_bytes(closed(*frames_of([message()] * 3, base=base), size_bytes=size))
    (directory / f"{9000:020d}").write_bytes(b"".join(frames_of([message()] * 2, base=9000)) + bytes(40))
    (directory / f"{12000:020d}").write_bytes(b"".join(frames_of([message()] * 2, base=12000)))
    size = len(frames_of([message()])[0])

    offsets = [request.commit_log_offset for request in LogReader(tmp_path).dispatch_requests()]

    assert offsets == [
        base + number * size for base, count in ((0, 3), (5000, 3), (9000, 2)) for number in range(count)
    ]
    assert [r.commit_log_offset for r in LogReader(tmp_path).dispatch_requests(5000 + size)] == offsets[4:]


def test_a_reader_of_a_whole_log_tells_an_end_from_damage(tmp_path):
    directory = tmp_path / "commitlog"
    directory.mkdir()
    files = {base: closed(*frames_of([message()] * 3, base=base), size_bytes=1000) for base in (0, 1000)}
    last = b"".join(frames_of([message()] * 2, base=2000)).ljust(1000, b"\0")
    size = len(frames_of([message()])[0])

    def count(**changed):
        for base, data in {
            **files,
            2000: last,
            3000: bytes(1000),
            **{int(k[1:]): v for k, v in changed.items()},
        }.items():
            (directory / f"{base:020d}").write_bytes(data)
        return len(list(LogReader(tmp_path).dispatch_requests(whole=True)))

    assert count() == 8, "the file that is allocated ahead has none"
    damaged = bytearray(last)
    damaged[size + 4] ^= 0xFF
    for wrong, says in (
        ({"_2000": bytes(damaged)}, f"cannot be read behind byte {2000 + size}: "),
        ({"_1000": bytes(1000)}, "no record at byte 1000, and something behind it"),
        ({"_3000": b"?" * 1000}, f"no record at byte {2000 + 2 * size}, and something behind it"),
    ):
        with pytest.raises(StoreCorruptedError, match=says):
            count(**wrong)
    assert count() == 8
    (directory / f"{1000:020d}").unlink()
    with pytest.raises(StoreCorruptedError, match="bytes 1000 to 2000 of the log are missing"):
        list(LogReader(tmp_path).dispatch_requests(whole=True))
    assert len(list(LogReader(tmp_path).dispatch_requests(2000, whole=True))) == 2
