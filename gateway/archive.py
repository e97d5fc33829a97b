"""A shard with an archive: where its log ends at the front, answers go on in what was archived.

Log and archive have one space of commit-log offsets, and every query works its way down it. So nothing else of the gateway
knows of an archive: these ports answer for both, and a page token that carries an offset goes on from one into the other.

    archive   |-----------------------------------|          up to the last log file that is sealed
    log                           |--------------------|     from what retention has left on
              answered from the archive   answered from the log

What the log still has is answered from the log. What of the archive cannot be had is told as a `problem` beside the rest,
which makes the answer PARTIAL; a single message that cannot be had is that error.
"""

from collections.abc import Sequence
from dataclasses import replace

from gateway.archived.keys import ArchivedKeys
from gateway.archived.queues import ArchivedQueues
from gateway.archived.records import ArchivedRecords, FoundOf
from gateway.deadline import Deadline
from gateway.ports import ServiceStatus, Shard, StatusReader
from store.archive.archive_reader import ArchiveReader
from store.errors import StoreError

SERVICE = "archive"


def with_archive(shard: Shard, archive: ArchiveReader, found_of: FoundOf) -> Shard:
    """The shard, answering also from its archive.

    Args:
        shard: the shard as it is without.
        archive: its archive.
        found_of: makes what queries look at of an archived record.
    """
    records = ArchivedRecords(shard.records, archive, found_of)
    return replace(
        shard,
        records=records,
        queues=ArchivedQueues(shard.queues, records, archive),
        keys=ArchivedKeys(shard.keys, records, archive),
        services=ArchivedServices(shard.services, archive),
        archive=ArchiveProblems(archive, records),
    )


class ArchiveProblems:
    """Archive: manifests, the indexes of segments, and whether log and archive meet."""

    def __init__(self, archive: ArchiveReader, records: ArchivedRecords) -> None:
        self._archive = archive
        self._records = records

    def problem(self, topic: str | None, deadline: Deadline) -> StoreError | None:
        """See the port. Parquet files are not looked at: who reads them tells."""
        try:
            self._archive.queues(topic)
            return self._archive.problem() or self._records.hole(deadline)
        except StoreError as error:
            return error


class ArchivedServices:
    """StatusReader with a row for the archive."""

    def __init__(self, services: StatusReader, archive: ArchiveReader) -> None:
        self._services = services
        self._archive = archive

    def statuses(self, deadline: Deadline) -> Sequence[ServiceStatus]:
        """See the port."""
        row = ServiceStatus(SERVICE, str(self._archive.root), state="serving")
        try:
            first, end = self._archive.range()
            problem = self._archive.problem()
            row = replace(
                row,
                log_first_offset=first,
                log_end_offset=end,
                next_offset=end,
                problem=problem.message if problem else "",
            )
        except StoreError as error:
            row = replace(row, error=error)
        return [*self._services.statuses(deadline), row]
