"""Which queues a member of a group gets, decided here and not by the client (400), and whether it pulls or pops them (401).

    mode    queues of a member
    PULL    its part of all queues of the topic, by its strategy
    POP     queue -1 of each shard, which is any queue; with N shared queues (`popShareQueueNum`) below the number of the other
            members: its part and those of the N members behind it

Members and queues are in the order of their names, so every door decides alike. The mode is one of the group's settings in the
consumer service. An answer without assignments has the client keep the queues that it has.

A client asks one broker of the topic, another one each time, so all must know the queues of all: name servers tell those of
shards that this gateway does not know, and of brokers of RocketMQ (Elsewhere).

Sources: `QueryAssignmentProcessor`, `MessageRequestModeManager`, `AllocateMessageQueueAveragely(ByCircle)` of RocketMQ.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import structlog

from gateway.groups.asking import ask_groups, check_users_group
from gateway.ports.deadline import Deadline
from gateway.ports.groups import LIST_GROUPS, UPDATE_GROUP, default_settings
from gateway.ports.shard import LIST_TOPICS, STATUSES, Shard
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, in_thread, name_in
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.topics import config_of, document_of
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.rocketmq.address import NameServer, parse_nameserver
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import OK, Command, FrameError
from services.rocketmq.fastjson import dump_bytes, loads
from services.rocketmq.remoting import ask as ask_server
from services.settings.certificates import client_context
from store.errors import StoreError
from store.format.topic import PERM_READ, RETRY_PREFIX, TOPIC_QUEUE_COUNT_MAX

if TYPE_CHECKING:
    import ssl

ANY_QUEUE = -1
POP, PULL = "POP", "PULL"
BROADCASTING = "BROADCASTING"
# Queues of a topic that an answer names.
QUEUE_COUNT_MAX = 65_536
# Of a question for a route: a name server that is silent must not hold up a client, which waits 3 s.
ROUTE_SECONDS = 0.5
ROUTE_BYTES_MAX = 4 << 20
# Topics whose route is remembered for the time when no name server answers.
ROUTE_COUNT_MAX = 1_024
# A route is asked for no more often than this, however many members ask; a broker asks every 30 s.
ROUTE_KEPT_SECONDS = 5.0
# When none answers, none is asked for so long: each question may take a thread for a second.
SILENT_SECONDS = 30.0
NAMESERVER_COUNT_MAX = 2  # asked for one answer


_log = structlog.get_logger("reput.remoting")


class Queue(NamedTuple):
    """A queue of a topic, in the order of RocketMQ's MessageQueue."""

    broker_name: str
    queue_id: int


Strategy: TypeAlias = Callable[[int, int, Sequence[Queue]], Sequence[Queue]]


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    elsewhere = Elsewhere(lambda: _nameservers(shard), tls_context=shard.nameserver_tls)
    return {
        RequestCode.QUERY_ASSIGNMENT: in_thread(partial(query_assignment, shard, elsewhere)),
        RequestCode.SET_MESSAGE_REQUEST_MODE: in_thread(partial(set_message_request_mode, shard)),
    }


