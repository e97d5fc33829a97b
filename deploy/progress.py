"""Shows the progress of the log's recovery: a bar on a terminal, otherwise a line every 5 s.

Rules of this file:
- A recovery that takes less than 0.5 s shows nothing.
- The bar is on stderr, like all output that is not an answer; the services' log lines appear above it.
- The display has no effect on the start: the stack starts in the same way without a terminal or without numbers.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

SHOW_AFTER_SECONDS = 0.5
UPDATE_SECONDS = 0.2
LINE_SECONDS = 5.0


class Recovery(Protocol):
    """Progress in bytes of the log, whose end may lie before the end of its files."""

    begin_offset: int
    next_offset: int
    end_offset: int


class RecoveryDisplay:
    """Shows one recovery; a context manager.

    Args:
        say: writes a line; used without a terminal.
        stream: where the bar is drawn; default: stderr.
        clock: seconds of a clock that never goes back.
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
        """Whether it is time for the next update."""
        return self._clock() >= self._next_update_at

    def update(self, recovery: Recovery) -> None:
        """Show this progress."""
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
