"""The messages that a consumer holds, and how many it fetches ahead of its program.

In a FIFO group, one message of each message group is out at a time. A failed one goes back to the head of its message group and
waits there; the others of the group wait behind it.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from reput_client.consuming.received_message import ReceivedMessage

# What a message takes here besides its body: its objects and its place in lists.
MESSAGE_OVERHEAD_BYTES = 1024

# The messages of one key are consumed in order.
OrderKey = tuple[str, ...]


class HeldMessage:
    """A message that was received and is not settled.

    Attributes:
        message: the message.
        receipt_handle: names its delivery.
        target: the gateway that gave it.
        ends_at: when its time is over, on the transport's clock; it comes again then.
        attempt: which delivery this is; a local retry counts too.
        outcome: the future of its acknowledgement or return; None until the program has decided.
        is_gone: the cache does not hold it any more.
        trace: what its trace began with; None: none did.
        handler_raised: whether its handler raised an error.
    """

    __slots__ = (
        *("attempt", "ends_at", "handler_raised", "is_gone", "message", "outcome", "receipt_handle", "target", "trace"),
    )

    def __init__(self, message: ReceivedMessage, receipt_handle: str, target: str, ends_at: float) -> None:
        self.message = message
        self.receipt_handle = receipt_handle
        self.target = target
        self.ends_at = ends_at
        self.attempt = message.delivery_attempt
        self.outcome: Any = None
        self.is_gone = False
        self.trace: tuple[str, int] | None = None
        self.handler_raised = False

    @property
    def was_tried(self) -> bool:
        """Whether the program had it before: it failed, and waits here to be tried again."""
        return self.attempt > self.message.delivery_attempt

    @property
    def size_bytes(self) -> int:
        """Bytes that it takes in the cache."""
        return len(self.message.body) + MESSAGE_OVERHEAD_BYTES

    @property
    def order_key(self) -> OrderKey:
        """Its message group, or its queue when it has none: the messages of one key are consumed in order."""
        message = self.message
        if message.message_group:
            return message.topic, message.message_group
        return message.topic, message.broker_name, str(message.queue_id), ""


class Cache:
    """The messages of one consumer. Its caller locks.

    Args:
        count_max: messages held, and asked for.
        bytes_max: bytes held beyond which no poll begins.
        batch_count_max: messages of a poll.
    """

    def __init__(self, count_max: int, bytes_max: int, batch_count_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._batch_count_max = batch_count_max
        self.fifo = False
        self.count = 0
        self.size_bytes = 0
        self.reserved_count = 0
        self.out: set[HeldMessage] = set()  # of those: with handlers, or with their end on its way
        self._ready: deque[HeldMessage] = deque()
        self._queues: dict[OrderKey, deque[HeldMessage]] = {}  # a queue is here while one of its messages is held
        self._free_keys: deque[OrderKey] = deque()  # nothing of them is out
        self._pauses: list[tuple[float, int, OrderKey]] = []
        self._numbers = itertools.count()

    @property
    def taken_count(self) -> int:
        """Messages that the program has."""
        return len(self.out)

    @property
    def ready_count(self) -> int:
        """Messages that can be taken now; those whose time is over are counted too."""
        return len(self._ready) + len(self._free_keys)

    def reserve(self, poller_count: int, wanted_count: int) -> int:
        """How many messages a poll may ask for, which are kept free until `release`; 0: none now.

        Each poller has its share of the room, so those that wait for messages cannot keep it from the others.

        Args:
            poller_count: how many pollers there are.
            wanted_count: how many messages are wanted, whichever poller gets them.
        """
        if self.size_bytes >= self._bytes_max:
            return 0
        share = max(1, self._count_max // max(1, poller_count))
        count = min(wanted_count, self._batch_count_max, share, self._count_max - self.count - self.reserved_count)
        if count <= 0:
            return 0
        self.reserved_count += count
        return count

    def release(self, count: int) -> None:
        """A poll has ended that `reserve` gave room."""
        self.reserved_count -= count

    def put(self, received: Iterable[HeldMessage]) -> None:
        """Messages have come, in order."""
        for held in received:
            self.count += 1
            self.size_bytes += held.size_bytes
            if not self.fifo:
                self._ready.append(held)
                continue
            queue = self._queues.get(held.order_key)
            if queue is None:
                queue = self._queues[held.order_key] = deque()
                self._free_keys.append(held.order_key)
            queue.append(held)

    def take(self, now: float) -> HeldMessage | None:
        """The next message to be consumed; None when there is none now."""
        while self._ready:
            held = self._ready.popleft()
            if held.ends_at > now:
                self.out.add(held)
                return held
            self._forget(held)
        while self._pauses and self._pauses[0][0] <= now:
            self._free_keys.append(heapq.heappop(self._pauses)[2])
        while self._free_keys:
            name = self._free_keys.popleft()
            held = self._queues[name].popleft()
            if held.ends_at > now:
                self.out.add(held)
                return held
            self._forget(held)
            self._drop_queue(name)  # it comes again, and the others behind it
        return None

    def next_time(self) -> float | None:
        """When a message comes out of its pause; None when none waits."""
        return self._pauses[0][0] if self._pauses else None

    def retry(self, held: HeldMessage, at: float) -> None:
        """A message of a FIFO group failed: it is the next one of its message group, at that time."""
        self.out.discard(held)
        held.is_gone = True
        again = HeldMessage(
            held.message, held.receipt_handle, held.target, held.ends_at
        )  # what is said of the old one is past
        again.attempt = held.attempt + 1
        self._queues[held.order_key].appendleft(again)
        heapq.heappush(self._pauses, (at, next(self._numbers), held.order_key))

    def settle(self, held: HeldMessage, *, is_consumed: bool) -> None:
        """A message that was taken is done with; if not consumed, it comes again, and in a FIFO group those behind it too."""
        self.out.discard(held)
        self._forget(held)
        queue = self._queues.get(held.order_key)
        if queue is None:
            return
        if is_consumed and queue:
            self._free_keys.append(held.order_key)
        else:
            self._drop_queue(held.order_key)

    def drain(self) -> list[HeldMessage]:
        """Every message that is not out; they are not held any more."""
        left = [*self._ready, *(held for queue in self._queues.values() for held in queue)]
        self._ready.clear()
        self._free_keys.clear()
        self._pauses.clear()
        for queue in self._queues.values():
            queue.clear()
        for held in left:
            self._forget(held)
        return left

    def _drop_queue(self, name: OrderKey) -> None:
        for held in self._queues.pop(name):
            self._forget(held)

    def _forget(self, held: HeldMessage) -> None:
        held.is_gone = True
        self.count -= 1
        self.size_bytes -= held.size_bytes


# A poll takes some milliseconds: less than a tenth of this.
QUICK_SECONDS = 0.05
# Quick requests in a row before a message is fetched ahead; each further one fetches AHEAD_STEP more.
QUICK_COUNT_MIN = 32
AHEAD_STEP = 4
# Quick requests that are remembered: two slow ones halve the number twice, and then nothing is fetched ahead.
QUICK_COUNT_MAX = 63
# By default: two answers of a poll.
AHEAD_COUNT_MAX = 64

# Of the running thread or task: the Pace for which it got its last message, and when.
_given: ContextVar[tuple[object, float | None]] = ContextVar("reput_client_given")


class Pace:
    """How many messages one consumer fetches ahead of its program. Its caller locks.

    A process may have died of one of the messages that it had fetched, so each of them counts as an attempt. Therefore nothing
    is fetched ahead of a slow program: a poll asks for as many messages as the program waits for, which costs it little. A
    program that asks for the next message within QUICK_SECONDS, many times in a row, would wait for polls most of its time:
    messages are fetched ahead of it, more with each quick request, and none soon after it slows down.

    Args:
        ahead_count_max: messages fetched ahead at most.
    """

    def __init__(self, ahead_count_max: int = AHEAD_COUNT_MAX) -> None:
        self._ahead_count_max = ahead_count_max
        self._quick_count = 0
        self._newest_at: float | None = None

    @property
    def ahead_count(self) -> int:
        """Messages that may lie ready beside those that are waited for."""
        return min(self._ahead_count_max, max(0, self._quick_count - QUICK_COUNT_MIN + 1) * AHEAD_STEP)

    def given(self, now: float) -> None:
        """The running thread or task got a message."""
        _given.set((self, now))
        self._newest_at = now

    def asked(self, now: float) -> None:
        """The running thread or task asks for a message. For a new one, the last message of any thread counts."""
        pace, given_at = _given.get((None, None))
        since = given_at if pace is self else self._newest_at
        if since is None:
            return  # it got none since it asked
        _given.set((self, None))
        self._newest_at = None
        if now - since <= QUICK_SECONDS:
            self._quick_count = min(self._quick_count + 1, QUICK_COUNT_MAX)
        else:
            self._quick_count //= 2
