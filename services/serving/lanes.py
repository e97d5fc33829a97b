"""Lanes: each kind of call has threads of its own, so no kind can starve another. services/methods.py names each RPC's lane.

    lane        calls                                threads        waiting  why
    health      grpc.health.v1                       4              256      answers when all others are full
    reflection  grpc.reflection                      4              0        a stream holds a thread; only tools use it
    calls       one request, one answer              worker_count   1,024    short; a burst may wait for its turn
    streams     append streams                       worker_count   0        a stream holds a thread as long as it lasts
    downloads   streams that end by themselves       4              64       each holds one body, at most 4 MiB
    tails       Reput                                16             0        each holds one batch, at most 256 KiB
    sessions    Telemetry of RocketMQ's clients      256            0        one a client, idle: a thread costs 30 KiB

A full lane with no waiting room refuses at once with ResourceBusyError (RESOURCE_EXHAUSTED with RetryInfo). Before a call is
refused or has to wait longer, the lane ends the call that has waited longest for its own caller, if that is more than 5 s
(services/serving/stall_watch.py). So a follower that returns never waits for readers that sleep.

gRPC's own `maximum_concurrent_rpcs` is not used: it would also refuse health checks, without our ErrorInfo. A lane is an
executor. gRPC takes the executor of a method from an attribute of its handler, and submits from one thread, right after the
interceptor has called `admits`. A call with one request has a place from its beginning, and a thread after its request has
arrived (services/serving/unary_call.py).
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from services.methods import LaneName
from services.serving.stall_watch import REQUEST_SECONDS_MAX, StallWatch
from services.serving.unary_call import UnaryCall
from store.errors import ResourceBusyError

HEALTH_COUNT_MAX = 4
HEALTH_WAITING_COUNT_MAX = 256
REFLECTION_COUNT_MAX = 4
CALL_WAITING_COUNT_MAX = 1_024
DOWNLOAD_COUNT_MAX = 4  # times a body of 4 MiB, of which there are three copies while it is fetched
DOWNLOAD_WAITING_COUNT_MAX = 64
TAIL_COUNT_MAX = 16  # times 1.5 MiB, measured with sleeping readers and the widest batches
SESSION_COUNT_MAX = 256
# A caller that has not taken an answer for so long loses its place to a call that needs it.
EVICT_SECONDS = 5.0
# In lanes without waiting room: threads for calls that got the place of a call that is still ending.
SPARE_COUNT = 4
REFUSAL_THREAD_COUNT = 2

Result = TypeVar("Result")
# gRPC wants a future for each call and looks only at whether it is done. Our unary calls signal their end elsewhere.
UNDER_WAY: futures.Future[Any] = futures.Future()
UNDER_WAY.set_result(None)


class Lane(futures.ThreadPoolExecutor):
    """The threads of one kind of call.

    Args:
        name: stands in errors, logs and metrics.
        place_count: calls worked on at the same time.
        waiting_count_max: calls that may wait for a place.
        watch: knows which calls wait for their callers.

    Attributes:
        refused_count: calls refused so far.
    """

    def __init__(self, name: str, place_count: int, waiting_count_max: int, watch: StallWatch) -> None:
        spare_count = 0 if waiting_count_max else SPARE_COUNT
        super().__init__(place_count + spare_count, thread_name_prefix=f"rpc-{name}")
        self.name = name
        self.refused_count = 0
        self._spare_count = spare_count
        self._place_count = place_count
        self._call_count_max = place_count + waiting_count_max
        self._watch = watch
        self._count = 0
        self._unary_count = 0
        self._ending_count = 0  # calls that were ended to make room and still have their threads
        self._waiting: deque[UnaryCall] = deque()
        self._count_lock = threading.Lock()

    @property
    def call_count(self) -> int:
        """Calls that run or wait now."""
        return self._count

    def admits(self) -> bool:
        """Whether one more call may be submitted; counts a refusal."""
        if self._count < self._place_count:
            return True
        has_room = self._count < self._call_count_max
        has_thread = self._count < self._call_count_max + self._spare_count
        if has_thread and self._end_longest():
            has_room = True
        if not has_room:
            self.refused_count += 1
        return has_room

    def make_room(self) -> None:
        """End stalled calls: one for each call that waits for a place and has none freed for it yet."""
        for _ in range(self._count - self._place_count - self._ending_count):
            if not self._end_longest():
                return

    def _end_longest(self) -> bool:
        if not self._watch.end_longest(self.name, EVICT_SECONDS):
            return False
        with self._count_lock:
            self._ending_count += 1
        return True

    def refusal(self) -> ResourceBusyError:
        """The error for a refused call."""
        return ResourceBusyError(
            f"the limit of {self._call_count_max} {self.name}, running or waiting, is reached: try again later",
            lane=self.name,
            countMax=self._call_count_max,
        )

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> futures.Future[Result]:
        """See Executor; the call is counted until it is done. A unary call gets a place now and a thread later."""
        call = UnaryCall.of(fn, args)
        if call is not None:
            self._take(call)
            return UNDER_WAY
        with self._count_lock:
            self._count += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _future: futures.Future[Any]) -> None:
        with self._count_lock:
            self._count_down()

    def _count_down(self) -> None:
        self._count -= 1
        # Another call may have left instead; then one stalled call too many is ended, never one too few.
        self._ending_count = max(0, self._ending_count - 1)

    def _take(self, call: UnaryCall) -> None:
        with self._count_lock:
            self._count += 1
            has_place = self._unary_count < self._place_count
            if has_place:
                self._unary_count += 1
            else:
                self._waiting.append(call)  # its request is not asked for yet, so waiting calls cost no memory
        if has_place:
            self._receive(call)

    def _receive(self, call: UnaryCall) -> None:
        behaviour = call.behaviour
        wait = self._watch.add(self.name, behaviour.method, call)
        wait.begin(REQUEST_SECONDS_MAX)

        def arrived(request: bytes | None) -> None:
            self._watch.remove(wait)
            if behaviour.take is not None:
                call.ended = self._leave_place
                behaviour.take(request, call)
            else:
                super(Lane, self).submit(*call.in_thread(request)).add_done_callback(self._leave_place)

        call.receive(arrived)

    def _leave_place(self, _future: futures.Future[Any] | None = None) -> None:
        """Give the place to the call that has waited longest and is still active."""
        while True:
            with self._count_lock:
                self._count_down()
                if not self._waiting:
                    self._unary_count -= 1
                    return
                call = self._waiting.popleft()
            if call.is_active():
                self._receive(call)
                return


class Lanes:
    """The lanes of one server.

    Args:
        worker_count: see the table above.

    Attributes:
        watch: ends calls whose callers stall.
        refusals: the threads that answer refused calls.
    """

    def __init__(self, worker_count: int) -> None:
        self.watch = StallWatch()
        self.health = Lane(LaneName.HEALTH.value, HEALTH_COUNT_MAX, HEALTH_WAITING_COUNT_MAX, self.watch)
        self.reflection = Lane(LaneName.REFLECTION.value, REFLECTION_COUNT_MAX, 0, self.watch)
        self.calls = Lane(LaneName.CALLS.value, worker_count, CALL_WAITING_COUNT_MAX, self.watch)
        self.streams = Lane(LaneName.STREAMS.value, worker_count, 0, self.watch)
        self.downloads = Lane(LaneName.DOWNLOADS.value, DOWNLOAD_COUNT_MAX, DOWNLOAD_WAITING_COUNT_MAX, self.watch)
        self.tails = Lane(LaneName.TAILS.value, TAIL_COUNT_MAX, 0, self.watch)
        self.sessions = Lane(LaneName.SESSIONS.value, SESSION_COUNT_MAX, 0, self.watch)
        self._by_name = {LaneName(lane.name): lane for lane in self.all()}
        self.refusals = futures.ThreadPoolExecutor(REFUSAL_THREAD_COUNT, thread_name_prefix="rpc-refusals")

    def of(self, name: LaneName) -> Lane:
        """The lane of that name."""
        return self._by_name[name]

    def start(self) -> None:
        """Start the stall watch."""
        self.watch.start(self._make_room)

    def all(self) -> tuple[Lane, ...]:
        """Every lane, for metrics."""
        return self.health, self.reflection, self.calls, self.streams, self.downloads, self.tails, self.sessions

    def _make_room(self) -> None:
        for lane in self.all():
            lane.make_room()
