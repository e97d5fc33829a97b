"""The administration of consumer groups: settings (200, 225, 201, 352, 207), members (203), progress (208, 303, 317), groups of
topics and topics of groups (300, 343, 345), resets (222), positions of another group (314), and what members are asked (223,
307, 309).

Sources: `AdminBrokerProcessor`, `Broker2Client` of RocketMQ 5.5.0; the bodies are those that it was recorded with. It differs
from a broker:

- Looking at the settings of a group that does not exist does not make it; the answer has the defaults, as a broker's.
- Of a group's settings `consumeEnable`, `consumeMessageOrderly`, `retryMaxTimes` and the attributes `priority.factor` and
  `lite.*` are kept.
- A reset moves the group at once, and members hear of it with their next pulls, at every gateway, as with brokers of 5.x.
  Brokers of 4.9 tell push consumers (RESET_CONSUMER_CLIENT_OFFSET), of which lite pull consumers hear nothing.
"""

import contextlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.groups.administration import SettingsChange, delete_group, update_group
from gateway.groups.asked_members import (
    CONSUME_SECONDS,
    RUNNING_INFO_SECONDS,
    Receiver,
    Told,
    check_stack_trace,
    row_of_subscription,
    subscription_row,
)
from gateway.groups.asking import ask_groups
from gateway.groups.positions import reset_positions
from gateway.ports.deadline import Deadline
from gateway.ports.groups import GET_GROUP, LIST_GROUPS, attempts_max_of, default_settings, lite_attributes_in
from gateway.ports.shard import get_record, list_queues
from gateway.ports.shards import list_built_queues, require_built_queues
from gateway.ports.time_window import set_millis
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread
from gateway.remoting.door_clients import DoorClient, Subscription
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard, per_second
from gateway.remoting.positions import store_position
from gateway.remoting.records import record_of
from gateway.remoting.topics import Queue, config_of, configs_of, document_of, queue_key, store_times
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import OK, Command, version_ordinal
from services.rocketmq.fastjson import dump_bytes
from services.rocketmq.signature import OF_SIGN_IN
from store.errors import GroupNotFoundError, ServiceUnavailableError, StoreError
from store.format.delivery.consumer_files import (
    PRIORITY_FACTOR_ATTRIBUTE,
    altered_lite_attributes,
    altered_priority_factor,
    new_group_row,
)
from store.format.message_id import decode_offset_msg_id
from store.format.topic import RETRY_PREFIX, TopicConfig

