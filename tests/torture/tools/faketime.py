"""libfaketime: the wall clock of another process, set and moved while it runs, without a change to its code.

    clock = FakeClock(tmp_path)
    clock.set_seconds(-7200)
    with running_stack(store, settings=clock.environment): ...
    clock.set_seconds(10 * YEAR)                       # every process of that environment sees it at its next look

Traps: without FAKETIME_DONT_FAKE_MONOTONIC every wait with a timeout hangs or returns at once, gRPC's first of all; with it,
`time.sleep` fails with EINVAL on Python 3.11 (Event.wait does not), so a sitecustomize replaces it. CLOCK_BOOTTIME is left
alone too then, as on a machine whose clock is set. The library's remedy for condition variables (FORCE_MONOTONIC_FIX) must be
off, or each wake-up is late and a gRPC call takes 100 ms. The library shares memory named after the first process, which a
killed one leaves behind: `clear`.
"""

import contextlib
import os
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIBRARY_NAME = "libfaketimeMT.so.1"
LIBRARY_DIRECTORIES = (Path("/usr/lib"), Path("/usr/local/lib"))
SLEEP_THAT_WORKS = """
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds) and None
"""
SHARED_MEMORY = Path("/dev/shm")  # where the library leaves it


def library() -> Path | None:
    """The library, or None where it is not installed."""
    for directory in LIBRARY_DIRECTORIES:
        for path in (directory / "faketime" / LIBRARY_NAME, *sorted(directory.glob(f"*/faketime/{LIBRARY_NAME}"))):
            if path.is_file():
                return path
    return None


def why_missing() -> str:
    """Why clocks cannot be faked here; empty when they can."""
    return "" if library() is not None else "libfaketime is missing: apt-get install faketime"


class FakeClock:
    """A wall clock for other processes, by its distance from the real one.

    Args:
        directory: gets the file that says the distance; its own, made if missing.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        (directory / "sitecustomize.py").write_text(SLEEP_THAT_WORKS)
        self._path = directory / "faketime"
        self.set_seconds(0)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process look at this clock; children inherit it."""
        path = library()
        assert path is not None, why_missing()
        return {
            "LD_PRELOAD": str(path),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": os.pathsep.join((str(self._path.parent), str(ROOT), str(ROOT / "protos"))),
        }

    def set_seconds(self, seconds: float) -> None:
        """So many seconds ahead of the real clock, or behind it."""
        temporary = self._path.with_suffix(".new")
        temporary.write_text(f"{seconds:+.3f}\n")
        temporary.replace(self._path)


def clear(pid: int) -> None:
    """Removes what the library left behind of a process that is gone."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        with contextlib.suppress(FileNotFoundError):
            (SHARED_MEMORY / name).unlink()
