"""Point lookups in an archive equal brute force over the log, and read little of it."""

import errno
import itertools
import os
import random
import shutil
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from store.archive import archive_reader
from store.archive.archive_reader import ArchiveReader
from store.archive.manifest import Segment, SegmentList
from store.archive.parquet_files import ParquetFiles
from store.errors import (
    OffsetOutOfRangeError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreError,
    UnsupportedStoreError,
)
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import index_key, key_hash
from tests.support.archives import (
    BEGIN_MILLIS,
    BROKER,
    Archived,
    CountingFileSystem,
    archived,
    message,
    write_log,
)
from tests.support.falling_times import falling_times, moments_of
from tests.support.faulty_file_system import FaultyFileSystem
from tests.support.fixture_stores import walk_frames
from tests.support.seeds import seeds


def verified(reader: ArchiveReader, topic: str, key: str, page_size: int = 64) -> list[int]:
    """All pages of a key, each candidate compared as callers do."""
    found: list[int] = []
    below: int | None = None
    while True:
        hits = reader.search(topic, key, below_offset=below, count=page_size)
        assert hits.problem is None
        assert len(hits.commit_log_offsets) <= page_size
        for offset in hits.commit_log_offsets:
            record = reader.record(offset)
            if record.topic == topic and (key in record.keys or record.unique_key == key):
                found.append(offset)
        if not hits.more:
            return found
        below = hits.commit_log_offsets[-1]


def test_each_record_of_each_fixture_is_found_by_its_offset_byte_by_byte(fixture_archive: Archived):
    reader = ArchiveReader(fixture_archive.archive, BROKER)
    segments = reader.segments()

    for offset, frame in walk_frames(fixture_archive.store):
        segment = next(s for s in segments if s.first_offset <= offset < s.end_offset)
        assert frame == reader.reader(segment).frame(offset)
    assert fixture_archive.records == [reader.record(r.commit_log_offset) for r in fixture_archive.records]
    assert reader.problem() is None


def test_each_key_and_unique_key_of_each_fixture_is_found_newest_first(fixture_archive: Archived):
    reader = ArchiveReader(fixture_archive.archive, BROKER)
    names = sorted(fixture_archive.names())
    chosen = random.Random(1).sample(names, min(len(names), 300))
    # Colliding and non-ASCII ones are always among them.
    chosen += [(topic, key) for topic, key in names if key in ("AaAa", "BBBB", "AaBB", "BBAa") or not key.isascii()]

    assert {name: fixture_archive.keyed(*name) for name in chosen} == {name: verified(reader, *name) for name in chosen}


