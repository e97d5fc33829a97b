"""Records by their offsets: what the log has dropped is read from the archive."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gateway.deadline import Deadline
from gateway.dropped import was_dropped
from gateway.ports import FoundRecord, RecordReader
from store.archive.archive_reader import ArchiveReader, missing_log
from store.errors import OffsetOutOfRangeError, StoreError
from store.format.record import Record

# Makes what queries look at of a record; the second argument leaves its body out.
FoundOf = Callable[[Record, bool], FoundRecord]


class ArchivedRecords:
    """RecordReader over log and archive."""

    def __init__(self, log: RecordReader, archive: ArchiveReader, found_of: FoundOf) -> None:
        self._log = log
        self._archive = archive
        self._found_of = found_of

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord:
        """See the port."""
        try:
            return self._log.get(commit_log_offset, deadline)
        except OffsetOutOfRangeError as error:
            if not was_dropped(error, commit_log_offset):
                raise
            return self._from_archive(commit_log_offset, error, omit_body=False)

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord | StoreError]:
        """See the port."""
        outcomes: list[FoundRecord | StoreError] = []
        omits_bodies = False
        for offset, live in zip(
            commit_log_offsets, self._log.get_many(commit_log_offsets, body_bytes_max, deadline), strict=False
        ):
            outcome = live
            if isinstance(live, OffsetOutOfRangeError) and was_dropped(live, offset):
                if outcomes and deadline.is_near():
                    break
                try:
                    outcome = self._from_archive(offset, live, omit_body=False)
                except StoreError as error:
                    outcome = error
                else:
                    omits_bodies = omits_bodies or outcome.body_size_bytes > body_bytes_max
                    if omits_bodies and outcome.body_size_bytes:
                        outcome = self._from_archive(offset, live, omit_body=True)
            if isinstance(outcome, FoundRecord):
                omits_bodies = omits_bodies or outcome.body_omitted
                body_bytes_max -= 0 if outcome.body_omitted else outcome.body_size_bytes
            outcomes.append(outcome)
        return outcomes

    def hole(self, deadline: Deadline) -> StoreError | None:
        """What says that the log has dropped more than was archived; None when the two meet."""
        end = self._archive.range()[1]
        answer = self._log.get_many([end], 1, deadline)[0]
        if not isinstance(answer, OffsetOutOfRangeError) or not was_dropped(answer, end):
            return None
        return missing_log(end, int(answer.metadata["firstOffset"]))

    def _from_archive(self, commit_log_offset: int, dropped: StoreError, *, omit_body: bool) -> FoundRecord:
        """The archived record; what the log said when the archive has never had it."""
        try:
            record = self._archive.record(commit_log_offset)
        except OffsetOutOfRangeError:
            raise dropped from None
        return replace(self._found_of(record, omit_body), is_archived=True)
