"""StateTopic: what differs between the services that keep their state in a topic, and the kinds of its records.

The tag of a record says its kind. The state is what the newest whole full state says, changed by every record behind it:

    ... change change full-begin full full full-end change change ...
                      └──────── read from here ──────────────────┘

StateWriter: writes changes of a service's state, and the messages that they move, to the log, in order.

Theory of operation: the state is changed in memory first and its changes are submitted in the same order (both under the
state's lock). One thread appends everything that was submitted while the append before was under way, as one atomic request:
the moved messages, and one state record with all changes. So a move and the change that says so are in the log together, and
the cost of a flush is shared. A caller is answered when its changes are in the log.

A request that the log refuses as it is was not written. Each submission is then tried alone, and one that says what is to be
done about it (`on_written`) goes without the records that the log refuses: one bad message must not stop the others.

An append that fails otherwise breaks the writer (`batch_writer.py`): memory and log may differ, and only the log counts. A
larger epoch keeps late appends of this life out (`FollowerFencedError`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import FLUSH_MODE_ASYNC, FLUSH_MODE_UNSPECIFIED, AppendResult, FlushMode
from services.following.batch_writer import BatchWriter
from store.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    InvalidMessageError,
    ServiceUnavailableError,
    StoreCorruptedError,
    StoreError,
)
from store.format.properties import TAGS

CHANGE, FULL_BEGIN, FULL, FULL_END = "change", "full-begin", "full", "full-end"
STATE_QUEUE = 0

State = TypeVar("State")


class StateRecord(Protocol):
    """A body: `epoch` says which life of the service wrote it; each life has a larger number."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StateTopic(Generic[State]):
    """A topic of states.

    Attributes:
        name: of the topic.
        follower: name of the service as a follower.
        new_state: makes an empty state.
        parse: a record of a body; DecodeError when it is none.
        change_body: the body of a record with changes, given the epoch and the changes.
        piece_body: the body of a piece of a full state, given the epoch and the piece; None: of the record that ends it.
        apply: applies a record to a state, given its kind; returns how many changes it had. Of a full state without an
            end it gets pieces only where retention removed what was before them.
        level_of: how much of a state the writer of a record knows.
        level: how much this release knows; 0: as much as any release.
    """

    name: str
    follower: str
    new_state: Callable[[], State]
    parse: Callable[[bytes], StateRecord]
    change_body: Callable[[int, Sequence[Any]], bytes]
    piece_body: Callable[[int, Any], bytes]
    apply: Callable[[State, str, Any], int]
    level_of: Callable[[Any], int] = lambda _record: 0
    level: int = 0

    def record_of(self, commit_log_offset: int, body: bytes) -> StateRecord:
        """The record of a body; StoreCorruptedError when it is none."""
        try:
            return self.parse(body)
        except DecodeError as error:
            raise StoreCorruptedError(
                f"the record at {commit_log_offset} of topic {self.name} is no state record: {error}",
                file=self.name,
                offset=commit_log_offset,
            ) from error


# What is appended together: below the limits of AppendInternal (1,024 records, 4 MiB).
REQUEST_RECORD_COUNT_MAX = 256
REQUEST_BYTES_MAX = 3 << 20
# Longest wait for the log; the caller is told that the outcome is not known.
WRITE_SECONDS_MAX = 10.0

# The log refuses these for what they are, before it writes anything.
REFUSALS = (InvalidArgumentError, InvalidMessageError)

Append = Callable[[Sequence[InternalRecord], FlushMode], Sequence[AppendResult]]
# Told which records were left out because the log refuses them: the place of each among those that were submitted, and why.
OnWritten = Callable[[Sequence[tuple[int, StoreError]]], None]


@dataclass(slots=True)
class _Submission:
    """The records that one caller wants written. `pieces`: the full state instead of changes."""

    changes: Sequence[Message]
    records: Sequence[InternalRecord]
    may_lose: bool
    on_written: OnWritten | None = None
    pieces: Iterable[Any] | None = None
    done: Future[int] = field(default_factory=Future)

    def size_bytes(self) -> int:
        return sum(one.ByteSize() for one in self.changes) + sum(record.ByteSize() for record in self.records)


