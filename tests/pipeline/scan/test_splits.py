"""Splits: every record once, however the log is cut; walks kept while they are true; a log that is being written to."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.scan import boundaries, splits
from pipeline.scan.scan import Split
from store.errors import RecordCorruptedError
from store.files.file_system import RealFileSystem
from store.files.locks import BrokerLock, OwnerLock
from store.format.checkpoint import encode_durable_mark
from tests.pipeline.brute_force import make_reader, read, rows_of_store
from tests.pipeline.logs import FILE_BYTES, log_file, overwrite, write_files, write_log
from tests.store.walk.logs import frames_of, message
from tests.support.archives import written_to


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are walked."""
    names: list[str] = []
    real = boundaries.walk_file

    def walk(fs: Any, file: Any, **flags: Any) -> Any:
        names.append(Path(file.path).name)
        return real(fs, file, **flags)

    monkeypatch.setattr(splits, "walk_file", walk)
    return names


def offsets(root: Path, **options: Any) -> list[int]:
    return [row["physicalOffset"] for row in read(root, columns="physicalOffset", **options)]


@pytest.mark.parametrize("split_bytes", [1024, 1025, 2000, 4095, 4096, 4097, 1 << 20])
def test_splits_cover_each_file_once(tmp_path: Path, split_bytes: int) -> None:
    write_files(tmp_path)
    everything: list[Any] = make_reader(tmp_path, splitBytes=split_bytes).partitions()
    starts = {row["physicalOffset"] for row in rows_of_store(tmp_path)}
    for path in {split.file.path for split in everything}:
        of_file = [split for split in everything if split.file.path == path]
        assert of_file[0].begin == of_file[0].file.first_offset
        for split, following in itertools.pairwise(of_file):
            assert split.end == following.begin
            assert not split.is_to_file_end
            assert following.begin in starts
    assert sum(split.is_to_file_end for split in everything) == 3


@pytest.mark.parametrize("store", ["broker_store", "engine_store", "engine_crc_store", "crashed_store"])
def test_split_times_are_those_of_the_records(store: str, request: pytest.FixtureRequest) -> None:
    root: Path = request.getfixturevalue(store)
    rows = rows_of_store(root)
    everything: list[Any] = make_reader(root, splitBytes=1024).partitions()
    for split in everything:
        if split.time_millis_min is not None:
            times = [
                row["storeTimestamp"].timestamp() * 1000
                for row in rows
                if split.begin <= row["physicalOffset"] < split.end
            ]
            assert (split.time_millis_min, split.time_millis_max) == pytest.approx((min(times), max(times)))


