"""A shard in memory that answers the gateway's ports by brute force over decoded records.

Its index has no files, chains or seconds: a candidate is every record with a key of the same Java hash, wherever it was
stored. So it over-delivers as far as the port allows, and what a query keeps is the query's doing.
"""

import functools
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from gateway import ports
from gateway.ports.chain import ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    IS_WRITTEN_AT,
    KEYS_PROGRESS,
    LIST_QUEUES,
    LIST_STORED,
    LIST_TOPICS,
    LOG_END,
    QUEUES_PROGRESS,
    SEARCH_KEY,
    SEARCH_OFFSET,
    STATUSES,
    TAGS_CODE_UNKNOWN,
    BuildProgress,
    Built,
    Shard,
    StatusRow,
    window_of,
)
from gateway.ports.time_window import TimeWindow, millis_in, set_millis
from gateway.queries.page import PageEntry
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import stored_message
from store.errors import OffsetOutOfRangeError, RecordNotFoundError, StoreError, TopicNotFoundError
from store.format.derived.index_layout import key_hash, tag_key
from store.format.record import Record
from store.format.topic import namespace_of

# Hundreds of tests have the same thousands of records.
hash_of = functools.lru_cache(1 << 16)(key_hash)


def shown(record: Record, *, omit_body: bool = False) -> StoredMessage:
    """The record as a shard answers with it."""
    return stored_message(record, "own-name", omit_body=omit_body)


def records_in(entries: Iterable[PageEntry]) -> list[StoredMessage]:
    """The records of a page, as `shown` has them: without what says where they were read."""
    found = []
    for entry in entries:
        message = StoredMessage()
        message.CopyFrom(entry.record)
        message.ClearField("source")
        found.append(message)
    return found


def topic_row(topic: str, write_queue_count: int, read_queue_count: int | None = None, perm: int = 6, kind: int = 0):
    """A topic as a shard has it configured; as many queues are read as written unless it is said."""
    read = write_queue_count if read_queue_count is None else read_queue_count
    return log_pb.ListTopicsResponse.Topic(
        topic=topic, write_queue_count=write_queue_count, read_queue_count=read, perm=perm, message_type=kind
    )


def late(double: object, name: str) -> Callable[[Any, Deadline], Any]:
    """A method of a double as it is when it is called: tests replace some."""

    def answer(request: Any, deadline: Deadline) -> Any:
        return getattr(double, name)(request, deadline)

    return answer


def methods_of_ports() -> dict[ShardMethod[Any, Any], str]:
    """All methods of a shard that gateway/ports names, by their names there."""
    modules = [import_module(module.name) for module in pkgutil.iter_modules(ports.__path__, f"{ports.__name__}.")]
    return {value: name for module in modules for name, value in vars(module).items() if isinstance(value, ShardMethod)}


def with_log_end(shard: Shard, log_end: object) -> Shard:
    """The shard whose log ends as a double with `offset` and `is_written_at` says."""
    return shard.serving(LOG_END, late(log_end, "offset")).serving(IS_WRITTEN_AT, late(log_end, "is_written_at"))


def with_records(shard: Shard, double: Any) -> Shard:
    """The shard with the records of a double: `get` and `get_many`, as they are when called."""

    def get_many(request: log_pb.BatchGetMessagesRequest, deadline: Deadline) -> Sequence[StoredMessage | StoreError]:
        return double.get_many(list(request.commit_log_offsets), request.body_bytes_max, deadline)

    shard = shard.serving(GET_RECORD, lambda request, deadline: double.get(request.commit_log_offset, deadline))
    return shard.serving(GET_RECORDS, get_many)


def with_queues(shard: Shard, double: Any) -> Shard:
    """The shard with the queues of a double: its methods are looked up when called."""

    def units(request: queue_pb.GetQueueUnitsRequest, deadline: Deadline) -> Built[queue_pb.GetQueueUnitsResponse]:
        return double.units(request.topic, request.queue_id, request.queue_offset, request.max_units, deadline)

    def search_offset(
        request: queue_pb.SearchOffsetRequest, deadline: Deadline
    ) -> Built[queue_pb.SearchOffsetResponse]:
        millis = millis_in(request, "time") or 0
        return double.search_offset(request.topic, request.queue_id, millis, request.boundary, deadline)

    def progress(request: queue_pb.GetStatusRequest, deadline: Deadline) -> Built[queue_pb.GetStatusResponse]:
        found = double.progress(request.past_offset, request.wait_millis / 1000, deadline)
        return Built(queue_pb.GetStatusResponse(), found)

    def stored(request: queue_pb.ListQueuesRequest, deadline: Deadline) -> Sequence[queue_pb.Queue]:
        return [queue for queue in double.list_queues(None, deadline) if namespace_of(queue.topic)]

    shard = shard.serving(LIST_QUEUES, lambda request, deadline: double.list_queues(request.topic or None, deadline))
    shard = shard.serving(LIST_STORED, stored)
    shard = shard.serving(GET_UNITS, units).serving(SEARCH_OFFSET, search_offset)
    return shard.serving(QUEUES_PROGRESS, progress)


