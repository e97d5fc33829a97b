"""Reput: the data that followers need of each confirmed record, in log order, without end.

Nothing behind the confirm offset is shown (confirm_offset.py): a queue must never point at a record that a power cut, or
another leader, could still remove. The receiver keeps its own place; the same records may be shown again.

A receiver may be slow. So a stream keeps only its offset between batches, no batch and no open file, and a batch is small
enough for every possible stream to hold one (services/serving/lanes.py).

A batch is a list of requests, or columns for receivers that take them (`column_batches.py`); columns cost a fraction.

A batch costs each follower far more than a record: threads of three processes wake for it. So what comes soon after a batch
is gathered (`gather_seconds`), while the first batch after a pause goes out at once.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from commitlog_svc.confirm_offset import ConfirmProgress
from services.following.follower_progress import END_UNKNOWN
from store.derive.dispatch import DispatchRequest
from store.errors import OffsetOutOfRangeError, RecordCorruptedError
from store.files.mapped_files import MappedFile, MappedFileQueue
from store.format.record_layout import BLANK_SIZE_BYTES
from store.walk.checks import DispatchCheck
from store.walk.cursor import OneFile, RecordCursor

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

BATCH_BYTES_MAX = 4 << 20
# A request takes about 1 KiB as objects, and several followers may fill a batch at the same time.
BATCH_REQUEST_COUNT_MAX = 4096
READ_BYTES = 1 << 20  # bytes of log read at once; only a batch of one large record is larger
# Limit of an answer. For a receiver that does not read we hold about four times as much (bytes, gRPC's copy, heap gaps).
ANSWER_BYTES_MAX = 256 << 10
REQUEST_OVERHEAD_BYTES = 96  # bytes of a request in an answer, without its texts
LIGHT_PLACE_OVERHEAD_BYTES = 16  # likewise of a place in a light queue, without the queue's name
HEARTBEAT_SECONDS = 1.0
# After a batch of so many bytes of log, about a dozen records of 1 KiB, the next one waits for so long: a query waits 50 ms
# for builders (ADR 0045), and a consumer must not notice it. After a smaller one it is shorter: messages that are flushed one
# by one would cost each follower a batch each, which all take three times the CPU of the append (ADR 0141). Messages at a low
# rate are never gathered.
GATHER_BYTES_MIN = 16 << 10
GATHER_SECONDS, SMALL_GATHER_SECONDS = 0.01, 0.004
# Of a copy that does not lead, after every batch: nobody appends or consumes there. Where somebody reads it, a query still
# finds its builders within the 50 ms. What is gathered when it begins to lead is shown at once (ADR 0170).
COPY_GATHER_SECONDS, READ_COPY_GATHER_SECONDS = 0.1, 0.025
READ_SECONDS = 10.0  # a copy counts as read for so long after a reader has waited for its followers
GATHER_SECONDS_MAX = HEARTBEAT_SECONDS  # what a receiver may ask for


@dataclass(frozen=True, slots=True)
class ReputBatch:
    """Some records, as requests or as columns, the offset behind them, and the log's bounds (bytes, END_UNKNOWN)."""

    requests: list[DispatchRequest]
    next_offset: int
    log_first_offset: int
    log_end_offset: int
    columns: "DispatchColumns | None" = None


# Arguments: offset, confirm offset, about how many bytes of log. Returns columns of records, and the offset behind them.
ReadColumns = Callable[[int, int, int], "tuple[DispatchColumns, int]"]


class Recovering(ConfirmProgress, Protocol):
    """The progress of a log that is being recovered: `recovery_feed.py`."""

    @property
    def is_over(self) -> bool:
        """Whether the log is recovered; StoreRecoveringError when it could not be."""


def gather_seconds(batch_bytes: int, *, is_copy: bool, is_read: bool = False, asked_seconds: float = 0.0) -> float:
    """How long a follower that has reached the end of the log waits for its next batch.

    Args:
        batch_bytes: of log, in the last batch.
        is_copy: whether the log is a replica that does not lead.
        is_read: whether somebody reads that replica.
        asked_seconds: what the follower asks for; it may be longer than that.
    """
    seconds = GATHER_SECONDS if batch_bytes >= GATHER_BYTES_MIN else SMALL_GATHER_SECONDS
    if is_copy:
        seconds = READ_COPY_GATHER_SECONDS if is_read else COPY_GATHER_SECONDS
    return max(seconds, asked_seconds)


