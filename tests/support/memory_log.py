"""MemoryLog: a log with its queues in memory, with a clock that tests move.

It answers as the clients of the commitlog and the consumequeue service do. An append is atomic. It can fail before or after it
was written, as an append whose answer was lost.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.message.v1.message_pb2 import AppendResult, FlushMode, StoredMessage
from services.convert import millis_to_timestamp, timestamp_to_millis
from services.following.store_clock import StoreClock
from services.reading.recent_units import RecentUnits
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.errors import (
    DeadlineExceededError,
    FollowerFencedError,
    InvalidArgumentError,
    RecordCorruptedError,
    RecordNotFoundError,
    ServiceUnavailableError,
    StoreError,
    TopicNotFoundError,
)
from store.files.config_file import ConfigFile
from store.format.derived.queue_unit import QueueUnit
from store.format.java_text import java_string_hash
from store.format.properties import (
    LITE_TOPIC,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    PRIORITY,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
    LightPlace,
)
from store.format.topic import LIGHT_QUEUE_PREFIX, has_light_units, is_light_queue, lite_queue_name
from tests.support.calls import Answers

START_MILLIS = 1_700_000_000_000
RECORD_BYTES = 100


class ManualClock(StoreClock):
    """Stands until a test moves it."""

    def __init__(self) -> None:
        self.now = START_MILLIS

    def millis(self) -> int:
        """Now."""
        return self.now


@dataclass(slots=True)
class Queue:
    """A queue: its first position, and the units from there on."""

    first: int = 0
    units: list[QueueUnit] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Position of the next message."""
        return self.first + len(self.units)


