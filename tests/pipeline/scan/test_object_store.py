"""format("commitlog") over an object store: the rows of the local scan and of brute force, and errors that say what is wrong.

The object store is moto's S3 in a process of its own.
"""

import functools
import itertools
import os
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipeline import object_files
from pipeline.scan import boundaries
from pipeline.scan.log_files import LogFileGoneError
from pipeline.scan.scan import SplitBoundaryError
from store.errors import (
    InvalidArgumentError,
    PermissionDeniedError,
    RecordCorruptedError,
    StoreCorruptedError,
    UnsupportedStoreError,
)
from tests.pipeline.brute_force import make_reader, read, row_of, rows_of_store
from tests.pipeline.logs import FILE_BYTES, log_file, write_files, write_log
from tests.pipeline.scan.test_scan import BODY_AT
from tests.pipeline.test_damage_at_random import bytes_in, bytes_of, damaged_log, offset_of, reported, sound
from tests.store.walk.logs import frames_of, message
from tests.support.object_store import CREDENTIALS, ObjectStore, running_object_store

STORES = ["broker_store", "engine_store", "engine_crc_store", "crashed_store"]


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment, running_object_store() as store:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        store.fs.create_dir("logs")
        yield store


@pytest.fixture
def remote(object_store: ObjectStore, request: pytest.FixtureRequest) -> str:
    """A place of the bucket for this test."""
    return f"logs/{abs(hash(request.node.name))}"


@functools.cache
def uploaded(object_store: ObjectStore, root: Path) -> tuple[str, list[Any]]:
    """A store in the bucket, and its rows by brute force; made once for the tests that only read it."""
    return object_store.upload(root, f"logs/{root.name}"), rows_of_store(root, without=())


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("split_bytes", [1 << 14, 100_000, 1 << 30])
def test_rows_are_those_of_brute_force_and_of_the_local_scan(
    object_store: ObjectStore, request: pytest.FixtureRequest, store: str, split_bytes: int
) -> None:
    root: Path = request.getfixturevalue(store)
    uri, wanted = uploaded(object_store, root)
    options: dict[str, Any] = {"splitBytes": split_bytes, "raw": "true", "verify": "crc"}
    rows = read(uri, **options)
    assert rows == wanted
    assert rows == read(root, **options)


@pytest.mark.parametrize("split_bytes", [1024, 1025, 2000, 4095, 4096, 1 << 20])
def test_splits_of_a_file_follow_one_another_from_record_to_record(
    object_store: ObjectStore, remote: str, tmp_path: Path, split_bytes: int
) -> None:
    write_files(tmp_path)
    uri = object_store.upload(tmp_path, remote)
    everything: list[Any] = make_reader(uri, splitBytes=split_bytes).partitions()
    starts = {row["physicalOffset"] for row in rows_of_store(tmp_path)}
    assert sum(split.is_to_file_end for split in everything) == 3
    for path in {split.file.path for split in everything}:
        assert path.startswith(f"s3://{remote}/commitlog/")
        of_file = [split for split in everything if split.file.path == path]
        assert of_file[0].begin == of_file[0].file.first_offset
        assert of_file[-1].end == of_file[-1].file.last_offset or not of_file[-1].is_to_file_end
        for split, following in itertools.pairwise(of_file):
            assert split.end == following.begin
            assert following.begin in starts
    assert len(everything) > 4 or split_bytes >= 4095


def test_splits_are_found_without_reading_the_files(object_store: ObjectStore, remote: str, tmp_path: Path) -> None:
    """Requests: a listing, those of the last two files, and for each other one its size and a probe for each cut."""
    write_files(tmp_path, file_count=9, file_bytes=1 << 16)
    uri = object_store.upload(tmp_path, remote)
    whole = make_reader(uri, splitBytes=1 << 16)
    object_store.request_count()
    assert len(whole.partitions()) == 9
    without_cuts = object_store.request_count()
    cut = make_reader(uri, splitBytes=1 << 14)
    assert len(cut.partitions()) >= 8 * 4
    assert object_store.request_count() - without_cuts <= 8 * (1 + 3)


