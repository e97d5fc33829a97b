"""The ports over gRPC: a shard whose commitlog, consumequeue and index are services."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from gateway.deadline import Deadline
from gateway.ports import (
    Boundary,
    BuildProgress,
    Candidates,
    FoundOffset,
    FoundRecord,
    QueueRange,
    QueueStretch,
    ServiceStatus,
    Shard,
    Unit,
)
from gateway.settings import ShardTargets
from gateway.time_window import TimeWindow
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1 import message_pb2
from services.clients.commitlog import CommitLogClient
from services.clients.consumequeue import ConsumeQueueClient
from services.clients.index import IndexClient
from services.convert import stored_message, timestamp_to_millis
from store.errors import StoreError
from store.format.record import Record

# A message's own tag and length in an answer, and its body's.
FIELD_OVERHEAD_BYTES = 16
BOUNDARIES = {Boundary.LOWER: queue_pb.BOUNDARY_LOWER, Boundary.UPPER: queue_pb.BOUNDARY_UPPER}


def found_record(message: message_pb2.StoredMessage) -> FoundRecord:
    """What queries look at, around the message that the answer shows."""
    body_size_bytes = len(message.body)
    return FoundRecord(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        store_time_millis=timestamp_to_millis(message.store_time, "store_time"),
        store_host=message.store_host,
        keys=tuple(message.keys),
        unique_key=message.unique_key,
        head_size_bytes=message.ByteSize() - body_size_bytes + FIELD_OVERHEAD_BYTES,
        body_size_bytes=message.store_size_bytes if message.body_omitted else body_size_bytes,
        body_omitted=message.body_omitted,
        payload=message,
    )


def found_stored(broker_name: str, record: Record, omit_body: bool) -> FoundRecord:
    """The same around a record that was read here, in the public form that the shard's service gives it."""
    return found_record(stored_message(record, broker_name, omit_body=omit_body))


class RemoteRecords:
    """RecordReader and TopicCatalog over a commitlog service."""

    def __init__(self, client: CommitLogClient) -> None:
        self._client = client

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord:
        """See the port."""
        return found_record(self._client.get(commit_log_offset, timeout_seconds=deadline.remaining_seconds()))

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord | StoreError]:
        """See the port."""
        outcomes = self._client.get_many(
            commit_log_offsets, body_bytes_max=body_bytes_max, timeout_seconds=deadline.remaining_seconds()
        )
        return [outcome if isinstance(outcome, StoreError) else found_record(outcome) for outcome in outcomes]

    def queue_counts(self, deadline: Deadline) -> Mapping[str, int]:
        """See the port."""
        response = self._client.list_topics(timeout_seconds=deadline.remaining_seconds())
        return {topic.topic: max(topic.write_queue_count, topic.read_queue_count) for topic in response.topics}

    def new_topic_queue_count(self, deadline: Deadline) -> int:
        """See the port."""
        response = self._client.list_topics(timeout_seconds=deadline.remaining_seconds())
        return int(response.new_topic_queue_count)


class RemoteQueues:
    """QueueLocator over a consumequeue service."""

    def __init__(self, client: ConsumeQueueClient) -> None:
        self._client = client

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """See the port."""
        queues = self._client.list_queues(topic or "", timeout_seconds=deadline.remaining_seconds())
        return [QueueRange(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in queues]

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> QueueStretch:
        """See the port."""
        answer = self._client.get_units(
            topic, queue_id, queue_offset, unit_count_max, timeout_seconds=deadline.remaining_seconds()
        )
        units = (
            Unit(unit.queue_offset, unit.commit_log_offset, unit.record_size_bytes, unit.tags_code)
            for unit in answer.units
        )
        progress = BuildProgress(answer.next_offset, answer.log_end_offset, answer.catching_up)
        return QueueStretch(tuple(units), answer.min_offset, answer.max_offset, progress)

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: Boundary, deadline: Deadline
    ) -> FoundOffset:
        """See the port."""
        answer = self._client.search_offset(
            topic, queue_id, time_millis, BOUNDARIES[boundary], timeout_seconds=deadline.remaining_seconds()
        )
        return FoundOffset(answer.queue_offset, answer.min_offset, answer.max_offset, answer.catching_up)


