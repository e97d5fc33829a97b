"""One contract for reading files through the disk port, over all that implement it: the disk, S3, and pyarrow's own disk.

The S3 is moto's, in a process of its own. Expected bytes are those that were written with plain Python.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline import object_files
from pipeline.object_files import ObjectFileSystem, open_root
from store.files.file_system import FileSystem
from tests.support.object_store import CREDENTIALS, ObjectStore, running_object_store

RANGE_BYTES = 1000
SIZES = {"commitlog/small": 10, "commitlog/large": 25_500, "consumequeue/a/0/zeros": 3000, "empty": 0}


@pytest.fixture(scope="module")
def object_store() -> Iterator[ObjectStore]:
    with pytest.MonkeyPatch.context() as environment, running_object_store() as store:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        store.fs.create_dir("read")
        yield store


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore) -> Path:
    """The files on the disk; the same are in the bucket."""
    root = tmp_path_factory.mktemp("read") / "store"
    chance = random.Random(21)
    for name, size_bytes in SIZES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(chance.randbytes(size_bytes))
        with object_store.fs.open_output_stream(f"read/deep/store/{name}") as stream:
            stream.write((root / name).read_bytes())
    return root


@pytest.fixture(params=["disk", "s3", "pyarrow's disk"])
def port(
    request: pytest.FixtureRequest, written: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> tuple[FileSystem, Path]:
    monkeypatch.setattr(object_files, "RANGE_BYTES", RANGE_BYTES)
    if request.param == "disk":
        return open_root(written)
    if request.param == "s3":
        return open_root(object_store.uri("read/deep/store/"))
    fs = ObjectFileSystem(written.as_uri())
    return fs, fs.root


def test_names_kinds_and_sizes_are_those_that_were_written(port: tuple[FileSystem, Path]) -> None:
    fs, root = port
    assert fs.listdir(root) == ["commitlog", "consumequeue", "empty"]
    assert fs.listdir(root / "commitlog") == ["large", "small"]
    assert fs.listdir(str(root / "nothing")) == []
    for name, size_bytes in SIZES.items():
        assert fs.stat_size(root / name) == fs.stamp(root / name).size_bytes == size_bytes
        assert (fs.exists(root / name), fs.is_file(root / name), fs.is_dir(root / name)) == (True, True, False)
    for name in ("", "commitlog", "consumequeue/a"):
        assert (fs.exists(root / name), fs.is_file(root / name), fs.is_dir(root / name)) == (True, False, True)
    for name in ("nothing", "commitlog/nothing"):
        assert (fs.exists(root / name), fs.is_file(root / name), fs.is_dir(root / name)) == (False, False, False)
        with pytest.raises(FileNotFoundError):
            fs.stat_size(root / name)
        with pytest.raises(FileNotFoundError):
            fs.open(root / name, os.O_RDONLY)


@pytest.mark.parametrize("announced", [None, (0, 25_500), (0, 1 << 30), (999, 20_001), (24_999, 25_000), (7, 7)])
def test_any_order_of_reads_yields_the_bytes_that_were_written(
    port: tuple[FileSystem, Path], written: Path, announced: tuple[int, int] | None
) -> None:
    fs, root = port
    data = (written / "commitlog/large").read_bytes()
    chance = random.Random(22)
    handle = fs.open(root / "commitlog/large", os.O_RDONLY)
    try:
        if announced is not None:
            fs.will_read(handle, *announced)
        at = 0
        for _ in range(60):
            at = chance.choice((at, max(at - 300, 0), at + 500, chance.randrange(27_000)))
            size_bytes = chance.choice((0, 1, 100, 999, 1000, 1001, 12_000))
            assert fs.pread(handle, size_bytes, at) == data[at : at + size_bytes]
            buffer = bytearray(size_bytes)
            assert fs.pread_into(handle, memoryview(buffer), at) == len(data[at : at + size_bytes])
            assert bytes(buffer) == data[at : at + size_bytes].ljust(size_bytes, b"\0")
            at += size_bytes
        assert fs.next_data(handle, 0) == 0
        assert fs.next_data(handle, len(data)) is None
        assert fs.next_hole(handle, 0) == len(data)
        assert fs.is_at(handle, root / "commitlog/large")
    finally:
        fs.close(handle)


def test_two_handles_read_ahead_on_their_own(port: tuple[FileSystem, Path], written: Path) -> None:
    fs, root = port
    data = (written / "commitlog/large").read_bytes()
    handles = [fs.open(root / "commitlog/large", os.O_RDONLY) for _ in range(2)]
    for number, handle in enumerate(handles):
        fs.will_read(handle, number * 7000, len(data))
    for step in range(0, 10_000, 900):
        for number, handle in enumerate(handles):
            at = number * 7000 + step
            assert fs.pread(handle, 900, at) == data[at : at + 900]
    for handle in handles:
        fs.close(handle)


def test_a_store_behind_a_uri_refuses_every_change(object_store: ObjectStore, written: Path) -> None:
    fs, root = open_root(object_store.uri("read/deep/store"))
    before = object_store.sizes("read")
    changes: list[Any] = [
        lambda: fs.open(root / "commitlog/small", os.O_RDWR),
        lambda: fs.open(root / "new", os.O_WRONLY | os.O_CREAT),
        lambda: fs.mkdirs(root / "new"),
        lambda: fs.unlink(root / "empty"),
        lambda: fs.rename(root / "empty", root / "full"),
        lambda: fs.fsync_dir(root),
        lambda: fs.pwrite(0, b"x", 0),
        lambda: fs.pwritev(0, [b"x"], 0),
        lambda: fs.ftruncate(0, 0),
        lambda: fs.fallocate(0, 0, 1),
        lambda: fs.fdatasync(0),
    ]
    for change in changes:
        with pytest.raises(OSError, match="only read"):
            change()
    assert object_store.sizes("read") == before


def test_a_read_in_order_is_one_request_for_each_range(
    object_store: ObjectStore, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_files, "RANGE_BYTES", RANGE_BYTES)
    fs, root = open_root(object_store.uri("read/deep/store"))
    handle = fs.open(root / "commitlog/large", os.O_RDONLY)
    object_store.request_count()
    fs.will_read(handle, 500, 20_500)
    for at in range(500, 20_500, 125):
        fs.pread(handle, 125, at)
    fs.close(handle)
    assert object_store.request_count() == 20


def test_no_more_is_held_than_the_named_limits(
    object_store: ObjectStore, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_files, "RANGE_BYTES", RANGE_BYTES)
    fs, root = open_root(object_store.uri("read/deep/store"))
    handle = fs.open(root / "commitlog/large", os.O_RDONLY)
    opened = fs._open[handle]  # type: ignore[attr-defined]
    fs.will_read(handle, 0, 25_500)
    held = []
    for at in range(0, 25_500, 300):
        fs.pread(handle, 300, at)
        held.append(len(opened._ranges))
    assert max(held) == object_files.READ_AHEAD_COUNT + object_files.KEPT_COUNT
    fs.close(handle)
    assert not opened._ranges
