"""Reads waiting messages whole, a batch at a time: what one request to the log can append."""

from collections.abc import Iterator, Sequence

from services.calling.commitlog import FILE_READ_BYTES_MAX, CommitLogClient
from services.reading.queue_reader import ANSWER_BODY_BYTES_MAX, CALL_SECONDS, Outcome, Reader, is_removed
from store.errors import RecordCorruptedError, StoreError, UnsupportedStoreError
from store.format.derived.queue_unit import QueueUnit

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
