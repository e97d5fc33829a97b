"""Queues read from their files: ranges, fillers, deleted heads, damage."""

import pytest

from store.errors import StoreCorruptedError
from store.files.file_system import RealFileSystem
from store.format.derived.queue_unit import FILLER, encode_queue_unit
from store.readers.queue_reader import detect_queue_file_size
from tests.support.dispatches import requests_of
from tests.support.fixture_stores import read_rows
from tests.support.readers import QueueReader

FILE_SIZE = 5 * 20


def write_queue(root, units, *, first_file=0, topic="t"):
    """Lays units, (offset, size) each, into files of five."""
    directory = root / "consumequeue" / topic / "0"
    directory.mkdir(parents=True)
    for at in range(0, len(units), 5):
        data = b"".join(
            encode_queue_unit(unit if unit == FILLER else (*unit, 0)) if unit else bytes(20)
            for unit in units[at : at + 5]
        )
        (directory / f"{first_file + at * 20:020d}").write_bytes(data.ljust(FILE_SIZE, b"\0"))
    return QueueReader(root).queue(topic, 0)


def test_ranges_of_a_real_store_are_the_brokers(broker_store):
    reader = QueueReader(broker_store)

    for row in (row for row in read_rows("broker.queries.jsonl") if row["mode"] == "range"):
        units = reader.queue(row["topic"], row["queue_id"])
        assert (units.min_offset(0), units.end) == (row["min"], row["max"])


def test_units_of_a_real_store_are_the_records_of_the_log(broker_store):
    reader = QueueReader(broker_store)
    expected = {
        (r.topic, r.queue_id, r.queue_offset): (r.commit_log_offset, r.record_size_bytes, r.tags_code)
        for r in requests_of(broker_store)
        if r.sys_flag & 0xC not in (4, 0xC)
    }

    found = {
        (topic, queue_id, position): tuple(unit)
        for topic in reader.topics()
        for queue_id in reader.queues(topic)
        for position, unit in reader.queue(topic, queue_id).units(0, 100_000)
    }

    assert found == expected


def test_file_size_is_read_from_the_files_though_one_is_cut_short(copy_of_broker_store):
    path = copy_of_broker_store / "consumequeue/b_order/1/00000000000000004000"
    path.write_bytes(path.read_bytes()[:1000])

    assert detect_queue_file_size(RealFileSystem(), copy_of_broker_store) == 4000


def test_an_empty_root_has_no_file_size(tmp_path):
    assert detect_queue_file_size(RealFileSystem(), tmp_path) is None


@pytest.mark.parametrize("count", range(1, 12))
def test_the_end_is_the_first_empty_unit(tmp_path, count):
    units = write_queue(tmp_path, [(n * 100, 100) for n in range(count)])

    assert units.end == count


def test_an_empty_last_file_does_not_hide_the_one_before(tmp_path):
    assert write_queue(tmp_path, [(n * 100, 100) for n in range(5)] + [None] * 5).end == 5


def test_fillers_before_the_first_message_are_no_units(tmp_path):
    units = write_queue(tmp_path, [FILLER, FILLER, (500, 100), (600, 100)], first_file=100)

    assert (units.begin, units.min_offset(0), units.end) == (5, 7, 9)
    assert [position for position, _ in units.units(0, 10)] == [7, 8]


@pytest.mark.parametrize(
    ("log_first", "expected"), [(0, 0), (1, 1), (300, 3), (301, 4), (900, 9), (901, 10), (5000, 10)]
)
def test_min_offset_is_the_first_unit_whose_record_the_log_still_has(tmp_path, log_first, expected):
    units = write_queue(tmp_path, [(n * 100, 100) for n in range(10)])

    assert units.min_offset(log_first) == expected
    assert len(units.units(0, 100, log_first)) == 10 - expected


def test_a_hole_is_damage_and_says_where(tmp_path):
    units = write_queue(tmp_path, [(0, 100), None, (200, 100), (300, 100), (400, 100), (500, 100)])

    with pytest.raises(StoreCorruptedError) as raised:
        units.units(0, 10)

    assert raised.value.metadata["offset"] == "20"
