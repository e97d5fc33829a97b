"""The calls that queries make to a shard. gRPC clients, archives and test doubles implement them (tests/contracts).

Every call takes the caller's Deadline and raises StoreErrors: ServiceUnavailableError when the service does not answer,
DeadlineExceededError when the time is over, and the errors that the method names.
Offsets are bytes in the log (`commit_log_offset`) or messages in a queue (`queue_offset`); times are milliseconds since
1970.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from gateway.ports.chain import Answer, Answering, Concern, Link, Links, MethodTable, Request, ShardMethod, chained
from gateway.ports.deadline import Deadline
from gateway.ports.groups import GroupKeeper
from gateway.ports.key_facts import HeldKeys, KeyExplanation
from gateway.ports.store_facts import StoreFacts
from gateway.ports.time_window import TimeWindow
from gateway.ports.waiting import WaitingLists
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from store.errors import StoreError

# The type of the message that an answer shows: `reput.message.v1.StoredMessage` in the gateway. Queries pass it on and
# never read it; `[object]` marks code that ignores it.
Message = TypeVar("Message")
Message_co = TypeVar("Message_co", covariant=True)


@dataclass(frozen=True, slots=True)
class FoundRecord(Generic[Message_co]):
    """The fields of a stored record that queries read, and the message to show.

    Attributes:
        topic: its topic.
        queue_id: its queue.
        queue_offset: its position in the queue.
        commit_log_offset: where it starts in the log (bytes).
        store_time_millis: when it was stored.
        store_host: `IP:port` of the broker that stored it.
        keys: its KEYS.
        unique_key: the producer's id; empty: none.
        head_size_bytes: its size in an answer, without the body.
        body_size_bytes: the body's size; an upper bound when the body was omitted.
        body_omitted: the reader left the body out.
        message: what the answer shows; the same object that the shard answered with, not a copy.
        is_archived: it was read from the shard's archive, because the log has dropped it.
        is_deleted: its topic was deleted after it was stored, so that it is not delivered.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_time_millis: int
    store_host: str
    keys: tuple[str, ...]
    unique_key: str
    head_size_bytes: int
    body_size_bytes: int
    body_omitted: bool
    message: Message_co
    is_archived: bool = False
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a builder is: it has built the log before `next_offset`.

    Attributes:
        next_offset: in bytes.
        log_end_offset: the flushed end that the builder knows; in a query the end of the log when the query arrived
            (queries/arrival.py).
        catching_up: the builder has not reached the end of the log since its start.
        built_up_to_millis: store time of the newest record built.
        is_final: no later record can be part of the answer.
        is_limited: its caller may not see all records: offsets and times of the log tell when others come, and how large.
    """

    next_offset: int
    log_end_offset: int
    catching_up: bool
    built_up_to_millis: int | None = None
    is_final: bool = False
    is_limited: bool = False

    @property
    def is_behind(self) -> bool:
        """Whether records are not yet built, so an answer may lack them."""
        return self.catching_up or self.next_offset < self.log_end_offset


@dataclass(frozen=True, slots=True)
class Candidates:
    """Offsets of records whose key has the wanted hash, strictly falling; `more` when there are others below.

    `problem` says why some may be missing. `explanation` is set when it was asked for and the index gives one, `held`
    when a summary was asked for (shards/summaries.py). `is_limited`: an explanation must not tell of other records than those
    that the caller sees.
    """

    commit_log_offsets: tuple[int, ...]
    more: bool
    progress: BuildProgress
    damaged_chain_count: int = 0
    problem: StoreError | None = None
    explanation: KeyExplanation | None = None
    held: HeldKeys | None = None
    is_limited: bool = False


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A queue and its range `[min_offset, max_offset)`.

    With a `problem` nothing else of the queues of the topic is served, for that reason, and the range may be told in part.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """One position of a queue and the record there; `tags_code` is None when the unit has none."""

    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int
    tags_code: int | None = None


@dataclass(frozen=True, slots=True)
class QueueStretch:
    """Units in queue order, empty when out of range, and the queue's range.

    `problem` says why some of the units may be missing.
    """

    units: tuple[Unit, ...]
    min_offset: int
    max_offset: int
    progress: BuildProgress
    problem: StoreError | None = None


class Boundary(Enum):
    """Which of several equal store times a search answers with."""

    LOWER = "lower"
    UPPER = "upper"


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A position, and the queue's range; the store times of its first and last message, None when it has none.

    `progress` is None when no builder was asked. `problem` says why the position may be that of a wrong message.
    """

    queue_offset: int
    min_offset: int
    max_offset: int
    progress: BuildProgress | None = None
    first_store_time_millis: int | None = None
    last_store_time_millis: int | None = None
    problem: StoreError | None = None

    @property
    def catching_up(self) -> bool:
        """Whether the builder is catching up after a start."""
        return self.progress is not None and self.progress.catching_up

    def is_at_front(self, time_millis: int, boundary: Boundary) -> bool:
        """Whether a message before the queue's first one may be the right one."""
        if self.queue_offset > self.min_offset:
            return False
        first_millis = self.first_store_time_millis
        return boundary is Boundary.LOWER or first_millis is None or first_millis > time_millis


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica of a shard, as its leader knows it: what it lacks of the leader's log, and for how long already.

    While it is far behind it has got `fetched_bytes` of the `fetch_total_bytes` that it lacked when its stream began.
    """

    replica: str
    in_sync: bool
    connected: bool
    lag_bytes: int
    lag_millis: int
    fetched_bytes: int = 0
    fetch_total_bytes: int = 0
    fetched_bytes_per_second: int = 0


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The state of one service of a shard; the numbers are 0 when `error` says why it did not answer.

    `problem` says what is wrong and what to do; empty: nothing. While a log is being recovered, everything from
    `recovery_begin_offset` to `recovery_next_offset` is checked and `recovery_end_offset` is where its files end.
    `newest_store_time_millis` is that of its newest record, None when unknown. A consumer service has `group_count` groups,
    `in_flight_count` messages with clients and `client_count` clients that live. A schedule
    service has `scheduled_count` messages that wait for a time and `transaction_count` half messages without a verdict;
    the oldest message that is due and not delivered was due at `oldest_due_time_millis`. A commit log that follows a broker
    has not shown `followed_lag_bytes` of what the broker wrote, and the newest record shown is `followed_lag_millis` old then.
    The commitlog of a shard with replicas
    is one of them, has a role and an epoch, and knows all replicas when it leads; its
    `coordinator` keeps who leads. The store of a commitlog uses `features` that are not wholly supported, a sentence each.
    """

    service: str
    address: str
    error: StoreError | None = None
    log_first_offset: int = 0
    log_end_offset: int = 0
    next_offset: int = 0
    catching_up: bool = False
    state: str = ""
    problem: str = ""
    recovery_begin_offset: int = 0
    recovery_next_offset: int = 0
    recovery_end_offset: int = 0
    file_count: int = 0
    file_size_bytes: int = 0
    key_count: int = 0
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    disk_level: str = ""
    newest_store_time_millis: int | None = None
    group_count: int = 0
    in_flight_count: int = 0
    client_count: int = 0
    scheduled_count: int = 0
    transaction_count: int = 0
    oldest_due_time_millis: int | None = None
    replica: str = ""
    role: str = ""
    epoch: int = 0
    replicas: Sequence[ReplicaStatus] = ()
    coordinator: str = ""
    features: Sequence[str] = ()
    followed_lag_bytes: int | None = None
    followed_lag_millis: int | None = None


