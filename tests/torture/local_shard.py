"""A whole shard in one process: the real log, the real builders, and the gateway's ports over them.

What the four processes do over gRPC happens here in one thread and on any FileSystem, so that thousands of restarts fit
into a second. Nothing is a double: only the wires are left out.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commitlog_svc.commit_log import CommitLog, clock_millis_now
from commitlog_svc.settings import CommitLogSettings
from consumequeue_svc import time_search
from consumequeue_svc.builder import ConsumeQueueBuilder
from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from consumequeue_svc.recovery import saved_file_size_bytes, saved_queues
from gateway.ports.deadline import Deadline
from gateway.ports.shard import LIST_TOPICS, STATUSES, BuildProgress, Built, Shard, StatusRow
from gateway.ports.time_window import TimeWindow
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet, search_key
from index_svc.recovery import saved_layout
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.derive.index_keys import index_keys
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.locks import has_abort_marker
from store.format.paths import own_state_dir
from store.format.record import Record
from store.readers.index_reader import IndexLayout, detect_index_layout
from store.readers.queue_reader import detect_queue_file_size
from tests.gateway.memory_shard import (
    candidates,
    place_of,
    queue_of,
    shown,
    stretch_of,
    unit_of,
    with_keys,
    with_queues,
    with_records,
)

QUEUE_FILE_BYTES = 400  # 20 units, so that queues roll
INDEX_LAYOUT = IndexLayout(17, 40)


class Seconds:
    """A rising clock that only moves when told: builders save their checkpoints by it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class LocalShard:
    """Log, queues and index of one root, open. Builders apply what is flushed when `catch_up` is called.

    Args:
        root: the store root.
        fs: the door to the disk.
        clock_millis: the log's clock.
        queue_file_size_bytes: for new queue files; those there decide themselves.
        index_layout: for new index files; those there decide themselves.
        log_settings: of the commit log.
    """

    def __init__(
        self,
        root: Path,
        fs: FileSystem | None = None,
        *,
        clock_millis: Callable[[], int] = clock_millis_now,
        queue_file_size_bytes: int = QUEUE_FILE_BYTES,
        index_layout: IndexLayout = INDEX_LAYOUT,
        **log_settings: Any,
    ) -> None:
        self.root = root
        self.fs = fs or RealFileSystem()
        self.seconds = Seconds()
        was_clean = not has_abort_marker(self.fs, root)
        settings = CommitLogSettings(store=root, **{"file_size_bytes": 16384, **log_settings})
        self.log = CommitLog(root, settings, self.fs, clock_millis)
        self.log.recover()
        self._queue_file_size_bytes = queue_file_size_bytes
        self._index_layout = index_layout
        self._clock_millis = clock_millis
        try:
            self.open_builders(is_clean_store=was_clean)
        except BaseException:
            self.log.close()
            raise

    def open_builders(self, *, is_clean_store: bool) -> None:
        """Makes both builders from what the disk holds, as a start of their services does."""
        root, first, end = self.root, self.log.status.first_offset, self.log.status.flushed_offset
        queues_checkpoint = Path(own_state_dir(str(root), "consumequeue")) / "checkpoint.json"
        saved_size = saved_file_size_bytes(self.fs, queues_checkpoint)
        size = detect_queue_file_size(self.fs, root, saved_size) or self._queue_file_size_bytes
        self.table = ConsumeQueueTable(root, self.fs, size)
        self.table.load(saved=saved_queues(self.fs, queues_checkpoint))
        self.queues = ConsumeQueueBuilder(self.table, queues_checkpoint, clock=self.seconds)
        self.queues.recover(is_clean_store=is_clean_store, log_first_offset=first, log_end_offset=end)
        index_checkpoint = Path(own_state_dir(str(root), "index")) / "checkpoint.json"
        wanted = saved_layout(self.fs, index_checkpoint) or self._index_layout
        layout = detect_index_layout(self.fs, root, wanted) or wanted
        self.index_files = IndexFileSet(root, self.fs, layout, self._clock_millis)
        self.index = IndexBuilder(self.index_files, index_checkpoint, clock=self.seconds)
        self.index.recover(
            is_clean_store=is_clean_store,
            log_first_offset=first,
            log_end_offset=end,
            first_indexed=lambda offset: self._first_indexed(offset, first, end),
        )
        self.queues.begin()
        self.index.begin()

    def restart_builders(self, *, is_clean: bool) -> None:
        """Both builders end, cleanly or as after an error, and come back while the log goes on."""
        for builder in (self.queues, self.index):
            if is_clean:
                builder.stop()
            else:
                builder.abandon()
        self.open_builders(is_clean_store=False)

    def _first_indexed(self, offset: int, first_offset: int, end_offset: int) -> int | None:
        if 0 <= offset < first_offset or end_offset <= max(offset, first_offset):
            return None
        for batch in self.log.following.follow(offset, 0):
            for request in batch.requests:
                if request.commit_log_offset > offset and index_keys(request):
                    return request.commit_log_offset
            if batch.next_offset >= end_offset:
                return None
        return None

    def catch_up(self, batch_bytes: int = 0) -> None:
        """Both builders apply everything that is flushed."""
        for builder in (self.queues, self.index):
            while not self._feed(builder, batch_bytes):
                pass

    def _feed(self, builder: ConsumeQueueBuilder | IndexBuilder, batch_bytes: int) -> bool:
        """Follows the log to its flushed end; False when it must be followed anew."""
        end = self.log.status.flushed_offset
        try:
            batches = self.log.following.follow(builder.start_offset(), batch_bytes)
            first = self.log.status.first_offset
            if max(builder.start_offset(), first) >= end:
                return builder.apply([], end, first, end)
            for batch in batches:
                if not builder.apply(batch.requests, batch.next_offset, batch.log_first_offset, batch.log_end_offset):
                    return False
                if batch.next_offset >= end:
                    return True
        except (OffsetOutOfRangeError, RecordNotFoundError):
            builder.find_place(self.log.status.first_offset, end)
        return False

    def save(self) -> None:
        """Both builders write their checkpoints at the next batch."""
        self.seconds.now += 2
        self.catch_up()

    def close(self) -> None:
        """A clean end."""
        self.queues.stop()
        self.index.stop()
        self.log.close()

    def shard(self, broker_name: str = "broker-a") -> Shard:
        """The gateway's ports over all this."""
        ports = LocalPorts(self)
        shard = with_records(with_keys(with_queues(Shard(broker_name), ports), ports), ports)
        shard = shard.serving(LIST_TOPICS, ports.list_topics)
        return shard.serving(STATUSES, lambda request, deadline: ports.statuses(deadline))


