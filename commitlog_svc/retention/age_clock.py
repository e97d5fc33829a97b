"""AgeClock: a clock for ages that nothing can set.

The wall clock jumps when it is set by hand, by NTP, or when a host wakes up. Ages here are milliseconds that really passed:

- within one boot of the machine CLOCK_BOOTTIME counts them, sleep included, across restarts of the process;
- across boots there is only the wall clock; a difference from 0 to BELIEVED_MILLIS_MAX counts, any other counts as 0.
  So a machine that was off for longer keeps its files longer, never shorter;
- a difference of JUMP_MILLIS or more between wall clock and boot clock is logged, and has no other effect.

The clock starts at any value and only rises; a `Reading` is kept for the next process.
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
    """The id of this boot; a random one when the system has none."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return f"none-{os.urandom(8).hex()}"


@dataclass(frozen=True, slots=True)
class Reading:
    """All three clocks at one moment (milliseconds), and the id of the boot."""

    age_millis: int
    boot_id: str
    boot_millis: int
    wall_millis: int

    def has_jumped_since(self, earlier: "Reading") -> bool:
        """Whether the wall clock has jumped against the boot clock since a reading of the same boot."""
        jump_millis = (self.wall_millis - self.boot_millis) - (earlier.wall_millis - earlier.boot_millis)
        return abs(jump_millis) >= JUMP_MILLIS


class AgeClock:
    """A clock that rises with real time, over restarts and boots; used from one thread.

    Args:
        wall_millis: milliseconds since 1970, as the system believes.
        boot_millis: milliseconds since the machine started.
        boot_id: the id of that start.
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
        """Continues from the last reading of an earlier process."""
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
        """The time of this clock (milliseconds)."""
        return self._start_age_millis + max(0, self._boot_millis() - self._start_boot_millis)

    def read(self) -> Reading:
        """Reads all clocks; logs when the wall clock has jumped since the last reading."""
        boot_millis, wall_millis = self._boot_millis(), self._wall_millis()
        self._note_jump(boot_millis, wall_millis)
        age_millis = self._start_age_millis + max(0, boot_millis - self._start_boot_millis)
        return Reading(age_millis, self._boot_id, boot_millis, wall_millis)

    def _note_jump(self, boot_millis: int, wall_millis: int) -> None:
        jump_millis = wall_millis - boot_millis - self._wall_offset_millis
        if abs(jump_millis) >= JUMP_MILLIS:
            _log.warning("clock.jumped", jump_millis=jump_millis, effect="none: ages do not follow the wall clock")
        self._wall_offset_millis += jump_millis  # small ones, too: a slow drift over weeks must not add up to a jump
