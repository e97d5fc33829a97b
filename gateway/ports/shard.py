"""A shard, and the methods by which queries ask it (gateway/ports/chain.py says how a call is made).

gRPC clients, archives and test doubles answer them (tests/contracts). Offsets are bytes in the log (`commit_log_offset`) or
messages in a queue (`queue_offset`); times are milliseconds since 1970. The functions at the end make the requests of the
methods that many queries call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from gateway.ports.chain import Answer, Answering, Concern, Link, Links, MethodTable, Request, ShardMethod, chained
from gateway.ports.deadline import Deadline
from gateway.ports.store_facts import StoreFacts
from gateway.ports.time_window import TimeWindow, millis_in, set_millis
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError

BuiltAnswer = TypeVar("BuiltAnswer")

# A message's own tag and length in an answer, and its body's.
FIELD_OVERHEAD_BYTES = 16
# The code of the tags of a queue unit, where it is not known: outside Java's int, so that it rules nothing out.
TAGS_CODE_UNKNOWN = 1 << 62


def store_millis(record: StoredMessage) -> int:
    """When a record was stored (ms since 1970)."""
    time = record.store_time
    return time.seconds * 1000 + time.nanos // 1_000_000


def body_size_bytes(record: StoredMessage) -> int:
    """The size of a record's body; an upper bound when the body was omitted."""
    return record.store_size_bytes if record.body_omitted else len(record.body)


def head_size_bytes(record: StoredMessage) -> int:
    """The size of a record in an answer, without the body."""
    return record.ByteSize() - len(record.body) + FIELD_OVERHEAD_BYTES


def is_blank(outcome: StoredMessage | StoreError) -> bool:
    """Whether it stands for a record that the caller may not see (gateway/auth/caller_shards.py)."""
    return not isinstance(outcome, StoreError) and not outcome.topic


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a builder is: it has built the log before `next_offset`.

    Attributes:
        next_offset: in bytes.
        log_end_offset: the flushed end that the builder knows; in a query the end of the log when the query arrived
            (queries/freshness.py).
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


@dataclass(slots=True)
class Built(Generic[BuiltAnswer]):
    """The answer of a builder, and what is known beside it.

    Attributes:
        answer: the message.
        progress: how far the builder is.
        problem: why some may be missing, or why a position may be that of a wrong message.
        passed_over: why the index was not asked at all; unspecified when it was.
    """

    answer: BuiltAnswer
    progress: BuildProgress
    problem: StoreError | None = None
    passed_over: "gateway_pb.PassedOver" = gateway_pb.PASSED_OVER_UNSPECIFIED


@dataclass(frozen=True, slots=True)
class StatusRow:
    """The state of one service of a shard, without the shard's name.

    Attributes:
        status: a row of the answer to GetStatus; only `service` and `address` when it did not answer.
        error: why it did not answer.
    """

    status: gateway_pb.GetStatusResponse.ServiceStatus
    error: StoreError | None = None