def test_bounds_by_offset_keep_the_records_that_begin_between_them(tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    everything = offsets(tmp_path)
    assert len(everything) == len(frames)
    for low, high in (
        (0, 1),
        (1, everything[1]),
        (everything[3], everything[9] + 1),
        (FILE_BYTES, 2 * FILE_BYTES),
        (9**9, 9**10),
    ):
        wanted = [offset for offset in everything if low <= offset < high]
        assert offsets(tmp_path, startingPhysicalOffset=low, endingPhysicalOffset=high, splitBytes=1024) == wanted


def test_bounds_by_time_keep_the_records_stored_between_them(broker_store: Path) -> None:
    rows = rows_of_store(broker_store)
    times = sorted({round(row["storeTimestamp"].timestamp() * 1000) for row in rows})
    low, high = times[len(times) // 4], times[len(times) // 2]
    wanted = [row["physicalOffset"] for row in rows if low <= row["storeTimestamp"].timestamp() * 1000 < high]
    assert offsets(broker_store, startingTimestamp=low, endingTimestamp=high, splitBytes=2048) == wanted
    assert wanted


def test_a_walk_is_kept_beside_the_pipeline_and_never_in_the_store(tmp_path: Path, walked: list[str]) -> None:
    frames = write_files(tmp_path / "store")
    before = sorted(tmp_path.rglob("*"))
    cache = tmp_path / "cache"
    first = offsets(tmp_path / "store", splitBytes=1024, boundaryCache=cache)
    assert len(first) == len(frames)
    assert [path for path in sorted(tmp_path.rglob("*")) if cache not in (path, *path.parents)] == before
    assert len(list(cache.iterdir())) == 3  # the last file is still being filled
    assert len(walked) == 4
    walked.clear()
    assert offsets(tmp_path / "store", splitBytes=1024, boundaryCache=cache) == first
    assert walked == [log_file(tmp_path, 3).name]


@pytest.mark.parametrize("change", ["touched", "rewritten", "replaced", "garbage", "wrong offsets", "other format"])
def test_a_walk_is_not_believed_of_another_file(tmp_path: Path, walked: list[str], change: str) -> None:
    store, cache = tmp_path / "store", tmp_path / "cache"
    write_files(store)
    wanted = offsets(store, splitBytes=1024, boundaryCache=cache)
    path = log_file(store)
    stat = path.stat()
    if change == "touched":
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    elif change == "rewritten":
        overwrite(path, 60, b"\1")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif change == "replaced":
        data = path.read_bytes()
        path.rename(tmp_path / "old")
        path.write_bytes(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    else:
        for kept in cache.iterdir():
            state = json.loads(kept.read_text())
            if state["file"]["path"] == str(path):
                if change == "garbage":
                    kept.write_text("{")
                elif change == "wrong offsets":
                    state["marks"] = state["marks"][::-1]
                    kept.write_text(json.dumps(state))
                else:
                    kept.write_text(json.dumps({**state, "format": 99}))
    walked.clear()
    assert offsets(store, splitBytes=1024, boundaryCache=cache) == wanted
    assert path.name in walked


def test_a_walk_that_is_wrong_all_the_same_is_found_out(tmp_path: Path) -> None:
    """Whatever is kept: the tasks prove that one ends where the next begins."""
    store, cache = tmp_path / "store", tmp_path / "cache"
    write_files(store)
    offsets(store, splitBytes=1024, boundaryCache=cache)
    for kept in cache.iterdir():
        state = json.loads(kept.read_text())
        if state["file"]["path"] == str(log_file(store)):
            state["marks"][2][0] += 1
            kept.write_text(json.dumps(state))
    with pytest.raises(RecordCorruptedError, match=r"offset \d+ .*boundaryCache=off"):
        offsets(store, splitBytes=1024, boundaryCache=cache)
    assert len(offsets(store, splitBytes=1024)) == len(rows_of_store(store))


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    frames = write_files(tmp_path / "store")
    (tmp_path / "cache").write_text("a file")
    assert len(offsets(tmp_path / "store", splitBytes=1024, boundaryCache=tmp_path / "cache")) == len(frames)


def test_files_that_are_one_split_each_are_not_walked(tmp_path: Path, walked: list[str]) -> None:
    write_files(tmp_path)
    offsets(tmp_path, splitBytes=FILE_BYTES)
    assert walked == [log_file(tmp_path, 3).name]


def test_a_log_being_written_to_ends_at_its_durable_mark(tmp_path: Path) -> None:
    frames = frames_of([message(body=bytes(100))] * 9, base=0)
    root = write_log(tmp_path, frames, file_bytes=1 << 16)
    own = root / "reput" / "commitlog"
    own.mkdir(parents=True)
    mark = sum(map(len, frames[:6]))
    (own / "durable").write_bytes(encode_durable_mark(mark))
    assert len(offsets(root)) == 9  # nobody has it open: all that is there counts
    lock = OwnerLock(own / "lock")
    lock.acquire()
    try:
        assert len(offsets(root)) == 6
        assert len(offsets(root, splitBytes=1024)) == 6
        (own / "durable").write_bytes(encode_durable_mark(mark - 1))  # never a part of a record
        assert len(offsets(root)) == 5
        (own / "durable").write_bytes(b"torn")
        assert len(offsets(root)) == 9
    finally:
        lock.release()


@pytest.mark.parametrize("split_bytes", [1024, FILE_BYTES])
@pytest.mark.parametrize("is_replicated", [False, True])
def test_a_mark_in_a_file_before_the_last_one_was_passed(tmp_path: Path, split_bytes: int, is_replicated: bool) -> None:
    write_files(tmp_path)
    everything = offsets(tmp_path)
    behind = [offset for offset in everything if offset < FILE_BYTES]
    for safe, wanted in (
        (behind[3], behind[:3]),
        (behind[3] + 1, behind[:3]),
        (FILE_BYTES, behind),
        (everything[len(behind)], behind),
        (everything[-1], everything[:-1]),
        (0, []),
    ):
        durable, confirmed = (everything[-1], safe) if is_replicated else (safe, None)
        with written_to(tmp_path, durable, confirmed_offset=confirmed):
            assert offsets(tmp_path, splitBytes=split_bytes) == wanted, safe
    assert offsets(tmp_path, splitBytes=split_bytes) == everything


@pytest.mark.parametrize("split_bytes", [1024, FILE_BYTES])
def test_damage_at_the_end_of_a_file_before_the_mark_is_no_end_of_the_log(tmp_path: Path, split_bytes: int) -> None:
    write_files(tmp_path)
    last = max(offset for offset in offsets(tmp_path) if offset < FILE_BYTES)
    overwrite(log_file(tmp_path), last + 4, b"bad!")
    with written_to(tmp_path, FILE_BYTES), pytest.raises(RecordCorruptedError):
        offsets(tmp_path, splitBytes=split_bytes)


def test_a_log_that_a_broker_writes_to_ends_where_its_walk_ends(tmp_path: Path) -> None:
    """What is behind that is being written: no damage."""
    frames = frames_of([message(body=bytes(100))] * 9, base=0)
    root = write_log(tmp_path, [*frames[:4], bytes(len(frames[4])), *frames[5:]], file_bytes=1 << 16)
    with pytest.raises(RecordCorruptedError):
        offsets(root)
    lock = BrokerLock(root / "lock")
    lock.acquire()
    try:
        assert len(offsets(root)) == 4
    finally:
        lock.release()


def test_rows_appended_after_the_plan_are_not_read(tmp_path: Path) -> None:
    frames = frames_of([message(body=bytes(100))] * 9, base=0)
    root = write_log(tmp_path, frames[:5], file_bytes=1 << 16)
    reader = make_reader(root)
    planned = reader.partitions()
    overwrite(log_file(root), sum(map(len, frames[:5])), b"".join(frames[5:]))
    assert sum(batch.num_rows for split in planned for batch in reader.read(split)) == 5
    assert len(offsets(root)) == 9


def test_a_file_that_goes_while_the_log_is_listed_was_never_promised(tmp_path: Path) -> None:
    frames = write_files(tmp_path)

    class Retiring(RealFileSystem):
        def stat_size(self, path: Any) -> int:
            if Path(path) == log_file(tmp_path):
                Path(path).unlink(missing_ok=True)
            return super().stat_size(path)

    options = make_reader(tmp_path)._scan
    planned: list[Split] = splits.plan_splits(options, fs=Retiring())
    assert {split.begin // FILE_BYTES for split in planned} == {1, 2, 3}
    assert frames
