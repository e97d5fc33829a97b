"""Index files damaged in every way that a crash or a disk may damage them: what comes out equals a rebuild."""

import errno
import random
import shutil

import pytest

from index_svc.index_file_set import IndexFileSet, search_key
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_keys import index_keys
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import IndexHeader, decode_index_header, encode_index_header
from store.format.paths import own_state_dir
from store.readers.index_reader import list_index_files
from tests.support.builders import LAYOUT, Clock, follow, index_bytes, open_index
from tests.support.dispatches import make_request
from tests.support.faulty_file_system import FaultyFileSystem

FS = RealFileSystem()
# 5 records with keys of 3 each, every sixth without any: 300 records make 750 keys in 8 files.
REQUESTS = [
    make_request(n, keys=[f"a{n}", f"b{n % 17}"] if n % 6 else [], unique_key=f"u{n}" if n % 6 else "")
    for n in range(300)
]
FULL_SIZE = LAYOUT.file_size_bytes
STOPS = ["clean", "killed", "foreign"]
WHICH = {"first": 0, "middle": 3, "last": -1}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    root = tmp_path_factory.mktemp("expected")
    builder = open_index(root, REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()
    return index_bytes(root)


@pytest.fixture
def build(tmp_path):
    """A store stopped cleanly, killed after its last checkpoint, or left by somebody else."""

    def build(stop):
        root, clock = tmp_path / "store", Clock()
        builder = open_index(root, REQUESTS, clock=clock)
        if stop == "killed":
            follow(builder, REQUESTS[:280])
            clock.seconds += 2
            builder.apply([], REQUESTS[279].next_offset, 0, REQUESTS[-1].next_offset)
            follow(builder, REQUESTS)
            builder.abandon()
        else:
            follow(builder, REQUESTS)
            builder.stop()
        if stop == "foreign":
            shutil.rmtree(own_state_dir(str(root), "index"))
        return root

    return build


def recovered(root, **options):
    builder = open_index(root, REQUESTS, **options)
    follow(builder, REQUESTS)
    builder.stop()
    assert builder._files.key_count == 750
    return index_bytes(root)


def path_of(root, which):
    return list_index_files(FS, root)[WHICH[which]]


def test_the_store_under_test_has_eight_files_the_last_not_full(expected):
    assert len(expected) == 8
    assert sum(len(index_keys(request)) for request in REQUESTS) == 750


HEADERS = {
    "nonsense offsets": lambda header: header._replace(begin_commit_log_offset=10**15, end_commit_log_offset=10**16),
    "an offset where no record is": lambda header: header._replace(end_commit_log_offset=12_345),
    "turned round": lambda header: header._replace(begin_commit_log_offset=9_000, end_commit_log_offset=100),
    "negative": lambda header: IndexHeader(-1, -1, -1, -1, -1, -1),
    "too many entries": lambda header: header._replace(entry_count=1 << 30),
    "no entries": lambda header: header._replace(entry_count=0),
}


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("damage", HEADERS)
def test_a_damaged_header_never_refuses_the_start(build, expected, which, stop, damage):
    root = build(stop)
    path = path_of(root, which)
    data = bytearray(path.read_bytes())
    data[:40] = encode_index_header(HEADERS[damage](decode_index_header(bytes(data[:40]))))
    path.write_bytes(data)
    builder = open_index(root, REQUESTS, is_clean_store=stop == "clean")
    try:
        follow(builder, REQUESTS)
    except (OffsetOutOfRangeError, RecordNotFoundError):
        builder.find_place(0, REQUESTS[-1].next_offset)
        follow(builder, REQUESTS)
    builder.stop()

    found = index_bytes(root)
    assert found == expected or (stop == "foreign" and which == "last")


@pytest.mark.parametrize("killed_after", [1, 33, 34, 35, 150, 299])
def test_rmq_3868_8007_an_abnormal_stop_keeps_the_part_filled_last_file_and_every_key(tmp_path, killed_after):
    """RocketMQ deletes the whole last file. Here the same file goes on, cut back to its checkpoint."""
    clock = Clock()
    builder = open_index(tmp_path, REQUESTS, clock=clock)
    for request in REQUESTS[:killed_after]:
        clock.seconds += 1
        builder.apply([request], request.next_offset, 0, REQUESTS[-1].next_offset)
    builder.abandon()
    last = list_index_files(FS, tmp_path)[-1]
    inode = last.stat().st_ino

    builder = open_index(tmp_path, REQUESTS, is_clean_store=False)

    assert list_index_files(FS, tmp_path)[-1] == last
    assert last.stat().st_ino == inode
    for request in REQUESTS[:killed_after]:
        for key in request.keys:
            assert (
                request.commit_log_offset
                in search_key(builder._files, "orders", key, page_size=1000).commit_log_offsets
            )


def test_a_half_made_newer_file_does_not_cost_the_last_one(build, expected):
    """Found in review: one short file behind the checkpoint had the part-filled file before it built again."""
    root = build("killed")
    inode = list_index_files(FS, root)[6].stat().st_ino  # the last that the checkpoint has
    (root / "index" / "20990101000000000").write_bytes(b"")
    open_index(root, REQUESTS).abandon()
    assert list_index_files(FS, root)[-1].stat().st_ino == inode
    assert recovered(root) == expected


def test_a_rebuild_that_was_killed_is_not_taken_for_what_the_checkpoint_before_remembers(tmp_path, expected):
    """The clock may stand where it stood: then the new files have the old names."""
    builder = open_index(tmp_path, REQUESTS)
    follow(builder, REQUESTS)
    builder.stop()
    builder = open_index(tmp_path, REQUESTS)
    builder.rebuild()
    builder._files.apply(DispatchColumns.of(REQUESTS[:50]))
    builder.abandon()
    assert recovered(tmp_path) == expected


def test_a_foreign_file_that_is_taken_over_is_flushed(build):
    root = build("foreign")
    fs = FaultyFileSystem()
    builder = open_index(root, REQUESTS, fs=fs)
    follow(builder, REQUESTS)
    builder.stop()
    flushed = {call.path for call in fs.calls if call.kind == "fdatasync"}
    assert set(map(str, list_index_files(FS, root))) <= flushed


@pytest.mark.parametrize("call", ["open", "ftruncate", "fsync_dir", "mkdirs", "pwrite", "fdatasync"])
def test_rmq_7539_a_full_disk_while_a_file_is_made_leaves_at_most_one_half_file(tmp_path, call):
    fs = FaultyFileSystem()
    clock = Clock()
    failures = 0
    for nth in range(1, 8):
        builder = open_index(tmp_path, REQUESTS, fs=fs, clock=clock)
        fault = fs.fail(call, errno.ENOSPC, nth=nth, path="/index", lasting=True)
        for _ in range(3):
            try:
                follow(builder, REQUESTS)
                builder.stop()
            except (StoreError, OSError):
                failures += 1
                builder.abandon()
                sizes = [path.stat().st_size for path in list_index_files(FS, tmp_path)]
                assert sum(size != FULL_SIZE for size in sizes) <= 1
                assert len(sizes) <= 9
                fault.clear()
                builder = open_index(tmp_path, REQUESTS, fs=fs, clock=clock)
                fault = fs.fail(call, errno.ENOSPC, path="/index", lasting=True)
        fault.clear()
    assert failures > 0
    whole = open_index(tmp_path / "whole", REQUESTS)
    follow(whole, REQUESTS)
    whole.stop()
    assert recovered(tmp_path) == index_bytes(tmp_path / "whole")


def one_file_set(root):
    files = IndexFileSet(root, FS, LAYOUT, lambda: 0)
    files.apply(DispatchColumns.of(REQUESTS[:30]))
    files.flush()
    return files


@pytest.mark.parametrize("length", [1, 2])
def test_rmq_8018_every_cycle_of_one_or_two_entries_ends_within_the_entry_count(tmp_path, length):
    """RocketMQ walks such a chain for ever."""
    files = one_file_set(tmp_path)
    path, view = files.paths()[0], files.views()[0]
    clean = path.read_bytes()
    count = view.header().entry_count
    begin = 40 + LAYOUT.slot_count * 4
    steps = []
    entry = type(view).entry

    for first in range(1, count):
        for second in {first} if length == 1 else range(1, count, 5):
            data = bytearray(clean)
            for number, previous in ((first, second), (second, first)):
                at = begin + number * 20 + 16
                data[at : at + 4] = previous.to_bytes(4, "big")
            # The chain begins at the first of them.
            hash_ = int.from_bytes(data[begin + first * 20 :][:4], "big")
            slot = 40 + hash_ % LAYOUT.slot_count * 4
            data[slot : slot + 4] = first.to_bytes(4, "big")
            path.write_bytes(data)
            fresh = IndexFileSet(tmp_path, FS, LAYOUT, lambda: 0)
            fresh.adopt_sealed(fresh.paths())
            walked = [0]

            class CountingView(type(view)):
                def entry(self, number, walked=walked):
                    walked[0] += 1
                    return entry(self, number)

            fresh._sealed[0].__class__ = CountingView
            for request in REQUESTS[:30]:
                for key in request.keys:
                    walked[0] = 0
                    found = search_key(fresh, "orders", key).commit_log_offsets
                    steps.append(walked[0])
                    assert found == sorted(set(found), reverse=True)
            if first > 12:
                break
    assert max(steps) <= count


@pytest.mark.parametrize("seed", range(20))
def test_rmq_8018_random_bytes_end_within_the_entry_count(tmp_path, seed):
    random_ = random.Random(seed)
    files = one_file_set(tmp_path)
    path = files.paths()[0]
    data = bytearray(path.read_bytes())
    for _ in range(random_.choice([1, 10, 500, 4_000])):
        data[random_.randrange(len(data))] = random_.randrange(256)
    path.write_bytes(data)
    fresh = IndexFileSet(tmp_path, FS, LAYOUT, lambda: 0)
    fresh.adopt_sealed(fresh.paths())
    for number in range(30):
        found = search_key(fresh, "orders", f"a{number}").commit_log_offsets
        assert found == sorted(set(found), reverse=True)