# Groups of one page of the consumer service, and of one answer.
PAGE_COUNT, GROUP_COUNT_MAX = 1_000, 100_000
LIST_COUNT_MAX = 1_000
# Topics that a question for a group's progress names; without any it is for all that the group has positions in.
TOPIC_COUNT_MAX = 1_024
# A client that is asked answers at once.
STATUS_SECONDS = 5.0
NOT_NOW = -1  # of a timestamp that asks for the end of a queue, and of a queue or offset that is not said


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code; members of the door can be asked by other doors from then on."""
    way = DoorMembers(shard)
    shard.asked_members.ways.append(way)
    shard.on_close.append(partial(shard.asked_members.ways.remove, way))
    once_built: dict[int, Handler] = {
        RequestCode.GET_CONSUME_STATS: shard.once_built(get_consume_stats),
        RequestCode.QUERY_CONSUME_TIME_SPAN: shard.once_built(query_consume_time_span),
        RequestCode.GET_BROKER_CONSUME_STATS: shard.once_built(get_broker_consume_stats),
    }
    return once_built | {
        code: in_thread(partial(answer, shard))
        for code, answer in (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, update_and_create_group),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, update_and_create_group_list),
            (RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, get_group_config),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, get_all_group_config),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, forget_group),
            (RequestCode.GET_CONSUMER_CONNECTION_LIST, get_consumer_connections),
            (RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, query_topic_consume_by_who),
            (RequestCode.QUERY_TOPICS_BY_CONSUMER, query_topics_by_consumer),
            (RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, query_subscription_by_consumer),
            (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset_offset),
            (RequestCode.CLONE_GROUP_OFFSET, clone_group_offset),
            (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, get_consumer_status),
            (RequestCode.GET_CONSUMER_RUNNING_INFO, get_consumer_running_info),
            (RequestCode.CONSUME_MESSAGE_DIRECTLY, consume_message_directly),
        )
    }


# --- settings


def update_and_create_group(shard: DoorShard, ask: Ask) -> Answer:
    """200: makes a group, or changes the one that there is."""
    _set_group(shard, document_of(ask.command.body))
    return Answer()


def update_and_create_group_list(shard: DoorShard, ask: Ask) -> Answer:
    """225: the same for the groups of a list; the first failure ends it."""
    rows = document_of(ask.command.body).get("groupConfigList")
    if not isinstance(rows, list) or len(rows) > LIST_COUNT_MAX:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"groupConfigList has no list of at most {LIST_COUNT_MAX}")
    for row in rows:
        if not isinstance(row, dict):
            raise RefusedError(ResponseCode.INVALID_PARAMETER, "a group is no JSON object")
        _set_group(shard, row)
    return Answer()


def _set_group(shard: DoorShard, row: Mapping[str, Any]) -> None:
    name, retries = row.get("groupName"), row.get("retryMaxTimes", 16)
    flags = [row.get(field, default) for field, default in (("consumeMessageOrderly", False), ("consumeEnable", True))]
    if not isinstance(name, str) or type(retries) is not int or not all(type(flag) is bool for flag in flags):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, "groupName, retryMaxTimes or a flag has no value of its kind"
        )
    # RocketMQ's default stands for a negative number.
    attributes = row.get("attributes")
    signed = attributes if isinstance(attributes, dict) else {}
    if not all(isinstance(each, str) for each in signed):  # objects may be keys in fastjson's JSON
        raise RefusedError(ResponseCode.INVALID_PARAMETER, "the name of an attribute is no text")
    change = SettingsChange(
        flags[0],
        (retries if retries >= 0 else 16) + 1,
        flags[1],
        priority_factor=altered_priority_factor(signed),
        lite_attributes=altered_lite_attributes(signed),
    )
    update_group(shard.shards, name, change, Deadline.after(CALL_SECONDS))


def get_group_config(shard: DoorShard, ask: Ask) -> Answer:
    """352: the settings of a group."""
    name = ask.text("group")
    request = pb.ListGroupsRequest(consumer_group=name, page_size=1)
    found = ask_groups(shard.shard, LIST_GROUPS, request, Deadline.after(CALL_SECONDS)).groups
    return Answer(body=dump_bytes(_row(found[0] if found else default_settings(name))))


def get_all_group_config(shard: DoorShard, ask: Ask) -> Answer:
    """201: the settings of all groups."""
    table = {each.consumer_group: _row(each) for each in _groups(shard, Deadline.after(CALL_SECONDS))}
    version = {"counter": len(table), "stateVersion": 0, "timestamp": _now_millis()}
    document = {"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": table}
    return Answer({"totalGroupNum": str(len(table))}, dump_bytes(document))


def forget_group(shard: DoorShard, ask: Ask) -> Answer:
    """207: forgets a group with its positions, whatever `cleanOffset` says; one that is absent is no failure."""
    delete_group(shard.shards, ask.text("groupName"), Deadline.after(CALL_SECONDS))
    return Answer()


def _groups(shard: DoorShard, deadline: Deadline, topic: str = "") -> Iterable[pb.GroupSettings]:
    after, count = "", 0
    while count < GROUP_COUNT_MAX:
        request = pb.ListGroupsRequest(topic=topic, page_size=PAGE_COUNT, after=after)
        page = ask_groups(shard.shard, LIST_GROUPS, request, deadline)
        yield from page.groups
        if not page.has_more or not page.groups:
            return
        count += len(page.groups)
        after = page.groups[-1].consumer_group


def _row(settings: pb.GroupSettings) -> dict[str, object]:
    return new_group_row(settings.consumer_group) | {
        "consumeEnable": settings.consume_enabled,
        "consumeMessageOrderly": settings.ordered,
        "retryMaxTimes": attempts_max_of(settings) - 1,
        "attributes": lite_attributes_in(settings)
        | ({PRIORITY_FACTOR_ATTRIBUTE: str(settings.priority_factor)} if settings.HasField("priority_factor") else {}),
    }


# --- members


def get_consumer_connections(shard: DoorShard, ask: Ask) -> Answer:
    """203: the members of a group, over all doors."""
    group = ask.text("consumerGroup")
    members = {client.client_id: client for client in shard.clients.members(group)}
    facts = _facts(shard, group, Deadline.after(CALL_SECONDS), without_queues=True)
    subscriptions = {}
    here = {}
    for client in members.values():
        wanted = client.memberships[group].subscriptions
        seen = [topic for topic in wanted if ask.rights.sees(topic)]
        if seen or not wanted:  # else it consumes only what the caller may not see
            here[client.client_id] = client
            subscriptions.update({topic: _subscription(wanted[topic]) for topic in seen})
    connections = [connection_row(client) for client in here.values()]
    for member in facts.clients if facts is not None else ():
        if member.client_id not in members:
            connections.append(
                {
                    "clientAddr": member.address,
                    "clientId": member.client_id,
                    "language": member.language or "OTHER",
                    "version": version_ordinal(member.version),
                }
            )
            for its in member.subscriptions:
                subscriptions.setdefault(its.topic, row_of_subscription(its))
    if not connections:
        raise RefusedError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    one = next((client.memberships[group] for client in here.values()), None)
    document = {
        "connectionSet": sorted(connections, key=lambda connection: str(connection["clientId"])),
        "consumeFromWhere": one.from_where if one else "CONSUME_FROM_LAST_OFFSET",
        "consumeType": one.consume_type if one else "CONSUME_PASSIVELY",
        "messageModel": one.message_model if one else "CLUSTERING",
        "subscriptionTable": dict(sorted(subscriptions.items())),
    }
    return Answer(body=dump_bytes(document))


def query_subscription_by_consumer(shard: DoorShard, ask: Ask) -> Answer:
    """345: what a group wants of a topic."""
    group, topic = ask.text("group"), ask.text("topic")
    document: dict[str, object] = {"group": group}
    wanted = subscription_of_group(shard, group, topic)
    if wanted is not None:
        document["subscriptionData"] = wanted
    return Answer(body=dump_bytes(document | {"topic": topic}))


def subscription_of_group(shard: DoorShard, group: str, topic: str) -> dict[str, object] | None:
    """What a group with members wants of a topic, as RocketMQ's SubscriptionData is written; None: none of them wants it."""
    for client in shard.clients.members(group):
        if topic in client.memberships[group].subscriptions:
            return _subscription(client.memberships[group].subscriptions[topic])
    facts = _facts(shard, group, Deadline.after(CALL_SECONDS), without_queues=True)
    for member in facts.clients if facts is not None else ():
        for its in member.subscriptions:
            if its.topic == topic:
                return row_of_subscription(its)
    return None