def test_each_queue_of_each_fixture_reads_as_the_log_says(fixture_archive: Archived):
    reader = ArchiveReader(fixture_archive.archive, BROKER)
    queues = fixture_archive.queues()

    assert {q: (min(rows), max(rows) + 1) for q, rows in queues.items()} == reader.queues()
    for (topic, queue_id), rows in queues.items():
        for begin in {0, min(rows), max(rows), (min(rows) + max(rows)) // 2, max(rows) + 1}:
            expected = [
                (place, rows[place].commit_log_offset, rows[place].store_size_bytes)
                for place in sorted(rows)
                if place >= begin
            ]
            hits = reader.units(topic, queue_id, begin, 10)
            assert (expected[:10], None) == ([tuple(unit) for unit in hits.units], hits.problem)


@pytest.mark.parametrize("seed", range(3))
def test_positions_in_the_archive_are_those_of_brute_force_where_store_times_fall(tmp_path: Path, seed: int):
    times = falling_times(BEGIN_MILLIS, 900, seed)
    messages = [message(n, queue_id=n % 3, topic="others" if n % 5 == 0 else "orders") for n in range(900)]
    made = archived(write_log(tmp_path / "store", messages, time_of=times.__getitem__), tmp_path / "archive")
    reader = ArchiveReader(made.archive, BROKER)

    assert len(reader.segments()) > 2
    for (topic, queue_id), queue in made.queues().items():
        rows = [(offset, record.store_time_millis) for offset, record in sorted(queue.items())]
        for asked in moments_of(times, 60, seed):
            lower = next((offset for offset, time in rows if time >= asked), None)
            upper = next((offset for offset, time in reversed(rows) if time <= asked), None)
            found = [reader.at_time(topic, queue_id, asked, is_upper=is_upper) for is_upper in (False, True)]
            assert [(hit.queue_offset, hit.problem) for hit in found] == [(lower, None), (upper, None)], asked


def test_what_no_record_starts_at_is_not_found_and_what_is_outside_says_the_range(fixture_archive: Archived):
    reader = ArchiveReader(fixture_archive.archive, BROKER)
    records = fixture_archive.records
    starts = {record.commit_log_offset for record in records}

    for record in records[:: max(len(records) // 50, 1)]:
        for offset in (record.commit_log_offset + 1, record.next_offset - 1):
            if offset not in starts:
                with pytest.raises(RecordNotFoundError):
                    reader.record(offset)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        reader.record(records[-1].next_offset + (1 << 30))
    assert (0, records[-1].next_offset) == (
        int(caught.value.metadata["firstOffset"]),
        int(caught.value.metadata["lastOffset"]),
    )


def test_an_error_that_is_kept_keeps_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    kept: list[StoreError] = []
    files = ParquetFiles()

    for _ in range(10):
        with pytest.raises(StoreError) as told:
            files.frame(path, 0)
        kept.append(told.value)

    open_files = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert str(path) not in open_files


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    """10,000 messages with one key, among them two whose keys collide with one another's, in several files and days."""
    root = tmp_path_factory.mktemp("many")
    messages = [
        message(n, queue_id=n % 3, keys="all" + (" AaAa" if n % 100 == 0 else " BBBB" if n % 100 == 1 else ""))
        for n in range(10_000)
    ]
    # 24 s between two messages: nearly three days of them.
    store = write_log(root / "store", messages, file_bytes=1 << 19, millis_between=24_000)
    return archived(store, root / "archive")


@pytest.mark.parametrize("page_size", [1000, 64, 7])
def test_ten_thousand_messages_of_one_key_come_in_pages_without_loss_or_doubles(many: Archived, page_size: int):
    reader = ArchiveReader(many.archive, BROKER)
    found: list[int] = []
    below = None
    while True:
        hits = reader.search("orders", "all", below_offset=below, count=page_size)
        found += hits.commit_log_offsets
        if not hits.more:
            break
        below = hits.commit_log_offsets[-1]

    assert many.keyed("orders", "all") == found


def test_keys_with_one_hash_are_both_candidates_and_only_one_is_meant(many: Archived):
    assert key_hash(index_key("orders", "AaAa")) == key_hash(index_key("orders", "BBBB"))
    reader = ArchiveReader(many.archive, BROKER)

    candidates = reader.search("orders", "AaAa", count=1000).commit_log_offsets
    assert sorted(many.keyed("orders", "AaAa") + many.keyed("orders", "BBBB"), reverse=True) == list(candidates)
    assert many.keyed("orders", "AaAa") == verified(reader, "orders", "AaAa")
    assert many.keyed("orders", "BBBB") == verified(reader, "orders", "BBBB")


def test_a_window_leaves_out_only_segments_that_lie_outside(many: Archived):
    reader = ArchiveReader(many.archive, BROKER)
    begin, end = BEGIN_MILLIS + 5_000 * 24_000, BEGIN_MILLIS + 5_100 * 24_000

    hits = reader.search("orders", "all", begin_millis=begin, end_millis=end, count=10_000)
    inside = [r.commit_log_offset for r in reversed(many.records) if begin <= r.store_time_millis <= end]
    assert set(inside) <= set(hits.commit_log_offsets)
    assert len(hits.commit_log_offsets) < 10_000


def test_lookups_read_a_small_part_of_the_archive(tmp_path: Path):
    messages = [message(n, keys=f"k{n}", body=random.Random(n).randbytes(1000)) for n in range(24_000)]
    made = archived(write_log(tmp_path / "store", messages, file_bytes=1 << 24), tmp_path / "archive")
    size_bytes = sum(path.stat().st_size for path in made.archive.rglob("*") if path.is_file())
    wanted = made.records[13_000]

    def read_bytes(ask) -> int:  # type: ignore[no-untyped-def]
        fs = CountingFileSystem()
        reader = ArchiveReader(made.archive, BROKER, fs, ParquetFiles(fs))
        ask(reader)
        return fs.read_bytes

    by_key = read_bytes(lambda reader: verified(reader, "orders", "k13000") == [wanted.commit_log_offset] or 1 / 0)
    by_offset = read_bytes(lambda reader: reader.record(wanted.commit_log_offset) == wanted or 1 / 0)
    by_place = read_bytes(
        lambda reader: (
            [u.commit_log_offset for u in reader.units("orders", 0, 13_000, 1).units] == [wanted.commit_log_offset]
            or 1 / 0
        )
    )
    # One row group of at most 4 MiB of frames, and indexes' fronts; places come without frames.
    assert by_key < size_bytes / 4
    assert by_offset < size_bytes / 4
    assert by_place < size_bytes / 40


def test_a_segment_that_is_published_later_is_seen(tmp_path: Path):
    messages = [message(n, keys="k") for n in range(1000)]
    store = write_log(tmp_path / "store", messages)
    files = sorted((store / "commitlog").iterdir())
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in files[2:]:
        path.rename(aside / path.name)
    archived(store, tmp_path / "archive")
    reader = ArchiveReader(tmp_path / "archive", BROKER)
    before = reader.range()
    for path in files[2:]:
        (aside / path.name).rename(path)

    made = archived_again(store, tmp_path / "archive")

    assert before < reader.range()
    assert made.keyed("orders", "k")[:5] == list(reader.search("orders", "k", count=5).commit_log_offsets)


def archived_again(store: Path, archive: Path) -> Archived:
    from pipeline.archive import archive as job
    from store.format.record import decode_record

    job.run(None, store, archive, include_active=True)
    records = [decode_record(frame, commit_log_offset=offset) for offset, frame in walk_frames(store)]
    return Archived(store, archive, records)


def test_what_is_no_archive_is_refused_by_every_question(tmp_path: Path):
    reader = ArchiveReader(tmp_path / "nothing", BROKER)

    assert isinstance(reader.problem(), UnsupportedStoreError)
    assert isinstance(reader.search("t", "k").problem, UnsupportedStoreError)
    assert isinstance(reader.units("t", 0, 0, 1).problem, UnsupportedStoreError)
    for ask in (lambda: reader.record(0), reader.range, reader.segments, reader.queues):
        with pytest.raises(UnsupportedStoreError) as caught:
            ask()
        assert str(tmp_path / "nothing") in caught.value.message


def damages(path: Path, rng: random.Random) -> bytes:
    """Other bytes for a file: one bit over, cut short, longer, empty or zeros in the middle."""
    data = bytearray(path.read_bytes())
    kind = rng.randrange(5)
    at = rng.randrange(len(data))
    if kind <= 1:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    else:
        data = bytearray(rng.randbytes(len(data)))
    return bytes(data)


@pytest.mark.parametrize("seed", seeds(40, short=12))
def test_a_damaged_file_gives_the_right_answer_or_an_error_that_names_it(
    small_archive: Archived, tmp_path: Path, seed: int
):
    rng = random.Random(seed)
    root = tmp_path / "archive"
    shutil.copytree(small_archive.archive, root)
    paths = sorted(p for p in root.rglob("*") if p.is_file() and p.name not in ("lock",))
    path = paths[seed % len(paths)]
    data = damages(path, rng)
    changed = data != path.read_bytes() or seed % 7 == 0
    path.write_bytes(data)
    if seed % 7 == 0:
        path.unlink()
    reader = ArchiveReader(root, BROKER)
    told: list[StoreError] = []

    for record in small_archive.records:
        try:
            assert record == reader.record(record.commit_log_offset)
        except StoreError as error:
            told.append(error)
    for topic, key in sorted(small_archive.names()):
        hits = reader.search(topic, key, count=1000)
        if hits.problem is not None:
            told.append(hits.problem)
        else:
            assert set(small_archive.keyed(topic, key)) <= set(hits.commit_log_offsets)
    for (topic, queue_id), rows in small_archive.queues().items():
        hits_of_queue = reader.units(topic, queue_id, 0, 10_000)
        if hits_of_queue.problem is not None:
            told.append(hits_of_queue.problem)
        else:
            assert sorted(rows) == [unit.queue_offset for unit in hits_of_queue.units]
    if changed and path.suffix != ".parquet":
        assert told  # of a Parquet file a lookup does not read every byte
    named = {Path(error.metadata["file"]).name for error in told if "file" in error.metadata}
    assert named <= {path.name}
    assert all("file" in error.metadata or not path.exists() for error in told)


@pytest.fixture(scope="module")
def small_archive(tmp_path_factory: pytest.TempPathFactory) -> Archived:
    root = tmp_path_factory.mktemp("small")
    messages = [message(n, topic=("orders", "pay")[n % 2], queue_id=n % 3, keys=f"k{n % 17}") for n in range(600)]
    return archived(write_log(root / "store", messages, file_bytes=1 << 15), root / "archive")


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("open", errno.ESTALE),
        ("open", errno.EACCES),
        ("open", errno.EIO),
        ("pread", errno.ESTALE),
        ("pread", errno.ETIMEDOUT),
    ],
    ids=lambda each: errno.errorcode.get(each, each),
)
@pytest.mark.parametrize("suffix", [".parquet", ".idx", ".json"])
def test_what_the_file_system_does_not_let_be_read_is_unavailable_not_damaged_and_read_once_it_does(
    small_archive: Archived, kind: str, number: int, suffix: str
) -> None:
    """As on a network's file system whose server restarts (ESTALE), or whose rights are too narrow (EACCES)."""
    fs = FaultyFileSystem()
    reader = ArchiveReader(small_archive.archive, BROKER, fs)
    record = small_archive.records[0]
    is_manifest = suffix == ".json"
    if kind == "pread" and not is_manifest:
        assert reader.record(record.commit_log_offset) == record  # and keeps its files open
        reader._parquet._kept.clear()
    fault = fs.fail(kind, number, path=suffix, lasting=True)
    told: list[StoreError | None] = []
    with pytest.raises(ServiceUnavailableError) as caught:
        reader.record(record.commit_log_offset)
    told.append(caught.value)
    told.append(reader.units(record.topic, record.queue_id, 0, 1).problem)
    if suffix != ".parquet":
        told.append(reader.search(record.topic, record.keys[0]).problem)
    assert fault.hits
    for error in told:
        assert isinstance(error, ServiceUnavailableError)
        assert (error.metadata["service"], error.metadata["errno"]) == ("archive", errno.errorcode[number])
        assert Path(error.metadata["file"]).suffix == suffix or (is_manifest and kind == "pread")
        assert errno.errorcode[number] in error.message

    fs.clear()
    opened = fs.count("open", suffix)
    assert reader.record(record.commit_log_offset) == record
    assert fs.count("open", suffix) > opened, "what may be stale is opened anew"
    assert reader.problem() is None


@pytest.mark.parametrize("suffix", [".parquet", ".idx"])
def test_a_file_brought_back_from_a_copy_was_damaged_until_the_restart(
    small_archive: Archived, tmp_path: Path, suffix: str
) -> None:
    """The error says to bring the file back; whoever does so is answered."""
    archive = tmp_path / "archive"
    shutil.copytree(small_archive.archive, archive)
    record = small_archive.records[0]
    reader = ArchiveReader(archive, BROKER)
    assert reader.record(record.commit_log_offset) == record
    reader._parquet._kept.clear()  # its file stays open
    path = min(archive.rglob(f"*{suffix}"))
    sound = path.read_bytes()
    damaged = archive / "damaged"
    # In place, so that who has it open sees it: as a disk's damage is seen.
    path.write_bytes(bytes(byte ^ 0xFF for byte in sound))
    with pytest.raises(StoreCorruptedError):
        for each in small_archive.records:
            assert reader.record(each.commit_log_offset) == each

    damaged.write_bytes(sound)
    os.replace(damaged, path)

    for each in small_archive.records:
        assert reader.record(each.commit_log_offset) == each


def test_a_parquet_file_without_a_column_is_damaged_not_a_bug(small_archive: Archived, tmp_path: Path) -> None:
    """pyarrow leaves out a column that is not there without a word; then a KeyError failed the answers of all shards."""
    archive = tmp_path / "archive"
    shutil.copytree(small_archive.archive, archive)
    for path in archive.rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.drop_columns(["physicalOffset", "tail"]), path)
    reader = ArchiveReader(archive, BROKER)
    for record in small_archive.records[:5]:
        with pytest.raises(StoreCorruptedError, match="column"):
            reader.record(record.commit_log_offset)
        problem = reader.units(record.topic, record.queue_id, 0, 1).problem
        assert isinstance(problem, StoreCorruptedError)