# The record that starts at an offset, with its body. RecordNotFoundError when none does, OffsetOutOfRangeError outside the log,
# RecordCorruptedError when damaged.
GET_RECORD: ShardMethod[log_pb.GetMessageRequest, StoredMessage] = ShardMethod("commitlog.get", "commitlog")
# One outcome for each offset, in order; fewer (but at least one) when the answer was full. Bodies come along while all of them
# fit into `body_bytes_max` bytes; after the first that does not fit, none does.
GET_RECORDS: ShardMethod[log_pb.BatchGetMessagesRequest, Sequence[StoredMessage | StoreError]] = ShardMethod(
    "commitlog.get-many", "commitlog"
)
# One row for each service; a service that does not answer has its error in the row.
STATUSES: ShardMethod[None, Sequence[StatusRow]] = ShardMethod("status", "", is_guarded=False)
# Why messages that the log has dropped may be missing, of a topic or, with an empty one, of any; None when none are. A shard
# without archive does not serve it. Archived messages come through the other methods.
ARCHIVE_PROBLEM: ShardMethod[str, StoreError | None] = ShardMethod("archive.problem", "archive", is_guarded=False)
# The queues of a topic (none when unknown), or all with an empty topic, from all pages. UnsupportedStoreError for a topic whose
# queues are not served; the list of all has them, each with a problem.
LIST_QUEUES: ShardMethod[queue_pb.ListQueuesRequest, Sequence[queue_pb.Queue]] = ShardMethod(
    "consumequeue.list-queues", "consumequeue"
)
# Units of a queue from a position on, none when out of range, and the queue's range. TopicNotFoundError and QueueNotFoundError
# when there is no file of the queue; likewise the next one.
GET_UNITS: ShardMethod[queue_pb.GetQueueUnitsRequest, Built[queue_pb.GetQueueUnitsResponse]] = ShardMethod(
    "consumequeue.units", "consumequeue"
)
# The position for a store time, and the queue's range.
SEARCH_OFFSET: ShardMethod[queue_pb.SearchOffsetRequest, Built[queue_pb.SearchOffsetResponse]] = ShardMethod(
    "consumequeue.search-offset", "consumequeue"
)
# How far the queues are. Waits until they are past a byte, for `wait_millis` at most; not when too many calls wait.
QUEUES_PROGRESS: ShardMethod[queue_pb.GetStatusRequest, Built[queue_pb.GetStatusResponse]] = ShardMethod(
    "consumequeue.progress", "consumequeue"
)
# The queues of topics of namespaces, with the bytes of their records in the log; without those of an archive.
LIST_STORED: ShardMethod[queue_pb.ListQueuesRequest, Sequence[queue_pb.Queue]] = ShardMethod(
    "consumequeue.list-stored", "consumequeue"
)
# Candidates for a key, newest first: where records start whose key has the wanted hash, strictly falling. The index has whole
# seconds and hashes, so a candidate may lie outside the window and have another key. A page token is the decimal offset below
# which they start.
SEARCH_KEY: ShardMethod[index_pb.SearchKeyRequest, Built[index_pb.SearchKeyResponse]] = ShardMethod(
    "index.search", "index"
)
# How far the index is, as QUEUES_PROGRESS.
KEYS_PROGRESS: ShardMethod[index_pb.GetStatusRequest, Built[index_pb.GetStatusResponse]] = ShardMethod(
    "index.progress", "index"
)
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
class Shard:
    """One CommitLog with its queues and indexes, and with its archive if there is one.

    Attributes:
        table: the methods that it answers.
        links: what is done around its calls.
        call: asks it: `shard.call(LIST_TOPICS, request, deadline)`.
    """

    broker_name: str
    table: MethodTable = field(default_factory=MethodTable)
    links: Links = field(default_factory=dict)
    call: Answering = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "call", chained(self.links, self.table))

    def has(self, method: ShardMethod[Any, Any]) -> bool:
        """Whether it answers the method."""
        return method in self.table

    def serving(self, method: ShardMethod[Request, Answer], answer: Callable[[Request, Deadline], Answer]) -> "Shard":
        """The shard that also answers this method, below all links."""
        table = self.table.copy()
        table.serve(method, answer)
        return replace(self, table=table)

    def with_link(self, concern: Concern, link: Link) -> "Shard":
        """The shard whose calls go through the link, at the place of its concern."""
        return replace(self, links={**self.links, concern: link})


def topics_of(shard: Shard, deadline: Deadline) -> Mapping[str, log_pb.ListTopicsResponse.Topic]:
    """Every configured topic, by name."""
    return {topic.topic: topic for topic in shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline).topics}


def queue_count_of(topic: log_pb.ListTopicsResponse.Topic) -> int:
    """Queues of a topic that are written or read."""
    return max(topic.write_queue_count, topic.read_queue_count)


def get_record(shard: Shard, commit_log_offset: int, deadline: Deadline) -> StoredMessage:
    """GET_RECORD: the record that starts at an offset."""
    return shard.call(GET_RECORD, log_pb.GetMessageRequest(commit_log_offset=commit_log_offset), deadline)


def get_records(
    shard: Shard, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
) -> Sequence[StoredMessage | StoreError]:
    """GET_RECORDS: one outcome for each offset."""
    request = log_pb.BatchGetMessagesRequest(commit_log_offsets=commit_log_offsets, body_bytes_max=body_bytes_max)
    return shard.call(GET_RECORDS, request, deadline)


