"""Fuzzing of every decoder: any bytes give an answer or a declared error, in memory bounded by the input.

Here the inputs are seeded mutations of good ones; for each change coverage-guided runs (atheris) come on top. A finding
stays in `tests/torture/corpus/<target>/` and is run here for ever.
"""

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
from tests.torture.fuzz.targets import TARGETS, mutate
from tests.torture.seeds import pick_seed

MEMORY_FACTOR_MAX = 10
# Python's own price of a call, its error and its objects, whatever the input's size.
MEMORY_FLOOR_BYTES = 256 << 10
# A release takes as long as its counts need; a change gets this much for each target, so that all of them fit its minutes:
# thousands of runs of the slowest target, hundreds of thousands of the fastest on two busy cores.
CHANGE_SECONDS = 2


@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_only_raise_declared_errors(name: str) -> None:
    random_ = random.Random(pick_seed(f"fuzz {name}"))
    target = TARGETS[name]
    corpus = target.corpus(name)
    for data in corpus:
        target.run(data)
    for number in range(amount(sample=1500, change=4000, full=200_000)):
        data = mutate(random_.choice(corpus), corpus, target.tokens, random_)
        try:
            target.run(data)
        except BaseException:
            print(f"{name}: input {number} of {len(data)} bytes: {data[:2000].hex()}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_takes_ten_times_its_size_in_memory(name: str) -> None:
    """Lengths that a frame claims are never believed before they are compared with what is there."""
    random_ = random.Random(pick_seed(f"fuzz memory {name}"))
    target = TARGETS[name]
    corpus = target.corpus(name)
    for data in corpus:
        target.run(data)  # what is imported and cached once is not this input's
    tracemalloc.start()
    try:
        for _ in range(amount(sample=60, change=300, full=10_000)):
            data = mutate(random_.choice(corpus), corpus, target.tokens, random_)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            target.run(data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= MEMORY_FACTOR_MAX * len(data) + MEMORY_FLOOR_BYTES, data[:2000].hex()
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", TARGETS if level() != "sample" else ["record"])
def test_coverage_guided_runs_find_nothing(name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A change gets a time for each target, a release 1,000,000 runs of each and more with TORTURE_COUNT."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    seed = pick_seed(f"atheris {name}")
    runs = amount(sample=5000, change=1_000_000, full=1_000_000)
    command = [sys.executable, "-m", "tests.torture.fuzz", name, f"-runs={runs}", f"-seed={seed % (1 << 31) or 1}"]
    command += ["-max_len=8192", "-print_final_stats=1", f"-artifact_prefix={tmp_path}/"]
    if level() == "change":
        command.append(f"-max_total_time={CHANGE_SECONDS}")
    seeds = tmp_path_factory.mktemp("seeds")
    began = time.monotonic()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # libFuzzer ends the process at once, and its seeds stay.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(seeds)},
        text=True,
        errors="replace",
    )
    executed = [line for line in done.stdout.splitlines() if "number_of_executed_units" in line]
    print(f"{name}: {' '.join(executed)} in {time.monotonic() - began:.0f} s")
    found = [path.read_bytes()[:2000].hex() for path in tmp_path.iterdir()]
    assert done.returncode == 0, f"{found}\n{done.stdout[-4000:]}"