class HangingFileSystem(RealFileSystem):
    """Lets one thread wait before it reads a manifest."""

    def __init__(self) -> None:
        self.hangs: threading.Thread | None = None
        self.is_hanging = threading.Event()
        self.may_go = threading.Event()

    def open(self, path: str | Path, flags: int, mode: int = 0o644) -> int:
        if threading.current_thread() is self.hangs and "/segments/" in str(path):
            self.is_hanging.set()
            assert self.may_go.wait(60)
        return super().open(path, flags, mode)


def test_a_segment_published_while_another_thread_was_slow_stayed_unseen(
    small_archive: Archived, tmp_path: Path
) -> None:
    """What a slow listing had found was taken for what a later one had stamped."""
    archive = tmp_path / "archive"
    shutil.copytree(small_archive.archive, archive)
    manifests = sorted((archive / "segments" / BROKER).glob("*.json"))
    late = manifests[-1]
    aside = tmp_path / late.name
    late.rename(aside)
    fs = HangingFileSystem()

    def let_the_slow_one_end(_: list[Segment]) -> None:
        if threading.current_thread() is not slow:
            fs.may_go.set()
            slow.join(60)

    later = itertools.count(time.time_ns() + 10**12, 10**12)  # the folder has settled each time
    segments = SegmentList(archive, BROKER, fs, let_the_slow_one_end, clock_nanos=lambda: next(later))
    fs.hangs = slow = threading.Thread(target=segments.load)
    slow.start()
    assert fs.is_hanging.wait(60)
    aside.rename(late)

    segments.load()

    assert not slow.is_alive()
    assert len(segments.load()) == len(manifests)


