"""What a starter of processes needs: signals as bytes."""

import os
import signal

import pytest

from deploy.processes import TERMINAL_SIGNALS, signals_as_bytes


@pytest.mark.parametrize("number", TERMINAL_SIGNALS)
def test_a_signal_that_nohup_or_a_shell_had_ignored_stays_ignored_and_others_are_bytes(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with signals_as_bytes() as reader:
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
            received = reader.recv(100)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)

    assert received == bytes([signal.SIGTERM])


@pytest.mark.parametrize("number", TERMINAL_SIGNALS)
def test_a_signal_of_a_terminal_that_is_not_ignored_is_a_byte(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with signals_as_bytes() as reader:
            os.kill(os.getpid(), number)
            assert reader.recv(100) == bytes([number])
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
