"""The messages that a consumer holds: how many may be polled for, and which one is consumed next.

In a FIFO group, one message of each message group is out at a time. A failed one goes back to the head of its message group and
waits there; the others of the group wait behind it.

Pace: how many messages a consumer fetches ahead of its program.

What a process had fetched when it died counts as an attempt, because one of these messages may be what it died of. So nothing
is fetched ahead of a program that takes its time: a poll asks for as many messages as the program waits for, and costs such a
program little. A program that asks for the next message within QUICK_SECONDS, many times in a row, would wait for polls most of
its time; messages are fetched ahead of it, more with each quick one, and none soon after it slows down.
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

Lane = tuple[str, ...]


class Held:
    """A message that was received and is not settled.

    Attributes:
        message: the message.
        receipt_handle: names its delivery.
        target: the gateway that gave it.
        ends_at: when its time is over, on the transport's clock; it comes again then.
        attempt: which delivery this is; a local retry counts too.
        outcome: the future of its end, once somebody said what it shall be.
        is_gone: the cache does not hold it any more.
    """

    __slots__ = ("attempt", "ends_at", "is_gone", "message", "outcome", "receipt_handle", "target")

    def __init__(self, message: ReceivedMessage, receipt_handle: str, target: str, ends_at: float) -> None:
        self.message = message
        self.receipt_handle = receipt_handle
        self.target = target
        self.ends_at = ends_at
        self.attempt = message.delivery_attempt
        self.outcome: Any = None
        self.is_gone = False

    @property
    def was_tried(self) -> bool:
        """Whether the program had it before: it failed, and waits here to be tried again."""
        return self.attempt > self.message.delivery_attempt

    @property
    def size_bytes(self) -> int:
        """What it takes."""
        return len(self.message.body) + MESSAGE_OVERHEAD_BYTES

    @property
    def lane(self) -> Lane:
        """What keeps its order: its message group, or its queue when it has none."""
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
        self.out: set[Held] = set()  # of those: with handlers, or with their end on its way
        self._ready: deque[Held] = deque()
        self._lanes: dict[Lane, deque[Held]] = {}  # a lane is here while one of its messages is held
        self._free_lanes: deque[Lane] = deque()  # nothing of them is out
        self._pauses: list[tuple[float, int, Lane]] = []
        self._numbers = itertools.count()

    @property
    def taken_count(self) -> int:
        """How many are out."""
        return len(self.out)

    @property
    def ready_count(self) -> int:
        """How many can be taken now, at least nearly: those whose time is over are among them."""
        return len(self._ready) + len(self._free_lanes)

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

    def put(self, received: Iterable[Held]) -> None:
        """Messages have come, in order."""
        for held in received:
            self.count += 1
            self.size_bytes += held.size_bytes
            if not self.fifo:
                self._ready.append(held)
                continue
            lane = self._lanes.get(held.lane)
            if lane is None:
                lane = self._lanes[held.lane] = deque()
                self._free_lanes.append(held.lane)
            lane.append(held)

    def take(self, now: float) -> Held | None:
        """The next message to be consumed; None when there is none now."""
        while self._ready:
            held = self._ready.popleft()
            if held.ends_at > now:
                self.out.add(held)
                return held
            self._forget(held)
        while self._pauses and self._pauses[0][0] <= now:
            self._free_lanes.append(heapq.heappop(self._pauses)[2])
        while self._free_lanes:
            name = self._free_lanes.popleft()
            held = self._lanes[name].popleft()
            if held.ends_at > now:
                self.out.add(held)
                return held
            self._forget(held)
            self._drop_lane(name)  # it comes again, and the others behind it
        return None

    def next_time(self) -> float | None:
        """When a message comes out of its pause; None when none waits."""
        return self._pauses[0][0] if self._pauses else None

    def retry(self, held: Held, at: float) -> None:
        """A message of a FIFO group failed: it is the next one of its message group, at that time."""
        self.out.discard(held)
        held.is_gone = True
        again = Held(
            held.message, held.receipt_handle, held.target, held.ends_at
        )  # what is said of the old one is past
        again.attempt = held.attempt + 1
        self._lanes[held.lane].appendleft(again)
        heapq.heappush(self._pauses, (at, next(self._numbers), held.lane))

    def settle(self, held: Held, *, is_consumed: bool) -> None:
        """A message that was taken is done with; if not consumed, it comes again, and in a FIFO group those behind it too."""
        self.out.discard(held)
        self._forget(held)
        lane = self._lanes.get(held.lane)
        if lane is None:
            return
        if is_consumed and lane:
            self._free_lanes.append(held.lane)
        else:
            self._drop_lane(held.lane)

    def drain(self) -> list[Held]:
        """Every message that is not out; they are not held any more."""
        left = [*self._ready, *(held for lane in self._lanes.values() for held in lane)]
        self._ready.clear()
        self._free_lanes.clear()
        self._pauses.clear()
        for lane in self._lanes.values():
            lane.clear()
        for held in left:
            self._forget(held)
        return left

    def _drop_lane(self, name: Lane) -> None:
        for held in self._lanes.pop(name):
            self._forget(held)

    def _forget(self, held: Held) -> None:
        held.is_gone = True
        self.count -= 1
        self.size_bytes -= held.size_bytes


# A poll takes some milliseconds: less than a tenth of this.
QUICK_SECONDS = 0.05
# Quick ones in a row before a message is fetched ahead; each one more fetches AHEAD_STEP more.
QUICK_COUNT_MIN = 32
AHEAD_STEP = 4
# Quick ones that are remembered: two slow ones halve it twice, and then nothing is fetched ahead.
QUICK_COUNT_MAX = 63
# By default: two answers of a poll.
AHEAD_COUNT_MAX = 64

# Of the running thread or task: for which Pace it got a message last, and when.
_given: ContextVar[tuple[object, float | None]] = ContextVar("reput_client_given")


class Pace:
    """Of one consumer. Its caller locks.

    Args:
        ahead_count_max: fetched ahead at most.
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
        """The running thread or task asks for a message. One that is new, or has several consumers, goes by all of them."""
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