@contextmanager
def open_shard(root: Path, fs: FileSystem | None = None, **settings: Any) -> Iterator[LocalShard]:
    """A shard with its builders caught up, cleanly closed at the end."""
    shard = LocalShard(root, fs, **settings)
    try:
        shard.catch_up()
        yield shard
    finally:
        shard.close()


# The records that were read last, by their offset: what an answer shows of them is less.
LAST_READ: dict[int, Record] = {}


class LocalPorts:
    """Every port of `gateway.ports.shard`, answered as the services answer them."""

    def __init__(self, local: LocalShard) -> None:
        self._local = local

    def get(self, commit_log_offset: int, deadline: Deadline) -> StoredMessage:
        deadline.remaining_seconds()
        return _shown(self._local.log.opened.reads.get(commit_log_offset))

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[StoredMessage | StoreError]:
        deadline.remaining_seconds()
        outcomes: list[StoredMessage | StoreError] = []
        full = False
        for offset in commit_log_offsets:
            try:
                record = self._local.log.opened.reads.get(offset)
            except StoreError as error:
                outcomes.append(error)
                continue
            full = full or len(record.body) > body_bytes_max
            body_bytes_max -= 0 if full else len(record.body)
            outcomes.append(_shown(record, omit_body=full))
        return outcomes

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[queue_pb.Queue]:
        deadline.remaining_seconds()
        first = self._local.queues.progress.log_first_offset
        return [
            queue_of(name, queue_id, queue.units.min_offset(first), queue.units.end)
            for (name, queue_id), queue in self._local.table.items()
            if topic in (None, name)
        ]

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> Built[queue_pb.GetQueueUnitsResponse]:
        deadline.remaining_seconds()
        units = self._local.table.queue(topic, queue_id).units
        first = self._local.queues.progress.log_first_offset
        begin, end = units.min_offset(first), units.end
        found = units.units(queue_offset, unit_count_max, first) if begin <= queue_offset < end else []
        progress = self._local.queues.progress
        return stretch_of(
            [unit_of(number, unit.commit_log_offset, unit.record_size_bytes) for number, unit in found],
            begin,
            end,
            BuildProgress(max(progress.next_offset, 0), progress.log_end_offset, progress.catching_up),
        )

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: int, deadline: Deadline
    ) -> Built[queue_pb.SearchOffsetResponse]:
        units = self._local.table.queue(topic, queue_id).units
        first = self._local.queues.progress.log_first_offset
        side = time_search.Boundary.UPPER if boundary == gateway_pb.BOUNDARY_UPPER else time_search.Boundary.LOWER
        found = time_search.search_offset(
            units,
            first,
            time_millis,
            side,
            lambda asked: [
                self._local.log.opened.reads.get(unit.commit_log_offset).store_time_millis for unit in asked
            ],
        ).queue_offset
        progress = self._local.queues.progress
        built = BuildProgress(max(progress.next_offset, 0), progress.log_end_offset, progress.catching_up)
        return place_of(found, units.min_offset(first), units.end, built)

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        progress = min((self._local.queues.progress, self._local.index.progress), key=lambda row: row.next_offset)
        return BuildProgress(max(progress.next_offset, 0), progress.log_end_offset, progress.catching_up)

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
    ) -> Built[index_pb.SearchKeyResponse]:
        deadline.remaining_seconds()
        page = search_key(
            self._local.index_files,
            topic,
            key,
            begin_millis=window.begin_millis,
            end_millis=window.end_millis,
            page_size=count_max,
            page_token="" if below_offset is None else str(below_offset),
        )
        progress = self._local.index.progress
        return candidates(
            page.commit_log_offsets,
            bool(page.next_page_token),
            BuildProgress(max(progress.next_offset, 0), progress.log_end_offset, progress.catching_up),
            damaged_chain_count=page.damaged_chain_count,
        )

    def list_topics(self, request: log_pb.ListTopicsRequest, deadline: Deadline) -> log_pb.ListTopicsResponse:
        deadline.remaining_seconds()
        topics = self._local.log.topics
        return log_pb.ListTopicsResponse(
            topics=[
                log_pb.ListTopicsResponse.Topic(
                    topic=config.topic,
                    write_queue_count=config.write_queue_count,
                    read_queue_count=config.read_queue_count,
                )
                for config in topics.all()
            ],
            new_topic_queue_count=topics.new_topic_queue_count,
        )

    def statuses(self, deadline: Deadline) -> Sequence[StatusRow]:
        return [
            StatusRow(gateway_pb.GetStatusResponse.ServiceStatus(service=name, address="local"))
            for name in ("commitlog", "consumequeue", "index")
        ]


def _shown(record: Record, *, omit_body: bool = False) -> StoredMessage:
    LAST_READ[record.commit_log_offset] = record
    return shown(record, omit_body=omit_body)
