"""After any stop and any damage to the queues, they equal those made from the log alone."""

import json
import random
import shutil
from collections import Counter

import pytest

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import saved_queues
from store.files import open_files
from store.files.file_system import RealFileSystem
from store.files.overlay_file_system import OverlayFileSystem
from tests.support.dispatches import feed, file_bytes, make_request, requests_of

FILE_SIZE = 4000


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def open_builder(root, log_end, *, fs=None, clock=None, is_clean_store=True, log_first=0, read_log=None):
    table = ConsumeQueueTable(root, fs or RealFileSystem(), FILE_SIZE)
    checkpoint = root / "reput/consumequeue/checkpoint.json"
    table.load(saved=saved_queues(table.fs, checkpoint))
    builder = ConsumeQueueBuilder(table, checkpoint, clock=clock or Clock(), read_log=read_log)
    builder.recover(is_clean_store=is_clean_store, log_first_offset=log_first, log_end_offset=log_end)
    return builder


def follow(builder, requests, log_end=None, log_first=0):
    end = log_end if log_end is not None else requests[-1].next_offset
    start = builder.start_offset()
    feed(
        builder,
        [r for r in requests if r.commit_log_offset >= max(start, log_first)],
        log_end_offset=end,
        log_first_offset=log_first,
    )


@pytest.fixture(scope="module")
def requests(broker_store):
    return requests_of(broker_store)


@pytest.fixture(scope="module")
def expected(broker_store):
    return file_bytes(broker_store / "consumequeue")


def test_a_clean_stop_goes_on_where_it_was(tmp_path, requests, expected):
    end = requests[-1].next_offset
    builder = open_builder(tmp_path, end)
    follow(builder, requests[:1500], log_end=requests[1499].next_offset)
    builder.stop()

    builder = open_builder(tmp_path, end)
    assert builder.progress.next_offset == requests[1499].next_offset
    follow(builder, requests)
    builder.stop()

    assert file_bytes(tmp_path / "consumequeue") == expected


class OpenCounts(RealFileSystem):
    """Counts how often each queue file is opened."""

    def __init__(self):
        self.counts = Counter()

    def open(self, path, *args):
        self.counts[str(path)] += "/reput/" not in str(path)
        return super().open(path, *args)


def test_a_start_after_a_clean_stop_opens_the_last_file_of_each_queue_once(tmp_path, requests, monkeypatch):
    monkeypatch.setattr(open_files, "OPEN_FILE_COUNT_MAX", 8)  # a second look would open it again
    end = requests[-1].next_offset
    builder = open_builder(tmp_path, end)
    follow(builder, requests)
    builder.stop()
    before = file_bytes(tmp_path / "consumequeue")
    fs = OpenCounts()

    builder = open_builder(tmp_path, end, fs=fs)

    folders = {path.parent for path in (tmp_path / "consumequeue").rglob("0???*") if path.is_file()}
    opened = {path: count for path, count in fs.counts.items() if count}
    assert opened == {str(max(folder.iterdir())): 1 for folder in folders}
    assert (builder.progress.next_offset, builder.is_replay) == (end, False)
    assert file_bytes(tmp_path / "consumequeue") == before


