"""One queue of a pull consumer: what was fetched and not polled, and the positions that follow from it."""

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.querying.message import Message


class PullQueue:
    """See the top of this file. Its caller locks.

    Attributes:
        queue: its name.
        next_offset: where fetching goes on.
        done_offset: everything before it is processed.
        committed_offset: the position that the gateway has; None: none.
        is_paused: it is neither fetched nor polled.
        is_removed: this member does not have it any more.
        is_leaving: another member gets it when what was polled is processed; nothing further is polled.
        is_polled: something was polled and is not processed.
        locked_until: of an ordered consumer: after it, another member may have it (seconds of the clock).
        suspended_until: before it, nothing is polled (seconds of the clock).
        generation: a batch that was asked for in an earlier one is dropped.
        call: the fetch under way.
    """

    def __init__(
        self, queue: MessageQueue, offset: int, committed_offset: int | None, settings: PullConsumerSettings
    ) -> None:
        self.queue = queue
        self.next_offset = offset
        self.done_offset = offset
        self.committed_offset = committed_offset
        self.is_paused = False
        self.is_removed = False
        self.is_leaving = False
        self.is_polled = False
        self.locked_until = math.inf
        self.suspended_until = 0.0
        self.generation = 0
        self.call: Any = None
        self._settings = settings
        self._fetched: deque[Message] = deque()
        self.size_bytes = 0
        # A batch never asks for more than the cache holds.
        self.batch_count = min(settings.batch_count_max, settings.cache_count_max)
        self.batch_bytes = min(settings.batch_bytes_max, settings.cache_bytes_max)

    @property
    def count(self) -> int:
        """Messages that are fetched and not polled."""
        return len(self._fetched)

    @property
    def span(self) -> int:
        """Positions from the first of them to the last."""
        return self._fetched[-1].queue_offset - self._fetched[0].queue_offset if self._fetched else 0

    @property
    def position(self) -> int:
        """Everything before it was polled, or did not match."""
        return self._fetched[0].queue_offset if self._fetched else self.next_offset

    @property
    def may_fetch(self) -> bool:
        """Whether another batch fits."""
        settings = self._settings
        return (
            not self.is_paused
            and not self.is_removed
            and not self.is_leaving
            and self.count + self.batch_count <= settings.cache_count_max
            and self.size_bytes + self.batch_bytes <= settings.cache_bytes_max
            and self.span <= settings.cache_span_max
        )

    def add(self, messages: Iterable[Message], next_offset: int) -> None:
        """A batch has come."""
        for message in messages:
            self._fetched.append(message)
            self.size_bytes += len(message.stored_body)
        self.next_offset = next_offset

    def may_give(self, now: float) -> bool:
        """Whether messages may be polled at a time of the clock."""
        return not self.is_paused and not self.is_leaving and self.suspended_until <= now < self.locked_until

    def take(self, count: int) -> list[Message]:
        """At most so many messages, in order."""
        if self.is_paused or self.is_leaving:
            return []
        taken = [self._fetched.popleft() for _ in range(min(count, len(self._fetched)))]
        self.size_bytes -= sum(len(message.stored_body) for message in taken)
        self.is_polled = self.is_polled or bool(taken)
        return taken

    def finish(self) -> None:
        """What was polled is processed."""
        self.done_offset = self.position
        self.is_polled = False

    def seek(self, offset: int) -> None:
        """Go on at another position."""
        self._refetch(offset)
        self.done_offset = offset
        self.is_polled = False

    def suspend(self, until: float) -> None:
        """What was polled and is not processed is polled again after a time of the clock."""
        self.suspended_until = until
        self.seek(self.done_offset)

    def leave(self) -> None:
        """Another member gets it when what was polled is processed."""
        self.is_leaving = True
        self._refetch(self.position)

    def _refetch(self, offset: int) -> None:
        self._fetched.clear()
        self.size_bytes = 0
        self.generation += 1
        self.next_offset = offset
        self.cancel()

    def remove(self) -> None:
        """Another member has it from now on."""
        self.is_removed = True
        self._fetched.clear()
        self.size_bytes = 0
        self.cancel()

    def cancel(self) -> None:
        """End the fetch under way."""
        if self.call is not None:
            self.call.cancel()
