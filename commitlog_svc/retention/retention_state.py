"""The state of retention in `reput/commitlog/retention.json`: what it removed, how old the files are, its clock.

An event is written *before* its file is removed. A crash between the two leaves an event for a file that still exists; the
next start corrects it by the existing files. The other order could lose an event. If the disk is too full to write the event,
the file is removed first, which makes room for the event. After a crash between these two, the start finds that the log begins
later than the state says, and adds an event with the reason `outside`, as it does when another program removed files.

So the events together account for every missing byte. At most EVENT_COUNT_MAX are kept; the oldest neighbours are merged.

AgeClock: a clock for ages that nothing can set.

The wall clock jumps when it is set by hand, by NTP, or when a host wakes up. Ages here are milliseconds that really passed:

- within one boot of the machine CLOCK_BOOTTIME counts them, sleep included, across restarts of the process;
- across boots there is only the wall clock; a difference from 0 to BELIEVED_MILLIS_MAX counts, any other counts as 0.
  So a machine that was off for longer keeps its files longer, never shorter;
- a difference of JUMP_MILLIS or more between wall clock and boot clock is logged, and has no other effect.

The clock starts at any value and only rises; a `ClockReading` is kept for the next process.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

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
class ClockReading:
    """All three clocks at one moment (milliseconds), and the id of the boot."""

    age_millis: int
    boot_id: str
    boot_millis: int
    wall_millis: int

    def has_jumped_since(self, earlier: "ClockReading") -> bool:
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

    def resume(self, last: ClockReading) -> None:
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

    def read(self) -> ClockReading:
        """Reads all clocks; logs when the wall clock has jumped since the last reading."""
        boot_millis, wall_millis = self._boot_millis(), self._wall_millis()
        self._note_jump(boot_millis, wall_millis)
        age_millis = self._start_age_millis + max(0, boot_millis - self._start_boot_millis)
        return ClockReading(age_millis, self._boot_id, boot_millis, wall_millis)

    def _note_jump(self, boot_millis: int, wall_millis: int) -> None:
        jump_millis = wall_millis - boot_millis - self._wall_offset_millis
        if abs(jump_millis) >= JUMP_MILLIS:
            _log.warning("clock.jumped", jump_millis=jump_millis, effect="none: ages do not follow the wall clock")
        self._wall_offset_millis += jump_millis  # small ones, too: a slow drift over weeks must not add up to a jump


EVENT_COUNT_MAX = 64
# Removals of one kind are one event while each follows the one before within this time.
MERGE_MILLIS = 10 * 60 * 1000
FILE_NAME = "retention.json"

EXPIRED = "expired"
DISK_CLEAN = "disk-clean"
DISK_CLEAN_FORCIBLY = "disk-clean-forcibly"
OUTSIDE = "outside"
OWNER = "owner"  # of a log that is only followed; not in the file
# A merged event has the last of its parts' reasons in this order.
REASONS = (EXPIRED, OWNER, DISK_CLEAN, OUTSIDE, DISK_CLEAN_FORCIBLY)


@dataclass(frozen=True, slots=True)
class RetentionEvent:
    """Files that were removed.

    Attributes:
        time_millis: when, since 1970 by the wall clock; of the last file.
        begin_offset: where the log began before.
        end_offset: where it begins since.
        file_count: number of removed files.
        reason: one of REASONS.
        lost_builder_next_offsets: followers that had not applied all of it, and their offsets. A merged event has the end
            minus the bytes that the follower lost: what it had applied in between is no longer known.
    """

    time_millis: int
    begin_offset: int
    end_offset: int
    file_count: int
    reason: str
    lost_builder_next_offsets: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetentionState:
    """Everything in the file; `events` oldest first, `first_offset` -1 when there was no log yet."""

    events: tuple[RetentionEvent, ...] = ()
    first_offset: int = -1
    seen_millis: dict[int, int] = field(default_factory=dict)
    clock: ClockReading | None = None


def add_event(events: Sequence[RetentionEvent], event: RetentionEvent) -> tuple[RetentionEvent, ...]:
    """The events with one more, which begins where the last one ends."""
    kept = list(events)
    if kept and _are_one(kept[-1], event):
        kept[-1] = merge_events(kept[-1], event)
    else:
        kept.append(event)
    while len(kept) > EVENT_COUNT_MAX:
        kept[:2] = [merge_events(kept[0], kept[1])]
    return tuple(kept)


def lost_bytes(event: RetentionEvent, builder: str) -> int:
    """How many bytes of the removed files a follower had not applied."""
    next_offset = event.lost_builder_next_offsets.get(builder, event.end_offset)
    return max(0, event.end_offset - max(event.begin_offset, next_offset))


def merge_events(first: RetentionEvent, second: RetentionEvent) -> RetentionEvent:
    """One event for two neighbours; what each follower lost is the sum of both."""
    builders = first.lost_builder_next_offsets.keys() | second.lost_builder_next_offsets.keys()
    lost = {
        builder: second.end_offset - lost_bytes(first, builder) - lost_bytes(second, builder)
        for builder in sorted(builders)
    }
    return RetentionEvent(
        second.time_millis,
        first.begin_offset,
        second.end_offset,
        first.file_count + second.file_count,
        max(first.reason, second.reason, key=REASONS.index),
        lost,
    )


def events_that_happened(
    events: Sequence[RetentionEvent], remembered_first_offset: int, first_offset: int, file_size_bytes: int, now: int
) -> tuple[RetentionEvent, ...]:
    """The events, corrected by the files: cut where files still exist, one more where files are missing without an event.

    Args:
        events: as they were written.
        remembered_first_offset: where the log began when they were written; -1 when unknown.
        first_offset: where it begins now.
        file_size_bytes: of a log file.
        now: milliseconds since 1970, for an event that has to be made.
    """
    true: list[RetentionEvent] = []
    for event in events:
        if event.end_offset <= first_offset:
            true.append(event)
        elif event.begin_offset < first_offset:
            file_count = (first_offset - event.begin_offset) // file_size_bytes
            true.append(replace(event, end_offset=first_offset, file_count=file_count))
    told_offset = true[-1].end_offset if true else remembered_first_offset
    if 0 <= told_offset < first_offset:
        file_count = (first_offset - told_offset) // file_size_bytes
        return add_event(true, RetentionEvent(now, told_offset, first_offset, file_count, OUTSIDE))
    return tuple(true)


def write_retention_state(fs: FileSystem, directory: Path, state: RetentionState) -> None:
    """Replaces the file; DiskFullError and FlushFailedError leave the old one."""
    clock = state.clock
    value: dict[str, Any] = {
        "first_offset": state.first_offset,
        "events": [
            {
                "time_millis": event.time_millis,
                "begin_offset": event.begin_offset,
                "end_offset": event.end_offset,
                "file_count": event.file_count,
                "reason": event.reason,
                "lost_builder_next_offsets": event.lost_builder_next_offsets,
            }
            for event in state.events
        ],
        "files_seen_millis": {str(offset): millis for offset, millis in state.seen_millis.items()},
        "clock": None
        if clock is None
        else {
            "age_millis": clock.age_millis,
            "boot_id": clock.boot_id,
            "boot_millis": clock.boot_millis,
            "wall_millis": clock.wall_millis,
        },
    }
    write_json_state(fs, directory / FILE_NAME, value)


def read_retention_state(fs: FileSystem, directory: Path) -> RetentionState:
    """The state in the file; an empty one when there is no file, or when it is not valid."""
    value = read_json_state(fs, directory / FILE_NAME)
    if value is None:
        return RetentionState()
    try:
        clock = value["clock"]
        return RetentionState(
            tuple(_read_event(event) for event in value["events"]),
            int(value["first_offset"]),
            {int(offset): int(millis) for offset, millis in value["files_seen_millis"].items()},
            ClockReading(
                int(clock["age_millis"]), str(clock["boot_id"]), int(clock["boot_millis"]), int(clock["wall_millis"])
            )
            if clock
            else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return RetentionState()


def _read_event(value: dict[str, Any]) -> RetentionEvent:
    reason = str(value["reason"])
    if reason not in REASONS:
        raise ValueError(reason)
    return RetentionEvent(
        int(value["time_millis"]),
        int(value["begin_offset"]),
        int(value["end_offset"]),
        int(value["file_count"]),
        reason,
        {str(builder): int(offset) for builder, offset in value["lost_builder_next_offsets"].items()},
    )


def _are_one(last: RetentionEvent, event: RetentionEvent) -> bool:
    return (
        last.end_offset == event.begin_offset
        and last.reason == event.reason
        and last.lost_builder_next_offsets.keys() == event.lost_builder_next_offsets.keys()
        and 0 <= event.time_millis - last.time_millis <= MERGE_MILLIS
    )
