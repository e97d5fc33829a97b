"""Timings: whom a log tells what it has done and how long that took. A log of its own, as in most tests, tells nobody."""

from collections.abc import Callable
from dataclasses import dataclass


def _nobody(*_: object) -> None:
    """Takes what nobody asked for."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Called from the threads that do the work, once for each batch: they must return at once and not raise.

    Attributes:
        flushed: the seconds that a successful flush took.
        appended: whether the append waited for the disk, how many messages it had, and the seconds that it took in all.
    """

    flushed: Callable[[float], None] = _nobody
    appended: Callable[[bool, int, float], None] = _nobody


NO_TIMINGS = Timings()
