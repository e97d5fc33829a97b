"""The administration of topics: making and changing (17, 18), deleting (215), configurations (351, 21), figures (202), and the
names of the broker's own (305).

Sources: `AdminBrokerProcessor` of RocketMQ 5.5.0; the bodies are those that it was recorded with. It differs from a broker:

- A queue count of 0 and a perm that no client can work with are refused; a broker takes them.
- `order` and `topicSysFlag` are not kept, and of the attributes only `message.type` and `lite.topic.expiration` may be set.
"""

import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from gateway.groups.asking import ask_groups
from gateway.ports.deadline import Deadline
from gateway.ports.groups import SEE_TOPICS
from gateway.ports.shard import (
    CREATE_TOPIC,
    DELETE_TOPIC,
    LIST_TOPICS,
    UPDATE_TOPIC,
    get_records,
    get_units,
    store_millis,
)
from gateway.ports.shards import list_built_queues
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard, per_second
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import Key, dump_bytes, loads
from services.rocketmq.registration import topic_row
from services.rocketmq.system_topics import system_topics, with_rows
from store.errors import InvalidMessageError, StoreError, TopicExistsError, TopicNotFoundError
from store.format.topic import (
    LITE_EXPIRATION_ATTRIBUTE,
    MESSAGE_TYPE_ATTRIBUTE,
    MESSAGE_TYPES,
    SYSTEM_TOPICS,
    TopicConfig,
    is_light_queue,
    is_system_topic,
    lite_expiration_minutes_of,
    validate_topic,
)

# Store times of messages that one answer tells: each is looked up.
STORE_TIME_COUNT_MAX = 1_024
# Topics of one UPDATE_AND_CREATE_TOPIC_LIST.
LIST_COUNT_MAX = 1_000
# Attributes of RocketMQ's topics that are not supported here.
OTHER_ATTRIBUTES = frozenset(("queue.type", "cleanup.policy", "reserve.time", "lite.expiration", "compaction.policy"))

# Names of reput.message.v1.MessageType.
TYPE_PREFIX = "MESSAGE_TYPE_"
UNSPECIFIED = f"{TYPE_PREFIX}UNSPECIFIED"

Queue = tuple[str, int]  # topic and number


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    once_built: dict[int, Handler] = {RequestCode.GET_TOPIC_STATS_INFO: shard.once_built(get_topic_stats)}
    return once_built | {
        code: in_thread(partial(answer, shard))
        for code, answer in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, update_and_create_topic),
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, update_and_create_topic_list),
            (RequestCode.DELETE_TOPIC_IN_BROKER, delete_topic),
            (RequestCode.GET_TOPIC_CONFIG, get_topic_config),
            (RequestCode.GET_ALL_TOPIC_CONFIG, get_all_topic_config),
            (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, get_system_topics),
        )
    }


# --- what other files of this folder need of topics


def config_of(shard: DoorShard, topic: str) -> TopicConfig | None:
    """A topic as a broker has it; None when there is none."""
    return configs_of(shard, (topic,)).get(topic)


def configs_of(shard: DoorShard, topics: Iterable[str]) -> dict[str, TopicConfig]:
    """Those of the topics that exist, by name, in this order; waits. However many are not known, they are asked for once."""
    names = dict.fromkeys(topics)
    if any(shard.topics.find(name) is None for name in names):
        shard.topics.look()
    found = {name: known for name in names if (known := shard.topics.find(name)) is not None}
    # A broker has each light queue that is asked for (`LmqTopicConfigManager`).
    own = _own_topics(shard) | {name: TopicConfig(name, 1, 1) for name in names if is_light_queue(name)}
    table = with_rows(own, map(_as_config, found.values()))
    return {name: table[name] for name in names if name in found or name in own}


def queue_key(shard: DoorShard, topic: str, queue_id: int) -> Key:
    """A queue as a key of an answer's table."""
    return Key.of(brokerName=shard.broker_name, queueId=queue_id, topic=topic)


def store_times(shard: DoorShard, places: Mapping[Queue, int], deadline: Deadline) -> dict[Queue, int]:
    """When messages were stored (ms since 1970), by queue; those that are not found are missing.

    Args:
        shard: of the door.
        places: the position of the message in its queue; the first STORE_TIME_COUNT_MAX are looked up.
        deadline: until when.
    """
    offsets: dict[Queue, int] = {}
    for (topic, queue_id), queue_offset in list(places.items())[:STORE_TIME_COUNT_MAX]:
        units = get_units(shard.shard, topic, queue_id, queue_offset, 1, deadline).answer.units
        if units and units[0].queue_offset == queue_offset:
            offsets[topic, queue_id] = units[0].commit_log_offset
    found: dict[Queue, int] = {}
    if offsets:
        for queue, record in zip(offsets, get_records(shard.shard, list(offsets.values()), 1, deadline), strict=True):
            if not isinstance(record, StoreError):
                found[queue] = store_millis(record)
    return found


