"""reput.index.v1 over the domain: fields in, one call, fields out."""

from collections.abc import Callable

import grpc

from index_svc.index_file_set import IndexFileSet
from index_svc.key_search import search_key
from reput.index.v1 import index_service_pb2 as pb
from reput.index.v1 import index_service_pb2_grpc as pb_grpc
from services.builder_process import BuilderState
from services.convert import millis_to_timestamp, optional_time_millis
from store.builders.progress import BuilderProgress
from store.errors import StoreRecoveringError


class IndexServicer(pb_grpc.IndexServiceServicer):
    """Answers StoreRecoveringError until `open` gave it its files.

    Args:
        progress: of the builder.

    Attributes:
        state: of the builder.
    """

    def __init__(self, progress: BuilderProgress) -> None:
        self.state: Callable[[], BuilderState] = lambda: BuilderState("waiting", 0, "")
        self._progress = progress
        self._files: IndexFileSet | None = None

    def open(self, files: IndexFileSet) -> None:
        """Serves these files from now on."""
        self._files = files

    def shut(self) -> None:
        """Serves no files for now: they are being recovered."""
        self._files = None

    def SearchKey(  # the name is the proto's
        self, request: pb.SearchKeyRequest, context: grpc.ServicerContext
    ) -> pb.SearchKeyResponse:
        """See the proto."""
        files = self._files
        if files is None:
            raise StoreRecoveringError("the index is being opened: try again soon")
        # The progress before the search, so that the answer never claims more than was searched.
        progress = self._progress
        response = pb.SearchKeyResponse(
            next_offset=max(progress.next_offset, 0),
            log_end_offset=progress.log_end_offset,
            catching_up=progress.catching_up,
        )
        if progress.store_time_millis:
            response.indexed_up_to_time.CopyFrom(millis_to_timestamp(progress.store_time_millis))
        try:
            page = search_key(
                files,
                request.topic,
                request.key,
                begin_millis=optional_time_millis(request, "begin_time"),
                end_millis=optional_time_millis(request, "end_time"),
                page_size=request.page_size,
                page_token=request.page_token,
            )
        except FileNotFoundError as error:
            # Expired, or removed to be built again, after the search had begun.
            raise StoreRecoveringError("an index file went during the search: try again") from error
        response.commit_log_offsets.extend(page.commit_log_offsets)
        response.next_page_token = page.next_page_token
        response.damaged_chain_count = page.damaged_chain_count
        return response

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """See the proto."""
        files, state = self._files, self.state()
        return pb.GetStatusResponse(
            next_offset=max(self._progress.next_offset, 0),
            log_end_offset=self._progress.log_end_offset,
            catching_up=self._progress.catching_up,
            file_count=len(files.views()) if files is not None else 0,
            key_count=files.key_count if files is not None else 0,
            last_error=state.last_error,
            state=state.state,
            failure_count=state.failure_count,
        )
