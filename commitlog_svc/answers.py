"""Status and topics of a log as messages of the contract, and what the contract says of topics as values of the topic table."""

import math
from functools import cache

from commitlog_svc.append.topics.topics import TopicChange
from commitlog_svc.commit_log import CommitLog, clock_millis_now
from commitlog_svc.recovery.safe_point_writer import INDEX_BUILDER, QUEUE_BUILDER
from commitlog_svc.replication.replica import Replica, ReplicaStatus
from commitlog_svc.reput.followers import Follower
from commitlog_svc.retention.retention_state import RetentionEvent
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1.replication_pb2 import Epoch
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp
from store.errors import InvalidArgumentError
from store.features.table import FoundFeature
from store.format.topic import (
    LITE_EXPIRATION_ATTRIBUTE,
    MESSAGE_TYPE_ATTRIBUTE,
    MESSAGE_TYPES,
    TOPIC_QUEUE_COUNT_MAX,
    TopicConfig,
    lite_expiration_minutes_of,
)

# Of one feature that hides queues: followers must know them all; names of 255 characters make 2.6 MB.
HIDDEN_TOPIC_COUNT_MAX = 10_000
# Of another one: the status is asked for every second, and a store may have a million light queues.
PLACE_COUNT_MAX = 100
EPOCH_COUNT_MAX = 64  # enough to find where two logs of one shard have parted, unless one was away for so many leaders


def status_answer(log: CommitLog, broker_name: str, replica: Replica | None = None) -> pb.GetStatusResponse:
    """The GetStatus response for a log, recovered or not, and for its replication."""
    status = log.status
    answer = pb.GetStatusResponse(
        broker_name=broker_name,
        read_only=log.root.read_only or status.mirror is not None,
        state=status.state,
        problem=status.problem,
        version=_version(),
        features=map(_feature, log.root.features),
        stopped_cleanly=not log.root.was_aborted,
    )
    if status.is_ready:
        _add_log(answer, log)
    else:
        _add_recovery(answer, log)
    if replica is not None:
        _add_replica(answer, replica.status())
        if not status.is_ready:
            answer.ClearField("reach")  # nothing is shown yet
        answer.coordinator = replica.coordinator
        newest = log.epochs.epochs[-EPOCH_COUNT_MAX:]
        answer.epochs.extend(Epoch(epoch=epoch.epoch, begin_offset=epoch.begin_offset) for epoch in newest)
    return answer


def _add_replica(answer: pb.GetStatusResponse, status: ReplicaStatus) -> None:
    answer.role, answer.epoch, answer.leader, answer.replica = status.role, status.epoch, status.leader, status.name
    answer.in_sync.extend(status.in_sync)
    answer.replicas.extend(status.replicas)
    answer.problem = answer.problem or status.problem
    if status.reach is not None:
        answer.reach.leader_confirm_offset = max(status.reach.leader_confirm_offset, answer.confirm_offset)
        # Of what this very answer says is shown: a later offset would not be its.
        staleness = status.reach.staleness_seconds(answer.confirm_offset)
        if staleness is not None:
            answer.reach.staleness.FromMicroseconds(math.ceil(staleness * 1e6))
    if status.catch_up is not None:
        answer.catch_up.CopyFrom(status.catch_up)


def _add_recovery(answer: pb.GetStatusResponse, log: CommitLog) -> None:
    progress = log.recovery_progress
    answer.recovery.begin_offset = progress.begin_offset
    answer.recovery.next_offset = progress.next_offset
    answer.recovery.end_offset = progress.end_offset
    answer.recovery.record_count = progress.record_count
    answer.recovery.is_followable = log.status.is_followable
    if log.status.is_followable:
        answer.log_first_offset = log.status.first_offset


def _add_log(answer: pb.GetStatusResponse, log: CommitLog) -> None:
    status = log.status
    answer.log_first_offset = status.first_offset
    answer.log_end_offset = status.end_offset
    answer.log_flushed_offset = status.flushed_offset
    answer.confirm_offset = status.confirm_offset
    answer.readable_offset = log.opened.reads.readable_offset
    answer.file_size_bytes = status.file_size_bytes
    answer.file_count = status.file_count
    if status.last_store_time_millis:
        answer.last_store_time.CopyFrom(millis_to_timestamp(status.last_store_time_millis))
    for follower in log.followers.all():
        answer.followers.append(_follower(follower))
        if follower.name in (QUEUE_BUILDER, INDEX_BUILDER) and follower.next_offset is not None:
            answer.builder_next_offsets[follower.name] = follower.next_offset
    if status.followed is not None:
        answer.followed.lag_bytes = status.followed.lag_bytes
        answer.followed.lag_age.FromMilliseconds(status.followed.lag_millis)
    if status.mirror is not None:
        lag_bytes = status.mirror.lag_bytes(status.end_offset)
        if lag_bytes is not None:
            answer.followed.lag_bytes = lag_bytes
        lag_millis = status.mirror.lag_millis(status.last_store_time_millis, clock_millis_now())
        answer.followed.lag_age.FromMilliseconds(lag_millis)
        answer.followed.source, answer.followed.state = status.mirror.source, status.mirror.state
    usage = status.disk_usage
    if usage is not None:
        answer.disk.total_bytes = usage.total_bytes
        answer.disk.free_bytes = usage.free_bytes
        answer.disk.level = usage.level.word
    answer.retention_events.extend(map(_retention_event, reversed(status.retention_events)))


