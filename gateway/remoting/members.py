"""Members: heartbeats and their end (34, 35), members of a group (38, 40), locks (41, 42), filters before a start (46).

    client ══ HEART_BEAT ══▶ what this connection's client is (door_clients.py)
                             └─▶ consumer service: members of the shard's groups, of all doors
    consumer service ══ arrivals: members of a group changed ══▶ every door ══ NOTIFY_CONSUMER_IDS_CHANGED ══▶ its members

The end of a connection takes its client out of its groups at once, as in RocketMQ, and leaves its locks until their time is
over: its program may still work on what it pulled. So it does not when the client has another connection, here or at another
gateway, or when this gateway ends: its clients connect elsewhere, and nothing is rebalanced (ADR 0127). A consumer service that
begins anew hears of all members at once.

Sources: `ClientManageProcessor`, `ConsumerManageProcessor`, `AdminBrokerProcessor`, `DefaultConsumerIdsChangeListener`.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from gateway.groups.pulling import LOCKED_COUNT_MAX, lock_queues
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import KEEP_BYTES_MAX, OVERHEAD_BYTES, TAG, client_bytes, count_in_one_call, pull_now
from gateway.ports.groups import default_settings
from gateway.remoting.door import MAY_PASS, Answer, Ask, Handler, RefusedError, code_of, in_thread, name_in, peer_of
from gateway.remoting.door_clients import (
    GROUP_COUNT_MAX,
    SUBSCRIPTION_COUNT_MAX,
    DoorClient,
    Membership,
    Subscription,
)
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.filters import filter_of, wanted_by
from gateway.remoting.topics import document_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.command import Command, version_text
from services.rocketmq.fastjson import dump_bytes
from services.rocketmq.remoting_server import Connection
from services.serving.admission.callers import WorkingFor, caller_here
from services.serving.admission.shares import Client, Shares, client_of_name
from store.errors import IllegalFilterError, QueueNotFoundError, StoreError, TopicNotFoundError

# Groups whose topics were made; one that is forgotten is made again, which changes nothing.
KNOWN_GROUP_COUNT_MAX = 65_536
# Of the name of a client's language; as over gRPC. The longest of RocketMQ's has 6.
LANGUAGE_CHARACTERS_MAX = 32
# What the heartbeats of all connections have said; one of them has KEEP_BYTES_MAX at most, so that it can be passed on.
ALL_CLIENTS_BYTES_MAX = 128 << 20
END_THREAD_COUNT = 2
# Heartbeats that are read in the loop of the connections; one of some 30 groups has so many bytes.
LOOP_BEAT_BYTES_MAX = 16 << 10
# Of a client whose heartbeats are read there: a short one may stand for all that was said before. Each needs a right.
LOOP_SUBSCRIPTION_COUNT_MAX = 128
KINDS = {
    "CONSUME_PASSIVELY": "push consumer",
    "CONSUME_ACTIVELY": "pull consumer",
    "CONSUME_POP": "pop consumer",
}

_log = structlog.get_logger("reput.remoting")


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    members = Members(shard)
    shard.clients.on_end.append(members.end_connection)
    shard.clients.on_close.append(members.give_room_back)
    shard.on_arrivals.append(members.hear)
    shard.on_close.append(members.close)
    return {
        RequestCode.HEART_BEAT: members.beat,
        RequestCode.UNREGISTER_CLIENT: in_thread(members.unregister),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: in_thread(members.list_members),
        RequestCode.LOCK_BATCH_MQ: in_thread(partial(members.lock, unlock=False)),
        RequestCode.UNLOCK_BATCH_MQ: in_thread(partial(members.lock, unlock=True)),
        RequestCode.CHECK_CLIENT_CONFIG: in_thread(members.check_client_config),
    }


class Members:
    """See the top of this file; thread-safe.

    Args:
        shard: the shard.
    """

    def __init__(self, shard: DoorShard) -> None:
        self._shard = shard
        self._lock = threading.Lock()
        self._known_groups: OrderedDict[str, None] = OrderedDict()
        self._room = Shares(ALL_CLIENTS_BYTES_MAX)
        self._sizes: dict[Connection, tuple[Client, int]] = {}
        self._is_closing = False
        self._ends = ThreadPoolExecutor(END_THREAD_COUNT, thread_name_prefix="remoting-ends")

    def beat(self, ask: Ask) -> None:
        """34: a client lives, and says which groups it is a member of.

        One that says nothing new, but for the versions of subscriptions, is answered at once, and passed on beside that. A
        client of 5.x sends a heartbeat with a new version after a rebalance, gives it up while another one has no answer, and
        can pull nothing (SUBSCRIPTION_NOT_LATEST) until the next one, 30 s later.
        """
        before = ask.client
        if len(ask.command.body) > LOOP_BEAT_BYTES_MAX or _subscription_count(before) > LOOP_SUBSCRIPTION_COUNT_MAX:
            ask.work(lambda: self._beat(ask, *self._heard(ask)))
            return
        client, is_whole = self._heard(ask)
        if before is None or not _says_the_same(client, before):
            ask.work(lambda: self._beat(ask, client, is_whole))
            return
        if self._shard.clients.settle(client):
            ask.beside(lambda: self._keep(facts_of(client)))
            ask.beside(lambda: self._tell_hearers(client))
        ask.answer(_beat_fields(is_whole))

    def _heard(self, ask: Ask) -> tuple[DoorClient, bool]:
        client, is_whole = client_of(ask, document_of(ask.command.body), ask.client)
        _check_rights(ask, client)
        if self._shard.tenants is not None:
            subscribed = [topic for each in client.memberships.values() for topic in each.subscriptions]
            names = (*client.producer_groups, *client.memberships, *subscribed)
            self._shard.tenants.check_client(ask.connection, names)
        return client, is_whole

    def _beat(self, ask: Ask, client: DoorClient, is_whole: bool) -> Answer:
        before, facts = ask.client, facts_of(client)
        self._take_room(ask, client_bytes_of(client, facts))
        if not self._shard.clients.settle(client):
            self.give_room_back(ask.connection)
            return Answer()
        try:
            for group in client.memberships:
                self._make_group(group)
            if client.memberships:
                self._keep(facts)
        except StoreError as error:
            if code_of(error) not in MAY_PASS:  # else the shard hears of it later
                self._shard.clients.take_back(client.connection, before)
            raise
        if before is not None:  # it may have had another id, or other groups
            self._leave_groups(before)
        ask.beside(lambda: self._tell_hearers(client))
        return Answer(_beat_fields(is_whole))

    def _tell_hearers(self, client: DoorClient) -> None:
        for hear in self._shard.on_beat:
            hear(client)

    def unregister(self, ask: Ask) -> Answer:
        """35: a client leaves a group in order."""
        client_id = ask.text("clientID")
        producer_group, group = ask.text("producerGroup", ""), ask.text("consumerGroup", "")
        ask.rights.claim(client_id)
        client = ask.client
        if client is not None and client.client_id == client_id:
            left = replace(
                client,
                producer_groups=client.producer_groups - {producer_group},
                memberships={name: each for name, each in client.memberships.items() if name != group},
            )
            self._shard.clients.settle(left)
            if not left.producer_groups and not left.memberships:
                ask.rights.release(client_id)
        if group:
            self._leave(client_id, group, ask.connection)
        return Answer()

    def list_members(self, ask: Ask) -> Answer:
        """38: the ids of a group's members, of all doors; none is an error, on which clients keep the queues that they have."""
        group = ask.text("consumerGroup")
        # A consumer service that has just begun may not have heard of all.
        client_ids = {member.client_id for member in self._shard.members_of(group)}
        client_ids.update(client.client_id for client in self._shard.clients.members(group))
        if not client_ids:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return Answer(body=dump_bytes({"consumerIdList": sorted(client_ids)}))

    def lock(self, ask: Ask, *, unlock: bool) -> Answer:
        """41, 42: lock queues for a member for 60 s, or unlock them; the answer names those that it has."""
        said = document_of(ask.command.body)
        group, client_id = name_in(said, "consumerGroup"), name_in(said, "clientId")
        queues = [_queue(each) for each in _list(said, "mqSet")]
        ask.rights.check_group(group)
        for topic in dict.fromkeys(topic for topic, _ in queues):
            ask.rights.check_topic(topic)
        ask.rights.claim(client_id)
        if not queues:
            return Answer(body=b"" if unlock else dump_bytes({"lockOKMQSet": []}))
        renewed = self._shard.locks.held(group, client_id, queues)
        held: set[tuple[str, int]] = set()
        for part, renew in ((renewed, True), ([each for each in queues if each not in renewed], False)):
            for at in range(0, len(part), LOCKED_COUNT_MAX):
                held |= self._lock_some(group, client_id, part[at : at + LOCKED_COUNT_MAX], unlock=unlock, renew=renew)
        self._shard.locks.note(group, client_id, queues, () if unlock else held)
        if unlock:
            return Answer()
        found = [each for each in _list(said, "mqSet") if _queue(each) in held]
        rows = [{name: each.get(name) for name in ("topic", "brokerName", "queueId")} for each in found]
        return Answer(body=dump_bytes({"lockOKMQSet": rows}))

    def check_client_config(self, ask: Ask) -> Answer:
        """46: whether a filter can be used; SUBSCRIPTION_PARSE_FAILED says why not."""
        body = document_of(ask.command.body)
        ask.rights.check_group(name_in(body, "group"))
        said = body.get("subscriptionData")
        if not isinstance(said, dict):
            return Answer()
        subscription = subscription_of(said)
        ask.rights.check_topic(subscription.topic)
        if subscription.expression_type in ("", TAG):
            return Answer()
        wanted = wanted_by(subscription)
        question = pb.PullMessagesRequest(topic=subscription.topic, max_messages=1, filter=wanted)
        try:
            pull_now(self._shard.deliverings, self._shard.broker_name, question, Deadline.after(CALL_SECONDS))
        except IllegalFilterError:
            raise
        except StoreError as error:  # the filter was read before this
            if not isinstance(error, TopicNotFoundError):
                _log.info("filter.not_tried", error=error.message)
        return Answer()

    # --- called by others

    def end_connection(self, client: DoorClient) -> None:
        """A connection has ended: its client is no member any more, unless it has another connection."""
        if client.memberships:
            self._later(self._end_client, client)

    def hear(self, broker_name: str, arrivals: pb.WatchArrivalsResponse) -> None:
        """Members of groups have changed, as the shard's consumer service says."""
        if broker_name != self._shard.broker_name:
            return
        if arrivals.all:
            self._later(self._keep_all)
        for group in arrivals.member_groups:
            for client in self._shard.clients.members(group):
                client.connection.tell(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}))

    def close(self) -> None:
        """Tell the consumer service nothing more: this gateway ends, and its clients go on elsewhere."""
        with self._lock:
            self._is_closing = True
        self._ends.shutdown(wait=False, cancel_futures=True)

    def _later(self, work: Callable[..., object], *arguments: object) -> None:
        with self._lock:
            if not self._is_closing:
                self._ends.submit(work, *arguments)

    def _end_client(self, client: DoorClient) -> None:
        with WorkingFor(client_of_name(client.caller_name or peer_of(client.connection))):
            self._leave_groups(client)

    def _leave_groups(self, client: DoorClient) -> None:
        """A client is in none of its groups any more, but for those that it names by any connection."""
        here = {name for each in self._shard.clients.named(client.client_id) for name in each.memberships}
        for group in client.memberships.keys() - here:
            try:
                self._leave(client.client_id, group, client.connection)
            except StoreError as error:  # its heartbeats are missed later
                _log.info("member.not_ended", client_id=client.client_id, consumer_group=group, error=error.message)

    def _leave(self, client_id: str, group: str, connection: Connection) -> None:
        """Say that a client has ended; it may have come again by another connection, also at another gateway."""
        address = peer_of(connection)
        self._shard.delivering.end_client(client_id, group, CALL_SECONDS, keep_locks=True, address=address)

    def _keep_all(self) -> None:
        facts = [each for client in self._shard.clients.all() for each in facts_of(client)]
        for some in _in_calls(facts):
            try:
                self._shard.delivering.keep_clients(some, CALL_SECONDS)
            except StoreError as error:  # their next heartbeats follow
                _log.info("members.not_kept", error=error.message)

    def _keep(self, facts: Sequence[pb.Client]) -> None:
        for some in _in_calls(facts):
            self._shard.delivering.keep_clients(some, CALL_SECONDS)

    def _take_room(self, ask: Ask, size_bytes: int) -> None:
        """Count what a heartbeat says; RefusedError when it is too much, or more than the share of its client."""
        if size_bytes > KEEP_BYTES_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"a heartbeat says {size_bytes} bytes of groups and subscriptions: at most {KEEP_BYTES_MAX} are possible",
            )
        with self._lock:
            before = self._sizes.pop(ask.connection, None)
            if before is not None:
                self._room.give_back(*before)
            has_room = self._room.has_room(ask.caller, size_bytes)
            kept = (ask.caller, size_bytes) if has_room else before
            if kept is not None:
                self._room.take(*kept)
                self._sizes[ask.connection] = kept
        if not has_room:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"heartbeats have said {self._room.count} bytes of groups and subscriptions, and this client has its share of "
                f"{ALL_CLIENTS_BYTES_MAX}: name fewer, or connect to another gateway",
            )

    def give_room_back(self, connection: Connection) -> None:
        """A connection has ended: nothing that it has said is kept."""
        if self._shard.tenants is not None:
            self._shard.tenants.end_client(connection)
        with self._lock:
            kept = self._sizes.pop(connection, None)
            if kept is not None:
                self._room.give_back(*kept)

    def _make_group(self, group: str) -> None:
        """A group exists from its first heartbeat on, and so does its retry topic: clients ask for a route."""
        with self._lock:
            if group in self._known_groups:
                self._known_groups.move_to_end(group)
                return
        self._shard.delivering.make_group(default_settings(group), caller_here(), CALL_SECONDS)
        with self._lock:
            self._known_groups[group] = None
            if len(self._known_groups) > KNOWN_GROUP_COUNT_MAX:
                self._known_groups.popitem(last=False)

    # --- locks

    def _lock_some(
        self, group: str, client_id: str, queues: Sequence[tuple[str, int]], *, unlock: bool, renew: bool
    ) -> set[tuple[str, int]]:
        if not queues:
            return set()
        question = pb.LockQueuesRequest(
            consumer_group=group,
            client_id=client_id,
            queues=[gateway_pb.TopicQueue(topic=topic, queue_id=queue_id) for topic, queue_id in queues],
            unlock=unlock,
            renew=renew,
        )
        try:
            locked = lock_queues(self._shard.shards, question, Deadline.after(CALL_SECONDS))
        except QueueNotFoundError:
            return set()
        return {(queue.topic, queue.queue_id) for queue in locked.queues}


