"""More queues than open files: units wait in memory, readers find them, a checkpoint writes them."""

import os
import random
import tracemalloc
from collections import Counter
from itertools import pairwise
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from consumequeue_svc import builder as builder_module
from consumequeue_svc import consume_queue_table as table_module
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue import NOTHING_WAITS, WAITING_UNIT_COUNT_MAX, WaitingUnits
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import UnitRun
from store.errors import FlushFailedError
from store.files import json_state
from store.files.file_system import RealFileSystem, WholeDisk
from store.format.derived.queue_unit import QueueUnit, encode_queue_unit
from tests.support.dispatches import feed, file_bytes, make_request
from tests.support.faulty_file_system import FaultyFileSystem

FILE_SIZE = 20 * 20
QUEUE_COUNT = 12
OPEN_FILE_COUNT_MAX = 2


def table_of(root, *, fs=None, open_file_count_max=OPEN_FILE_COUNT_MAX):
    table = ConsumeQueueTable(root, fs or RealFileSystem(), FILE_SIZE, open_file_count_max=open_file_count_max)
    table.load()
    return table


def random_requests(random_, count, *, queue_count=QUEUE_COUNT):
    """Records of many queues; now and then a position is left out, comes twice, or a queue begins anew."""
    ends: Counter[int] = Counter()
    requests = []
    for number in range(count):
        queue_id = random_.randrange(queue_count)
        chance = random_.random()
        if chance < 0.02:
            ends[queue_id] = 0
        elif chance < 0.05:
            ends[queue_id] += random_.randrange(1, 4)
        elif chance < 0.08 and ends[queue_id]:
            ends[queue_id] -= 1
        requests.append(make_request(number, topic=f"t{queue_id % 3}", queue_id=queue_id, queue_offset=ends[queue_id]))
        ends[queue_id] += 1
    return requests


def apply(table, requests):
    table.apply(DispatchColumns.of(requests))


def all_units(table):
    return {key: (queue.units.begin, queue.units.end, queue.units.units(0, 10_000)) for key, queue in table.items()}


def queue_files(root):
    return file_bytes(root / "consumequeue")


@pytest.mark.parametrize("seed", range(8))
def test_readers_see_what_waits_and_a_checkpoint_makes_the_files_of_a_store_with_few_queues(tmp_path, seed):
    random_ = random.Random(seed)
    requests = random_requests(random_, 600)
    waiting, plain = table_of(tmp_path / "waiting"), table_of(tmp_path / "plain", open_file_count_max=512)
    flush = None
    at, waited = 0, 0
    while at < len(requests):
        part = requests[at : at + random_.randrange(1, 40)]
        at += len(part)
        for table in (waiting, plain):
            apply(table, part)
        waited = max(waited, waiting.unflushed.waiting_count)
        assert all_units(waiting) == all_units(plain)
        if flush is not None and random_.random() < 0.7:
            flush()
            flush = None
            assert all_units(waiting) == all_units(plain)
        elif flush is None and random_.random() < 0.5:
            flush = waiting.prepare_flush()  # what is applied until it runs waits for the next one
            waiting.unflushed.settle = flush_once(flush)
            flush = waiting.unflushed.settle
    if flush is not None:
        flush()
    waiting.flush()
    plain.flush()

    assert waited > 0
    assert queue_files(tmp_path / "waiting") == queue_files(tmp_path / "plain")


def flush_once(flush):
    """A flush that whoever needs it first does, as a queue that waits for the checkpoint under way."""
    todo = [flush]
    return lambda: todo.pop()() if todo else None


def test_a_reader_between_two_moves_of_units_misses_none(tmp_path):
    """It saw `young` before two checkpoints began, and `old` behind the second one's begin."""
    table = table_of(tmp_path, open_file_count_max=1)
    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(2)])
    queue = table.queue("orders", 1)
    apply(table, [make_request(n + 1, queue_id=1, queue_offset=n) for n in range(1, 5)])
    first = queue.units.young
    table.flush()
    apply(table, [make_request(n + 1, queue_id=1, queue_offset=n) for n in range(5, 9)])
    table.prepare_flush()
    expected = queue.units.read_bytes(0, 9)

    assert queue.units.old.queue_offset > first.queue_offset
    queue.units.young = first

    assert queue.units.read_bytes(0, 9) == expected
    assert queue.units.read_bytes(6, 8) == expected[6 * 20 : 8 * 20]


