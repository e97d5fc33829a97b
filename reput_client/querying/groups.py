"""Consumer groups: states, settings, positions, pulls, returns, locks; `QueryClient` has each function as a method."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from google.protobuf.duration_pb2 import Duration

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.encoding import time_or_none, to_timestamp
from reput_client.querying.answers import MessageTracks, ShardOutcome, shards_of, tracks_of
from reput_client.querying.message import Message, message_of
from reput_client.querying.question import Question

# Of one page of groups or tracks.
GROUPS_OF_A_PAGE = 500
PRIORITY_FACTOR_DEFAULT = 100
LITE_CLIENT_QUOTA_DEFAULT = 2_000


class PullStatus(Enum):
    """The result of a pull."""

    FOUND = pb.PULL_STATUS_FOUND
    NO_NEW_MSG = pb.PULL_STATUS_NO_NEW_MSG  # the position is the queue's end
    NO_MATCHED_MSG = pb.PULL_STATUS_NO_MATCHED_MSG  # the filter took none
    OFFSET_ILLEGAL = pb.PULL_STATUS_OFFSET_ILLEGAL  # the position is outside the queue; `next_offset` is inside


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The settings of a consumer group.

    Attributes:
        consumer_group: its name.
        ordered: messages of one message group are delivered one after the other.
        delivery_attempts_max: deliveries before a message becomes a dead letter, the first included.
        consume_disabled: the group gets nothing.
        broadcast: each member consumes every message, and keeps its positions itself.
        priority_factor: of 100 polls of a topic of the type PRIORITY, so many are by priority.
        lite: None: it consumes ordinary topics.
    """

    consumer_group: str
    ordered: bool
    delivery_attempts_max: int
    consume_disabled: bool
    broadcast: bool
    priority_factor: int = PRIORITY_FACTOR_DEFAULT
    lite: "LiteGroup | None" = None


@dataclass(frozen=True, slots=True)
class LiteGroup:
    """What a group of lite topics is.

    Attributes:
        bind_topic: the topic of its lite topics.
        exclusive: a lite topic belongs to the client that subscribed to it last; else its clients share it.
        wildcard: its clients get all lite topics of the topic.
        client_quota: lite topics that a client may subscribe to; negative: any number.
        reset_offset_exclusive: a client that takes a lite topic from another begins at its first message.
        reset_offset_unsubscribe: the group loses its position in a lite topic that no client subscribes to any more.
    """

    bind_topic: str
    exclusive: bool
    wildcard: bool
    client_quota: int
    reset_offset_exclusive: bool
    reset_offset_unsubscribe: bool


@dataclass(frozen=True, slots=True)
class ConsumerGroups:
    """Groups by name, how the shards took part, and whether there are more than were asked for."""

    groups: tuple[ConsumerGroup, ...]
    shards: tuple[ShardOutcome, ...]
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class RunningQueue:
    """A queue that a member consumes; `cached_*` is pulled and not consumed, times are None before the first one."""

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    cached_message_count: int
    cached_mebibytes: int
    cached_min_offset: int
    cached_max_offset: int
    locked: bool
    dropped: bool
    last_pull_time: datetime | None
    last_consume_time: datetime | None


@dataclass(frozen=True, slots=True)
class RunningTopic:
    """How a member consumes a topic: mean times in milliseconds, messages a second, failures of the last hour."""

    topic: str
    pull_millis: float
    pulled_per_second: float
    consume_millis: float
    consumed_per_second: float
    failed_per_second: float
    failed_count_in_hour: int


