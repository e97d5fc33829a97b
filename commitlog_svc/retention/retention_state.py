"""The state of retention in `reput/commitlog/retention.json`: what it removed, how old the files are, its clock.

An event is written *before* its file is removed. A crash between the two leaves an event for a file that still exists; the
next start corrects it by the existing files. The other order could lose an event. If the disk is too full to write the event,
the file is removed first, which makes room for the event. After a crash between these two, the start finds that the log begins
later than the state says, and adds an event with the reason `outside`, as it does when another program removed files.

So the events together account for every missing byte. At most EVENT_COUNT_MAX are kept; the oldest neighbours are merged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from commitlog_svc.retention.age_clock import Reading
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state

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
    clock: Reading | None = None


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
    """What the file says; an empty state when there is none, or when it is not valid."""
    value = read_json_state(fs, directory / FILE_NAME)
    if value is None:
        return RetentionState()
    try:
        clock = value["clock"]
        return RetentionState(
            tuple(_read_event(event) for event in value["events"]),
            int(value["first_offset"]),
            {int(offset): int(millis) for offset, millis in value["files_seen_millis"].items()},
            Reading(
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
