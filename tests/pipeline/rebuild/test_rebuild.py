"""A rebuild is what RocketMQ wrote, and what the online builders write, byte for byte, however the log is split."""

import json
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from index_svc.index_file_set import IndexFileSet
from pipeline.object_root import ObjectRoot
from pipeline.rebuild import rebuild
from pipeline.rebuild.out import StoreLayout
from pipeline.rebuild.rebuild import mode_for
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_keys import index_keys
from store.errors import InvalidArgumentError, RecordCorruptedError, StoreCorruptedError, UnsupportedStoreError
from store.files.file_system import RealFileSystem
from store.format.record import Record, decode_record, encode_record
from store.readers.index_reader import IndexLayout, list_index_files
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.support.dispatches import file_bytes, requests_of
from tests.support.fixture_stores import walk_frames

BLANK_MAGIC = -875286124
STORES = ("broker_store", "engine_store", "engine_crc_store", "crashed_store")


@pytest.mark.parametrize("split_bytes", [None, 30_000])
@pytest.mark.parametrize("store", STORES)
def test_a_rebuild_equals_the_files_that_rocketmq_wrote(store, split_bytes, request, tmp_path):
    """Transactions, delays, batches, retries, non-ASCII keys, IPv6, V2, property CRC."""
    root = request.getfixturevalue(store)

    report = rebuild_here(root, tmp_path / "out", split_bytes=split_bytes)

    assert_same_store(tmp_path / "out", root)
    assert report.counts["record_count"] == len(requests_of(root))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["consumequeue", "index"]
    assert not (tmp_path / "out.tmp").exists()


@pytest.mark.parametrize("store", STORES)
def test_plain_code_makes_the_same_bytes(store, request, tmp_path, kernels_off):
    root = request.getfixturevalue(store)
    rebuild_here(root, tmp_path / "out", split_bytes=None)
    assert_same_store(tmp_path / "out", root)


def build_online(requests: list[DispatchRequest], root: Path, layout: StoreLayout) -> None:
    """What the online builders write for these records."""
    fs = RealFileSystem()
    table = ConsumeQueueTable(root, fs, layout.queue_file_size_bytes)
    table.apply(DispatchColumns.of(requests))
    table.flush()  # with many small files units wait in memory
    table.close()
    files = IndexFileSet(root, fs, layout.index, lambda: 1_795_256_952_255)
    files.apply(DispatchColumns.of(requests))
    files.flush()
    files.close()


@pytest.fixture(scope="module")
def stores_without_derived_files(tmp_path_factory, request):
    """Each fixture's log alone: layouts are then what the settings say."""
    roots = []
    for name in STORES:
        source, root = request.getfixturevalue(name), tmp_path_factory.mktemp(name)
        (root / "commitlog").symlink_to(source / "commitlog")
        roots.append((root, requests_of(source)))
    return roots


ANY_LAYOUT = {
    "number": st.integers(0, len(STORES) - 1),
    "split_bytes": st.integers(20_000, 400_000),
    "queue_units": st.integers(3, 60),
    "slot_count": st.integers(1, 400),
    "entry_count_max": st.integers(150, 2000),
}


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**ANY_LAYOUT)
def test_any_split_and_any_layout_give_what_the_online_builders_write(
    stores_without_derived_files, tmp_path_factory, **layout
):
    assert_rebuild_equals_the_online_builders(stores_without_derived_files, tmp_path_factory, **layout)


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**ANY_LAYOUT)
def test_many_splits_and_layouts_give_what_the_online_builders_write(
    stores_without_derived_files, tmp_path_factory, **layout
):
    assert_rebuild_equals_the_online_builders(stores_without_derived_files, tmp_path_factory, **layout)


