"""A shard in memory that answers the gateway's ports as late as a real one does, in virtual time."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.simulation.measure import CallCost
from benchmarks.simulation.virtual_time import VirtualTime
from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    GET_RECORD,
    GET_RECORDS,
    GET_UNITS,
    LIST_QUEUES,
    LIST_TOPICS,
    SEARCH_KEY,
    SEARCH_OFFSET,
    STATUSES,
    BuildProgress,
    Built,
    Shard,
)
from gateway.ports.time_window import set_millis
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import DeadlineExceededError, RecordNotFoundError, StoreError

TOPIC, KEY = "Scale", "key"
RECORD_BYTES = 128  # a record without its body
LOG_STEP_BYTES = 4096  # between two records of a key
MANY_COUNT = 64  # candidates or records of the measured large calls
MILLISECONDS_BETWEEN = 1000
FIRST_MILLIS = 1_700_000_000_000
SKIP_CPU_SECONDS = 10e-6  # a look at the filters that the gateway keeps: an upper bound


@dataclass
class Meters:
    """What all shards of a simulation were asked.

    Attributes:
        call_count: calls.
        loaded_bytes: of records that were handed to the query which is under way.
    """

    call_count: int = 0
    loaded_bytes: int = 0


@dataclass
class SimulatedShard:
    """Every port of one shard.

    Args:
        name: the shard's.
        virtual: the clock.
        costs: what calls take, by name: measure.py.
        chance: decides how late each answer is.
        meters: count.
        number: of all shards; their messages take turns in time.
        match_count: messages of the topic with the key.
        body_bytes: of each.
        slow_factor: how many times as late this shard answers.
        hangs: whether it never does.
        is_skipped: whether the gateway knows, without a call, that it holds no match.
    """

    name: str
    virtual: VirtualTime
    costs: Mapping[str, CallCost]
    chance: random.Random
    meters: Meters
    number: int = 0
    shard_count: int = 1
    match_count: int = 0
    body_bytes: int = 1024
    slow_factor: float = 1.0
    hangs: bool = False
    is_skipped: bool = False
    progress_now: BuildProgress = field(default_factory=lambda: BuildProgress(1, 1, catching_up=False))

    def shard(self) -> Shard:
        """It, as the gateway sees it."""
        shard: Shard = Shard(self.name)
        shard = shard.serving(GET_RECORD, self.get).serving(GET_RECORDS, self.get_many)
        shard = shard.serving(STATUSES, lambda request, deadline: [])
        shard = shard.serving(LIST_TOPICS, self.list_topics).serving(LIST_QUEUES, self.list_queues)
        shard = shard.serving(GET_UNITS, self.units).serving(SEARCH_OFFSET, self.search_offset)
        return shard.serving(SEARCH_KEY, self.search)

    def _call(self, low: str, high: str, share: float, deadline: Deadline) -> None:
        """Spend what a call takes: between two that were measured, at the same luck."""
        self.meters.call_count += 1
        luck = self.chance.random()
        cpu_millis = _between(self.costs[low].cpu_millis, self.costs[high].cpu_millis, share)
        late_millis = _between(_quantile(self.costs[low], luck), _quantile(self.costs[high], luck), share)
        remaining = deadline.remaining_seconds()
        self.virtual.use_cpu(cpu_millis / 1000)
        wait = max(late_millis - cpu_millis, 0.0) * self.slow_factor / 1000
        if self.hangs or wait >= remaining:
            self.virtual.sleep(max(deadline.at_seconds - self.virtual.now, 0.0))
            raise DeadlineExceededError(f"{self.name}: Deadline Exceeded", service=self.name)
        self.virtual.sleep(wait)

    def _record(self, offset: int) -> StoredMessage:
        position = offset // LOG_STEP_BYTES
        record = StoredMessage(
            topic=TOPIC,
            queue_offset=position,
            commit_log_offset=offset,
            store_size_bytes=RECORD_BYTES + self.body_bytes,
            store_host=self.name,
            keys=[KEY],
            unique_key=KEY,
            body=bytes(self.body_bytes),
        )
        set_millis(
            record.store_time,
            FIRST_MILLIS + (position * self.shard_count + self.number) * MILLISECONDS_BETWEEN,
        )
        return record

    def search(self, request: index_pb.SearchKeyRequest, deadline: Deadline) -> Built[index_pb.SearchKeyResponse]:
        """SEARCH_KEY."""
        if self.is_skipped:
            self.virtual.use_cpu(SKIP_CPU_SECONDS)
            return Built(index_pb.SearchKeyResponse(), self.progress_now)
        count_max = request.page_size
        end = int(request.page_token) // LOG_STEP_BYTES if request.page_token else self.match_count
        found = tuple(position * LOG_STEP_BYTES for position in range(end - 1, max(end - 1 - count_max, -1), -1))
        if len(found) <= 1:
            self._call("search_none", "search_1", len(found), deadline)
        else:
            self._call("search_1", "search_64", (len(found) - 1) / (MANY_COUNT - 1), deadline)
        token = str(found[-1]) if end > len(found) and found else ""
        return Built(index_pb.SearchKeyResponse(commit_log_offsets=found, next_page_token=token), self.progress_now)

    def get_many(
        self, request: log_pb.BatchGetMessagesRequest, deadline: Deadline
    ) -> Sequence[StoredMessage | StoreError]:
        """GET_RECORDS."""
        commit_log_offsets, body_bytes_max = request.commit_log_offsets, request.body_bytes_max
        self._call("get_many_1", "get_many_64", (len(commit_log_offsets) - 1) / (MANY_COUNT - 1), deadline)
        records: list[StoredMessage | StoreError] = []
        for offset in commit_log_offsets:
            record = self._record(offset)
            body_bytes_max -= len(record.body)
            if body_bytes_max < 0:
                record.ClearField("body")
                record.body_omitted = True
            self.meters.loaded_bytes += RECORD_BYTES + len(record.body)
            records.append(record)
        return records

    def get(self, request: log_pb.GetMessageRequest, deadline: Deadline) -> StoredMessage:
        """GET_RECORD."""
        commit_log_offset = request.commit_log_offset
        self._call("get", "get", 0.0, deadline)
        if commit_log_offset // LOG_STEP_BYTES >= self.match_count:
            raise RecordNotFoundError("no record starts there", commitLogOffset=commit_log_offset)
        return self._record(commit_log_offset)

    def units(
        self, request: queue_pb.GetQueueUnitsRequest, deadline: Deadline
    ) -> Built[queue_pb.GetQueueUnitsResponse]:
        """GET_UNITS."""
        self._call("units", "units", 0.0, deadline)
        answer = queue_pb.GetQueueUnitsResponse(max_offset=self.match_count)
        for position in range(request.queue_offset, min(request.queue_offset + request.max_units, self.match_count)):
            answer.units.add(
                queue_offset=position,
                commit_log_offset=position * LOG_STEP_BYTES,
                record_size_bytes=RECORD_BYTES + self.body_bytes,
            )
        return Built(answer, self.progress_now)

    def list_queues(self, request: queue_pb.ListQueuesRequest, deadline: Deadline) -> Sequence[queue_pb.Queue]:
        """LIST_QUEUES."""
        self._call("list_queues", "list_queues", 0.0, deadline)
        return [queue_pb.Queue(topic=TOPIC, max_offset=max(self.match_count, 1))]

    def list_topics(self, request: log_pb.ListTopicsRequest, deadline: Deadline) -> log_pb.ListTopicsResponse:
        """See the port."""
        self._call("queue_counts", "queue_counts", 0.0, deadline)
        topic = log_pb.ListTopicsResponse.Topic(topic=TOPIC, write_queue_count=8, read_queue_count=8)
        return log_pb.ListTopicsResponse(topics=[topic], new_topic_queue_count=8)

    def search_offset(
        self, request: queue_pb.SearchOffsetRequest, deadline: Deadline
    ) -> Built[queue_pb.SearchOffsetResponse]:
        """SEARCH_OFFSET."""
        self._call("units", "units", 0.0, deadline)
        return Built(queue_pb.SearchOffsetResponse(max_offset=self.match_count), self.progress_now)


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * share


def _quantile(cost: CallCost, luck: float) -> float:
    """The latency at a place of the distribution, between the measured ones."""
    quantiles = cost.latencies_millis
    place = luck * (len(quantiles) - 1)
    index = min(int(place), len(quantiles) - 2)
    return _between(quantiles[index], quantiles[index + 1], place - index)