def connection_row(client: DoorClient) -> dict[str, object]:
    """A client as RocketMQ's Connection is written."""
    return {
        "clientAddr": str(client.connection.peer),
        "clientId": client.client_id,
        "language": client.language,
        "version": client.version,
    }


def _subscription(wanted: Subscription) -> dict[str, object]:
    return subscription_row(wanted.topic, wanted.expression, wanted.expression_type, wanted.version)


# --- progress


def get_consume_stats(shard: DoorShard, ask: Ask) -> Answer:
    """208: where a group is in each queue, and when the last message was stored that it has consumed (ms since 1970)."""
    group, topic = ask.text("consumerGroup"), ask.text("topic", "")
    listed = [each for each in ask.text("topicList", "").split(";") if each]
    if len(listed) > TOPIC_COUNT_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"topicList names {len(listed)} topics: at most {TOPIC_COUNT_MAX} are possible, ask several times",
        )
    deadline = Deadline.after(CALL_SECONDS)
    facts = _facts(shard, group, deadline)
    if facts is None:
        return Answer(body=dump_bytes({"consumeTps": 0.0, "offsetTable": {}}))
    table = _progress(shard, facts, listed or [topic], deadline)
    tps = sum(_consume_tps(shard, group, _topics_of(facts, listed or [topic])).values())
    return Answer(body=dump_bytes({"consumeTps": tps, "offsetTable": table}))


