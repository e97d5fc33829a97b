"""The ports over gRPC: a shard whose commitlog, consumequeue, index, consumer and schedule are services."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from gateway.ports.chain import Concern, MethodTable, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.groups import (
    COMMIT_OFFSETS,
    DELETE_GROUP,
    GET_FIGURES,
    GET_GROUP,
    GET_OFFSETS,
    LIST_GROUPS,
    LIST_LITE_TOPICS,
    LOCK_QUEUES,
    MAKE_GROUP,
    RESET_OFFSETS,
    SEE_TOPICS,
    SEND_BACK,
    TRACK,
    UPDATE_GROUP,
    GroupsRequest,
    is_asked_for,
)
from gateway.ports.shard import (
    CREATE_TOPIC,
    DELETE_TOPIC,
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
    STORE_FACTS,
    UPDATE_TOPIC,
    BuildProgress,
    Built,
    Shard,
)
from gateway.ports.time_window import millis_in
from gateway.ports.waiting import DELAY_LEVELS, KNOWN_OFFSET, LIST_SCHEDULED, LIST_TRANSACTIONS
from gateway.shards.remote_delivery import RemoteDelivering
from gateway.shards.remote_services import RemoteServices
from gateway.shards.remote_waiting import RemoteScheduling
from gateway.shards.store_facts import RemoteStoreFacts
from gateway.shards.summaries import FILTER_PAGES, FilterCache, Summaries
from gateway.shards.targets import ShardTargets
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.message.v1.message_pb2 import StoredMessage
from reput.schedule.v1 import schedule_service_pb2 as schedule_pb
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.calling.consumequeue import list_queues
from services.calling.port_calls import port_call
from services.convert import stored_message
from services.reading.deleted_topics import DeletedTopics
from services.rpcs import Answer as Answered
from services.rpcs import Request as Message
from services.rpcs import Rpc
from services.rpcs import commitlog as log_rpc
from services.rpcs import consumequeue as queue_rpc
from services.rpcs import consumer as consumer_rpc
from services.rpcs import index as index_rpc
from services.rpcs import schedule as schedule_rpc
from services.serving.admission.callers import caller_here
from services.serving.tls import TlsIdentity
from store.errors import ServiceUnavailableError, StoreCorruptedError, StoreError, UnsupportedStoreError
from store.format.delivery.delay_levels import DELAY_LEVELS_MILLIS
from store.format.record import Record

# The time in which a new ordinal has to answer with its name.
ASK_SECONDS = 2.0
# How long a list of delay levels is taken for granted.
LEVELS_SECONDS = 60.0
# Answers with the progress of a builder, in fields of the same names.
_BuiltAnswer = (
    queue_pb.GetStatusResponse
    | queue_pb.GetQueueUnitsResponse
    | queue_pb.SearchOffsetResponse
    | index_pb.GetStatusResponse
)
_log = structlog.get_logger("reput.gateway")

Request = TypeVar("Request")
Answer = TypeVar("Answer")
GroupsPage = TypeVar("GroupsPage", consumer_pb.ListGroupsResponse, consumer_pb.TrackMessageResponse)
# Requests of which the consumer service counts what it keeps, by the caller of the gateway.
Called = TypeVar(
    "Called",
    consumer_pb.CommitOffsetsRequest,
    consumer_pb.SendBackMessagesRequest,
    consumer_pb.LockQueuesRequest,
    consumer_pb.ResetOffsetsRequest,
    consumer_pb.UpdateGroupRequest,
)
StatusAnswer = TypeVar("StatusAnswer", queue_pb.GetStatusResponse, index_pb.GetStatusResponse)


def found_stored(broker_name: str, record: Record, omit_body: bool) -> StoredMessage:
    """A decoded record of an archive as a message, in the form that the shard's service gives it."""
    return stored_message(record, broker_name, omit_body=omit_body)


