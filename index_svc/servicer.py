"""Serves reput.index.v1: translates between the proto messages and the domain."""

import time
from collections.abc import Callable

import grpc

from index_svc.index_file_set import IndexFileSet, KeyPage, search_key
from index_svc.summary_answer import filter_pages, summary_of
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as pb
from reput.index.v1 import index_service_pb2_grpc as pb_grpc
from services.convert import millis_to_timestamp, optional_time_millis
from services.following.follower_process import FollowerState
from services.following.follower_progress import WAITING_COUNT_MAX, FollowerProgress, ProgressWait
from store.errors import StoreRecoveringError
from store.format.derived.index_layout import slot_of
from store.readers.index_reader import Passed

PASSED_OVER = {
    Passed.NOT: gateway_pb.PASSED_OVER_UNSPECIFIED,
    Passed.CURSOR: gateway_pb.PASSED_OVER_CURSOR,
    Passed.TIME: gateway_pb.PASSED_OVER_TIME,
    Passed.FILTER: gateway_pb.PASSED_OVER_FILTER,
}


class IndexServicer(pb_grpc.IndexServiceServicer):
    """The service; all calls but GetStatus fail with StoreRecoveringError until `open` was called.

    Args:
        progress: of the builder.
        waiting_count_max: calls that may wait for the builder at the same time.
        times_rise: commitlog_svc writes the log, so no record has an earlier store time than the one before it.
        clock: seconds, rising.

    Attributes:
        state: of the builder.
        aside_words: what the status says about what was moved aside.
    """

    def __init__(
        self,
        progress: FollowerProgress,
        waiting_count_max: int = WAITING_COUNT_MAX,
        *,
        times_rise: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state: Callable[[], FollowerState] = lambda: FollowerState("waiting", 0, "")
        self.aside_words: Callable[[], str] = str
        self._progress = progress
        self._times_rise = times_rise
        self._clock = clock
        self._wait = ProgressWait(progress, waiting_count_max)
        self._files: IndexFileSet | None = None

    def open(self, files: IndexFileSet) -> None:
        """Serves these files."""
        self._files = files

    def shut(self) -> None:
        """Serves no files until the next `open`: they are being recovered."""
        self._files = None

    def SearchKey(  # the name is the proto's
        self, request: pb.SearchKeyRequest, context: grpc.ServicerContext
    ) -> pb.SearchKeyResponse:
        """See the proto."""
        files = self._files
        if files is None:
            raise StoreRecoveringError("the index is being opened: try again soon")
        # Read the progress before the search, so that the answer never claims more than was searched.
        progress, generation = self._progress, files.generation
        response = pb.SearchKeyResponse(
            next_offset=max(progress.next_offset, 0),
            log_end_offset=progress.log_end_offset,
            catching_up=progress.catching_up,
        )
        if progress.store_time_millis:
            response.indexed_up_to_time.CopyFrom(millis_to_timestamp(progress.store_time_millis))
        began = self._clock()
        try:
            page = search_key(
                files,
                request.topic,
                request.key,
                begin_millis=optional_time_millis(request, "begin_time"),
                end_millis=optional_time_millis(request, "end_time"),
                page_size=request.page_size,
                page_token=request.page_token,
                explain=request.explain,
            )
        except FileNotFoundError as error:
            # The file expired, or was removed to be built again, after the search had begun.
            raise StoreRecoveringError("an index file was removed during the search: try again") from error
        if files.generation != generation:
            response.catching_up = True  # files were removed meanwhile, to be built again
        response.commit_log_offsets.extend(page.commit_log_offsets)
        response.next_page_token = page.next_page_token
        response.damaged_chain_count = page.damaged_chain_count
        if request.explain:
            elapsed_micros = round((self._clock() - began) * 1e6)
            response.explanation.CopyFrom(_explanation(page, files.layout.slot_count, elapsed_micros))
        if request.of_tags:
            response.log_first_offset = max(progress.log_first_offset, 0)
            if files.tags_from is not None:
                response.tags_from_offset = files.tags_from
        if request.summarize:
            summary = summary_of(files, progress, times_rise=self._times_rise)
            if summary is not None:
                response.summary.CopyFrom(summary)
        return response

    def GetFilterPages(
        self, request: pb.GetFilterPagesRequest, context: grpc.ServicerContext
    ) -> pb.GetFilterPagesResponse:
        """See the proto."""
        files = self._files
        if files is None:
            raise StoreRecoveringError("the index is being opened: try again soon")
        return pb.GetFilterPagesResponse(
            pages=filter_pages(files, request.name, request.header_crc, request.first_page)
        )

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto."""
        may_wait = self._wait.wait(request)
        files, state = None if may_wait else self._files, self.state()
        response = pb.GetStatusResponse(
            next_offset=max(self._progress.next_offset, 0),
            log_end_offset=self._progress.log_end_offset,
            catching_up=self._progress.catching_up,
            file_count=len(files.views()) if files is not None else 0,
            key_count=files.key_count if files is not None else 0,
            last_error=state.last_error,
            state=state.state,
            failure_count=state.failure_count,
        )
        if not may_wait:
            response.problem = self.aside_words()
        if self._progress.store_time_millis:
            response.built_up_to_time.CopyFrom(millis_to_timestamp(self._progress.store_time_millis))
        return response


def _explanation(page: KeyPage, slot_count: int, elapsed_micros: int) -> pb.KeyExplanation:
    return pb.KeyExplanation(
        key_hash=page.key_hash,
        slot=slot_of(page.key_hash, slot_count),
        slot_count=slot_count,
        visits=[
            gateway_pb.ShardExplanation.FileVisit(
                name=visit.name,
                passed_over=PASSED_OVER[visit.passed],
                entry_count=visit.entry_count,
                chain_entry_count=visit.chain_entry_count,
                same_hash_count=visit.same_hash_count,
                outside_count=visit.outside_count,
                candidate_count=visit.candidate_count,
                damaged=visit.is_damaged,
                read_bytes=visit.read_bytes,
            )
            for visit in page.walk.visits or ()
        ],
        elapsed_micros=elapsed_micros,
    )
