"""docs/embedded.md: its programs are run as they stand there, in an empty directory, one after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import reput_embedded  # noqa: F401  # numpy is loaded once in a process, and pytester forgets what it has loaded
from tests.support.waiting import WAIT_SECONDS_MAX

ROOT = Path(__file__).resolve().parents[2]

PAGE = (ROOT / "docs/embedded.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROGRAMS = [block for block in BLOCKS if "reput_embedded.open(" in block]
# What each prints at its end; ids differ from run to run.
LAST_LINES = ["[b'hello']", "1000", "b'soon'", "1101", "1", "0"]


def test_the_programs_of_the_page_print_what_they_say(tmp_path: Path) -> None:
    printed = []
    for program in PROGRAMS:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}"},
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), program
        printed.append(done.stdout.splitlines()[-1])
    assert printed == LAST_LINES


def test_the_fixtures_of_the_page_pass_its_tests(pytester: pytest.Pytester) -> None:
    (conftest,) = (block for block in BLOCKS if "pytest_plugins" in block)
    (tests,) = (block for block in BLOCKS if "def test_" in block)
    pytester.makeconftest(conftest)
    pytester.makepyfile(tests)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_every_program_of_the_page_is_run_by_one_of_these_tests() -> None:
    assert len(PROGRAMS) + 2 == len(BLOCKS)
