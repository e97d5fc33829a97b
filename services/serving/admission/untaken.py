"""Answers that gRPC has and their callers have not taken: what they hold is counted, and bounded.

The answer to a call of one answer costs neither thread nor place: it waits inside gRPC until its caller opens its window. A
caller that never does so would collect answers of 4 MiB on each of its streams. So each answer is counted from the moment gRPC
gets it to the end of its call, with CALL_BYTES for the call itself. Beyond UNTAKEN_BYTES_MAX the client that has most loses its
oldest answers, if they are older than GRACE_SECONDS; any answer is ended after ANSWER_SECONDS_MAX (stall_watch.py).
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog

from services.serving.admission.shares import Client, Shares
from services.serving.stall_watch import ANSWER_SECONDS_MAX

# A gateway that is attacked in this way and in others stays below 400 MiB.
UNTAKEN_BYTES_MAX = 96 * 1024 * 1024
# What an open call takes in gRPC and here besides its answer; measured: 20 KiB.
CALL_BYTES = 20 * 1024
# A caller that reads takes its answer within milliseconds, or a few round trips.
GRACE_SECONDS = 0.25

_log = structlog.get_logger("reput.rpc")


class _Answer:
    """One answer; ordered by age in the dict that holds it."""

    __slots__ = ("client", "context", "since", "size_bytes")

    def __init__(self, client: Client, context: Any, size_bytes: int, since: float) -> None:
        self.client = client
        self.context = context
        self.size_bytes = size_bytes
        self.since = since


class UntakenAnswers:
    """All of one server; thread-safe.

    Args:
        clock: seconds, rising.

    Attributes:
        ended_count: calls ended so far.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ended_count = 0
        self._clock = clock
        self._answers: dict[_Answer, None] = {}
        self._bytes = Shares(UNTAKEN_BYTES_MAX)
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """What all of them hold now."""
        return self._bytes.count

    def add(self, client: Client, context: Any, size_bytes: int) -> None:
        """Note an answer that gRPC has or is about to get.

        Args:
            client: who asked.
            context: gRPC's context of the call.
            size_bytes: of the answer.
        """
        answer = _Answer(client, context, size_bytes + CALL_BYTES, self._clock())
        with self._lock:
            self._answers[answer] = None
            self._bytes.take(client, answer.size_bytes)
            is_too_much = self._bytes.count > UNTAKEN_BYTES_MAX
        if not context.add_callback(lambda: self._forget(answer)):
            self._forget(answer)
        elif is_too_much:
            self.end_some()

    def end_some(self) -> None:
        """End what is too old, and what is too much."""
        now = self._clock()
        ended: list[_Answer] = []
        with self._lock:
            for answer in self._answers:
                if now - answer.since <= ANSWER_SECONDS_MAX:
                    break
                ended.append(answer)
            for answer in ended:
                self._remove(answer)
            if self._bytes.count > UNTAKEN_BYTES_MAX:
                ended += self._remove_most(now)
            self.ended_count += len(ended)
        if ended:
            first = ended[0]
            _log.warning(
                "rpc.untaken", count=len(ended), peer=first.context.peer(), seconds=round(now - first.since, 1)
            )
        for answer in ended:
            answer.context.cancel()

    def _remove_most(self, now: float) -> list[_Answer]:
        """Take out answers of those that have most, until the rest is few enough; with the lock held."""
        old = [answer for answer in self._answers if now - answer.since > GRACE_SECONDS]
        old.sort(key=lambda answer: self._bytes.weight(answer.client), reverse=True)  # the oldest first among equals
        removed = []
        for answer in old:
            if self._bytes.count <= UNTAKEN_BYTES_MAX:
                break
            self._remove(answer)
            removed.append(answer)
        return removed

    def _forget(self, answer: _Answer) -> None:
        with self._lock:
            if answer in self._answers:
                self._remove(answer)

    def _remove(self, answer: _Answer) -> None:
        del self._answers[answer]
        self._bytes.give_back(answer.client, answer.size_bytes)
