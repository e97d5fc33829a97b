"""StopSignal: a wait that a signal of the operating system ends, or any thread.

A byte in a pipe ends the wait. A threading.Event would not do: a Python signal handler runs in the main thread, which may hold
the very lock that the Event needs, and does not run while the main thread waits for a lock.
"""

import contextlib
import os
import select
import signal
import threading
import weakref


class StopSignal:
    """Given once or more often; then every `wait` returns."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._closed = weakref.finalize(self, _close_all, self._reader, self._writer)
        self._lock = threading.Lock()  # a descriptor that was closed may be another file's now

    def give(self) -> None:
        """End the wait; returns at once. Without effect after `close`."""
        with self._lock, contextlib.suppress(BlockingIOError):  # the pipe is full of such bytes
            if self._closed.alive:
                os.write(self._writer, b"\0")

    def close(self) -> None:
        """Close the descriptors; not for one that signals give, whose process keeps them until its end."""
        with self._lock:
            self._closed()

    def give_on_signals(self) -> None:
        """Have SIGTERM and SIGINT give it; for the main thread. A second signal changes nothing."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def wait(self) -> None:
        """Return when it has been given."""
        waiting = select.poll()  # select() refuses descriptors above 1023
        waiting.register(self._reader, select.POLLIN)
        waiting.poll()


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