@dataclass(frozen=True, slots=True)
class ConsumerRunningInfo:
    """What a member does now.

    Attributes:
        properties: its settings and versions, by RocketMQ's names.
        subscriptions: topics and filters, as text.
        queues, topics: none of a member over gRPC.
        stack_trace: of its threads, if it was asked for.
        told_by_gateway: the gateway tells it of a member over gRPC, which is not asked.
    """

    properties: Mapping[str, str]
    subscriptions: tuple[tuple[str, str], ...]
    queues: tuple[RunningQueue, ...]
    topics: tuple[RunningTopic, ...]
    stack_trace: str
    told_by_gateway: bool


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer that lives; `subscriptions` are topics and filters, as text, `kind` says how it consumes."""

    client_id: str
    language: str
    version: str
    address: str
    subscriptions: tuple[tuple[str, str], ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """A queue as a consumer group has it.

    Attributes:
        topic, broker_name, queue_id: the queue; retry topics too.
        consumer_offset: everything before it is consumed.
        min_offset, max_offset: the queue's range.
        lag_count: messages that are not consumed; negative: the position lies so far behind the end.
        lag_age: age of the oldest of them; None when there is none.
        in_flight_count: messages with clients.
        removed_count: messages that retention removed before the group got them.
    """

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    min_offset: int
    max_offset: int
    lag_count: int
    lag_age: timedelta | None
    in_flight_count: int
    removed_count: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupDetails:
    """A consumer group with its members, queues, retries and dead letters, what is wrong, and how the shards took part."""

    settings: ConsumerGroup
    members: tuple[GroupMember, ...]
    queues: tuple[GroupQueue, ...]
    retry_count: int
    dead_letter_count: int
    problems: tuple[str, ...]
    shards: tuple[ShardOutcome, ...]
    lite_topics: "tuple[LiteTopicsLag, ...]" = ()


@dataclass(frozen=True, slots=True)
class LiteTopicsLag:
    """The lite topics of a topic that a group has a position in: how many, and their messages; `queues` has none of them."""

    topic: str
    lite_topic_count: int
    lag_count: int
    in_flight_count: int


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The position of a group in a queue; the shard's name may be empty when there is only one."""

    topic: str
    queue_id: int
    consumer_offset: int
    broker_name: str = ""


@dataclass(frozen=True, slots=True)
class QueueReset:
    """A queue whose position was moved, or would be; `before` is None when the group had none."""

    broker_name: str
    queue_id: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class ResentDeadLetter:
    """A dead letter, where it goes (empty: it does not say, and was not sent), and the id of the new message."""

    offset_msg_id: str
    topic: str
    new_offset_msg_id: str


@dataclass(frozen=True, slots=True)
class ResentDeadLetters:
    """The dead letters that were sent, or would be; ask again with the token until it is empty."""

    resent: tuple[ResentDeadLetter, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class PulledMessages:
    """A batch of a queue, where to go on, and the queue's range."""

    messages: tuple[Message, ...]
    next_offset: int
    min_offset: int
    max_offset: int
    status: PullStatus


@dataclass(frozen=True, slots=True)
class LiteTopicGroup:
    """How a group stands with a lite topic.

    Attributes:
        consumer_group: its name.
        consumer_offset: everything before it is consumed; None: the group has no position yet.
        in_flight_count: messages with clients.
        lag_count: messages that are not consumed.
        client_ids: the clients that subscribe to it, at most 64; those of a wildcard group are not named.
    """

    consumer_group: str
    consumer_offset: int | None
    in_flight_count: int
    lag_count: int
    client_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiteTopic:
    """A lite topic.

    Attributes:
        lite_topic: its name.
        broker_name: the shard that has it.
        min_offset, max_offset: its range.
        last_store_time: of its newest message, as far as that is known.
        groups: those that have a position or subscribe, by name.
    """

    lite_topic: str
    broker_name: str
    min_offset: int
    max_offset: int
    last_store_time: datetime | None
    groups: tuple[LiteTopicGroup, ...]


@dataclass(frozen=True, slots=True)
class LiteTopics:
    """Lite topics by name, how the shards took part, and whether there are more than were asked for."""

    lite_topics: tuple[LiteTopic, ...]
    shards: tuple[ShardOutcome, ...]
    has_more: bool = False


def consumer_groups(topic: str = "", *, name_contains: str = "", limit: int | None = None) -> Question[ConsumerGroups]:
    """The consumer groups of all shards by name, from as many pages as it takes.

    Args:
        topic: only those with a position in it; empty: all.
        name_contains: only those whose names contain this, ignoring case; empty: all.
        limit: the first ones, at most so many; None: all.
    """
    return Question(
        "ListConsumerGroups",
        pb.ListConsumerGroupsRequest(topic=topic, name_contains=name_contains, page_size=page_size_of(limit)),
        lambda answer: ConsumerGroups(
            tuple(map(_settings_of, answer.groups)), _joined(answer.outcomes), bool(answer.next_page_token)
        ),
        paged_field="groups",
        item_count_max=limit,
    )


def lite_topics(
    topic: str,
    *,
    consumer_group: str = "",
    name_contains: str = "",
    client_id: str = "",
    lite_topic: str = "",
    limit: int | None = None,
) -> Question[LiteTopics]:
    """The lite topics of a topic by name, from as many pages as it takes; there may be a million.

    Args:
        topic: a topic of the type LITE.
        consumer_group: only those in which it has a position or a subscription; empty: all.
        name_contains: only those whose names contain this, ignoring case; empty: all.
        client_id: only those that this client of the group subscribes to; empty: all.
        lite_topic: only this one; empty: all.
        limit: the first ones, at most so many; None: all.
    """
    return Question(
        "ListLiteTopics",
        pb.ListLiteTopicsRequest(
            topic=topic,
            consumer_group=consumer_group,
            name_contains=name_contains,
            client_id=client_id,
            lite_topic=lite_topic,
            page_size=page_size_of(limit),
        ),
        lambda answer: LiteTopics(
            tuple(map(_lite_topic_of, answer.lite_topics)), _joined(answer.outcomes), bool(answer.next_page_token)
        ),
        paged_field="lite_topics",
        item_count_max=limit,
    )


def _lite_topic_of(row: pb.LiteTopic) -> LiteTopic:
    return LiteTopic(
        row.lite_topic,
        row.broker_name,
        row.min_offset,
        row.max_offset,
        time_or_none(row, "last_store_time"),
        tuple(
            LiteTopicGroup(
                each.consumer_group,
                each.consumer_offset if each.HasField("consumer_offset") else None,
                each.in_flight_count,
                each.lag_count,
                tuple(each.client_ids),
            )
            for each in row.groups
        ),
    )


def page_size_of(limit: int | None) -> int:
    """Items of one page; ValueError when the limit is not positive."""
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}: it must be 1 or more, or None for all")
    return GROUPS_OF_A_PAGE if limit is None else min(limit, GROUPS_OF_A_PAGE)