def test_a_file_whose_next_units_wait_is_not_taken_for_full(tmp_path):
    table = table_of(tmp_path, open_file_count_max=1)
    apply(table, [make_request(n, queue_id=1) for n in range(3)])
    apply(table, [make_request(3, queue_id=2, queue_offset=0)])
    table.flush()
    table.queue("orders", 2).units.unit(0)  # its file is open now, and that of the other queue is not
    apply(table, [make_request(n + 1, queue_id=1, queue_offset=n) for n in range(3, 30)])
    queue = table.queue("orders", 1)

    assert queue.units.is_waiting
    assert (queue.units.end, queue.units.written_end) == (30, 3)
    assert queue.is_open(0)
    assert queue.written(0)[0] == 3 * 20

    table.flush()

    assert queue.is_open(0) is False
    assert queue.written(FILE_SIZE) == (10 * 20, queue.written_now[2])


def test_a_queue_with_many_units_in_memory_is_written_and_stays_open(tmp_path):
    table = table_of(tmp_path, open_file_count_max=1)
    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(2)])
    queue = table.queue("orders", 1)
    assert queue.units.is_waiting

    for begin in range(1, WAITING_UNIT_COUNT_MAX + 1, 16):
        apply(table, [make_request(n + 1, queue_id=1, queue_offset=n) for n in range(begin, begin + 16)])

    assert not queue.units.is_waiting
    assert not table.unflushed.waiting
    assert queue.units.written_end == queue.units.end == WAITING_UNIT_COUNT_MAX + 1


def test_units_of_busy_queues_that_are_written_do_not_count_as_waiting(tmp_path):
    """They made the next checkpoint begin at once, though memory held none of them."""
    table = table_of(tmp_path, open_file_count_max=1)
    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(3)])
    for begin in range(1, WAITING_UNIT_COUNT_MAX + 1, 16):
        apply(table, [make_request(n + 1, queue_id=1, queue_offset=n) for n in range(begin, begin + 16)])

    assert {queue_id for (_, queue_id), queue in table.items() if queue.units.is_waiting} == {2}
    assert table.unflushed.waiting_count == 1


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def builder_of(root, log_end, clock, **table_options):
    builder = ConsumeQueueBuilder(table_of(root, **table_options), root / "reput/checkpoint.json", clock=clock)
    builder.recover(is_clean_store=True, log_first_offset=0, log_end_offset=log_end)
    builder.begin()
    return builder


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_loses_what_waits_and_the_log_gives_it_again(tmp_path, seed):
    random_, clock = random.Random(seed), Clock()
    requests = random_requests(random_, 500)
    end = requests[-1].next_offset
    builder = builder_of(tmp_path / "killed", end, clock)
    at = 0
    while at < len(requests):
        count = random_.randrange(1, 60)
        feed(builder, requests[at : at + count], log_end_offset=end, batch=17)
        at += count
        clock.seconds += random_.choice((0.0, 1.5))
        if random_.random() < 0.3:
            builder.abandon()
            builder = builder_of(tmp_path / "killed", end, clock)
            start = builder.start_offset()
            at = next((n for n, request in enumerate(requests) if request.commit_log_offset >= start), len(requests))
    builder.stop()
    plain = builder_of(tmp_path / "plain", end, clock, open_file_count_max=512)
    feed(plain, requests, log_end_offset=end)
    plain.stop()

    assert queue_files(tmp_path / "killed") == queue_files(tmp_path / "plain")
    assert not builder_of(tmp_path / "killed", end, clock).is_replay


def test_a_checkpoint_of_units_that_waited_is_that_of_units_written_at_once(tmp_path):
    requests = random_requests(random.Random(7), 300)
    end = requests[-1].next_offset
    states = []
    for name, count in (("waiting", OPEN_FILE_COUNT_MAX), ("plain", 512)):
        builder = builder_of(tmp_path / name, end, Clock(), open_file_count_max=count)
        feed(builder, requests, log_end_offset=end)
        builder.stop()
        states.append((tmp_path / name / "reput/checkpoint.json").read_bytes())

    assert states[0] == states[1]