class MemoryLog(Answers):
    """See the top of this file.

    Args:
        clock: store times.
        state_topic: where the service keeps its state.

    Attributes:
        records: by commit-log offset.
        queues: by topic and queue.
        recent: of the life that follows the log; gets each record.
        appends_left: appends that succeed before one fails; None: all succeed.
        writes_failing: whether the append that fails is written.
        body_bytes_max: bodies of an append of the service, but for its state; a larger request is refused.
        is_building: the consumequeue service has no units now.
        is_unproven: store times of queues fall, so positions by time are guesses: the end.
        unreadable: offsets of records that cannot be read now.
        damaged: offsets of records that are damaged.
        config: the files of `config/`.
        timer_log: the units of `timerlog/`; None: they were never written.
        requests: the records of each append of the service.
        written: all records, also those that were removed.
        on_light: told of light queues with new messages.
        state_bodies: of all state records, also of those that were removed.
    """

    def __init__(self, clock: ManualClock, state_topic: str) -> None:
        self.clock = clock
        self.state_topic = state_topic
        self.records: dict[int, StoredMessage] = {}
        self.queues: dict[tuple[str, int], Queue] = {}
        self.recent: RecentUnits | None = None
        self.end = 0
        self.now = 0
        self.epoch = 0
        self.appends_left: int | None = None
        self.writes_failing = False
        self.body_bytes_max = 1 << 40
        self.is_building = False
        self.is_unproven = False
        self.unreadable: set[int] = set()
        self.damaged: set[int] = set()
        self.config: dict[str, bytes] = {}
        self.problems: dict[str, str] = {}
        self.timer_log: bytes | None = None
        self._lock = threading.Lock()
        self.on_light: Callable[[Sequence[str]], object] = lambda queues: None
        self.state_bodies: list[bytes] = []
        self.requests: list[Sequence[InternalRecord]] = []
        self.written: list[StoredMessage] = []

    # -- appends

    def send(
        self,
        topic: str,
        body: bytes = b"x",
        queue_id: int = 0,
        message_group: str = "",
        tags: str = "",
        priority: int | None = None,
        lite_topic: str = "",
    ) -> StoredMessage:
        """Append a message as a producer; the queue is not chosen by the priority."""
        properties = {UNIQ_KEY: body.decode(errors="replace")}
        properties |= {SHARDING_KEY: message_group} if message_group else {}
        properties |= {TAGS: tags} if tags else {}
        properties |= {} if priority is None else {PRIORITY: str(priority)}
        properties |= {LITE_TOPIC: lite_topic, MULTI_DISPATCH: lite_queue_name(topic, lite_topic)} if lite_topic else {}
        record = InternalRecord(topic=topic, queue_id=queue_id, body=body, properties=properties)
        return self.records[self.write([record])[0].commit_log_offset]

    def append(self, epoch: int, records: Sequence[InternalRecord], flush: FlushMode) -> Sequence[AppendResult]:
        """Append records as a life of the service."""
        if epoch < self.epoch:
            raise FollowerFencedError("a later life has appended", follower="consumer")
        self.epoch = epoch
        if sum(len(record.body) for record in records if record.topic != self.state_topic) > self.body_bytes_max:
            raise InvalidArgumentError("the bodies of a request are too many bytes", field="records")
        if self.appends_left is not None:
            self.appends_left -= 1
            if self.appends_left < 0:
                if self.writes_failing:
                    self.write(records)
                raise DeadlineExceededError("the append was not answered")
        self.requests.append(records)
        return self.write(records)

    def write(self, records: Sequence[InternalRecord]) -> list[AppendResult]:
        """Append records, whatever happens."""
        with self._lock:
            return self._write(records)

    def _write(self, records: Sequence[InternalRecord]) -> list[AppendResult]:
        results: list[AppendResult] = []
        requests: list[DispatchRequest] = []
        now = self.now = max(self.now, self.clock.now)  # as the commit log: store times never run backwards
        store_time = millis_to_timestamp(now)
        for record in records:
            queue = self.queues.setdefault((record.topic, record.queue_id), Queue())
            offset, self.end = self.end, self.end + RECORD_BYTES
            tags = record.properties.get(TAGS, "")
            properties = dict(record.properties)
            light = properties.get(MULTI_DISPATCH, "") if has_light_units(record.topic) else ""
            light_at = self.queues.setdefault((light, 0), Queue()).end if light else 0
            properties |= {MULTI_QUEUE_OFFSET: str(light_at)} if light else {}
            self.records[offset] = StoredMessage(
                topic=record.topic,
                queue_id=record.queue_id,
                queue_offset=queue.end,
                commit_log_offset=offset,
                store_size_bytes=RECORD_BYTES,
                flag=record.flag,
                sys_flag=record.sys_flag,
                body=record.body,
                born_time=record.born_time if record.HasField("born_time") else store_time,
                born_host=record.born_host,
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
                properties=properties,
                tags=tags,
                unique_key=record.properties.get(UNIQ_KEY, ""),
                offset_msg_id=f"{offset:032X}",
                store_time=store_time,
            )
            code = java_string_hash(tags) if tags else 0
            requests.append(
                DispatchRequest(
                    record.topic,
                    record.queue_id,
                    queue.end,
                    offset,
                    RECORD_BYTES,
                    code,
                    now,
                    (),
                    "",
                    0,
                    0,
                    light_places=(LightPlace(light, light_at),) if light else (),
                )
            )
            if light:
                self.queues[light, 0].units.append(QueueUnit(offset, RECORD_BYTES, code))

            self.written.append(self.records[offset])
            results.append(
                AppendResult(
                    commit_log_offset=offset,
                    queue_id=record.queue_id,
                    queue_offset=queue.end,
                    offset_msg_id=f"{offset:032X}",
                    unique_key=record.properties.get(UNIQ_KEY, ""),
                    store_time=store_time,
                )
            )
            if record.topic == self.state_topic:
                self.state_bodies.append(record.body)
            queue.units.append(QueueUnit(offset, RECORD_BYTES, code))
        if self.recent is not None:
            columns = DispatchColumns.of(requests)
            self.recent.add(columns)
            if columns.light_units:
                self.on_light([unit.queue for unit in columns.light_units])
        return results

    def remove(self, topic: str, queue_id: int, count: int) -> None:
        """Remove the first messages of a queue, as retention does."""
        queue = self.queues[topic, queue_id]
        for unit in queue.units[:count]:
            del self.records[unit.commit_log_offset]
        del queue.units[:count]
        queue.first += count

    def remove_before(self, commit_log_offset: int) -> None:
        """Remove all records before an offset of the log, as retention does."""
        for topic, queue_id in list(self.queues):
            units = self.queues[topic, queue_id].units
            self.remove(topic, queue_id, sum(unit.commit_log_offset < commit_log_offset for unit in units))

    # -- as CommitLogClient

    def get_many(
        self,
        commit_log_offsets: Sequence[int],
        *,
        body_bytes_max: int = 4 << 20,
        omit_bodies: bool = False,
        timeout_seconds: float = 0,
    ) -> list[StoredMessage | StoreError]:
        """See CommitLogClient."""
        outcomes: list[StoredMessage | StoreError] = []
        left = body_bytes_max
        for offset in commit_log_offsets:
            found = self.records.get(offset)
            if offset in self.unreadable:
                outcomes.append(ServiceUnavailableError(f"the record at {offset} cannot be read now"))
            elif offset in self.damaged:
                outcomes.append(RecordCorruptedError(f"the record at {offset} is damaged", offset=offset))
            elif found is None:
                outcomes.append(RecordNotFoundError(f"there is no record at {offset}", offset=offset))
            else:
                answer = StoredMessage()
                answer.CopyFrom(found)
                if omit_bodies or len(answer.body) > left:
                    answer.body, answer.body_omitted, left = b"", True, 0
                left -= len(answer.body)
                outcomes.append(answer)
        return outcomes

    def get(self, commit_log_offset: int, *, timeout_seconds: float = 0) -> StoredMessage:
        """See CommitLogClient."""
        (outcome,) = self.get_many([commit_log_offset], body_bytes_max=1 << 40)
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    def read_config_file(self, name: str, *, timeout_seconds: float = 0) -> bytes | None:
        """See CommitLogClient."""
        return self.read_config(name).content

    def read_config(self, name: str, *, timeout_seconds: float = 0) -> ConfigFile:
        """See CommitLogClient; `problems` by name are those of files that are damaged, which `.bak`s stand in for."""
        return ConfigFile(self.config.get(name), self.problems.get(name, ""), name in self.problems)

    def write_config_file(self, name: str, content: bytes, *, timeout_seconds: float = 0) -> None:
        """See CommitLogClient."""
        self.config[name] = content

    def write_timer_log(self, parts: Iterable[bytes], *, timeout_seconds: float = 0) -> None:
        """See CommitLogClient."""
        self.timer_log = b"".join(parts)

    def readable_offset(self, *, flush_soon: bool = False, timeout_seconds: float = 0) -> int | None:
        """See CommitLogClient."""
        return self.end

    # -- as a client of the consumequeue service

    def GetQueueUnits(self, request: queue_pb.GetQueueUnitsRequest) -> queue_pb.GetQueueUnitsResponse:
        """See the proto."""
        topic, queue_id, queue_offset = request.topic, request.queue_id, request.queue_offset
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            raise TopicNotFoundError(f"there is no queue {queue_id} of topic {topic}", topic=topic)
        removed_count = sum(unit.commit_log_offset < request.log_first_offset for unit in queue.units)
        is_behind = self.is_building and is_light_queue(topic)
        answer = queue_pb.GetQueueUnitsResponse(
            min_offset=queue.first + removed_count, max_offset=queue.end, next_offset=0 if is_behind else self.end
        )
        if not self.is_building and answer.min_offset <= queue_offset:
            begin = queue_offset - queue.first
            for place, unit in enumerate(queue.units[begin : begin + request.max_units]):
                answer.units.add(
                    queue_offset=queue_offset + place,
                    commit_log_offset=unit.commit_log_offset,
                    record_size_bytes=unit.record_size_bytes,
                    tags_code=unit.tags_code,
                )
        return answer

    def ListLightQueues(self, request: queue_pb.ListLightQueuesRequest) -> queue_pb.ListLightQueuesResponse:
        """See the proto; pages of all queues."""
        prefix = LIGHT_QUEUE_PREFIX + request.prefix
        rows = [(name, queue) for (name, _), queue in self.queues.items()][request.page_token :]
        part = [(name, queue) for name, queue in rows[: request.page_size] if name.startswith(prefix)]
        return queue_pb.ListLightQueuesResponse(
            names=[name.removeprefix(prefix) for name, _ in part],
            max_offsets=[queue.end for _, queue in part],
            next_page_token=request.page_token + request.page_size if len(rows) > request.page_size else 0,
            next_offset=0 if self.is_building else self.end,
        )

    def GetStatus(self, request: queue_pb.GetStatusRequest) -> queue_pb.GetStatusResponse:
        """See the proto."""
        return queue_pb.GetStatusResponse(next_offset=0 if self.is_building else self.end)

    def SearchOffset(self, request: queue_pb.SearchOffsetRequest) -> queue_pb.SearchOffsetResponse:
        """See the proto."""
        topic, queue_id = request.topic, request.queue_id
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            raise TopicNotFoundError(f"there is no queue {queue_id} of topic {topic}", topic=topic)
        if self.is_unproven:
            return queue_pb.SearchOffsetResponse(queue_offset=queue.end, unproven=True)
        for place, unit in enumerate(queue.units):
            stored = self.records[unit.commit_log_offset].store_time
            if timestamp_to_millis(stored, "store_time") >= timestamp_to_millis(request.time, "time"):
                return queue_pb.SearchOffsetResponse(queue_offset=queue.first + place, catching_up=self.is_building)
        return queue_pb.SearchOffsetResponse(queue_offset=queue.end, catching_up=self.is_building)

    # -- looking

    def messages(self, topic: str) -> Iterator[StoredMessage]:
        """The messages of a topic, by queue and position."""
        for (name, _), queue in sorted(self.queues.items()):
            if name == topic:
                yield from (self.records[unit.commit_log_offset] for unit in queue.units)


def always_newer() -> Callable[[], float]:
    """A clock by which nothing cached is fresh: retention of tests takes effect at once."""
    seconds = iter(range(0, 1 << 62, 1_000))
    return lambda: float(next(seconds))
