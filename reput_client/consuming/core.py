"""The decisions of a consumer: `Consumer` runs them on threads, `AsyncConsumer` on an event loop."""

import contextlib
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.cache import Cache, HeldMessage, Pace
from reput_client.consuming.link import Link
from reput_client.consuming.polling import Poller
from reput_client.consuming.refusals import AbsentTopics, error_of
from reput_client.consuming.settings import AgreedSettings, ConsumerSettings, agreed_settings_of
from reput_client.consuming.settling import Ending, Order, Settler
from reput_client.consuming.subscription import Member, Subscriptions, checked, endpoints_of, target_of
from reput_client.consuming.transport import Transport
from reput_client.errors import ConsumerClosedError, ReputClientError, is_worth_retrying
from reput_client.tracing import ConsumeReturn, TraceWriter


def new_client_id() -> str:
    """The identity of a new client, in the form of RocketMQ's."""
    return f"{socket.gethostname()[:64]}@{os.getpid()}@{uuid.uuid4().hex[:12]}"


class ConsumerCore:
    """One consumer. Methods that say so are called with the transport's lock held.

    Args:
        transport: makes the calls.
        target: the gateway.
        consumer_group: the group.
        subscriptions: what is wanted, by topic.
        settings: limits and times.
        client_id: its identity.
    """

    def __init__(
        self,
        transport: Transport,
        target: str,
        consumer_group: str,
        subscriptions: Subscriptions,
        settings: ConsumerSettings,
        client_id: str,
    ) -> None:
        self.transport = transport
        self.settings = settings
        self.client_id = client_id
        self._target = target
        self._endpoints = endpoints_of(target)
        self._subscriptions = checked(subscriptions)
        kind = v2.PUSH_CONSUMER if settings.invisible_seconds is None else v2.SIMPLE_CONSUMER
        self._member = Member(client_id, consumer_group, self._subscriptions, kind)
        self.agreed = AgreedSettings()
        self.absent = AbsentTopics(consumer_group)
        self.cache = Cache(settings.cache_count_max, settings.cache_bytes_max, settings.batch_count_max)
        self._pace = Pace(settings.ahead_count_max)
        self._asking_count = 0
        self._settler = Settler(
            transport, consumer_group, settings.request_seconds_max, settings.retry, self._order_settled
        )
        self._links: dict[str, Link] = {}
        self._pollers: dict[tuple[str, str], Poller] = {}
        self._stopped_pollers: list[Poller] = []
        self._is_agreed = False
        self.tracer: TraceWriter | None = None
        self.failure: ReputClientError | None = None
        self.is_started = False
        self.is_closing = False
        self.is_closed = False

    @property
    def consumer_group(self) -> str:
        """The group."""
        return self._member.consumer_group

    # -- beginning

    def start(self) -> None:
        """Begin to consume, once."""
        with self.transport.lock:
            if self.is_closing:
                raise self.failure or ConsumerClosedError("the consumer is closed: make another one")
            if not self.is_started:
                self.is_started = True
                self._link(self._target)

    def _link(self, target: str) -> None:
        if target not in self._links:
            link = Link(self.transport, target, self._member, self.settings, self._settings_came, self.failed)
            self._links[target] = link
            link.open()

    def _settings_came(self, settings: v2.Settings) -> None:
        agreed = agreed_settings_of(settings, self.settings.backoff_seconds)
        if not self.cache.count:
            self.cache.fifo = agreed.fifo
        self.agreed = agreed
        if not self._is_agreed:
            self._is_agreed = True
            for topic in self._subscriptions:
                self._ask_assignment(topic, is_first=True)

    def _ask_assignment(self, topic: str, *, is_first: bool, failure_count: int = 0) -> None:
        """Ask for the shards of a topic, and again later: soon after a failure that passes, or while there is no such topic."""
        if self.is_closing:
            return
        request = v2.QueryAssignmentRequest(
            topic=v2.Resource(name=topic),
            group=v2.Resource(name=self._member.consumer_group),
            endpoints=self._endpoints,
        )

        def done(answer: Any) -> None:
            with self.transport.lock:
                error = answer if isinstance(answer, ReputClientError) else error_of(answer.status)
                seconds, failures = self.settings.assignment_seconds, 0
                if error is None:
                    self._assigned(topic, answer.assignments)
                elif self.absent.is_absent_by(topic, error) or is_worth_retrying(error):
                    failures = failure_count + 1
                    seconds = min(seconds, self.settings.retry.pause_seconds(failures))
                elif is_first:
                    self.failed(error)
                self.transport.later(seconds, lambda: again(is_first and error is not None, failures))

        def again(is_first: bool, failures: int) -> None:
            with self.transport.lock:
                self._ask_assignment(topic, is_first=is_first, failure_count=failures)

        self.transport.call(self._target, "QueryAssignment", request, self.settings.request_seconds_max, done)

    def _assigned(self, topic: str, assignments: Sequence[v2.Assignment]) -> None:
        if self.is_closing:
            return
        # A server looks at the shard only, so one poller serves all queues of it, also those of a FIFO group.
        targets = {
            each.message_queue.broker.name: self._target_of(each.message_queue.broker.endpoints) for each in assignments
        }
        for (polled, broker_name), poller in list(self._pollers.items()):
            if polled == topic and targets.get(broker_name) != poller.target:
                del self._pollers[polled, broker_name]
                self._stop(poller)
        for broker_name, target in targets.items():
            if (topic, broker_name) not in self._pollers:
                self._link(target)
                self._pollers[topic, broker_name] = Poller(
                    self,
                    self.transport,
                    self.settings,
                    self._member.consumer_group,
                    topic,
                    self._subscriptions[topic],
                    broker_name,
                    target,
                )
        self._poll_all()

    def _target_of(self, endpoints: v2.Endpoints) -> str:
        return self._target if endpoints == self._endpoints or not endpoints.addresses else target_of(endpoints)

    # -- what pollers say (the lock is held)

    @property
    def poller_count(self) -> int:
        """Pollers that share the cache."""
        return len(self._pollers)

    @property
    def wanted_count(self) -> int:
        """Further messages that the program can use now: each of several pollers may get so many."""
        return self._asking_count + self._pace.ahead_count - self.cache.ready_count

    def received(self, messages: Sequence[HeldMessage]) -> None:
        """Messages have come, in order."""
        self.cache.put(messages)
        if self.is_closing:
            self._give_back()
        self.transport.wake()

    def failed(self, error: ReputClientError) -> None:
        """An error that does not pass: the consumer ends with it."""
        if not self.is_closing:
            self.failure = error
            self._begin_close()

    def poll_ended(self) -> None:
        """A poll is not under way any more."""
        self._stopped_pollers = [poller for poller in self._stopped_pollers if poller.is_polling]
        if self.is_closing:
            self.transport.wake()

    def _poll_all(self) -> None:
        for poller in self._pollers.values():
            poller.poll()

    def _stop(self, poller: Poller) -> None:
        poller.stop()
        if poller.is_polling:
            self._stopped_pollers.append(poller)

    # -- what consumers of messages do

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Within it the running thread or task waits for a message, so polls begin. The lock is held at both ends."""
        self._pace.asked(self.transport.now())
        self._asking_count += 1
        try:
            self._poll_all()
            yield
        finally:
            self._asking_count -= 1

    def take(self) -> HeldMessage | None:
        """The next message; None when there is none now. The lock is held.

        Raises:
            ReputClientError: the consumer has failed.
        """
        if self.is_closing:
            if self.failure is not None:
                raise self.failure
            return None
        before = self.cache.count
        held = self.cache.take(self.transport.now())
        if held is not None:
            self._pace.given(self.transport.now())
            message = held.message
            if self.tracer is not None and message.topic != self.tracer.topic:
                held.trace = self.tracer.began(message.message_id, message.keys, held.attempt - 1)
        if self.cache.count < before or self._pace.ahead_count:
            self._poll_all()  # messages whose time was over have left room, and one that was fetched ahead is gone
        return held

    def next_time(self) -> float | None:
        """When a message may come without a `wake`; None: never. The lock is held."""
        return self.cache.next_time()

    def _told(self, held: HeldMessage, code: ConsumeReturn) -> None:
        """Tell how the program ended with a message, once."""
        if self.tracer is not None and held.trace is not None and held.outcome is None:
            begin, held.trace = held.trace, None
            self.tracer.ended(begin, held.message.message_id, held.message.keys, code)

    def ack(self, held: HeldMessage) -> Any:
        """Say that a message is consumed; the future of that."""
        self._told(held, ConsumeReturn.SUCCESS)
        return self._settle(held, lambda: Order(held, Ending.ACK))

    def dead(self, held: HeldMessage) -> Any:
        """Move a message to the dead letters of its group; the future of that."""
        self._told(held, ConsumeReturn.FAILED)
        return self._settle(held, lambda: Order(held, Ending.DEAD, max_attempts=self.agreed.delivery_attempts_max))

    def nack(self, held: HeldMessage, seconds: float | None) -> Any:
        """Say that a message is not consumed; the future of that.

        It comes again after `seconds`, or the group's pause. In a FIFO group it waits here, and its message group with it,
        until it has had all its attempts and becomes a dead letter.
        """
        self._told(held, ConsumeReturn.EXCEPTION if held.handler_raised else ConsumeReturn.FAILED)
        with self.transport.lock:
            pause = self.agreed.pause_seconds(held.attempt) if seconds is None else max(0.0, seconds)
            if not self.cache.fifo:
                return self._settle(held, lambda: Order(held, Ending.AGAIN, seconds=pause))
            if held.attempt >= self.agreed.delivery_attempts_max:
                return self.dead(held)
            if held.outcome is not None:
                return held.outcome
            if self.is_closing:
                return self._settle(held, lambda: Order(held, Ending.AGAIN, seconds=pause))
            held.outcome = self.transport.future()
            held.outcome.set_result(None)
            self.cache.retry(held, self.transport.now() + pause)
            self.transport.wake()
            return held.outcome

    def _settle(self, held: HeldMessage, order: Callable[[], Order]) -> Any:
        with self.transport.lock:
            if held.outcome is None:
                held.outcome = self.transport.future()
                if self.is_closed:
                    held.outcome.set_exception(ConsumerClosedError("the consumer is closed: the message comes again"))
                else:
                    self._settler.add(order())
            return held.outcome

    def _order_settled(self, order: Order, error: ReputClientError | None) -> None:
        held = order.held
        if not held.is_gone:
            self.cache.settle(held, is_consumed=error is None and order.ending is not Ending.AGAIN)
        if held.outcome is not None and not held.outcome.done():
            if error is None:
                held.outcome.set_result(None)
            else:
                held.outcome.set_exception(error)
        self.transport.wake()
        self._poll_all()

    # -- ending

    def begin_close(self) -> None:
        """Poll no more, hand out nothing more. What was taken can still be settled."""
        with self.transport.lock:
            self._begin_close()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way any more, in either direction. The lock is held."""
        return not self._stopped_pollers and not self._settler.count

    def abandon(self) -> bool:
        """Nothing more can be said of messages: what the program has and did not settle comes again at once.

        What is hidden for a fixed time comes again at its end. Returns whether there is something to wait for.
        """
        with self.transport.lock:
            self.is_closed = True
            if self.settings.invisible_seconds is None:
                left = [held for held in self.cache.out if held.outcome is None]
                for held in left:
                    self._settler.add(Order(held, Ending.AGAIN))
                return bool(left)
            return False

    def terminate(self, seconds: float) -> None:
        """Tell the gateways that the client has ended; `is_terminated` says when they know."""
        with self.transport.lock:
            self._settler.is_over = True
            self.is_closed = True
            for link in self._links.values():
                link.close(seconds, self._ended)

    @property
    def is_terminated(self) -> bool:
        """Whether all gateways know that the client has ended, or could not be told. The lock is held."""
        return all(link.is_ended for link in self._links.values())

    def _ended(self) -> None:
        with self.transport.lock:
            self.transport.wake()

    def _begin_close(self) -> None:
        if self.is_closing:
            return
        self.is_closing = True
        for poller in self._pollers.values():
            self._stop(poller)
        self._pollers.clear()
        self._give_back()
        self.transport.wake()

    def _give_back(self) -> None:
        """Return the messages that wait here: they come again at once, as new ones if the program did not get them.

        Messages that the gateway renews are returned by it when it knows that the client has ended.
        """
        is_renewed = self.settings.invisible_seconds is None
        for held in self.cache.drain():
            if held.ends_at > self.transport.now() and (held.was_tried or not is_renewed):
                self._settler.add(Order(held, Ending.AGAIN, is_released=not held.was_tried))
