"""What the rows of waiting messages read from a log: against the store's own decoder, and against logs put together here."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.load import TOPIC
from benchmarks.log_records import LogRecord, read_records
from benchmarks.rows.timers import DUE_TOPIC, drain_seconds, lateness
from benchmarks.rows.transactions import committed_count
from store.format.host import Host
from store.format.record import Record, decode_record, encode_record
from tests.support.fixture_stores import walk_frames

FILE_BYTES = 4096
HOST = Host("127.0.0.1", 10911)


def _log(root: Path, messages: Sequence[tuple[str, int, str]]) -> list[int]:
    """A log of one file with records of topic, store time (ms) and properties; where each begins (bytes)."""
    data = b""
    begins = []
    for topic, stored_millis, properties in messages:
        begins.append(len(data))
        record = Record(
            topic=topic,
            queue_id=0,
            queue_offset=0,
            commit_log_offset=len(data),
            store_size_bytes=0,
            flag=0,
            sys_flag=0,
            born_time_millis=1,
            born_host=HOST,
            store_time_millis=stored_millis,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
            body=b"body",
            properties_bytes=properties.encode(),
        )
        data += encode_record(record)
    (root / "commitlog").mkdir()
    (root / "commitlog" / f"{0:020}").write_bytes(data.ljust(FILE_BYTES, b"\0"))
    return begins


def test_each_record_of_a_brokers_log_is_read_from_any_place_on(broker_store: Path) -> None:
    frames = list(walk_frames(broker_store))
    records = [decode_record(frame, commit_log_offset=offset) for offset, frame in frames]
    expected = [LogRecord(one.topic, one.store_time_millis, dict(one.properties)) for one in records]
    for at in (0, 1, len(frames) // 2, len(frames) - 1):
        assert list(read_records(broker_store, frames[at][0])) == expected[at:]


def test_lateness_counts_delivered_records_behind_the_begin(tmp_path: Path) -> None:
    due = "TIMER_DELIVER_MS\x0110000\x02"
    begins = _log(
        tmp_path,
        [
            (TOPIC, 99_000, due),  # of another time
            ("rmq_sys_wheel_timer", 5_000, due),  # it waits
            (TOPIC, 10_007, due),
            (TOPIC, 9_250, f"{due}TAGS\x01TagA\x02"),  # early
        ],
    )
    assert lateness(tmp_path, begins[1]) == [7, -750]


def test_a_drain_lasts_from_the_first_time_to_the_last_delivery_and_counts_only_when_it_is_whole(
    tmp_path: Path,
) -> None:
    begins = _log(
        tmp_path,
        [
            (DUE_TOPIC, 99_000, ""),  # before
            ("rmq_sys_wheel_timer", 5_000, ""),  # it waits
            (DUE_TOPIC, 12_500, ""),
            (TOPIC, 13_000, ""),  # sent meanwhile
            (DUE_TOPIC, 11_000, ""),
        ],
    )
    assert drain_seconds(tmp_path, begins[1], 2, 10_000) == 2.5
    with pytest.raises(RuntimeError, match="2 messages were delivered, not 3"):
        drain_seconds(tmp_path, begins[1], 3, 10_000)


def test_half_messages_and_verdicts_are_no_committed_ones(tmp_path: Path) -> None:
    topics = ["RMQ_SYS_TRANS_HALF_TOPIC", TOPIC, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", TOPIC]
    _log(tmp_path, [(topic, at, "") for at, topic in enumerate(topics)])
    assert committed_count(tmp_path) == 2
