"""Runs the index service: `python -m index_svc`."""

import contextlib
import threading
import time
from pathlib import Path

import structlog

from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from reput.index.v1 import index_service_pb2_grpc as pb_grpc
from services.clients.commitlog import CommitLogClient, ReputBatch
from services.reput_tail import ReputTail
from services.server import ServiceServer, main
from services.settings import Origins
from store.builders.index_keys import index_keys
from store.builders.progress import BuilderProgress
from store.errors import OffsetOutOfRangeError, StoreError
from store.files.abort import has_abort_marker
from store.files.file_system import FileSystem, OverlayFileSystem, RealFileSystem
from store.files.locks import OwnerLock, refuse_foreign_broker
from store.format.paths import own_state_dir
from store.readers.index_layout_detection import detect_index_layout
from store.readers.index_reader import IndexLayout

BUILDER = "index"
REPORT_SECONDS = 1.0
WAIT_SECONDS = 0.1
FIRST_BATCH_BYTES = 65_536
_log = structlog.get_logger("reput.index")


class IndexProcess:
    """The service's life: wait for the log, open the index, follow, stop."""

    def __init__(self, server: ServiceServer, settings: IndexSettings) -> None:
        self._server = server
        self._settings = settings
        self._fs: FileSystem = OverlayFileSystem() if settings.read_only else RealFileSystem()
        # Looked at before the commit log is asked: once that runs, the marker is its own.
        self._is_clean_store = not has_abort_marker(self._fs, settings.store)
        self._client = CommitLogClient(settings.commitlog_target)
        self._builder: IndexBuilder | None = None
        self._tail: ReputTail | None = None
        self._lock: OwnerLock | None = None
        self._waiting_for = ""
        self._is_serving = False
        self._done = threading.Event()
        self.progress = BuilderProgress()
        self.servicer = IndexServicer(self.progress, self._last_error)

    def run(self) -> None:
        """Recovers and follows the log until stopped."""
        try:
            self._run()
        finally:
            self._done.set()

    def stop(self) -> None:
        """Ends `run` and writes the checkpoint."""
        self._server.stopping.set()
        if self._tail is not None:
            self._tail.stop()
        self._done.wait()
        if self._builder is not None:
            self._builder.stop()
        self._client.close()
        if self._lock is not None:
            self._lock.release()

    def _run(self) -> None:
        root = self._settings.store
        log_range = self._wait_for_log()
        if log_range is None:
            return
        state_dir = Path(own_state_dir(str(root), BUILDER))
        if not self._settings.read_only:
            refuse_foreign_broker(root)
            lock = OwnerLock(state_dir / "lock")
            lock.acquire()
            self._lock = lock
        files = IndexFileSet(root, self._fs, self._layout(root), lambda: time.time_ns() // 1_000_000)
        if not self._settings.enabled:
            files.adopt_sealed(files.paths())
            # Never caught up: what is not indexed must not look like what is not there.
            self.servicer.open(files)
            self._server.set_serving(True)
            return
        builder = IndexBuilder(files, state_dir / "checkpoint.json", progress=self.progress, on_flushed=self._report)
        builder.recover(
            is_clean_store=self._is_clean_store,
            log_first_offset=log_range[0],
            log_end_offset=log_range[1],
            first_indexed=lambda offset: self._first_indexed(offset, *log_range),
        )
        self._builder = builder
        self.servicer.open(files)
        self._tail = ReputTail(
            self._client,
            builder.start_offset,
            lambda batch: builder.apply(
                batch.requests, batch.next_offset, batch.log_first_offset, batch.log_end_offset
            ),
            on_progress=self._serve_when_caught_up,
            stop_event=self._server.stopping,
            on_out_of_range=self._resume_inside_log,
        )
        self._tail.run()

    def _wait_for_log(self) -> tuple[int, int] | None:
        """The log's range once it can be followed; None when stopped before."""
        while not self._server.stopping.is_set():
            try:
                status = self._client.get_status(timeout_seconds=REPORT_SECONDS)
            except StoreError as error:
                self._waiting_for = error.message
                self._server.stopping.wait(WAIT_SECONDS)
            else:
                if status.state != "recovering":
                    self._waiting_for = ""
                    return status.log_first_offset, status.log_flushed_offset
                self._waiting_for = "the commit log is recovering"
                self._server.stopping.wait(WAIT_SECONDS)
        return None

    def _layout(self, root: Path) -> IndexLayout:
        wanted = IndexLayout(self._settings.hash_slot_count, self._settings.entry_count_max)
        found = detect_index_layout(self._fs, root, wanted)
        if found is not None and found != wanted:
            _log.warning(
                "settings.existing_files_decide",
                hash_slot_count=found.slot_count,
                entry_count_max=found.entry_count_max,
            )
        return found or wanted

    def _first_indexed(self, offset: int, log_first_offset: int, log_end_offset: int) -> int | None:
        """See `recovery.FirstIndexed`."""
        if 0 <= offset < log_first_offset or log_end_offset <= max(offset, log_first_offset):
            return None
        stream = self._client.reput(offset, FIRST_BATCH_BYTES)
        try:
            for batch in stream:
                for request in batch.requests:
                    if request.commit_log_offset > offset and index_keys(request):
                        return request.commit_log_offset
                if batch.next_offset >= log_end_offset:
                    return None
        finally:
            stream.cancel()
        return None

    def _serve_when_caught_up(self, batch: ReputBatch) -> None:
        if not self._is_serving and not self.progress.catching_up:
            self._is_serving = True
            self._server.set_serving(True)

    def _resume_inside_log(self, error: OffsetOutOfRangeError) -> None:
        assert self._builder is not None
        status = self._client.get_status()
        self._builder.resume_inside(status.log_first_offset, status.log_flushed_offset)

    def _report(self, next_offset: int, store_time_millis: int | None) -> None:
        if not self._settings.read_only:
            with contextlib.suppress(StoreError):
                self._client.report_progress(BUILDER, next_offset, store_time_millis, timeout_seconds=REPORT_SECONDS)

    def _last_error(self) -> str:
        return self._waiting_for or (self._tail.last_error if self._tail is not None else "")


def serve(server: ServiceServer, settings: IndexSettings, origins: Origins) -> None:
    """Puts the service onto a server."""
    process = IndexProcess(server, settings)
    server.add(
        "reput.index.v1.IndexService",
        pb_grpc.add_IndexServiceServicer_to_server,
        process.servicer,
    )
    server.on_stop(process.stop)
    server.in_background(process.run)


if __name__ == "__main__":
    main(BUILDER, IndexSettings, serve)
