"""FollowerProcess: the life of a service that derives files from the log and answers from them.

Theory of operation: `hold_part` takes the lock of the part, before the service listens. `run` waits for the commit log (a
follower without files waits only until the log's recovery has checked some records), and then runs life after life: open the
files (recovery), follow the log until something fails. A failed life is closed whole. No descriptor is used again, because a
second flush after a refused one returns OK without writing anything. Health turns NOT_SERVING, the failure is logged once with
file and offset, and after a growing pause the next life opens the files from their checkpoint. This goes on until the service
stops. Until the next life begins its recovery, the old files are served and marked as catching up.

    state         meaning                                                    health
    waiting       for the commit log, or for its stream                      as before
    recovering    the files are being opened                                 NOT_SERVING
    catching-up   the log as it was at the start is not yet applied          NOT_SERVING
    serving       the log as it was at the start is applied                  SERVING
    retrying      a life failed; `last_error` has the reason                 NOT_SERVING
    off           switched off; the existing files are served                SERVING

A failure counts until a checkpoint behind its place in the log is on the disk, because a life that always fails at the same
place makes no progress. A damaged record in the log stops the follower at its byte, with the same pauses.

A part that appends has lives by the role of its commit log (`follows_role`): a life is of one role, and of one epoch while the
log leads. When the role changes, the life is abandoned, without a failure and a pause, and the next one begins.
"""

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.backoff import Backoff
from services.calling.commitlog import CommitLogClient, ReputBatch
from services.convert import confirm_offset, millis_to_timestamp
from services.following.follower_progress import END_UNKNOWN, FollowerLag, FollowerProgress
from services.following.reput_tail import ReputTail
from services.replica_role import ReplicaRole, replica_role
from services.rpcs import commitlog as rpc
from store.errors import (
    DiskFullError,
    FlushFailedError,
    RecordCorruptedError,
    StoreCorruptedError,
    StoreError,
    StoreLockedError,
    UnsupportedStoreError,
    failure_fields,
)
from store.files.locks import OwnerLock, refuse_foreign_broker
from store.format.paths import own_state_dir
from store.format.topic import TOPIC_NAME_SHOWN

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

REPORT_SECONDS = 1.0
# As long as RocketMQ waits at its stop.
FINISH_SECONDS_MAX = 5.0
WAIT_SECONDS = 0.1
# The commit log is asked for its role so often: part of the time in which a new leader delivers nothing.
ROLE_SECONDS = 0.5
# How often a replica's log is told that somebody waits for what is built from it; it remembers that for twice as long.
SHOW_SECONDS = 5.0
# A life whose state is records of the log has written one to begin. If it goes on for this time, what had failed works again.
WELL_SECONDS = 1.0
# Writing resumes within 5 s of space coming back: at most this pause, and the time that opening the files takes.
DISK_FULL_PAUSE_SECONDS_MAX = 2.0
NO_ROOM_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
NO_ROOM_TEXTS = tuple(map(str, NO_ROOM_ERRNOS))
# Reported by a follower that is switched off: retention need not wait for it.
OFF_OFFSET = -1


@dataclass(frozen=True, slots=True)
class LogRange:
    """The log as far as it may be shown (bytes); its end is END_UNKNOWN while it is being recovered.

    Attributes:
        role: of the log among the replicas of its shard: only one that leads takes appends.
        hidden: topics whose queues are not served, because the store has them in a form that is not supported, with the reason.
        stopped_cleanly: whether the store was, before the commit log started.
    """

    first_offset: int
    end_offset: int
    role: ReplicaRole = field(default_factory=ReplicaRole)
    hidden: Mapping[str, str] = field(default_factory=dict)
    stopped_cleanly: bool = False


class LifeOverError(Exception):
    """This life is over, and nothing has failed: the next one begins at once."""


@dataclass(frozen=True, slots=True)
class FollowerState:
    """For GetStatus: the word of the state (see above), failures since the last success, and the text of the last failure."""

    state: str
    failure_count: int
    last_error: str


class Follower(Protocol):
    """Applies the records of the log, in order; services/following/following_builder.py is one for files."""

    def begin(self) -> None:
        """Note on the disk that the state may be ahead of its checkpoint."""

    def start_offset(self) -> int:
        """Where the tail shall begin (bytes; -1 = the log's first record)."""

    def apply(
        self, records: "DispatchColumns | None", next_offset: int, log_first_offset: int, log_end_offset: int
    ) -> bool:
        """Apply a batch; False when it was not taken and the log shall be followed anew from `start_offset`.

        Raises:
            LifeOverError: the next life shall begin.
        """

    def find_place(self, log_first_offset: int, log_end_offset: int) -> None:
        """Move to where following can go on: the log has no record at `start_offset`."""

    def pass_last_record(self) -> bool:
        """Begin behind the last record applied, which cannot be read any more; False when it did so before."""

    def stop(self) -> None:
        """Write the checkpoint and close everything."""

    def abandon(self) -> None:
        """Close everything as it is."""


