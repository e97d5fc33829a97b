"""The stall watch: ends calls whose callers do not take their answers or never send their request.

Theory of operation: in HTTP/2 a reader may be as slow as it likes. A handler that `yield`s an answer waits, with its thread and
with that answer in memory, until the reader has room for it. So the begin of each such wait is noted here. Four times a second
the watch cancels calls that have waited too long. A full lane may end its longest wait sooner (admission/lane.py). An append
stream that waits for its caller's next request is idle: a lane ends it when another client needs its place.

A cancelled reader sees CANCELLED, which our clients treat as "service unavailable, try again". A better error would not reach a
caller that does not read. Answers that fit into the caller's window (64 KiB or more) count as taken, because only the caller
can tell the difference, and they hold no thread.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from services.serving.admission.shares import Client, Shares
from services.serving.calls.open_work import Unanswered
from store.errors import StoreError

# An answer that is not taken for so long ends its call. Our own followers flush between two batches, which takes seconds.
ANSWER_SECONDS_MAX = 30.0
# The largest request needs half a minute at 1 Mbit/s.
REQUEST_SECONDS_MAX = 60.0
# Half requests are ended after a quarter of a second when others need their room (lanes.py).
TICK_SECONDS = 0.25

# For calls whose client does not matter.
NOBODY = Client("", "")

_log = structlog.get_logger("reput.rpc")


class Call(Protocol):
    """The part of a `grpc.ServicerContext` that the watch uses."""

    def cancel(self) -> object:
        """End the call at once."""

    def peer(self) -> str:
        """The caller's address."""


class Wait:
    """One call and the begin of its wait for its caller; made by `StallWatch.add`.

    Attributes:
        lane: the lane whose thread it holds.
        client: who calls.
        end_with: ends the stream with an error after the answers of what was taken; None: `cancel` is the only way.
        unanswered: the requests of an append stream; None for other calls, which are never idle.
        since: begin of the wait in seconds of the watch's clock; 0 while it does not wait.
    """

    __slots__ = (
        *("_clock", "_context", "_limit_seconds", "_method", "client", "end_with", "lane", "since"),
        "unanswered",
    )

    def __init__(self, lane: str, method: str, context: Call, clock: Callable[[], float], client: Client) -> None:
        self.lane = lane
        self.client = client
        self.end_with: Callable[[StoreError], None] | None = None
        self.unanswered: Unanswered | None = None
        self.since = 0.0
        self._method = method
        self._context = context
        self._clock = clock
        self._limit_seconds = ANSWER_SECONDS_MAX

    def begin(self, limit_seconds: float = ANSWER_SECONDS_MAX) -> None:
        """The call waits for its caller from now on."""
        self._limit_seconds = limit_seconds
        self.since = self._clock()

    def end(self) -> None:
        """The call does not wait any more."""
        self.since = 0.0

    def seconds(self, now: float) -> float:
        """The seconds that it has waited; 0 when it does not wait."""
        since = self.since
        return now - since if since else 0.0

    def idle_seconds(self) -> float:
        """How long an append stream has had no unanswered request; 0 for other calls, and while it has one."""
        return 0.0 if self.unanswered is None else self.unanswered.idle_seconds()

    def end_idle(self, refusal: StoreError) -> None:
        """End an idle stream: its caller may open another one."""
        _log.info(
            "rpc.idle_ended", method=self._method, peer=self._context.peer(), seconds=round(self.idle_seconds(), 1)
        )
        if self.end_with is not None:
            self.end_with(refusal)
        else:
            self._context.cancel()

    def is_too_long(self, now: float) -> bool:
        """Whether the wait is over its limit."""
        return self.seconds(now) > self._limit_seconds

    def cancel(self, why: str, now: float) -> None:
        """End the call."""
        _log.warning(
            "rpc.stalled", method=self._method, peer=self._context.peer(), seconds=round(self.seconds(now), 1), why=why
        )
        self._context.cancel()


class StallWatch:
    """All calls that may have to wait for their callers; thread-safe.

    Args:
        clock: seconds, rising, never 0.

    Attributes:
        ended_count: calls cancelled so far, by lane.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ended_count: dict[str, int] = {}
        self._clock = clock
        self._waits: set[Wait] = set()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, lane: str, method: str, context: Call, client: Client = NOBODY) -> Wait:
        """Note a call that will wait for its caller at times."""
        wait = Wait(lane, method, context, self._clock, client)
        with self._lock:
            self._waits.add(wait)
        return wait

    def remove(self, wait: Wait) -> None:
        """Forget a call that ended."""
        with self._lock:
            self._waits.discard(wait)

    def end_longest(self, lane: str, over_seconds: float) -> bool:
        """Cancel the lane's call that has waited longest, if longer than that; returns whether there was one."""
        now = self._clock()
        with self._lock:
            waits = [wait for wait in self._waits if wait.lane == lane and wait.seconds(now) > over_seconds]
            longest = max(waits, key=lambda wait: wait.seconds(now), default=None)
            if longest is None:
                return False
            self._forget(longest)
        longest.cancel("its place was needed", now)
        return True

    def end_idle(self, lane: str, over_seconds: float, newcomer: Client, held: Shares, refusal: StoreError) -> bool:
        """End the stream that is idle for longest, of the client that has most; returns whether there was one.

        Args:
            lane: whose streams.
            over_seconds: only what is idle for longer.
            newcomer: needs the place; it takes none from a client that has less than it has.
            held: what clients have.
            refusal: the status of the ended stream.
        """
        with self._lock:
            idle = [
                (held.weight(wait.client), seconds, wait)
                for wait in self._waits
                if wait.lane == lane and (seconds := wait.idle_seconds()) > over_seconds
            ]
            needs = held.weight(newcomer)
            idle = [row for row in idle if row[2].client == newcomer or row[0] > needs]
            longest = max(idle, key=lambda row: row[:2], default=None)
            if longest is None:
                return False
            self._forget(longest[2])
        longest[2].end_idle(refusal)
        return True

    def note_ended(self, lane: str, count: int) -> None:
        """Count calls that their lane has ended itself."""
        with self._lock:
            self.ended_count[lane] = self.ended_count.get(lane, 0) + count

    def end_overdue(self) -> None:
        """Cancel the calls that have waited too long."""
        now = self._clock()
        with self._lock:
            overdue = [wait for wait in self._waits if wait.is_too_long(now)]
            for wait in overdue:
                self._forget(wait)
        for wait in overdue:
            wait.cancel("its caller had its time", now)

    def start(self, *then: Callable[[], None]) -> None:
        """Start a thread that looks four times a second and then calls each of `then`."""
        self._thread = threading.Thread(target=self._run, args=then, name="stall-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop that thread."""
        self._stopping.set()

    def join(self, seconds_max: float) -> None:
        """Wait for its end."""
        if self._thread is not None:
            self._thread.join(seconds_max)

    def _run(self, *then: Callable[[], None]) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            for step in (self.end_overdue, *then):
                try:
                    step()
                except Exception:  # it would end the only thread that ends stalled calls
                    _log.exception("rpc.failed")

    def _forget(self, wait: Wait) -> None:
        self._waits.discard(wait)
        self.ended_count[wait.lane] = self.ended_count.get(wait.lane, 0) + 1
