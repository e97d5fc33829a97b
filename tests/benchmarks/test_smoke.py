"""The rows run at tiny size and the results are written; no figure is judged."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import pytest

from benchmarks import report
from benchmarks.figures import ECHO, OURS, THEIRS
from benchmarks.row import RowId
from benchmarks.rows import registry
from benchmarks.rows.compiled_append import metrics_of
from benchmarks.sides import rocketmq_side
from benchmarks.sizes import TINY
from tests.clients import documented
from tests.pipeline.spark_home import spark_environment
from tests.rocketmq import real_broker

ROOT = pathlib.Path(__file__).parents[2]
REASON = rocketmq_side.why_unavailable()
MIRRORED = 25  # its own side is a broker, too
GO_METRICS = {metric.name for metric in metrics_of("go", factor=1)}


def _run(tmp_path: pathlib.Path, *arguments: str) -> report.Results:
    where = ("--stores", str(tmp_path / "stores"), "--results", str(tmp_path / "results"))
    command = [sys.executable, "-m", "benchmarks", "--size", "tiny", "--rounds", "1", *where, *arguments]
    # Java for a second or two: without the second compiler, which takes half of it.
    environ = {**os.environ, "JAVA_TOOL_OPTIONS": " ".join(real_broker.SHORT_LIFE), **spark_environment()}
    started = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr[-5000:]
    assert (tmp_path / "results" / "RESULTS.md").read_text().count("\n| ") >= 2
    # All processes are looked at: a forked stack has another parent.
    running = (int(name) for name in os.listdir("/proc") if name.isdigit())
    assert not [pid for pid in running if pid != os.getpid() and str(tmp_path) in _command_line(pid)]
    return report.load(tmp_path / "results")


def _command_line(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


# Rows of the pipeline and of compiled clients start Java processes of their own: one for a change, all for a release.
OUR_ROWS = tuple(number for number in registry.NUMBERS if number != MIRRORED)
ROWS_OF_A_CHANGE = (*(number for number in OUR_ROWS if isinstance(number, int)), "E", "C", "R", "T1")


@pytest.mark.bench
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "numbers", [ROWS_OF_A_CHANGE, pytest.param(OUR_ROWS, marks=pytest.mark.release)], ids=["change", "all"]
)
def test_rows_run_on_our_side(tmp_path: pathlib.Path, numbers: Sequence[RowId]) -> None:
    # A start of all processes takes as long as some rows: those about processes (10, 11, R) have them in any case.
    single = ("--single-process",) if numbers == ROWS_OF_A_CHANGE else ()
    results = _run(tmp_path, "--sides", "ours,echo", "--rows", ",".join(map(str, numbers)), *single)
    assert list(results.rows) == list(numbers)
    for number, result in results.rows.items():
        wanted = {metric.name for metric in registry.make(number, TINY).metrics if OURS in metric.sides}
        measured = {name for name, sides in result.rounds.items() if OURS in sides}
        optional = {"p99 over gRPC"}  # ghz says it, and where it is missing threads of Python call instead
        optional |= GO_METRICS if documented.why_unavailable("go") else set()
        assert measured | optional >= wanted, f"row {number}"
    assert (tmp_path / "results" / "growth_append_rate.svg").exists()


@pytest.mark.bench
@pytest.mark.release
@pytest.mark.rocketmq
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(1200)
def test_batched_appends_run_on_rocketmqs_side(tmp_path: pathlib.Path) -> None:
    results = _run(tmp_path, "--sides", "rocketmq", "--rows", "1,1c,2,2c")
    assert results.rows[1].rounds["through the gateway"][THEIRS][0] > 0
    assert results.rows[2].rounds["through the gateway"][THEIRS][0] > 0
    assert results.rows["1c"].rounds["Java client"][THEIRS] == results.rows["1c"].rounds["Go client"][THEIRS]
    assert results.rows["2c"].rounds["Java client"][THEIRS][0] > 0


@pytest.mark.bench
@pytest.mark.release
@pytest.mark.rocketmq
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(1200)
def test_java_clients_send_and_query_on_rocketmqs_side(tmp_path: pathlib.Path) -> None:
    results = _run(tmp_path, "--sides", "ours,rocketmq,echo", "--rows", "3c,6c,6k")
    for row in ("3c", "6c", "6k"):
        assert not results.rows[row].skipped
        for values in results.rows[row].rounds.values():
            assert values[OURS][0] > 0
            assert values[THEIRS][0] > 0
            assert row == "3c" or values[ECHO], "how many were answered in half a second is no matter"


@pytest.mark.bench
@pytest.mark.release
@pytest.mark.rocketmq
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(1200)
def test_rocketmq_rebuilds_the_same_files(tmp_path: pathlib.Path) -> None:
    results = _run(tmp_path, "--sides", "ours,rocketmq", "--rows", "8")
    assert any("equal, byte for byte" in note for note in results.rows[8].notes), results.rows[8].notes


@pytest.mark.bench
@pytest.mark.release
@pytest.mark.rocketmq
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(1200)
def test_spark_rebuilds_rocketmqs_files_and_both_fill_an_index(tmp_path: pathlib.Path) -> None:
    results = _run(tmp_path, "--sides", "ours,rocketmq", "--rows", "T5,T6")
    assert any("equal, byte for byte" in note for note in results.rows["T5"].notes), results.rows["T5"].notes
    assert results.rows["T6"].rounds["keys into one index file"].keys() == {OURS, THEIRS}


@pytest.mark.bench
@pytest.mark.release
@pytest.mark.rocketmq
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(1200)
def test_timers_and_transactions_run_on_rocketmqs_side(tmp_path: pathlib.Path) -> None:
    results = _run(tmp_path, "--sides", "rocketmq", "--rows", "19,20")
    assert results.rows[19].rounds["max"][THEIRS][0] >= results.rows[19].rounds["p50"][THEIRS][0]
    assert results.rows[20].rounds["committed"][THEIRS][0] > 0


@pytest.mark.bench
@pytest.mark.release
@pytest.mark.rocketmq
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(1200)
def test_light_queues_grow_on_rocketmqs_side_in_files_and_in_rocksdb(tmp_path: pathlib.Path) -> None:
    result = _run(tmp_path, "--sides", "rocketmq", "--rows", "L").rows["L"]
    wanted = {metric.name for metric in registry.make("L", TINY).metrics if THEIRS in metric.sides}
    assert {name for name, sides in result.rounds.items() if sides.get(THEIRS)} == wanted, result.notes


@pytest.mark.bench
@pytest.mark.release
@pytest.mark.rocketmq
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.timeout(1200)
def test_a_broker_fails_over_and_is_mirrored(tmp_path: pathlib.Path) -> None:
    results = _run(tmp_path, "--sides", "ours,rocketmq", "--rows", f"24,{MIRRORED}")
    assert 0 < results.rows[24].rounds["p50"][THEIRS][0] < 120
    for sides in results.rows[MIRRORED].rounds.values():
        assert set(sides) == {OURS, THEIRS}
