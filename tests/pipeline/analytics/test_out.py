"""Where analytics writes to a directory: killed runs and runs at the same time; without Java."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.analytics.out import LOCK_NAME, MANIFEST_NAME, DirectoryOut, publish
from store.errors import StoreLockedError

NAMES = ("topics", "queues")


def write_tables(out: DirectoryOut, number: int) -> None:
    for name in NAMES:
        out.write_table(name, pa.table({"n": [number]}))
        publish(out.parts(name), out.folder, name)


def run(root: Path, number: int) -> None:
    with DirectoryOut(root, number) as out:
        write_tables(out, number)
        out.complete()


def killed_run(root: Path, number: int, *, after_rename_count: int | None = None) -> None:
    """A run that ends without a clean-up; with a count, in the middle of delivering its files."""
    out = DirectoryOut(root, number)
    out.__enter__()
    write_tables(out, number)
    if after_rename_count is not None:
        for file in sorted(out.folder.iterdir())[:after_rename_count]:
            file.rename(root / file.name)
    out._lock.release()  # as the kernel does


def numbers(root: Path) -> list[str]:
    return [(root / f"{name}.csv").read_text().split()[1] for name in NAMES]


def test_a_killed_run_into_a_directory_left_mixed_tables_that_looked_complete(tmp_path: Path) -> None:
    run(tmp_path, 1)
    manifest = json.loads((tmp_path / MANIFEST_NAME).read_bytes())
    assert {file["path"]: file["size_bytes"] for file in manifest["files"]} == {
        f"{name}.{kind}": (tmp_path / f"{name}.{kind}").stat().st_size for name in NAMES for kind in ("csv", "parquet")
    }

    killed_run(tmp_path, 2)
    assert numbers(tmp_path) == ["1", "1"]
    assert not (tmp_path / MANIFEST_NAME).exists()

    run(tmp_path, 3)
    killed_run(tmp_path, 4, after_rename_count=1)
    assert not (tmp_path / MANIFEST_NAME).exists()

    run(tmp_path, 5)
    assert numbers(tmp_path) == ["5", "5"]
    assert (tmp_path / MANIFEST_NAME).exists()


def test_what_killed_runs_left_stayed_for_ever(tmp_path: Path) -> None:
    killed_run(tmp_path, 1)
    killed_run(tmp_path, 2)
    (tmp_path / ".analytics-notes").write_text("not a run's")

    run(tmp_path, 3)

    tables = {f"{name}.{kind}" for name in NAMES for kind in ("csv", "parquet")}
    assert {path.name for path in tmp_path.iterdir()} == {*tables, MANIFEST_NAME, LOCK_NAME, ".analytics-notes"}


def test_two_runs_to_a_directory_at_once_mixed_their_tables(tmp_path: Path) -> None:
    with DirectoryOut(tmp_path, 1) as first:
        write_tables(first, 1)
        second = DirectoryOut(tmp_path, 2)
        with pytest.raises(StoreLockedError, match=r"another analytics run to .* wait for its end, or name another"):
            second.__enter__()
        first.complete()
    assert numbers(tmp_path) == ["1", "1"]
    assert (tmp_path / MANIFEST_NAME).exists()
    run(tmp_path, 3)
    assert numbers(tmp_path) == ["3", "3"]


def test_a_run_that_fails_leaves_the_tables_of_the_run_before_and_no_lock(tmp_path: Path) -> None:
    run(tmp_path, 1)
    with pytest.raises(OSError, match="full"), DirectoryOut(tmp_path, 2) as out:
        write_tables(out, 2)
        raise OSError("full")
    assert numbers(tmp_path) == ["1", "1"]
    assert not list(tmp_path.glob(".analytics-*"))
    run(tmp_path, 3)
