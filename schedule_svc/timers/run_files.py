"""RunFiles: the files of the runs, and the table that says which ones count (`runs.json`).

A file counts from the moment on that the table names it; the table is replaced atomically. Files that it does not name are
removed. All of it may be lost: the timers are read again from their topic.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedule_svc.timers.entries import Entries
from schedule_svc.timers.run import Run, is_intact, map_run, write_run
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

VERSION = 1
SUFFIX = ".run"


@dataclass(frozen=True, slots=True)
class SavedRuns:
    """What the table says.

    Attributes:
        runs: the files.
        next_queue_offset: they have everything of the timer topic before this position.
        last_log_offset: where the record before that position is (bytes), to know the log again.
    """

    runs: Sequence[Run]
    next_queue_offset: int
    last_log_offset: int


@dataclass(frozen=True, slots=True)
class NewRuns:
    """Files that are written and do not count yet. `can_count`: asks whether the log can lose nothing that they rely on."""

    saved: SavedRuns
    can_count: Callable[[], bool]


class RunFiles:
    """See the top of this file.

    Args:
        fs: the disk port; for the table.
        directory: where the files are.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = directory
        self._table = directory / "runs.json"
        self._number = 0

    def load(self) -> SavedRuns | None:
        """What was kept; None when there is nothing, or anything of it is damaged."""
        self._directory.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in self._directory.glob("*" + SUFFIX)]
        self._number = max(
            (int(name.removesuffix(SUFFIX)) for name in names if name[: -len(SUFFIX)].isdigit()), default=0
        )
        table = read_json_state(self._fs, self._table)
        saved = self._read(table) if table is not None and table.get("version") == VERSION else None
        self._remove_others(saved.runs if saved is not None else ())
        return saved

    def write(self, entries: Entries) -> Run:
        """A file with entries, which does not count yet."""
        self._number += 1
        self._directory.mkdir(parents=True, exist_ok=True)
        return write_run(self._directory / f"{self._number:012}{SUFFIX}", entries)

    def keep(self, runs: Sequence[Run], next_queue_offset: int, last_log_offset: int) -> None:
        """Have exactly these files count from now on; see SavedRuns."""
        rows = [[run.path.name, len(run.entries), run.crc] for run in runs if run.path is not None]
        table = {"version": VERSION, "next_queue_offset": next_queue_offset, "last_log_offset": last_log_offset}
        write_json_state(self._fs, self._table, {**table, "runs": rows})
        self._remove_others(runs)

    def forget(self) -> None:
        """Remove all of it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._table)
        self._remove_others(())

    def _read(self, table: dict[str, Any]) -> SavedRuns | None:
        runs: list[Run] = []
        try:
            for name, count, crc in table["runs"]:
                path = self._directory / str(name)
                if not is_intact(path, count, crc):
                    return None
                runs.append(map_run(path, count, crc))
            return SavedRuns(runs, int(table["next_queue_offset"]), int(table["last_log_offset"]))
        except (KeyError, TypeError, ValueError, OSError):
            return None

    def _remove_others(self, runs: Sequence[Run]) -> None:
        kept = {run.path for run in runs}
        for path in self._directory.glob("*" + SUFFIX):
            if path not in kept:
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