def _joined(outcomes: Iterable[pb.ShardOutcome]) -> tuple[ShardOutcome, ...]:
    """The part of each shard in all pages: a failure counts."""
    joined: dict[str, ShardOutcome] = {}
    for outcome in shards_of(outcomes):
        if outcome.broker_name not in joined or outcome.error is not None:
            joined[outcome.broker_name] = outcome
    return tuple(joined.values())


def consumer_group(name: str) -> Question[ConsumerGroupDetails]:
    """A consumer group with its members and lag.

    Raises:
        NotFoundError: there is no such group.
    """
    return Question("GetConsumerGroup", pb.GetConsumerGroupRequest(consumer_group=name), _details_of)


def update_consumer_group(
    name: str,
    *,
    ordered: bool | None = None,
    delivery_attempts_max: int | None = None,
    consume_disabled: bool | None = None,
    broadcast: bool | None = None,
    priority_factor: int | None = None,
    lite_attributes: Mapping[str, str] | None = None,
) -> Question[ConsumerGroup]:
    """Set settings of a group in every shard; makes the group if it is absent. None: as before.

    `lite_attributes` are RocketMQ's attributes of a group of lite topics with their new values, such as `lite.bind.topic`; an
    empty value takes one away, and others are as before.
    """
    request = pb.UpdateConsumerGroupRequest(
        consumer_group=name,
        ordered=ordered,
        delivery_attempts_max=delivery_attempts_max,
        consume_disabled=consume_disabled,
        broadcast=broadcast,
        priority_factor=priority_factor,
        lite_attributes=lite_attributes,
    )
    return Question("UpdateConsumerGroup", request, lambda answer: _settings_of(answer.settings))


def delete_consumer_group(name: str) -> Question[None]:
    """Forget a group with its positions, in every shard; without effect when there is none."""
    return Question("DeleteConsumerGroup", pb.DeleteConsumerGroupRequest(consumer_group=name), lambda _: None)


def offsets(consumer_group: str, topic: str = "") -> Question[tuple[QueuePosition, ...]]:
    """The positions of a group, in one topic or all.

    Raises:
        NotFoundError: there is no such group.
    """
    return Question(
        "GetOffsets",
        pb.GetOffsetsRequest(consumer_group=consumer_group, topic=topic),
        lambda answer: tuple(
            QueuePosition(each.topic, each.queue_id, each.consumer_offset, each.broker_name)
            for each in answer.positions
        ),
    )


