"""Records by offset: a record that the log has dropped is read from the archive."""

from collections.abc import Callable, Sequence

from gateway.ports.chain import Answering
from gateway.ports.deadline import Deadline
from gateway.ports.shard import GET_RECORD, GET_RECORDS, body_size_bytes
from gateway.queries.dropped import was_dropped
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_ARCHIVE, StoredMessage
from store.archive.lookups import Lookups, missing_log
from store.errors import OffsetOutOfRangeError, StoreError
from store.format.record import Record

# Converts a decoded record; with True as the second argument, without its body.
FoundOf = Callable[[Record, bool], StoredMessage]


class ArchivedRecords:
    """The records of log and archive."""

    def __init__(self, archive: Lookups, found_of: FoundOf) -> None:
        self._archive = archive
        self._found_of = found_of

    def get(self, request: log_pb.GetMessageRequest, deadline: Deadline, below: Answering) -> StoredMessage:
        """GET_RECORD."""
        commit_log_offset = request.commit_log_offset
        try:
            return below(GET_RECORD, request, deadline)
        except OffsetOutOfRangeError as error:
            if not was_dropped(error, commit_log_offset):
                raise
            return self._from_archive(commit_log_offset, error, omit_body=False)

    def get_many(
        self, request: log_pb.BatchGetMessagesRequest, deadline: Deadline, below: Answering
    ) -> Sequence[StoredMessage | StoreError]:
        """GET_RECORDS. The answer ends before a record of the log whose body exceeds the rest of the limit."""
        outcomes: list[StoredMessage | StoreError] = []
        omits_bodies, body_bytes_max = False, request.body_bytes_max
        for offset, live in zip(request.commit_log_offsets, below(GET_RECORDS, request, deadline), strict=False):
            outcome = live
            if isinstance(live, OffsetOutOfRangeError) and was_dropped(live, offset):
                if outcomes and deadline.is_near():
                    break
                try:
                    outcome = self._from_archive(offset, live, omit_body=False)
                except StoreError as error:
                    outcome = error
                else:
                    omits_bodies = omits_bodies or body_size_bytes(outcome) > body_bytes_max
                    if omits_bodies and body_size_bytes(outcome):
                        outcome = self._from_archive(offset, live, omit_body=True)
            if not isinstance(outcome, StoreError):
                body_bytes = len(outcome.body)
                # The log was asked with the whole limit; archived bodies have used a part of it since.
                if body_bytes and (omits_bodies or body_bytes > body_bytes_max):
                    break
                omits_bodies = omits_bodies or outcome.body_omitted
                body_bytes_max -= body_bytes
            outcomes.append(outcome)
        return outcomes

    def hole(self, deadline: Deadline, below: Answering) -> StoreError | None:
        """The error when the log has dropped records that are not archived; None otherwise."""
        end = self._archive.range()[1]
        request = log_pb.BatchGetMessagesRequest(commit_log_offsets=[end], body_bytes_max=1)
        answer = below(GET_RECORDS, request, deadline)[0]
        if not isinstance(answer, OffsetOutOfRangeError) or not was_dropped(answer, end):
            return None
        return missing_log(end, int(answer.metadata["firstOffset"]))

    def _from_archive(self, commit_log_offset: int, dropped: StoreError, *, omit_body: bool) -> StoredMessage:
        """The archived record; the error of the log when the archive does not have it."""
        try:
            record = self._archive.record(commit_log_offset)
        except OffsetOutOfRangeError:
            raise dropped from None
        found = self._found_of(record, omit_body)
        found.source = MESSAGE_SOURCE_ARCHIVE
        return found
