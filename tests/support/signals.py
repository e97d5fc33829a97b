"""Signals that the test run was started to ignore: what the tests start begins as from a terminal."""

import signal

# A shell starts background jobs with the first two ignored, nohup the third. A process inherits it through every exec.
IGNORED_BY_STARTERS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def let_children_be_interrupted() -> None:
    """Have every process that is started from here on begin with the default action of these signals; for the main thread.

    This process goes on ignoring those that it ignores: a handler that does nothing takes the place of SIG_IGN, and an exec
    sets handlers back to the default.
    """
    for number in IGNORED_BY_STARTERS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _do_nothing)


def _do_nothing(*_: object) -> None:
    pass