def timed(
    method: ShardMethod[Request, Answer], ask: Callable[[Request, Deadline], Answer]
) -> Callable[[Request, Deadline], Answer]:
    """The function with a time and a span for each call (services/calling/port_calls.py)."""
    return port_call(method.name)(ask)


def serve_rpc(
    table: MethodTable, method: ShardMethod[Message, Answered], client: ServiceClient, rpc: Rpc[Message, Answered]
) -> None:
    """Answer a method with an RPC of the same messages."""
    table.serve(
        method, timed(method, lambda request, deadline: client.call(rpc, request, deadline.remaining_seconds()))
    )


def serve_commitlog(table: MethodTable, client: CommitLogClient) -> None:
    """What the commitlog service answers of a shard."""
    deleted_topics = DeletedTopics(client)
    facts = RemoteStoreFacts(deleted_topics)

    def get(request: log_pb.GetMessageRequest, deadline: Deadline) -> StoredMessage:
        return client.get(request.commit_log_offset, timeout_seconds=deadline.remaining_seconds())

    def get_many(request: log_pb.BatchGetMessagesRequest, deadline: Deadline) -> Sequence[StoredMessage | StoreError]:
        return client.get_many(
            request.commit_log_offsets,
            body_bytes_max=request.body_bytes_max,
            timeout_seconds=deadline.remaining_seconds(),
        )

    def delete_topic(request: log_pb.DeleteTopicRequest, deadline: Deadline) -> log_pb.DeleteTopicResponse:
        try:
            return client.call(log_rpc.DELETE_TOPIC, request, deadline.remaining_seconds())
        finally:
            deleted_topics.expire()  # the next query sees it

    def log_end(request: log_pb.GetStatusRequest, deadline: Deadline) -> int | None:
        return client.readable_offset(flush_soon=request.flush_soon, timeout_seconds=deadline.remaining_seconds())

    table.serve(GET_RECORD, timed(GET_RECORD, get))
    table.serve(GET_RECORDS, timed(GET_RECORDS, get_many))
    serve_rpc(table, LIST_TOPICS, client, log_rpc.LIST_TOPICS)
    serve_rpc(table, CREATE_TOPIC, client, log_rpc.CREATE_TOPIC)
    serve_rpc(table, UPDATE_TOPIC, client, log_rpc.UPDATE_TOPIC)
    table.serve(DELETE_TOPIC, timed(DELETE_TOPIC, delete_topic))
    table.serve(LOG_END, timed(LOG_END, log_end))
    table.serve(IS_WRITTEN_AT, lambda offset, deadline: client.is_written_at(offset))
    table.serve(STORE_FACTS, facts.facts)  # takes the time of its calls itself: most answers need none


def serve_consumequeue(table: MethodTable, client: ServiceClient) -> None:
    """What the consumequeue service answers of a shard."""

    def queues(request: queue_pb.ListQueuesRequest, deadline: Deadline) -> Sequence[queue_pb.Queue]:
        return list_queues(client, request.topic, timeout_seconds=deadline.remaining_seconds())

    def get_units(request: queue_pb.GetQueueUnitsRequest, deadline: Deadline) -> Built[queue_pb.GetQueueUnitsResponse]:
        answer = client.call(queue_rpc.GET_QUEUE_UNITS, request, deadline.remaining_seconds())
        problem = _damage(request.topic, request.queue_id) if answer.damaged else None
        return Built(answer, _progress(answer), problem)

    def search_offset(
        request: queue_pb.SearchOffsetRequest, deadline: Deadline
    ) -> Built[queue_pb.SearchOffsetResponse]:
        answer = client.call(queue_rpc.SEARCH_OFFSET, request, deadline.remaining_seconds())
        problem = None
        if answer.damaged:
            problem = _damage(request.topic, request.queue_id)
        elif answer.unproven:
            problem = _falling(request.topic, request.queue_id)
        return Built(answer, _progress(answer), problem)

    def stored(request: queue_pb.ListQueuesRequest, deadline: Deadline) -> Sequence[queue_pb.Queue]:
        return list_queues(client, of_namespaces=True, timeout_seconds=deadline.remaining_seconds())

    table.serve(LIST_QUEUES, timed(LIST_QUEUES, queues))
    table.serve(LIST_STORED, timed(LIST_STORED, stored))
    table.serve(GET_UNITS, timed(GET_UNITS, get_units))
    table.serve(SEARCH_OFFSET, timed(SEARCH_OFFSET, search_offset))
    _serve_progress(table, QUEUES_PROGRESS, client, queue_rpc.GET_STATUS)


