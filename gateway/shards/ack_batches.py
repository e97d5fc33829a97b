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

from gateway.ports.delivery import Then
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import DeadlineExceededError, StoreError

# What one AckMessages of the consumer service may name.
HANDLE_COUNT_MAX = 1_024

Send: TypeAlias = Callable[[pb.AckMessagesRequest, float, Then[pb.AckMessagesResponse]], object]


@dataclass(frozen=True, slots=True)
class _Ack:
    """What one caller acknowledges."""

    request: pb.AckMessagesRequest
    deadline: float
    then: Then[pb.AckMessagesResponse]


class AckBatches:
    """The acknowledgements of one shard; thread-safe.

    Args:
        send: makes one call: request, seconds, and what gets its outcome once.
        clock: seconds, rising.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send_call = send
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[_Ack]] = {}  # of groups with a call under way

    def ack(self, request: pb.AckMessagesRequest, seconds: float, then: Then[pb.AckMessagesResponse]) -> None:
        """Acknowledge at most HANDLE_COUNT_MAX deliveries; an outcome for each handle."""
        ack = _Ack(request, self._clock() + seconds, then)
        with self._lock:
            waiting = self._waiting.get(request.consumer_group)
            if waiting is not None:
                waiting.append(ack)
                return
            self._waiting[request.consumer_group] = deque()
        self._send([ack])

    def _send(self, acks: Sequence[_Ack]) -> None:
        request = acks[0].request
        if len(acks) > 1:
            handles = [handle for ack in acks for handle in ack.request.receipt_handles]
            request = pb.AckMessagesRequest(consumer_group=request.consumer_group, receipt_handles=handles)
        seconds = max(ack.deadline for ack in acks) - self._clock()

        def done(outcome: pb.AckMessagesResponse | StoreError) -> None:
            self._send_waiting(request.consumer_group)
            if len(acks) == 1 or isinstance(outcome, StoreError):
                for ack in acks:
                    ack.then(outcome)
                return
            begin = 0
            for ack in acks:
                end = begin + len(ack.request.receipt_handles)
                ack.then(pb.AckMessagesResponse(outcomes=outcome.outcomes[begin:end]))
                begin = end

        self._send_call(request, seconds, done)

    def _send_waiting(self, consumer_group: str) -> None:
        """Send what has come meanwhile; the call before has ended."""
        now = self._clock()
        late: list[_Ack] = []
        taken: list[_Ack] = []
        count = 0
        with self._lock:
            waiting = self._waiting[consumer_group]
            while waiting and count + len(waiting[0].request.receipt_handles) <= HANDLE_COUNT_MAX:
                ack = waiting.popleft()
                if ack.deadline <= now:
                    late.append(ack)
                else:
                    taken.append(ack)
                    count += len(ack.request.receipt_handles)
            if not taken:
                del self._waiting[consumer_group]
        if taken:
            self._send(taken)
        for ack in late:
            ack.then(DeadlineExceededError("no time was left to acknowledge: allow more time", service="consumer"))
