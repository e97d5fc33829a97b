"""Records read from log files, in order and to the end."""

from store.readers.log_reader import LogReader
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
