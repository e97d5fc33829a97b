"""What a failed test prints, in a pytest of its own."""

import sys

import pytest

from services.settings.service_settings import ServiceSettings, load_settings
from tests.support.failures import RUN_SEED

PROGRAM = """
import logging, pathlib, random
from tests.support.failures import watch_log

LOG = pathlib.Path("services.log")

def test_one_passes_and_logs_before_the_other():
    watch_log(LOG)
    LOG.write_text("of the first test\\n")
    logging.getLogger("reput.commitlog").info("hosted, of the first test")

def test_one_fails_and_its_services_have_logged():
    with LOG.open("a") as log:
        log.write("of the second test\\n")
    logging.getLogger("reput.commitlog").info("hosted, of the second test")
    assert random.random() == "drawn"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory with a test that passes and one that fails; their seed is not that of this run."""
    monkeypatch.delenv("TEST_SEED")
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    pytester.makeini("[pytest]\nlog_level = INFO\n")
    pytester.makepyfile(test_program=PROGRAM)
    return pytester


def test_a_failure_prints_what_services_logged_in_that_test_and_its_seed(run: pytest.Pytester) -> None:
    result = run.runpytest_subprocess("-p", "tests.support.failures", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines_random(["*of the second test", "*hosted, of the second test", "TEST_SEED=*"])
    result.stdout.no_fnmatch_line("*of the first test")


def test_a_run_with_the_seed_of_another_draws_the_same(run: pytest.Pytester) -> None:
    def drawn() -> list[str]:
        result = run.runpytest_subprocess("-p", "tests.support.failures", "-p", "no:cacheprovider")
        seeds = {line for line in result.outlines if line.startswith("TEST_SEED=")}
        values = [line for line in result.outlines if line.startswith("E ") and "drawn" in line]
        return [*seeds, *values]

    first = drawn()
    assert len(first) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_SEED", first[0].partition("=")[2])
        assert drawn() == first
    assert drawn()[1] != first[1], "and with another seed it draws something else"


def test_services_that_a_test_started_refused_the_seed_as_an_unknown_setting() -> None:
    load_settings("gateway", ServiceSettings, environ={RUN_SEED: "1", "REPUT_STORE": "/store"})
