"""ReceiveMessage: a long poll that pops messages (gateway/delivery/pops.py).

The service renews messages only when it has heard that their answers were sent whole: this process may die before that.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.delivery.pops import PopChecks, PopPoll
from gateway.delivery.waiting_room import WaitingRoom
from gateway.groups.joining import Join
from gateway.groups.joins import Joins
from gateway.ports.delivery import Delivering, DeliveringSource, Then
from gateway.rocketmq.caller import Caller, consumer_of
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.filters import filter_of
from gateway.rocketmq.messages import resource_of, to_delivered
from gateway.rocketmq.names import group_of, topic_of
from gateway.rocketmq.status import RefusedError, ok, status_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from services.serving.admission.callers import caller_of_call
from services.serving.admission.shares import client_of_name
from services.serving.calls.open_work import OpenWork
from services.serving.calls.streamed_later import Streamable
from store.errors import InvalidArgumentError, StoreError

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
        self.checks = PopChecks(shards, room, work, check_topic, None if joins is None else partial(_join, joins))
        self._limits = limits
        self.clients = clients
        self.clock = clock
        self._turns = itertools.count()

    def receive_message(self, request: bytes, call: Streamable) -> None:
        """One poll; it is answered later, or at once when it is refused."""
        try:
            poll = self._poll(_parse(request), call)
            self.checks.room.add(poll)
        except (RefusedError, StoreError) as error:
            _end_with(call, error)
            return
        call.on_gone(poll.leave)

    def close(self) -> None:
        """Tell shards of no more groups."""
        if self._joins is not None:
            self._joins.close()

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
            known_only=self.checks.are_joined,
            caller=caller_of_call(call),
            is_lite=self.clients.is_of_lite_topics(group, caller.client_id),
        )
        if question.is_lite:
            question.ClearField("filter")
        delivering = self._delivering(request.message_queue.broker.name)
        # An ordered group gives an attempt again what it got before, whatever another member has found.
        is_ordered = question.is_lite or self.clients.is_ordered(group) is not False
        may_repeat = bool(request.attempt_id) and is_ordered
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


class ReceivePoll(PopPoll):
    """One poll."""

    __slots__ = ("_call", "_clients")

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
        super().__init__(
            receiving.checks,
            delivering,
            question,
            ends_at=ends_at,
            gives_up_at=gives_up_at,
            owner=client_of_name(question.caller),
            must_look=must_look,
        )
        self._clients = receiving.clients
        self._call = call

    @property
    def is_caller_there(self) -> bool:
        """See PopPoll."""
        return self._call.is_active()

    def end(self) -> None:
        """See Poll."""
        self._call.send(_NOTHING)
        self._call.end(_delivered_now())

    def refuse(self, error: StoreError) -> None:
        """See PopPoll."""
        if not self.question.is_lite and error.metadata.get("field") == "is_lite":
            # This gateway has just started. Its client asks again, and then the kind of its group is known.
            self._clients.note_lite(self.question.consumer_group, self.question.topic)
            self.end()
        else:
            _end_with(self._call, error)

    def answer(self, deliveries: Sequence[pb.Delivery]) -> None:
        """See PopPoll."""
        topic = resource_of(self.name.topic)
        now_millis = time.time_ns() // 1_000_000
        answers = [
            v2.ReceiveMessageResponse(message=to_delivered(each, topic, now_millis)).SerializeToString()
            for each in deliveries
        ]
        self._call.send(_OK)
        for answer in answers:
            self._call.send(answer)

        def went(is_whole: bool) -> None:
            if is_whole:
                if not self.question.HasField("invisible_duration"):
                    handles = [each.receipt_handle for each in deliveries]
                    self._clients.note_delivered(self._delivering.broker_name, handles)
                self.went()
            else:
                self.give_back(deliveries)

        self._call.end(_delivered_now(), went)


def _join(
    joins: Joins,
    delivering: Delivering,
    question: pb.PopMessagesRequest,
    unknown: StoreError,
    then: Then[None],
    is_over: Callable[[], bool],
) -> None:
    """See JoinShard."""
    begins_at_end = unknown.metadata.get("beginsAtEnd") == "true"
    one = Join(delivering.broker_name, question.consumer_group, question.topic, begins_at_end, question.caller)
    joins.join(one, then, is_over)


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