def change_units(path, change):
    data = bytearray(path.read_bytes())
    change(data, -(-len(data.rstrip(b"\0")) // 20) * 20)
    path.write_bytes(data[:FILE_SIZE])


def append_a_unit(path):
    def change(data, end):
        data[end : end + 20] = data[:20]

    change_units(path, change)


def change_a_unit_of_the_end(path):
    def change(data, end):
        data[end - 13] ^= 1  # of its record's offset

    change_units(path, change)


def end_a_unit_earlier(path):
    def change(data, end):
        data[end - 20 : end] = bytes(20)

    change_units(path, change)


def add_a_file_behind(path):
    path.with_name(f"{int(path.name) + FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))


def lose_the_first_file(path):
    min(path.parent.iterdir()).unlink()


def cut_the_first_file_short(path):
    first = min(path.parent.iterdir())
    first.write_bytes(first.read_bytes()[:-20])


@pytest.mark.parametrize(
    "change",
    [
        append_a_unit,
        change_a_unit_of_the_end,
        end_a_unit_earlier,
        add_a_file_behind,
        lose_the_first_file,
        cut_the_first_file_short,
    ],
)
def test_a_queue_that_is_not_as_the_checkpoint_says_is_looked_at_in_full(tmp_path, requests, change):
    builder = open_builder(tmp_path, requests[-1].next_offset)
    follow(builder, requests)
    builder.stop()
    checkpoint = tmp_path / "reput/consumequeue/checkpoint.json"
    saved = saved_queues(RealFileSystem(), checkpoint)
    change(max((tmp_path / "consumequeue/b_order/0").iterdir()))
    table, plain = (ConsumeQueueTable(tmp_path, RealFileSystem(), FILE_SIZE) for _ in range(2))

    table.load(saved=saved)
    plain.load()

    assert saved.keys() - table.as_saved == {("b_order", 0)}
    ends = [{key: (queue.units.begin, queue.units.end) for key, queue in each.items()} for each in (table, plain)]
    assert ends[0] == ends[1]


def test_a_queue_with_files_that_had_expired_at_the_checkpoint_is_looked_at_in_full(tmp_path, requests):
    builder = open_builder(tmp_path, requests[-1].next_offset)
    follow(builder, requests)
    builder.stop()
    saved = saved_queues(RealFileSystem(), tmp_path / "reput/consumequeue/checkpoint.json")
    queue_id = ("b_order", 0)
    saved[queue_id] = saved[queue_id]._replace(first_byte=FILE_SIZE)
    table = ConsumeQueueTable(tmp_path, RealFileSystem(), FILE_SIZE)

    table.load(saved=saved)

    assert saved.keys() - table.as_saved == {queue_id}


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_at_any_time_leaves_no_hole(tmp_path, requests, expected, seed):
    """Behind the checkpoint a power cut may keep any part: zeros here and there, else what was written."""
    random_, clock = random.Random(seed), Clock()
    end = requests[-1].next_offset
    builder = open_builder(tmp_path, end, clock=clock)
    follow(builder, requests[:800], log_end=requests[799].next_offset)
    clock.seconds += 2
    builder.apply([], requests[799].next_offset, 0, end)
    saved = file_bytes(tmp_path / "consumequeue")
    follow(builder, requests[:2000])

    for path in (tmp_path / "consumequeue").rglob("0???*"):
        before = saved.get(str(path.relative_to(tmp_path / "consumequeue")), b"").rstrip(b"\0")
        kept = -(-len(before) // 20) * 20
        tail = bytearray(path.read_bytes()[kept:])
        for at in range(0, len(tail), 20):
            if random_.random() < 0.3:
                tail[at : at + 20] = bytes(20)
        path.write_bytes(path.read_bytes()[:kept] + tail)
    builder = open_builder(tmp_path, end)
    assert builder.progress.next_offset == requests[799].next_offset
    follow(builder, requests)
    builder.stop()

    assert file_bytes(tmp_path / "consumequeue") == expected


def remove_all(root):
    shutil.rmtree(root / "consumequeue")


def remove_topic(root):
    shutil.rmtree(root / "consumequeue/b_order")


def remove_first_file(root):
    (root / "consumequeue/b_order/0/00000000000000000000").unlink()


def remove_last_file(root):
    (root / "consumequeue/b_order/0/00000000000000004000").unlink()


def cut_file_short(root):
    path = root / "consumequeue/b_order/1/00000000000000004000"
    path.write_bytes(path.read_bytes()[:100])


def add_units_behind_the_log(root):
    path = root / "consumequeue/b_order/1/00000000000000004000"
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    path.write_bytes((data[:used] + b"\0" * (-used % 20) + bytes([0, 0, 1] + [7] * 17)).ljust(4000, b"\0"))


def add_a_queue(root):
    shutil.copytree(root / "consumequeue/b_order/1", root / "consumequeue/ghost/1")


DAMAGES = [
    remove_all, remove_topic, remove_first_file, remove_last_file,
    cut_file_short, add_units_behind_the_log, add_a_queue,
]  # fmt: skip


@pytest.mark.parametrize("is_clean_store", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_foreign_stores_damage_is_repaired(copy_of_broker_store, requests, expected, damage, is_clean_store):
    """Where RocketMQ rebuilds 384 of 2,784 units (`no_consumequeue`), all are."""
    damage(copy_of_broker_store)
    builder = open_builder(copy_of_broker_store, requests[-1].next_offset, is_clean_store=is_clean_store)
    assert builder.progress.catching_up

    follow(builder, requests)
    builder.stop()

    assert file_bytes(copy_of_broker_store / "consumequeue") == expected
    assert not builder.progress.catching_up


@pytest.mark.parametrize("damage", DAMAGES)
def test_our_own_damaged_queues_become_right(tmp_path, requests, expected, damage):
    builder = open_builder(tmp_path, requests[-1].next_offset)
    follow(builder, requests)
    builder.stop()

    damage(tmp_path)
    builder = open_builder(tmp_path, requests[-1].next_offset)
    follow(builder, requests)
    builder.stop()

    assert file_bytes(tmp_path / "consumequeue") == expected


def test_a_whole_foreign_store_is_not_written_to(copy_of_broker_store, requests):
    before = {p: p.stat().st_mtime_ns for p in (copy_of_broker_store / "consumequeue").rglob("0???*")}
    builder = open_builder(copy_of_broker_store, requests[-1].next_offset)
    follow(builder, requests)
    builder.stop()

    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_read_only_repairs_in_memory_alone(copy_of_broker_store, requests):
    remove_all(copy_of_broker_store)
    before = file_bytes(copy_of_broker_store)
    table_fs = OverlayFileSystem()
    builder = open_builder(copy_of_broker_store, requests[-1].next_offset, fs=table_fs)

    follow(builder, requests)

    assert file_bytes(copy_of_broker_store) == before
    assert builder._table.queue("b_order", 0).units.end > 200


def test_a_retired_front_of_the_log_keeps_the_units_that_are_there(copy_of_broker_store, requests):
    first = requests[1000].commit_log_offset
    builder = open_builder(copy_of_broker_store, requests[-1].next_offset, log_first=first)
    before = file_bytes(copy_of_broker_store / "consumequeue")

    follow(builder, requests, log_first=first)
    builder.stop()

    assert file_bytes(copy_of_broker_store / "consumequeue") == before


def test_queues_of_a_log_without_its_front_begin_where_it_begins(tmp_path, requests):
    first = requests[1000].commit_log_offset
    builder = open_builder(tmp_path, requests[-1].next_offset, log_first=first)
    follow(builder, requests, log_first=first)

    left: dict[tuple[str, int], int] = {}
    for r in requests[1000:]:
        if r.sys_flag & 0xC not in (4, 0xC):
            left.setdefault((r.topic, r.queue_id), r.queue_offset)
    assert {key: queue.units.min_offset(first) for key, queue in builder._table.items()} == left


def test_a_log_shorter_than_the_checkpoint_is_followed_from_its_first_record(tmp_path, requests):
    builder = open_builder(tmp_path, requests[-1].next_offset)
    follow(builder, requests)
    builder.stop()

    shorter = requests[:2000]
    builder = open_builder(tmp_path, shorter[-1].next_offset)
    assert builder.start_offset() == -1
    follow(builder, shorter)

    assert max(queue.units.next_log_offset() for _, queue in builder._table.items()) <= shorter[-1].next_offset


def test_the_checkpoint_is_written_at_most_every_second(tmp_path):
    clock = Clock()
    builder = open_builder(tmp_path, 10_000, clock=clock)
    builder.apply([make_request(0)], 100, 0, 100)
    path = tmp_path / "reput/consumequeue/checkpoint.json"
    first = json.loads(path.read_bytes())["next_offset"]
    builder.apply([make_request(1)], 200, 0, 200)
    assert json.loads(path.read_bytes())["next_offset"] == first

    clock.seconds += 1
    builder.apply([make_request(2)], 300, 0, 300)

    assert json.loads(path.read_bytes())["next_offset"] == 300
