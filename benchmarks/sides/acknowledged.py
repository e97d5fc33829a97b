"""Producers that append one message after the other and note when each was acknowledged, to measure how long none was."""

import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks import processes
from benchmarks.load import TOPIC
from benchmarks.sides import remoting
from tests.rocketmq import broker_calls
from tests.support.background import Background

PAUSE_SECONDS = 0.02  # after a failure
SEND_SECONDS_MAX = 3.0
Send = Callable[[str], None]


class Acknowledged(Background):
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
        super().__init__(partial(self._run, *each) for each in enumerate(senders))

    def wait_for(self, count: int, seconds: float = 120.0) -> None:
        """Return once so many more are acknowledged."""
        target = len(self.names) + count
        processes.wait_for(
            lambda: len(self.names) >= target or self.error is not None, f"{count} acknowledgements", seconds
        )

    def longest_silence_seconds(self, since: float) -> float:
        """The longest time between two acknowledgements, the later of which came after `since` (time.monotonic)."""
        times = sorted(self._at)
        return max((later - before for before, later in itertools.pairwise(times) if later > since), default=0.0)

    def _run(self, number: int, send: Send) -> None:
        for count in itertools.count():
            name = f"{number}-{count:07}"
            while not self.stopping.is_set():
                try:
                    send(name)
                except self._is_failure:
                    self.stopping.wait(PAUSE_SECONDS)
                else:
                    self._at.append(time.monotonic())
                    self.names.append(name)
                    break
            if self.stopping.is_set():
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
