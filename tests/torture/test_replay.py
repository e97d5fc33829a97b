"""One seed, one run: the same seed makes the same faults and the same life, call for call."""

import random
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.commitlog_svc.support import read_tree
from tests.torture.drivers import SCENARIOS
from tests.torture.lives import Lives, Told
from tests.torture.seeds import pick_seed
from tests.torture.stores import choose, copy_of, make_template

ACTIONS = ("EIO", "ENOSPC", "short", "kill", "cut_some")
OF_THIS_PROCESS = ("abort",)  # holds a process id


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with Lives() as running:
        yield running


@pytest.fixture
def directory(lives: Lives, tmp_path: Path) -> Iterator[Path]:
    with lives.directory(tmp_path) as path:
        yield path


def make_plan(seed: int) -> tuple[str, dict[int, str]]:
    """A scenario and its faults."""
    chance = random.Random(seed)
    scenario = chance.choice(list(SCENARIOS))
    return scenario, {chance.randrange(1, 250): chance.choice(ACTIONS) for _ in range(5)}


def run(lives: Lives, directory: Path, seed: int) -> tuple[dict[int, str], Told, dict[str, bytes]]:
    scenario, faults = make_plan(seed)
    shutil.rmtree(directory, ignore_errors=True)
    make_template(lives, scenario, directory / "template")
    root = copy_of(directory / "template", directory / "store")
    told = lives.live(root, SCENARIOS[scenario], faults=faults, seed=seed, trace=True)
    return faults, told, read_tree(root) if root.exists() else {}


def test_the_same_seed_makes_the_same_faults_the_same_calls_and_the_same_files(lives: Lives, directory: Path) -> None:
    seed = pick_seed("replay")
    for offset in range(5):
        first_faults, first, first_files = run(lives, directory / "run", seed + offset)
        faults, told, files = run(lives, directory / "run", seed + offset)
        about = f"seed {seed + offset}, faults {faults}"

        assert faults == first_faults
        assert told.exit_status == first.exit_status, about
        assert repeatable(told) == repeatable(first), about
        for name in OF_THIS_PROCESS:
            files.pop(name, None)
            first_files.pop(name, None)
        assert files == first_files, about


def test_another_seed_makes_other_faults() -> None:
    seed = pick_seed("other")

    assert len({str(make_plan(seed + offset)) for offset in range(20)}) == 20


def test_torture_seed_is_the_seed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TORTURE_SEED", "4711")

    assert pick_seed("name") == 4711
    assert "TORTURE_SEED=4711" in capsys.readouterr().out


def test_a_choice_of_calls_covers_the_whole_run_evenly() -> None:
    assert choose(5, 9, seed=1) == [1, 2, 3, 4, 5]
    for seed in range(50):
        chosen = choose(100, 10, seed)
        assert len(chosen) == 10
        assert all(right - left == 10 for left, right in pairwise(chosen))


def repeatable(told: Told) -> tuple[list[list[str]], int]:
    """The lines, and how often it was fenced.

    That is told by the flush thread, while the refused append is told by another; and the size of the abort marker hangs
    on the process id.
    """
    lines = [row[:-1] if row[:3] == ["call", "pwrite", "abort"] else row for row in told.lines if row != ["fenced"]]
    return lines, len(told.rows("fenced"))
