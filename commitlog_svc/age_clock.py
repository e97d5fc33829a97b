"""AgeClock: how long something has been there, by a clock that nobody sets.

The wall clock jumps: it is set by hand, by NTP, by a host that wakes up. Ages here are milliseconds that really passed:

- within one boot of the machine CLOCK_BOOTTIME counts them, sleep included, across restarts of the process;
- across boots there is only the wall clock; the difference is believed from 0 to BELIEVED_MILLIS_MAX, otherwise no time
  has passed. A machine that was off for longer thus keeps its files longer, never shorter;
- a wall clock that leaves the boot clock by JUMP_MILLIS or more is told in the log, and changes nothing.

What it shows starts anywhere and only rises; `Reading` is what has to be kept for the next life.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

BELIEVED_MILLIS_MAX = 7 * 24 * 3600 * 1000
JUMP_MILLIS = 60_000
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")

_log = structlog.get_logger("reput.commitlog")


def boot_millis_now() -> int:
    """Milliseconds since the machine started, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def read_boot_id(path: Path = BOOT_ID_PATH) -> str:
    """The name of this boot; one that never comes again when the system has none."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return f"none-{os.urandom(8).hex()}"


@dataclass(frozen=True, slots=True)
class Reading:
    """All three clocks at one moment, milliseconds, and the boot that it was in."""

    age_millis: int
    boot_id: str
    boot_millis: int
    wall_millis: int

    def has_jumped_since(self, earlier: "Reading") -> bool:
        """Whether the wall clock has left the boot clock since a reading of the same boot."""
        jump_millis = (self.wall_millis - self.boot_millis) - (earlier.wall_millis - earlier.boot_millis)
        return abs(jump_millis) >= JUMP_MILLIS


class AgeClock:
    """A clock that rises with real time, over restarts and boots; used from one thread.

    Args:
        wall_millis: milliseconds since 1970, as the system believes.
        boot_millis: milliseconds since the machine started.
        boot_id: which start that was.
    """

    def __init__(
        self,
        wall_millis: Callable[[], int],
        boot_millis: Callable[[], int] = boot_millis_now,
        boot_id: str | None = None,
    ) -> None:
        self._wall_millis = wall_millis
        self._boot_millis = boot_millis
        self._boot_id = read_boot_id() if boot_id is None else boot_id
        self._start_boot_millis = boot_millis()
        self._start_age_millis = 0
        self._wall_offset_millis = wall_millis() - self._start_boot_millis

    def resume(self, last: Reading) -> None:
        """Goes on from where an earlier life was."""
        boot_millis, wall_millis = self._boot_millis(), self._wall_millis()
        if last.boot_id == self._boot_id:
            passed_millis = boot_millis - last.boot_millis
            self._wall_offset_millis = last.wall_millis - last.boot_millis
            self._note_jump(boot_millis, wall_millis)
        else:
            passed_millis = wall_millis - last.wall_millis
            if not 0 <= passed_millis <= BELIEVED_MILLIS_MAX:
                _log.warning("clock.not_believed", difference_millis=passed_millis, believed_max=BELIEVED_MILLIS_MAX)
                passed_millis = 0
        self._start_age_millis = last.age_millis + max(0, passed_millis)
        self._start_boot_millis = boot_millis

    def now_millis(self) -> int:
        """What this clock shows."""
        return self._start_age_millis + max(0, self._boot_millis() - self._start_boot_millis)

    def read(self) -> Reading:
        """All clocks; tells the log when the wall clock has jumped since the last reading."""
        boot_millis, wall_millis = self._boot_millis(), self._wall_millis()
        self._note_jump(boot_millis, wall_millis)
        age_millis = self._start_age_millis + max(0, boot_millis - self._start_boot_millis)
        return Reading(age_millis, self._boot_id, boot_millis, wall_millis)

    def _note_jump(self, boot_millis: int, wall_millis: int) -> None:
        jump_millis = wall_millis - boot_millis - self._wall_offset_millis
        if abs(jump_millis) >= JUMP_MILLIS:
            _log.warning("clock.jumped", jump_millis=jump_millis, effect="none: ages do not follow the wall clock")
        self._wall_offset_millis += jump_millis  # also a small one: clocks that drift apart for weeks have not jumped