def serve_index(table: MethodTable, client: ServiceClient) -> None:
    """What the index service answers of a shard."""

    def search_key(request: index_pb.SearchKeyRequest, deadline: Deadline) -> Built[index_pb.SearchKeyResponse]:
        answer = client.call(index_rpc.SEARCH_KEY, request, deadline.remaining_seconds())
        built_up_to_millis = millis_in(answer, "indexed_up_to_time")
        progress = BuildProgress(answer.next_offset, answer.log_end_offset, answer.catching_up, built_up_to_millis)
        return Built(answer, progress, _lack_of_tags(answer) if request.of_tags else None)

    def filter_pages(request: index_pb.GetFilterPagesRequest, deadline: Deadline) -> bytes:
        return client.call(index_rpc.GET_FILTER_PAGES, request, deadline.remaining_seconds()).pages

    table.serve(SEARCH_KEY, timed(SEARCH_KEY, search_key))
    table.serve(FILTER_PAGES, timed(FILTER_PAGES, filter_pages))
    _serve_progress(table, KEYS_PROGRESS, client, index_rpc.GET_STATUS)


def _lack_of_tags(answer: index_pb.SearchKeyResponse) -> UnsupportedStoreError | None:
    """Why messages may be missing from a search by tags; raises when the index has no entries of tags."""
    if not answer.HasField("tags_from_offset"):
        raise UnsupportedStoreError(
            "The index has no entries of tags: set REPUT_INDEX_TAGS=on, which counts for new messages, or search the topic.",
            feature="tag-entries",
        )
    if answer.tags_from_offset <= answer.log_first_offset:
        return None
    return UnsupportedStoreError(
        f"Messages before byte {answer.tags_from_offset} of the log may be missing: the index may lack entries of their tags. "
        "`reput fsck --repair` makes them; a search of the topic needs none.",
        feature="tag-entries",
    )


def serve_consumer(table: MethodTable, client: ServiceClient) -> None:
    """What the consumer service answers of a shard."""

    def list_groups(request: consumer_pb.ListGroupsRequest, deadline: Deadline) -> consumer_pb.ListGroupsResponse:
        answer = client.call(consumer_rpc.LIST_GROUPS, request, deadline.remaining_seconds())
        return _cut(answer, "groups", request)

    def track(request: consumer_pb.TrackMessageRequest, deadline: Deadline) -> consumer_pb.TrackMessageResponse:
        answer = client.call(consumer_rpc.TRACK_MESSAGE, request, deadline.remaining_seconds())
        return _cut(answer, "tracks", request)

    table.serve(LIST_GROUPS, timed(LIST_GROUPS, list_groups))
    serve_rpc(table, GET_GROUP, client, consumer_rpc.GET_GROUP)
    serve_rpc(table, LIST_LITE_TOPICS, client, consumer_rpc.LIST_LITE_TOPICS)
    serve_rpc(table, GET_OFFSETS, client, consumer_rpc.GET_OFFSETS)
    _serve_for_caller(table, COMMIT_OFFSETS, client, consumer_rpc.COMMIT_OFFSETS)
    serve_rpc(table, GET_FIGURES, client, consumer_rpc.GET_FIGURES)
    serve_rpc(table, SEE_TOPICS, client, consumer_rpc.SEE_TOPICS)
    _serve_for_caller(table, SEND_BACK, client, consumer_rpc.SEND_BACK_MESSAGES)
    _serve_for_caller(table, LOCK_QUEUES, client, consumer_rpc.LOCK_QUEUES)
    _serve_for_caller(table, RESET_OFFSETS, client, consumer_rpc.RESET_OFFSETS)
    _serve_for_caller(table, UPDATE_GROUP, client, consumer_rpc.UPDATE_GROUP)
    _serve_for_caller(table, MAKE_GROUP, client, consumer_rpc.UPDATE_GROUP)
    serve_rpc(table, DELETE_GROUP, client, consumer_rpc.DELETE_GROUP)
    table.serve(TRACK, timed(TRACK, track))


