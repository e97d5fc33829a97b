"""Lanes: each kind of call has threads of its own, so no kind can starve another. services/methods.py names each RPC's lane.

    lane        calls                                places            waiting  why
    health      grpc.health.v1                       8                 256      answers when all others are full
    reflection  grpc.reflection                      8                 0        a stream holds a thread; only tools use it
    calls       one request, one answer              2 worker_count    1,536    short; a burst may wait for its turn
    streams     append streams                       4 worker_count    0        a stream holds a thread as long as it lasts
    downloads   streams that end by themselves       8                 64       each holds one body, at most 4 MiB
    tails       Reput                                32                0        each holds one batch, at most 256 KiB;
                                                                                as many more on local sockets
    sessions    Telemetry of RocketMQ's clients      2,048             0        one a client, idle: a thread costs 30 KiB
    polls       long polls of RocketMQ's clients     20,000            0        idle, without a thread (streamed_later.py)
    pulls       bulk pulls of stream processors      512               0        idle at the end; batches share a budget

A client that is alone gets half of the places (admission/shares.py), so the next client always finds one. How a call gets its
place, who waits and who is refused: admission/lane.py.

gRPC's own `maximum_concurrent_rpcs` is not used: it would also refuse health checks, without our ErrorInfo.
"""

import time
from functools import partial

from services.methods import LaneName
from services.observing.meters import Gauge
from services.serving.admission.callers import Callers
from services.serving.admission.descriptors import DescriptorWatch
from services.serving.admission.lane import Lane
from services.serving.admission.untaken import UntakenAnswers
from services.serving.stall_watch import StallWatch

HEALTH_COUNT_MAX = 8
HEALTH_WAITING_COUNT_MAX = 256
REFLECTION_COUNT_MAX = 8
CALL_FACTOR = 2  # times worker_count: what a client gets that is alone is half
CALL_WAITING_COUNT_MAX = 1_536  # a client that is alone gets half: with its places, all calls of one connection
STREAM_FACTOR = 4  # times worker_count; an idle stream costs a thread of 30 KiB
DOWNLOAD_COUNT_MAX = 8  # times a body of 4 MiB, of which there are three copies while it is fetched
DOWNLOAD_WAITING_COUNT_MAX = 64
TAIL_COUNT_MAX = 32  # times 1.5 MiB, measured with sleeping readers and the widest batches
SESSION_COUNT_MAX = 2_048  # an address gets three quarters
POLL_COUNT_MAX = 20_000  # times 20 KiB, measured in a gateway (ADR 0050); 15 are gRPC's own (ADR 0176)
POLL_ASKED_COUNT = 16  # requests of polls are small and come with their calls; others may have 4 MiB each
POLL_UNASKED_COUNT = 1_024  # clients that come back at the same time
PULL_COUNT_MAX = (
    512  # a stream holds a thread of 30 KiB and one batch, within a budget of all (gateway/reput/pulling.py)
)


class Lanes:
    """The lanes of one server.

    Args:
        worker_count: see the table above.

    Attributes:
        callers: finds the client of a call.
        watch: ends calls whose callers stall.
        untaken: answers that their callers have not taken.
    """

    def __init__(self, worker_count: int) -> None:
        self.callers = Callers()
        self.watch = StallWatch()
        self.untaken = UntakenAnswers()
        self._descriptors = DescriptorWatch()
        self._by_name = {name: self._lane(name, *sizes) for name, sizes in _sizes(worker_count).items()}
        self.untaken.freed = self.calls.go_on

    def _lane(self, name: LaneName, place_count: int, waiting_count_max: int) -> Lane:
        untaken = self.untaken if name is LaneName.CALLS else None
        lane = partial(Lane, name.value, place_count, waiting_count_max, self.watch, self.callers, untaken)
        return (
            lane(asked_count=POLL_ASKED_COUNT, unasked_count=POLL_UNASKED_COUNT) if name is LaneName.POLLS else lane()
        )

    @property
    def health(self) -> Lane:
        """For probes; also the executor of what has no lane of its own."""
        return self._by_name[LaneName.HEALTH]

    @property
    def calls(self) -> Lane:
        """Calls of one request and one answer."""
        return self._by_name[LaneName.CALLS]

    @property
    def streams(self) -> Lane:
        """Append streams."""
        return self._by_name[LaneName.STREAMS]

    @property
    def downloads(self) -> Lane:
        """Streams that end by themselves."""
        return self._by_name[LaneName.DOWNLOADS]

    @property
    def tails(self) -> Lane:
        """Reput streams."""
        return self._by_name[LaneName.TAILS]

    def of(self, name: LaneName) -> Lane:
        """The lane of that name."""
        return self._by_name[name]

    def start(self) -> None:
        """Start the stall watch."""
        self.watch.start(self._descriptors.look, *(lane.make_room for lane in self.all()))

    def close(self, seconds_max: float) -> list[str]:
        """End all threads, after the last call; the names of those that have not ended when the time is over."""
        self.watch.stop()
        for lane in self.all():
            lane.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + seconds_max
        threads = [thread for lane in self.all() for thread in lane._threads]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.watch.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in threads if thread.is_alive()]

    def all(self) -> tuple[Lane, ...]:
        """Every lane, for metrics."""
        return tuple(self._by_name.values())

    def gauges(self) -> tuple[Gauge, ...]:
        """For the metrics page, beside the counts of each lane."""
        held = Gauge(
            "reput_rpc_untaken_bytes",
            "Bytes of answers that their callers have not taken.",
            lambda: {(): self.untaken.size_bytes},
        )
        ended = Gauge(
            "reput_rpc_untaken_ended",
            "Calls ended because their answers were not taken.",
            lambda: {(): self.untaken.ended_count},
            is_total=True,
        )
        return (held, ended, *self._descriptors.gauges())


def _sizes(worker_count: int) -> dict[LaneName, tuple[int, int]]:
    """Places and waiting calls by lane."""
    return {
        LaneName.HEALTH: (HEALTH_COUNT_MAX, HEALTH_WAITING_COUNT_MAX),
        LaneName.REFLECTION: (REFLECTION_COUNT_MAX, 0),
        LaneName.CALLS: (CALL_FACTOR * worker_count, CALL_WAITING_COUNT_MAX),
        LaneName.STREAMS: (STREAM_FACTOR * worker_count, 0),
        LaneName.DOWNLOADS: (DOWNLOAD_COUNT_MAX, DOWNLOAD_WAITING_COUNT_MAX),
        LaneName.TAILS: (TAIL_COUNT_MAX, 0),
        LaneName.SESSIONS: (SESSION_COUNT_MAX, 0),
        LaneName.PULLS: (PULL_COUNT_MAX, 0),
        LaneName.POLLS: (POLL_COUNT_MAX, 0),
    }