def _subscription_count(client: DoorClient | None) -> int:
    return 0 if client is None else sum(len(each.subscriptions) for each in client.memberships.values())


def _says_the_same(client: DoorClient, before: DoorClient) -> bool:
    """Whether a client says what it said before, but for the versions of its subscriptions."""
    return (
        all(
            getattr(client, name) == getattr(before, name)
            for name in ("client_id", "language", "version", "caller_name")
        )
        and client.producer_groups == before.producer_groups
        and client.memberships.keys() == before.memberships.keys()
        and all(_wants_the_same(each, before.memberships[name]) for name, each in client.memberships.items())
    )


def _wants_the_same(now: Membership, before: Membership) -> bool:
    return now == before or _without_versions(now) == _without_versions(before)


def _without_versions(one: Membership) -> Membership:
    return replace(one, subscriptions={topic: replace(each, version=0) for topic, each in one.subscriptions.items()})


def _beat_fields(is_whole: bool) -> Mapping[str, str]:
    return {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(is_whole).lower()}


def _in_calls(facts: Sequence[pb.Client]) -> Iterator[Sequence[pb.Client]]:
    """Clients in parts that one KeepClients may name."""
    while facts:
        count = count_in_one_call(facts)
        yield facts[:count]
        facts = facts[count:]