def _cut(answer: GroupsPage, rows: str, request: GroupsRequest) -> GroupsPage:
    """The page that was asked for, of the rows in this field. A service of an older release answers all, whatever was asked."""
    found = getattr(answer, rows)
    kept = [each for each in found if not each.consumer_group or is_asked_for(request, each.consumer_group)]
    is_longer = 0 < request.page_size < len(kept)
    if not is_longer and len(kept) == len(found):
        return answer
    shown = kept[: request.page_size] if is_longer else kept
    return type(answer)(**{rows: shown}, has_more=is_longer or answer.has_more)


def _serve_for_caller(
    table: MethodTable, method: ShardMethod[Called, Answered], client: ServiceClient, rpc: Rpc[Called, Answered]
) -> None:
    """As `serve_rpc`; the sent copy names the caller of the gateway."""

    def ask(request: Called, deadline: Deadline) -> Answered:
        named = type(request)()
        named.CopyFrom(request)
        named.caller = caller_here()
        return client.call(rpc, named, deadline.remaining_seconds())

    table.serve(method, timed(method, ask))


def serve_schedule(table: MethodTable, client: ServiceClient, clock: Callable[[], float] = time.monotonic) -> None:
    """What the schedule service answers of a shard.

    Args:
        table: of the shard.
        client: calls the service.
        clock: seconds, rising.
    """
    levels: Sequence[int] = ()
    levels_until = 0.0

    def known_offset(request: schedule_pb.GetStatusRequest, deadline: Deadline) -> int:
        status = client.call(schedule_rpc.GET_STATUS, request, deadline.remaining_seconds())
        return 0 if status.catching_up else status.next_offset

    def delay_levels(request: schedule_pb.GetStatusRequest, deadline: Deadline) -> Sequence[int]:
        # Asked for again after a while, as the list changes with a restart only.
        nonlocal levels, levels_until
        now = clock()
        if now < levels_until:
            return levels
        told = tuple(client.call(schedule_rpc.GET_STATUS, request, deadline.remaining_seconds()).delay_levels_millis)
        if not told:  # what waits is being read, or the service is of a release that does not tell
            return DELAY_LEVELS_MILLIS
        levels, levels_until = told, now + LEVELS_SECONDS
        return told

    serve_rpc(table, LIST_TRANSACTIONS, client, schedule_rpc.LIST_PENDING_TRANSACTIONS)
    serve_rpc(table, LIST_SCHEDULED, client, schedule_rpc.LIST_SCHEDULED_MESSAGES)
    table.serve(KNOWN_OFFSET, timed(KNOWN_OFFSET, known_offset))
    table.serve(DELAY_LEVELS, timed(DELAY_LEVELS, delay_levels))


def _serve_progress(
    table: MethodTable,
    method: ShardMethod[Message, Built[StatusAnswer]],
    client: ServiceClient,
    rpc: Rpc[Message, StatusAnswer],
) -> None:
    """Answer how far a builder is."""

    def progress(request: Message, deadline: Deadline) -> Built[StatusAnswer]:
        answer = client.call(rpc, request, deadline.remaining_seconds())
        return Built(answer, _progress(answer))

    table.serve(method, timed(method, progress))


