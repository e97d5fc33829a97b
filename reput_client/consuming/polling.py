"""Polling: one ReceiveMessage after the other for each shard and topic, while there is room for what it may bring."""

import uuid
from collections.abc import Sequence
from typing import Protocol

from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.cache import Cache, HeldMessage
from reput_client.consuming.received_message import received_message_of
from reput_client.consuming.refusals import AbsentTopics, error_of
from reput_client.consuming.settings import AgreedSettings, ConsumerSettings
from reput_client.consuming.subscription import Sql, expression_of
from reput_client.consuming.transport import Cancellable, Transport
from reput_client.errors import NotFoundError, ReputClientError, is_worth_retrying

# A server hides messages that it renews for at most so long.
RENEWED_SECONDS_MAX = 3 * 3600.0
# A poll that ends without messages sooner than this is followed by a pause: its server does not wait.
POLL_SECONDS_MIN = 1.0


class PollingConsumer(Protocol):
    """The consumer of a poller, as far as the poller uses it. The lock is held at each call."""

    absent: AbsentTopics
    agreed: AgreedSettings
    cache: Cache
    is_closing: bool

    @property
    def poller_count(self) -> int:
        """Pollers that share the cache."""

    @property
    def wanted_count(self) -> int:
        """Further messages that the program can use now."""

    def received(self, messages: Sequence[HeldMessage]) -> None:
        """Messages have come, in order."""

    def failed(self, error: ReputClientError) -> None:
        """An error that does not pass."""

    def poll_ended(self) -> None:
        """A poll is not under way any more."""


class Poller:
    """Polls one topic in one shard. The lock is held at each call.

    Args:
        owner: the consumer.
        transport: makes the calls.
        settings: of the consumer.
        consumer_group: its group.
        topic: what is polled.
        wanted: which messages.
        broker_name: the shard.
        target: its gateway.
    """

    def __init__(
        self,
        owner: PollingConsumer,
        transport: Transport,
        settings: ConsumerSettings,
        consumer_group: str,
        topic: str,
        wanted: "str | Sql",
        broker_name: str,
        target: str,
    ) -> None:
        self._owner = owner
        self._transport = transport
        self._settings = settings
        self._consumer_group = consumer_group
        self._topic = topic
        self._filter = expression_of(wanted)
        self._broker_name = broker_name
        self.target = target
        self._call: Cancellable | None = None
        self._attempt_id = ""
        self._failure_count = 0
        self._is_pausing = False
        self._is_stopped = False

    @property
    def is_polling(self) -> bool:
        """Whether a poll is under way."""
        return self._call is not None

    def poll(self) -> None:
        """Begin a poll, unless one is under way or there is no room."""
        if self._call is not None or self._is_pausing or self._is_stopped or self._owner.is_closing:
            return
        count = self._owner.cache.reserve(self._owner.poller_count, self._owner.wanted_count)
        if not count:
            return  # called again when the program asks, and when a message is settled
        agreed, began_at = self._owner.agreed, self._transport.now()
        # A poll whose answer was lost is sent again by its id: a FIFO group gives the same messages to it.
        self._attempt_id = self._attempt_id or uuid.uuid4().hex
        request = self._request(count, agreed)

        def done(responses: Sequence[v2.ReceiveMessageResponse], error: ReputClientError | None) -> None:
            with self._transport.lock:
                self._call = None
                self._owner.cache.release(count)
                self._done(responses, error, began_at)
                self._owner.poll_ended()

        seconds = agreed.poll_seconds + self._settings.request_seconds_max
        self._call = self._transport.stream(self.target, "ReceiveMessage", request, seconds, done)

    def stop(self) -> None:
        """Poll no more; a poll under way is cancelled, and what it would have got is given back by the gateway."""
        self._is_stopped = True
        if self._call is not None:
            self._call.cancel()

    def _request(self, count: int, agreed: AgreedSettings) -> v2.ReceiveMessageRequest:
        request = v2.ReceiveMessageRequest(
            group=v2.Resource(name=self._consumer_group),
            filter_expression=self._filter,
            batch_size=min(count, agreed.batch_count),
            long_polling_timeout=_duration(agreed.poll_seconds),
            attempt_id=self._attempt_id,
        )
        request.message_queue.topic.name = self._topic
        request.message_queue.id = -1
        request.message_queue.permission = v2.READ_WRITE
        request.message_queue.broker.name = self._broker_name
        if self._settings.invisible_seconds is None:
            request.auto_renew = True
        else:
            request.invisible_duration.CopyFrom(_duration(self._settings.invisible_seconds))
        return request

    def _done(
        self, responses: Sequence[v2.ReceiveMessageResponse], error: ReputClientError | None, began_at: float
    ) -> None:
        status: v2.Status | None = None
        messages: list[v2.Message] = []
        for response in responses:
            if response.HasField("message"):
                messages.append(response.message)
            elif response.HasField("status"):
                status = response.status
        if error is None and status is None:
            error = error_of(v2.Status(message="the answer to a poll has no status"))
        is_empty = status is not None and status.code == v2.MESSAGE_NOT_FOUND
        if error is None and status is not None and not is_empty:
            error = error_of(status)
        if messages:
            self._owner.received([self._held(message) for message in messages])
        if error is None or messages:
            self._attempt_id = ""
        if error is None:
            self._owner.absent.found(self._topic)
            self._failure_count = 0
            ended_early = is_empty and self._transport.now() - began_at < POLL_SECONDS_MIN
            self._next(self._settings.retry.pause_seconds(1) if ended_early else 0.0)
        elif not self._is_stopped and not is_worth_retrying(error) and not isinstance(error, NotFoundError):
            self._owner.failed(error)
        else:
            self._owner.absent.is_absent_by(self._topic, error)
            self._failure_count += 1
            self._next(self._settings.retry.pause_seconds(self._failure_count))

    def _held(self, message: v2.Message) -> HeldMessage:
        system, seconds = message.system_properties, self._settings.invisible_seconds
        if seconds is None:
            seconds = RENEWED_SECONDS_MAX
        elif system.HasField("invisible_duration"):
            seconds = system.invisible_duration.seconds + system.invisible_duration.nanos / 1e9
        received = received_message_of(message, self._broker_name)
        return HeldMessage(received, system.receipt_handle, self.target, self._transport.now() + seconds)

    def _next(self, seconds: float) -> None:
        if not seconds:
            self.poll()
            return
        self._is_pausing = True

        def over() -> None:
            with self._transport.lock:
                self._is_pausing = False
                self.poll()

        self._transport.later(seconds, over)


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMilliseconds(int(seconds * 1000))
    return duration
