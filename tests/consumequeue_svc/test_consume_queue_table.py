"""Queues being written: where units go, what is dropped, what a first message in the middle leaves."""

import struct

import pytest

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from store.derive.dispatch_columns import DispatchColumns
from store.errors import DiskFullError, QueueNotFoundError, TopicNotFoundError
from store.files.file_system import RealFileSystem
from tests.support.dispatches import file_bytes, make_request
from tests.support.faulty_file_system import FaultyFileSystem

FILE_SIZE = 5 * 20
FILLER = struct.pack(">qiq", 0, 2**31 - 1, 0)


def unit(number):
    return struct.pack(">qiq", number * 100, 100, number)


def queue_bytes(root):
    return {name: data.rstrip(b"\0") for name, data in file_bytes(root / "consumequeue").items()}


@pytest.fixture
def table(tmp_path):
    return ConsumeQueueTable(tmp_path, RealFileSystem(), FILE_SIZE)


def test_units_fill_files_one_after_the_other_and_the_next_is_made_at_need(table, tmp_path):
    table.apply(DispatchColumns.of([make_request(n) for n in range(5)]))
    assert list(queue_bytes(tmp_path)) == ["orders/0/00000000000000000000"]

    table.apply(DispatchColumns.of([make_request(5)]))

    assert queue_bytes(tmp_path)["orders/0/00000000000000000100"] == unit(5).rstrip(b"\0")
    assert table.queue("orders", 0).units.end == 6


def test_a_first_message_in_the_middle_is_preceded_by_fillers(table, tmp_path):
    table.apply(DispatchColumns.of([make_request(n, queue_offset=n + 7) for n in range(2)]))

    assert queue_bytes(tmp_path) == {"orders/0/00000000000000000100": FILLER * 2 + unit(0) + unit(1)}


def test_a_gap_is_filled_so_that_positions_stay_right(table, tmp_path):
    table.apply(DispatchColumns.of([make_request(0), make_request(1, queue_offset=3)]))

    assert queue_bytes(tmp_path) == {"orders/0/00000000000000000000": unit(0) + FILLER * 2 + unit(1)}
    assert [position for position, _ in table.queue("orders", 0).units.units(0, 10)] == [0, 3]


def test_a_message_whose_position_is_taken_is_left_out(table, tmp_path):
    table.apply(DispatchColumns.of([make_request(0), make_request(1), make_request(2)]))
    table.apply(DispatchColumns.of([make_request(3, queue_offset=1), make_request(4, queue_offset=3)]))

    assert queue_bytes(tmp_path) == {"orders/0/00000000000000000000": unit(0) + unit(1) + unit(2) + unit(4)}


def test_a_topic_made_again_starts_its_queues_anew(table, tmp_path):
    table.apply(DispatchColumns.of([make_request(n) for n in range(7)]))
    table.apply(DispatchColumns.of([make_request(7, queue_offset=0), make_request(8, queue_offset=1)]))

    assert queue_bytes(tmp_path) == {"orders/0/00000000000000000000": unit(7) + unit(8)}
    assert table.queue("orders", 0).units.end == 2


def test_the_same_batch_again_changes_nothing(table, tmp_path):
    requests = [make_request(n) for n in range(7)]
    table.apply(DispatchColumns.of(requests))
    before = file_bytes(tmp_path)

    table.apply(DispatchColumns.of(requests))

    assert file_bytes(tmp_path) == before


@pytest.mark.parametrize("topic", ["../../x", "..", ".", "a/b"])
def test_a_hostile_topic_never_leaves_the_store(table, tmp_path, topic):
    table.apply(DispatchColumns.of([make_request(0, topic=topic), make_request(1, topic="fine", queue_offset=0)]))

    assert [name for (name, _), _ in table.items()] == ["fine"]
    assert list(queue_bytes(tmp_path)) == ["fine/0/00000000000000000000"]


