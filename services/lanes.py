"""Lanes: each kind of call has threads of its own, so that none can starve another.

    lane        calls                                threads        waiting  why
    health      grpc.health.v1                       4              256      answers when all others are full
    reflection  grpc.reflection                      4              0        a stream holds a thread; only tools ask
    calls       one request, one answer              worker_count   1,024    short; a burst may wait for its turn
    streams     append streams                       worker_count   0        a stream holds a thread as long as it likes
    downloads   streams that end by themselves       4              64       each holds one body, at most 4 MiB
    tails       Reput                                16             0        each holds one batch, at most 256 KiB
    sessions    Telemetry of RocketMQ's clients      256            0        one a client, idle: a thread costs 30 KiB

A lane with a thread for nobody and no room to wait refuses at once with ResourceBusyError (RESOURCE_EXHAUSTED with
RetryInfo). Before that, and before anybody has to wait longer, the call that has kept its thread waiting for its own
caller for longest makes room, if that is more than 5 s (services/stall_watch.py): a builder that comes back never
stands behind readers that sleep.

gRPC's own `maximum_concurrent_rpcs` is not used: it would refuse health checks as well, without our ErrorInfo. A lane
is an executor, which gRPC takes for a method from an attribute of its handler; it submits from one thread, right after
the interceptor has asked `admits`. A call with one request has its place from the beginning and a thread once that
request is there (services/unary_call.py).
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any, TypeVar

from services.stall_watch import REQUEST_SECONDS_MAX, StallWatch
from services.unary_call import UnaryCall
from store.errors import ResourceBusyError

HEALTH_COUNT_MAX = 4
HEALTH_WAITING_COUNT_MAX = 256
REFLECTION_COUNT_MAX = 4
CALL_WAITING_COUNT_MAX = 1_024
DOWNLOAD_COUNT_MAX = 4  # times a body of 4 MiB, of which there are three copies while it is fetched
DOWNLOAD_WAITING_COUNT_MAX = 64
TAIL_COUNT_MAX = 16  # times 1.5 MiB, measured with sleeping readers and the widest batches
SESSION_COUNT_MAX = 256
# Whoever has not taken an answer for so long gives up its place to one who wants to work.
EVICT_SECONDS = 5.0
# Threads for those who got the place of a call that is still ending, where nobody may wait.
SPARE_COUNT = 4
REFUSAL_THREAD_COUNT = 2

Result = TypeVar("Result")
# gRPC wants a future for each call, and asks it only when it has an end; ours have theirs elsewhere.
UNDER_WAY: futures.Future[Any] = futures.Future()
UNDER_WAY.set_result(None)


class Lane(futures.ThreadPoolExecutor):
    """The threads of one kind of call.

    Args:
        name: stands in errors, logs and metrics.
        place_count: calls worked on at the same time.
        waiting_count_max: calls that may wait for a place.
        watch: who waits for whom.

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
        self._ending_count = 0  # calls that were ended for others and still have their threads
        self._waiting: deque[UnaryCall] = deque()
        self._count_lock = threading.Lock()

    @property
    def call_count(self) -> int:
        """Calls worked on and waiting now."""
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
        """End sleepers, one for each call that waits for a place and for which none was ended yet."""
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
        """What a refused call is told."""
        return ResourceBusyError(
            f"{self._call_count_max} {self.name} are being served or wait, the most that this service takes: try again",
            lane=self.name,
            countMax=self._call_count_max,
        )

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> futures.Future[Result]:
        """As every executor's; the call is counted until it is done. A unary call has a place at once, a thread later."""
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
        # Maybe it is another call that left: then a sleeper too many is ended, none too few.
        self._ending_count = max(0, self._ending_count - 1)

    def _take(self, call: UnaryCall) -> None:
        with self._count_lock:
            self._count += 1
            has_place = self._unary_count < self._place_count
            if has_place:
                self._unary_count += 1
            else:
                self._waiting.append(call)  # its request is not asked for: what waits costs no memory
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
        """The place goes to who has waited longest for one and is still there."""
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
        watch: ends calls whose callers sleep.
        refusals: the threads that say no.
    """

    def __init__(self, worker_count: int) -> None:
        self.watch = StallWatch()
        self.health = Lane("health", HEALTH_COUNT_MAX, HEALTH_WAITING_COUNT_MAX, self.watch)
        self.reflection = Lane("reflection", REFLECTION_COUNT_MAX, 0, self.watch)
        self.calls = Lane("calls", worker_count, CALL_WAITING_COUNT_MAX, self.watch)
        self.streams = Lane("streams", worker_count, 0, self.watch)
        self.downloads = Lane("downloads", DOWNLOAD_COUNT_MAX, DOWNLOAD_WAITING_COUNT_MAX, self.watch)
        self.tails = Lane("tails", TAIL_COUNT_MAX, 0, self.watch)
        self.sessions = Lane("sessions", SESSION_COUNT_MAX, 0, self.watch)
        self.refusals = futures.ThreadPoolExecutor(REFUSAL_THREAD_COUNT, thread_name_prefix="rpc-refusals")

    def start(self) -> None:
        """Watch from now on."""
        self.watch.start(self._make_room)

    def all(self) -> tuple[Lane, ...]:
        """Every lane, for metrics."""
        return self.health, self.reflection, self.calls, self.streams, self.downloads, self.tails, self.sessions

    def _make_room(self) -> None:
        for lane in self.all():
            lane.make_room()