class FollowerPart(Protocol):
    """The state that one follower derives, and the servicer that answers from it."""

    def check(self) -> None:
        """Raises UnsupportedStoreError when this store cannot be served."""

    def is_unbuilt(self) -> bool:
        """Whether there are no files and no checkpoint, so nothing has to be compared with the log's end."""

    def open(self, log: LogRange, *, drop_cache: bool) -> Follower:
        """Open and recover the files and answer from them; after an error nothing stays open.

        Args:
            log: its range now.
            drop_cache: a flush was refused before, so read from the disk and not from the page cache.
        """

    def shut(self) -> None:
        """Answer StoreRecoveringError until the next `open`."""


class FollowerProcess:
    """See the top of this file.

    Args:
        name: of the follower and of its part of the root, such as `index`.
        root: the store root.
        part: opens the files and serves them.
        client: of the commitlog service.
        progress: of the follower; shared with the part.
        set_serving: sets the answer of health checks.
        stopping: ends `run` when set; `stop` sets it.
        read_only: take no lock and report nothing.
        follows_role: the state is records of the log, so a life ends when the role of the commit log has changed.
        gather_millis: the pause between batches at the end of the log that is asked for; 0: what the commit log likes.
        open_unbuilt: given when the follower is switched off: it serves the existing files, and nothing is built.
        backoff: pauses between lives.
        wait: pauses for a number of seconds or until `stopping`; None for `stopping.wait`.
        clock: seconds, rising.
        on_settled: called each time that the files are open or could not be opened.

    Attributes:
        progress: as given.
        lag: the age of the oldest record that is not applied.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        part: FollowerPart,
        client: CommitLogClient,
        progress: FollowerProgress,
        set_serving: Callable[[bool], None],
        stopping: threading.Event,
        *,
        read_only: bool = False,
        follows_role: bool = False,
        gather_millis: int = 0,
        open_unbuilt: Callable[[], None] | None = None,
        backoff: Backoff | None = None,
        wait: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_settled: Callable[[], None] = lambda: None,
    ) -> None:
        self.progress = progress
        self.lag = FollowerLag(progress, clock)
        self._name = name
        self._root = root
        self._part = part
        self._client = client
        self._set_serving = set_serving
        self._stopping = stopping
        self._read_only = read_only
        self._follows_role = follows_role
        self._gather_millis = gather_millis
        self._role = ReplicaRole()
        self._role_at = 0.0
        self._show_at = 0.0
        self._opened_at = 0.0
        self._open_unbuilt = open_unbuilt
        self._backoff = backoff or Backoff()
        self._wait = wait or stopping.wait
        self._clock = clock
        self._on_settled = on_settled
        self._log = structlog.get_logger(f"reput.{name}")
        self._lock: OwnerLock | None = None
        self._follower: Follower | None = None
        self._tail: ReputTail | None = None
        self._phase = "waiting"
        self._waiting_for = ""
        self._failure_count = 0
        self._failed_at = -1
        self._last_error = ""
        self._log_is_damaged = False
        self._is_cache_doubtful = False
        self._was_open = False
        self._is_serving = False
        self._done = threading.Event()
        self._done.set()
        progress.on_wait = self._want_shown

    def state(self) -> FollowerState:
        """The state now."""
        tail = self._tail
        tail_error, tail_count = (tail.last_error, tail.failure_count) if tail is not None else ("", 0)
        word = self._phase
        if self._failure_count or self._log_is_damaged:
            word = "retrying"
        elif word == "following":
            word = "waiting" if tail_error else ("catching-up" if self.progress.catching_up else "serving")
        last_error = self._last_error or self._waiting_for or tail_error
        return FollowerState(word, self._failure_count + tail_count, last_error)

    def hold_part(self) -> None:
        """Take the lock of the part; StoreLockedError when another process has it.

        For before the service listens: a process that does not get the part must not answer for it.
        """
        if self._lock is None and not self._read_only:
            lock = OwnerLock(Path(own_state_dir(str(self._root), self._name)) / "lock")
            lock.acquire()
            self._lock = lock

    def run(self) -> None:
        """Follow until stopped.

        Raises:
            StoreLockedError, UnsupportedStoreError: at the start: another process owns the part, or it cannot be served.
        """
        self._done.clear()
        try:
            while not self._stopping.is_set():
                try:
                    self._live()
                except LifeOverError:
                    self.progress.stall()
                except (StoreLockedError, UnsupportedStoreError) as error:
                    if not self._was_open:
                        raise
                    self._fail(error)
                except Exception as error:
                    self._fail(error)
        finally:
            self._done.set()

    def stop(self) -> None:
        """End `run`, write the checkpoint and release the lock."""
        self._stopping.set()
        if self._tail is not None:
            self._tail.stop()
        self._done.wait()
        follower = self._follower
        if follower is not None:
            try:
                if not self._follows_role and not self._read_only:
                    self._finish(follower)
                follower.stop()
            except (StoreError, OSError) as error:
                # The checkpoint before it is valid: the next start goes on from there.
                self._log.warning("builder.not_stopped_cleanly", error=str(error))
            except LifeOverError:
                pass  # as well
            self._follower = None
        self._client.close()
        if self._lock is not None:
            self._lock.release()

    def _finish(self, follower: Follower) -> None:
        """Apply what the log got while its other callers stopped.

        A broker that opens the store dispatches only records that lie behind the end of the newest record in the queues, and
        so passes over the one that begins just there: its own stop waits for the dispatch, too. Source: `ReputMessageService`,
        `CommitLogDispatchStore` (RocketMQ 5.5.0), and a store that lost the position of a half message there.
        """
        deadline = self._clock() + FINISH_SECONDS_MAX
        try:
            stream = self._client.reput(follower.start_offset())
        except StoreError:
            return
        timer = threading.Timer(FINISH_SECONDS_MAX, stream.cancel)  # a log that hangs must not hold up the stop
        timer.daemon = True
        timer.start()
        try:
            batches = iter(stream)
            while self._clock() < deadline:
                try:
                    batch = next(batches)
                except StoreError as error:
                    self._log.info(
                        "builder.not_finished", error=error.message
                    )  # the log is away: the next start goes on
                    return
                if not self._apply(batch) or batch.next_offset >= batch.log_end_offset:
                    return
        except BaseException:
            with contextlib.suppress(StoreError, OSError):
                follower.abandon()
            raise
        finally:
            timer.cancel()
            stream.cancel()

    # -- one life

    def _live(self) -> None:
        log = self._wait_for_log()
        if log is None:
            return
        self._part.check()
        if not self._read_only and not self._was_open:
            refuse_foreign_broker(self._root)
        self.hold_part()
        self._phase = "recovering"
        if self._open_unbuilt is not None:
            self._live_switched_off(self._open_unbuilt)
            return
        self._part.shut()
        self._role, self._role_at = log.role, self._clock() + ROLE_SECONDS
        follower = self._part.open(log, drop_cache=self._is_cache_doubtful)
        self._was_open = True
        self._opened_at = self._clock()
        self._on_settled()
        self._follower = follower
        try:
            follower.begin()
            self._phase = "following"
            self._tail = ReputTail(
                self._client,
                follower.start_offset,
                self._apply,
                on_lost=self._find_place,
                on_broken=self._stream_broke,
                stop_event=self._stopping,
                while_recovering=log.end_offset == END_UNKNOWN,
                gather_millis=self._gather_millis,
                shares=True,
                gives=not self._follows_role,  # what appends does its other work between batches
                clock=self._clock,
            )
            self._tail.run()
        except BaseException:
            self._follower = self._tail = None
            with contextlib.suppress(StoreError, OSError):
                follower.abandon()
            raise

    def _live_switched_off(self, open_unbuilt: Callable[[], None]) -> None:
        open_unbuilt()
        self._was_open = True
        self._on_settled()
        self._phase = "off"
        self._failure_count, self._last_error = 0, ""
        self._serve(True)
        while not self._stopping.is_set():
            # Repeated, because a commit log forgets reports when it restarts.
            self._report(OFF_OFFSET, None)
            self._wait(REPORT_SECONDS)

    def _wait_for_log(self) -> LogRange | None:
        """The log's range when it can be followed; None when stopped before.

        A follower without files need not wait for the end of the log's recovery: it follows the records checked so far.
        """
        self._phase = "waiting"
        while not self._stopping.is_set():
            try:
                status = self._client.call(rpc.GET_STATUS, pb.GetStatusRequest(), REPORT_SECONDS)
            except StoreError as error:
                self._waiting_for = error.message
            else:
                if status.state != "recovering":
                    self._waiting_for = ""
                    return LogRange(
                        status.log_first_offset,
                        confirm_offset(status),
                        replica_role(status),
                        _hidden(status),
                        status.stopped_cleanly,
                    )
                if status.recovery.is_followable and self._open_unbuilt is None and self._part.is_unbuilt():
                    self._waiting_for = ""
                    return LogRange(
                        status.log_first_offset,
                        END_UNKNOWN,
                        replica_role(status),
                        _hidden(status),
                        status.stopped_cleanly,
                    )
                self._waiting_for = "the commit log is recovering"
            self._wait(WAIT_SECONDS)
        return None

    def _apply(self, batch: ReputBatch) -> bool:
        assert self._follower is not None
        self._end_life_of_another_role()
        taken = self._follower.apply(batch.columns, batch.next_offset, batch.log_first_offset, batch.log_end_offset)
        self.lag.note(batch.next_offset, batch.log_end_offset)
        self._log_is_damaged = False
        # Such a follower's reports say what it would have to read again, which may be far behind for hours.
        if self._follows_role and self._clock() >= self._opened_at + WELL_SECONDS:
            self._note_success(self.progress.next_offset)
        self._serve(not self._failure_count and not self.progress.catching_up)
        return taken

    def _want_shown(self) -> None:
        """Somebody waits for records, which a replica's log gathers for its followers while nobody does."""
        if self._role == ReplicaRole() or self._clock() < self._show_at:
            return
        self._show_at = self._clock() + SHOW_SECONDS
        with contextlib.suppress(StoreError):  # the stream says what is wrong
            self._client.call(rpc.GET_STATUS, pb.GetStatusRequest(flush_soon=True), REPORT_SECONDS)

    def _end_life_of_another_role(self) -> None:
        if not self._follows_role or self._clock() < self._role_at:
            return
        with contextlib.suppress(StoreError):  # the stream says what is wrong
            status = self._client.call(rpc.GET_STATUS, pb.GetStatusRequest(), REPORT_SECONDS)
            role = replica_role(status)
            if status.state != "recovering" and role != self._role:
                self._log.info("follower.role_changed", leads=role.leads, epoch=role.epoch)
                raise LifeOverError
        self._role_at = self._clock() + ROLE_SECONDS

    def flushed(self, next_offset: int, store_time_millis: int | None) -> None:
        """The follower's `on_flushed`: everything before that offset (bytes) is applied and on the disk."""
        self._note_success(next_offset)
        self._report(next_offset, store_time_millis)

    def _note_success(self, next_offset: int) -> None:
        """Forgets the last failure, if everything before that offset is done."""
        if self._failure_count and (next_offset > self._failed_at or next_offset >= self.progress.log_end_offset):
            self._log.info("builder.resumed", next_offset=next_offset, failure_count=self._failure_count)
            self._failure_count, self._failed_at, self._last_error = 0, -1, ""
            self._is_cache_doubtful = False
            self._backoff.reset()

    # -- failures

    def _fail(self, error: Exception) -> None:
        """Report the error that ended a life, and wait before the next one."""
        self._failure_count += 1
        self._failed_at = max(self._failed_at, self.progress.next_offset)
        self._is_cache_doubtful = self._is_cache_doubtful or isinstance(error, FlushFailedError)
        self.progress.stall()
        self._serve(False)
        words = error.message if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        if words != self._last_error:
            is_known = isinstance(error, StoreError | OSError)
            exc_info = None if is_known else error
            self._log.error("builder.failed", **failure_fields(error, offset=self._failed_at, exc_info=exc_info))
        self._last_error = words
        self._on_settled()
        self._wait(self._backoff.next_seconds(DISK_FULL_PAUSE_SECONDS_MAX if _is_no_room(error) else None))

    def _stream_broke(self, error: StoreError) -> None:
        self.progress.stall()
        if isinstance(error, RecordCorruptedError | StoreCorruptedError):
            assert self._follower is not None
            # It may be the last record applied, which was intact then: the records behind it can still be applied.
            if not self._follower.pass_last_record():
                self._log_is_damaged = True
                self._serve(False)

    def _find_place(self, error: StoreError) -> None:
        assert self._follower is not None
        status = self._client.call(rpc.GET_STATUS, pb.GetStatusRequest(), REPORT_SECONDS)
        self._follower.find_place(status.log_first_offset, confirm_offset(status))

    # -- reports

    def _serve(self, is_serving: bool) -> None:
        if is_serving != self._is_serving:
            self._is_serving = is_serving
            self._set_serving(is_serving)

    def _report(self, next_offset: int, store_time_millis: int | None) -> None:
        if not self._read_only:
            with contextlib.suppress(StoreError):
                request = pb.ReportProgressRequest(builder=self._name, next_offset=next_offset)
                if store_time_millis is not None:
                    request.store_time.CopyFrom(millis_to_timestamp(store_time_millis))
                self._client.call(rpc.REPORT_PROGRESS, request, REPORT_SECONDS)


def _hidden(status: pb.GetStatusResponse) -> dict[str, str]:
    return {
        topic: f"topic {topic[:TOPIC_NAME_SHOWN]}: {feature.text}"
        for feature in status.features
        if feature.hides_queues
        for topic in feature.where
    }


def _is_no_room(error: Exception) -> bool:
    """Whether the disk is full, so space may come back; a flush can be the first to notice it."""
    if isinstance(error, FlushFailedError):
        return error.metadata.get("errno") in NO_ROOM_TEXTS
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno in NO_ROOM_ERRNOS)