def commit_offsets(consumer_group: str, positions: Iterable[QueuePosition], *, begins: bool = False) -> Question[None]:
    """Set positions of a group, at most 1,024; makes the group if it is absent. They are in the log when this returns.

    With `begins` the group begins at them: a queue in which it has a position keeps that one, and what lies before one is
    SKIPPED for `track`, not CONSUMED.
    """
    request = pb.CommitOffsetsRequest(
        consumer_group=consumer_group,
        positions=[
            pb.QueuePosition(
                topic=each.topic,
                queue_id=each.queue_id,
                broker_name=each.broker_name,
                consumer_offset=each.consumer_offset,
            )
            for each in positions
        ],
        begins=begins,
    )
    return Question("CommitOffsets", request, lambda _: None)


def reset_offsets(
    consumer_group: str,
    topic: str,
    *,
    earliest: bool = False,
    latest: bool = False,
    time: datetime | None = None,
    queue_offset: int | None = None,
    queue_id: int | None = None,
    broker_name: str = "",
    dry_run: bool = False,
) -> Question[tuple[QueueReset, ...]]:
    """Move a group to other positions of a topic; what it has in flight there is forgotten.

    Args:
        consumer_group: the group; made if it never consumed.
        topic: the topic.
        earliest, latest, time, queue_offset: where, exactly one of them; a time needs a time zone.
        queue_id: the only queue; None: all.
        broker_name: the only shard; empty: all.
        dry_run: only say what would be done.
    """
    given = [earliest, latest, time is not None, queue_offset is not None]
    if sum(given) != 1:
        raise ValueError("give exactly one of earliest, latest, time and queue_offset")
    request = pb.ResetOffsetsRequest(
        consumer_group=consumer_group, topic=topic, queue_id=queue_id, broker_name=broker_name, dry_run=dry_run
    )
    if time is not None:
        request.time.CopyFrom(to_timestamp(time))
    elif queue_offset is not None:
        request.queue_offset = queue_offset
    elif earliest:
        request.earliest = True
    else:
        request.latest = True
    return Question(
        "ResetOffsets",
        request,
        lambda answer: tuple(
            QueueReset(each.broker_name, each.queue_id, each.before if each.HasField("before") else None, each.after)
            for each in answer.resets
        ),
    )


def track(
    offset_msg_id: str = "",
    *,
    topic: str = "",
    unique_key: str = "",
    consumer_group: str = "",
    group_contains: str = "",
    limit: int | None = None,
    with_traces: bool = False,
    trace_topic: str = "",
) -> Question[MessageTracks]:
    """The state of a message in each consumer group, from as many pages as it takes.

    Args:
        offset_msg_id: its offsetMsgId; a copy in a retry or dead-letter topic is followed to its origin.
        topic, unique_key: instead of the id; the oldest message of the topic with that key.
        consumer_group: only this group; empty: all.
        group_contains: only groups whose names contain this, ignoring case; empty: all.
        limit: of the first groups by name, at most so many; None: of all.
        with_traces: also what clients with tracing on told of it.
        trace_topic: where their traces lie; empty: RMQ_SYS_TRACE_TOPIC.

    Raises:
        NotFoundError: there is no such message.
    """
    request = pb.TrackMessageRequest(
        offset_msg_id=offset_msg_id,
        topic=topic,
        unique_key=unique_key,
        consumer_group=consumer_group,
        group_contains=group_contains,
        page_size=page_size_of(limit),
        with_traces=with_traces,
        trace_topic=trace_topic,
    )
    return Question("TrackMessage", request, tracks_of, paged_field="tracks", item_count_max=limit)


def resend_dead_letters(
    consumer_group: str,
    *,
    tags: str = "",
    sql: str = "",
    begin: datetime | None = None,
    end: datetime | None = None,
    max_messages: int = 0,
    dry_run: bool = False,
    page_token: str = "",
) -> Question[ResentDeadLetters]:
    """Send dead letters of a group to their own topics again, each as a new message; one page.

    A call that broke may have sent some: it is not repeated.

    Args:
        consumer_group: the group.
        tags, sql: which of them, at most one of both.
        begin, end: stored at or after, and at or before, with a time zone.
        max_messages: at most so many; 0: 64; at most 1,024.
        dry_run: only say what would be done.
        page_token: where the answer before ended.
    """
    request = pb.ResendDeadLettersRequest(
        consumer_group=consumer_group,
        filter=filter_of(tags, sql),
        max_messages=max_messages,
        dry_run=dry_run,
        page_token=page_token,
    )
    if begin is not None:
        request.begin_time.CopyFrom(to_timestamp(begin, "begin"))
    if end is not None:
        request.end_time.CopyFrom(to_timestamp(end, "end"))
    return Question(
        "ResendDeadLetters",
        request,
        lambda answer: ResentDeadLetters(
            tuple(ResentDeadLetter(each.offset_msg_id, each.topic, each.new_offset_msg_id) for each in answer.resent),
            answer.next_page_token,
        ),
        is_repeatable=False,
    )


