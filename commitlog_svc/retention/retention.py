"""Retention: which log files are removed, when, and which event records it.

Files are removed from the front, one at a time. The oldest file is judged against the disk as it is at that moment:

    expired, and one of the hours of `deleteWhen`                  expired
    expired, disk at `clean` or above                              disk-clean
    older than SPARED_MILLIS, disk at `clean-forcibly`             disk-clean-forcibly   (only with cleanFileForciblyEnable)
    any, disk `full`                                               disk-clean-forcibly   (only with cleanFileForciblyEnable)

The last file, the file that is written to and a file that the recovery snapshot needs all lie behind `safe_offset` and stay.
A file that a follower still needs stays, too; a follower that has not reported needs all (reput/followers.py). Such a file is
removed only when the disk is `full` and has been at `clean-forcibly` or above for BUILDER_GRACE_MILLIS; the event says which
follower lost what.

While a topic holds the log (`held_by`: RocketMQ would compact it, not expire it), no file goes by its age; a disk at
`clean-forcibly` or above is emptied as always.

At least `delete_files_interval_millis` pass between two files, and at most `delete_file_batch_count_max` files are removed in
each `clean_resource_interval_millis`. `turn` is called many times a second, from one thread; it never waits.

FileAges: at which hours expired files are removed, and how old each file is.

A file's age counts from the moment it was first seen complete (a record follows in a later file), by AgeClock. Its
modification time and the store times in it are not used: both come from a wall clock that may have been wrong. So the files
of a foreign store age from the day on which they were first served here.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from commitlog_svc.retention.disk_space import DiskLevel, DiskSpace
from commitlog_svc.retention.retention_state import (
    DISK_CLEAN,
    DISK_CLEAN_FORCIBLY,
    EXPIRED,
    AgeClock,
    RetentionEvent,
    RetentionState,
    add_event,
    events_that_happened,
    read_retention_state,
    write_retention_state,
)
from store.errors import DiskFullError, InvalidArgumentError
from store.files.file_system import FileSystem
from store.files.mapped_files import MappedFile, MappedFileQueue

HOUR_COUNT = 24


def parse_delete_hours(text: str) -> frozenset[int]:
    """The hours in RocketMQ's `deleteWhen`: `04`, or several with `;` between them.

    Raises:
        InvalidArgumentError: there is no hour, or one is not from 0 to 23.
    """
    words = [word.strip() for word in text.split(";") if word.strip()]
    if not words or not all(word.isascii() and word.isdigit() and int(word) < HOUR_COUNT for word in words):
        raise InvalidArgumentError(
            f"{text!r} is not a list of hours: write hours from 00 to 23 with ';' between them, such as 04;16",
            field="delete_when_hours",
        )
    return frozenset(map(int, words))


class FileAges:
    """When each complete file was first seen, by its first offset; milliseconds of an AgeClock."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def restore(self, seen: dict[int, int], complete_offsets: Iterable[int]) -> None:
        """Restores what an earlier process noted, for files that still exist and are complete."""
        self._seen = {offset: seen[offset] for offset in complete_offsets if offset in seen}

    def see(self, complete_offsets: Iterable[int], now_millis: int) -> bool:
        """Notes files, and returns whether one was new. Removed files are forgotten."""
        seen = {offset: self._seen.get(offset, now_millis) for offset in complete_offsets}
        is_new = any(offset not in self._seen for offset in seen)
        self._seen = seen
        return is_new

    def age_millis(self, offset: int, now_millis: int) -> int:
        """How long ago a file was first seen complete; 0 when it never was."""
        return max(0, now_millis - self._seen.get(offset, now_millis))

    def as_dict(self) -> dict[int, int]:
        """The data for a later process: see `restore`."""
        return dict(self._seen)


# A disk that other programs fill, or one busy hour, should not cost the messages of that hour.
SPARED_MILLIS = 3_600_000
# A follower that has just started needs some seconds to report.
BUILDER_GRACE_MILLIS = 30_000
# The clock is saved this often. After a boot only the time since then has to be taken from the wall clock.
SAVE_MILLIS = 600_000

_log = structlog.get_logger("reput.commitlog")


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """RocketMQ's settings; see services/settings/setting_names.py."""

    file_reserved_millis: int = 72 * 3_600_000
    delete_hours: frozenset[int] = frozenset((4,))
    delete_files_interval_millis: int = 100
    delete_file_batch_count_max: int = 10
    clean_resource_interval_millis: int = 10_000
    clean_file_forcibly_enabled: bool = True