def test_a_settled_archive_is_not_listed_again_and_a_change_is_still_seen(small_archive: Archived, tmp_path: Path):
    root = tmp_path / "archive"
    shutil.copytree(small_archive.archive, root)
    fs = ListingFileSystem()
    reader = ArchiveReader(root, BROKER, fs, clock_nanos=lambda: 1 << 62)
    whole = reader.segments()
    listed = fs.list_count
    assert whole == reader.segments()
    assert listed == fs.list_count

    max((root / "segments" / BROKER).iterdir()).unlink()
    assert whole[:-1] == reader.segments()


class ListingFileSystem(CountingFileSystem):
    list_count = 0

    def listdir(self, path: str | Path) -> list[str]:
        self.list_count += 1
        return super().listdir(path)


def test_each_segment_ever_asked_for_stayed_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = write_log(tmp_path / "store", [message(n, keys=f"k{n}", body=b"x" * 3_000) for n in range(200)])
    made = archived(store, tmp_path / "archive")
    monkeypatch.setattr(archive_reader, "OPEN_SEGMENT_COUNT_MAX", 3)
    reader = ArchiveReader(made.archive, BROKER)
    held = reader.reader(reader.segments()[0])
    assert len(reader.segments()) > 6

    assert [reader.record(record.commit_log_offset) for record in made.records] == made.records

    open_files = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert sum(name.startswith(str(made.archive / "keys")) for name in open_files) == 3 + 1
    assert held.record(made.records[0].commit_log_offset) == made.records[0], "what is in use is not closed"
