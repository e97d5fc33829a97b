"""Fuzzing of everything that reads bytes from outside: any bytes give an answer or a refusal, in memory bounded by the input.

Some inputs are seeded mutations of good ones; others are found by the code that they reach (atheris). A change runs known ones
for seconds, which shows that all of it works; what is new is looked for by a release, for minutes for each target, and by
`make fuzz` for as long as it is told. A find stays in `tests/torture/corpus/<target>/` and is run here for ever.
"""

import contextlib
import importlib.util
import os
import random
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from tests.torture.amount import amount, level
from tests.torture.fuzz.target import mutate
from tests.torture.fuzz.targets import TARGETS
from tests.torture.seeds import pick_seed

MEMORY_FACTOR_MAX = 10
# Python's own price of a call, its error and its objects, whatever the input's size: a kernel's tables take half a MiB, and
# JSON that nests as deep as Python reads it takes 4 MiB when it is printed with its indents.
MEMORY_FLOOR_BYTES = 8 << 20
# A change has about a minute on two cores: mutations for every target, and coverage for a third of them.
MUTATED_SECONDS, COVERED_SECONDS = 0.4, 1
RELEASE_SECONDS = 300
KNOWN_SEED = 22
# As many processes as a machine of CI has processors.
PART_COUNT = 2


def _seed(name: str) -> int:
    return pick_seed(name) if level() == "full" else KNOWN_SEED


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_only_raise_declared_errors(name: str) -> None:
    random_ = random.Random(_seed(f"fuzz {name}"))
    target = TARGETS[name]
    corpus = target.corpus(name)
    for data in corpus:
        target.run(data)
    end = time.monotonic() + (MUTATED_SECONDS if level() != "full" else RELEASE_SECONDS)
    for number in range(amount(sample=300, change=4000, full=200_000)):
        if time.monotonic() > end:
            break
        data = mutate(random_.choice(corpus), corpus, target.tokens, random_)
        try:
            target.run(data)
        except BaseException:
            print(f"{name}: input {number} of {len(data)} bytes: {data[:2000].hex()}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_takes_ten_times_its_size_in_memory(name: str) -> None:
    """Lengths that a frame claims are never believed before they are compared with what is there."""
    random_ = random.Random(_seed(f"fuzz memory {name}"))
    target = TARGETS[name]
    corpus = target.corpus(name)
    for data in corpus:
        target.run(data)  # what is imported and cached once is not this input's
    tracemalloc.start()
    try:
        for _ in range(amount(sample=20, change=60, full=10_000)):
            data = mutate(random_.choice(corpus), corpus, target.tokens, random_)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with contextlib.suppress(*target.refusals):
                target.call(
                    data
                )  # its time is not looked at: deep recursion takes forty times as long when it is traced
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= MEMORY_FACTOR_MAX * len(data) + MEMORY_FLOOR_BYTES, data[:2000].hex()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("part", range(PART_COUNT))
def test_coverage_guided_runs_find_nothing(part: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    seconds = RELEASE_SECONDS if level() == "full" else COVERED_SECONDS
    seed = _seed(f"atheris {part}") % (1 << 31) or 1
    names = list(TARGETS)[part::PART_COUNT]
    if level() != "full":
        names = random.Random(seed).sample(names, len(names) // 3 if level() == "change" else 1)
    options = ["--seconds", str(seconds), "--seed", str(seed), "--finds", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture.fuzz", *names, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path_factory.mktemp("scratch"))},
        text=True,
        errors="replace",
    )
    print(done.stdout)
    found = {path.name: path.read_bytes()[:2000].hex() for path in tmp_path.iterdir()}
    assert done.returncode == 0, found
    assert done.stdout.count(" runs, ") == len(names)


def test_what_is_found_is_kept_and_fails_the_run(tmp_path: Path) -> None:
    """A target that fails on purpose, through the command."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture.fuzz", "self_test", "--seconds", "60", "--finds", str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
        errors="replace",
    )
    (find,) = tmp_path.iterdir()
    assert done.returncode == 1, done.stdout
    assert "self_test" in find.name
    assert find.read_bytes().startswith(b"FU")
    assert "1 of 1 targets found something" in done.stdout
