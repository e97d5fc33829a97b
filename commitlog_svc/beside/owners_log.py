"""OwnersLog: follows the log of a broker that runs beside this service, on a thread of its own.

    broker ── writes ──▶ DIR/commitlog ──▶ LogWatch ──▶ shown offset ──▶ followers, readers
                                              │
                              snapshot, lock  ▼
                              DERIVED/reput/commitlog

Writes to mapped files raise no events, so the log is looked at again and again: every BUSY_SECONDS while something arrives,
then ever less often, down to every IDLE_SECONDS. A snapshot of how far the log was whole lies with the derived files; the next
start goes on there if the log still has that record. It is never ahead of the log that was checked; losing it costs a walk.

When the owner cuts its log, this life is over: `on_changed` is called, and the process is started again. Everything that was
derived is compared with the log then, as after any start.
"""

import contextlib
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import structlog

from commitlog_svc.beside.log_watch import SETTLE_SECONDS, LogWatch, WatchedLog
from commitlog_svc.recovery.recovery import RecoveredLog, RecoveryProgress
from commitlog_svc.recovery.safe_point import Snapshot, read_snapshot, write_snapshot
from commitlog_svc.reput.followers import FollowerRegistry
from commitlog_svc.retention.retention_state import OWNER, RetentionEvent, add_event
from store.errors import LogChangedError, ServiceUnavailableError, StoreError, UnsupportedStoreError, failure_fields
from store.files.file_system import FileSystem
from store.files.locks import OwnerLock
from store.files.owners_files import OwnersFiles

BUSY_SECONDS = SETTLE_SECONDS
IDLE_SECONDS = 0.2
SNAPSHOT_SECONDS = 5.0
TOPICS_SECONDS = 1.0  # RocketMQ writes topics.json when a topic changes

_log = structlog.get_logger("reput.commitlog")


