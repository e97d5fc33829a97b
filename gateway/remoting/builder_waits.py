"""BuilderWaits: requests that wait while the queues or the index are behind the log.

    request ──▶ a thread looks ──▶ answered
                    ▲    │ behind, LOOK_SECONDS later too: the request leaves its thread
                    │    ▼
                    └── a timer, after PAUSE_SECONDS; until WAIT_SECONDS_MAX after the request came

RocketMQ's clients do not repeat such a request after a refusal, and a new group begins where its answer says: one that is too
early has the group skip a message. When its time is over, a request is answered with what is built, or refused where that could
be wrong.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from gateway.delivery.timers import Timers
from gateway.ports.deadline import Deadline
from gateway.ports.shard import IS_WRITTEN_AT, LOG_END, Shard, queues_progress
from gateway.remoting.door import Answer, Ask
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from services.serving.admission.shares import Shares
from store.errors import ServiceUnavailableError

# Clients wait 3 to 6 s for such an answer.
WAIT_SECONDS_MAX = 2.0
# A message is in its queue some 15 ms after its append.
LOOK_SECONDS = 0.05
PAUSE_SECONDS = 0.05
# Of the calls of one look.
CALL_SECONDS = 3.0
# Requests between two looks. One beyond its client's share is answered as if its time were over.
WAITING_COUNT_MAX = 2_048
BUILDERS = frozenset(("consumequeue", "index"))


class Arrival:
    """What the log had when a request came; for one request.

    Args:
        shard: gives the shard, without the limits of a caller.
        ends_at: until when the request waits, on the clock.
        clock: seconds, rising.

    Attributes:
        gives_up: its time is over, or there is no place to wait.
    """

    def __init__(self, shard: Callable[[], Shard], ends_at: float, clock: Callable[[], float]) -> None:
        self.gives_up = False
        self._shard = shard
        self._ends_at = ends_at
        self._clock = clock
        self._end_offset: int | None = None
        self._is_built = False

    @property
    def may_wait(self) -> bool:
        """Whether there is time for another look."""
        return not self.gives_up and self._clock() < self._ends_at

    def wait_for_queues(self) -> None:
        """Returns when the queues have what the log had, or when the time is over; see `require_queues`."""
        if self.may_wait:
            self.require_queues()

    def require_queues(self) -> None:
        """Returns when the queues have what the log had.

        Raises:
            ServiceUnavailableError: they are behind it; `BuilderWaits` looks again later, unless the time is over.
        """
        if not self._is_built:
            self._is_built = self._look()
        if not self._is_built:
            raise ServiceUnavailableError(
                "the queues do not have the newest messages of the log yet: ask again", service="consumequeue"
            )

    def _look(self) -> bool:
        shard, within = self._shard(), Deadline.after(CALL_SECONDS)
        if not shard.has(LOG_END):
            return not queues_progress(shard, within).is_behind
        if self._end_offset is None:
            seen_offset = queues_progress(shard, within).next_offset
            if shard.call(IS_WRITTEN_AT, seen_offset, within) is False:
                return True
            self._end_offset = shard.call(LOG_END, log_pb.GetStatusRequest(flush_soon=True), within)
            if self._end_offset is None:  # the log is being recovered
                return False
            if seen_offset >= self._end_offset:
                return True
        # The service answers as soon as it is past that byte.
        return queues_progress(shard, within, self._end_offset - 1, LOOK_SECONDS).next_offset >= self._end_offset


Work: TypeAlias = Callable[[Arrival], Answer | None]


class BuilderWaits:
    """See the top of this file; thread-safe.

    Args:
        timers: have a request look again.
        clock: seconds, rising; that of the timers.
        waiting_count_max: requests between two looks.
    """

    def __init__(
        self,
        timers: Timers,
        clock: Callable[[], float] = time.monotonic,
        waiting_count_max: int = WAITING_COUNT_MAX,
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._lock = threading.Lock()
        self._places = Shares(waiting_count_max)

    def work(self, ask: Ask, shard: Callable[[], Shard], work: Work) -> None:
        """As `Ask.work`; a refusal because a builder is behind has the work done again, while there is time.

        Args:
            ask: the request.
            shard: gives the shard, without the limits of a caller.
            work: gets what the log had when the request came; it may run several times.
        """
        arrival = Arrival(shard, self._clock() + WAIT_SECONDS_MAX, self._clock)

        def look() -> Answer | None:
            try:
                return work(arrival)
            except ServiceUnavailableError as error:
                if error.metadata.get("service") not in BUILDERS or not arrival.may_wait:
                    raise
            if self._waits(ask, arrival, look):
                return None
            arrival.gives_up = True
            return work(arrival)

        ask.work(look)

    def _waits(self, ask: Ask, arrival: Arrival, look: Callable[[], Answer | None]) -> bool:
        """Have it look again after a pause; False: there is no place."""
        with self._lock:
            if not self._places.has_room(ask.caller):
                return False
            self._places.take(ask.caller)

        def again() -> None:
            with self._lock:
                self._places.give_back(ask.caller)
            ask.work(look)

        self._timers.set(arrival, self._clock() + PAUSE_SECONDS, again)
        return True
