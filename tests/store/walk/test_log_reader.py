"""Records read from log files, in order and to the end."""

import os
from pathlib import Path

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