class RecordReader(Protocol[Message_co]):
    """Reads the log."""

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord[Message_co]:
        """The record that starts there, with its body.

        RecordNotFoundError when none does, OffsetOutOfRangeError outside the log, RecordCorruptedError when damaged.
        """

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord[Message_co] | StoreError]:
        """One outcome for each offset, in order; fewer (but at least one) when the answer was full.

        Bodies come along while all of them fit into `body_bytes_max` bytes; after the first that does not fit, none does.
        """


class QueueLocator(Protocol):
    """Reads the consume queues. TopicNotFoundError and QueueNotFoundError when it has no file of such a queue."""

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """The queues of a topic (none when unknown), or all.

        UnsupportedStoreError for a topic whose queues are not served; the list of all has them, each with a problem.
        """

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> QueueStretch:
        """Up to `unit_count_max` units from a position on."""

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: Boundary, deadline: Deadline
    ) -> FoundOffset:
        """The position for a store time."""

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """How far the queues are. Waits until they are past that byte, at most `wait_seconds`; not when too many calls wait."""


class KeyLocator(Protocol):
    """Reads the key index."""

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
    ) -> Candidates:
        """Up to `count_max` candidates, newest first, only such as start below `below_offset` (None: all).

        `explain` also asks how they were found.

        The index has whole seconds and hashes, so a candidate may lie outside the window and have another key.
        """

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """How far the index is. Waits until it is past that byte, at most `wait_seconds`; not when too many calls wait."""


class StatusReader(Protocol):
    """Asks a shard's services how they are."""

    def statuses(self, deadline: Deadline) -> Sequence[ServiceStatus]:
        """One row for each service; a service that does not answer has its error in the row."""