def test_records_wait_for_the_checkpoint_when_too_many_units_do(tmp_path, monkeypatch):
    monkeypatch.setattr(builder_module, "WAITING_UNIT_COUNT_MAX", 10)
    table = table_of(tmp_path)
    builder = ConsumeQueueBuilder(table, tmp_path / "reput/checkpoint.json", clock=Clock())
    builder.recover(is_clean_store=True, log_first_offset=0, log_end_offset=100_000)
    requests = [make_request(n, queue_id=n, queue_offset=0) for n in range(40)]
    counts = []
    for request in requests:
        builder.apply([request], request.next_offset, 0, 100_000)
        counts.append(table.unflushed.waiting_count)

    assert max(counts) == 10
    assert counts[-1] < 10


def test_checkpoints_of_many_queues_leave_time_between_them(tmp_path, monkeypatch):
    clock = Clock()

    class SlowDisk(RealFileSystem):
        def rename(self, source, target):
            clock.seconds += 2.0
            super().rename(source, target)

    checkpoint = tmp_path / "reput/checkpoint.json"
    monkeypatch.setattr(json_state, "ROW_COUNT_FEW", 3)
    table = table_of(tmp_path, fs=SlowDisk())
    builder = ConsumeQueueBuilder(table, checkpoint, clock=clock)
    builder.recover(is_clean_store=True, log_first_offset=0, log_end_offset=100_000)
    checkpoint_times = []
    requests = [make_request(number, queue_id=number % 8, queue_offset=number // 8) for number in range(200)]
    builder.apply(requests[:8], requests[7].next_offset, 0, 100_000)
    for request in requests[8:]:
        before = clock.seconds
        builder.apply([request], request.next_offset, 0, 100_000)
        if clock.seconds > before:
            checkpoint_times.append(before)
        clock.seconds += 0.5

    # Each takes two seconds, and the pause behind it nine times as long.
    steps = [later - earlier for earlier, later in pairwise(checkpoint_times)]
    assert len(steps) >= 3
    assert set(steps) == {20.0}


def disk_of(root, answers):
    calls = []

    def sync(fd):
        calls.append(fd)
        return answers.pop(0)

    fs = RealFileSystem()
    return WholeDisk(str(root), fs.open(root, 0), sync), calls


def test_a_checkpoint_of_many_files_flushes_them_in_one_call(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "WHOLE_DISK_FILE_COUNT_MIN", 5)
    fs = FaultyFileSystem()
    table = table_of(tmp_path, fs=fs)
    table.disk, calls = disk_of(tmp_path, [0])
    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(4)])
    table.flush()
    assert not calls
    assert [call.kind for call in fs.calls].count("fdatasync") == 4
    fs.calls.clear()

    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(4, 9)])
    table.flush()

    assert len(calls) == 1
    assert not {"fdatasync", "fsync_dir"} & {call.kind for call in fs.calls}


def test_a_disk_that_refuses_to_flush_all_fails_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "WHOLE_DISK_FILE_COUNT_MIN", 5)
    table = table_of(tmp_path)
    table.disk, _ = disk_of(tmp_path, [5])
    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(9)])

    with pytest.raises(FlushFailedError, match=r"refused to flush the files below .* \(Input/output error\)"):
        table.flush()
    table.close()


def test_a_whole_disk_is_flushed_where_linux_tells_each_failure(tmp_path):
    disk = WholeDisk.of(RealFileSystem(), tmp_path)
    if disk is None:
        pytest.skip("the temporary directory lies on a file system of another type")
    (tmp_path / "file").write_bytes(b"bytes")
    disk.flush()
    disk.close()


@pytest.mark.parametrize("fs", [FaultyFileSystem(), RealFileSystem()], ids=["stand-in", "no directory"])
def test_only_the_real_disk_and_an_existing_directory_are_flushed_as_a_whole(tmp_path, fs):
    directory = tmp_path if isinstance(fs, FaultyFileSystem) else tmp_path / "none"
    assert WholeDisk.of(fs, directory) is None


def test_a_queue_takes_less_than_a_kilobyte_of_memory(tmp_path):
    table = table_of(tmp_path)
    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(10)])
    table.flush()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(10, 1_010)])
        table.flush()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert taken < 1_000 * 1_024


def test_files_that_lie_on_another_disk_than_the_store_are_flushed_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(table_module, "WHOLE_DISK_FILE_COUNT_MIN", 5)
    fs = FaultyFileSystem()
    table = table_of(tmp_path, fs=fs)
    table.disk, calls = disk_of(tmp_path, [0])
    other = {str(tmp_path / "consumequeue/orders/2" / f"{0:020}"), str(tmp_path / "consumequeue/orders/2")}
    device, stat = os.stat(tmp_path).st_dev, os.stat

    def stat_of_two_disks(path, *args, **options):
        found = stat(path, *args, **options)
        return SimpleNamespace(st_dev=device + 1, st_mode=found.st_mode) if str(path) in other else found

    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(9)])
    flush = table.prepare_flush()
    fs.calls.clear()
    monkeypatch.setattr(os, "stat", stat_of_two_disks)
    flush()
    monkeypatch.undo()

    assert len(calls) == 1
    assert [call.kind for call in fs.calls].count("fdatasync") == 1
    assert [call.kind for call in fs.calls].count("fsync_dir") == 1
    table.close()


