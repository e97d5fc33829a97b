"""Settling: acknowledgements and the like on their way to the gateway, batched, and tried until their time is over."""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.cache import HeldMessage
from reput_client.consuming.refusals import error_of
from reput_client.consuming.transport import Transport
from reput_client.errors import ReputClientError, is_worth_retrying
from reput_client.retry import RetryPolicy

ACK_COUNT_MAX = 256


class Ending(Enum):
    """How a delivery ends; the values are the RPCs that end it so."""

    ACK = "AckMessage"
    AGAIN = "ChangeInvisibleDuration"
    DEAD = "ForwardMessageToDeadLetterQueue"


class Order:
    """One message's end.

    Attributes:
        held: the message.
        ending: how its delivery ends.
        seconds: of AGAIN: when it comes again.
        is_released: of AGAIN: the program did not get it, so this delivery does not count as an attempt.
        max_attempts: of DEAD: of its group.
        failure_count: attempts that failed.
    """

    __slots__ = ("ending", "failure_count", "held", "is_released", "max_attempts", "seconds")

    def __init__(
        self,
        held: HeldMessage,
        ending: Ending,
        *,
        seconds: float = 0.0,
        is_released: bool = False,
        max_attempts: int = 0,
    ) -> None:
        self.held = held
        self.ending = ending
        self.seconds = seconds
        self.is_released = is_released
        self.max_attempts = max_attempts
        self.failure_count = 0


# Gateway, shard and topic.
Route = tuple[str, str, str]
# Called with the lock held when an order has its outcome.
Settled = Callable[[Order, ReputClientError | None], None]


class Settler:
    """Sends orders. One request at a time for each shard and topic, so what comes meanwhile shares the next one.

    Args:
        transport: makes the calls.
        consumer_group: the group.
        request_seconds: limit of a call.
        retry: the pauses.
        settled: told the outcomes.
    """

    def __init__(
        self, transport: Transport, consumer_group: str, request_seconds: float, retry: RetryPolicy, settled: Settled
    ) -> None:
        self._transport = transport
        self._group = v2.Resource(name=consumer_group)
        self._request_seconds = request_seconds
        self._retry = retry
        self._settled = settled
        self._waiting: dict[Route, deque[Order]] = {}
        self._busy: set[Route] = set()
        self.count = 0
        self.is_over = False

    def add(self, order: Order) -> None:
        """Send an order, now or soon. The lock is held."""
        held = order.held
        route = held.target, held.message.broker_name, held.message.topic
        self.count += 1
        self._waiting.setdefault(route, deque()).append(order)
        self._send(route)

    def _send(self, route: Route) -> None:
        waiting = self._waiting.get(route)
        if route in self._busy or not waiting or self.is_over:
            return
        self._busy.add(route)
        orders = [waiting.popleft()]
        if orders[0].ending is Ending.ACK:
            while waiting and waiting[0].ending is Ending.ACK and len(orders) < ACK_COUNT_MAX:
                orders.append(waiting.popleft())
        request = request_of(orders, self._group)

        def done(answer: Any) -> None:
            with self._transport.lock:
                self._answered(route, orders, answer)

        self._transport.call(route[0], orders[0].ending.value, request, self._request_seconds, done)

    def _answered(self, route: Route, orders: Sequence[Order], answer: Any) -> None:
        self._busy.discard(route)
        failed: list[Order] = []
        for order, error in zip(orders, errors_of(answer, len(orders)), strict=True):
            if error is None or self._is_final(order, error):
                self.count -= 1
                self._settled(order, error)
            else:
                order.failure_count += 1
                failed.append(order)
        if failed:
            pause = self._retry.pause_seconds(min(order.failure_count for order in failed))
            self._transport.later(pause, lambda: self._again(route, failed))
        self._send(route)

    def _again(self, route: Route, orders: Sequence[Order]) -> None:
        with self._transport.lock:
            self._waiting.setdefault(route, deque()).extend(orders)
            self._send(route)

    def _is_final(self, order: Order, error: ReputClientError) -> bool:
        return self.is_over or not is_worth_retrying(error) or self._transport.now() >= order.held.ends_at


def request_of(orders: Sequence[Order], group: v2.Resource) -> Any:
    """One order as a request; several acknowledgements as one."""
    order = orders[0]
    topic, held = v2.Resource(name=order.held.message.topic), order.held
    if order.ending is Ending.ACK:
        entries = [
            v2.AckMessageEntry(message_id=each.held.message.message_id, receipt_handle=each.held.receipt_handle)
            for each in orders
        ]
        return v2.AckMessageRequest(group=group, topic=topic, entries=entries)
    if order.ending is Ending.AGAIN:
        change = v2.ChangeInvisibleDurationRequest(
            group=group, topic=topic, receipt_handle=held.receipt_handle, message_id=held.message.message_id
        )
        change.invisible_duration.FromMilliseconds(int(order.seconds * 1000))
        if order.is_released:
            change.suspend = True
        return change
    return v2.ForwardMessageToDeadLetterQueueRequest(
        group=group,
        topic=topic,
        receipt_handle=held.receipt_handle,
        message_id=held.message.message_id,
        delivery_attempt=held.attempt,
        max_delivery_attempts=order.max_attempts,
    )


def errors_of(answer: Any, count: int) -> Sequence[ReputClientError | None]:
    """The error of each of so many orders in an answer; None: it is carried out."""
    if isinstance(answer, ReputClientError):
        return [answer] * count
    if isinstance(answer, v2.AckMessageResponse) and len(answer.entries) == count:
        return [error_of(entry.status) for entry in answer.entries]
    return [error_of(answer.status)] * count