def pull(
    topic: str,
    queue_id: int,
    queue_offset: int = 0,
    *,
    broker_name: str = "",
    max_messages: int = 0,
    max_bytes: int = 0,
    wait_seconds: float = 0.0,
    tags: str = "",
    sql: str = "",
    consumer_group: str = "",
) -> Question[PulledMessages]:
    """The batches of a queue from a position on; the stream ends at the queue's end, or when nothing came for a while.

    It is not asked for again when it breaks: go on at the last batch's `next_offset`.

    Args:
        topic: the topic.
        queue_id: its queue.
        queue_offset: the first position.
        broker_name: the shard; may be empty when there is only one.
        max_messages: of a batch, at most 1,024; 0: 32.
        max_bytes: of a batch's bodies, at most 4 MiB; 0: 262,144.
        wait_seconds: the stream ends when no message came for so long, at most 60.
        tags, sql: which messages, at most one of both.
        consumer_group: the group that reads; may be empty.
    """
    request = pb.PullMessagesRequest(
        topic=topic,
        queue_id=queue_id,
        broker_name=broker_name,
        queue_offset=queue_offset,
        max_messages=max_messages,
        max_bytes=max_bytes,
        filter=filter_of(tags, sql),
        consumer_group=consumer_group,
    )
    if wait_seconds:
        millis = round(wait_seconds * 1000)
        request.wait.CopyFrom(Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000))
    return Question("PullMessages", request, _pulled_of)


def consumer_running_info(
    name: str, client_id: str, *, with_stack_trace: bool = False
) -> Question[ConsumerRunningInfo]:
    """What a member of a consumer group does now; its client is asked.

    Args:
        name: of the group.
        client_id: the member.
        with_stack_trace: also the stacks of its threads, for which it is asked.

    Raises:
        NotFoundError: there is no such group, or no such member.
        UnavailableError: the member does not answer, or has no connection to this gateway.
    """
    request = pb.GetConsumerRunningInfoRequest(
        consumer_group=name, client_id=client_id, with_stack_trace=with_stack_trace
    )
    # A member that does not answer takes 10 s each time.
    return Question("GetConsumerRunningInfo", request, _running_info_of, is_repeatable=False)


def filter_of(tags: str, sql: str) -> pb.MessageFilter:
    """The filter of a request; ValueError when both are given."""
    if tags and sql:
        raise ValueError("give tags or sql, not both")
    return pb.MessageFilter(sql=sql) if sql else pb.MessageFilter(tags=tags) if tags else pb.MessageFilter()


def _settings_of(settings: pb.ConsumerGroupSettings) -> ConsumerGroup:
    return ConsumerGroup(
        settings.consumer_group,
        settings.ordered,
        settings.delivery_attempts_max,
        settings.consume_disabled,
        settings.broadcast,
        settings.priority_factor if settings.HasField("priority_factor") else PRIORITY_FACTOR_DEFAULT,
        _lite_of(settings.lite) if settings.HasField("lite") else None,
    )


def _lite_of(lite: pb.LiteSettings) -> LiteGroup:
    return LiteGroup(
        lite.bind_topic,
        lite.is_exclusive,
        lite.is_wildcard,
        lite.client_quota or LITE_CLIENT_QUOTA_DEFAULT,
        lite.reset_offset_exclusive,
        lite.reset_offset_unsubscribe,
    )


def _details_of(answer: pb.GetConsumerGroupResponse) -> ConsumerGroupDetails:
    return ConsumerGroupDetails(
        _settings_of(answer.settings),
        tuple(
            GroupMember(
                each.client_id,
                each.language,
                each.version,
                each.address,
                _wanted_of(each.subscriptions),
                each.kind,
            )
            for each in answer.members
        ),
        tuple(map(_queue_of, answer.queues)),
        answer.retry_count,
        answer.dead_letter_count,
        tuple(answer.problems),
        shards_of(answer.outcomes),
        tuple(
            LiteTopicsLag(each.topic, each.lite_topic_count, each.lag_count, each.in_flight_count)
            for each in answer.lite_topics
        ),
    )