# --- requests


def update_and_create_topic(shard: DoorShard, ask: Ask) -> Answer:
    """17: makes a topic, or changes the one that there is."""
    ask.text("topicFilterType")  # a broker refuses a request without it
    config = TopicConfig(
        ask.text("topic"), ask.number("readQueueNums"), ask.number("writeQueueNums"), ask.number("perm")
    )
    _set_topic(shard, config, ask.text("attributes", ""))
    shard.topics.look()
    return Answer()


def update_and_create_topic_list(shard: DoorShard, ask: Ask) -> Answer:
    """18: the same for the topics of a list; the first failure ends it."""
    rows = _document(ask).get("topicConfigList")
    if not isinstance(rows, list) or len(rows) > LIST_COUNT_MAX:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"topicConfigList has no list of at most {LIST_COUNT_MAX}")
    for row in rows:
        try:
            counts = number_of(row["readQueueNums"], 32), number_of(row["writeQueueNums"], 32)
            config = TopicConfig(str(row["topicName"]), *counts, number_of(row.get("perm", 6), 32))
            attributes = ",".join(f"{name}={value}" for name, value in (row.get("attributes") or {}).items())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"a topic cannot be read: {error!r}") from error
        _set_topic(shard, config, attributes)
    shard.topics.look()  # once: an answer has all topics
    return Answer()


def delete_topic(shard: DoorShard, ask: Ask) -> Answer:
    """215: forgets a topic; one that is absent is no failure."""
    topic = ask.text("topic")
    if not topic.strip():
        raise RefusedError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    _check_not_system(shard, topic)
    deadline = Deadline.after(CALL_SECONDS)
    shard.shard.call(DELETE_TOPIC, log_pb.DeleteTopicRequest(topic=topic), deadline)
    shard.topics.look()
    # Groups have nothing of it in flight any more when this is answered.
    ask_groups(shard.shard, SEE_TOPICS, pb.SeeTopicsRequest(), deadline)
    return Answer()


def get_topic_config(shard: DoorShard, ask: Ask) -> Answer:
    """351: one topic."""
    topic = ask.text("topic")
    found = config_of(shard, topic)
    if found is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    return Answer(body=dump_bytes(topic_row(found)))


def get_all_topic_config(shard: DoorShard, ask: Ask) -> Answer:
    """21: all topics, and the version of their table."""
    answer = shard.shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), Deadline.after(CALL_SECONDS))
    topics = with_rows(_own_topics(shard), map(_as_config, answer.topics))
    # The commit log's version is milliseconds, and below them a count.
    version = {"counter": answer.version & 0xFFFFF, "stateVersion": 0, "timestamp": answer.version >> 20}
    document = {
        "dataVersion": version,
        "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": version["timestamp"]},
        "topicConfigTable": {name: topic_row(config) for name, config in topics.items()},
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    return Answer({"totalTopicNum": str(len(topics))}, dump_bytes(document))


def get_topic_stats(shard: DoorShard, ask: Ask) -> Answer:
    """202: the range of each queue of a topic, and when its last message was stored (ms since 1970; 0: there is none)."""
    topic = ask.text("topic")
    found = config_of(shard, topic)
    if found is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    deadline = Deadline.after(CALL_SECONDS)
    ranges = {
        queue.queue_id: (queue.min_offset, queue.max_offset)
        for queue in list_built_queues(shard.shard, topic, deadline)
    }
    count = max(found.read_queue_count, found.write_queue_count)
    last = {(topic, number): ranges[number][1] - 1 for number in range(count) if ranges.get(number, (0, 0))[1] > 0}
    times = store_times(shard, last, deadline)
    table = {}
    for number in range(count):
        first, end = ranges.get(number, (0, 0))
        table[queue_key(shard, topic, number)] = {
            "lastUpdateTimestamp": times.get((topic, number), 0),
            "maxOffset": end,
            "minOffset": first,
        }
    minute = shard.figures([pb.FigureKey(kind=pb.FIGURE_KIND_APPENDED, topic=topic)])[0].minute
    put_tps = per_second(minute, minute.message_count)
    return Answer(body=dump_bytes({"offsetTable": table, "topicPutTps": put_tps}))


