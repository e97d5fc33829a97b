"""A progress bar on stderr for work of known size; nothing if stderr is not a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def progress_bar(what: str, *, in_bytes: bool = True) -> Iterator[tuple[Callable[[int, int], None], Any]]:
    """A function that moves the bar (done, total), and the bar, which is None when stderr is not a terminal.

    Args:
        what: text before the bar.
        in_bytes: done and total are bytes.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None, None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn(what), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total), bar
