"""The yardstick decodes what the store's own decoder does."""

from pathlib import Path

from benchmarks import plain_decode
from store.format.record import decode_record
from tests.support.fixture_stores import walk_frames


def test_plain_decoding_reads_every_record_whole(broker_store: Path) -> None:
    expected = [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(broker_store)]
    assert plain_decode.decode_log(broker_store) == len(expected)
    found = []
    for path in sorted((broker_store / "commitlog").iterdir()):
        found += list(plain_decode.decode_file(path.read_bytes()))
    for record, row in zip(expected, found, strict=True):
        assert (row[0], row[1], row[2], row[3], row[4]) == (
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.commit_log_offset,
            record.store_size_bytes,
        )
        assert (row[7], row[9], row[-1]) == (record.born_time_millis, record.store_time_millis, record.body)
        assert dict(row[-2]) == dict(record.properties)
