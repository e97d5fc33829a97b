"""CheckGateways: which gateways can ask a producer of a topic for verdicts, and the checks on their way to them."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from reput.schedule.v1 import schedule_service_pb2 as pb
from store.errors import InvalidArgumentError, ResourceBusyError

# A gateway says again and again which producers it has.
KEPT_SECONDS = 60.0
GATEWAY_COUNT_MAX = 1_024
TOPIC_COUNT_MAX = 65_536
NAME_LENGTH_MAX = 255
# Checks that wait for one stream; the half message of one that finds no room is not counted as checked.
CHECK_COUNT_MAX = 1_024
CHECK_BYTES_MAX = 16 << 20
# What is offered between two looks at `topics`, and goes into one answer.
ROUND_COUNT_MAX = 256
ANSWER_BYTES_MAX = 4 << 20

Check = pb.WatchChecksResponse.Check


class CheckStream:
    """The checks of one stream; made by `CheckGateways.watch`."""

    def __init__(self, gateway_id: str) -> None:
        self.gateway_id = gateway_id
        self._changed = threading.Condition()
        self._checks: deque[tuple[Check, int]] = deque()
        self._size_bytes = 0
        self._is_over = False

    @property
    def has_room(self) -> bool:
        """Whether it takes another round of checks."""
        return len(self._checks) <= CHECK_COUNT_MAX - ROUND_COUNT_MAX and self._size_bytes < CHECK_BYTES_MAX

    def put(self, check: Check) -> None:
        """Add a check."""
        size_bytes = check.ByteSize()
        with self._changed:
            self._checks.append((check, size_bytes))
            self._size_bytes += size_bytes
            self._changed.notify()

    def take(self, timeout_seconds: float) -> Sequence[Check]:
        """Wait for checks and take what one answer holds; none when the time ran out first, or at the end."""
        taken: list[Check] = []
        left = ANSWER_BYTES_MAX
        with self._changed:
            self._changed.wait_for(lambda: bool(self._checks) or self._is_over, timeout_seconds)
            while self._checks and len(taken) < ROUND_COUNT_MAX and (not taken or self._checks[0][1] <= left):
                check, size_bytes = self._checks.popleft()
                self._size_bytes -= size_bytes
                left -= size_bytes
                taken.append(check)
        return taken

    def end(self) -> None:
        """Wait no longer from now on."""
        with self._changed:
            self._is_over = True
            self._changed.notify()


class CheckGateways:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
        choose: picks one of several streams.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        choose: Callable[[Sequence[CheckStream]], CheckStream] = random.choice,
    ) -> None:
        self._clock = clock
        self._choose = choose
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, frozenset[str]]] = {}  # kept until, topics
        self._streams: tuple[CheckStream, ...] = ()

    def keep(self, gateway_id: str, topics: Sequence[str]) -> None:
        """A gateway has producers of these topics, and no others.

        Raises:
            InvalidArgumentError: a name is empty or too long, or there are too many.
            ResourceBusyError: too many gateways are known.
        """
        check_gateway_id(gateway_id)
        if len(topics) > TOPIC_COUNT_MAX or any(len(topic) > NAME_LENGTH_MAX for topic in topics):
            raise InvalidArgumentError(
                f"{len(topics)} topics: at most {TOPIC_COUNT_MAX} of at most {NAME_LENGTH_MAX} characters are possible",
                field="topics",
            )
        now = self._clock()
        with self._lock:
            self._kept = {name: kept for name, kept in self._kept.items() if kept[0] > now}
            if gateway_id not in self._kept and len(self._kept) >= GATEWAY_COUNT_MAX:
                raise ResourceBusyError(f"{GATEWAY_COUNT_MAX} gateways are known: try again in a minute")
            self._kept[gateway_id] = (now + KEPT_SECONDS, frozenset(topics))

    def watch(self, gateway_id: str) -> CheckStream:
        """A new stream of a gateway."""
        check_gateway_id(gateway_id)
        stream = CheckStream(gateway_id)
        with self._lock:
            self._streams += (stream,)
        return stream

    def forget(self, stream: CheckStream) -> None:
        """A stream has ended; the producers of its checks are asked again later."""
        with self._lock:
            self._streams = tuple(one for one in self._streams if one is not stream)

    def end(self) -> None:
        """The service stops: no stream waits any more."""
        for stream in self._streams:
            stream.end()

    def topics(self) -> frozenset[str]:
        """The topics whose producers can be asked now."""
        return frozenset[str]().union(*(self._topics_of(stream) for stream in self._streams if stream.has_room))

    def offer(self, topic: str, check: Check) -> bool:
        """Give a check to a gateway that has a producer of the topic; False when there is none."""
        streams = [stream for stream in self._streams if topic in self._topics_of(stream)]
        streams = [stream for stream in streams if stream.has_room] or streams
        if not streams:
            return False
        self._choose(streams).put(check)
        return True

    def has_producer(self, topic: str) -> bool:
        """Whether a gateway has a producer of the topic."""
        return any(topic in self._topics_of(stream) for stream in self._streams)

    def _topics_of(self, stream: CheckStream) -> frozenset[str]:
        kept_until, topics = self._kept.get(stream.gateway_id, (0.0, frozenset[str]()))
        return topics if self._clock() < kept_until else frozenset[str]()


def check_gateway_id(gateway_id: str) -> None:
    """Raise InvalidArgumentError when a text cannot name a gateway."""
    if not 0 < len(gateway_id) <= NAME_LENGTH_MAX:
        raise InvalidArgumentError(
            f"gateway_id has {len(gateway_id)} characters: use 1 to {NAME_LENGTH_MAX}", field="gateway_id"
        )
