"""Only what a room's own tests run counts, whatever else the process runs: a project of its own, in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
[tool.coverage.run]
branch = true
parallel = true
source = ["room/inner"]
omit = ["*_kernel.py"]
[tool.coverage.report]
show_missing = true
[tool.pytest.ini_options]
pythonpath = ["."]
"""
ROOM = """
from functools import lru_cache

@lru_cache
def size_of(text):
    if text:
        return len(text)
    return 0

def sign_of(number):
    if number < 0:
        return -1
    return 1 if number else 0

def by_others():
    return "others"  # line 16

def by_thousands():
    return "thousands"  # line 19

def by_form(is_source):
    if is_source:
        return "uncompiled"  # line 23
    return "compiled"
"""
OTHERS = """
from room.inner import sizes

def test_what_this_caches_and_reaches_does_not_count():
    assert [sizes.size_of(""), sizes.size_of("a"), sizes.by_others()] == [0, 1, "others"]
"""
OWN = """
import pytest
from room.inner import sizes

@pytest.mark.parametrize(("number", "sign"), [(-2, -1), (3, 1), (0, 0)])
def test_signs_of_all_kinds_of_numbers(number, sign):
    assert sizes.sign_of(number) == sign

def test_thousands_of_inputs_reach_no_more():
    assert sizes.by_thousands() == "thousands"

@pytest.mark.parametrize("form", ["compiled", "uncompiled"])
def test_the_forms_of_a_kernel(form):
    assert sizes.by_form(form == "uncompiled") == form

def test_what_is_cached_of_other_tests_is_found_again():
    assert [sizes.size_of(""), sizes.size_of("a")] == [0, 1]
"""


@pytest.mark.parametrize("processes", [[], ["-n", "1"]], ids=["alone", "beside xdist"])
def test_branches_count_that_the_own_tests_of_a_room_reach(
    processes: list[str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "pyproject.toml": PROJECT,
        "room/__init__.py": "",
        "room/inner/__init__.py": "",
        "room/inner/sizes.py": ROOM,
        "room/inner/fast_kernel.py": "raise AssertionError('what is compiled is no module to import')",
        "tests/room/inner/test_sizes.py": OWN,
        "tests/another/test_first.py": OTHERS,
    }
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    options = ("-p", "tests.support.measuring", "-p", "no:cacheprovider", *processes)
    ran = pytester.runpytest_subprocess("--import-mode=importlib", *options, "tests/another", "tests/room")
    ran.assert_outcomes(passed=8)

    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "--quiet"], check=True)
    report = subprocess.run([*coverage, "report"], capture_output=True, text=True, check=True).stdout
    found = next(line.split(maxsplit=6) for line in report.splitlines() if line.startswith("room/inner/sizes.py"))
    assert found[-1] == "16, 19, 23", report
    assert "fast_kernel" not in report