def assert_rebuild_equals_the_online_builders(
    stores, tmp_path_factory, *, number, split_bytes, queue_units, slot_count, entry_count_max
):
    root, requests = stores[number]
    online, out = tmp_path_factory.mktemp("online"), tmp_path_factory.mktemp("out")
    layout = StoreLayout(queue_units * 20, IndexLayout(slot_count, entry_count_max))
    build_online(requests, online, layout)

    rebuild_here(root, out, layout=layout, split_bytes=split_bytes)

    try:
        assert_same_store(out, online)
        names = [path.name for path in list_index_files(RealFileSystem(), out)]
        assert names == sorted(set(names))
        assert all(len(name) == 17 for name in names)
    finally:
        for directory in (online, out):
            shutil.rmtree(directory)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_an_index_that_is_just_full_is_followed_by_an_empty_file_only_if_a_message_follows(
    stores_without_derived_files, tmp_path, store, more
):
    root, requests = stores_without_derived_files[STORES.index(store)]
    key_count = sum(len(index_keys(request)) for request in requests)
    layout = StoreLayout(400, IndexLayout(100, key_count + 1 + more))
    build_online(requests, tmp_path / "online", layout)

    rebuild_here(root, tmp_path / "out", layout=layout)

    assert_same_store(tmp_path / "out", tmp_path / "online")


def test_a_log_whose_front_was_retired_is_rebuilt(copy_of_crashed_store, tmp_path):
    log_files = sorted((copy_of_crashed_store / "commitlog").iterdir())
    assert len(log_files) > 2, "the test wants a log of several files"
    log_files[0].unlink()
    shutil.rmtree(copy_of_crashed_store / "consumequeue")
    shutil.rmtree(copy_of_crashed_store / "index")
    layout = StoreLayout(400, IndexLayout(100, 1000))
    build_online(requests_of(copy_of_crashed_store), tmp_path / "online", layout)

    rebuild_here(copy_of_crashed_store, tmp_path / "out", layout=layout, split_bytes=100_000)

    assert_same_store(tmp_path / "out", tmp_path / "online")


def write_log(root: Path, records: list[Record], file_size_bytes: int) -> None:
    """A log of these records, each at the place where it comes to stand, blanks at the ends of files."""
    offset, files = 0, {}
    for record in records:
        size = len(encode_record(record))
        left = file_size_bytes - offset % file_size_bytes
        if size + 8 > left:
            files.setdefault(offset - offset % file_size_bytes, bytearray()).extend(
                left.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True)
            )
            offset += left
        frame = encode_record(replace(record, commit_log_offset=offset))
        files.setdefault(offset - offset % file_size_bytes, bytearray()).extend(frame)
        offset += size
    (root / "commitlog").mkdir(parents=True)
    for first, data in files.items():
        (root / "commitlog" / f"{first:020d}").write_bytes(data.ljust(file_size_bytes, b"\0"))


@pytest.mark.parametrize("seed", range(6))
def test_queues_that_jump_are_what_the_online_builders_make_of_them(engine_store, tmp_path, seed):
    """Gaps, places that are taken, queues that begin again at 0, positions that cannot be."""
    number = random.Random(seed)
    _, frame = next(walk_frames(engine_store))
    model = decode_record(frame)
    records, expected = [], Counter()
    for _ in range(300):
        topic = number.choice(["even", "jumps", "jumps too", "../escapes"])
        queue = (topic, number.randrange(2))
        position = expected[queue]
        if topic.startswith("jumps") and number.random() < 0.2:
            position = number.choice([0, 0, position + 3, max(position - 2, 0), position + 100, 1 << 40, -5])
        expected[queue] = position + 1 if 0 <= position < 5000 else expected[queue]
        records.append(
            replace(
                model,
                topic=topic,
                queue_id=queue[1],
                queue_offset=position,
                body=b"b" * 40,
                body_crc=crc32(b"b" * 40) & 0x7FFFFFFF,
            )
        )
    write_log(tmp_path / "store", records, 16_384)
    layout = StoreLayout(400, IndexLayout(100, 200))
    requests = requests_of(tmp_path / "store")
    assert len(requests) == 300
    build_online(requests, tmp_path / "online", layout)

    report = rebuild_here(tmp_path / "store", tmp_path / "out", layout=layout, split_bytes=5_000)

    assert_same_store(tmp_path / "out", tmp_path / "online")
    assert report.counts["ordered_queue_count"] == 4
    assert any("escapes" in note for note in report.notes)