class Elsewhere:
    """The queues of brokers that the name servers of a shard know; thread-safe.

    Args:
        nameservers: where the shard is registered.
        clock: seconds, rising.
        tls_context: gives the context of a TLS connection to one; OSError when its files cannot be read.
    """

    def __init__(
        self,
        nameservers: Callable[[], Sequence[NameServer]],
        clock: Callable[[], float] = time.monotonic,
        tls_context: "Callable[[], ssl.SSLContext]" = client_context,
    ) -> None:
        self._nameservers = nameservers
        self._clock = clock
        self._tls_context = tls_context
        self._lock = threading.Lock()
        # By topic: until when it is taken as it is, and its queues by broker.
        self._known: OrderedDict[str, tuple[float, Mapping[str, int]]] = OrderedDict()
        self._silent_until = 0.0
        self._problem = ""

    def counts(self, topic: str, without: Set[str]) -> Mapping[str, int]:
        """Readable queues of a topic by broker, without some brokers; waits.

        They are those of the newest answer: also while no name server answers.
        """
        with self._lock:
            until, known = self._known.get(topic, (0.0, {}))
            until = max(until, self._silent_until)
        if self._clock() >= until:
            found = self._ask(topic)
            known = known if found is None else found
            with self._lock:
                self._known[topic] = self._clock() + ROUTE_KEPT_SECONDS, known
                self._known.move_to_end(topic)
                if len(self._known) > ROUTE_COUNT_MAX:
                    self._known.popitem(last=False)
        return {name: count for name, count in known.items() if name not in without}

    def _ask(self, topic: str) -> Mapping[str, int] | None:
        """The queues by broker, none where there is no such topic; None: no name server answers."""
        try:
            addresses = self._nameservers()[:NAMESERVER_COUNT_MAX]
        except StoreError:
            return None
        problem = ""
        for address in addresses:
            request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, opaque=1)
            try:
                answer = ask_server(address, request, ROUTE_SECONDS, ROUTE_BYTES_MAX, self._tls_context)
                found = _counts_of(answer) if answer.code == OK else None
            except (StoreError, FrameError) as error:
                problem = problem or str(error)
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                found = {}
            if found is not None:
                self._problem = ""
                return found
            problem = problem or f"{address} refused: {answer.remark or answer.code}"
        if addresses:
            self._silent_until = self._clock() + SILENT_SECONDS
            if problem != self._problem:  # each once
                self._problem = problem
                _log.warning("assignments.no_route", topic=topic, error=problem)
        return None


def query_assignment(shard: DoorShard, elsewhere: Elsewhere, ask: Ask) -> Answer:
    """400: the queues of a member, and how it gets their messages."""
    said = document_of(ask.command.body)
    topic, group, client_id, strategy = (
        name_in(said, name) for name in ("topic", "consumerGroup", "clientId", "strategyName")
    )
    ask.rights.check_group(group)
    ask.rights.check_topic(topic)
    mode = _mode_of(shard, group, topic)
    queues = _queues(shard, elsewhere, topic)
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


def _queues(shard: DoorShard, elsewhere: Elsewhere, topic: str) -> Sequence[Queue] | None:
    """The queues of a topic that can be read, of all brokers; None: there are none, or a shard does not answer."""
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
    counts.update(elsewhere.counts(topic, counts.keys()))
    queues = [Queue(name, queue_id) for name, count in sorted(counts.items()) for queue_id in range(count)]
    return queues[:QUEUE_COUNT_MAX] or None


def _nameservers(shard: DoorShard) -> Sequence[NameServer]:
    """The name servers at which the shard is registered now; waits."""
    statuses = shard.whole_shard.call(STATUSES, None, Deadline.after(CALL_SECONDS))
    known = {
        name
        for each in statuses
        if each.status.service == "commitlog"
        for name, is_registered in each.status.nameservers.items()
        if is_registered
    }
    return [parse_nameserver(name) for name in sorted(known)]


def _counts_of(answer: Command) -> Mapping[str, int]:
    """Readable queues by broker, as a route says them; FrameError when it is none."""
    try:
        rows = loads(answer.body)["queueDatas"]
        return {
            str(row["brokerName"]): min(int(row["readQueueNums"]), TOPIC_QUEUE_COUNT_MAX)
            for row in rows
            if int(row["perm"]) & PERM_READ
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FrameError(f"no route: {error!r}") from error


def _count_in(shard: Shard, topic: str, deadline: Deadline) -> int:
    topics = shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline).topics
    return _readable(next((each for each in topics if each.topic == topic), None))


def _readable(topic: log_pb.ListTopicsResponse.Topic | None) -> int:
    return topic.read_queue_count if topic is not None and topic.perm & PERM_READ else 0
