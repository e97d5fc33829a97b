"""Runs the index service: `python -m index_svc`."""

if __name__ == "__main__":
    import services.light_imports  # noqa: F401  # before the others, and in a process of its own only

# isort: split

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import structlog

from index_svc.builder import IndexBuilder
from index_svc.index_checks import IndexChecks
from index_svc.index_file_set import IndexFileSet
from index_svc.index_summaries import IndexSummaries
from index_svc.recovery import own_layout, saved_layout
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from index_svc.unexplained import Keeper
from reput.index.v1 import index_service_pb2 as pb
from reput.index.v1 import index_service_pb2_grpc as pb_grpc
from services.calling.commitlog import CommitLogClient
from services.following.file_check import log_of
from services.following.follower_process import LogRange
from services.following.follower_progress import FollowerProgress
from services.following.follower_service import FollowedFiles, file_system_of, follow
from services.following.following_builder import CheckpointThread
from services.local.server import over_bytes, serve_local
from services.local.wire import LOOKUPS, LocalMethod
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import Origins
from store.derive.dispatch_columns import DispatchColumns
from store.errors import OffsetOutOfRangeError, RecordCorruptedError, RecordNotFoundError
from store.files.file_system import FileSystem
from store.readers.index_reader import (
    TIME_MILLIS_MAX,
    IndexLayout,
    detect_index_layout,
    index_strangers,
    list_index_files,
)
from store.readers.tag_entries import TagEntries, find_tag_entries

FOLLOWER = "index"
FIRST_BATCH_BYTES = 65_536
# How much of the log is read to find the earliest store time of an index file: some seconds of a busy shard.
EARLIEST_BYTES_MAX = 512 << 20
_log = structlog.get_logger("reput.index")
# Why an index goes on with entries of tags, or without, by `TagEntries.are_written`.
TAGS_FOUND = {
    True: "the index has entries of tags, or a broker of RocketMQ 5.5 wrote `checkpoint`",
    False: "no record that was compared has an entry of its tags",
    None: "no record with tags was seen, and `checkpoint` is not of RocketMQ 5.5",
}


