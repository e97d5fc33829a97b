"""Which queues a member of a group gets, decided here and not by the client (400), and whether it pulls or pops them (401).

    mode    queues of a member
    PULL    its part of all queues of the topic, by its strategy
    POP     queue -1 of each shard, which is any queue; with N shared queues (`popShareQueueNum`) below the number of the other
            members: its part and those of the N members behind it

Members and queues are in the order of their names, so every door decides alike. The mode is one of the group's settings in the
consumer service. An answer without assignments has the client keep the queues that it has.

Sources: `QueryAssignmentProcessor`, `MessageRequestModeManager`, `AllocateMessageQueueAveragely(ByCircle)` of RocketMQ.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from gateway.groups.asking import ask_groups, check_users_group
from gateway.ports.deadline import Deadline
from gateway.ports.groups import LIST_GROUPS, UPDATE_GROUP, default_settings
from gateway.ports.shard import LIST_TOPICS, Shard
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread, name_in
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.topics import config_of, document_of
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import dump_bytes
from store.errors import StoreError
from store.format.topic import PERM_READ, RETRY_PREFIX

ANY_QUEUE = -1
POP, PULL = "POP", "PULL"
BROADCASTING = "BROADCASTING"
# Queues of a topic that an answer names.
QUEUE_COUNT_MAX = 65_536


class Queue(NamedTuple):
    """A queue of a topic, in the order of RocketMQ's MessageQueue."""

    broker_name: str
    queue_id: int


Strategy: TypeAlias = Callable[[int, int, Sequence[Queue]], Sequence[Queue]]


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    return {
        RequestCode.QUERY_ASSIGNMENT: in_thread(partial(query_assignment, shard)),
        RequestCode.SET_MESSAGE_REQUEST_MODE: in_thread(partial(set_message_request_mode, shard)),
    }


def query_assignment(shard: DoorShard, ask: Ask) -> Answer:
    """400: the queues of a member, and how it gets their messages."""
    said = document_of(ask.command.body)
    topic, group, client_id, strategy = (
        name_in(said, name) for name in ("topic", "consumerGroup", "clientId", "strategyName")
    )
    ask.rights.check_group(group)
    ask.rights.check_topic(topic)
    mode = _mode_of(shard, group, topic)
    queues = _queues(shard, topic)
    found: Sequence[Queue] | None = None
    if queues is not None and said.get("messageModel") == BROADCASTING:
        found = queues
    elif queues is not None:
        client_ids = sorted({member.client_id for member in shard.members_of(group)} | _here(shard, group))
        found = assigned(strategy, client_id, client_ids, queues, mode)
    if found is None:
        return Answer(body=dump_bytes({}))
    rows = [
        {
            "messageQueue": {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": topic},
            "mode": POP if mode.is_pop else PULL,
        }
        for queue in sorted(set(found))
    ]
    return Answer(body=dump_bytes({"messageQueueAssignments": rows}))


def set_message_request_mode(shard: DoorShard, ask: Ask) -> Answer:
    """401: whether a group pops or pulls a topic."""
    said = document_of(ask.command.body)
    topic, group, name = (name_in(said, field) for field in ("topic", "consumerGroup", "mode"))
    share = said.get("popShareQueueNum", 0)
    ask.rights.check_group(group)
    ask.rights.check_topic(topic)
    if topic.startswith(RETRY_PREFIX):
        raise RefusedError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    if name not in (POP, PULL) or type(share) is not int or not -(1 << 31) <= share < 1 << 31:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, "mode is POP or PULL, and popShareQueueNum a number")
    if config_of(shard, topic) is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    check_users_group(group)
    request = pb.UpdateGroupRequest(
        # A consumer service of an older release sets these, and does not know modes.
        settings=_settings_of(shard, group) or default_settings(group),
        request_mode=pb.RequestMode(topic=topic, is_pop=name == POP, pop_share_queue_count=share),
    )
    ask_groups(shard.shard, UPDATE_GROUP, request, Deadline.after(CALL_SECONDS))
    return Answer()