class OwnersLog:
    """See the top of this file. `open` first, then `start`; the rest is thread-safe.

    Args:
        fs: the disk port.
        files: the log.
        directory: `reput/commitlog` of the derived files; made when missing.
        followers: how far each follower is, for what it lost to the owner's retention.
        on_changed: called once, from the thread, when the owner cut or replaced its log, or when the thread cannot go on.
        on_shown: called with the offset up to which the log is shown (bytes) and the greatest store time before it (ms).
        reload_topics: called now and then with the queues that have records; reads the owner's topics again.
        clock_millis: milliseconds since 1970.
    """

    def __init__(
        self,
        fs: FileSystem,
        files: OwnersFiles,
        directory: Path,
        followers: FollowerRegistry,
        on_changed: Callable[[StoreError], None],
        on_shown: Callable[[int, int], None],
        reload_topics: Callable[[list[tuple[str, int]]], None],
        clock_millis: Callable[[], int],
    ) -> None:
        self._fs = fs
        self._files = files
        self._directory = directory
        self._followers = followers
        self._on_changed = on_changed
        self._on_shown = on_shown
        self._reload_topics = reload_topics
        self._clock_millis = clock_millis
        self._lock = OwnerLock(directory / "lock")
        self._is_held = False
        self._watch = LogWatch(files, WatchedLog(0))
        self._moved = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: StoreError | None = None
        self._shown_offset = 0
        self._saved_offset = -1
        self._problem = self._told_damage = ""
        self._events: tuple[RetentionEvent, ...] = ()

    def hold(self) -> None:
        """Takes the lock of the derived files, unless it is held; StoreLockedError when another process has it."""
        if not self._is_held:
            self._lock.acquire()
            self._is_held = True

    def open(self, progress: RecoveryProgress) -> RecoveredLog:
        """Walks the log to where it ends now; from the snapshot on, if the log still agrees with it.

        Raises:
            LogChangedError: the owner cut the log meanwhile.
            UnsupportedStoreError: this process may not read the log.
        """
        try:
            self._files.load()
        except PermissionError as error:
            raise UnsupportedStoreError(
                f"{error.filename} cannot be read: run this service as the broker's user, or let it read the broker's files",
                directory=self._files.directory,
            ) from error
        snapshot = read_snapshot(self._fs, self._directory, self._files)
        known = WatchedLog(self._files.first_offset)
        if snapshot is not None:
            known = WatchedLog(
                snapshot.commit_log_offset,
                snapshot.last_record,
                snapshot.last_store_time_millis,
                snapshot.queue_offsets,
                dict(snapshot.batch_topics),
            )
        begin_offset = known.end_offset
        progress.begin_offset = progress.next_offset = begin_offset

        def shown(offset: int) -> None:
            progress.next_offset, progress.end_offset = offset, self._files.last_offset
            progress.record_count = self._watch.record_count
            self._see_shown(offset)

        self._watch = LogWatch(self._files, known, shown, self._see_removed)
        self._see_shown(begin_offset)
        self._watch.look()
        while not self._watch.is_at_end and not self._stopping.wait(BUSY_SECONDS):
            self._watch.look()
        if not self._stopping.wait(BUSY_SECONDS):
            self._watch.look()  # what the last look found has settled
        log = self._watch.log
        return RecoveredLog(
            end_offset=self._shown_offset,
            queue_offsets=dict(log.queue_offsets),
            last_record=log.last_record,
            last_store_time_millis=log.last_store_time_millis,
            walked_from_offset=begin_offset,
            record_count=self._watch.record_count,
            batch_topics=dict(log.batch_topics),
        )

    def start(self) -> None:
        """Follows the log from now on."""
        self._thread = threading.Thread(target=self._run, name="commitlog-follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, writes the snapshot and releases the lock."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            if self._failure is None:
                self._save()
        with self._moved:
            self._moved.notify_all()
        self._lock.release()
        self._is_held = False

    # -- what may be shown; see confirm_offset.FlushProgress

    @property
    def flushed_offset(self) -> int:
        """Everything before it is whole (bytes). Whether it is on the disk is its owner's promise."""
        return self._shown_offset

    def wait_beyond(self, offset: int, timeout_seconds: float) -> int:
        """The offset up to which the log is shown, as soon as it is greater than `offset`, at the latest after the timeout.

        Raises:
            StoreCorruptedError: the log is damaged at `offset`, so nothing comes behind it.
            LogChangedError: the owner cut the log.
        """
        with self._moved:
            self._moved.wait_for(
                lambda: self._shown_offset > offset or self._stopping.is_set() or self._error_at(offset) is not None,
                timeout_seconds,
            )
            error = self._error_at(offset)
        if error is not None:
            again = type(error)(error.message)
            again.metadata = dict(error.metadata)
            raise again
        return self._shown_offset

    def _error_at(self, offset: int) -> StoreError | None:
        return self._failure or (self._watch.damage if offset >= self._shown_offset else None)

    # -- status

    @property
    def problem(self) -> str:
        """The problem and what to do; empty when there is none."""
        damage = self._watch.damage
        return damage.message if damage is not None else self._problem

    @property
    def lag_bytes(self) -> int:
        """The bytes that the owner has written, as far as known, and that are not shown yet."""
        return max(0, self._watch.known_end_offset - self._shown_offset)

    @property
    def lag_millis(self) -> int:
        """How old the newest record is that is shown, while something is not shown; else 0 (ms)."""
        newest_millis = self._watch.log.last_store_time_millis
        if not self.lag_bytes or not newest_millis:
            return 0
        return max(0, self._clock_millis() - newest_millis)

    @property
    def retention_events(self) -> tuple[RetentionEvent, ...]:
        """The files that the owner removed since the start, oldest first."""
        return self._events

    # -- the thread

    def _run(self) -> None:
        try:
            self._follow()
        except LogChangedError as error:
            self._fail(error)
        except Exception as error:  # nobody else notices that this thread has ended: the lag would be 0 for ever
            _log.exception("log.follow_failed")
            self._fail(
                ServiceUnavailableError(
                    f"the log in {self._files.directory} is not followed any more ({error!r}): the process starts again",
                    service="commitlog",
                )
            )

    def _follow(self) -> None:
        pause_seconds = BUSY_SECONDS
        save_at = topics_at = time.monotonic()
        while not self._stopping.wait(pause_seconds):
            try:
                is_busy = self._watch.look()
                self._tell_problem("")
            except LogChangedError:
                raise
            except (OSError, StoreError) as error:
                is_busy = False
                self._tell_problem(f"the log in {self._files.directory} cannot be read ({error}): it is tried again")
            self._tell_damage()
            pause_seconds = BUSY_SECONDS if is_busy else min(2 * pause_seconds, IDLE_SECONDS)
            now = time.monotonic()
            if now >= topics_at:
                topics_at = now + TOPICS_SECONDS
                self.read_topics()
            if now >= save_at:
                save_at = now + SNAPSHOT_SECONDS
                self._save()

    def _fail(self, error: StoreError) -> None:
        with self._moved:
            self._failure = error
            self._problem = error.message
            self._moved.notify_all()
        self._on_changed(error)

    def _tell_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("log.not_followed", error=problem)
        self._problem = problem

    def _tell_damage(self) -> None:
        damage = self._watch.damage
        if damage is not None and damage.message != self._told_damage:
            _log.error("log.damaged", **failure_fields(damage))
            with self._moved:
                self._moved.notify_all()
        elif damage is None and self._told_damage:
            _log.info("log.damage_gone", offset=self._shown_offset)
        self._told_damage = damage.message if damage is not None else ""

    def _see_shown(self, offset: int) -> None:
        with self._moved:
            self._shown_offset = offset
            self._on_shown(offset, self._watch.log.last_store_time_millis)
            self._moved.notify_all()

    def _see_removed(self, begin_offset: int, end_offset: int, file_count: int) -> None:
        lost = {name: needed for name, needed in self._followers.needed_offsets().items() if 0 < needed < end_offset}
        event = RetentionEvent(self._clock_millis(), begin_offset, end_offset, file_count, OWNER, lost)
        self._events = add_event(self._events, event)
        _log.info(
            "log.removed_by_owner", begin_offset=begin_offset, end_offset=end_offset, file_count=file_count, lost=lost
        )

    def read_topics(self) -> None:
        """Reads the owner's topics again; those that are known stay when its file cannot be read now."""
        with contextlib.suppress(StoreError, OSError):  # a broker writes the file in place: next time it is whole
            self._reload_topics(list(self._watch.log.queue_offsets))

    def _save(self) -> None:
        log = self._watch.log
        if log.last_record is None or log.end_offset == self._saved_offset:
            return
        try:
            self._write_snapshot(log, log.last_record)
        except (OSError, StoreError) as error:  # it only saves the next start a walk
            _log.warning("snapshot.not_written", error=str(error))

    def _write_snapshot(self, log: WatchedLog, last_record: tuple[int, int]) -> None:
        offset, size_bytes = last_record
        data = self._files.read(offset, size_bytes)
        if offset + size_bytes != log.end_offset or len(data) != size_bytes:
            return  # a blank follows the record; the next snapshot is behind it
        snapshot = Snapshot(
            log.end_offset,
            self._files.first_offset,
            last_record,
            zlib.crc32(data),
            log.last_store_time_millis,
            log.queue_offsets,
            log.batch_topics,
        )
        self._fs.mkdirs(self._directory)
        write_snapshot(self._fs, self._directory, snapshot)
        self._saved_offset = log.end_offset
