"""Producers that append one message after the other and note when each was acknowledged, to measure how long none was."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence

from benchmarks import processes
from benchmarks.load import TOPIC
from benchmarks.sides import remoting
from tests.rocketmq import broker_calls

PAUSE_SECONDS = 0.02  # after a failure
JOIN_SECONDS_MAX = 60.0
SEND_SECONDS_MAX = 3.0
Send = Callable[[str], None]


class Acknowledged:
    """Sends until the block ends; a message that fails is sent again with the same name.

    Args:
        senders: one function for each producer: appends the message of a name, and raises when it is not acknowledged.
        is_failure: the exceptions that say so.

    Attributes:
        names: of the acknowledged messages.
    """

    def __init__(self, senders: Sequence[Send], is_failure: tuple[type[BaseException], ...]) -> None:
        self.names: list[str] = []
        self._is_failure = is_failure
        self._at: list[float] = []
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(number, send), daemon=True) for number, send in enumerate(senders)
        ]

    def __enter__(self) -> "Acknowledged":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS_MAX)
        if self._error is not None:
            raise self._error

    def wait_for(self, count: int, seconds: float = 120.0) -> None:
        """Return once so many more are acknowledged."""
        target = len(self.names) + count
        processes.wait_for(
            lambda: len(self.names) >= target or self._error is not None, f"{count} acknowledgements", seconds
        )

    def longest_silence_seconds(self, since: float) -> float:
        """The longest time between two acknowledgements, the later of which came after `since` (time.monotonic)."""
        times = sorted(self._at)
        return max((later - before for before, later in itertools.pairwise(times) if later > since), default=0.0)

    def _run(self, number: int, send: Send) -> None:
        for count in itertools.count():
            name = f"{number}-{count:07}"
            while not self._stopping.is_set():
                try:
                    send(name)
                except self._is_failure:
                    self._stopping.wait(PAUSE_SECONDS)
                except BaseException as error:
                    self._error = error
                    return
                else:
                    self._at.append(time.monotonic())
                    self.names.append(name)
                    break
            if self._stopping.is_set():
                return


def sender_to_any(ports: Sequence[int]) -> Send:
    """Sends to the broker that took the last message, and to the next one when it does not: no route is looked up."""
    order = list(ports)

    def send(name: str) -> None:
        try:
            broker_calls.send_to(order[0], TOPIC, 0, name, timeout_seconds=SEND_SECONDS_MAX, KEYS=name)
        except (OSError, remoting.RefusedError):
            order.append(order.pop(0))
            raise

    return send