class CopyPauses:
    """The pauses of the followers of a replica's log, which end early where somebody waits for them; thread-safe.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._wanted_offset = 0
        self._read_until = clock()

    @property
    def is_read(self) -> bool:
        """Whether somebody reads what the followers build."""
        return self._clock() < self._read_until

    def end(self, wanted_offset: int, *, is_read: bool) -> None:
        """End the pauses of all followers that lack something before an offset (bytes), now and before their next batch."""
        with self._changed:
            self._wanted_offset = max(self._wanted_offset, wanted_offset)
            if is_read:
                self._read_until = self._clock() + READ_SECONDS
            self._changed.notify_all()

    def take(self, seconds: float, offset: int) -> bool:
        """Pause for so long, as a follower that has everything before an offset (bytes); whether it was ended early."""
        with self._changed:
            return self._changed.wait_for(lambda: self._wanted_offset > offset, seconds)


@dataclass(frozen=True, slots=True)
class Gathering:
    """How batches are gathered.

    Attributes:
        is_copy: whether the log is a replica that does not lead.
        clock: seconds, rising.
        sleep: takes seconds.
        asked_seconds: what the receiver of a stream asks for.
        pauses: of a log with replicas; None: nothing ends a pause.
    """

    is_copy: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    asked_seconds: float = 0.0
    pauses: CopyPauses | None = None


class LogFollower:
    """Batches from an offset on; made by `follow_log`."""

    def __init__(
        self,
        files: MappedFileQueue,
        confirm: ConfirmProgress,
        start_offset: int,
        batch_bytes_max: int,
        read_columns: ReadColumns | None = None,
        recovering: Recovering | None = None,
        gathering: Gathering = Gathering(),  # it never changes
    ) -> None:
        self._recovering = recovering
        self._gathering = gathering
        self._next_at: float | None = None  # when the next batch may be given; None: at once
        self._files = files
        self._read_columns = read_columns
        self._confirm = confirm
        self._offset = start_offset
        self._batch_bytes_max = batch_bytes_max
        # A follower that begins at the end has caught up; an empty batch says so now, not a heartbeat later.
        self._is_end_news = recovering is None

    def __iter__(self) -> Iterator[ReputBatch]:
        return self

    def __next__(self) -> ReputBatch:
        if self._next_at is not None:
            seconds = self._next_at - self._gathering.clock()
            if seconds > 0:
                # No wait for the confirm offset: each of its moves would wake this thread.
                if self._gathering.pauses is None:
                    self._gathering.sleep(seconds)
                else:
                    self._gathering.pauses.take(seconds, self._offset)
            self._next_at = None
        confirm = self._confirm
        if self._recovering is not None:
            if self._recovering.is_over:
                self._recovering, self._is_end_news = None, True
            else:
                confirm = self._recovering
        confirm_offset = confirm.confirm_offset
        if self._offset >= confirm_offset and not self._is_end_news:
            confirm_offset = confirm.wait_beyond(self._offset, HEARTBEAT_SECONDS)
        self._is_end_news = False
        requests: list[DispatchRequest] = []
        columns = None
        begin_offset = self._offset
        if self._offset < confirm_offset:
            if self._read_columns is not None:
                columns, self._offset = self._read_columns(self._offset, confirm_offset, self._batch_bytes_max)
            else:
                requests, self._offset = read_batch(self._files, self._offset, confirm_offset, self._batch_bytes_max)
        end_offset = confirm_offset if self._recovering is None else END_UNKNOWN
        if begin_offset < self._offset == end_offset:
            seconds = gather_seconds(
                self._offset - begin_offset,
                is_copy=self._gathering.is_copy(),
                is_read=self._gathering.pauses is not None and self._gathering.pauses.is_read,
                asked_seconds=self._gathering.asked_seconds,
            )
            self._next_at = self._gathering.clock() + seconds
        return ReputBatch(requests, self._offset, self._files.first_offset, end_offset, columns)


def follow_log(
    files: MappedFileQueue,
    confirm: ConfirmProgress,
    start_offset: int,
    batch_bytes_max: int,
    read_columns: ReadColumns | None = None,
    recovering: Recovering | None = None,
    gathering: Gathering = Gathering(),  # it never changes
) -> Iterator[ReputBatch]:
    """Batches from `start_offset` (a record's or blank's start) on; an empty one when nothing came for a second, or at
    once when the log ends there. What comes soon after a batch is gathered.

    With `read_columns` they are columns, else requests. `recovering` is used instead of `confirm` until it is over.

    Raises:
        OffsetOutOfRangeError: retention removed the next record before it was shown.
        RecordCorruptedError: a record on the way is damaged.
        StoreRecoveringError: the log could not be recovered.
    """
    return LogFollower(files, confirm, start_offset, batch_bytes_max, read_columns, recovering, gathering)


def find_file(files: MappedFileQueue, offset: int, end_offset: int) -> MappedFile:
    """The file that holds the next record of a follower; errors as `follow_log`."""
    file = files.find(offset)
    if file is None and offset < files.first_offset:
        raise OffsetOutOfRangeError(
            f"commit-log offset {offset} was removed by retention; the log now begins at {files.first_offset}",
            offset=offset,
            firstOffset=files.first_offset,
            lastOffset=end_offset,
        )
    if file is None:
        raise RecordCorruptedError(f"no log file holds offset {offset}", commitLogOffset=offset)
    return file


def read_batch(
    files: MappedFileQueue, offset: int, end_offset: int, batch_bytes_max: int
) -> tuple[list[DispatchRequest], int]:
    """Records from `offset` on, about `batch_bytes_max` bytes of log, at least one; and the offset behind them.

    Raises:
        OffsetOutOfRangeError, RecordCorruptedError: as `follow_log`.
    """
    file = find_file(files, offset, end_offset)
    # Fewer bytes than a blank's header would show neither a blank nor the size of a record.
    piece_bytes = min(max(batch_bytes_max, BLANK_SIZE_BYTES), READ_BYTES)
    # First within the batch's limit; a record that is larger makes a batch of its own.
    for limit in (min(end_offset, offset + piece_bytes), end_offset):
        cursor = RecordCursor(OneFile(file), offset, DispatchCheck(), end_offset=limit, piece_bytes=piece_bytes)
        requests: list[DispatchRequest] = []
        answer_bytes = 0
        for request in cursor:
            requests.append(request)
            answer_bytes += _answer_bytes(request)
            if (
                len(requests) == BATCH_REQUEST_COUNT_MAX
                or answer_bytes >= ANSWER_BYTES_MAX
                or cursor.offset >= offset + piece_bytes
            ):
                break
        if cursor.offset > offset:
            return requests, cursor.offset
    raise cursor.damage


def _answer_bytes(request: DispatchRequest) -> int:
    texts = len(request.topic) + len(request.unique_key) + sum(map(len, request.keys)) + 2 * len(request.keys)
    of_light_places = sum(len(place.queue) + LIGHT_PLACE_OVERHEAD_BYTES for place in request.light_places)
    return texts + of_light_places + REQUEST_OVERHEAD_BYTES