def _feature(found: FoundFeature) -> pb.StoreFeature:
    count_max = HIDDEN_TOPIC_COUNT_MAX if found.feature.hides_queues else PLACE_COUNT_MAX
    return pb.StoreFeature(
        name=found.feature.name,
        verdict=found.feature.support,
        where=found.evidence[:count_max],
        text=found.text,
        hides_queues=found.feature.hides_queues,
    )


def _follower(follower: Follower) -> pb.Follower:
    return pb.Follower(
        name=follower.name,
        expected=follower.is_expected,
        next_offset=follower.next_offset,
        store_time=millis_to_timestamp(follower.store_time_millis) if follower.store_time_millis else None,
    )


def _retention_event(event: RetentionEvent) -> pb.RetentionEvent:
    return pb.RetentionEvent(
        time=millis_to_timestamp(event.time_millis),
        begin_offset=event.begin_offset,
        end_offset=event.end_offset,
        file_count=event.file_count,
        reason=event.reason,
        lost_builder_next_offsets=event.lost_builder_next_offsets,
    )


@cache  # it is read from files
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 2 MiB that an idle service does not need

    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"


_TYPE_BY_ENUM = {message_pb2.MessageType.Value(f"MESSAGE_TYPE_{name}"): name for name in MESSAGE_TYPES}
_ENUM_BY_TYPE = {name: number for number, name in _TYPE_BY_ENUM.items()}


def topic_row(config: TopicConfig) -> pb.ListTopicsResponse.Topic:
    """A topic as answers show it."""
    return pb.ListTopicsResponse.Topic(
        topic=config.topic,
        write_queue_count=_int32_count(config.write_queue_count),
        read_queue_count=_int32_count(config.read_queue_count),
        message_type=message_pb2.MessageType.Name(
            _ENUM_BY_TYPE.get(config.attributes.get(MESSAGE_TYPE_ATTRIBUTE, ""), message_pb2.MESSAGE_TYPE_UNSPECIFIED)
        ),
        perm=_int32_count(config.perm),
        lite_expiration_minutes=_lite_expiration_minutes(config.attributes.get(LITE_EXPIRATION_ATTRIBUTE, "")),
    )


def change_of_create(request: pb.CreateTopicRequest) -> TopicChange:
    """The values of a new topic; what the request leaves open is None.

    Raises:
        InvalidArgumentError: the count is out of range, or the message type is not known.
    """
    count = request.queue_count or None
    if count is not None and not 0 < count <= TOPIC_QUEUE_COUNT_MAX:
        raise InvalidArgumentError(
            f"queue_count is {count}: 1 to {TOPIC_QUEUE_COUNT_MAX} are allowed, and 0 for the default",
            field="queue_count",
            value=count,
        )
    minutes = request.lite_expiration_minutes or None
    return TopicChange(count, count, request.perm or None, _message_type(request.message_type) or None, minutes)


def change_of_update(request: pb.UpdateTopicRequest) -> TopicChange:
    """The values that a request changes. InvalidArgumentError for an unknown message type."""
    return TopicChange(
        request.write_queue_count if request.HasField("write_queue_count") else None,
        request.read_queue_count if request.HasField("read_queue_count") else None,
        request.perm if request.HasField("perm") else None,
        _message_type(request.message_type) if request.HasField("message_type") else None,
        request.lite_expiration_minutes if request.HasField("lite_expiration_minutes") else None,
    )


def _message_type(number: int) -> str:
    if number == message_pb2.MESSAGE_TYPE_UNSPECIFIED:
        return ""
    if number not in _TYPE_BY_ENUM:
        raise InvalidArgumentError(
            f"message_type {number} is not a MessageType: use one of the proto", field="message_type"
        )
    return _TYPE_BY_ENUM[number]


def _lite_expiration_minutes(text: str) -> int:
    """The minutes that the attribute of a topic says; 0 (never) where it says none: `topics.json` may hold anything."""
    try:
        return lite_expiration_minutes_of(text)
    except ValueError:
        return 0


def _int32_count(count: int) -> int:
    """A number of `topics.json`, which may hold any, as RocketMQ's 32 bits can."""
    return min(max(count, 0), (1 << 31) - 1)