def client_of(ask: Ask, said: Mapping[str, Any], before: DoorClient | None) -> tuple[DoorClient, bool]:
    """The client that a heartbeat speaks of, and whether its next heartbeat has to name its subscriptions.

    A heartbeat of 5.x may leave subscriptions out that it named before.
    """
    client_id = name_in(said, "clientID")
    if not client_id:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, "clientID is empty: a heartbeat names its client")
    known = before.memberships if before is not None and before.client_id == client_id else {}
    is_short = said.get("withoutSub") is True
    consumers, producers = _list(said, "consumerDataSet"), _list(said, "producerDataSet")
    if len(consumers) + len(producers) > GROUP_COUNT_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"a heartbeat names {len(consumers) + len(producers)} groups: at most {GROUP_COUNT_MAX} are possible",
        )
    memberships: dict[str, Membership] = {}
    is_whole = True
    for each in consumers:
        group = name_in(each, "groupName")
        if is_short and group in known:
            memberships[group] = known[group]
            is_whole = False
            continue
        rows = _list(each, "subscriptionDataSet")
        if len(rows) > SUBSCRIPTION_COUNT_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"group {group[:64]} subscribes to {len(rows)} topics: at most {SUBSCRIPTION_COUNT_MAX} are possible",
            )
        subscriptions = {one.topic: one for one in map(subscription_of, rows)}
        memberships[group] = Membership(
            group,
            name_in(each, "consumeType") or "CONSUME_PASSIVELY",
            name_in(each, "messageModel") or "CLUSTERING",
            name_in(each, "consumeFromWhere") or "CONSUME_FROM_LAST_OFFSET",
            subscriptions,
        )
    client = DoorClient(
        ask.connection,
        client_id,
        ask.command.language[:LANGUAGE_CHARACTERS_MAX],
        ask.command.version,
        frozenset(name_in(each, "groupName") for each in producers),
        memberships,
        ask.rights.access,
        ask.caller_name,
    )
    return client, is_whole