def _wanted_of(subscriptions: Iterable[pb.TopicSubscription]) -> tuple[tuple[str, str], ...]:
    """Topics and filters, as text."""
    return tuple((each.topic, each.filter.sql or each.filter.tags or "*") for each in subscriptions)


def _running_info_of(answer: pb.GetConsumerRunningInfoResponse) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        dict(answer.properties),
        _wanted_of(answer.subscriptions),
        tuple(
            RunningQueue(
                each.topic,
                each.broker_name,
                each.queue_id,
                each.consumer_offset,
                each.cached_message_count,
                each.cached_mebibytes,
                each.cached_min_offset,
                each.cached_max_offset,
                each.locked,
                each.dropped,
                time_or_none(each, "last_pull_time"),
                time_or_none(each, "last_consume_time"),
            )
            for each in answer.queues
        ),
        tuple(
            RunningTopic(
                each.topic,
                each.pull_millis,
                each.pulled_per_second,
                each.consume_millis,
                each.consumed_per_second,
                each.failed_per_second,
                each.failed_count_in_hour,
            )
            for each in answer.topics
        ),
        answer.stack_trace,
        answer.told_by_gateway,
    )


def _queue_of(queue: pb.ConsumerGroupQueue) -> GroupQueue:
    age = queue.lag_age
    return GroupQueue(
        queue.topic,
        queue.broker_name,
        queue.queue_id,
        queue.consumer_offset,
        queue.min_offset,
        queue.max_offset,
        queue.lag_count,
        timedelta(seconds=age.seconds, microseconds=age.nanos // 1000) if queue.HasField("lag_age") else None,
        queue.in_flight_count,
        queue.removed_count,
    )


def _pulled_of(answer: pb.PullMessagesResponse) -> PulledMessages:
    return PulledMessages(
        tuple(map(message_of, answer.messages)),
        answer.next_offset,
        answer.min_offset,
        answer.max_offset,
        PullStatus(answer.status),
    )


class SendBackOutcome(Enum):
    """The result for a message that was sent back."""

    OK = pb.SEND_BACK_OUTCOME_OK  # it waits for its delay level, or was sent back before
    DEAD_LETTER = pb.SEND_BACK_OUTCOME_DEAD_LETTER  # it had all its attempts, or the level was negative
    REMOVED = pb.SEND_BACK_OUTCOME_REMOVED  # retention has removed it: it cannot come again


def send_back(
    consumer_group: str, queue: MessageQueue, queue_offsets: Sequence[int], delay_level: int = 0
) -> Question[tuple[SendBackOutcome, ...]]:
    """Give messages of a queue to a group again: they come in its topic `%RETRY%<group>`.

    Args:
        consumer_group: the group; made when it is new.
        queue: where they were pulled.
        queue_offsets: their positions, at most 32.
        delay_level: RocketMQ's, 1 (1 s) to 18 (2 h); 0: 3 (10 s), and one more for each attempt before; negative: they become
            dead letters.

    Returns:
        What became of each, in order. This is in the log.

    Raises:
        NotFoundError, OffsetOutOfRangeError: there is no such queue or message; nothing was sent back.
    """
    request = pb.SendBackMessagesRequest(
        consumer_group=consumer_group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
        queue_offsets=queue_offsets,
        delay_level=delay_level,
    )
    return Question(
        "SendBackMessages", request, lambda answer: tuple(SendBackOutcome(each) for each in answer.outcomes)
    )


def lock_queues(
    consumer_group: str, client_id: str, queues: Iterable[MessageQueue], *, unlock: bool = False, renew: bool = False
) -> Question[tuple[MessageQueue, ...]]:
    """Lock queues for a member of a group for 60 seconds.

    Args:
        consumer_group: the group.
        client_id: the member.
        queues: at most 1,024.
        unlock: unlock them instead.
        renew: the member has them by an answer that is younger than 60 seconds.

    Returns:
        Those that the member has now.
    """
    request = pb.LockQueuesRequest(
        consumer_group=consumer_group,
        client_id=client_id,
        queues=[
            pb.TopicQueue(topic=each.topic, queue_id=each.queue_id, broker_name=each.broker_name) for each in queues
        ],
        unlock=unlock,
        renew=renew,
    )
    return Question(
        "LockQueues",
        request,
        lambda answer: tuple(MessageQueue(each.topic, each.broker_name, each.queue_id) for each in answer.queues),
    )
