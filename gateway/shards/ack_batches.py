"""AckBatches: acknowledgements that arrive while an earlier one of their group is under way are sent together.

Push consumers acknowledge message by message. A call of its own for each would cost more than the delivery; what was sent
together is one change in the log. One acknowledgement alone is sent at once.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.ports.delivery import AckOutcome, Then
from store.errors import DeadlineExceededError, StoreError

# What one AckMessages of the consumer service may name.
HANDLE_COUNT_MAX = 1_024

Send: TypeAlias = Callable[[str, Sequence[str], float, Then[Sequence[AckOutcome]]], object]


@dataclass(frozen=True, slots=True)
class _Ack:
    """What one caller acknowledges."""

    handles: Sequence[str]
    deadline: float
    then: Then[Sequence[AckOutcome]]


class AckBatches:
    """The acknowledgements of one shard; thread-safe.

    Args:
        send: makes one call: group, handles, seconds, and what gets its outcome once.
        clock: seconds, rising.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send_call = send
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Ack]] = {}  # of groups with a call under way

    def ack(
        self, consumer_group: str, handles: Sequence[str], seconds: float, then: Then[Sequence[AckOutcome]]
    ) -> None:
        """Acknowledge at most HANDLE_COUNT_MAX deliveries; an outcome for each handle."""
        ack = _Ack(handles, self._clock() + seconds, then)
        with self._lock:
            waiting = self._waiting.get(consumer_group)
            if waiting is not None:
                waiting.append(ack)
                return
            self._waiting[consumer_group] = deque()
        self._send(consumer_group, [ack])

    def _send(self, consumer_group: str, acks: Sequence[_Ack]) -> None:
        handles = [handle for ack in acks for handle in ack.handles]
        seconds = max(ack.deadline for ack in acks) - self._clock()

        def done(outcome: Sequence[AckOutcome] | StoreError) -> None:
            self._send_waiting(consumer_group)
            begin = 0
            for ack in acks:
                end = begin + len(ack.handles)
                ack.then(outcome if isinstance(outcome, StoreError) else outcome[begin:end])
                begin = end

        self._send_call(consumer_group, handles, seconds, done)

    def _send_waiting(self, consumer_group: str) -> None:
        """Send what has come meanwhile; the call before has ended."""
        now = self._clock()
        late: list[_Ack] = []
        taken: list[_Ack] = []
        count = 0
        with self._lock:
            waiting = self._waiting[consumer_group]
            while waiting and count + len(waiting[0].handles) <= HANDLE_COUNT_MAX:
                ack = waiting.popleft()
                if ack.deadline <= now:
                    late.append(ack)
                else:
                    taken.append(ack)
                    count += len(ack.handles)
            if not taken:
                del self._waiting[consumer_group]
        if taken:
            self._send(consumer_group, taken)
        for ack in late:
            ack.then(DeadlineExceededError("no time was left to acknowledge: allow more time", service="consumer"))
