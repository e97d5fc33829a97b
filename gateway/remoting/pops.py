"""POP: messages that are handed out for a time (200050), their end (200051, 200151), another time (200053), and what proxies
ask besides: a look without handing out (200052), whether there is something (200054), how many wait (200055).

A translation onto the pops of the consumer service, which the gRPC door has, too; see gateway/delivery/pops.py.

    answer of a pop                                                    a client makes of it, for each message
    popTime invisibleTime reviveQid                                    POP_CK: startOffset popTime invisibleTime reviveQid
    startOffsetInfo   KIND QUEUE OFFSET; ...                                   kind of topic, shard, queue, offset
    msgOffsetInfo     KIND QUEUE OFFSET,OFFSET; ...                    and gives it back as `extraInfo`
    orderCountInfo    KIND qoQUEUE%OFFSET COUNT; ...  (in order)

A message of the group's retry topic comes under that topic's name, as of a broker with `popResponseReturnActualRetryTopic`:
clients call it by the topic that they asked for.

    nothing until the time is over             POLLING_TIMEOUT
    nothing, and no place to wait              POLLING_FULL
    a handle that is none, or altered          MESSAGE_ILLEGAL, and nothing is changed
    a delivery that is over                    NO_MESSAGE, likewise; a broker says SUCCESS

Sources: `PopMessageProcessor`, `AckMessageProcessor`, `ChangeInvisibleTimeProcessor`, `PeekMessageProcessor`,
`NotificationProcessor`, `PollingInfoProcessor`, `ExtraInfoUtil`, `MQClientAPIImpl.processPopResponse`.
"""

import base64
import binascii
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.duration_pb2 import Duration

from gateway.delivery.polls import Poll, QueueName
from gateway.delivery.pops import PopChecks, PopPoll
from gateway.groups.asking import ask_groups, check_consumed_topic, check_users_group
from gateway.groups.joining import ask_joined, begin_in
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import TAG, Delivering, pull_now
from gateway.ports.groups import GET_GROUP, LIST_GROUPS
from gateway.ports.shards import list_built_queues
from gateway.remoting.door import NAME_FIELDS, Answer, Ask, Handler, RefusedError, check_name, in_thread
from gateway.remoting.door_shard import CALL_SECONDS, DoorShard
from gateway.remoting.door_waits import GIVE_UP_SECONDS, LOOK_COUNT_MAX, WAITING_COUNT_MAX, DoorWaits, Place
from gateway.remoting.filters import filter_of
from gateway.remoting.positions import is_in_memory
from gateway.remoting.records import record_of, records_of
from gateway.remoting.topic_copy import Topic
from gateway.remoting.topics import document_of, number_of
from reput.consumequeue.v1.consumequeue_service_pb2 import Queue
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.remoting_server import Connection
from store.errors import GroupNotFoundError, ServiceUnavailableError, StoreError
from store.format.delivery.receipt_handle import (
    ExtraInfo,
    decode_check_point,
    encode_check_point,
    parse_extra_info,
    topic_kind_of,
)
from store.format.topic import PERM_READ, RETRY_PREFIX, popped_topic_of, retry_topic_of, retry_topic_v2_of

BATCH_COUNT_MAX = 32
# A proxy acknowledges so many messages at once at most.
ACK_COUNT_MAX = 4_096
# What one AckMessages of the consumer service may name.
HANDLE_COUNT_MAX = 1_024
# As in the consumer service; here too, because a pop keeps it as long as it waits.
ATTEMPT_ID_CHARACTERS_MAX = 1_024
# Groups and topics of which this door knows that they have begun.
BEGUN_COUNT_MAX = 65_536
# ConsumeInitMode of RocketMQ: a new group begins at the first message, or at the last one.
AT_FIRST = 0
NOTHING = "NO_MESSAGE_IN_QUEUE"
# Fields of an answer, as a broker sends them with a refusal.
NO_TIMES: Mapping[str, str] = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
# In place of a filter: what a notification finds stays where it is.
NOTIFICATION = "notification"


def handlers(shard: DoorShard) -> Mapping[int, Handler]:
    """The handlers of this file, by request code."""
    pops = Pops(shard)
    shard.clients.on_close.append(pops.forget)
    return {
        RequestCode.POP_MESSAGE: pops.pop,
        RequestCode.ACK_MESSAGE: pops.ack,
        RequestCode.BATCH_ACK_MESSAGE: in_thread(pops.ack_batch),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pops.change_invisible_time,
        RequestCode.PEEK_MESSAGE: shard.once_built(peek),
        RequestCode.NOTIFICATION: pops.notify,
        RequestCode.POLLING_INFO: in_thread(pops.count_waiting),
    }


