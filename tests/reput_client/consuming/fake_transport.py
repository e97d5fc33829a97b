"""A transport whose time and answers a test decides; everything happens in the test's thread."""

import contextlib
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from reput_client.consuming.transport import Done, StreamDone


class FakeStream:
    """A stream or Telemetry stream that the test holds the other end of."""

    def __init__(self, request: Any, done: Any, taken: Any = None) -> None:
        self.request = request
        self.done = done
        self.taken = taken
        self.sent: list[Any] = []
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def send(self, command: Any) -> None:
        self.sent.append(command)


class FakeTransport:
    """See `Transport`. Calls and streams wait in lists until the test answers them."""

    def __init__(self) -> None:
        self.lock = contextlib.nullcontext()
        self.seconds = 1000.0
        self.calls: list[tuple[str, str, Any, Done]] = []
        self.streams: list[FakeStream] = []
        self.telemetries: list[FakeStream] = []
        self.wake_count = 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        return self.seconds

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.seconds + seconds, next(self._numbers), function))

    def call(self, target: str, method: str, request: Any, seconds: float, done: Done) -> None:
        self.calls.append((target, method, request, done))

    def stream(self, target: str, method: str, request: Any, seconds: float, done: StreamDone) -> FakeStream:
        self.streams.append(FakeStream(request, done))
        return self.streams[-1]

    def telemetry(self, target: str, taken: Callable[[Any], None], ended: Callable[[Any], None]) -> FakeStream:
        self.telemetries.append(FakeStream(target, ended, taken))
        return self.telemetries[-1]

    def future(self) -> Future[None]:
        return Future()

    def wake(self) -> None:
        self.wake_count += 1

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and call what is due meanwhile."""
        until = self.seconds + seconds
        while self._timers and self._timers[0][0] <= until:
            self.seconds, _, function = heapq.heappop(self._timers)
            function()
        self.seconds = until

    def answer(self, method: str, answer: Callable[[Any], Any]) -> int:
        """Answer the calls of a method that wait; how many there were."""
        waiting = [each for each in self.calls if each[1] == method]
        self.calls = [each for each in self.calls if each[1] != method]
        for _, _, request, done in waiting:
            done(answer(request))
        return len(waiting)