class Archive(Protocol):
    """Knows which part of a shard's archive cannot be read. Archived messages come through the other ports."""

    def problem(self, topic: str | None, deadline: Deadline) -> StoreError | None:
        """Why messages that the log has dropped may be missing, of a topic or of any; None when none are."""


# The configured topics, by name, and the number of queues of a topic that its first message creates.
LIST_TOPICS: ShardMethod[log_pb.ListTopicsRequest, log_pb.ListTopicsResponse] = ShardMethod(
    "commitlog.list-topics", "commitlog"
)
# Commands for topics; InvalidArgumentError, with `field`, for what is not allowed. A shard that takes none does not serve them.
# Creates a topic; TopicExistsError when it has other values.
CREATE_TOPIC: ShardMethod[log_pb.CreateTopicRequest, log_pb.CreateTopicResponse] = ShardMethod(
    "commitlog.create-topic", "commitlog", is_guarded=False
)
# Changes the values that are set; TopicNotFoundError when there is no such topic.
UPDATE_TOPIC: ShardMethod[log_pb.UpdateTopicRequest, log_pb.UpdateTopicResponse] = ShardMethod(
    "commitlog.update-topic", "commitlog", is_guarded=False
)
# Takes a topic out of the configuration.
DELETE_TOPIC: ShardMethod[log_pb.DeleteTopicRequest, log_pb.DeleteTopicResponse] = ShardMethod(
    "commitlog.delete-topic", "commitlog", is_guarded=False
)
# Where the log ends (bytes): everything that was acknowledged lies before it. None while the log is being recovered. With
# `flush_soon` followers see the end without delay. Without it only the builders tell how far the log is.
LOG_END: ShardMethod[log_pb.GetStatusRequest, int | None] = ShardMethod("commitlog.end", "commitlog")
# Whether anything was written from the end of a record on (bytes), without a call; None: only LOG_END can tell.
IS_WRITTEN_AT: ShardMethod[int, bool | None] = ShardMethod("commitlog.is-written-at", "commitlog", is_guarded=False)
# What the store says of its messages as a whole; a StoreError while nothing is known yet. A shard whose log has all messages
# that there are does not serve it.
STORE_FACTS: ShardMethod[None, StoreFacts] = ShardMethod("commitlog.facts", "commitlog")


@dataclass(frozen=True, slots=True)
class Shard(Generic[Message_co]):
    """One CommitLog with its queues and indexes, and with its archive if there is one.

    A shard without consumer service has no `groups`, one without schedule service no `waiting`.

    Attributes:
        table: the methods that it answers.
        links: what is done around its calls.
        call: asks it: `shard.call(LIST_TOPICS, request, deadline)`.
    """

    broker_name: str
    records: RecordReader[Message_co]
    queues: QueueLocator
    keys: KeyLocator
    services: StatusReader
    table: MethodTable = field(default_factory=MethodTable)
    archive: Archive | None = None
    groups: GroupKeeper | None = None
    waiting: WaitingLists | None = None
    links: Links = field(default_factory=dict)
    call: Answering = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "call", chained(self.links, self.table))

    def has(self, method: ShardMethod[Any, Any]) -> bool:
        """Whether it answers the method."""
        return method in self.table

    def serving(
        self, method: ShardMethod[Request, Answer], answer: Callable[[Request, Deadline], Answer]
    ) -> "Shard[Message_co]":
        """The shard that also answers this method, below all links."""
        table = self.table.copy()
        table.serve(method, answer)
        return replace(self, table=table)

    def with_link(self, concern: Concern, link: Link) -> "Shard[Message_co]":
        """The shard whose calls go through the link, at the place of its concern."""
        return replace(self, links={**self.links, concern: link})


def topics_of(shard: Shard[object], deadline: Deadline) -> Mapping[str, log_pb.ListTopicsResponse.Topic]:
    """Every configured topic, by name."""
    return {topic.topic: topic for topic in shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline).topics}


def queue_count_of(topic: log_pb.ListTopicsResponse.Topic) -> int:
    """Queues of a topic that are written or read."""
    return max(topic.write_queue_count, topic.read_queue_count)


def held_elsewhere(shard: Shard[object], topic: str, deadline: Deadline) -> StoreError | None:
    """Why messages of a topic may be missing from answers: they are not read, or nothing says where they are."""
    if not shard.has(STORE_FACTS):
        return None
    try:
        return shard.call(STORE_FACTS, None, deadline).elsewhere(topic)
    except StoreError as error:
        return error
