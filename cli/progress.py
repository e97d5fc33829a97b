"""A bar on stderr for work whose size is known, and nothing where nobody looks."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def progress_bar(what: str, *, in_bytes: bool = True) -> Iterator[tuple[Callable[[int, int], None], Any]]:
    """How to move a bar (done, total), and the bar; it is None when stderr is no terminal.

    Args:
        what: stands before it.
        in_bytes: whether bytes are counted.
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