def with_keys(shard: Shard, double: Any) -> Shard:
    """The shard with the index of a double: `search` and `progress`, as they are when called."""

    def search(request: index_pb.SearchKeyRequest, deadline: Deadline) -> Built[index_pb.SearchKeyResponse]:
        return double.search(
            request.topic,
            request.key,
            window_of(request),
            below_offset=int(request.page_token) if request.page_token else None,
            count_max=request.page_size,
            deadline=deadline,
            explain=request.explain,
            **({"summarize": True} if request.summarize else {}),
        )

    def progress(request: index_pb.GetStatusRequest, deadline: Deadline) -> Built[index_pb.GetStatusResponse]:
        found = double.progress(request.past_offset, request.wait_millis / 1000, deadline)
        return Built(index_pb.GetStatusResponse(), found)

    return shard.serving(SEARCH_KEY, search).serving(KEYS_PROGRESS, progress)


def queue_of(topic: str, queue_id: int, min_offset: int, max_offset: int, problem: str = "") -> queue_pb.Queue:
    return queue_pb.Queue(topic=topic, queue_id=queue_id, min_offset=min_offset, max_offset=max_offset, problem=problem)


def unit_of(
    queue_offset: int, commit_log_offset: int, record_size_bytes: int, tags_code: int = TAGS_CODE_UNKNOWN
) -> queue_pb.QueueUnit:
    return queue_pb.QueueUnit(
        queue_offset=queue_offset,
        commit_log_offset=commit_log_offset,
        record_size_bytes=record_size_bytes,
        tags_code=tags_code,
    )


def stretch_of(
    units: Iterable[queue_pb.QueueUnit], min_offset: int, max_offset: int, progress: BuildProgress
) -> Built[queue_pb.GetQueueUnitsResponse]:
    answer = queue_pb.GetQueueUnitsResponse(units=units, min_offset=min_offset, max_offset=max_offset)
    return Built(answer, progress)


def candidates(
    offsets: Sequence[int], more: bool, progress: BuildProgress, **fields: Any
) -> Built[index_pb.SearchKeyResponse]:
    token = str(offsets[-1]) if more and offsets else ""
    return Built(index_pb.SearchKeyResponse(commit_log_offsets=offsets, next_page_token=token, **fields), progress)


def place_of(
    queue_offset: int,
    min_offset: int,
    max_offset: int,
    progress: BuildProgress,
    first_millis: int | None = None,
    last_millis: int | None = None,
) -> Built[queue_pb.SearchOffsetResponse]:
    answer = queue_pb.SearchOffsetResponse(queue_offset=queue_offset, min_offset=min_offset, max_offset=max_offset)
    for time, millis in ((answer.first_store_time, first_millis), (answer.last_store_time, last_millis)):
        if millis is not None:
            set_millis(time, millis)
    return Built(answer, progress)


