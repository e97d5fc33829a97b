"""Life: one life of the service between two reads of its state from the log, and what each kind of waiting messages is to it.

Rules:
- `lock` is held while the state of a kind is changed and its changes are submitted, so memory and log have the same order.
  Nothing that waits is called under it.
- What happens to a message and the change that says so are one request: `change`. A kind whose records say themselves what is
  done, as the verdicts of transactions do, submits records without changes.
- When the writer breaks, this life is over: `refuse_if_over` raises, and the next life reads the state from the log. Whatever a
  kind has in memory is thrown away.

A kind (`WaitingKind`) is asked for everything by the follower (`follower.py`):
- `begin`, before the log is followed: the queues hold everything before the begin of the life. It may read and take its time.
- `work`, by a thread of its own (Worker): does what is due, a request or a few, and says when it wants to be called next.
  It is called at once when the log has new records of its topics. It reads the records of its topics by `reader`:
  `reader.recent.end(topic, queue_id)` is the end of a queue, `reader.units` and `reader.records` read it.
- `pieces`, under `lock`: what a full state says of it.
- `needed_offset`: retention waits for it.

Worker: calls a kind's `work` in a thread of its own, when it is due and when the log has new records for it.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

import structlog
from google.protobuf.message import Message

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult
from reput.schedule.v1 import state_pb2
from services.following.state_topic.state_writer import OnWritten, StateWriter
from services.following.store_clock import DueClock
from services.reading.queue_reader import Reader
from store.errors import ServiceUnavailableError, StoreError, StoreReadOnlyError, failure_fields

Append = Callable[[Sequence[InternalRecord]], Sequence[AppendResult]]

# Of a kind that needs no record of the log.
NOTHING_NEEDED = 1 << 62
# When there is nothing to do (ms since 1970).
NEVER_MILLIS = 1 << 62


class WaitingKind(Protocol):
    """A kind of messages that wait. Its methods are called by one thread each; several at the same time.

    Attributes:
        name: of its thread, and in log lines.
        topics: where its records are.
    """

    name: str
    topics: frozenset[str]

    def begin(self) -> None:
        """Get ready; also on a store that is only read, where `work` keeps up with the log and appends nothing."""

    def work(self) -> int:
        """Do what is due now.

        Returns:
            When it wants to be called next (ms since 1970, by the clock of the life); one that is past: at once.

        Raises:
            StoreError: something failed; it is called again after a pause, while the life lasts.
        """

    def has_state(self) -> bool:
        """Whether the log must keep anything of its state: a change was written, now or in an earlier life."""

    def pieces(self) -> Iterable[state_pb2.FullState]:
        """The records of the full state for this kind, now; the caller holds the lock of the life."""

    def needed_offset(self) -> int:
        """The first byte of the log that it still needs; NOTHING_NEEDED: none."""

    def stop(self, *, is_clean: bool) -> None:
        """The life ends; `work` is not called any more. `is_clean`: files may be written that make the next start quick."""


class KindWithoutState:
    """The answers of a WaitingKind that keeps nothing in the state topic, and needs no record of the log unless it says so."""

    def has_state(self) -> bool:
        """See WaitingKind."""
        return False

    def pieces(self) -> tuple[()]:
        """See WaitingKind."""
        return ()

    def needed_offset(self) -> int:
        """See WaitingKind."""
        return NOTHING_NEEDED


def read_only() -> StoreError:
    """The error of a change on a store that is only read."""
    return StoreReadOnlyError("this store is only read: what waits in it stays as it is")


class Life:
    """See the top of this file.

    Args:
        writer: writes changes; None on a store that is only read.
        reader: reads units and records.
        clock: the time of the log.
        append: appends records atomically and at once, beside the changes; not on a store that is only read. A kind that uses
            it must call `fail` when it does not know whether something was written.

    Attributes:
        lock: see above.
        refusal: makes the error of every change in a life that only reads.
    """

    def __init__(
        self, writer: StateWriter | None, reader: Reader, clock: DueClock, append: Append | None = None
    ) -> None:
        self.append = append
        self.reader = reader
        self.clock = clock
        self.lock = threading.RLock()
        self.refusal: Callable[[], StoreError] = read_only
        self._writer = writer
        self._newest_change: Future[int] = Future()
        self._newest_change.set_result(-1)
        self._error: StoreError | None = None

    def fail(self, error: StoreError) -> None:
        """End this life: whether something was written is not known."""
        self._error = self._error or error

    @property
    def error(self) -> StoreError | None:
        """Why this life is over; None while it is not, and on a store that is only read."""
        return self._error or (self._writer.error if self._writer is not None else None)

    def refuse_if_over(self) -> None:
        """Raise StoreReadOnlyError, NotLeaderError or ServiceUnavailableError when nothing can be changed."""
        if self._writer is None:
            raise self.refusal()
        if self.error is not None:
            raise ServiceUnavailableError(
                f"the messages that wait are being read again: {self.error.message}; try again"
            )

    @property
    def is_read_only(self) -> bool:
        """Whether the store is only read."""
        return self._writer is None

    @property
    def is_over(self) -> bool:
        """Whether nothing can be changed any more."""
        return self._writer is None or self.error is not None

    def change(
        self,
        changes: Sequence[Message],
        records: Sequence[InternalRecord] = (),
        *,
        may_lose: bool = False,
        on_written: OnWritten | None = None,
    ) -> "Future[int]":
        """Have records appended, with the changes that belong to them, as one atomic request; the caller holds `lock`.

        Args:
            changes: `reput.schedule.v1.Change`, already applied in memory; may be empty.
            records: at most 1,000, at most 4 MiB of bodies unless it is one.
            may_lose: a power cut may lose records and changes together: they are answered before a flush.
            on_written: called when the changes are written, with the records that the log refuses.

        Returns:
            Done when they are in the log; see StateWriter.submit.
        """
        assert self._writer is not None
        self._newest_change = self._writer.submit(changes, records, may_lose=may_lose, on_written=on_written)
        return self._newest_change

    def newest_change(self) -> "Future[int]":
        """Done when all changes that were submitted so far are in the log, with the offset of the last request (bytes)."""
        return self._newest_change

    def newest_write(self) -> "Future[int]":
        """Done when everything that was submitted so far is in the log."""
        assert self._writer is not None
        return self._writer.newest()

    def write_full(self, kinds: Sequence[WaitingKind]) -> "Future[int]":
        """Have the full state written."""
        assert self._writer is not None
        with self.lock:
            return self._writer.submit_full([piece for kind in kinds for piece in kind.pieces()])


# The wall may jump forward while a worker waits: it looks again so often.
WAIT_SECONDS_MAX = 0.5
# What failed is tried again after this time.
AGAIN_SECONDS = 1.0

_log = structlog.get_logger("reput.schedule")


class Worker:
    """See the top of this file.

    Args:
        life: whose kind it is.
        kind: what works.
    """

    def __init__(self, life: Life, kind: WaitingKind) -> None:
        self.kind = kind
        self._life = life
        self._changed = threading.Condition()
        self._is_noted = False
        self._is_closed = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=f"schedule-{kind.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def note(self) -> None:
        """Have `work` called at once."""
        with self._changed:
            self._is_noted = True
            self._changed.notify()

    def close(self) -> None:
        """End, after the call of `work` that is under way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closed:
            with self._changed:
                self._is_noted = False
            seconds = self._work()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_noted or self._is_closed, max(0.0, min(seconds, WAIT_SECONDS_MAX))
                )

    def _work(self) -> float:
        """Have it work; seconds until the next time."""
        try:
            next_millis = self.kind.work()
        except StoreError as error:
            if not self._is_over() and error.message != self._problem:
                self._problem = error.message
                _log.warning("work.failed", **failure_fields(error, kind=self.kind.name))
            return self._pause()
        except Exception:
            _log.exception("work.failed", kind=self.kind.name)  # without this thread nothing would be delivered again
            return self._pause()
        self._problem = ""
        return (next_millis - self._life.clock.millis()) / 1000

    def _is_over(self) -> bool:
        return self._life.is_over and not self._life.is_read_only

    def _pause(self) -> float:
        """Wait, whatever the log has."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, AGAIN_SECONDS)
        return 0.0