class RemoteKeys:
    """KeyLocator over an index service."""

    def __init__(self, client: IndexClient) -> None:
        self._client = client

    def search(
        self,
        topic: str,
        key: str,
        window: TimeWindow,
        *,
        below_offset: int | None,
        count_max: int,
        deadline: Deadline,
    ) -> Candidates:
        """See the port."""
        answer = self._client.search_key(
            topic,
            key,
            begin_time_millis=window.begin_millis,
            end_time_millis=window.end_millis,
            page_size=count_max,
            page_token="" if below_offset is None else str(below_offset),
            timeout_seconds=deadline.remaining_seconds(),
        )
        built_up_to_millis = None
        if answer.HasField("indexed_up_to_time"):
            built_up_to_millis = timestamp_to_millis(answer.indexed_up_to_time, "indexed_up_to_time")
        return Candidates(
            tuple(answer.commit_log_offsets),
            bool(answer.next_page_token),
            BuildProgress(answer.next_offset, answer.log_end_offset, answer.catching_up, built_up_to_millis),
            answer.damaged_chain_count,
        )


class RemoteServices:
    """StatusReader over the three services."""

    def __init__(self, commitlog: CommitLogClient, consumequeue: ConsumeQueueClient, index: IndexClient) -> None:
        self._commitlog = commitlog
        self._consumequeue = consumequeue
        self._index = index

    def statuses(self, deadline: Deadline) -> Sequence[ServiceStatus]:
        """See the port. All three are asked at once: one that hangs must not hide the others."""
        asks: tuple[tuple[str, str, Callable[[float], ServiceStatus]], ...] = (
            ("commitlog", self._commitlog.target, self._commitlog_status),
            ("consumequeue", self._consumequeue.target, self._consumequeue_status),
            ("index", self._index.target, self._index_status),
        )
        # Half of the caller's time, so that there is an answer about the ones that hang.
        seconds = deadline.remaining_seconds() / 2

        def ask(row: tuple[str, str, Callable[[float], ServiceStatus]]) -> ServiceStatus:
            service, address, call = row
            try:
                return call(seconds)
            except StoreError as error:
                return ServiceStatus(service, address, error)

        with ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(ask, asks))

    def _commitlog_status(self, seconds: float) -> ServiceStatus:
        answer = self._commitlog.get_status(timeout_seconds=seconds)
        return ServiceStatus(
            "commitlog",
            self._commitlog.target,
            log_first_offset=answer.log_first_offset,
            log_end_offset=answer.log_end_offset,
            next_offset=answer.log_flushed_offset,
            catching_up=answer.state == "recovering",
            state=answer.state,
            problem=answer.problem,
            recovery_begin_offset=answer.recovery.begin_offset,
            recovery_next_offset=answer.recovery.next_offset,
            recovery_end_offset=answer.recovery.end_offset,
        )

    def _consumequeue_status(self, seconds: float) -> ServiceStatus:
        return _builder_status(
            "consumequeue", self._consumequeue.target, self._consumequeue.get_status(timeout_seconds=seconds)
        )

    def _index_status(self, seconds: float) -> ServiceStatus:
        return _builder_status("index", self._index.target, self._index.get_status(timeout_seconds=seconds))


def _builder_status(
    service: str, address: str, answer: queue_pb.GetStatusResponse | index_pb.GetStatusResponse
) -> ServiceStatus:
    return ServiceStatus(
        service,
        address,
        log_end_offset=answer.log_end_offset,
        next_offset=answer.next_offset,
        catching_up=answer.catching_up,
        state=answer.state or ("catching-up" if answer.catching_up else "serving"),
        problem=answer.last_error,
    )


def open_shard(targets: ShardTargets) -> tuple[Shard, CommitLogClient]:
    """The shard at these addresses, and the client whose channel appends are forwarded on."""
    commitlog = CommitLogClient(targets.commitlog)
    consumequeue = ConsumeQueueClient(targets.consumequeue)
    index = IndexClient(targets.index)
    records = RemoteRecords(commitlog)
    shard = Shard(
        broker_name=targets.broker_name,
        records=records,
        queues=RemoteQueues(consumequeue),
        keys=RemoteKeys(index),
        topics=records,
        services=RemoteServices(commitlog, consumequeue, index),
    )
    return shard, commitlog
