"""Tests in forks of the process that collected them: a project of its own, in a pytest of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

NOTE = """
import atexit, os, pytest, signal, sys, time, warnings

def note(what):
    with open("notes", "a") as notes:
        notes.write(f"{os.environ.get('TEST_WORKER', 'main')} {what}\\n")

note("imported " + __file__.rpartition("/")[2])
"""
OPTIONS = ("-p", "tests.support.workers", "--workers", "2")


def written(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """Test files, each with `note`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.delenv("TEST_WORKER", raising=False)
    for name, text in files.items():
        (pytester.path / f"test_{name}.py").write_text(NOTE + text)
    (pytester.path / "pytest.ini").write_text("[pytest]\ntmp_path_retention_policy = failed\n")


def notes(pytester: pytest.Pytester) -> list[tuple[str, str]]:
    """Who noted what, in its order."""
    lines = (pytester.path / "notes").read_text().splitlines()
    return [(who, what) for who, _, what in (line.partition(" ") for line in lines)]


def test_each_file_is_collected_once_and_stays_in_one_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file ends when the other has begun, so that no process gets both.
    text = """
@pytest.mark.parametrize("number", range(3))
def test_a_number_is_noted(number, tmp_path):
    note(f"NAME {number} {tmp_path}")
    while number == 2 and len({line.split()[0] for line in open("notes")} - {"main"}) < 2:
        time.sleep(0.01)

atexit.register(lambda: note("ends"))
"""
    written(pytester, monkeypatch, a=text.replace("NAME", "a"), b=text.replace("NAME", "b"))

    pytester.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=6)

    noted = notes(pytester)
    assert [what for who, what in noted if who == "main" and what.startswith("imported")] == [
        "imported test_a.py",
        "imported test_b.py",
    ]
    assert sorted(who for who, what in noted if what == "ends") == ["main", "main", "w0", "w0", "w1", "w1"]
    ran = [(who, *what.split()) for who, what in noted if what[:2] in ("a ", "b ")]
    for name in "ab":
        mine = [entry for entry in ran if entry[1] == name]
        assert [entry[2] for entry in mine] == ["0", "1", "2"]
        (who,) = {entry[0] for entry in mine}
        assert {Path(entry[3]).parent.name for entry in mine} == {who}
        assert not Path(mine[0][3]).exists(), "nothing is kept of a test that passed"
    assert len({entry[0] for entry in ran}) == 2


KINDS = """
@pytest.fixture
def broken():
    print("said by a fixture")
    raise OSError("the fixture broke")

def test_this_passes():
    warnings.warn("said by a warning", DeprecationWarning)

def test_this_fails():
    print("said by a test")
    assert [1, 2] == [1, 3]

def test_this_has_no_fixture(broken): ...

@pytest.mark.xfail
def test_this_fails_as_expected(): assert False

@pytest.mark.skip(reason="said by a skip")
def test_this_is_skipped(): ...
"""


def test_a_run_says_what_it_says_in_one_process(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    written(pytester, monkeypatch, a=KINDS, b="def test_another_passes(): ...\n")

    def told(*options: str) -> tuple[int, list[str]]:
        run = pytester.runpytest_subprocess("-rA", "--durations=1", *options)
        kept = [
            line for line in run.outlines if re.search(r"said by|broke$|^E |^(PASSED|FAILED|ERROR|SKIPPED|XFAIL)", line)
        ]
        outcomes = {"passed": 2, "failed": 1, "errors": 1, "xfailed": 1, "skipped": 1, "warnings": 1}
        assert run.parseoutcomes() == outcomes
        assert any("slowest" in line for line in run.outlines)
        return run.ret, sorted(kept)  # reports come by turns

    code, alone = told()
    assert told(*OPTIONS) == (code, alone)
    assert sum("said by" in line for line in alone) >= 4
    again = pytester.runpytest_subprocess(*OPTIONS, "--last-failed")
    again.assert_outcomes(failed=1, errors=1)


@pytest.mark.parametrize("death", ["os._exit(7)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_dies_is_named_and_another_one_goes_on(
    death: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A child of the dead process holds what that had open.
    text = f"""
def test_before(): note("before")

def test_this_dies():
    if not os.fork():
        time.sleep(5)
        os._exit(0)
    {death}

def test_after(): note("after")
"""
    written(pytester, monkeypatch, a=text, b="def test_another(): note('another')\n")

    run = pytester.runpytest_subprocess(*OPTIONS)

    run.assert_outcomes(passed=3, failed=1)
    code = "7" if "_exit" in death else "-9"
    run.stdout.re_match_lines([rf"the process w\d ended with {code} while it ran this test"])
    ran = {what: who for who, what in notes(pytester) if not what.startswith("imported")}
    assert set(ran) == {"before", "after", "another"}
    assert ran["before"] != ran["after"]


def test_no_further_file_begins_after_the_first_failure_where_that_is_asked_for(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "def test_this_is_interrupted():\n    note('begun')\n    time.sleep(600)\n"
    failing = """
def test_this_fails():
    while "begun" not in open("notes").read():
        time.sleep(0.01)
    assert False

def test_later(): note("later")
"""
    written(pytester, monkeypatch, a=slow, b=failing, c="def test_last(): note('last')\n")

    run = pytester.runpytest_subprocess(*OPTIONS, "-x")

    assert run.ret == pytest.ExitCode.TESTS_FAILED
    assert [what for _, what in notes(pytester) if not what.startswith("imported")] == ["begun"]


def test_what_breaks_pytest_itself_in_a_process_ends_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(pytester, monkeypatch, a="def test_one(): ...\n", b="def test_two(): ...\n")
    (pytester.path / "conftest.py").write_text("def pytest_runtest_logstart(): raise OSError('no log begins')\n")

    run = pytester.runpytest_subprocess(*OPTIONS)

    assert run.ret == pytest.ExitCode.INTERNAL_ERROR
    run.stdout.re_match_lines([".*no log begins"])


def test_an_interrupt_ends_all_processes_and_their_fixtures(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
@pytest.fixture
def thing():
    yield
    note("fixture ended")

def test_this_is_interrupted(thing):
    note(f"pid {os.getpid()}")
    time.sleep(600)
"""
    written(pytester, monkeypatch, a=text, b=text)
    command = [sys.executable, "-m", "pytest", *OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as run:
        wait_until(lambda: sum("pid" in what for _, what in notes_so_far(pytester)) == 2, "both tests")
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does
        output, _ = run.communicate(timeout=WAIT_SECONDS_MAX)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, output
    assert sum(what == "fixture ended" for _, what in notes(pytester)) == 2
    for _, what in notes(pytester):
        if what.startswith("pid "):
            assert not Path("/proc", what.split()[1]).exists()


def notes_so_far(pytester: pytest.Pytester) -> list[tuple[str, str]]:
    return notes(pytester) if (pytester.path / "notes").exists() else []


def test_nothing_forks_where_nothing_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    written(pytester, monkeypatch, a="def test_one(): note('ran')\n", b="1 / 0\n")

    assert pytester.runpytest_subprocess(*OPTIONS).ret == pytest.ExitCode.INTERRUPTED
    assert pytester.runpytest_subprocess(*OPTIONS, "--collect-only", "test_a.py").ret == pytest.ExitCode.OK
    assert pytester.runpytest_subprocess(*OPTIONS, "-k", "none", "test_a.py").ret == pytest.ExitCode.NO_TESTS_COLLECTED

    assert {who for who, _ in notes(pytester)} == {"main"}