def get_broker_consume_stats(shard: DoorShard, ask: Ask) -> Answer:
    """317: the same of all groups."""
    is_order = ask.flag("isOrder")
    deadline = Deadline.after(CALL_SECONDS)
    rows: list[dict[str, object]] = []
    behind = in_flight = 0
    for settings in _groups(shard, deadline):
        if settings.ordered != is_order:
            continue
        facts = _facts(shard, settings.consumer_group, deadline)
        queues = facts.queues if facts is not None else ()
        by_topic: dict[str, list[object]] = {}
        for each in queues:
            by_topic.setdefault(each.topic, [])
            behind += max(each.max_offset - each.consumer_offset, 0)
            in_flight += max(each.next_offset - each.consumer_offset, 0)
        tps = _consume_tps(shard, settings.consumer_group, by_topic)
        stats = [
            {"consumeTps": tps[topic], "offsetTable": _progress(shard, facts, [topic], deadline)}
            for topic in by_topic
            if facts is not None
        ]
        rows.append({settings.consumer_group: stats})
    document = {
        "brokerAddr": shard.address(),
        "consumeStatsList": rows,
        "totalDiff": behind,
        "totalInflightDiff": in_flight,
    }
    return Answer(body=dump_bytes(document))


def _topics_of(facts: pb.GetGroupResponse, topics: Collection[str]) -> Sequence[str]:
    """These topics, or all that a group has positions in."""
    return [topic for topic in topics if topic] or sorted({each.topic for each in facts.queues})


def _consume_tps(shard: DoorShard, group: str, topics: Collection[str]) -> dict[str, float]:
    """How many messages of each topic the group got in a second of the last minute."""
    keys = [pb.FigureKey(kind=pb.FIGURE_KIND_DELIVERED, topic=topic, consumer_group=group) for topic in topics]
    minutes = [figure.minute for figure in shard.figures(keys)]
    return {topic: per_second(each, each.message_count) for topic, each in zip(topics, minutes, strict=True)}


def _progress(
    shard: DoorShard, facts: pb.GetGroupResponse, topics: Collection[str], deadline: Deadline
) -> dict[object, object]:
    """The rows of a group by queue: every queue that is read of the topics that it has positions in, or of these."""
    known = {(each.topic, each.queue_id): each for each in facts.queues}
    wanted = _topics_of(facts, topics)
    configs = configs_of(shard, wanted)
    numbers = [(topic, number) for topic, config in configs.items() for number in range(config.read_queue_count)]
    ends = {queue: each.max_offset for queue, each in known.items()}
    unknown = list(dict.fromkeys(topic for topic, number in numbers if (topic, number) not in known))
    if configs:
        require_built_queues(shard.shard, next(iter(configs)), deadline)
    # A call for each topic: most groups have a position in every queue, and its end with it.
    for topic in unknown:
        ends.update({(topic, each.queue_id): each.max_offset for each in list_queues(shard.shard, topic, deadline)})
    last = {queue: known[queue].consumer_offset - 1 for queue in numbers if queue in known}
    times = store_times(shard, {queue: at for queue, at in last.items() if at >= 0}, deadline)
    rows: dict[object, object] = {}
    for queue in numbers:
        at = known.get(queue)
        rows[queue_key(shard, *queue)] = {
            "brokerOffset": ends.get(queue, 0),
            "consumerOffset": at.consumer_offset if at else 0,
            "lastTimestamp": times.get(queue, 0),
            "pullOffset": max(at.next_offset, at.consumer_offset) if at else 0,
        }
    return rows


