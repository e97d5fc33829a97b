"""Runs the consumequeue service: `python -m consumequeue_svc`."""

if __name__ == "__main__":
    import services.light_imports  # noqa: F401  # before the others, and in a process of its own only

# isort: split

from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from consumequeue_svc.batch_queues import BatchQueues
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.queue_checks import QueueChecks
from consumequeue_svc.recovery import saved_file_size_bytes, saved_queues
from consumequeue_svc.servicer import ConsumeQueueServicer
from consumequeue_svc.settings import ConsumeQueueSettings
from consumequeue_svc.unexplained import Keeper, RecordPlace
from reput.consumequeue.v1 import consumequeue_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as pb_grpc
from services.calling.commitlog import CommitLogClient
from services.following.file_check import log_of
from services.following.follower_process import LogRange
from services.following.follower_progress import FollowerProgress
from services.following.follower_service import FollowedFiles, file_system_of, follow
from services.following.following_builder import CheckpointThread
from services.local.server import over_bytes, serve_local
from services.local.wire import LOOKUPS, LocalMethod
from services.reading.deleted_topics import DeletedTopics
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import Origins
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError, StoreError
from store.files.file_system import FileSystem
from store.format.derived.batch_unit import batch_message_count
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import dispatched_to
from store.readers.queue_reader import detect_queue_file_size, queue_folders, queue_strangers

FOLLOWER = "consumequeue"
_log = structlog.get_logger("reput.consumequeue")


class QueuePart(FollowedFiles[ConsumeQueueTable]):
    """The queues of a root, and the servicer that answers from them."""

    def __init__(
        self,
        fs: FileSystem,
        settings: ConsumeQueueSettings,
        servicer: ConsumeQueueServicer,
        progress: FollowerProgress,
        client: CommitLogClient,
    ) -> None:
        super().__init__(FOLLOWER, fs, settings.derived_root, servicer)
        self._settings = settings
        self._progress = progress
        self._client = client

    def strangers(self) -> Iterable[tuple[Path, str]]:
        """See FollowedFiles."""
        return queue_strangers(self._fs, self._root)

    def has_files(self) -> bool:
        """See FollowedFiles."""
        return any(queue_folders(self._fs, self._root))  # the first one tells

    def recover(self, log: LogRange, *, drop_cache: bool) -> tuple[ConsumeQueueBuilder, ConsumeQueueTable]:
        """See FollowedFiles."""
        ext_file_size_bytes = self._settings.ext_file_size_bytes if self._settings.ext else 0
        keeper = Keeper(None if self._settings.read_only else self.aside(), self._record_at)
        table = ConsumeQueueTable(
            self._root,
            self._fs,
            self._file_size_bytes(),
            ext_file_size_bytes=ext_file_size_bytes,
            keeper=keeper,
            hidden=log.hidden,
            batches=BatchQueues(self._fs, self._settings.store, self._batch_count_at),
            light_queue_count_max=self._settings.light_queue_count_max,
        )
        builder = ConsumeQueueBuilder(
            table,
            self._checkpoint,
            progress=self._progress,
            on_flushed=self.on_flushed,
            checkpointer=CheckpointThread("consumequeue-checkpoint"),
            read_log=log_of(self._client),
        )
        try:
            table.load(drop_cache=drop_cache, saved=saved_queues(self._fs, self._checkpoint))
            builder.recover(
                is_clean_store=self.is_clean_store(log),
                log_first_offset=log.first_offset,
                log_end_offset=log.end_offset,
            )
            if not self._settings.read_only:
                checksums = self.checksums()
                checks = QueueChecks(
                    table,
                    checksums,
                    log_of(self._client),
                    self._progress,
                    lambda: builder.is_replay,
                    builder.replay_all,
                )
                self.check_files(builder, checks.files, checksums, self._settings.verify_bytes_per_second_max)
        except BaseException:
            table.close()
            raise
        return builder, table

    def _record_at(self, commit_log_offset: int) -> RecordPlace | None:
        """See RecordAt."""
        try:
            record = self._client.get(commit_log_offset)
        except (OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError):
            return None
        return RecordPlace(record.topic, record.queue_id, record.queue_offset, dispatched_to(record.properties))

    def _batch_count_at(self, commit_log_offset: int) -> int | None:
        """See CountAt."""
        try:
            return batch_message_count(self._client.get(commit_log_offset).properties)
        except (OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError):
            return None

    def _file_size_bytes(self) -> int:
        wanted = self._settings.file_size_bytes
        found = detect_queue_file_size(self._fs, self._root, saved_file_size_bytes(self._fs, self._checkpoint))
        if found is not None and found != wanted:
            _log.warning("settings.existing_files_decide", name="file_size_bytes", setting=wanted, found=found)
        return found or wanted


def serve(server: ServiceServer, settings: ConsumeQueueSettings, origins: Origins) -> None:
    """Puts the service onto a server."""
    client = CommitLogClient(settings.commitlog_target, tls=server.tls)
    progress = FollowerProgress()

    def read_times(units: Sequence[QueueUnit], timeout_seconds: float) -> list[int]:
        offsets = [unit.commit_log_offset for unit in units]
        times: list[int] = []
        for outcome in client.store_times_millis(offsets, timeout_seconds=timeout_seconds):
            if isinstance(outcome, StoreError):
                raise outcome
            times.append(outcome)
        return times

    servicer = ConsumeQueueServicer(progress, read_times, settings.worker_count // 2, DeletedTopics(client).before)
    part = QueuePart(file_system_of(settings), settings, servicer, progress, client)
    servicer.aside_words = part.aside_words
    part.show_aside(server.meters)
    server.add("reput.consumequeue.v1.ConsumeQueueService", pb_grpc.add_ConsumeQueueServiceServicer_to_server, servicer)
    follow(FOLLOWER, server, settings, client, progress, part, servicer)
    lookups = {
        LocalMethod.GET_QUEUE_UNITS: over_bytes(pb.GetQueueUnitsRequest, servicer.GetQueueUnits),
        LocalMethod.LIST_QUEUES: over_bytes(pb.ListQueuesRequest, servicer.ListQueues),
        LocalMethod.CONSUMEQUEUE_STATUS: over_bytes(pb.GetStatusRequest, servicer.GetStatus),
    }
    serve_local(LOOKUPS, settings.address, lookups, server)


SERVICE = Service(FOLLOWER, ConsumeQueueSettings, serve)

if __name__ == "__main__":
    main(SERVICE)