def list_queues(shard: Shard, topic: str | None, deadline: Deadline) -> Sequence[queue_pb.Queue]:
    """LIST_QUEUES: the queues of a topic, or all."""
    return shard.call(LIST_QUEUES, queue_pb.ListQueuesRequest(topic=topic or ""), deadline)


def get_units(
    shard: Shard, topic: str, queue_id: int, queue_offset: int, count_max: int, deadline: Deadline
) -> Built[queue_pb.GetQueueUnitsResponse]:
    """GET_UNITS: up to `count_max` units from a position on."""
    request = queue_pb.GetQueueUnitsRequest(
        topic=topic, queue_id=queue_id, queue_offset=queue_offset, max_units=count_max
    )
    return shard.call(GET_UNITS, request, deadline)


def search_offset(
    shard: Shard, topic: str, queue_id: int, time_millis: int, boundary: "gateway_pb.Boundary", deadline: Deadline
) -> Built[queue_pb.SearchOffsetResponse]:
    """SEARCH_OFFSET: the position for a store time."""
    request = queue_pb.SearchOffsetRequest(topic=topic, queue_id=queue_id, boundary=boundary)
    set_millis(request.time, time_millis)
    return shard.call(SEARCH_OFFSET, request, deadline)


def queues_progress(shard: Shard, deadline: Deadline, past_offset: int = 0, wait_seconds: float = 0.0) -> BuildProgress:
    """QUEUES_PROGRESS: how far the queues are."""
    request = queue_pb.GetStatusRequest(past_offset=past_offset, wait_millis=int(wait_seconds * 1000))
    return shard.call(QUEUES_PROGRESS, request, deadline).progress


def keys_progress(shard: Shard, deadline: Deadline, past_offset: int = 0, wait_seconds: float = 0.0) -> BuildProgress:
    """KEYS_PROGRESS: how far the index is."""
    request = index_pb.GetStatusRequest(past_offset=past_offset, wait_millis=int(wait_seconds * 1000))
    return shard.call(KEYS_PROGRESS, request, deadline).progress


def search_key(
    shard: Shard,
    topic: str,
    key: str,
    window: TimeWindow,
    *,
    below_offset: int | None,
    count_max: int,
    deadline: Deadline,
    explain: bool = False,
    of_tags: bool = False,
) -> Built[index_pb.SearchKeyResponse]:
    """SEARCH_KEY: up to `count_max` candidates, only such as start below `below_offset` (None: all).

    `explain` also asks how they were found. With `of_tags` the key is one of `tag_key`; UnsupportedStoreError when the index
    has no entries of tags, and a problem when messages are older than these.
    """
    request = index_pb.SearchKeyRequest(topic=topic, key=key, page_size=count_max, explain=explain, of_tags=of_tags)
    if below_offset is not None:
        request.page_token = str(below_offset)
    if window.begin_millis is not None:
        set_millis(request.begin_time, window.begin_millis)
    if window.end_millis is not None:
        set_millis(request.end_time, window.end_millis)
    return shard.call(SEARCH_KEY, request, deadline)


def window_of(request: index_pb.SearchKeyRequest) -> TimeWindow:
    """The store times of a search."""
    return TimeWindow(millis_in(request, "begin_time"), millis_in(request, "end_time"))


def is_at_front(answer: queue_pb.SearchOffsetResponse, time_millis: int, boundary: "gateway_pb.Boundary") -> bool:
    """Whether a message before the queue's first one may be the right one."""
    if answer.queue_offset > answer.min_offset:
        return False
    first_millis = millis_in(answer, "first_store_time")
    return boundary == gateway_pb.BOUNDARY_LOWER or first_millis is None or first_millis > time_millis


def held_elsewhere(shard: Shard, topic: str, deadline: Deadline) -> StoreError | None:
    """Why messages of a topic may be missing from answers: they are not read, or nothing says where they are."""
    return elsewhere(shard.call, topic, deadline) if shard.has(STORE_FACTS) else None


def elsewhere(call: Answering, topic: str, deadline: Deadline) -> StoreError | None:
    """As `held_elsewhere`, of a shard with STORE_FACTS."""
    try:
        return call(STORE_FACTS, None, deadline).elsewhere(topic)
    except StoreError as error:
        return error