def test_unknown_topics_and_queues_are_told_apart(table):
    table.apply(DispatchColumns.of([make_request(0)]))

    with pytest.raises(TopicNotFoundError):
        table.queue("nope", 0)
    with pytest.raises(QueueNotFoundError):
        table.queue("orders", 9)


def test_the_queues_of_a_topic_and_their_counts_are_those_of_the_whole_table_whatever_leaves_it(table, tmp_path):
    names = ("orders", "order", "bills")
    rows = [(topic, queue_id) for topic in names for queue_id in (10, 2, 0)]
    requests = [make_request(n, topic=topic, queue_id=queue_id) for n, (topic, queue_id) in enumerate(rows)]
    table.apply(DispatchColumns.of([request._replace(queue_offset=0) for request in requests]))

    def check(of_table, count):
        assert len(of_table.items()) == count
        for topic in (*names, "none"):
            assert of_table.of_topic(topic) == [item for item in of_table.items() if item[0][0] == topic]
        assert of_table.counts() == (count, len({topic for (topic, _), _ in of_table.items()}))

    check(table, 9)
    table.leave_alone(("orders", 2))
    table.leave_alone(("orders", 7))  # there is none
    check(table, 8)
    table.hide({"bills"})
    check(table, 5)
    with pytest.raises(TopicNotFoundError):
        table.queue("none", 0)
    table.leave_alone(("orders", 0))
    table.leave_alone(("orders", 10))
    with pytest.raises(TopicNotFoundError):
        table.queue("orders", 1)
    loaded = ConsumeQueueTable(tmp_path, RealFileSystem(), FILE_SIZE)
    loaded.load()
    check(loaded, 9)


class FullDisk(RealFileSystem):
    """Writes so many times, then has no room."""

    def __init__(self, write_count):
        self.writes_left = write_count

    def pwrite(self, fd, data, position):
        if self.writes_left <= 0:
            raise DiskFullError("full")
        self.writes_left -= 1
        super().pwrite(fd, data, position)


@pytest.mark.parametrize("write_count", range(5))
def test_a_batch_that_met_a_full_disk_is_completed_by_the_next_try(tmp_path, write_count):
    fs = FullDisk(write_count)
    table = ConsumeQueueTable(tmp_path, fs, FILE_SIZE)
    requests = [make_request(n, queue_id=n % 2, queue_offset=n // 2) for n in range(20)]
    for _ in range(3):
        try:
            table.apply(DispatchColumns.of(requests))
        except DiskFullError:
            continue

    fs.writes_left = 1000
    table.apply(DispatchColumns.of(requests))

    for queue_id in (0, 1):
        units = table.queue("orders", queue_id).units
        assert [u.commit_log_offset for _, u in units.units(0, 100)] == [(2 * n + queue_id) * 100 for n in range(10)]


def test_each_new_queue_waited_twice_for_the_disk(tmp_path):
    """Only a checkpoint needs its folders on the disk; it flushes each once, up to the root of the store."""
    fs = FaultyFileSystem()
    table = ConsumeQueueTable(tmp_path, fs, FILE_SIZE)
    table.apply(DispatchColumns.of([make_request(n, topic=f"t{n % 3}", queue_id=n, queue_offset=0) for n in range(6)]))
    assert {call.kind for call in fs.calls} & {"fdatasync", "fsync_dir"} == set()

    table.flush()

    queues = tmp_path / "consumequeue"
    folders = [tmp_path, queues, *(queues / f"t{n}" for n in range(3)), *(queues / f"t{n % 3}/{n}" for n in range(6))]
    assert [call.path for call in fs.calls if call.kind == "fsync_dir"] == sorted(map(str, folders))
    assert [call.path for call in fs.calls if call.kind == "fdatasync"] == [
        str(queues / f"t{n % 3}/{n}/{0:020}") for n in (0, 3, 1, 4, 2, 5)
    ]