@pytest.fixture
def jumping_store(engine_store, tmp_path) -> Path:
    """A log of 60 messages in one queue that jumps: its file is written in a second pass."""
    model = decode_record(next(walk_frames(engine_store))[1])
    write_log(tmp_path / "store", [replace(model, topic="jumps", queue_offset=2 * n) for n in range(60)], 1 << 20)
    return tmp_path / "store"


@pytest.mark.parametrize("is_left", [True, False], ids=["appended", "damaged"])
def test_a_queue_that_jumps_is_written_of_what_the_first_pass_has_seen(jumping_store, tmp_path, is_left):
    cut = requests_of(jumping_store)[40].commit_log_offset
    (path,) = (jumping_store / "commitlog").iterdir()
    whole = path.read_bytes()
    fewer = whole[:cut].ljust(len(whole), b"\0")
    path.write_bytes(fewer)
    rebuild_here(jumping_store, tmp_path / "expected")
    first, then = (fewer, whole) if is_left else (whole, fewer)
    path.write_bytes(first)

    def change(step: str) -> None:
        if step == "ordered queues":
            path.write_bytes(then)

    if is_left:
        rebuild_here(jumping_store, tmp_path / "out", before_step=change)
        assert_same_store(tmp_path / "out", tmp_path / "expected")
    else:
        with pytest.raises(RecordCorruptedError, match=str(cut)):
            rebuild_here(jumping_store, tmp_path / "out", before_step=change)
        assert list(tmp_path.glob("out*")) == []
    assert path.read_bytes() == then, "the test wants a second pass"


@pytest.mark.parametrize("mode", ["scatter", "shuffle"])
def test_a_spark_that_runs_tasks_twice_at_once_is_refused_for_a_directory(broker_store, tmp_path, mode):
    """An object store takes it; that one holds other data is found later."""

    class Speculating:
        class sparkContext:
            defaultParallelism = 1

            @staticmethod
            def getConf() -> dict[str, str]:
                return {"spark.speculation": "true"}

    with pytest.raises(InvalidArgumentError, match=r"spark.speculation is on"):
        rebuild.run(Speculating(), broker_store, tmp_path / "out", mode=mode)
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "somebody's").touch()
    with pytest.raises(InvalidArgumentError, match="holds other data"):
        rebuild.run(Speculating(), broker_store, tmp_path.as_uri(), mode="shuffle")


@pytest.mark.parametrize("keyed", [0, 4, 8])
@pytest.mark.parametrize("keyless", [0, 1, 3])
def test_the_next_index_file_is_made_by_the_next_message_even_without_keys(engine_store, tmp_path, keyed, keyless):
    """Four keys fill a file here; a store's first message makes its first file, keys or not."""
    model = decode_record(next(walk_frames(engine_store))[1])
    records = [
        replace(model, queue_offset=n, properties_bytes=b"KEYS\x01k\x02" if n < keyed else b"")
        for n in range(keyed + keyless)
    ]
    write_log(tmp_path / "store", records, 16_384)
    layout = StoreLayout(400, IndexLayout(10, 5))
    build_online(requests_of(tmp_path / "store"), tmp_path / "online", layout)

    report = rebuild_here(tmp_path / "store", tmp_path / "out", layout=layout, split_bytes=500)

    assert report.counts["index_file_count"] == keyed // 4 + bool(keyless)
    if records:
        assert_same_store(tmp_path / "out", tmp_path / "online")


def test_a_dry_run_says_the_counts_and_writes_nothing(broker_store, tmp_path):
    report = rebuild_here(broker_store, tmp_path / "out", dry_run=True)

    assert report.counts["record_count"] == len(requests_of(broker_store))
    assert json.loads(report.to_json())["is_dry_run"] is True
    assert list(tmp_path.iterdir()) == []