def test_a_checkpoint_that_ends_while_a_queue_is_looked_at_does_not_make_it_an_empty_one(tmp_path, monkeypatch):
    """It had no file, and then no units in memory: a unit whose position was taken overwrote the one there."""
    table = table_of(tmp_path, open_file_count_max=1)
    apply(table, [make_request(n, queue_id=n, queue_offset=0) for n in range(2)])
    apply(table, [make_request(n + 1, queue_id=1, queue_offset=n) for n in range(1, 3)])
    queue = table.queue("orders", 1)
    expected = queue.units.read_bytes(0, 3)
    flush = flush_once(table.prepare_flush())
    table.unflushed.settle = flush
    is_waiting = WaitingUnits.is_waiting.fget
    monkeypatch.setattr(WaitingUnits, "is_waiting", property(lambda units: (flush(), is_waiting(units))[1]))

    queue.apply([(UnitRun(n, make_unit(n)), b"") for n in (1, 3)], is_replay=False)  # the first one is taken
    monkeypatch.undo()
    table.flush()

    assert queue.units.read_bytes(0, 4) == expected + make_unit(3)


def make_unit(number):
    return encode_queue_unit(QueueUnit(10_000 + number * 100, 100, 0))


def test_units_that_come_while_the_end_of_a_file_is_asked_for_are_not_taken_for_written(tmp_path):
    class Racing(WaitingUnits):
        """The builder adds a unit just when a reader has found that nothing waits."""

        @property
        def old(self):
            self.end = 4
            return NOTHING_WAITS

        @old.setter
        def old(self, run):
            pass

    units = Racing(table_of(tmp_path)._files, tmp_path / "queue", FILE_SIZE)
    units.end = 3

    assert units.written_end == 3


class HeldCheckpointer:
    """A checkpoint stays under way until somebody waits for it."""

    def __init__(self):
        self.work = None

    @property
    def is_busy(self):
        return self.work is not None

    def start(self, work):
        self.work = work

    def settle(self):
        work, self.work = self.work, None
        if work is not None:
            work()


def test_retention_waits_for_the_checkpoint_that_adds_files_to_queues(tmp_path, monkeypatch):
    """Both replaced the set of a queue's files, so that a new file, or the removal of an old one, was forgotten."""
    table, checkpointer, clock = table_of(tmp_path), HeldCheckpointer(), Clock()
    builder = ConsumeQueueBuilder(table, tmp_path / "reput/checkpoint.json", clock=clock, checkpointer=checkpointer)
    builder.recover(is_clean_store=True, log_first_offset=0, log_end_offset=100_000)
    seen = []
    hide = table.hide_expired
    monkeypatch.setattr(
        table, "hide_expired", lambda first, count: (seen.append((first, checkpointer.is_busy)), hide(first, count))[1]
    )

    builder.apply([make_request(0, queue_offset=0)], 100, 0, 100_000)
    clock.seconds += 2.0
    builder.apply(None, 100, 1, 100_000)
    checkpointer.settle()
    builder.apply(None, 100, 2, 100_000)

    assert seen == [(0, False), (2, False)]


def test_work_handed_over_at_the_last_moment_waits_for_the_checkpoint_under_way(tmp_path):
    """It came between the look whether there is any and the taking of it."""
    table, checkpointer = table_of(tmp_path), HeldCheckpointer()
    builder = ConsumeQueueBuilder(table, tmp_path / "reput/checkpoint.json", clock=Clock(), checkpointer=checkpointer)
    builder.recover(is_clean_store=True, log_first_offset=0, log_end_offset=100_000)
    were_busy = []

    class Late(SimpleQueue):
        def empty(self):
            return True

    builder._handed_over = Late()
    checkpointer.start(lambda: None)
    builder.hand_over(lambda: not were_busy.append(checkpointer.is_busy))
    builder.apply(None, 0, 0, 100_000)

    assert were_busy == [False]
