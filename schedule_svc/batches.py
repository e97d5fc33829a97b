"""Waiting messages on their way out of the log and into it again: read, and ended, a batch at a time.

BatchReader reads waiting messages whole, as many at a time as one request to the log can append.

log_skipped says which waiting messages are not delivered and why: each has its line in the log of the service.

EndedBatch: the messages that one request ends. Each is appended, or skipped.

They are counted, and those that are skipped are named, when the request is in the log. What a kill loses before that is ended
again by the next life, and counted there. A power cut may take back what was counted, where the request was answered before a
flush (`may_lose`): then it is ended again, too.

UnderWay: the requests of one kind that the log has not answered yet. Their messages wait still: a kill may lose them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import structlog

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.life import NEVER_MILLIS, NOTHING_NEEDED
from services.calling.commitlog import FILE_READ_BYTES_MAX, CommitLogClient
from services.following.state_topic.state_writer import wait_for
from services.reading.queue_reader import ANSWER_BODY_BYTES_MAX, CALL_SECONDS, Outcome, Reader, is_removed
from store.errors import RecordCorruptedError, StoreError, UnsupportedStoreError
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import REAL_TOPIC
from store.format.topic import RETRY_OR_DLQ_TOPIC_LENGTH_MAX

UNUSABLE = "its record does not say where it belongs"
REMOVED = "retention removed their records"

_log = structlog.get_logger("reput.schedule")


def log_skipped(kind: str, queue_offset: int, commit_log_offset: int, topic: str | None, why: StoreError | str) -> None:
    """Say that a message is skipped.

    Args:
        kind: of waiting messages: level, timer, transaction, recall.
        queue_offset: its position in the system topic.
        commit_log_offset: of the record that waited (bytes).
        topic: where it belongs; None: not known, and left out.
        why: the error, or a text.
    """
    known = {} if topic is None else {"topic": topic}
    reason = why if isinstance(why, str) else why.message
    _log.warning(
        f"{kind}.skipped", queue_offset=queue_offset, commit_log_offset=commit_log_offset, **known, reason=reason
    )


def log_removed(kind: str, queue_offset: int, message_count: int) -> None:
    """Say that so many messages, from a position in the system topic on, are skipped because their records are removed."""
    _log.warning(f"{kind}.skipped", queue_offset=queue_offset, message_count=message_count, reason=REMOVED)


def real_topic_of(message: StoredMessage) -> str | None:
    """The topic that a waiting message was sent to, by its record; None when that has none. No longer than a topic can be."""
    return message.properties.get(REAL_TOPIC, "")[:RETRY_OR_DLQ_TOPIC_LENGTH_MAX] or None


# Messages of a request, which has the record of the state, too: AppendInternal takes 1,024.
BATCH_COUNT_MAX = 1_000
# Their records: an answer and a request have 4 MiB of bodies at most. Sends are appended between two requests.
BATCH_BYTES_MAX = 3 << 20


def is_lost(error: StoreError) -> bool:
    """Whether a record will never be read, or is too large for any request."""
    return is_removed(error) or isinstance(error, RecordCorruptedError | UnsupportedStoreError)


class BatchReader:
    """Reads records; one that is larger than an answer by a call of its own.

    Args:
        reader: reads records.
        commitlog: the client for headers.
        bytes_max: of the records of a batch, if that is less than BATCH_BYTES_MAX.
    """

    def __init__(self, reader: Reader, commitlog: CommitLogClient, bytes_max: int = BATCH_BYTES_MAX) -> None:
        self._reader = reader
        self._commitlog = commitlog
        self._bytes_max = bytes_max

    def fitting_count(self, sizes_bytes: Sequence[int]) -> int:
        """How many of some records, the first ones, are one batch: at least 1."""
        bytes_max = min(self._bytes_max, BATCH_BYTES_MAX)
        total_bytes = 0
        for count, size_bytes in enumerate(sizes_bytes[:BATCH_COUNT_MAX]):
            total_bytes += size_bytes
            if total_bytes > bytes_max and count:
                return count
        return min(len(sizes_bytes), BATCH_COUNT_MAX)

    def read(self, units: Sequence[QueueUnit]) -> Sequence[Outcome]:
        """The records of the units of one batch, whole."""
        outcomes: list[Outcome] = []
        for part in _parts(units):
            outcomes += self._reader.records(part, ANSWER_BODY_BYTES_MAX)
        for place, outcome in enumerate(outcomes):
            if not isinstance(outcome, StoreError) and outcome.body_omitted:
                outcomes[place] = self._reader.whole(outcome)
        return outcomes

    def read_headers(self, units: Sequence[QueueUnit]) -> Sequence[Outcome]:
        """The records of units without their bodies."""
        offsets = [unit.commit_log_offset for unit in units]
        return self._commitlog.get_many(offsets, omit_bodies=True, timeout_seconds=CALL_SECONDS)


def _parts(units: Sequence[QueueUnit]) -> Iterator[Sequence[QueueUnit]]:
    """The units in parts that are read from the files of the log, where that is possible: its service has other work."""
    begin = total_bytes = 0
    for at, unit in enumerate(units):
        total_bytes += unit.record_size_bytes
        if total_bytes > FILE_READ_BYTES_MAX and at > begin:
            yield units[begin:at]
            begin, total_bytes = at, unit.record_size_bytes
    if units:
        yield units[begin:]


class EndedBatch:
    """See the top of this file; filled by one thread before the request is submitted.

    Args:
        kind: of waiting messages, as events name it.
        count: told how many messages were appended, and how many are skipped; by the writer's thread.

    Attributes:
        records: what is appended.
    """

    def __init__(self, kind: str, count: Callable[[int, int], None]) -> None:
        self.records: list[InternalRecord] = []
        self._kind = kind
        self._count = count
        self._sources: list[StoredMessage] = []
        self._skipped: list[tuple[int, int, str | None, StoreError | str]] = []
        self._removed = (0, 0)

    def append(self, message: StoredMessage, record: InternalRecord) -> None:
        """A message ends by a record."""
        self.records.append(record)
        self._sources.append(message)

    def skip(self, queue_offset: int, commit_log_offset: int, outcome: Outcome) -> None:
        """The message at a position of the system topic is skipped: it cannot be read, or its record cannot be used."""
        if isinstance(outcome, StoreError):
            self._skipped.append((queue_offset, commit_log_offset, None, outcome))
        else:
            self._skipped.append((queue_offset, commit_log_offset, real_topic_of(outcome), UNUSABLE))

    def skip_removed(self, queue_offset: int, message_count: int) -> None:
        """So many messages from a position on are skipped: retention removed them."""
        self._removed = (queue_offset, message_count)

    def on_written(self, refused: Sequence[tuple[int, StoreError]]) -> None:
        """The request is in the log; see StateWriter.submit."""
        for at, error in refused:
            message = self._sources[at]
            self._skipped.append((message.queue_offset, message.commit_log_offset, real_topic_of(message), error))
        self._count(len(self.records) - len(refused), len(self._skipped) + self._removed[1])
        if self._removed[1]:
            log_removed(self._kind, *self._removed)
        for skipped in self._skipped:
            log_skipped(self._kind, *skipped)


# The next request is read while one is written.
REQUEST_COUNT_MAX = 2


class _Request(NamedTuple):
    written: "Future[int]"
    message_count: int
    first_byte: int
    due_millis: int


class UnderWay:
    """See the top of this file; one thread adds and waits, any may ask."""

    def __init__(self) -> None:
        self._requests: deque[_Request] = deque()

    def wait_for_room(self) -> None:
        """Wait until another request may be submitted; errors as `wait_for`."""
        while len(self._requests) >= REQUEST_COUNT_MAX:
            wait_for(self._requests[0].written)
            self._requests.popleft()

    def add(self, written: "Future[int]", message_count: int, first_byte: int, due_millis: int) -> None:
        """A request was submitted.

        Args:
            written: done when it is in the log.
            message_count: messages that it ends.
            first_byte: the least offset of their records in the log (bytes).
            due_millis: when the first of them was due (ms since 1970).
        """
        self._requests.append(_Request(written, message_count, first_byte, due_millis))

    def message_count(self) -> int:
        """Their messages."""
        return sum(one.message_count for one in self._open())

    def needed_offset(self) -> int:
        """The first byte of the log that they need; NOTHING_NEEDED: none."""
        return min((one.first_byte for one in self._open()), default=NOTHING_NEEDED)

    def oldest_due_millis(self) -> int:
        """When the first of their messages was due; NEVER_MILLIS for none."""
        return min((one.due_millis for one in self._open()), default=NEVER_MILLIS)

    def _open(self) -> list[_Request]:
        return [one for one in self._requests.copy() if not one.written.done()]
