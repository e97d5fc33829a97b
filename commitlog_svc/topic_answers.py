"""Topics between the messages of the contract and the values of the topic table."""

from commitlog_svc.append.topics.topic_change import TopicChange
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError
from store.format.topic import MESSAGE_TYPE_ATTRIBUTE, MESSAGE_TYPES, TOPIC_QUEUE_COUNT_MAX, TopicConfig

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
    return TopicChange(count, count, request.perm or None, _message_type(request.message_type) or None)


def change_of_update(request: pb.UpdateTopicRequest) -> TopicChange:
    """The values that a request changes. InvalidArgumentError for an unknown message type."""
    return TopicChange(
        request.write_queue_count if request.HasField("write_queue_count") else None,
        request.read_queue_count if request.HasField("read_queue_count") else None,
        request.perm if request.HasField("perm") else None,
        _message_type(request.message_type) if request.HasField("message_type") else None,
    )


def _message_type(number: int) -> str:
    if number == message_pb2.MESSAGE_TYPE_UNSPECIFIED:
        return ""
    if number not in _TYPE_BY_ENUM:
        raise InvalidArgumentError(
            f"message_type {number} is not a MessageType: use one of the proto", field="message_type"
        )
    return _TYPE_BY_ENUM[number]


def _int32_count(count: int) -> int:
    """A number of `topics.json`, which may hold any, as RocketMQ's 32 bits can."""
    return min(max(count, 0), (1 << 31) - 1)