@dataclass
class MemoryShard:
    """Every port of one shard.

    Attributes:
        records: the log, oldest first.
        topics: configured topics and their queue counts.
        kinds: the message types of topics that have one.
        failures: errors to raise, by the name of the port's method.
        damaged: errors in the place of records, by commit-log offset.
        calls: names of the methods called, in order.
        catching_up: what the builders say of themselves.
        built_offset: how far they are; None: at the log's end.
        states: of the services, where they are not serving.
        on_wait: called with what a caller who waits for them asks.
    """

    records: Sequence[Record]
    topics: Mapping[str, int] = field(default_factory=dict)
    failures: dict[str, StoreError] = field(default_factory=dict)
    damaged: dict[int, StoreError] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    catching_up: bool = False
    new_topic_queues: int = 0
    built_offset: int | None = None
    states: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    on_wait: Callable[[int, float], object] = lambda past_offset, wait_seconds: None

    def __post_init__(self) -> None:
        self._by_offset = {record.commit_log_offset: record for record in self.records}
        self._by_hash: dict[int, set[int]] = {}
        for record in self.records:
            for key in {*record.keys, record.unique_key or "", *([tag_key(record.tags)] if record.tags else [])} - {""}:
                self._by_hash.setdefault(hash_of(f"{record.topic}#{key}"), set()).add(record.commit_log_offset)

    def shard(self, broker_name: str = "broker-a") -> Shard:
        shard = with_records(with_keys(with_queues(Shard(broker_name), self), self), self)
        shard = shard.serving(LIST_TOPICS, late(self, "list_topics"))
        return shard.serving(STATUSES, lambda request, deadline: self.statuses(deadline))

    @property
    def progress_now(self) -> BuildProgress:
        built = self._end if self.built_offset is None else self.built_offset
        return BuildProgress(built, self._end, self.catching_up, 1_700_000_000_000)

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        self._called("progress", deadline)
        self.on_wait(past_offset, wait_seconds)
        return self.progress_now

    @property
    def _end(self) -> int:
        return self.records[-1].commit_log_offset + self.records[-1].store_size_bytes if self.records else 0

    def _called(self, name: str, deadline: Deadline) -> None:
        deadline.remaining_seconds()
        self.calls.append(name)
        if name in self.failures:
            raise self.failures[name]

    def get(self, commit_log_offset: int, deadline: Deadline) -> StoredMessage:
        self._called("get", deadline)
        outcome = self._outcome(commit_log_offset)
        if isinstance(outcome, StoreError):
            raise outcome
        return shown(outcome)

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[StoredMessage | StoreError]:
        self._called("get_many", deadline)
        outcomes: list[StoredMessage | StoreError] = []
        full = False
        for offset in commit_log_offsets:
            outcome = self._outcome(offset)
            if isinstance(outcome, StoreError):
                outcomes.append(outcome)
                continue
            full = full or len(outcome.body) > body_bytes_max
            body_bytes_max -= 0 if full else len(outcome.body)
            outcomes.append(shown(outcome, omit_body=full))
        return outcomes

    def _outcome(self, offset: int) -> Record | StoreError:
        if offset in self.damaged:
            return self.damaged[offset]
        if offset in self._by_offset:
            return self._by_offset[offset]
        if not 0 <= offset < self._end:
            return OffsetOutOfRangeError(f"{offset} is outside", firstOffset=0, lastOffset=self._end)
        return RecordNotFoundError(f"nothing starts at {offset}", commitLogOffset=offset)

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
        self._called("search", deadline)
        hits = sorted(self._by_hash.get(key_hash(f"{topic}#{key}"), set()), reverse=True)
        hits = [offset for offset in hits if below_offset is None or offset < below_offset]
        return candidates(hits[:count_max], len(hits) > count_max, self.progress_now)

    def _queue(self, topic: str, queue_id: int) -> list[Record]:
        queue = [record for record in self.records if (record.topic, record.queue_id) == (topic, queue_id)]
        if not queue:
            raise TopicNotFoundError(f"no queue {queue_id} of {topic}", topic=topic)
        return sorted(queue, key=lambda record: record.queue_offset)

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[queue_pb.Queue]:
        self._called("list_queues", deadline)
        names = sorted({(record.topic, record.queue_id) for record in self.records if topic in (None, record.topic)})
        queues = [(name, self._queue(*name)) for name in names]
        return [queue_of(*name, queue[0].queue_offset, queue[-1].queue_offset + 1) for name, queue in queues]

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> Built[queue_pb.GetQueueUnitsResponse]:
        self._called("units", deadline)
        queue = self._queue(topic, queue_id)
        first, end = queue[0].queue_offset, queue[-1].queue_offset + 1
        wanted = [r for r in queue if queue_offset <= r.queue_offset < queue_offset + unit_count_max]
        units = [unit_of(r.queue_offset, r.commit_log_offset, r.store_size_bytes) for r in wanted]
        return stretch_of(units if queue_offset >= first else (), first, end, self.progress_now)

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: int, deadline: Deadline
    ) -> Built[queue_pb.SearchOffsetResponse]:
        self._called("search_offset", deadline)
        queue = self._queue(topic, queue_id)
        first, end = queue[0].queue_offset, queue[-1].queue_offset + 1
        if boundary == gateway_pb.BOUNDARY_LOWER:
            found = min((r.queue_offset for r in queue if r.store_time_millis >= time_millis), default=end)
        else:
            found = max((r.queue_offset for r in queue if r.store_time_millis <= time_millis), default=first)
        times = [r.store_time_millis for r in queue]
        return place_of(found, first, end, self.progress_now, times[0], times[-1])

    def list_topics(self, request: log_pb.ListTopicsRequest, deadline: Deadline) -> log_pb.ListTopicsResponse:
        self._called("list_topics", deadline)
        return log_pb.ListTopicsResponse(
            topics=[topic_row(name, count, kind=self.kinds.get(name, 0)) for name, count in self.topics.items()],
            new_topic_queue_count=self.new_topic_queues,
        )

    def statuses(self, deadline: Deadline) -> Sequence[StatusRow]:
        self._called("statuses", deadline)
        names = ("commitlog", "consumequeue", "index")
        return [
            StatusRow(
                gateway_pb.GetStatusResponse.ServiceStatus(
                    service=name, address="memory", log_end_offset=self._end, state=self.states.get(name, "serving")
                )
            )
            for name in names
        ]