class Pops:
    """Serves what has to do with pops; thread-safe.

    Args:
        shard: the shard.
        clock: that of the waiting room.
        waiting_count_max: pops that may wait.
        look_count_max: pops that look for the first time at once.
    """

    def __init__(
        self,
        shard: DoorShard,
        clock: Callable[[], float] = time.monotonic,
        waiting_count_max: int = WAITING_COUNT_MAX,
        look_count_max: int = LOOK_COUNT_MAX,
    ) -> None:
        self._shard = shard
        self._checks = PopChecks(shard.deliverings, shard.room)
        self._waits = DoorWaits(shard.room, clock, waiting_count_max, look_count_max)
        self._lock = threading.Lock()
        self._begun: OrderedDict[tuple[str, str], None] = OrderedDict()

    def forget(self, connection: Connection) -> None:
        """A connection has ended: so do its pops."""
        self._waits.forget(connection)

    # --- pops

    def pop(self, ask: Ask) -> None:
        """200050: one pop; it is answered later, or at once when it is refused."""
        ask.lasting_fields = {**NO_TIMES, "restNum": "0"}
        name, group = ask.text("topic"), ask.text("consumerGroup")
        check_consumed_topic(name)
        topic = self._shard.topics.find(name)
        with self._lock:
            has_begun = (group, name) in self._begun
        may_order = ask.rights.access is None or not ask.flag("order")
        if topic is None or not has_begun or not may_order:
            self._shard.work_when_built(ask, lambda _: self._pop_later(ask))
        else:
            self._begin(ask, topic, begin_again=self._begin_again)

    def _begin_again(self, poll: "DoorPop") -> None:
        """The group that had begun has no position any more: it was deleted, and begins where its client says."""
        ask, ends_at = poll.place.ask, poll.ends_at
        with self._lock:
            self._begun.pop((poll.question.consumer_group, poll.question.topic), None)
        self._shard.work_when_built(ask, lambda _: self._pop_later(ask, ends_at))

    def _pop_later(self, ask: Ask, ends_at: float | None = None) -> None:
        """What has to be asked for first, in a thread."""
        topic = _topic(self._shard, ask.text("topic"))
        question = self._question(ask, topic)  # what is wrong with it is told before anything is made
        if question.in_order:
            self._check_order(ask)
        self._begin_group(question, topic.read_queue_count, ask.number("initMode", AT_FIRST))
        self._begin(ask, topic, question, ends_at, self._begin_again if ends_at is None else None)

    def _check_order(self, ask: Ask) -> None:
        """A pop in order makes its group an ordered one, for all its members: a client that signs in needs the right for it."""
        if ask.rights.access is None:
            return
        group = ask.text("consumerGroup")
        request = pb.ListGroupsRequest(consumer_group=group, page_size=1)
        found = ask_groups(self._shard.shard, LIST_GROUPS, request, Deadline.after(CALL_SECONDS)).groups
        if not any(settings.ordered for settings in found):
            ask.rights.check_change(group)

    def _begin(
        self,
        ask: Ask,
        topic: Topic,
        question: pb.PopMessagesRequest | None = None,
        ends_at: float | None = None,
        begin_again: "Callable[[DoorPop], None] | None" = None,
    ) -> None:
        question = question or self._question(ask, topic)
        if ends_at is None:
            ends_at = self._waits.ends_at(ask.number("pollTime"))
        delivering = self._shard.delivering
        self._waits.begin(DoorPop(self._waits, self._checks, delivering, question, ask, ends_at, begin_again))

    def _question(self, ask: Ask, topic: Topic) -> pb.PopMessagesRequest:
        queue_id = _queue_id(ask, topic)
        count = ask.number("maxMsgNums")
        if count > BATCH_COUNT_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{self._shard.broker_name}] pop message's num is greater than {BATCH_COUNT_MAX}",
            )
        millis = ask.number("invisibleTime")
        if millis <= 0:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"invisibleTime is {millis} ms: 1 or more are possible")
        attempt_id = ask.text("attemptId", "")
        if len(attempt_id) > ATTEMPT_ID_CHARACTERS_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"attemptId has {len(attempt_id)} characters: at most {ATTEMPT_ID_CHARACTERS_MAX} are possible",
            )
        client = ask.client
        return pb.PopMessagesRequest(
            consumer_group=ask.text("consumerGroup"),
            topic=topic.topic,
            queue_id=None if queue_id < 0 else queue_id,
            max_messages=max(count, 1),
            invisible_duration=_duration(millis),
            client_id="" if client is None else client.client_id,
            attempt_id=attempt_id,
            filter=filter_of(ask.text("expType", TAG), ask.text("exp", "*")),
            as_check_points=True,
            begun_only=True,
            in_order=ask.flag("order"),
            caller=ask.caller_name,
        )

    def _begin_group(self, question: pb.PopMessagesRequest, queue_count: int, init_mode: int) -> None:
        """A group that has no position in a topic begins where its client says; so does RocketMQ's `getInitOffset`.

        It gets a position in queues without messages, too: later they are not new to it.
        """
        group, topic = key = question.consumer_group, question.topic
        if not topic.startswith(RETRY_PREFIX) and not self._shard.delivering.offsets(group, topic, CALL_SECONDS):
            check_users_group(group)
            deadline = Deadline.after(CALL_SECONDS)
            begins = dict.fromkeys(range(queue_count), 0)
            for queue in list_built_queues(self._shard.whole_shard, topic, deadline):
                begins[queue.queue_id] = queue.min_offset
                if init_mode != AT_FIRST and queue.max_offset > queue.min_offset and self._is_old(queue, deadline):
                    begins[queue.queue_id] = queue.max_offset - 1
            (failure,) = ask_joined(
                self._shard.whole.now(),
                [self._shard.whole_shard],
                group,
                deadline,
                lambda shard: begin_in(shard, group, topic, begins, deadline),
            )
            if failure is not None:
                raise failure
        with self._lock:
            self._begun[key] = None
            self._begun.move_to_end(key)
            if len(self._begun) > BEGUN_COUNT_MAX:
                self._begun.popitem(last=False)

    def _is_old(self, queue: Queue, deadline: Deadline) -> bool:
        return bool(queue.min_offset) or not is_in_memory(self._shard, queue.topic, queue.queue_id, deadline)

    # --- what becomes of messages

    def ack(self, ask: Ask) -> None:
        """200051: a message is consumed; in the log when it is answered."""
        group, handle = ask.text("consumerGroup"), _handle(ask)

        def answered(outcome: pb.AckMessagesResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                ask.refuse(outcome)
                return
            (one,) = outcome.outcomes
            if one == pb.AckMessagesResponse.OUTCOME_OK:
                ask.answer()
            else:
                ask.refuse(_refused(one))

        self._with_topic(
            ask,
            lambda: self._shard.delivering.ack(
                pb.AckMessagesRequest(consumer_group=group, receipt_handles=[handle]), CALL_SECONDS, answered
            ),
        )

    def ack_batch(self, ask: Ask) -> Answer | None:
        """200151: messages are consumed. The answer is that of all of them, once they are in the log."""
        by_group: dict[str, list[str]] = {}
        for group, handle in _batch_handles(ask):
            by_group.setdefault(group, []).append(handle)
        if not by_group:
            raise RefusedError(ResponseCode.NO_MESSAGE, "the request names no message")
        calls = [
            pb.AckMessagesRequest(consumer_group=group, receipt_handles=handles[at : at + HANDLE_COUNT_MAX])
            for group, handles in by_group.items()
            for at in range(0, len(handles), HANDLE_COUNT_MAX)
        ]
        _BatchAck(ask, len(calls)).send(self._shard.delivering, calls)
        return None

    def change_invisible_time(self, ask: Ask) -> None:
        """200053: a message stays hidden for another time from now on. The answer makes a new handle; the old one is none."""
        ask.lasting_fields = NO_TIMES
        millis = ask.number("invisibleTime")
        change = pb.ChangeInvisibleDurationRequest(
            consumer_group=ask.text("consumerGroup"),
            receipt_handle=_handle(ask),
            invisible_duration=_duration(millis),
            give_back=ask.flag("suspend"),
        )

        def changed(outcome: pb.ChangeInvisibleDurationResponse | StoreError) -> None:
            if isinstance(outcome, StoreError):
                ask.refuse(outcome)
                return
            # A message that was given back at once has no new handle, and clients keep what they are given.
            _, info = decode_check_point(outcome.receipt_handle or change.receipt_handle)
            ask.answer(_times(info))

        self._with_topic(ask, lambda: self._shard.delivering.change_invisible(change, CALL_SECONDS, changed))

    def _with_topic(self, ask: Ask, then: Callable[[], object]) -> None:
        """Go on for a topic that is there; RefusedError, or the answer, says that there is none."""
        name = ask.text("topic")
        if self._shard.topics.find(name) is not None:
            then()
            return

        def look() -> None:
            _topic(self._shard, name)
            then()

        ask.work(look)

    # --- what proxies ask

    def notify(self, ask: Ask) -> None:
        """200054: whether a pop would get something; waits until one would, and hands nothing out."""
        name = ask.text("topic")
        check_consumed_topic(name)
        topic = self._shard.topics.find(name)

        def begin(found: Topic) -> None:
            question = _Places(ask.text("consumerGroup"), name, _queue_id(ask, found))
            ends_at = self._waits.ends_at(ask.number("pollTime"))
            self._waits.begin(DoorNotification(self._waits, self._shard, question, ask, ends_at))

        if topic is not None:
            begin(topic)
        else:
            ask.work(lambda: begin(_topic(self._shard, name)))

    def count_waiting(self, ask: Ask) -> Answer:
        """200055: how many pops wait here for a queue, or with -1 for any queue of a topic."""
        topic = _topic(self._shard, ask.text("topic"))
        group, queue_id = ask.text("consumerGroup"), _queue_id(ask, topic)
        wanted = (self._shard.broker_name, topic.topic, group)
        count = sum(
            (name.broker_name, name.topic, name.consumer_group) == wanted and queue_id_of(name) == queue_id
            for name in self._waits.names()
        )
        return Answer({"pollingNum": str(count)})


class DoorPop(PopPoll):
    """One pop of a client.

    Args:
        waits: see there.
        checks, delivering, question: see PopPoll.
        ask: its request.
        ends_at: see PopPoll.
        begin_again: called in place of an answer when the group has no position in the topic; None: that is refused.
    """

    __slots__ = ("_begin_again", "_waits", "place")

    def __init__(
        self,
        waits: DoorWaits,
        checks: PopChecks,
        delivering: Delivering,
        question: pb.PopMessagesRequest,
        ask: Ask,
        ends_at: float,
        begin_again: "Callable[[DoorPop], None] | None" = None,
    ) -> None:
        queue_id = question.queue_id if question.HasField("queue_id") else -1
        super().__init__(
            checks,
            delivering,
            question,
            ends_at=ends_at,
            gives_up_at=ends_at + GIVE_UP_SECONDS,
            owner=ask.caller,
            # An ordered client gets an answer again that it lost, whatever another member has found.
            must_look=question.in_order and bool(question.attempt_id),
            variant=(queue_id,),
        )
        self._begin_again = begin_again
        self._waits = waits
        self.place = Place(ask)

    @property
    def is_caller_there(self) -> bool:
        """See PopPoll."""
        return not self.place.ask.connection.is_closed

    def look(self) -> None:
        """See Poll."""
        self.place.has_looked = True
        super().look()

    def end(self) -> None:
        """See Poll."""
        self._waits.done(self)
        code = ResponseCode.POLLING_TIMEOUT if self.place.is_counted else ResponseCode.POLLING_FULL
        millis = str(self.question.invisible_duration.ToMilliseconds())
        fields = {"popTime": _now_millis(), "invisibleTime": millis, "reviveQid": "0", "restNum": "0"}
        fields |= {"startOffsetInfo": "", "msgOffsetInfo": ""} | (
            {"orderCountInfo": ""} if self.question.in_order else {}
        )
        self.place.ask.answer(fields, code=code, remark=NOTHING)

    def answer(self, deliveries: Sequence[pb.Delivery]) -> None:
        """See PopPoll."""
        try:
            fields = fields_of(deliveries, in_order=self.question.in_order)
            body = b"".join(map(_record, deliveries))
        except Exception as error:
            # Else the client would wait for its own timeout, and its place here would be lost.
            name = self._delivering.broker_name
            self.refuse(
                ServiceUnavailableError(
                    f"the consumer service of shard {name} hands out what a remoting client cannot be told: {error}; upgrade "
                    "it, if it is of an older release than this gateway",
                    service="consumer",
                    brokerName=name,
                )
            )
            raise
        self._waits.done(self)
        self.place.ask.answer(fields, body, remark="FOUND")
        self.went()

    def refuse(self, error: StoreError) -> None:
        """See PopPoll."""
        self._waits.done(self)
        if isinstance(error, GroupNotFoundError) and self._begin_again is not None:
            self._begin_again(self)
        else:
            self.place.ask.refuse(error)

    def leave(self) -> None:
        """See PopPoll."""
        super().leave()
        self._waits.done(self)

    def _popped(self, outcome: pb.PopMessagesResponse | StoreError) -> None:
        self._waits.looked(self)
        super()._popped(outcome)


class _Places(NamedTuple):
    """Where a group may find something."""

    consumer_group: str
    topic: str
    queue_id: int  # -1: any


class DoorNotification(Poll):
    """One request to say whether there is something."""

    __slots__ = ("_question", "_shard", "_waits", "place")

    def __init__(self, waits: DoorWaits, shard: DoorShard, question: _Places, ask: Ask, ends_at: float) -> None:
        client = ask.client
        super().__init__(
            QueueName(
                shard.broker_name, question.topic, question.consumer_group, (NOTIFICATION, "", question.queue_id)
            ),
            "" if client is None else client.client_id,
            ends_at,
            ends_at + GIVE_UP_SECONDS,
            owner=ask.caller,
        )
        self._waits = waits
        self._shard = shard
        self._question = question
        self.place = Place(ask)

    def look(self) -> None:
        """See Poll."""
        self.place.has_looked = True
        self.place.ask.beside(self._look)

    def end(self) -> None:
        """See Poll."""
        self._answer(has_some=False)

    def give_up(self) -> None:
        """See Poll."""
        self._answer(has_some=False)

    def leave(self) -> None:
        """See Waiting."""
        self._shard.room.remove(self)
        self._waits.done(self)
        self._waits.looked(self)

    def _look(self) -> None:
        self._waits.looked(self)
        try:
            has_some = any(places_of(self._shard, self._question))
        except StoreError as error:
            if self._shard.room.failed(self):
                self._waits.done(self)
                self.place.ask.refuse(error)
            return
        if not has_some:
            self._shard.room.found_nothing(self)
        elif self._shard.room.found(self):
            self._answer(has_some=True)

    def _answer(self, *, has_some: bool) -> None:
        self._waits.done(self)
        self._waits.looked(self)  # a look that had no room among the threads has not begun
        fields = {"hasMsg": str(has_some).lower(), "pollingFull": str(not self.place.is_counted).lower()}
        self.place.ask.answer(fields)


class _BatchAck:
    """One BATCH_ACK_MESSAGE: it is answered when all its calls are."""

    def __init__(self, ask: Ask, call_count: int) -> None:
        self._ask = ask
        self._left = call_count
        self._lock = threading.Lock()
        self._error: StoreError | None = None
        self._counts = {True: 0, False: 0}

    def send(self, delivering: Delivering, calls: Sequence[pb.AckMessagesRequest]) -> None:
        """Send the calls."""
        for call in calls:
            delivering.ack(call, CALL_SECONDS, self._answered)

    def _answered(self, outcome: pb.AckMessagesResponse | StoreError) -> None:
        with self._lock:
            self._left -= 1
            if isinstance(outcome, StoreError):
                self._error = outcome
            else:
                for one in outcome.outcomes:
                    self._counts[one == pb.AckMessagesResponse.OUTCOME_OK] += 1
            if self._left:
                return
        if self._error is not None:
            self._ask.refuse(self._error)
        elif self._counts[False]:
            remark = (
                f"{self._counts[False]} of {sum(self._counts.values())} messages are not in flight by these handles"
            )
            self._ask.answer(code=ResponseCode.NO_MESSAGE, remark=f"{remark}; the others are acknowledged")
        else:
            self._ask.answer()


def peek(shard: DoorShard, ask: Ask) -> Answer:
    """200052: the next messages of a group that were never handed out; they stay where they are."""
    topic = _topic(shard, ask.text("topic"))
    check_consumed_topic(topic.topic)
    count = min(max(ask.number("maxMsgNums"), 1), BATCH_COUNT_MAX)
    deadline = Deadline.after(CALL_SECONDS)
    bodies: list[bytes] = []
    rest_count = 0
    for place in places_of(shard, _Places(ask.text("consumerGroup"), topic.topic, _queue_id(ask, topic))):
        rest_count += place.max_offset - place.next_offset
        if count <= 0 or place.max_offset <= place.next_offset:
            continue
        question = pb.PullMessagesRequest(
            topic=place.topic,
            queue_id=place.queue_id,
            queue_offset=place.next_offset,
            max_messages=count,
            consumer_group=ask.text("consumerGroup"),
            shown_as=shard.broker_name,
            as_records=True,
        )
        pulled = pull_now(shard.deliverings, shard.broker_name, question, deadline)
        if pulled.answer.status == gateway_pb.PULL_STATUS_FOUND:
            count -= len(pulled.messages)
            bodies.append(records_of(pulled))
    fields = {**NO_TIMES, "restNum": str(rest_count)}
    if not bodies:
        return Answer(fields, code=ResponseCode.PULL_NOT_FOUND, remark=NOTHING)
    return Answer(fields, b"".join(bodies), remark="FOUND")


def places_of(shard: DoorShard, question: _Places) -> Iterator[pb.GroupQueue]:
    """The queues in which a group may get something now, with its position in each; waits.

    Its retry topics are among them, which the caller of the thread may not be allowed to see under their own names.
    """
    group, topic = question.consumer_group, question.topic
    deadline = Deadline.after(CALL_SECONDS)
    known: dict[tuple[str, int], pb.GroupQueue] = {}
    with contextlib.suppress(GroupNotFoundError):
        facts = ask_groups(shard.whole_shard, GET_GROUP, pb.GetGroupRequest(consumer_group=group), deadline)
        known = {(each.topic, each.queue_id): each for each in facts.queues}
    retry_topics = (retry_topic_of(group, topic), retry_topic_v2_of(group, topic))
    for name in (topic,) if topic.startswith(RETRY_PREFIX) else (*retry_topics, topic):
        if shard.topics.find(name) is None:
            continue
        for queue in list_built_queues(shard.whole_shard, name, deadline):
            if name == topic and question.queue_id not in (-1, queue.queue_id):
                continue
            place = known.get((name, queue.queue_id))
            if place is None:
                place = pb.GroupQueue(topic=name, queue_id=queue.queue_id, next_offset=queue.min_offset)
            place.max_offset = max(place.max_offset, queue.max_offset)
            if place.max_offset > place.next_offset or place.waiting_count:
                yield place


def fields_of(deliveries: Sequence[pb.Delivery], *, in_order: bool) -> Mapping[str, str]:
    """What an answer says of its messages beside their records: a client makes their handles of it."""
    starts: dict[tuple[str, int], int] = {}
    offsets: dict[tuple[str, int], list[int]] = {}
    counts: list[str] = []
    for each in deliveries:
        _, info = decode_check_point(each.receipt_handle)
        key = info.topic_kind, info.queue_id
        starts[key] = info.start_offset
        offsets.setdefault(key, []).append(info.queue_offset)
        if each.delivery_attempt > 1:
            counts.append(f"{info.topic_kind} qo{info.queue_id}%{info.queue_offset} {each.delivery_attempt - 1}")
    fields = {
        **_times(info),
        "restNum": "0",
        "startOffsetInfo": ";".join(f"{kind} {queue_id} {start}" for (kind, queue_id), start in starts.items()),
        "msgOffsetInfo": ";".join(
            f"{kind} {queue_id} {','.join(map(str, sorted(some)))}" for (kind, queue_id), some in offsets.items()
        ),
    }
    if in_order:
        # Clients before 5.0.1 look for the queue only.
        counts += [f"{kind} {queue_id} 0" for kind, queue_id in starts]
        fields["orderCountInfo"] = ";".join(counts)
    return fields


def queue_id_of(name: QueueName) -> int:
    """The queue that a pop waits for, -1: any; another number: it is none."""
    variant = name.variant
    if isinstance(variant, tuple) and len(variant) == 3 and variant[0] != NOTIFICATION:
        return int(variant[2])
    return -2


def _record(delivery: pb.Delivery) -> bytes:
    """The record of a message, with how often it was delivered before."""
    message = delivery.message
    message.reconsume_times = delivery.delivery_attempt - 1
    return record_of(message)


def _times(info: ExtraInfo) -> dict[str, str]:
    return {
        "popTime": str(info.pop_millis),
        "invisibleTime": str(info.invisible_millis),
        "reviveQid": str(info.mark),
    }


def _handle(ask: Ask) -> str:
    """The handle of a request; RefusedError when it is none of the message that the request names."""
    topic, queue_id, offset = ask.text("topic"), ask.number("queueId"), ask.number("offset")
    try:
        info = parse_extra_info(ask.text("extraInfo"))
        if (info.queue_id, info.queue_offset, info.topic_kind) != (queue_id, offset, topic_kind_of(topic)):
            raise ValueError("it is of another message")
    except ValueError as error:
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL, f"extraInfo is no handle: {error}; give back the POP_CK of the message"
        ) from error
    return encode_check_point(topic, info)


