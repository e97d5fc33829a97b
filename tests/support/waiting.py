"""Waiting for what has no event: a file of another process, a status over gRPC, a process that stands still.

This is the only place in which tests sleep to poll. What can be awaited (an Event, a Future, a stream, the end of a process) is
awaited instead.
"""

import contextlib
import fcntl
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

WAIT_SECONDS_MAX = 180.0  # the machine may be busy: long enough that only a hang reaches it
POLL_SECONDS = 0.02
# A long wait asks less often: a question may cost milliseconds in each of seven processes. It ends this much later at most.
POLL_SHARE, POLL_SECONDS_MAX = 0.02, 0.1

Value = TypeVar("Value")


def wait_until(
    is_so: Callable[[], object],
    what: object = "",
    *,
    seconds: float = WAIT_SECONDS_MAX,
    poll_seconds: float = POLL_SECONDS,
) -> float:
    """Poll a condition until it holds; how many seconds that took.

    Args:
        is_so: asked again and again; an AssertionError that it raises ends the wait.
        what: said when the time is up; a function is called for it.
        seconds: how long to wait at the most, where that is longer than WAIT_SECONDS_MAX: a limit is for a hang, and how fast
            a busy machine is proves nothing.
        poll_seconds: between two questions at the least.

    Raises:
        AssertionError: the condition does not hold in time.
    """
    assert seconds >= WAIT_SECONDS_MAX, "a shorter limit than the usual one proves nothing"
    began = time.monotonic()
    while not is_so():
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what or is_so}")
        time.sleep(max(poll_seconds, min(waited * POLL_SHARE, POLL_SECONDS_MAX)))  # between two questions
    return time.monotonic() - began


def wait_for(
    find: Callable[[], Value | None],
    what: object = "",
    *,
    poll_seconds: float = POLL_SECONDS,
) -> Value:
    """Poll until `find` gives something else than None; see `wait_until`."""
    found: list[Value] = []

    def is_there() -> bool:
        value = find()
        if value is not None:
            found.append(value)
        return value is not None

    wait_until(is_there, what, poll_seconds=poll_seconds)
    return found[0]


@contextlib.contextmanager
def one_at_a_time(path: pathlib.Path) -> Iterator[None]:
    """The block runs in one process of this machine at a time; other processes wait.

    The kernel releases the lock when the process ends, also when it is killed.

    Args:
        path: a file that is locked meanwhile; it is made, and stays.
    """
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