class StateWriter(BatchWriter[_Submission]):
    """See the top of this file; thread-safe.

    Args:
        topic: where the state is.
        append: appends records atomically.
        epoch: of this life.
        on_broken: called once, by the writer's thread, when it broke.
        request_bytes_max: what is appended together, unless one submission is more.

    Attributes:
        full_offset: where the newest full state of this life begins in the log (bytes); -1 for none.
        changes_behind_full: changes that the log has behind the newest full state; its owner adds those of earlier lives.
        error: why it is broken; None while it works.
    """

    def __init__(
        self,
        topic: StateTopic[Any],
        append: Append,
        epoch: int,
        on_broken: Callable[[StoreError], None] = lambda _error: None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        self._request_bytes_max = min(request_bytes_max, REQUEST_BYTES_MAX)
        self.full_offset = -1
        self.changes_behind_full = 0
        self._topic = topic
        self._append = append
        self._epoch = epoch
        self._newest: Future[int] = Future()
        self._newest.set_result(-1)
        super().__init__(f"{topic.follower}-state-writer", "the state", on_broken)

    def submit(
        self,
        changes: Sequence[Message],
        records: Sequence[InternalRecord] = (),
        *,
        may_lose: bool = False,
        on_written: OnWritten | None = None,
    ) -> "Future[int]":
        """Have changes written, with the records that belong to them.

        Args:
            changes: already applied in memory; call it in that order. They are not changed any more.
            records: messages to append with them.
            may_lose: a power cut may lose them: they are answered before a flush.
            on_written: called when the changes are in the log, by the writer's thread, before what is returned is done; with
                the records without which they and the others were written, because the log refuses them. None: such a
                record breaks the writer.

        Returns:
            Done when they are in the log, with the log offset of the request's first record (bytes); it fails with
            ServiceUnavailableError when the writer is broken.
        """
        return self._submit(_Submission(changes, records, may_lose, on_written))

    def newest(self) -> "Future[int]":
        """Done when everything that was submitted so far is in the log; it fails as `submit` does."""
        with self._changed:
            if self.error is None:
                return self._newest
        failed: Future[int] = Future()
        failed.set_exception(self._broken(self.error))
        return failed

    def submit_full(self, pieces: Iterable[Any]) -> "Future[int]":
        """Have the full state written, as it is now; the caller holds the state's lock.

        The pieces are asked for by the writer's thread, without the lock.
        """
        return self._submit(_Submission((), (), may_lose=False, pieces=pieces))

    def _submit(self, submission: _Submission) -> "Future[int]":
        self._put(submission)
        return submission.done

    def _accepted(self, item: _Submission) -> None:
        self._newest = item.done

    def _take(self, submitted: "deque[_Submission]") -> list[_Submission]:
        """The submissions for one request; a full state is alone."""
        taken = [submitted.popleft()]
        if taken[0].pieces is not None:
            return taken
        count, size_bytes = len(taken[0].records), taken[0].size_bytes()
        while submitted and submitted[0].pieces is None:
            count += len(submitted[0].records) + 1
            size_bytes += submitted[0].size_bytes()
            if count > REQUEST_RECORD_COUNT_MAX or size_bytes > self._request_bytes_max:
                break
            taken.append(submitted.popleft())
        return taken

    def _write(self, taken: Sequence[_Submission]) -> None:
        if taken[0].pieces is not None:
            self._write_full(taken[0].pieces)
            taken[0].done.set_result(self.full_offset)
            return
        changes = [change for submission in taken for change in submission.changes]
        records = [record for submission in taken for record in submission.records]
        refused: Sequence[tuple[int, StoreError]] = ()
        flush = FLUSH_MODE_ASYNC if all(one.may_lose for one in taken) else FLUSH_MODE_UNSPECIFIED
        try:
            first_offset = self._append_with(changes, records, flush)
        except REFUSALS as error:
            if len(taken) > 1:
                for submission in taken:
                    self._write([submission])
                return
            first_offset, refused = self._append_without_refused(taken[0], flush, error)
        for submission in taken:
            if submission.on_written is not None:
                submission.on_written(refused)
            submission.done.set_result(first_offset)

    def _append_with(self, changes: Sequence[Message], records: Sequence[InternalRecord], flush: FlushMode) -> int:
        """Append records and their changes; where the first of them is in the log (bytes)."""
        if changes or not records:
            records = [*records, self._record(CHANGE, self._topic.change_body(self._epoch, changes))]
        results = self._append(records, flush)
        self.changes_behind_full += len(changes)
        return results[0].commit_log_offset

    def _append_without_refused(
        self, submission: _Submission, flush: FlushMode, error: StoreError
    ) -> tuple[int, list[tuple[int, StoreError]]]:
        """Append what the log takes of a submission, and say what it refuses; the error again when it takes none."""
        left = list(range(len(submission.records))) if submission.on_written is not None else []
        refused: list[tuple[int, StoreError]] = []
        while left:
            index = error.metadata.get("index", "")
            if index.isdecimal() and int(index) < len(left):
                place = int(index)
            else:  # together they are too large
                place = max(range(len(left)), key=lambda at: submission.records[left[at]].ByteSize())
            refused.append((left.pop(place), error))
            try:
                offset = self._append_with(submission.changes, [submission.records[at] for at in left], flush)
            except REFUSALS as again:
                error = again
                continue
            return offset, refused
        raise error

    def _write_full(self, pieces: Iterable[Any]) -> None:
        frame = self._topic.change_body(self._epoch, ())
        begin = self._append([self._record(FULL_BEGIN, frame)], FLUSH_MODE_UNSPECIFIED)
        for piece in pieces:
            body = self._topic.piece_body(self._epoch, piece)
            self._append([self._record(FULL, body)], FLUSH_MODE_UNSPECIFIED)
        end = self._topic.piece_body(self._epoch, None)
        self._append([self._record(FULL_END, end)], FLUSH_MODE_UNSPECIFIED)
        self.full_offset, self.changes_behind_full = begin[0].commit_log_offset, 0

    def _record(self, kind: str, body: bytes) -> InternalRecord:
        return InternalRecord(topic=self._topic.name, body=body, properties={TAGS: kind})

    def _broken(self, error: StoreError | None) -> ServiceUnavailableError:
        why = "it is stopping" if error is None else f"its state could not be written: {error.message}"
        return ServiceUnavailableError(
            f"the {self._topic.follower} service cannot change anything now: {why}; try again"
        )


def wait_for(written: "Future[int]") -> None:
    """Wait until changes are in the log.

    Raises:
        ServiceUnavailableError: they may not be.
        DeadlineExceededError: the log takes too long.
    """
    try:
        written.result(WRITE_SECONDS_MAX)
    except FutureTimeoutError as error:
        raise DeadlineExceededError(
            f"the log did not take a change within {WRITE_SECONDS_MAX:.0f} s: whether it is made is not known"
        ) from error
