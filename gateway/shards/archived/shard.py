"""A shard with an archive: records that retention has dropped from the log are read from the archive.

Log and archive share one space of commit-log offsets, and every query goes down through it. So only these ports know of the
archive: they answer for both, and a page token with an offset is valid in both.

    archive   |-----------------------------------|          up to the last sealed log file
    log                           |--------------------|     from the first file that retention has left
              answered from the archive   answered from the log

Records that are still in the log are read from the log. A part of the archive that cannot be read is reported as a
`problem` beside the rest, which makes the answer PARTIAL. A query for one message that cannot be read raises that error.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    ARCHIVE_PROBLEM,
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    LIST_QUEUES,
    SEARCH_KEY,
    SEARCH_OFFSET,
    STATUSES,
    Shard,
    StatusRow,
)
from gateway.shards.archived.keys import search_both
from gateway.shards.archived.queues import ArchivedQueues
from gateway.shards.archived.records import ArchivedRecords, FoundOf
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.archive.lookups import Lookups
from store.errors import StoreError

SERVICE = "archive"


def with_archive(shard: Shard, archive: Lookups, found_of: FoundOf, service: str = SERVICE) -> Shard:
    """The shard with its archive.

    Args:
        shard: the shard without an archive.
        archive: its archive.
        found_of: converts an archived record to the form that queries read.
        service: the name of its row in the status.
    """
    records = ArchivedRecords(archive, found_of)
    queues = ArchivedQueues(records, archive)
    joined: dict[ShardMethod[Any, Any], Callable[[Any, Deadline, Answering], Any]] = {
        GET_RECORD: records.get,
        GET_RECORDS: records.get_many,
        LIST_QUEUES: queues.list_queues,
        GET_UNITS: queues.get_units,
        SEARCH_OFFSET: queues.search_offset,
        SEARCH_KEY: partial(search_both, archive=archive, records=records),
        STATUSES: partial(_statuses, archive, service),
        ARCHIVE_PROBLEM: partial(_problem, archive, records),
    }

    def link(method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        join = joined.get(method)
        return below(method, request, deadline) if join is None else join(request, deadline, below)

    # Below the archive nothing is missing that the log has dropped.
    return shard.serving(ARCHIVE_PROBLEM, lambda topic, deadline: None).with_link(Concern.ARCHIVE, link)


def _problem(
    archive: Lookups, records: ArchivedRecords, topic: str, deadline: Deadline, below: Answering
) -> StoreError | None:
    """ARCHIVE_PROBLEM: of manifests, of the indexes of segments, or because log and archive do not meet.

    Parquet files are not checked here; reading them reports their errors.
    """
    try:
        archive.queues(topic or None)
        return archive.problem() or records.hole(deadline, below)
    except StoreError as error:
        return error


def _statuses(
    archive: Lookups, service: str, request: None, deadline: Deadline, below: Answering
) -> Sequence[StatusRow]:
    """STATUSES, with a row for the archive."""
    status = gateway_pb.GetStatusResponse.ServiceStatus(service=service, address=str(archive.root), state="serving")
    try:
        status.log_first_offset, status.log_end_offset = archive.range()
        status.next_offset = status.log_end_offset
        problem = archive.problem()
        status.problem = problem.message if problem else ""
        row = StatusRow(status)
    except StoreError as error:
        row = StatusRow(status, error)
    return [*below(STATUSES, request, deadline), row]
