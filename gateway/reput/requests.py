"""SendRequest: appends a request, and answers its caller with the reply. A caller that waits has no thread.

RocketMQ's request and reply over any store: the request has CORRELATION_ID, REPLY_TO_CLIENT, TTL and CLUSTER; its consumer
appends the reply to the topic `<CLUSTER>_REPLY_TOPIC`. While requests wait, the gateway follows that topic in every shard, from
where it ended before the first of them was appended. The first reply counts: all replies to one request go to one queue, by
their CORRELATION_ID (appends/routes.py, commitlog_svc/append/message_check.py), so its order says which is the first.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import structlog
from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from gateway.appends.forwarder import AppendForwarder
from gateway.delivery.polls import Poll, QueueName
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import WaitingRoom
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import Delivering, DeliveringSource, Pulled, changed, pull_now
from gateway.ports.shard import CREATE_TOPIC, Shard, topics_of
from gateway.ports.shards import ShardsSource
from gateway.reput.wire import millis_of_duration
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.consumer.v1 import consumer_service_pb2 as consumer_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1.message_pb2 import NewMessage, StoredMessage
from services.methods import APPEND_SECONDS
from services.serving.admission.shares import Client, Shares, client_of_name
from services.serving.calls.unary_call import Answerable
from services.serving.deadline import remaining_seconds
from services.status import to_status
from store.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    QueueNotFoundError,
    ResourceBusyError,
    ServiceUnavailableError,
    StoreError,
    TopicExistsError,
    TopicNotFoundError,
)
from store.format.properties import CLUSTER, CORRELATION_ID, MSG_TYPE, REPLY_TO_CLIENT, REPLY_TYPE, WAITING_PROPERTIES
from store.format.topic import reply_topic_of

# RocketMQ's properties of requests, with those of replies (`MessageConst`).
TTL = "TTL"
OWN_PROPERTIES = (CORRELATION_ID, REPLY_TO_CLIENT, TTL, CLUSTER, MSG_TYPE)
# RocketMQ's timeout of a request.
TIMEOUT_MILLIS_DEFAULT = 3_000
TIMEOUT_MILLIS_MAX = 60_000
# The answer is to be earlier than the caller's deadline.
MARGIN_SECONDS = 0.05
# Callers that wait: 1 KiB each.
REQUEST_COUNT_MAX = 16_384
OPEN_SECONDS = 5.0
POLL_SECONDS = 20.0
RETRY_SECONDS = 0.5
# Queues of the reply topic that are followed in each shard; RocketMQ makes one.
QUEUE_COUNT_MAX = 64
BEYOND_ALL = 1 << 62

_log = structlog.get_logger("reput.gateway")


@dataclass(slots=True, eq=False)
class _Waiter:
    """A caller that waits for the reply to its request."""

    caller: Answerable
    append: (
        bytes  # an AppendMessagesRequest of up to 4 MiB; empty once it is sent, because the wait for the reply is long
    )
    correlation_id: str
    ends_at: float
    receipt: pb.AppendMessagesResponse | None = None
    reply: StoredMessage | None = None
    tick: int = field(default=0)

    @property
    def client(self) -> Client:
        """In whose share it counts."""
        return getattr(self.caller, "client", None) or client_of_name("")


class Requests:
    """Sends requests and waits for replies; thread-safe.

    Args:
        shards: all shards, whoever asks: the reply topic is made there.
        source: their consumer services.
        room: where this waits for replies.
        timers: ends what waits for too long.
        forwarder: appends requests.
        cluster: RocketMQ's name of the installation.
        client_id: names this gateway in REPLY_TO_CLIENT.
        clock: seconds, rising; that of the timers.
        request_count_max: requests that wait; a client has a share of them.
    """

    def __init__(
        self,
        shards: ShardsSource,
        source: DeliveringSource,
        room: WaitingRoom,
        timers: Timers,
        forwarder: AppendForwarder,
        cluster: str,
        client_id: str,
        clock: Callable[[], float] = time.monotonic,
        request_count_max: int = REQUEST_COUNT_MAX,
    ) -> None:
        self._shards = shards
        self._source = source
        self._room = room
        self._timers = timers
        self._forwarder = forwarder
        self._cluster = cluster
        self._topic = reply_topic_of(cluster)
        self._client_id = client_id
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiter] = {}
        self._shares = Shares(request_count_max)
        self._unsent: list[_Waiter] = []  # until it is known where the reply topic ends
        self._polls: set[ReplyPoll] = set()
        self._is_open = False
        self._is_opening = False

    def send_request(self, request: bytes, caller: Answerable) -> None:
        """SendRequest. The caller is answered later, or at once when the request is refused."""
        try:
            waiter = self._waiter_of(request, caller)
            with self._lock:
                if not self._shares.has_room(waiter.client):
                    raise ResourceBusyError(
                        f"{self._shares.held(waiter.client)} requests of this client wait for replies, which is its share of "
                        f"the {self._shares.count_max} of this gateway: try again soon."
                    )
                self._shares.take(waiter.client)
                self._waiting[waiter.correlation_id] = waiter
                waiter.tick = self._timers.set(waiter, waiter.ends_at, partial(self._time_over, waiter))
                is_open = self._is_open
                if not is_open:
                    self._unsent.append(waiter)
                begins = not is_open and not self._is_opening
                self._is_opening |= begins
        except StoreError as error:
            caller.fail(to_status(error))
            return
        if is_open:
            self._append(waiter)
        elif begins:
            threading.Thread(target=self._open, name="reply-topic", daemon=True).start()

    def take(self, messages: Iterable[StoredMessage]) -> None:
        """Replies have come."""
        ended: list[_Waiter] = []
        with self._lock:
            for message in messages:
                waiter = self._waiting.get(message.properties.get(CORRELATION_ID, ""))
                if waiter is None or waiter.reply is not None:  # the first one counts
                    continue
                if message.properties.get(REPLY_TO_CLIENT) != self._client_id:
                    continue
                if message.properties.get(MSG_TYPE) != REPLY_TYPE:  # as RocketMQ: no reply by its sender's word
                    continue
                waiter.reply = message
                if waiter.receipt is not None:  # else its receipt comes soon, and answers
                    ended.append(waiter)
            for waiter in ended:
                self._forget(waiter)
        for waiter in ended:
            _answer(waiter)

    def go_on(self, poll: "ReplyPoll", question: consumer_pb.PullMessagesRequest) -> None:
        """A poll has ended: the next one goes on, if somebody waits."""
        with self._lock:
            self._polls.discard(poll)
            if not self._is_open:
                return
            following = ReplyPoll(self, self._room, poll.delivering, question, self._clock() + POLL_SECONDS)
            self._polls.add(following)
        self._room.add(following)

    def go_on_later(self, poll: "ReplyPoll", question: consumer_pb.PullMessagesRequest) -> None:
        """The same after a failure."""
        self._timers.set(poll, self._clock() + RETRY_SECONDS, partial(self.go_on, poll, question))

    def _waiter_of(self, request: bytes, caller: Answerable) -> _Waiter:
        try:
            parsed = pb.SendRequestRequest.FromString(request)
        except DecodeError as error:
            raise InvalidArgumentError(f"the request cannot be read: {error}", field="request") from error
        taken = [name for name in OWN_PROPERTIES if name in parsed.message.properties]
        if taken:
            raise InvalidArgumentError(
                f"the message has the property {taken[0]}, which the gateway sets: leave it out.", field="message"
            )
        _check_not_waiting(parsed.message)
        millis = millis_of_duration(parsed, "timeout") or TIMEOUT_MILLIS_DEFAULT
        if millis > TIMEOUT_MILLIS_MAX:
            raise InvalidArgumentError(
                f"timeout is {millis} ms: at most {TIMEOUT_MILLIS_MAX} ms are possible.", field="timeout"
            )
        seconds = min(millis / 1000, max(remaining_seconds(caller, APPEND_SECONDS) - MARGIN_SECONDS, 0.0))
        correlation_id = str(uuid.uuid4())
        message = parsed.message
        message.properties[CORRELATION_ID] = correlation_id
        message.properties[REPLY_TO_CLIENT] = self._client_id
        message.properties[TTL] = str(millis)
        message.properties[CLUSTER] = self._cluster
        append = pb.AppendMessagesRequest(messages=[message]).SerializeToString()
        return _Waiter(caller, append, correlation_id, self._clock() + seconds)

    def _open(self) -> None:
        """Find out where the reply topic ends, follow it from there, and send what waits for that."""
        try:
            starts = self._starts()
        except StoreError as error:
            self._fail_unsent(error)
            return
        except Exception:  # callers would wait until their time is over
            _log.exception("requests.open_failed")
            self._fail_unsent(ServiceUnavailableError("the reply topic cannot be followed: see the gateway's log"))
            return
        with self._lock:
            self._is_opening = False
            unsent, self._unsent = self._unsent, []
            self._is_open = bool(self._waiting)
            ends_at = self._clock() + POLL_SECONDS
            polls = [ReplyPoll(self, self._room, *start, ends_at) for start in starts] if self._is_open else []
            self._polls.update(polls)
        for poll in polls:
            self._room.add(poll)
        for waiter in unsent:
            self._append(waiter)

    def _starts(self) -> "list[tuple[Delivering, consumer_pb.PullMessagesRequest]]":
        deadline = Deadline.after(OPEN_SECONDS)
        starts: list[tuple[Delivering, consumer_pb.PullMessagesRequest]] = []
        failure: StoreError | None = ServiceUnavailableError("no shard has a consumer service", service="consumer")
        for shard in self._shards.now():
            try:
                delivering = self._source.named(shard.broker_name)
                for queue_id in range(min(self._queue_count(shard, deadline), QUEUE_COUNT_MAX)):
                    end = self._end(shard.broker_name, queue_id, deadline)
                    starts.append((delivering, self._ask(queue_id, end, BATCH_COUNT)))
                    failure = None
            except StoreError as error:  # replies in this shard are missed
                failure = error if failure is not None else None
                _log.info("requests.shard_missed", broker_name=shard.broker_name, error=error.message)
        if failure is not None:
            raise failure
        return starts

    def _ask(self, queue_id: int, queue_offset: int, count: int) -> consumer_pb.PullMessagesRequest:
        return consumer_pb.PullMessagesRequest(
            topic=self._topic, queue_id=queue_id, queue_offset=queue_offset, max_messages=count
        )

    def _end(self, broker_name: str, queue_id: int, deadline: Deadline) -> int:
        ask = self._ask(queue_id, BEYOND_ALL, 1)
        try:
            return pull_now(self._source, broker_name, ask, deadline).answer.max_offset
        except (TopicNotFoundError, QueueNotFoundError):  # it has no message yet
            return 0

    def _queue_count(self, shard: Shard, deadline: Deadline) -> int:
        known = topics_of(shard, deadline).get(self._topic)
        if known is None:
            request = log_pb.CreateTopicRequest(topic=self._topic, queue_count=1)
            try:
                known = shard.call(CREATE_TOPIC, request, deadline).topic
            except TopicExistsError:  # another gateway was faster
                known = topics_of(shard, deadline)[self._topic]
        return known.read_queue_count

    def _fail_unsent(self, error: StoreError) -> None:
        with self._lock:
            self._is_opening = False
            unsent, self._unsent = self._unsent, []
            unsent = [waiter for waiter in unsent if self._forget(waiter)]
        for waiter in unsent:
            waiter.caller.fail(to_status(error))

    def _append(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter.correlation_id not in self._waiting:  # its time is over
                return
            append, waiter.append = waiter.append, b""
        self._forwarder.append_messages(append, _RequestAppend(self, waiter))

    def appended(self, waiter: _Waiter, response: pb.AppendMessagesResponse) -> None:
        """The request is stored."""
        with self._lock:
            waiter.receipt = response
            has_all = waiter.reply is not None and self._forget(waiter)
        if has_all:
            _answer(waiter)

    def append_failed(self, waiter: _Waiter, status: status_pb2.Status) -> None:
        """The request is not stored, or that is not known."""
        with self._lock:
            is_open = self._forget(waiter)
        if is_open:
            waiter.caller.fail(status)

    def _time_over(self, waiter: _Waiter) -> None:
        with self._lock:
            is_open = self._forget(waiter)
        if not is_open:
            return
        stored = waiter.receipt.results[0].offset_msg_id if waiter.receipt is not None else ""
        what = f"the request is stored as {stored}" if stored else "it is not known whether the request was stored"
        error = DeadlineExceededError(f"No reply came in time; {what}.", **({"offsetMsgId": stored} if stored else {}))
        waiter.caller.fail(to_status(error))

    def _forget(self, waiter: _Waiter) -> bool:
        """Whether it waited until now; with the lock held. The last one ends the polls."""
        if self._waiting.pop(waiter.correlation_id, None) is None:
            return False
        self._shares.give_back(waiter.client)
        self._timers.drop(waiter, waiter.tick)
        if not self._waiting and self._is_open:
            self._is_open = False
            polls, self._polls = self._polls, set()
            for poll in polls:
                self._room.remove(poll)
        return True


class _RequestAppend:
    """The caller of an append: its outcome goes to the request."""

    def __init__(self, requests: Requests, waiter: _Waiter) -> None:
        self._requests = requests
        self._waiter = waiter
        self.is_active = waiter.caller.is_active
        self.time_remaining = waiter.caller.time_remaining

    def answer(self, response: bytes) -> None:
        self._requests.appended(self._waiter, pb.AppendMessagesResponse.FromString(response))

    def fail(self, status: status_pb2.Status) -> None:
        self._requests.append_failed(self._waiter, status)


def _check_not_waiting(message: NewMessage) -> None:
    """InvalidArgumentError for a request that nobody would see while its caller waits."""
    names = sorted(WAITING_PROPERTIES.intersection(message.properties))
    names += ["delay_level"] if message.delay_level else []
    names += ["delivery_time"] if message.HasField("delivery_time") else []
    if names:
        raise InvalidArgumentError(
            f"the message has {names[0]}, and a request is delivered at once, because its caller waits for the reply: leave it "
            "out, or append the message without waiting.",
            field="message",
        )


def _answer(waiter: _Waiter) -> None:
    assert waiter.receipt is not None, "checked by the caller"
    response = pb.SendRequestResponse(reply=waiter.reply, request=waiter.receipt.results[0])
    waiter.caller.answer(response.SerializeToString())


PULL_SECONDS = 10.0
BATCH_COUNT = 256


class ReplyPoll(Poll):
    """Waits for replies in one queue of the reply topic.

    Args:
        replies: gets them.
        room: where it waits.
        delivering: the shard.
        question: the queue and the position.
        ends_at: when it ends without replies, on the room's clock.
    """

    __slots__ = ("_question", "_replies", "_room", "delivering")

    def __init__(
        self,
        replies: Requests,
        room: WaitingRoom,
        delivering: Delivering,
        question: consumer_pb.PullMessagesRequest,
        ends_at: float,
    ) -> None:
        name = QueueName(delivering.broker_name, question.topic, "", uuid.uuid4().int, question.queue_id)
        super().__init__(name, "", ends_at, ends_at + PULL_SECONDS)
        self._replies = replies
        self._room = room
        self.delivering = delivering
        self._question = question

    def look(self) -> None:
        """See Poll."""
        self.delivering.pull(self._question, PULL_SECONDS, self._pulled)

    def end(self) -> None:
        """See Poll."""
        self._replies.go_on(self, self._question)

    def give_up(self) -> None:
        """See Poll."""
        self._replies.go_on_later(self, self._question)

    def _pulled(self, outcome: Pulled | StoreError) -> None:
        if isinstance(outcome, TopicNotFoundError | QueueNotFoundError):  # it has no message yet
            self._room.found_nothing(self)
        elif isinstance(outcome, StoreError):
            if self._room.failed(self):
                self._replies.go_on_later(self, self._question)
        elif outcome.answer.status == pb.PULL_STATUS_NO_NEW_MSG:
            self._room.found_nothing(self)
        elif self._room.found(self):
            question = changed(self._question, queue_offset=outcome.answer.next_offset)
            self._replies.take(outcome.messages)
            self._replies.go_on(self, question)
