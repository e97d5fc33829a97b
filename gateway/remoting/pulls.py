"""Pulls: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361); a pull at the end of its queue waits (door_waits.py).

    status of the consumer service     code                          the client goes on
    FOUND                              SUCCESS, the log's records    at nextBeginOffset
    NO_NEW_MSG                         PULL_NOT_FOUND                at the same, once its time is over
    NO_MATCHED_MSG                     PULL_RETRY_IMMEDIATELY        at nextBeginOffset, at once
    OFFSET_ILLEGAL                     PULL_OFFSET_MOVED             at nextBeginOffset; also when its group was reset

Which messages are wanted stands in the pull when bit 4 of `sysFlag` is set, else it is what the heartbeat of the same
connection said, or that of another member of the group. Sources: `PullMessageProcessor`, `DefaultPullMessageResultHandler`,
`PullSysFlag`.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from gateway.delivery.pulls import PullChecks, PullPoll
from gateway.groups.asking import check_consumed_topic
from gateway.ports.delivery import TAG, Delivering, Pulled, filter_in
from gateway.remoting.door import Answer, Ask, Handler, RefusedError, code_of
from gateway.remoting.door_clients import DoorClient
from gateway.remoting.door_shard import DoorShard
from gateway.remoting.door_waits import GIVE_UP_SECONDS, LOOK_COUNT_MAX, WAITING_COUNT_MAX, DoorWaits, Place
from gateway.remoting.filters import filter_of, wanted_by
from gateway.remoting.positions import member_of, store_position
from gateway.remoting.records import records_of
from gateway.remoting.topic_copy import Topic
from gateway.remoting.topics import config_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.remoting_server import Connection
from services.status import MESSAGE_BYTES_MAX, clip
from store.errors import GroupDisabledError, StoreError, TopicNotReadableError

# Bits of `sysFlag`.
COMMIT_OFFSET, MAY_WAIT, HAS_SUBSCRIPTION = 1, 2, 4
MESSAGE_COUNT_MAX = 1_024
# A position that comes with a pull is passed on so often at most for each queue; clients store positions every 5 s besides.
COMMIT_SECONDS = 1.0
COMMIT_COUNT_MAX = 65_536
# The group of mqadmin's verbs, which look at any topic (`MixAll.TOOLS_CONSUMER_GROUP`).
TOOLS_GROUP = "TOOLS_CONSUMER"
# ForbiddenType of RocketMQ.
GROUP_FORBIDDEN, TOPIC_FORBIDDEN = 2, 3
CODES: Mapping[int, int] = {
    gateway_pb.PULL_STATUS_FOUND: ResponseCode.SUCCESS,
    gateway_pb.PULL_STATUS_NO_NEW_MSG: ResponseCode.PULL_NOT_FOUND,
    gateway_pb.PULL_STATUS_NO_MATCHED_MSG: ResponseCode.PULL_RETRY_IMMEDIATELY,
    gateway_pb.PULL_STATUS_OFFSET_ILLEGAL: ResponseCode.PULL_OFFSET_MOVED,
}


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    pulls = Pulls(shard)
    shard.clients.on_close.append(pulls.forget)
    return {RequestCode.PULL_MESSAGE: pulls.pull, RequestCode.LITE_PULL_MESSAGE: pulls.pull}


class Pulls:
    """Serves pulls; thread-safe.

    Args:
        shard: the shard.
        clock: that of the waiting room.
        waiting_count_max: pulls that may wait.
        look_count_max: pulls that look for the first time at once.
    """

    def __init__(
        self,
        shard: DoorShard,
        clock: Callable[[], float] = time.monotonic,
        waiting_count_max: int = WAITING_COUNT_MAX,
        look_count_max: int = LOOK_COUNT_MAX,
    ) -> None:
        self._shard = shard
        self._clock = clock
        self._checks = PullChecks(shard.room, shard.whole, clock)
        self._waits = DoorWaits(shard.room, clock, waiting_count_max, look_count_max)
        self._lock = threading.Lock()
        self._committed: OrderedDict[tuple[str, str, int], tuple[int, float]] = OrderedDict()

    def pull(self, ask: Ask) -> None:
        """One pull; it is answered later, or at once when it is refused."""
        topic = self._shard.topics.find(ask.text("topic"))
        if ask.text("consumerGroup") != TOOLS_GROUP:
            check_consumed_topic(ask.text("topic"))
        wanted = self._wanted(ask, ask.client)
        if topic is None or wanted is None:
            ask.work(lambda: self._pull_later(ask, wanted))
        else:
            self._begin(ask, topic, wanted)

    def _pull_later(self, ask: Ask, wanted: gateway_pb.MessageFilter | None) -> Answer | None:
        """What has to be asked for first, in a thread."""
        name = ask.text("topic")
        topic = self._shard.topics.find_now(name)
        own = config_of(self._shard, name) if topic is None else None
        if own is not None:  # every broker has it; here its first message makes it
            topic = Topic(topic=name, read_queue_count=own.read_queue_count)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        wanted = self._wanted_by_group(ask, name) if wanted is None else wanted
        self._begin(ask, topic, wanted, is_lasting=own is not None)
        return None

    def _begin(self, ask: Ask, topic: Topic, wanted: gateway_pb.MessageFilter, *, is_lasting: bool = False) -> None:
        queue_id, queue_offset = ask.number("queueId"), ask.number("queueOffset")
        if not 0 <= queue_id < topic.read_queue_count:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic.topic}] topicConfig.readQueueNums:[{topic.read_queue_count}] "
                f"consumer:[{ask.connection.peer}]",
            )
        group, sys_flag = ask.text("consumerGroup"), ask.number("sysFlag", 0)
        count = ask.number("maxMsgNums", 32)
        question = pb.PullMessagesRequest(
            topic=topic.topic,
            queue_id=queue_id,
            queue_offset=max(queue_offset, 0),
            max_messages=min(max(count, 1), MESSAGE_COUNT_MAX),
            filter=wanted,
            consumer_group=group,
            shown_as=self._shard.broker_name,
            as_records=True,
            follows_resets=group != TOOLS_GROUP,
            member=member_of(ask),
            caller=ask.caller_name,
        )
        if sys_flag & COMMIT_OFFSET:
            self._commit(ask, group, topic.topic, queue_id)
        ends_at = self._waits.ends_at(ask.number("suspendTimeoutMillis", 0) if sys_flag & MAY_WAIT else 0)
        delivering = self._shard.delivering
        self._waits.begin(
            DoorPull(self._waits, self._checks, delivering, question, ask, ends_at, is_lasting=is_lasting)
        )

    def forget(self, connection: Connection) -> None:
        """A connection has ended: so do its pulls."""
        self._waits.forget(connection)

    # --- what is wanted

    def _wanted(self, ask: Ask, client: DoorClient | None) -> gateway_pb.MessageFilter | None:
        """What a pull wants; None when only the consumer service can tell."""
        topic = ask.text("topic")
        if ask.number("sysFlag", 0) & HAS_SUBSCRIPTION:
            return filter_of(ask.text("expressionType", TAG), ask.text("subscription", "*"))
        group = ask.text("consumerGroup")
        membership = None if client is None else client.memberships.get(group)
        found = None if membership is None else membership.subscriptions.get(topic)
        version = ask.number("subVersion", 0)
        for other in self._shard.clients.members(group) if found is None or found.version < version else ():
            of_other = other.memberships[group].subscriptions.get(topic)
            if of_other is not None and (found is None or of_other.version > found.version):
                found = of_other
        if found is None:
            return None
        if found.version < version:
            raise RefusedError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return wanted_by(found)

    def _wanted_by_group(self, ask: Ask, topic: str) -> gateway_pb.MessageFilter:
        """What the group wants of a topic, of which no connection of this door has said anything."""
        group = ask.text("consumerGroup")
        members = self._shard.members_of(group)
        if not members:
            raise RefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        for member in members:
            for subscription in member.subscriptions:
                if subscription.topic == topic:
                    return filter_in(subscription.filter)
        raise RefusedError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")

    # --- positions that come with pulls

    def _commit(self, ask: Ask, group: str, topic: str, queue_id: int) -> None:
        """Pass the position of a group on, without waiting for it: it is stored by UPDATE_CONSUMER_OFFSET, too."""
        offset = ask.number("commitOffset", -1)
        key, now = (group, topic, queue_id), self._clock()
        with self._lock:
            before, at = self._committed.get(key, (-1, -COMMIT_SECONDS))
            if offset < 0 or offset == before or now - at < COMMIT_SECONDS:
                return
            self._committed[key] = offset, now
            self._committed.move_to_end(key)
            if len(self._committed) > COMMIT_COUNT_MAX:
                self._committed.popitem(last=False)
        position = pb.QueueOffset(topic=topic, queue_id=queue_id, queue_offset=offset)
        number = self._shard.position_order.number()
        member = member_of(ask)
        ask.beside(lambda: store_position(self._shard, number, group, position, goes_back=False, member=member))


class DoorPull(PullPoll):
    """One pull of a client."""

    __slots__ = ("_waits", "place")

    def __init__(
        self,
        waits: DoorWaits,
        checks: PullChecks,
        delivering: Delivering,
        question: pb.PullMessagesRequest,
        ask: Ask,
        ends_at: float,
        *,
        is_lasting: bool,
    ) -> None:
        client = ask.client
        super().__init__(
            checks,
            delivering,
            question,
            "" if client is None else client.client_id,
            ends_at=ends_at,
            gives_up_at=ends_at + GIVE_UP_SECONDS,
            owner=ask.caller,
            is_lasting=is_lasting,
        )
        self._waits = waits
        self.place = Place(ask)

    def look(self) -> None:
        """See Poll."""
        self.place.has_looked = True
        super().look()

    def _pulled(self, outcome: Pulled | StoreError) -> None:
        self._waits.looked(self)
        super()._pulled(outcome)

    def end(self) -> None:
        """See Poll."""
        if self.seen is not None:
            self.answer(self.seen)
        else:  # the gateway stops
            offset = str(self.question.queue_offset)
            fields = _fields(offset, "0", offset)
            self._answer(Answer(fields, b"", ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"))

    def answer(self, pulled: Pulled) -> None:
        """See PullPoll."""
        found = pulled.answer
        fields = _fields(str(found.next_offset), str(found.min_offset), str(found.max_offset))
        code = CODES[found.status]
        body = records_of(pulled) if code == ResponseCode.SUCCESS else b""
        self._answer(Answer(fields, body, code, _remark(self.question, found)))

    def refuse(self, error: StoreError) -> None:
        """See PullPoll."""
        fields: Mapping[str, str] = {}
        if isinstance(error, GroupDisabledError):
            fields = {"forbiddenType": str(GROUP_FORBIDDEN)}
        elif isinstance(error, TopicNotReadableError):
            fields = {"forbiddenType": str(TOPIC_FORBIDDEN)}
        self._answer(Answer(fields, b"", code_of(error), clip(error.message, MESSAGE_BYTES_MAX)))

    def leave(self) -> None:
        """See PullPoll."""
        super().leave()
        self._waits.done(self)

    def _answer(self, answer: Answer) -> None:
        self._waits.done(self)
        self.place.ask.answer(*answer)


def _fields(next_offset: str, min_offset: str, max_offset: str) -> Mapping[str, str]:
    return {
        "nextBeginOffset": next_offset,
        "minOffset": min_offset,
        "maxOffset": max_offset,
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def _remark(question: pb.PullMessagesRequest, found: pb.PullMessagesResponse) -> str:
    """GetMessageStatus of RocketMQ's store, which clients do not read."""
    if found.status == gateway_pb.PULL_STATUS_FOUND:
        return "FOUND"
    if found.status == gateway_pb.PULL_STATUS_NO_MATCHED_MSG:
        return "NO_MATCHED_MESSAGE"
    if not found.max_offset:
        return "NO_MESSAGE_IN_QUEUE"
    if found.status == gateway_pb.PULL_STATUS_NO_NEW_MSG:
        return "OFFSET_OVERFLOW_ONE"
    return "OFFSET_TOO_SMALL" if question.queue_offset < found.min_offset else "OFFSET_OVERFLOW_BADLY"
