"""Lite topics for administrators: a broker's figures about them (200074), a topic's (200075), one lite topic (200076), what a
client subscribes to (200077), a group's lag (200078), and a look for news (200079).

Sources: `LiteManagerProcessor` of RocketMQ 5.5.0. It differs from a broker:

- A client's subscriptions are kept by every shard, so each answers all of them.
- Figures of a broker's inner tables (`orderInfoCount`, `cqTableSize`, `offsetTableSize`, `eventMapSize`) are 0, as there are no
  such tables. Lite topics are counted among the first LOOKED_AT_COUNT_MAX by name, and so are those that are furthest behind.
- A look for news (200079) does nothing: news do not get lost.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gateway.groups.asking import ask_groups
from gateway.ports.deadline import Deadline
from gateway.ports.groups import GET_GROUP, LIST_GROUPS, LIST_LITE_TOPICS
from gateway.ports.shard import LIST_TOPICS
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.convert import timestamp_to_millis
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import dump_bytes

PAGE_COUNT = 1_000
# Lite topics that one answer looks at, each with its newest message: a topic may have a million, and an operator waits.
LOOKED_AT_COUNT_MAX = 2_000
GROUP_COUNT_MAX = 100_000
# As a broker: subscriptions that one answer names.
NAMED_COUNT_MAX = 1_000
LITE = message_pb2.MESSAGE_TYPE_LITE


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    return {
        code: in_thread(partial(answer, shard))
        for code, answer in (
            (RequestCode.GET_BROKER_LITE_INFO, get_broker_lite_info),
            (RequestCode.GET_PARENT_TOPIC_INFO, get_parent_topic_info),
            (RequestCode.GET_LITE_TOPIC_INFO, get_lite_topic_info),
            (RequestCode.GET_LITE_CLIENT_INFO, get_lite_client_info),
            (RequestCode.GET_LITE_GROUP_INFO, get_lite_group_info),
            (RequestCode.TRIGGER_LITE_DISPATCH, trigger_lite_dispatch),
        )
    }


def get_broker_lite_info(shard: DoorShard, ask: Ask) -> Answer:
    """200074: the topics of lite topics, with their expiration (minutes), and the groups that are bound to each."""
    deadline = Deadline.after(CALL_SECONDS)
    topics = [topic for topic in _topics(shard, deadline).values() if topic.message_type == LITE]
    groups = [each for each in _groups(shard, deadline) if each.lite.bind_topic]
    by_topic: dict[str, list[str]] = {}
    for group in groups:
        by_topic.setdefault(group.lite.bind_topic, []).append(group.consumer_group)
    count = sum(1 for topic in topics for _ in _lite_topics(shard, deadline, topic=topic.topic))
    subscriptions = sum(
        subscriber.lite_topic_count
        for group in groups
        for summary in _group(shard, group.consumer_group, deadline).lite_topics
        for subscriber in summary.subscribers
    )
    document = {
        "cqTableSize": 0,
        "currentLmqNum": count,
        "eventMapSize": 0,
        "groupMeta": by_topic,
        "liteSubscriptionCount": subscriptions,
        "maxLmqNum": 0,
        "offsetTableSize": 0,
        "orderInfoCount": 0,
        "storeType": "default",
        "topicMeta": {topic.topic: _minutes(topic) for topic in topics},
    }
    return Answer(body=dump_bytes(document))


def get_parent_topic_info(shard: DoorShard, ask: Ask) -> Answer:
    """200075: a topic of lite topics, its groups and how many lite topics it has."""
    deadline = Deadline.after(CALL_SECONDS)
    topic = _parent(shard, ask.text("topic"), deadline)
    count = sum(1 for _ in _lite_topics(shard, deadline, topic=topic.topic))
    document = {
        "groups": [each.consumer_group for each in _groups(shard, deadline) if each.lite.bind_topic == topic.topic],
        "liteTopicCount": count,
        "lmqNum": count,
        "topic": topic.topic,
        "ttl": _minutes(topic),
    }
    return Answer(body=dump_bytes(document))


def get_lite_topic_info(shard: DoorShard, ask: Ask) -> Answer:
    """200076: the range of a lite topic, and its subscribers."""
    deadline = Deadline.after(CALL_SECONDS)
    topic, lite_topic = _parent(shard, ask.text("parentTopic"), deadline), ask.text("liteTopic")
    found = next(_lite_topics(shard, deadline, topic=topic.topic, lite_topic=lite_topic), pb.LiteTopic())
    last_millis = timestamp_to_millis(found.last_store_time, "last_store_time")
    document = {
        "liteTopic": lite_topic,
        "parentTopic": topic.topic,
        "shardingToBroker": found.max_offset > 0,
        "subscriber": [
            {"clientId": client_id, "group": group.consumer_group}
            for group in found.groups
            for client_id in group.client_ids
        ],
        "topicOffset": {
            "lastUpdateTimestamp": last_millis if found.HasField("last_store_time") else 0,
            "maxOffset": found.max_offset,
            "minOffset": found.min_offset,
        },
    }
    return Answer(body=dump_bytes(document))


def get_lite_client_info(shard: DoorShard, ask: Ask) -> Answer:
    """200077: what a client subscribes to."""
    deadline = Deadline.after(CALL_SECONDS)
    topic, group = _parent(shard, ask.text("parentTopic"), deadline), ask.text("group")
    _bound(shard, group, deadline, topic.topic)
    client_id, count_max = ask.text("clientId"), min(ask.number("maxCount"), NAMED_COUNT_MAX)
    subscriber = next(
        (
            each
            for summary in _group(shard, group, deadline).lite_topics
            for each in summary.subscribers
            if each.client_id == client_id
        ),
        None,
    )
    names: list[str] = []
    if subscriber is not None and count_max > 0:
        of_client = _lite_topics(shard, deadline, topic=topic.topic, consumer_group=group, client_id=client_id)
        names = [each.lite_topic for each, _ in zip(of_client, range(count_max), strict=False)]
    document = {
        "clientId": client_id,
        "group": group,
        "lastAccessTime": 0,
        "lastConsumeTime": 0,
        "liteTopicCount": -1 if subscriber is None else subscriber.lite_topic_count,
        "liteTopicSet": names,
        "parentTopic": topic.topic,
    }
    return Answer(body=dump_bytes(document))


def get_lite_group_info(shard: DoorShard, ask: Ask) -> Answer:
    """200078: how far a group is behind: in one lite topic, or in all, with those in which it is furthest behind."""
    deadline = Deadline.after(CALL_SECONDS)
    group, lite_topic, count = ask.text("group"), ask.text("liteTopic", ""), ask.number("topK", 0)
    parent = _bound(shard, group, deadline).lite.bind_topic
    document: dict[str, Any] = {
        "earliestUnconsumedTimestamp": -1,
        "group": group,
        "lagCountTopK": [],
        "lagTimestampTopK": [],
        "liteTopic": lite_topic,
        "parentTopic": parent,
        "totalLagCount": -1,
    }
    if lite_topic:
        found = next(_lite_topics(shard, deadline, topic=parent, consumer_group=group, lite_topic=lite_topic), None)
        row = found.groups[0] if found is not None and found.groups else None
        if found is not None and row is not None and row.HasField("consumer_offset"):
            document["totalLagCount"] = row.lag_count
            document["liteTopicOffsetWrapper"] = {
                "brokerOffset": found.max_offset,
                "consumerOffset": row.consumer_offset,
                "lastTimestamp": 0,
            }
        return Answer(body=dump_bytes(document))
    summaries = _group(shard, group, deadline).lite_topics
    document["totalLagCount"] = sum(each.lag_count for each in summaries if each.topic == parent)
    lags = [
        (row.lag_count, each.lite_topic)
        for each in _lite_topics(shard, deadline, topic=parent, consumer_group=group)
        for row in each.groups
        if row.lag_count > 0
    ]
    document["lagCountTopK"] = [
        {"earliestUnconsumedTimestamp": -1, "lagCount": lag, "liteTopic": name}
        for lag, name in sorted(lags, key=lambda row: (-row[0], row[1]))[: max(min(count, NAMED_COUNT_MAX), 0)]
    ]
    return Answer(body=dump_bytes(document))


def trigger_lite_dispatch(shard: DoorShard, ask: Ask) -> Answer:
    """200079: nothing is to be done."""
    _bound(shard, ask.text("group"), Deadline.after(CALL_SECONDS))
    return Answer()


# --- inside


def _topics(shard: DoorShard, deadline: Deadline) -> dict[str, log_pb.ListTopicsResponse.Topic]:
    answer = shard.shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline)
    return {topic.topic: topic for topic in answer.topics}


def _parent(shard: DoorShard, name: str, deadline: Deadline) -> log_pb.ListTopicsResponse.Topic:
    topic = _topics(shard, deadline).get(name)
    if topic is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{name}] not exist.")
    if topic.message_type != LITE:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"Topic [{name}] type not match.")
    return topic


def _minutes(topic: log_pb.ListTopicsResponse.Topic) -> int:
    """As a broker says it: -1 is never."""
    return topic.lite_expiration_minutes or -1


def _bound(shard: DoorShard, name: str, deadline: Deadline, topic: str = "") -> pb.GroupSettings:
    """A group of lite topics, of this topic when it is named."""
    request = pb.ListGroupsRequest(consumer_group=name, page_size=1)
    found = ask_groups(shard.shard, LIST_GROUPS, request, deadline).groups
    if not found:
        raise RefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{name}] not exist.")
    if topic and found[0].lite.bind_topic != topic:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"Subscription [{name}]-[{topic}] not match.")
    if not found[0].lite.bind_topic:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"Group [{name}] is not a LITE group.")
    return found[0]


def _group(shard: DoorShard, name: str, deadline: Deadline) -> pb.GetGroupResponse:
    return ask_groups(shard.shard, GET_GROUP, pb.GetGroupRequest(consumer_group=name), deadline)


def _groups(shard: DoorShard, deadline: Deadline) -> Iterator[pb.GroupSettings]:
    """At most GROUP_COUNT_MAX, by name."""
    after = ""
    for _ in range(GROUP_COUNT_MAX // PAGE_COUNT):
        request = pb.ListGroupsRequest(page_size=PAGE_COUNT, after=after)
        page = ask_groups(shard.shard, LIST_GROUPS, request, deadline)
        yield from page.groups
        if not page.has_more or not page.groups:
            return
        after = page.groups[-1].consumer_group


def _lite_topics(shard: DoorShard, deadline: Deadline, **choice: str) -> Iterator[pb.LiteTopic]:
    """At most LOOKED_AT_COUNT_MAX, by name."""
    after = ""
    for _ in range(LOOKED_AT_COUNT_MAX // PAGE_COUNT):
        request = pb.ListLiteTopicsRequest(page_size=PAGE_COUNT, after=after, **choice)
        page = ask_groups(shard.shard, LIST_LITE_TOPICS, request, deadline)
        yield from page.lite_topics
        if not page.has_more or not page.lite_topics:
            return
        after = page.lite_topics[-1].lite_topic
