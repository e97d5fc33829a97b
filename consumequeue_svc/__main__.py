"""Runs the consumequeue service: `python -m consumequeue_svc`."""

import services.light_imports  # noqa: F401  # first of all

# isort: split

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import refuse_rocksdb, saved_file_size_bytes
from consumequeue_svc.servicer import ConsumeQueueServicer
from consumequeue_svc.settings import ConsumeQueueSettings
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as pb_grpc
from services.builder_process import BuilderProcess, LogRange
from services.clients.commitlog import CommitLogClient
from services.lookup_calls import Lookup
from services.lookup_server import serve_lookups
from services.server import ServiceServer, main
from services.settings import Origins
from store.builders.checkpoint_thread import CheckpointThread
from store.builders.progress import BuilderProgress
from store.errors import StoreError
from store.files.abort import has_abort_marker
from store.files.file_system import FileSystem, OverlayFileSystem, RealFileSystem
from store.format.paths import own_state_dir
from store.format.queue_unit import QueueUnit
from store.readers.queue_reader import detect_queue_file_size, list_queue_ids

BUILDER = "consumequeue"
_log = structlog.get_logger("reput.consumequeue")


class QueuePart:
    """The queues of a root, and the servicer that answers from them."""

    def __init__(
        self, fs: FileSystem, settings: ConsumeQueueSettings, servicer: ConsumeQueueServicer, progress: BuilderProgress
    ) -> None:
        self._fs = fs
        self._settings = settings
        self._servicer = servicer
        self._progress = progress
        self._checkpoint = Path(own_state_dir(str(settings.store), BUILDER)) / "checkpoint.json"
        # Looked at before the commit log is asked: once that runs, the marker is its own.
        self._is_clean_store = not has_abort_marker(fs, settings.store)
        self.on_flushed: Callable[[int, int | None], None] | None = None

    def check(self) -> None:
        """See BuilderPart."""
        refuse_rocksdb(self._fs, self._settings.store)

    def is_unbuilt(self) -> bool:
        """See BuilderPart."""
        return not self._fs.exists(self._checkpoint) and not list_queue_ids(self._fs, self._settings.store)

    def open(self, log: LogRange, *, drop_cache: bool) -> ConsumeQueueBuilder:
        """See BuilderPart."""
        table = ConsumeQueueTable(self._settings.store, self._fs, self._file_size_bytes())
        builder = ConsumeQueueBuilder(
            table,
            self._checkpoint,
            progress=self._progress,
            on_flushed=self.on_flushed,
            checkpointer=CheckpointThread("consumequeue-checkpoint"),
        )
        try:
            table.load(drop_cache=drop_cache)
            builder.recover(
                is_clean_store=self._is_clean_store, log_first_offset=log.first_offset, log_end_offset=log.end_offset
            )
        except BaseException:
            table.close()
            raise
        self._servicer.open(table)
        return builder

    def shut(self) -> None:
        """See BuilderPart."""
        self._servicer.shut()

    def _file_size_bytes(self) -> int:
        wanted = self._settings.file_size_bytes
        found = detect_queue_file_size(
            self._fs, self._settings.store, saved_file_size_bytes(self._fs, self._checkpoint)
        )
        if found is not None and found != wanted:
            _log.warning("settings.existing_files_decide", name="file_size_bytes", setting=wanted, found=found)
        return found or wanted


def serve(server: ServiceServer, settings: ConsumeQueueSettings, origins: Origins) -> None:
    """Puts the service onto a server."""
    client = CommitLogClient(settings.commitlog_target, tls=server.tls)
    progress = BuilderProgress()

    def read_times(units: Sequence[QueueUnit], timeout_seconds: float) -> list[int]:
        offsets = [unit.commit_log_offset for unit in units]
        times: list[int] = []
        for outcome in client.store_times_millis(offsets, timeout_seconds=timeout_seconds):
            if isinstance(outcome, StoreError):
                raise outcome
            times.append(outcome)
        return times

    servicer = ConsumeQueueServicer(progress, read_times, settings.worker_count // 2)
    fs: FileSystem = OverlayFileSystem() if settings.read_only else RealFileSystem()
    part = QueuePart(fs, settings, servicer, progress)
    process = BuilderProcess(
        BUILDER,
        settings.store,
        part,
        client,
        progress,
        server.set_serving,
        server.stopping,
        read_only=settings.read_only,
        on_settled=server.note_ready,
    )
    part.on_flushed = process.flushed
    process.lag.show(BUILDER, server.meters)
    servicer.state = process.state
    server.add("reput.consumequeue.v1.ConsumeQueueService", pb_grpc.add_ConsumeQueueServiceServicer_to_server, servicer)
    lookups = {Lookup.GET_QUEUE_UNITS: (pb.GetQueueUnitsRequest, servicer.GetQueueUnits)}
    serve_lookups(settings.address, lookups, server)
    server.on_stop(process.stop)
    server.in_background(process.run)


if __name__ == "__main__":
    main(BUILDER, ConsumeQueueSettings, serve)
