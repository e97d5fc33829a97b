"""How far the log's recovery is, for the person who started the stack: a bar on a terminal, a line now and then elsewhere.

Rules of this file:
- A recovery that is over at once shows nothing.
- The bar is on stderr, like everything that is no answer; the services' own log lines go on appearing above it.
- Nothing here decides anything: without a terminal or without numbers the stack starts just the same.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

SHOW_AFTER_SECONDS = 0.5
UPDATE_SECONDS = 0.2
LINE_SECONDS = 5.0


class Recovery(Protocol):
    """How far it is; bytes of the log, which may end before its files do."""

    begin_offset: int
    next_offset: int
    end_offset: int


class RecoveryDisplay:
    """Shows one recovery; a context manager.

    Args:
        stream: where to.
        clock: seconds, rising.
        say: writes a line, where there is no terminal.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began = clock()
        self._next_update_at = self._began + SHOW_AFTER_SECONDS
        self._next_line_at = self._began + LINE_SECONDS
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "RecoveryDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def wants_update(self) -> bool:
        """Whether it is time to look again."""
        return self._clock() >= self._next_update_at

    def update(self, recovery: Recovery) -> None:
        """Show this."""
        self._next_update_at = self._clock() + UPDATE_SECONDS
        whole = recovery.end_offset - recovery.begin_offset
        done = min(max(recovery.next_offset - recovery.begin_offset, 0), max(whole, 0))
        now = self._clock()
        if whole <= 0:
            return
        if self._stream.isatty():
            self._draw(done, whole)
        elif now >= self._next_line_at:
            self._next_line_at = now + LINE_SECONDS
            seconds_left = (now - self._began) * (whole - done) / done if done else None
            rest = f", about {seconds_left:.0f} s left" if seconds_left is not None else ""
            self._say(f"recovering the log: {done * 100 // whole} % ({done:,} of {whole:,} bytes{rest})")

    def _draw(self, done: int, whole: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("recovering the log"),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TimeRemainingColumn(),
                console=Console(file=self._stream, stderr=self._stream is sys.stderr),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=whole)
        self._bar.update(self._task, completed=done, total=whole)
