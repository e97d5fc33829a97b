"""What is kept for the judge of a soak, and how it finds logs and backups that differ."""

import shutil
from pathlib import Path

import pytest

from tests.cli.backup.made import log_bytes, log_end, prefix, stopped_store
from tests.soak.keeping import Keeper, disk_bytes

REPLICAS = ("r1", "r2")


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    return {name: stopped_store(tmp_path / name) for name in REPLICAS}


@pytest.fixture
def keeper(tmp_path: Path, stores: dict[str, Path]) -> Keeper:
    keeper = Keeper(tmp_path, stores, seconds_between=60.0)
    keeper.keep_files()
    return keeper


def first_file(root: Path) -> Path:
    return min((root / "commitlog").iterdir())


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)  # the same file, under both of its names


def test_what_retention_removes_is_kept_for_the_judge(keeper: Keeper, stores: dict[str, Path]) -> None:
    end = log_end(stores["r2"])
    expected = prefix(stores["r2"], end)
    for store in stores.values():
        first_file(store).unlink()
    assert log_bytes(keeper.whole_log(end)) == expected
    assert keeper.problems == []


def test_a_log_that_was_cut_goes_on_in_the_file_that_has_its_place(keeper: Keeper, stores: dict[str, Path]) -> None:
    path = first_file(stores["r1"])
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[:-1] + b"\1")
    keeper.whole_log(log_end(stores["r1"]))
    assert len(keeper.problems) == 1, "it differs from that of the other replica"


def test_replicas_whose_files_differ_are_a_problem(keeper: Keeper, stores: dict[str, Path]) -> None:
    flip_a_byte(first_file(stores["r1"]))
    keeper.whole_log(log_end(stores["r1"]))
    assert [str(first_file(stores["r1"]).name) in problem for problem in keeper.problems] == [True]


@pytest.mark.parametrize("is_flipped", [False, True])
def test_a_backup_that_differs_from_the_log_is_a_problem(
    keeper: Keeper, stores: dict[str, Path], *, is_flipped: bool
) -> None:
    end = log_end(stores["r1"])
    assert keeper.back_up("r1") == end
    whole = keeper.whole_log(end)
    if is_flipped:
        flip_a_byte(first_file(whole))
    assert len(keeper.restore_problems(whole)) == is_flipped
    assert keeper.problems == []


def test_a_replica_that_is_behind_the_last_backup_is_backed_up_later(keeper: Keeper, stores: dict[str, Path]) -> None:
    assert keeper.back_up("r1") is not None
    shutil.rmtree(stores["r2"])
    stopped_store(stores["r2"], 40)  # of the same messages, and fewer
    assert keeper.back_up("r2") is None
    assert (keeper.later_count, keeper.problems) == (1, [])


def test_a_file_with_two_names_counts_once_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 8192)
    before = disk_bytes(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert disk_bytes(tmp_path) == before >= 8192
