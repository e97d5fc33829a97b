"""ReceiveMessage: a long poll that pops messages. It waits in gateway/delivery/waiting_room.py and takes no thread.

What is popped for a caller that has gone is given back at once, also when it goes while its answers are on their way. The
service renews messages only when it has heard that their answers were sent whole: this process may die before that.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.polls import Poll, QueueName, not_answered
from gateway.delivery.waiting_room import WaitingRoom
from gateway.groups.joining import Join
from gateway.groups.joins import Joins
from gateway.ports.delivery import Delivering, DeliveringSource, Then, expression_of, filter_key, is_absent
from gateway.rocketmq.caller import Caller, consumer_of
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.filters import filter_of
from gateway.rocketmq.messages import resource_of, to_delivered
from gateway.rocketmq.names import group_of, topic_of
from gateway.rocketmq.status import RefusedError, ok, status_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.methods import INNER_SECONDS
from services.serving.admission.callers import caller_of_call
from services.serving.admission.shares import client_of_name
from services.serving.calls.open_work import OpenWork
from services.serving.calls.streamed_later import Streamable
from store.errors import GroupNotFoundError, InvalidArgumentError, StoreError

# RocketMQ's limit of a poll: grpcClientConsumerMaxLongPollingTimeoutMillis.
POLL_SECONDS_MAX = 20.0
# A poll without messages ends so long before its caller's deadline, with room for a look that is under way.
END_MARGIN_SECONDS = 0.3
# A look that is under way then is not waited for.
GIVE_UP_MARGIN_SECONDS = 0.1
# How much longer than its time a poll without deadline waits for its look.
GIVE_UP_SECONDS = 5.0
# gRPC reports "no deadline" as centuries.
DEADLINE_SECONDS_MAX = 86_400.0
BATCH_SIZE_MAX = 32
# As in the consumer service; here too, because a poll keeps it as long as it waits.
ATTEMPT_ID_CHARACTERS_MAX = 1_024
# maxInvisibleTimeMills of RocketMQ's proxy.
INVISIBLE_MILLIS_MAX = 12 * 3_600_000
# Since this version clients know ILLEGAL_POLLING_TIME.
POLLING_TIME_VERSION = (5, 0, 3)
# Their libraries go on with the messages of a batch while they retry one of them, so a batch must hold one of each group.
ONE_PER_GROUP_LANGUAGES = frozenset({"GO", "GOLANG", "NODE", "NODEJS", "NODE_JS"})

_OK = v2.ReceiveMessageResponse(status=ok()).SerializeToString()
_NOTHING = v2.ReceiveMessageResponse(
    status=v2.Status(code=v2.MESSAGE_NOT_FOUND, message="no new message")
).SerializeToString()


def refused(error: StoreError) -> bytes:
    """The answer for a poll that has no room."""
    busy = v2.Status(code=v2.TOO_MANY_REQUESTS, message=error.message)
    return v2.ReceiveMessageResponse(status=busy).SerializeToString()


@dataclass(frozen=True, slots=True)
class PollLimits:
    """Limits that RocketMQ's proxy has as settings, too.

    Attributes:
        invisible_millis_min: shortest invisible time of a poll: `minInvisibleTimeMillsForRecv`.
        poll_seconds_min: shortest time that a poll waits: `grpcClientConsumerMinLongPollingTimeoutMillis`. A nearer deadline is
            refused.
    """

    invisible_millis_min: int = 10_000
    poll_seconds_min: float = 5.0


DEFAULT_LIMITS = PollLimits()


class Receiving:
    """Takes serialized ReceiveMessageRequests.

    Args:
        shards: their consumer services.
        room: where polls wait.
        clients: knows request timeouts and ordered groups.
        work: a clean stop waits for messages on their way; None: for none.
        check_topic: calls its function with None when some shard has a topic, else with the error; None: there is one shard.
        joins: tells a shard of a group that it does not know; None: there is one shard.
        clock: that of the room.
        limits: of polls.
    """

    def __init__(
        self,
        shards: DeliveringSource,
        room: WaitingRoom,
        clients: Clients,
        work: OpenWork | None = None,
        check_topic: Callable[[str, Callable[[StoreError | None], None]], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        limits: PollLimits = DEFAULT_LIMITS,
        joins: Joins | None = None,
    ) -> None:
        self._shards = shards
        self._joins = joins
        self._check_topic = check_topic
        self._limits = limits
        self.room = room
        self.clients = clients
        self.work = work or OpenWork()
        self.clock = clock
        self._turns = itertools.count()

    def receive_message(self, request: bytes, call: Streamable) -> None:
        """One poll; it is answered later, or at once when it is refused."""
        try:
            poll = self._poll(_parse(request), call)
            self.room.add(poll)
        except (RefusedError, StoreError) as error:
            _end_with(call, error)
            return
        call.on_gone(poll.leave)

    def check_absent(self, absent: StoreError, topic: str, then: Callable[[StoreError | None], None]) -> None:
        """Call `then` with None when another shard has a topic that one has not, else with the error of that one."""
        if self._check_topic is None or len(self._shards.all()) == 1:
            then(absent)
        else:
            self._check_topic(topic, then)

    def close(self) -> None:
        """Tell shards of no more groups."""
        if self._joins is not None:
            self._joins.close()

    def join(
        self,
        delivering: Delivering,
        question: pb.PopMessagesRequest,
        unknown: StoreError,
        then: Then[None],
        is_over: Callable[[], bool],
    ) -> None:
        """Call `then` with None when a shard knows a group that it did not know, else with the error.

        Nothing is done for a poll that is over.
        """
        if self._joins is None:
            then(unknown)
            return
        begins_at_end = unknown.metadata.get("beginsAtEnd") == "true"
        self._joins.join(
            Join(delivering.broker_name, question.consumer_group, question.topic, begins_at_end, question.caller),
            then,
            is_over,
        )

    def _poll(self, request: v2.ReceiveMessageRequest, call: Streamable) -> "ReceivePoll":
        caller = consumer_of(call)
        now = self.clock()
        poll_seconds, left_seconds = self._times(request, call, caller)
        topic = topic_of(request.message_queue.topic)
        group = group_of(request.group)
        if len(request.attempt_id) > ATTEMPT_ID_CHARACTERS_MAX:
            raise RefusedError(
                v2.BAD_REQUEST,
                f"attempt_id has {len(request.attempt_id)} characters: use at most {ATTEMPT_ID_CHARACTERS_MAX}",
            )
        millis_min = self._limits.invisible_millis_min
        question = pb.PopMessagesRequest(
            consumer_group=group,
            topic=topic,
            max_messages=min(request.batch_size, BATCH_SIZE_MAX) if request.batch_size > 0 else BATCH_SIZE_MAX,
            # None: the service renews what the client has, as long as it lives.
            invisible_duration=None if request.auto_renew else invisible_of(request.invisible_duration, millis_min),
            client_id=caller.client_id,
            attempt_id=request.attempt_id,
            filter=filter_of(request.filter_expression),
            max_per_message_group=1 if caller.language in ONE_PER_GROUP_LANGUAGES else 0,
            known_only=self._joins is not None and len(self._shards.all()) > 1,
            caller=caller_of_call(call),
        )
        delivering = self._delivering(request.message_queue.broker.name)
        # An ordered group gives an attempt again what it got before, whatever another member has found.
        may_repeat = bool(request.attempt_id) and self.clients.is_ordered(group) is not False
        return ReceivePoll(
            self,
            delivering,
            question,
            call,
            ends_at=now + poll_seconds,
            gives_up_at=now + left_seconds,
            must_look=may_repeat,
        )

    def _times(self, request: v2.ReceiveMessageRequest, call: Streamable, caller: Caller) -> tuple[float, float]:
        """Seconds until the poll ends, and until it does not wait for its look any more."""
        remaining = call.time_remaining()
        if remaining is None or remaining > DEADLINE_SECONDS_MAX:
            asked = _seconds(request.long_polling_timeout) if request.HasField("long_polling_timeout") else None
            seconds = self._clamped(POLL_SECONDS_MAX if asked is None else asked)
            return seconds, seconds + GIVE_UP_SECONDS
        if request.HasField("long_polling_timeout"):
            seconds = self._clamped(_seconds(request.long_polling_timeout))
        else:
            seconds = self._clamped(remaining - self.clients.request_seconds(caller.client_id) / 2)
        if remaining < self._limits.poll_seconds_min and seconds > remaining:
            is_known = _version(caller.version) >= POLLING_TIME_VERSION
            raise RefusedError(
                v2.ILLEGAL_POLLING_TIME if is_known else v2.BAD_REQUEST,
                f"the deadline is {remaining:.1f} s away, which is too near for a poll: allow "
                f"{self._limits.poll_seconds_min:.0f} s or more",
            )
        return min(seconds, remaining - END_MARGIN_SECONDS), remaining - GIVE_UP_MARGIN_SECONDS

    def _clamped(self, seconds: float) -> float:
        return min(max(seconds, self._limits.poll_seconds_min), POLL_SECONDS_MAX)

    def _delivering(self, broker_name: str) -> Delivering:
        shards = self._shards.all()
        if not broker_name and len(shards) > 1:
            return shards[next(self._turns) % len(shards)]
        return self._shards.named(broker_name)


class ReceivePoll(Poll):
    """One poll."""

    __slots__ = ("_call", "_delivering", "_has_joined", "_question", "_receiving")

    def __init__(
        self,
        receiving: Receiving,
        delivering: Delivering,
        question: pb.PopMessagesRequest,
        call: Streamable,
        *,
        ends_at: float,
        gives_up_at: float,
        must_look: bool,
    ) -> None:
        name = QueueName(delivering.broker_name, question.topic, question.consumer_group, filter_key(question.filter))
        super().__init__(
            name,
            question.client_id,
            ends_at,
            gives_up_at,
            must_look=must_look,
            filter_characters=len(expression_of(question.filter)),
            owner=client_of_name(question.caller),
        )
        self._receiving = receiving
        self._delivering = delivering
        self._question = question
        self._call = call
        self._has_joined = False  # in this look: it joins once

    def look(self) -> None:
        """See Poll."""
        self._receiving.work.add(1)
        self._has_joined = False
        try:
            self._delivering.pop(self._question, INNER_SECONDS, self._popped)
        except Exception as error:  # a bug; the poll must not wait for ever
            self._popped(error if isinstance(error, StoreError) else StoreError(f"the pop failed: {error!r}"))

    def end(self) -> None:
        """See Poll."""
        self._call.send(_NOTHING)
        self._call.end(_delivered_now())

    def give_up(self) -> None:
        """See Poll."""
        _end_with(self._call, not_answered(self._delivering.broker_name))

    def leave(self) -> None:
        """The caller has gone."""
        self._receiving.room.remove(self)

    def _joined(self, outcome: StoreError | None) -> None:
        """The shard knows the group now, or the error says why not."""
        if outcome is not None:
            self._failed(outcome)
            return
        self._has_joined = True
        question = pb.PopMessagesRequest()
        question.CopyFrom(self._question)
        question.known_only = False
        try:
            self._delivering.pop(question, INNER_SECONDS, self._popped)
        except Exception as error:  # a bug, as above
            self._popped(error if isinstance(error, StoreError) else StoreError(f"the pop failed: {error!r}"))

    def _popped(self, outcome: pb.PopMessagesResponse | StoreError) -> None:
        room = self._receiving.room
        if isinstance(outcome, GroupNotFoundError) and not self._has_joined:
            self._receiving.join(self._delivering, self._question, outcome, self._joined, lambda: self.is_over)
        elif isinstance(outcome, StoreError) and is_absent(outcome):
            self._receiving.check_absent(outcome, self._question.topic, self._failed)
        elif isinstance(outcome, StoreError):
            self._failed(outcome)
        elif not outcome.deliveries:
            room.found_nothing(self)
            self._done()
        elif room.found(self) and self._call.is_active():
            self._answer(outcome.deliveries)
        else:
            self._give_back(outcome.deliveries)

    def _failed(self, error: StoreError | None) -> None:
        """The look has failed; None: the topic is in other shards, and this one may get it."""
        if error is None:
            self._receiving.room.found_nothing(self)
        elif self._receiving.room.failed(self):
            _end_with(self._call, error)
        self._done()

    def _answer(self, deliveries: Sequence[pb.Delivery]) -> None:
        topic = resource_of(self._question.topic)
        now_millis = time.time_ns() // 1_000_000
        try:
            answers = [
                v2.ReceiveMessageResponse(message=to_delivered(each, topic, now_millis)).SerializeToString()
                for each in deliveries
            ]
        except Exception:
            self._give_back(deliveries)
            raise
        self._call.send(_OK)
        for answer in answers:
            self._call.send(answer)

        def went(is_whole: bool) -> None:
            if is_whole:
                if not self._question.HasField("invisible_duration"):
                    handles = [each.receipt_handle for each in deliveries]
                    self._receiving.clients.note_delivered(self._delivering.broker_name, handles)
                self._done()
            else:
                self._give_back(deliveries)

        self._call.end(_delivered_now(), went)

    def _give_back(self, deliveries: Sequence[pb.Delivery]) -> None:
        left = itertools.count(len(deliveries) - 1, -1)

        def given_back(_outcome: object) -> None:
            if next(left) == 0:  # one that fails is delivered again when its time is over
                self._done()

        for each in deliveries:
            request = pb.ChangeInvisibleDurationRequest(
                consumer_group=self._question.consumer_group,
                receipt_handle=each.receipt_handle,
                invisible_duration=Duration(),
                give_back=True,
            )
            self._delivering.change_invisible(request, INNER_SECONDS, given_back)

    def _done(self) -> None:
        self._receiving.work.add(-1)


def invisible_of(duration: Duration, millis_min: int) -> Duration:
    """How long a message shall be invisible, in whole milliseconds.

    Args:
        duration: as it was asked.
        millis_min: the least that is allowed.

    Raises:
        RefusedError: ILLEGAL_INVISIBLE_TIME, in words that begin as RocketMQ's: programs look for them.
    """
    millis: int = duration.seconds * 1000 + duration.nanos // 1_000_000
    if millis < millis_min:
        wrong = "small"
    elif millis > INVISIBLE_MILLIS_MAX:
        wrong = "large"
    else:
        return Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)
    raise RefusedError(
        v2.ILLEGAL_INVISIBLE_TIME,
        f"the invisibleTime is too {wrong}: invisible_duration is {millis} ms, and {millis_min} to {INVISIBLE_MILLIS_MAX} "
        "are allowed",
    )


def _parse(request: bytes) -> v2.ReceiveMessageRequest:
    try:
        return v2.ReceiveMessageRequest.FromString(request)
    except DecodeError as error:
        raise InvalidArgumentError(f"the request is not a ReceiveMessageRequest: {error}", field="request") from error


def _end_with(call: Streamable, error: RefusedError | StoreError) -> None:
    call.send(v2.ReceiveMessageResponse(status=status_of(error)).SerializeToString())
    call.end(_delivered_now())


def _delivered_now() -> bytes:
    now = Timestamp()
    now.FromNanoseconds(time.time_ns() // 1_000_000 * 1_000_000)
    return v2.ReceiveMessageResponse(delivery_timestamp=now).SerializeToString()


def _seconds(duration: Any) -> float:
    return float(duration.seconds + duration.nanos / 1e9)


def _version(text: str) -> tuple[int, ...]:
    """A version's numbers; none when it has other parts."""
    parts = text.partition("-")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() and len(part) < 9 for part in parts) else ()