def query_consume_time_span(shard: DoorShard, ask: Ask) -> Answer:
    """303: of each queue the store times of the first, last and last consumed message, and how late the group is (ms)."""
    topic, group = ask.text("topic"), ask.text("group")
    config = _topic(shard, topic)
    deadline = Deadline.after(CALL_SECONDS)
    facts = _facts(shard, group, deadline)
    at = (
        {each.queue_id: each.consumer_offset for each in facts.queues if each.topic == topic}
        if facts is not None
        else {}
    )
    ranges = {each.queue_id: each for each in list_built_queues(shard.shard, topic, deadline)}
    filled = {number: each for number, each in ranges.items() if each.max_offset > each.min_offset}

    def times(offsets: Mapping[int, int]) -> dict[int, int]:
        places: dict[Queue, int] = {(topic, number): offset for number, offset in offsets.items()}
        return {number: millis for (_, number), millis in store_times(shard, places, deadline).items()}

    first = times({number: each.min_offset for number, each in filled.items()})
    last = times({number: each.max_offset - 1 for number, each in filled.items()})
    done = times({number: at[number] - 1 for number, each in filled.items() if at.get(number, 0) > each.min_offset})
    coming = times(
        {number: at.get(number, 0) for number, each in filled.items() if at.get(number, 0) < each.max_offset}
    )
    spans = []
    for number in range(config.write_queue_count):
        known = {
            "consumeTimeStamp": done.get(number, first.get(number, -1)),
            "delayTime": _now_millis() - coming[number] if number in coming else 0,
            "maxTimeStamp": last.get(number, -1),
            "messageQueue": {"brokerName": shard.broker_name, "queueId": number, "topic": topic},
            "minTimeStamp": first.get(number, -1),
        }
        spans.append(known)
    return Answer(body=dump_bytes({"consumeTimeSpanSet": spans}))


def query_topic_consume_by_who(shard: DoorShard, ask: Ask) -> Answer:
    """300: the groups that have positions in a topic, or members with a connection here that want it."""
    topic = ask.text("topic")
    names = {settings.consumer_group for settings in _groups(shard, Deadline.after(CALL_SECONDS), topic)}
    for client in shard.clients.all():
        names |= {
            group
            for group, membership in client.memberships.items()
            if topic in membership.subscriptions and ask.rights.allows_group(group)
        }
    return Answer(body=dump_bytes({"groupList": sorted(names)}))


def query_topics_by_consumer(shard: DoorShard, ask: Ask) -> Answer:
    """343: the topics that a group has positions in."""
    facts = _facts(shard, ask.text("group"), Deadline.after(CALL_SECONDS))
    topics = sorted({each.topic for each in facts.queues}) if facts is not None else []
    return Answer(body=dump_bytes({"brokerAddr": shard.address(), "topicList": topics}))


# --- resets, and what members are asked


def reset_offset(shard: DoorShard, ask: Ask) -> Answer:
    """222: moves a group to a time, to a position, or to the end of the queues; members hear it with their next pulls."""
    group, topic = ask.text("group"), ask.text("topic")
    if config_of(shard, topic) is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
    queue_id, offset = ask.number("queueId", NOT_NOW), ask.number("offset", NOT_NOW)
    millis = ask.number("timestamp", NOT_NOW)
    question = pb.ResetOffsetsRequest(consumer_group=group, topic=topic)
    if queue_id >= 0:
        question.queue_id = queue_id
    if queue_id >= 0 and offset >= 0:
        question.queue_offset = offset
    elif millis == NOT_NOW:
        question.latest = True
    else:
        set_millis(question.time, ask.time_millis("timestamp"))
    number = shard.position_order.number()
    moved = reset_positions(shard.shards, question, shard.broker_name, Deadline.after(CALL_SECONDS))
    for _, each in moved:
        shard.position_order.note((group, topic, each.queue_id), number, each.after)
    table = {queue_key(shard, topic, each.queue_id): each.after for _, each in moved}
    body = dump_bytes({"offsetTable": table})
    return Answer(body=body)