def _check_rights(ask: Ask, client: DoorClient) -> None:
    """PermissionDeniedError when a heartbeat names a group or topic that its client may not consume: all of it is refused."""
    for group, membership in client.memberships.items():
        ask.rights.check_group(group)
        for topic in membership.subscriptions:
            ask.rights.check_read(topic)
    ask.rights.claim(client.client_id)


def subscription_of(said: Mapping[str, Any]) -> Subscription:
    """What SubscriptionData says; RefusedError for a topic or filter that is too long."""
    version = said.get("subVersion")
    one = Subscription(
        name_in(said, "topic"),
        _text(said, "subString") or "*",
        name_in(said, "expressionType") or TAG,
        version if isinstance(version, int) else 0,
    )
    filter_of(one.expression_type, one.expression)
    return one


def client_bytes_of(client: DoorClient, facts: Sequence[pb.Client]) -> int:
    """What is kept of a heartbeat, nearly."""
    return sum(map(client_bytes, facts)) + sum(OVERHEAD_BYTES + len(group) for group in client.producer_groups)


def facts_of(client: DoorClient) -> list[pb.Client]:
    """The client as a member of each of its groups."""
    peer = peer_of(client.connection)
    return [
        pb.Client(
            client_id=client.client_id,
            consumer_group=each.group,
            subscriptions=[
                gateway_pb.TopicSubscription(topic=topic, filter=wanted_by(one))
                for topic, one in sorted(each.subscriptions.items())
            ],
            language=client.language,
            version=version_text(client.version),
            address=peer,
            kind=KINDS.get(each.consume_type, each.consume_type.lower()),
            caller=client.caller_name or peer,
        )
        for each in client.memberships.values()
    ]


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


def _number(said: Mapping[str, Any], name: str) -> int:
    value = said.get(name)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{name} is no number from 0 on")
    return value


def _list(said: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = said.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _queue(said: Mapping[str, Any]) -> tuple[str, int]:
    return name_in(said, "topic"), _number(said, "queueId")