def _batch_handles(ask: Ask) -> Iterator[tuple[str, str]]:
    """Groups and handles of a BatchAckMessageRequestBody."""
    said = document_of(ask.command.body)
    broker_name, rows = said.get("brokerName"), said.get("acks")
    count = 0
    for row in rows if isinstance(rows, list) else ():
        one = _BatchRow.of(row, str(broker_name))
        ask.rights.check_group(one.consumer_group)
        ask.rights.check_topic(popped_topic_of(one.consumer_group, one.topic))
        for handle in one.handles():
            count += 1
            if count > ACK_COUNT_MAX:
                raise RefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"the request acknowledges more than {ACK_COUNT_MAX} messages: send several requests",
                )
            yield one.consumer_group, handle


class _BatchRow(NamedTuple):
    """Messages of one pop and one queue (`BatchAck`)."""

    consumer_group: str
    topic: str
    info: ExtraInfo
    bits: bytes

    @classmethod
    def of(cls, row: Any, broker_name: str) -> "_BatchRow":
        """The row that JSON says; RefusedError."""

        def value(letter: str, name: str) -> Any:
            return row.get(letter, row.get(name))

        try:
            group, topic, kind = (
                str(value(*names)) for names in (("c", "consumerGroup"), ("t", "topic"), ("r", "retry"))
            )
            numbers = (
                *(("so", "startOffset"), ("pt", "popTime"), ("it", "invisibleTime")),
                *(("rq", "reviveQueueId"), ("q", "queueId")),
            )
            start, popped, invisible, mark, queue_id = (number_of(value(*names)) for names in numbers)
            packed = value("b", "bitSet")
            bits = (
                base64.b64decode(packed, validate=True)
                if isinstance(packed, str)
                else bytes(each & 0xFF for each in packed)
            )
            real = {"0": topic, "1": retry_topic_of(group, topic), "2": retry_topic_v2_of(group, topic)}[kind]
        except (AttributeError, KeyError, TypeError, ValueError, binascii.Error) as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, f"an acknowledgement cannot be read: {error!r}") from error
        for field, name in (("consumerGroup", group), ("topic", topic)):
            check_name(field, name, NAME_FIELDS[field])
        info = ExtraInfo(start, popped, invisible, mark, topic_kind_of(real), broker_name, queue_id, start)
        return cls(group, real, info, bits)

    def handles(self) -> Iterator[str]:
        """Those of the bits that are set."""
        for at, byte in enumerate(self.bits):
            for bit in range(8) if byte else ():
                if byte >> bit & 1:
                    offset = self.info.start_offset + 8 * at + bit
                    yield encode_check_point(self.topic, self.info._replace(queue_offset=offset))


def _topic(shard: DoorShard, name: str) -> Topic:
    """A topic to read; waits. RefusedError when there is none."""
    found = shard.topics.find_now(name)
    if found is None:
        raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
    if not found.perm & PERM_READ:
        raise RefusedError(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
    return found


def _queue_id(ask: Ask, topic: Topic) -> int:
    """The queue of a request; -1: any."""
    queue_id = ask.number("queueId")
    if queue_id >= topic.read_queue_count:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic:[{topic.topic}] topicConfig.readQueueNums:[{topic.read_queue_count}] "
            f"consumer:[{ask.connection.peer}]",
        )
    return max(queue_id, -1)


def _refused(outcome: "pb.AckMessagesResponse.Outcome") -> RefusedError:
    if outcome == pb.AckMessagesResponse.OUTCOME_INVALID:
        return RefusedError(ResponseCode.MESSAGE_ILLEGAL, "extraInfo is no handle of this shard and group")
    return RefusedError(
        ResponseCode.NO_MESSAGE, "the message is not in flight by this handle: its time is over, or it was changed"
    )


def _duration(millis: int) -> Duration:
    return Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)


def _now_millis() -> str:
    return str(time.time_ns() // 1_000_000)
