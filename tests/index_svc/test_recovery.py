"""After any stop and any damage to the index, it equals the one made from the log alone."""

import random

import pytest

from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from store.derive.index_keys import index_keys
from store.files.file_system import RealFileSystem
from store.files.overlay_file_system import OverlayFileSystem
from store.readers.index_reader import IndexLayout, list_index_files
from tests.support.dispatches import feed, file_bytes, requests_of

LAYOUT = IndexLayout(500, 1000)
FS = RealFileSystem()


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def open_builder(root, requests, *, fs=None, clock=None, is_clean_store=True):
    files = IndexFileSet(root, fs or FS, LAYOUT, lambda: 1_800_000_000_000)
    builder = IndexBuilder(files, root / "reput/index/checkpoint.json", clock=clock or Clock())

    def first_indexed(offset):
        return next((r.commit_log_offset for r in requests if r.commit_log_offset > offset and index_keys(r)), None)

    builder.recover(
        is_clean_store=is_clean_store,
        log_first_offset=0,
        log_end_offset=requests[-1].next_offset,
        first_indexed=first_indexed,
    )
    return builder


def follow(builder, requests):
    start = builder.start_offset()
    feed(builder, [r for r in requests if r.commit_log_offset >= start], log_end_offset=requests[-1].next_offset)


def contents(root):
    return [path.read_bytes() for path in list_index_files(FS, root)]


@pytest.fixture(scope="module")
def requests(broker_store):
    return requests_of(broker_store)


@pytest.fixture(scope="module")
def expected(broker_store):
    return contents(broker_store)


@pytest.mark.parametrize("count", [1, 300, 447, 448, 1500, 2784])
def test_a_clean_stop_goes_on_where_it_was(tmp_path, requests, expected, count):
    builder = open_builder(tmp_path, requests)
    follow(builder, requests[:count])
    builder.stop()

    builder = open_builder(tmp_path, requests)
    assert builder.progress.next_offset == requests[count - 1].next_offset
    follow(builder, requests)
    builder.stop()

    assert contents(tmp_path) == expected


@pytest.mark.parametrize("seed", range(6))
def test_a_kill_at_any_time_leaves_no_hole(tmp_path, requests, expected, seed):
    """Only what the checkpoint counts can be trusted: slots, header and later entries are scrambled here."""
    random_, clock = random.Random(seed), Clock()
    builder = open_builder(tmp_path, requests, clock=clock)
    saved = random_.randrange(100, 1500)
    follow(builder, requests[:saved])
    clock.seconds += 2
    builder.apply([], requests[saved - 1].next_offset, 0, requests[-1].next_offset)
    name, count = builder._files.live.path.name, builder._files.live.state.header.entry_count
    follow(builder, requests[: saved + 700])

    path = tmp_path / "index" / name
    data = bytearray(path.read_bytes())
    trusted = slice(40 + 500 * 4, 40 + 500 * 4 + count * 20)
    scrambled = bytearray(random_.randbytes(len(data)))
    scrambled[trusted] = data[trusted]
    path.write_bytes(scrambled)
    builder = open_builder(tmp_path, requests)
    assert builder.progress.next_offset == requests[saved - 1].next_offset
    follow(builder, requests)
    builder.stop()

    assert contents(tmp_path) == expected


def remove_file(number):
    def remove(root):
        list_index_files(FS, root)[number].unlink()

    return remove


def remove_all(root):
    for path in list_index_files(FS, root):
        path.unlink()


def cut_file_short(root):
    path = list_index_files(FS, root)[3]
    path.write_bytes(path.read_bytes()[:-1])


def empty_a_file(root):
    list_index_files(FS, root)[2].write_bytes(b"")


DAMAGES = [remove_all, remove_file(0), remove_file(3), remove_file(-1), cut_file_short, empty_a_file]


@pytest.mark.parametrize("is_clean_store", [True, False])
@pytest.mark.parametrize("damage", [lambda root: None, *DAMAGES])
def test_a_foreign_stores_damaged_index_becomes_right(copy_of_broker_store, requests, expected, damage, is_clean_store):
    """Where RocketMQ rebuilds 342 of 6,249 keys (`no_index`), all are."""
    damage(copy_of_broker_store)
    builder = open_builder(copy_of_broker_store, requests, is_clean_store=is_clean_store)

    follow(builder, requests)
    builder.stop()

    assert contents(copy_of_broker_store) == expected
    assert not builder.progress.catching_up


@pytest.mark.parametrize("damage", DAMAGES)
def test_our_own_damaged_index_becomes_right(tmp_path, requests, expected, damage):
    builder = open_builder(tmp_path, requests)
    follow(builder, requests)
    builder.stop()

    damage(tmp_path)
    builder = open_builder(tmp_path, requests)
    follow(builder, requests)
    builder.stop()

    assert contents(tmp_path) == expected


def test_a_clean_foreign_store_is_taken_over_as_it_is(copy_of_broker_store, requests):
    before = {path: path.stat().st_mtime_ns for path in list_index_files(FS, copy_of_broker_store)[:-1]}
    builder = open_builder(copy_of_broker_store, requests)
    assert builder.progress.next_offset == 2490708

    follow(builder, requests)
    builder.stop()

    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("key_count", range(1, 5))
def test_a_record_whose_keys_were_cut_by_a_full_file_is_completed(
    tmp_path, broker_store, requests, expected, key_count
):
    """Adopted files end inside a record: its other keys follow, none comes twice."""
    for number in range(1, 7):
        root = tmp_path / f"{number}-{key_count}"
        (root / "index").mkdir(parents=True)
        for path in list_index_files(FS, broker_store)[:number]:
            (root / "index" / path.name).write_bytes(path.read_bytes())
        builder = open_builder(root, requests)
        follow(builder, requests)
        builder.stop()
        assert contents(root) == expected


def test_read_only_builds_in_memory_alone(copy_of_broker_store, requests):
    remove_all(copy_of_broker_store)
    before = file_bytes(copy_of_broker_store)
    builder = open_builder(copy_of_broker_store, requests, fs=OverlayFileSystem())

    follow(builder, requests)
    builder.stop()

    assert file_bytes(copy_of_broker_store) == before
    assert builder._files.key_count == 6249


def test_a_log_shorter_than_the_index_is_indexed_again(tmp_path, requests):
    builder = open_builder(tmp_path, requests)
    follow(builder, requests)
    builder.stop()

    builder = open_builder(tmp_path, requests[:1000])
    assert builder.start_offset() == -1
    follow(builder, requests[:1000])

    assert builder._files.key_count == sum(len(index_keys(r)) for r in requests[:1000])
