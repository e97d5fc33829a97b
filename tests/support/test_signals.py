"""Test runs in the background, where a shell has the interrupt ignored."""

import signal
import subprocess

import pytest

from tests.support.signals import IGNORED_BY_STARTERS, let_children_be_interrupted


def ignored_by_a_child() -> set[int]:
    shown = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    mask = int(next(line.split()[1] for line in shown.splitlines() if line.startswith("SigIgn")), 16)
    return {number for number in IGNORED_BY_STARTERS if mask & 1 << (number - 1)}


@pytest.fixture(autouse=True)
def handlers_as_before():
    before = {number: signal.getsignal(number) for number in IGNORED_BY_STARTERS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_commands_that_tests_end_with_an_interrupt_ran_on_when_the_suite_ran_in_the_background():
    for number in IGNORED_BY_STARTERS:
        signal.signal(number, signal.SIG_IGN)
    assert ignored_by_a_child() == set(IGNORED_BY_STARTERS)

    let_children_be_interrupted()

    assert ignored_by_a_child() == set()
    for number in IGNORED_BY_STARTERS:
        signal.raise_signal(number)  # this process goes on


def test_handlers_of_a_run_in_the_foreground_stay_as_they_are():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    let_children_be_interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