class Retention:
    """Removes the old files of one log.

    Args:
        fs: the disk port.
        directory: of our own state, `reput/commitlog`.
        files: the log's files.
        limits: when files are removed.
        disk: the disk under them.
        needed_offsets: by follower, the first offset that it needs (bytes); 0 for one that has not reported.
        safe_offset: only files wholly before it may be removed.
        wall_millis: milliseconds since 1970; for the hour of the day and the times of events.
        on_removed: is called with the log's new first offset.
        held_by: names of topics for which no file may expire by age.
        age_clock: clock for the ages of files.
        clock: seconds, rising.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        files: MappedFileQueue,
        limits: RetentionLimits,
        disk: DiskSpace,
        needed_offsets: Callable[[], dict[str, int]],
        safe_offset: Callable[[], int],
        wall_millis: Callable[[], int],
        on_removed: Callable[[int], None] = lambda first_offset: None,
        age_clock: AgeClock | None = None,
        clock: Callable[[], float] = time.monotonic,
        held_by: Callable[[], Sequence[str]] = lambda: (),
    ) -> None:
        self._held_by = held_by
        self._fs = fs
        self._directory = directory
        self._files = files
        self._limits = limits
        self._disk = disk
        self._needed_offsets = needed_offsets
        self._safe_offset = safe_offset
        self._wall_millis = wall_millis
        self._on_removed = on_removed
        self._age_clock = age_clock if age_clock is not None else AgeClock(wall_millis)
        self._clock = clock
        self._ages = FileAges()
        self._events: tuple[RetentionEvent, ...] = ()
        self._saved_at_millis = 0
        self._saved_first_offset = -1
        self._saved_reading = self._age_clock.read()
        self._pressed_since_millis: int | None = None
        self._removed_at_millis: int | None = None
        self._batch_began_at_millis: int | None = None
        self._batch_count = 0
        self._held_offset = -1
        self._noted: tuple[tuple[MappedFile, ...], int] = ((), -1)

    @property
    def events(self) -> tuple[RetentionEvent, ...]:
        """The removals, oldest first; together they cover every byte before the log's first."""
        return self._events

    def load(self, log_end_offset: int) -> None:
        """Reads the state of the previous process; the log's files must be open.

        Args:
            log_end_offset: where the recovered log ends: a file beyond it no longer counts as complete.
        """
        state = read_retention_state(self._fs, self._directory)
        if state.clock is not None:
            self._age_clock.resume(state.clock)
        files = self._files.files
        self._ages.restore(state.seen_millis, (f.first_offset for f in files if f.last_offset <= log_end_offset))
        self._events = state.events
        if files:
            self._events = events_that_happened(
                state.events,
                state.first_offset,
                files[0].first_offset,
                self._files.file_size_bytes,
                self._wall_millis(),
            )
        for event in self._events:
            if event not in state.events:
                self._say(event)
        self._saved_at_millis = self._now_millis() - SAVE_MILLIS  # the first turn saves

    def turn(self) -> None:
        """Notes files that are complete now, and removes at most one.

        Raises:
            OSError, FlushFailedError: the file could not be removed or the state not written; the next turn tries again.
        """
        now_millis = self._now_millis()
        self._note_pressure(now_millis)
        reading = self._age_clock.read()
        safe_offset = self._safe_offset()
        is_due = self._note_complete_files(safe_offset, reading.age_millis)
        is_due |= self._saved_first_offset < 0 and bool(self._files.files)  # the first files: save where they begin
        is_due |= reading.has_jumped_since(self._saved_reading)  # after a boot the jump would count as time that passed
        if is_due or now_millis - self._saved_at_millis >= SAVE_MILLIS:
            self._save_if_room()
        if self._may_remove_now(now_millis):
            self._remove_oldest(safe_offset, reading.age_millis, now_millis)

    def _now_millis(self) -> int:
        return round(self._clock() * 1000)

    def _note_pressure(self, now_millis: int) -> None:
        level = self._disk.usage.level
        if level < DiskLevel.CLEAN_FORCIBLY:
            self._pressed_since_millis = None
        elif self._pressed_since_millis is None:
            self._pressed_since_millis = now_millis

    def _note_complete_files(self, safe_offset: int, age_now_millis: int) -> bool:
        files = self._files.files
        if (files, safe_offset) == self._noted:  # compared by identity first: thousands of files, many times a second
            return False
        self._noted = (files, safe_offset)
        return self._ages.see((f.first_offset for f in files if f.last_offset <= safe_offset), age_now_millis)

    def _may_remove_now(self, now_millis: int) -> bool:
        limits = self._limits
        if (
            self._batch_began_at_millis is None
            or now_millis - self._batch_began_at_millis >= limits.clean_resource_interval_millis
        ):
            self._batch_began_at_millis, self._batch_count = None, 0
        if self._batch_count >= limits.delete_file_batch_count_max:
            return False
        return (
            self._removed_at_millis is None
            or now_millis - self._removed_at_millis >= limits.delete_files_interval_millis
        )

    def _remove_oldest(self, safe_offset: int, age_now_millis: int, now_millis: int) -> None:
        files = self._files.files
        if len(files) < 2 or files[0].last_offset > safe_offset:
            return
        oldest = files[0]
        needed = self._needed_offsets()
        lost = {builder: offset for builder, offset in sorted(needed.items()) if offset < oldest.last_offset}
        reason = self._why(oldest, self._ages.age_millis(oldest.first_offset, age_now_millis), lost, now_millis)
        if reason is None:
            return
        if self._batch_began_at_millis is None:
            self._batch_began_at_millis = now_millis
        self._batch_count += 1
        self._removed_at_millis = now_millis
        self._remove(
            oldest,
            RetentionEvent(self._wall_millis(), oldest.first_offset, oldest.last_offset, 1, reason, lost),
        )

    def _why(self, oldest: MappedFile, age_millis: int, lost: dict[str, int], now_millis: int) -> str | None:
        limits = self._limits
        level = self._disk.usage.level
        if level >= DiskLevel.CLEAN:
            level = self._disk.look().level  # removing the previous file may have been enough
        is_expired = age_millis >= limits.file_reserved_millis
        forced = limits.clean_file_forcibly_enabled
        if lost:
            since = self._pressed_since_millis
            is_patient = since is None or now_millis - since < BUILDER_GRACE_MILLIS
            if forced and level is DiskLevel.FULL and not is_patient:
                return DISK_CLEAN_FORCIBLY
            if is_expired or level >= DiskLevel.CLEAN_FORCIBLY:
                self._say_held(oldest, lost)
            return None
        topics = self._held_by() if is_expired and level < DiskLevel.CLEAN_FORCIBLY else ()
        if topics:
            self._say_held(oldest, dict.fromkeys(topics, oldest.first_offset))
            return None
        if is_expired and level >= DiskLevel.CLEAN:
            return DISK_CLEAN
        if is_expired:
            hour = time.localtime(self._wall_millis() / 1000).tm_hour
            return EXPIRED if hour in limits.delete_hours else None
        if forced and level is DiskLevel.FULL:
            return DISK_CLEAN_FORCIBLY
        if forced and level is DiskLevel.CLEAN_FORCIBLY and age_millis >= SPARED_MILLIS:
            return DISK_CLEAN_FORCIBLY
        return None

    def _remove(self, oldest: MappedFile, event: RetentionEvent) -> None:
        before = self._events
        self._events = add_event(before, event)
        is_written = True
        try:
            self._save()
        except DiskFullError:
            is_written = False  # removing the file makes room for it
        except BaseException:
            self._events = before
            raise
        try:
            self._files.retire(oldest.last_offset, count_max=1)
        except BaseException:
            if self._files.first_offset < oldest.last_offset:
                self._events = before  # the file still exists; the next save corrects the state on the disk
            raise
        self._on_removed(oldest.last_offset)
        self._say(event)
        if not is_written:
            self._save_if_room()

    def _save(self) -> None:
        files = self._files.files
        first_offset = files[0].first_offset if files else -1
        reading = self._age_clock.read()
        state = RetentionState(self._events, first_offset, self._ages.as_dict(), reading)
        write_retention_state(self._fs, self._directory, state)
        self._saved_first_offset, self._saved_reading = first_offset, reading
        self._saved_at_millis = self._now_millis()

    def _save_if_room(self) -> None:
        try:
            self._save()
        except DiskFullError as error:
            _log.warning("retention.not_saved", error=error.message)
            self._saved_at_millis = self._now_millis() - SAVE_MILLIS + 1000  # save again in a second

    def _say(self, event: RetentionEvent) -> None:
        say = (
            _log.warning if event.lost_builder_next_offsets or event.reason not in (EXPIRED, DISK_CLEAN) else _log.info
        )
        say(
            "retention.removed",
            reason=event.reason,
            begin_offset=event.begin_offset,
            end_offset=event.end_offset,
            file_count=event.file_count,
            lost_builder_next_offsets=event.lost_builder_next_offsets,
        )

    def _say_held(self, oldest: MappedFile, lost: dict[str, int]) -> None:
        """Logs, once for each file, which followers or topics hold it."""
        if self._held_offset != oldest.first_offset:
            self._held_offset = oldest.first_offset
            _log.warning("retention.held", file=str(oldest.path), needed_by=lost)