@pytest.mark.parametrize("place", ["directory", "beside the data"])
def test_kept_boundaries_are_used_until_an_object_is_replaced(
    object_store: ObjectStore, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    write_files(tmp_path / "store")
    uri = object_store.upload(tmp_path / "store", f"{remote}/store")
    cache = tmp_path / "cache" if place == "directory" else object_store.uri(f"{remote}/store/boundaries")
    wanted = read(uri, splitBytes=1024, boundaryCache=cache)
    probed: list[str] = []
    real = boundaries.find_record_at

    def find(file: Any, offset: int) -> int | None:
        probed.append(file.path.name)
        return real(file, offset)

    monkeypatch.setattr(boundaries, "find_record_at", find)
    assert read(uri, splitBytes=1024, boundaryCache=cache) == wanted
    assert not probed
    replaced = log_file(tmp_path / "store", 1)
    info = object_store.fs.get_file_info(f"{remote}/store/commitlog/{replaced.name}")
    while object_store.fs.get_file_info(info.path).mtime_ns == info.mtime_ns:  # S3's times are whole seconds
        object_store.upload(replaced.parent, f"{remote}/store/commitlog")
    read(uri, splitBytes=1024, boundaryCache=cache)
    assert replaced.name in probed


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_left_out_reported_and_named_as_on_a_disk(
    object_store: ObjectStore, remote: str, tmp_path: Path, seed: int
) -> None:
    kept, victims = damaged_log(tmp_path, seed)
    uri = object_store.upload(tmp_path, remote)
    wanted = [row_of(frame) for frame in kept]
    options = {"verify": "crc", "raw": "true", "splitBytes": (1024, 1 << 20)[seed % 2], "batchRows": 5}
    assert read(uri, corrupt="skip", **options) == wanted
    rows = read(uri, corrupt="report", **options)
    assert sorted(sound(rows), key=lambda row: row["physicalOffset"]) == wanted
    assert bytes_in(reported(rows)) == bytes_of(victims)
    with pytest.raises(RecordCorruptedError, match=f"s3://{remote}/commitlog/") as raised:
        read(uri, corrupt="fail", **options)
    assert raised.value.metadata["commitLogOffset"] in {str(offset_of(victim)) for victim in victims}


def test_a_truncated_object_is_a_gap_or_names_where_it_ends(
    object_store: ObjectStore, remote: str, tmp_path: Path
) -> None:
    frames = write_files(tmp_path)
    path = log_file(tmp_path, 1)
    path.write_bytes(path.read_bytes()[: FILE_BYTES // 2])
    uri = object_store.upload(tmp_path, remote)
    with pytest.raises(StoreCorruptedError, match=f"s3://{remote}.*ends at commit-log offset {FILE_BYTES * 3 // 2}"):
        read(uri)
    rows = read(uri, corrupt="skip", raw="true")
    cut = range(FILE_BYTES * 3 // 2, 2 * FILE_BYTES)
    assert rows == [row_of(f) for f in frames if offset_of(f) + len(f) not in cut and offset_of(f) not in cut]


def test_an_object_that_became_shorter_after_the_plan_is_named(
    object_store: ObjectStore, remote: str, tmp_path: Path
) -> None:
    write_files(tmp_path)
    reader = make_reader(object_store.upload(tmp_path, remote))
    planned = reader.partitions()
    path = log_file(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:1000])
    object_store.upload(tmp_path, remote)
    with pytest.raises(RecordCorruptedError, match=f"s3://{remote}/commitlog/{path.name}"):
        list(reader.read(planned[0]))


def test_a_frame_inside_a_body_is_no_place_to_cut(object_store: ObjectStore, remote: str, tmp_path: Path) -> None:
    """Its size, magic, place and CRC are all right; but no record follows it."""
    frames: list[bytes] = []
    offset = 0
    while offset < 60_000:
        (inner,) = frames_of([message("forged", body=b"evil")], base=offset + BODY_AT)
        frames += frames_of([message(body=inner)], base=offset)
        offset += len(frames[-1])
    root = write_log(tmp_path, frames, file_bytes=offset)
    write_log(tmp_path / "next", frames_of([message()], base=offset), file_bytes=offset, base=offset)
    (tmp_path / f"next/commitlog/{offset:020d}").rename(root / f"commitlog/{offset:020d}")
    uri = object_store.upload(root / "commitlog", f"{remote}/commitlog")
    rows = read(uri.replace(f"{remote}/commitlog", remote), splitBytes=1024, raw="true", verify="crc")
    assert [row["raw"] for row in rows][: len(frames)] == frames


def test_a_cut_that_is_no_record_s_begin_ends_the_task_and_not_in_wrong_rows(
    object_store: ObjectStore, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a producer could make it who foresees an offset: a record in a record, both with the same end."""
    write_files(tmp_path)
    uri = object_store.upload(tmp_path, remote)
    begin = rows_of_store(tmp_path)[3]["physicalOffset"]
    monkeypatch.setattr(boundaries, "find_record_at", lambda file, offset: begin + 1 if offset <= begin + 1 else None)
    for corrupt in ("fail", "skip", "report"):
        with pytest.raises(SplitBoundaryError, match="splitBytes"):
            read(uri, splitBytes=1024, corrupt=corrupt)


def test_an_object_that_goes_between_plan_and_read(object_store: ObjectStore, remote: str, tmp_path: Path) -> None:
    frames = write_files(tmp_path)
    uri = object_store.upload(tmp_path, remote)
    planned = {fail: make_reader(uri, failOnDataLoss=fail) for fail in ("true", "false")}
    splits = {fail: reader.partitions() for fail, reader in planned.items()}
    object_store.fs.delete_file(f"{remote}/commitlog/{log_file(tmp_path).name}")
    with pytest.raises(LogFileGoneError, match=f"s3://{remote}.*does not exist any more.*failOnDataLoss=false"):
        list(planned["true"].read(splits["true"][0]))
    rows = [row for split in splits["false"] for batch in planned["false"].read(split) for row in batch.to_pylist()]
    assert [row["physicalOffset"] for row in rows] == [offset_of(f) for f in frames if offset_of(f) >= FILE_BYTES]


def test_an_object_that_goes_while_it_is_read_is_no_end_of_its_rows(
    object_store: ObjectStore, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike an open file, an object that is removed cannot be read to its end."""
    monkeypatch.setattr(object_files, "RANGE_BYTES", 1 << 12)
    monkeypatch.setattr("pipeline.scan.scan.READ_BYTES", 1 << 12)
    frames = write_files(tmp_path, file_count=2, file_bytes=1 << 18)
    uri = object_store.upload(tmp_path, remote)
    reader = make_reader(uri, batchRows=1)
    batches = reader.read(reader.partitions()[0])
    first = next(batches).to_pylist()
    object_store.fs.delete_file(f"{remote}/commitlog/{log_file(tmp_path).name}")
    rows = list(first)
    with pytest.raises(LogFileGoneError, match="does not exist any more"):
        for batch in batches:
            rows += batch.to_pylist()
    assert [row["physicalOffset"] for row in rows] == [offset_of(frame) for frame in frames[: len(rows)]]
    assert len(rows) < len(frames)


def test_what_is_no_store_and_no_bucket_is_said(object_store: ObjectStore, remote: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    object_store.upload(tmp_path / "commitlog", f"{remote}/log")
    with pytest.raises(UnsupportedStoreError, match=f"s3://{remote} has no commitlog/"):
        read(object_store.uri(remote))
    with pytest.raises(UnsupportedStoreError, match="is not a directory"):
        read(object_store.uri("logs/nothing-here"))
    with pytest.raises(InvalidArgumentError, match="bucket 'nobodys' does not exist"):
        read(object_store.uri("nobodys/store"))


def test_missing_rights_are_told_as_such(object_store: ObjectStore, remote: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    uri = object_store.upload(tmp_path, remote)
    reader = make_reader(uri)
    planned = reader.partitions()
    object_store.tell("deny", remote)
    try:
        with pytest.raises(PermissionDeniedError, match="AWS_ACCESS_KEY_ID"):
            list(reader.read(planned[0]))
    finally:
        object_store.tell("release")
    object_store.tell("deny", "/logs")
    try:
        with pytest.raises(PermissionDeniedError, match="AWS_ACCESS_KEY_ID"):
            reader.partitions()
    finally:
        object_store.tell("release")


def test_memory_does_not_grow_with_the_log(object_store: ObjectStore, remote: str, tmp_path: Path) -> None:
    """A file of 16 MiB, read 256 KiB at a time: what Python holds beside Arrow stays far below the file."""
    chance = random.Random(1)
    frames: list[bytes] = []
    offset = 0
    while offset < 16 << 20:
        frames += frames_of([message(body=chance.randbytes(150_000))], base=offset)
        offset += len(frames[-1])
    uri = object_store.upload(write_log(tmp_path, frames, file_bytes=offset), remote)
    count = len(frames)
    frames.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(object_files, "RANGE_BYTES", 1 << 18)
        patched.setattr("pipeline.scan.scan.READ_BYTES", 1 << 18)
        reader = make_reader(uri, columns="physicalOffset")
        planned = reader.partitions()
        tracemalloc.start()
        try:
            read_count = sum(batch.num_rows for split in planned for batch in reader.read(split))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert read_count == count
    assert peak < 8 << 20, peak


def test_spark_reads_a_bucket_with_pushdown(
    spark: SparkSession, object_store: ObjectStore, remote: str, broker_store: Path
) -> None:
    uri = object_store.upload(broker_store, remote)
    rows = spark.read.format("commitlog").option("splitBytes", "64k").option("pushdown", "true").load(uri)
    wanted = rows_of_store(broker_store)
    assert sorted(row.physicalOffset for row in rows.where("queueId = 0").collect()) == [
        row["physicalOffset"] for row in wanted if row["queueId"] == 0
    ]


def test_a_last_file_that_is_full_is_not_read_to_plan(
    object_store: ObjectStore, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = write_files(tmp_path, file_count=3)
    for number in (2, 3):
        log_file(tmp_path, number).unlink()
    uri = object_store.upload(tmp_path, remote)
    monkeypatch.setattr("pipeline.scan.splits.walk_file", None)
    rows = read(uri, splitBytes=2000, raw="true")
    assert [row["raw"] for row in rows] == [frame for frame in frames if offset_of(frame) < 2 * FILE_BYTES]


def test_neighbouring_small_reads_share_a_request_and_give_the_objects_bytes(
    object_store: ObjectStore, remote: str, tmp_path: Path
) -> None:
    """A check of an archive made three requests for each record."""
    data = random.Random(5).randbytes(5 * 65_536 + 777)
    (tmp_path / "index").write_bytes(data)
    fs, root = object_files.open_root(object_store.upload(tmp_path, remote))
    handle = fs.open(root / "index", os.O_RDONLY)
    object_store.request_count()
    for at in range(0, len(data), 499):  # some lie over the end of a piece
        assert fs.pread(handle, 500, at) == data[at : at + 500]
    fs.close(handle)
    assert object_store.request_count() == 6