def test_a_killed_rebuilds_leftovers_are_made_anew(broker_store, tmp_path):
    staging = tmp_path / "out.tmp"
    (staging / "consumequeue/orders/0").mkdir(parents=True)
    (staging / "consumequeue/orders/0/00000000000000000000").write_bytes(b"x" * 40)
    (staging / "rebuild.lock").touch()

    rebuild_here(broker_store, tmp_path / "out")

    assert_same_store(tmp_path / "out", broker_store)


@pytest.mark.parametrize("name", ["out", "out.tmp"])
def test_a_directory_that_holds_other_data_is_refused(broker_store, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "somebody's").write_text("data")

    with pytest.raises(InvalidArgumentError, match="holds other data"):
        rebuild_here(broker_store, tmp_path / "out")

    assert (tmp_path / name / "somebody's").read_text() == "data"


@pytest.mark.parametrize("name", ["", "inside", ".."])
def test_the_source_store_is_never_written_to(copy_of_broker_store, name):
    before = file_bytes(copy_of_broker_store)
    with pytest.raises(InvalidArgumentError, match="never writes into its source"):
        rebuild_here(copy_of_broker_store, copy_of_broker_store / name)
    assert file_bytes(copy_of_broker_store) == before


def test_a_directory_without_a_log_is_no_store(tmp_path):
    with pytest.raises(UnsupportedStoreError):
        rebuild_here(tmp_path, tmp_path.parent / "out-of-nothing")


@pytest.mark.parametrize("split_bytes", [None, 20_000])
def test_damage_with_records_behind_it_stops_the_rebuild_and_names_the_byte(
    copy_of_broker_store, tmp_path, split_bytes
):
    requests = requests_of(copy_of_broker_store)
    victim = requests[len(requests) // 2]
    files = sorted((copy_of_broker_store / "commitlog").iterdir())
    path = [path for path in files if int(path.name) <= victim.commit_log_offset][-1]
    with open(path, "r+b") as file:
        file.seek(victim.commit_log_offset - int(path.name))
        file.write(b"\x7f")  # a size that no file has room for

    with pytest.raises(RecordCorruptedError, match=str(victim.commit_log_offset)):
        rebuild_here(copy_of_broker_store, tmp_path / "out", split_bytes=split_bytes)

    assert list(tmp_path.glob("out*")) == []


def test_a_missing_log_file_stops_the_rebuild(copy_of_crashed_store, tmp_path):
    sorted((copy_of_crashed_store / "commitlog").iterdir())[1].unlink()
    with pytest.raises(StoreCorruptedError, match="missing"):
        rebuild_here(copy_of_crashed_store, tmp_path / "out")


def test_a_torn_tail_is_left_out(copy_of_broker_store, tmp_path):
    requests = requests_of(copy_of_broker_store)
    last = requests[-1]
    path = [p for p in sorted((copy_of_broker_store / "commitlog").iterdir()) if int(p.name) <= last.commit_log_offset][
        -1
    ]
    with open(path, "r+b") as file:
        file.seek(last.commit_log_offset - int(path.name) + last.record_size_bytes - 10)
        file.write(bytes(10))

    report = rebuild_here(copy_of_broker_store, tmp_path / "out")

    assert report.counts["record_count"] == len(requests) - 1
    assert report.counts["log_end_offset"] == last.commit_log_offset


def test_a_uri_means_shuffle_and_scatter_is_refused(tmp_path):
    uri = ObjectRoot.of("s3://bucket/out")

    assert mode_for(uri, None) == "shuffle"
    assert mode_for(tmp_path, None) == "scatter"
    assert ObjectRoot.of("plain/path") == Path("plain/path")
    with pytest.raises(InvalidArgumentError, match="use --mode shuffle"):
        mode_for(uri, "scatter")
    with pytest.raises(InvalidArgumentError, match="mode 'sideways' does not exist"):
        mode_for(tmp_path, "sideways")


def test_a_password_is_not_said_by_who_refuses_something_else():
    with pytest.raises(InvalidArgumentError, match="use --mode shuffle") as caught:
        mode_for(ObjectRoot("gs://key:hush@bucket/out?access_token=hush"), "scatter")
    assert "hush" not in str(caught.value)