def assigned(
    strategy_name: str, client_id: str, client_ids: Sequence[str], queues: Sequence[Queue], mode: pb.RequestMode
) -> Sequence[Queue] | None:
    """The queues of a member; None: they are not known.

    Args:
        strategy_name: AVG or AVG_BY_CIRCLE.
        client_id: the member.
        client_ids: of all members, in order.
        queues: of the topic, in order.
        mode: how the group gets messages of the topic.
    """
    strategy = STRATEGIES.get(strategy_name)
    if strategy is None or not client_ids or not queues or not client_id:
        return None
    share, others = mode.pop_share_queue_count, len(client_ids) - 1
    if mode.is_pop and (share <= 0 or share >= others):
        return [Queue(queue.broker_name, ANY_QUEUE) for queue in queues]
    if client_id not in client_ids:
        return ()
    index = client_ids.index(client_id)
    if not mode.is_pop:
        return strategy(index, len(client_ids), queues)
    if len(client_ids) > len(queues):
        return (queues[index % len(queues)],)
    behind = [(index + number) % len(client_ids) for number in range(share + 1)]
    return [queue for each in behind for queue in strategy(each, len(client_ids), queues)]


def averagely(index: int, count: int, queues: Sequence[Queue]) -> Sequence[Queue]:
    """AVG: neighbours, and the first members have one more. Of fewer queues than members each of the first ones has one."""
    size, rest = divmod(len(queues), count)
    begin = index * size + min(index, rest)
    return queues[begin : begin + size + (index < rest)]


def by_circle(index: int, count: int, queues: Sequence[Queue]) -> Sequence[Queue]:
    """AVG_BY_CIRCLE: one after the other."""
    return queues[index::count]


STRATEGIES: Mapping[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def _mode_of(shard: DoorShard, group: str, topic: str) -> pb.RequestMode:
    """How a group gets messages of a topic: it pulls, unless somebody has said otherwise."""
    settings = _settings_of(shard, group)
    modes = settings.request_modes if settings is not None else ()
    return next((each for each in modes if each.topic == topic), pb.RequestMode(topic=topic))


def _settings_of(shard: DoorShard, group: str) -> pb.GroupSettings | None:
    """The settings of a group; None: the shard does not know it."""
    request = pb.ListGroupsRequest(consumer_group=group, page_size=1)
    found = ask_groups(shard.shard, LIST_GROUPS, request, Deadline.after(CALL_SECONDS)).groups
    return found[0] if found else None


def _here(shard: DoorShard, group: str) -> set[str]:
    return {client.client_id for client in shard.clients.members(group)}


def _queues(shard: DoorShard, topic: str) -> Sequence[Queue] | None:
    """The queues of a topic that can be read, of all shards; None: there are none, or a shard does not answer."""
    shards = shard.source.now()
    others = [each for each in shards if each.broker_name != shard.broker_name]
    within = Deadline.after(CALL_SECONDS)
    answers = shards.fan_out.ask(others, lambda other: _count_in(other, topic, within)) if others else []
    own = shard.topics.find_now(topic)
    counts: dict[str, int] = {shard.broker_name: _readable(own)}
    for other, answer in zip(others, answers, strict=True):
        if isinstance(answer, StoreError):  # without its queues the members would lose them
            return None
        counts[other.broker_name] = answer
    queues = [Queue(name, queue_id) for name, count in sorted(counts.items()) for queue_id in range(count)]
    return queues[:QUEUE_COUNT_MAX] or None


def _count_in(shard: Shard, topic: str, deadline: Deadline) -> int:
    topics = shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline).topics
    return _readable(next((each for each in topics if each.topic == topic), None))


def _readable(topic: log_pb.ListTopicsResponse.Topic | None) -> int:
    return topic.read_queue_count if topic is not None and topic.perm & PERM_READ else 0