def get_system_topics(shard: DoorShard, ask: Ask) -> Answer:
    """305: the names of topics that belong to the broker."""
    return Answer(body=dump_bytes({"topicList": sorted({*SYSTEM_TOPICS, *_own_topics(shard)})}))


# --- inside


def _own_topics(shard: DoorShard) -> dict[str, TopicConfig]:
    return system_topics(shard.cluster_name, shard.broker_name, shard.topics.new_topic_queue_count)


def _as_config(topic: log_pb.ListTopicsResponse.Topic) -> TopicConfig:
    name = message_pb2.MessageType.Name(topic.message_type).removeprefix(TYPE_PREFIX)
    attributes = {MESSAGE_TYPE_ATTRIBUTE: name} if topic.message_type else {}
    if topic.lite_expiration_minutes:
        attributes[LITE_EXPIRATION_ATTRIBUTE] = str(topic.lite_expiration_minutes)
    return TopicConfig(topic.topic, topic.read_queue_count, topic.write_queue_count, topic.perm, attributes=attributes)


def _check_not_system(shard: DoorShard, topic: str) -> None:
    if is_system_topic(topic) or topic in _own_topics(shard):
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")


def _set_topic(shard: DoorShard, config: TopicConfig, attributes: str) -> None:
    topic = config.topic
    try:
        validate_topic(topic)
    except InvalidMessageError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, error.message) from error
    _check_not_system(shard, topic)
    message_type, expiration_minutes = _attributes(attributes)
    change = log_pb.UpdateTopicRequest(
        topic=topic,
        write_queue_count=config.write_queue_count,
        read_queue_count=config.read_queue_count,
        perm=config.perm,
        message_type=message_type,
        lite_expiration_minutes=expiration_minutes,
    )
    deadline = Deadline.after(CALL_SECONDS)
    try:
        shard.shard.call(UPDATE_TOPIC, change, deadline)
    except TopicNotFoundError:
        made = log_pb.CreateTopicRequest(
            topic=topic,
            queue_count=max(config.write_queue_count, config.read_queue_count),
            perm=config.perm,
            message_type=message_type or UNSPECIFIED,
            lite_expiration_minutes=expiration_minutes or 0,
        )
        with contextlib.suppress(TopicExistsError):  # another client has made it meanwhile
            shard.shard.call(CREATE_TOPIC, made, deadline)
        if config.write_queue_count != config.read_queue_count:
            shard.shard.call(UPDATE_TOPIC, change, deadline)


def _attributes(attributes: str) -> tuple[str | None, int | None]:
    """The type that a change of attributes sets, `+message.type=FIFO`, and the expiration (minutes).

    UNSPECIFIED and 0 take them away, None leaves them.
    """
    found: str | None = None
    minutes: int | None = None
    for part in filter(None, attributes.split(",")):
        name, _, value = part.partition("=")
        key = name.lstrip("+-")
        if key == LITE_EXPIRATION_ATTRIBUTE:
            try:
                minutes = 0 if name.startswith("-") else lite_expiration_minutes_of(value)
            except ValueError as error:
                raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from None
            continue
        if key != MESSAGE_TYPE_ATTRIBUTE:
            if key in OTHER_ATTRIBUTES:
                raise RefusedError(ResponseCode.INVALID_PARAMETER, f"the attribute {key} is not supported here")
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"unsupported key: {key}")
        if name.startswith("-"):
            found = UNSPECIFIED
        elif value == "MIXED":
            raise RefusedError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        elif value in MESSAGE_TYPES:
            found = f"{TYPE_PREFIX}{value}"
        else:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"the message type {value[:40]!r} is not supported here")
    return found, minutes


def _document(ask: Ask) -> Mapping[str, Any]:
    """The JSON object of a request's body."""
    return document_of(ask.command.body)


def document_of(body: bytes) -> Mapping[str, Any]:
    """A JSON object, without lone surrogates, which no protobuf takes; RefusedError for anything else."""
    try:
        document = loads(body)
        if b"\\u" in body and b"\\ud" in body.lower():
            document = loads(dump_bytes(document))
    except (ValueError, RecursionError) as error:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the body is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RefusedError(ResponseCode.SYSTEM_ERROR, "the body is no JSON object")
    return document


def number_of(value: Any, bits: int = 64) -> int:
    """A number of JSON, or a text that is one, as a signed number of so many bits; TypeError, ValueError for anything else."""
    try:
        number = int(value)
    except OverflowError as error:  # 1e400 is infinite
        raise ValueError(f"{value} is no number of {bits} bits") from error
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"it is no number of {bits} bits")
    return number