def _falling(topic: str, queue_id: int) -> StoreError:
    return ServiceUnavailableError(
        f"Store times of queue {queue_id} of topic {topic} may fall, and it has too many messages to look at each: a position "
        "by time may be that of another message. Search by queue offsets instead.",
        service="consumequeue",
    )


def _damage(topic: str, queue_id: int) -> StoreError:
    directory = f"consumequeue/{topic}/{queue_id}"
    return StoreCorruptedError(
        f"A file of {directory} is damaged, or may be, and is built again from the log: ask again soon.",
        file=directory,
        offset=0,
    )


def _progress(answer: _BuiltAnswer) -> BuildProgress:
    return BuildProgress(
        answer.next_offset,
        answer.log_end_offset,
        answer.catching_up,
        millis_in(answer, "built_up_to_time"),
    )


@dataclass(frozen=True, slots=True)
class RemoteShard:
    """A shard of remote services. Appends use the channel of its commitlog's client.

    A shard without consumer service has no `delivering`, one without schedule service no `scheduling`.
    """

    targets: ShardTargets
    shard: Shard
    commitlog: CommitLogClient
    consumequeue: ServiceClient
    index: ServiceClient
    consumer: ServiceClient | None = None
    schedule: ServiceClient | None = None
    delivering: RemoteDelivering | None = None
    scheduling: RemoteScheduling | None = None

    def close(self) -> None:
        """See OpenShard."""
        for client in (self.commitlog, self.consumequeue, self.index, self.consumer, self.schedule):
            if client is not None:
                client.close()


def open_shard(
    targets: ShardTargets,
    tls: TlsIdentity | None = None,
    filters: FilterCache | None = None,
    delivering_by: Callable[[str, ServiceClient], RemoteDelivering] = RemoteDelivering,
) -> RemoteShard:
    """The shard at these addresses; it connects with the first call.

    Args:
        targets: the addresses.
        tls: our certificate; None: no TLS.
        filters: caches key filters; None: the index is always asked.
        delivering_by: makes what delivers, of the shard's name and the client of its consumer service.
    """
    commitlog = CommitLogClient(targets.commitlog, tls=tls)
    consumequeue = ServiceClient("consumequeue", targets.consumequeue, tls=tls)
    index = ServiceClient("index", targets.index, tls=tls)
    consumer = ServiceClient("consumer", targets.consumer, tls=tls) if targets.consumer else None
    schedule = ServiceClient("schedule", targets.schedule, tls=tls) if targets.schedule else None
    table = MethodTable()
    serve_commitlog(table, commitlog)
    serve_consumequeue(table, consumequeue)
    serve_index(table, index)
    if consumer is not None:
        serve_consumer(table, consumer)
    if schedule is not None:
        serve_schedule(table, schedule)
    table.serve(STATUSES, RemoteServices(commitlog, consumequeue, index, consumer, schedule).statuses)
    shard = Shard(targets.broker_name, table)
    if filters is not None:
        shard = shard.with_link(Concern.SUMMARIES, Summaries(targets.broker_name, filters))
    delivering = delivering_by(targets.broker_name, consumer) if consumer is not None else None
    scheduling = RemoteScheduling(targets.broker_name, schedule) if schedule is not None else None
    return RemoteShard(targets, shard, commitlog, consumequeue, index, consumer, schedule, delivering, scheduling)


def commitlog_answers(targets: ShardTargets, tls: TlsIdentity | None = None) -> bool:
    """Whether the shard's commitlog answers, also while it recovers, and has the shard's name."""
    client = CommitLogClient(targets.commitlog, tls=tls)
    try:
        broker_name = client.call(log_rpc.GET_STATUS, log_pb.GetStatusRequest(), ASK_SECONDS).broker_name
    except StoreError:
        return False
    finally:
        client.close()
    if broker_name != targets.broker_name:
        _log.warning(
            "shard.has_another_name",
            commitlog=targets.commitlog,
            broker_name=broker_name,
            expected_name=targets.broker_name,
        )
        return False
    return True