def clone_group_offset(shard: DoorShard, ask: Ask) -> Answer:
    """314: a group gets the positions of another one, in a topic or in all; with `offline` false only in topics that it wants.

    As with a broker, a topic that does not exist, or in which the other group has no position, is left out.
    """
    source, target, only = ask.text("srcGroup"), ask.text("destGroup"), ask.text("topic", "").strip()
    is_offline = ask.flag("offline")
    facts = _facts(shard, source, Deadline.after(CALL_SECONDS))
    wanted = {its.topic for member in facts.clients for its in member.subscriptions} if facts is not None else set()
    queues = [each for each in facts.queues if only in ("", each.topic)] if facts is not None else []
    configs = configs_of(shard, (each.topic for each in queues))
    for each in queues:
        if each.topic not in configs:
            continue
        if not is_offline and wanted and each.topic not in wanted:
            continue
        position = pb.QueueOffset(topic=each.topic, queue_id=each.queue_id, queue_offset=each.consumer_offset)
        store_position(shard, shard.position_order.number(), target, position)
    return Answer()


def get_consumer_status(shard: DoorShard, ask: Ask) -> None:
    """223: where members are in the queues of a topic, as they tell it themselves; one that does not answer is left out."""
    group, topic, client_id = ask.text("group"), ask.text("topic"), ask.text("clientAddr", "").strip()
    members = shard.clients.members(group)
    if not members:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]")
    asked = [each for each in members if client_id in ("", each.client_id)]
    table: dict[str, object] = {}
    lock = threading.Lock()
    left = len(asked)

    def end() -> None:
        ask.answer(body=dump_bytes({"consumerTable": table, "messageQueueTable": {}}))

    def answered(member: DoorClient, answer: Command | None) -> None:
        nonlocal left
        told: object = None
        if answer is not None and answer.code == OK:
            with contextlib.suppress(RefusedError):
                told = document_of(answer.body).get("messageQueueTable")
        with lock:
            if isinstance(told, Mapping):
                table[member.client_id] = told
            left -= 1
            is_last = not left
        if is_last:
            end()

    request = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group})
    for member in asked:
        member.connection.ask(request, STATUS_SECONDS, partial(answered, member))
    if not asked:
        end()


def get_consumer_running_info(shard: DoorShard, ask: Ask) -> None:
    """307: what a member tells about itself; of one over gRPC what the gateway knows, and the stacks that it prints."""
    group, client_id, with_stack_trace = ask.text("consumerGroup"), ask.text("clientId"), ask.flag("jstackEnable")
    if with_stack_trace:
        check_stack_trace(group, is_limited=shard.shards.is_limited)
    member = _member_here(shard, group, client_id)
    if ask.rights.access is not None:
        _check_all(shard, ask, group, client_id)
    if member is not None:
        _pass_on(ask, member, ask.command.body, RUNNING_INFO_SECONDS)
    elif not shard.asked_members.ask(group, client_id, _answering(ask), with_stack_trace=with_stack_trace):
        raise _not_here(shard, group, client_id)


def consume_message_directly(shard: DoorShard, ask: Ask) -> None:
    """309: has a member consume one message now; its answer says how it went."""
    group, client_id = ask.text("consumerGroup"), ask.text("clientId")
    _, offset = decode_offset_msg_id(ask.text("msgId"))
    record = get_record(shard.shard, offset, Deadline.after(CALL_SECONDS))
    member = _member_here(shard, group, client_id)
    if member is not None:
        _pass_on(ask, member, record_of(record), CONSUME_SECONDS)
    elif not shard.asked_members.consume(group, client_id, record, _answering(ask)):
        raise _not_here(shard, group, client_id)