class IndexPart(FollowedFiles[IndexFileSet]):
    """The index files of a root, and the servicer that answers from them."""

    def __init__(
        self,
        fs: FileSystem,
        settings: IndexSettings,
        servicer: IndexServicer,
        progress: FollowerProgress,
        client: CommitLogClient,
        stopping: threading.Event,
    ) -> None:
        super().__init__(FOLLOWER, fs, settings.derived_root, servicer)
        self._settings = settings
        self._progress = progress
        self._client = client
        self._stopping = stopping

    def strangers(self) -> Iterable[tuple[Path, str]]:
        """See FollowedFiles."""
        return index_strangers(self._fs, self._root)

    def has_files(self) -> bool:
        """See FollowedFiles."""
        return bool(list_index_files(self._fs, self._root))

    def recover(self, log: LogRange, *, drop_cache: bool) -> tuple[IndexBuilder, IndexFileSet]:
        """See FollowedFiles."""
        files = self._files()
        builder = IndexBuilder(
            files,
            self._checkpoint,
            progress=self._progress,
            on_flushed=self.on_flushed,
            checkpointer=CheckpointThread("index-checkpoint"),
        )
        try:
            if drop_cache:
                files.drop_cache()
            builder.recover(
                is_clean_store=self.is_clean_store(log),
                log_first_offset=log.first_offset,
                log_end_offset=log.end_offset,
                first_indexed=lambda offset: self._first_indexed(offset, log, files),
                find_tags=lambda: self._find_tags(files, log),
                tags=self._settings.tags,
            )
            if files.checksums is not None:
                checks = IndexChecks(
                    files,
                    files.checksums,
                    log_of(self._client),
                    self._progress,
                    builder.rebuild_live,
                    builder.rebuild_all,
                )
                self.check_files(builder, checks.files, files.checksums, self._settings.verify_bytes_per_second_max)
        except BaseException:
            files.close()
            raise
        return builder, files

    def _find_tags(self, files: IndexFileSet, log: LogRange) -> TagEntries:
        """What the index of another program, or of an earlier version, has; a log line says what was decided, and why."""
        log_ = log_of(self._client, self._stopping)
        found = find_tag_entries(self._fs, self._root, files.layout, log_, log.first_offset, log.end_offset)
        if found.are_written is not None or found.complete_from is not None:
            why = TAGS_FOUND[found.are_written]
            _log.info("index.tags_found", complete_from=found.complete_from, setting=self._settings.tags, reason=why)
        return found

    def open_unbuilt(self) -> None:
        """Serve the existing files without building. It is never caught up, so missing entries count as not indexed."""
        files = self._files(is_built=False)
        files.adopt_sealed([path for path in files.paths() if files.has_full_length(path)])
        self._servicer.open(files)

    def _files(self, *, is_built: bool = True) -> IndexFileSet:
        changes = is_built and not self._settings.read_only
        summaries = IndexSummaries(
            self._root,
            self._fs,
            makes=changes,
            earliest_of=self._earliest,
        )
        return IndexFileSet(
            self._root,
            self._fs,
            self._layout(),
            lambda: time.time_ns() // 1_000_000,
            summaries=summaries,
            checksums=self.checksums() if changes else None,
            keeper=Keeper(self.aside(), log_of(self._client, self._stopping)) if changes else None,
        )

    def _layout(self) -> IndexLayout:
        wanted = IndexLayout(self._settings.hash_slot_count, self._settings.entry_count_max)
        saved = saved_layout(self._fs, self._checkpoint)
        found = own_layout(self._fs, self._checkpoint, self._root) or detect_index_layout(
            self._fs, self._root, saved or wanted
        )
        if found is not None and found != wanted:
            _log.warning(
                "settings.existing_files_decide",
                hash_slot_count=found.slot_count,
                entry_count_max=found.entry_count_max,
            )
        return found or wanted

    def _first_indexed(self, offset: int, log: LogRange, files: IndexFileSet) -> int | None:
        """See `recovery.FirstIndexed`."""
        if 0 <= offset < log.first_offset or log.end_offset <= max(offset, log.first_offset):
            return None
        stream = self._client.reput(offset, FIRST_BATCH_BYTES)
        try:
            for batch in stream:
                columns = batch.columns
                if columns is not None and files.tags_from is not None:
                    columns = columns.with_tags()
                found = _first_with_keys(columns, offset)
                if found is not None:
                    return found
                if batch.next_offset >= log.end_offset:
                    return None
        finally:
            stream.cancel()
        return None

    def _earliest(self, begin_offset: int, end_offset: int) -> int | None:
        """See `index_summaries.EarliestOf`."""
        if end_offset - begin_offset > EARLIEST_BYTES_MAX:
            return None
        earliest: int | None = None
        stream = self._client.reput(begin_offset)
        try:
            for batch in stream:
                if batch.columns is not None:
                    times = batch.columns.store_times_millis[batch.columns.commit_log_offsets <= end_offset]
                    earliest = min([int(times.min(initial=TIME_MILLIS_MAX)), *([] if earliest is None else [earliest])])
                if batch.next_offset > end_offset:
                    return earliest
        except (OffsetOutOfRangeError, RecordNotFoundError, RecordCorruptedError):
            return None  # retention has removed it, or it is damaged
        finally:
            stream.cancel()
        return None


def _first_with_keys(columns: DispatchColumns | None, offset: int) -> int | None:
    """The offset of the first record with keys behind an offset; None when there is none."""
    if columns is None:
        return None
    offsets = columns.commit_log_offsets[columns.key_records]
    found = offsets[offsets > offset]
    return int(found[0]) if len(found) else None


def serve(server: ServiceServer, settings: IndexSettings, origins: Origins) -> None:
    """Puts the service onto a server."""
    client = CommitLogClient(settings.commitlog_target, tls=server.tls)
    progress = FollowerProgress()
    servicer = IndexServicer(progress, settings.worker_count // 2, times_rise=not settings.writes_no_records)
    part = IndexPart(file_system_of(settings), settings, servicer, progress, client, server.stopping)
    servicer.aside_words = part.aside_words
    part.show_aside(server.meters)
    server.add("reput.index.v1.IndexService", pb_grpc.add_IndexServiceServicer_to_server, servicer)
    open_unbuilt = None if settings.enabled else part.open_unbuilt
    follow(FOLLOWER, server, settings, client, progress, part, servicer, open_unbuilt=open_unbuilt)
    lookups = {LocalMethod.SEARCH_KEY: over_bytes(pb.SearchKeyRequest, servicer.SearchKey)}
    serve_local(LOOKUPS, settings.address, lookups, server)


SERVICE = Service(FOLLOWER, IndexSettings, serve)

if __name__ == "__main__":
    main(SERVICE)
