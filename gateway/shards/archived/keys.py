"""Candidates by key: those of the index and those of the archive, merged, newest first."""

from gateway.ports.chain import Answering
from gateway.ports.deadline import Deadline
from gateway.ports.shard import SEARCH_KEY, Built, window_of
from gateway.shards.archived.records import ArchivedRecords
from reput.index.v1 import index_service_pb2 as index_pb
from store.archive.lookups import Lookups


def search_both(
    request: index_pb.SearchKeyRequest,
    deadline: Deadline,
    below: Answering,
    archive: Lookups,
    records: ArchivedRecords,
) -> Built[index_pb.SearchKeyResponse]:
    """SEARCH_KEY over index and archive."""
    found = below(SEARCH_KEY, request, deadline)
    live, window = found.answer, window_of(request)
    hits = archive.search(
        request.topic,
        request.key,
        below_offset=int(request.page_token) if request.page_token else None,
        begin_millis=window.begin_millis,
        end_millis=window.end_millis,
        count=request.page_size,
    )
    has_more = bool(live.next_page_token)
    # When a side has more candidates, candidates below its last one are left to the next call.
    lowest = max(
        [
            offsets[-1]
            for offsets, more in ((live.commit_log_offsets, has_more), (hits.commit_log_offsets, hits.more))
            if more and offsets
        ],
        default=0,
    )
    both = sorted({*live.commit_log_offsets, *hits.commit_log_offsets}, reverse=True)
    chosen = [offset for offset in both if offset >= lowest][: request.page_size]
    has_more = has_more or hits.more or len(chosen) < len(both)
    live.commit_log_offsets[:] = chosen
    live.next_page_token = str(chosen[-1]) if has_more and chosen else ""
    found.problem = found.problem or hits.problem or records.hole(deadline, below)
    return found