def _answering(ask: Ask) -> Receiver:
    """Answers a request with what a member tells over another way."""

    def told(answer: Told | StoreError) -> None:
        if isinstance(answer, Told):
            ask.answer(body=answer.body)
        else:
            ask.answer(code=ResponseCode.SYSTEM_ERROR, remark=answer.message)

    return told


class DoorMembers:
    """A Way to the members that have a connection to this door."""

    def __init__(self, shard: DoorShard) -> None:
        self._shard = shard

    def ask(self, consumer_group: str, client_id: str, told: Receiver, *, with_stack_trace: bool) -> bool:
        """See Way."""
        fields = {"consumerGroup": consumer_group, "clientId": client_id, "jstackEnable": str(with_stack_trace).lower()}
        return self._put(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields), RUNNING_INFO_SECONDS, told)

    def consume(self, consumer_group: str, client_id: str, message: StoredMessage, told: Receiver) -> bool:
        """See Way."""
        fields = {
            "consumerGroup": consumer_group,
            "clientId": client_id,
            "msgId": message.offset_msg_id,
            "brokerName": self._shard.broker_name,
        }
        command = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record_of(message))
        return self._put(command, CONSUME_SECONDS, told)

    def _put(self, command: Command, seconds: float, told: Receiver) -> bool:
        group, client_id = command.fields["consumerGroup"], command.fields["clientId"]
        member = _member_here(self._shard, group, client_id)
        if member is None:
            return False

        def answered(answer: Command | None) -> None:
            if answer is not None and answer.code == OK:
                told(Told(answer.body))
                return
            why = f"did not answer within {seconds:.0f} s" if answer is None else f"refuses: {answer.remark}"
            told(ServiceUnavailableError(f"the member {client_id} of {group} {why}", service="client"))

        member.connection.ask(command, seconds, answered)
        return True


def _member_here(shard: DoorShard, group: str, client_id: str) -> DoorClient | None:
    return next((client for client in shard.clients.members(group) if client.client_id == client_id), None)


def _check_all(shard: DoorShard, ask: Ask, group: str, client_id: str) -> None:
    """PermissionDeniedError when a member wants a topic that the caller may not see: its answer would name it."""
    for member in shard.members_of(group):
        for wanted in member.subscriptions if member.client_id == client_id else ():
            if wanted.topic != f"{RETRY_PREFIX}{group}":
                ask.rights.check_topic(wanted.topic)


def _not_here(shard: DoorShard, group: str, client_id: str) -> RefusedError:
    """Why a member cannot be asked that has no connection to this door."""
    for member in shard.members_of(group):
        if member.client_id == client_id:  # a broker's only door has all its members
            return RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{group}> <{client_id}> has no connection here: it is a {member.kind or 'member'} at "
                f"{member.address}, with a connection to another gateway: ask that one",
            )
    return RefusedError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")


def _pass_on(ask: Ask, member: DoorClient, body: bytes, seconds: float) -> None:
    """Ask a member the same, and answer with what it answers."""

    def answered(answer: Command | None) -> None:
        if answer is None:
            remark = f"the client {member.client_id} did not answer within {seconds:.0f} s"
            ask.answer(code=ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
        else:
            ask.answer(answer.fields, answer.body, answer.code, answer.remark)

    # The signature of the one that asks is not for the member.
    fields = {name: value for name, value in ask.command.fields.items() if name not in OF_SIGN_IN}
    member.connection.ask(Command(ask.command.code, fields, body), seconds, answered)


# --- inside


def _topic(shard: DoorShard, topic: str) -> TopicConfig:
    found = config_of(shard, topic)
    if found is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return found


def _facts(
    shard: DoorShard, group: str, deadline: Deadline, *, without_queues: bool = False
) -> pb.GetGroupResponse | None:
    """The group as the consumer service has it; None when there is none."""
    request = pb.GetGroupRequest(consumer_group=group, without_queues=without_queues)
    try:
        return ask_groups(shard.shard, GET_GROUP, request, deadline)
    except GroupNotFoundError:
        return None


def _now_millis() -> int:
    return time.time_ns() // 1_000_000
