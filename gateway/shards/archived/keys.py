"""Candidates by key: those of the index and those of the archive, merged, newest first."""

from dataclasses import replace

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress, Candidates, KeyLocator
from gateway.ports.time_window import TimeWindow
from gateway.shards.archived.records import ArchivedRecords
from store.archive.lookups import Lookups


class ArchivedKeys:
    """KeyLocator over index and archive."""

    def __init__(self, index: KeyLocator, records: ArchivedRecords[object], archive: Lookups) -> None:
        self._index = index
        self._records = records
        self._archive = archive

    def search(
        self,
        topic: str,
        key: str,
        window: TimeWindow,
        *,
        below_offset: int | None,
        count_max: int,
        deadline: Deadline,
        explain: bool = False,
    ) -> Candidates:
        """See the port."""
        live = self._index.search(
            topic,
            key,
            window,
            below_offset=below_offset,
            count_max=count_max,
            deadline=deadline,
            explain=explain,
        )
        hits = self._archive.search(
            topic,
            key,
            below_offset=below_offset,
            begin_millis=window.begin_millis,
            end_millis=window.end_millis,
            count=count_max,
        )
        # When a side has more candidates, candidates below its last one are left to the next call.
        lowest = max(
            [
                offsets[-1]
                for offsets, more in (
                    (live.commit_log_offsets, live.more),
                    (hits.commit_log_offsets, hits.more),
                )
                if more and offsets
            ],
            default=0,
        )
        both = sorted({*live.commit_log_offsets, *hits.commit_log_offsets}, reverse=True)
        chosen = tuple(offset for offset in both if offset >= lowest)[:count_max]
        more = live.more or hits.more or len(chosen) < len(both)
        problem = live.problem or hits.problem or self._records.hole(deadline)
        return replace(live, commit_log_offsets=chosen, more=more, problem=problem)

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """See the port; what is archived was built before."""
        return self._index.progress(past_offset, wait_seconds, deadline)
