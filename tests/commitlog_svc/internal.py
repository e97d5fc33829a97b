"""Records for AppendInternal, and the records of a log in order."""

from typing import Any

from commitlog_svc.append.records import AppendReceipt
from commitlog_svc.commit_log import CommitLog
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from store.format.record import Record
from tests.commitlog_svc.support import BORN_HOST


def internal_record(body: bytes = b"moved", topic: str = "orders", queue_id: int = 0, **fields: Any) -> InternalRecord:
    """A record that a service can append."""
    return InternalRecord(topic=topic, queue_id=queue_id, body=body, **fields)


def append_internal(log: CommitLog, *records: InternalRecord, sync: bool | None = True) -> list[AppendReceipt]:
    """Appends records in one request, by default waiting for the disk."""
    return log.opened.appends.append_internal(records, sync=sync, born_host=BORN_HOST)


def all_records(log: CommitLog) -> list[Record]:
    """Every record up to the flushed end, as a follower finds them."""
    records: list[Record] = []
    if log.status.first_offset >= log.status.flushed_offset:
        return records
    for batch in log.following.follow(-1, 0):
        records += [log.opened.reads.get(request.commit_log_offset) for request in batch.requests]
        if batch.next_offset >= log.status.flushed_offset:
            return records
    raise AssertionError("a follower ended")
