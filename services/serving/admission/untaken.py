"""Answers that gRPC has and their callers have not taken: what they hold is counted, and bounded.

The answer to a call of one answer costs neither thread nor place: it waits inside gRPC until its caller opens its window. A
caller that never does so would collect answers of 4 MiB on each of its streams. So each answer is counted from the moment gRPC
gets it to the end of its call, with CALL_BYTES for the call itself. The bytes are divided as places are (shares.py): a call
of a client without room waits until answers are taken. When a client with less waits, those with most lose answers older than
STALE_SECONDS, or GRACE_SECONDS when all bytes are in use; any answer is ended after ANSWER_SECONDS_MAX (stall_watch.py).

A call that is worked on counts with what its client's answers from the same method had lately. These bytes are divided too, but
among the clients of one address and for one method: slow calls must not matter to others. A client that has nothing has room
for one call, as long as there is any.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from services.serving.admission.shares import Client, Shares
from services.serving.stall_watch import ANSWER_SECONDS_MAX

# A gateway that is attacked in this way and in others stays below 400 MiB.
UNTAKEN_BYTES_MAX = 96 * 1024 * 1024
# What an open call takes in gRPC and here besides its answer; measured: 20 KiB.
CALL_BYTES = 20 * 1024
# The largest answer: what a call counts whose answer is not known. So a new client begins with 12 calls of a method.
UNKNOWN_ANSWER_BYTES = 4 * 1024 * 1024
# Clients and methods whose answers are remembered; 150 bytes each.
EXPECTED_COUNT_MAX = 16_384
# A caller that reads takes its answer within milliseconds, or a few round trips.
GRACE_SECONDS = 0.25
# The largest answer needs 3.4 s at 10 Mbit/s.
STALE_SECONDS = 5.0

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
        freed: called when there is more room.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ended_count = 0
        self.freed: Callable[[], None] = lambda: None
        self._expected: dict[tuple[str, str], int] = {}  # bytes of the next answer, by client and method
        self._soon: dict[tuple[str, str], Shares] = {}  # of calls without an answer yet, by address and method
        self._soon_bytes = 0
        self._clock = clock
        self._answers: dict[_Answer, None] = {}
        self._bytes = Shares(UNTAKEN_BYTES_MAX)
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """The bytes that all of them hold now, and may hold soon."""
        return self._bytes.count + self._soon_bytes

    def has_room(self, client: Client, method: str) -> bool:
        """Whether one more call of the client may be worked on."""
        size_bytes = self._expected_bytes(client, method)
        soon = self._soon.get((client.address, method))
        if not self._bytes.held(client) and (soon is None or not soon.held(client)):
            return self._has_any_room()
        if soon is None:
            return self._bytes.has_room(client, size_bytes)
        return soon.has_room(client, size_bytes) and self._bytes.has_room(client, soon.count + size_bytes)

    def _has_any_room(self) -> bool:
        return self._bytes.count < self._bytes.count_max

    def _expected_bytes(self, client: Client, method: str) -> int:
        return self._expected.get((client.name, method), UNKNOWN_ANSWER_BYTES)

    def expect(self, client: Client, method: str) -> int:
        """Count a call that is worked on; the bytes, to be given to `release`."""
        with self._lock:
            size_bytes = self._expected_bytes(client, method)
            soon = self._soon.setdefault((client.address, method), Shares(UNTAKEN_BYTES_MAX))
            soon.take(client, size_bytes)
            self._soon_bytes += size_bytes
            return size_bytes

    def release(self, client: Client, size_bytes: int, method: str) -> None:
        """The call has its answer, which counts from now on, or has failed."""
        with self._lock:
            self._release(client, size_bytes, method)

    def _release(self, client: Client, size_bytes: int, method: str) -> None:
        soon = self._soon[client.address, method]
        soon.give_back(client, size_bytes)
        if not soon.count:
            del self._soon[client.address, method]
        self._soon_bytes -= size_bytes

    def add(self, client: Client, context: Any, size_bytes: int, method: str, expected_bytes: int = 0) -> None:
        """Note an answer that gRPC has or is about to get.

        Args:
            client: who asked.
            context: gRPC's context of the call.
            size_bytes: of the answer.
            method: whose answer.
            expected_bytes: what `expect` counted, if it is to be released at the same time.
        """
        answer = _Answer(client, context, size_bytes + CALL_BYTES, self._clock())
        with self._lock:
            self._answers[answer] = None
            self._bytes.take(client, answer.size_bytes)
            if expected_bytes:
                self._release(client, expected_bytes, method)
            if self._expected.get((client.name, method)) != answer.size_bytes:
                self._remember((client.name, method), answer.size_bytes)
        if not context.add_callback(lambda: self._forget(answer)):
            self._forget(answer)

    def _remember(self, key: tuple[str, str], size_bytes: int) -> None:
        """The next answer is expected as large as this one; after larger ones a little larger. With the lock held."""
        before = self._expected.get(key)
        if before is not None and before > size_bytes:
            size_bytes = (before + size_bytes) // 2
        self._expected[key] = size_bytes
        if before is None and len(self._expected) > EXPECTED_COUNT_MAX:
            del self._expected[next(iter(self._expected))]

    def end_some(self, waiting: Iterable[tuple[Client, str]] = ()) -> None:
        """End what is too old, and what clients that wait need.

        Args:
            waiting: clients whose calls could be worked on, with the method of the next call.
        """
        now = self._clock()
        ended: list[_Answer] = []
        with self._lock:
            for answer in self._answers:
                if now - answer.since <= ANSWER_SECONDS_MAX:
                    break
                ended.append(answer)
            for answer in ended:
                self._remove(answer)
            ended += self._remove_for([each for each in waiting if not self.has_room(*each)], now)
            self.ended_count += len(ended)
        if ended:
            first = ended[0]
            _log.warning(
                "rpc.untaken", count=len(ended), peer=first.context.peer(), seconds=round(now - first.since, 1)
            )
        for answer in ended:
            answer.context.cancel()

    def _remove_for(self, waiting: list[tuple[Client, str]], now: float) -> list[_Answer]:
        """Take out an answer for each waiting client, of those that have most; with the lock held."""
        if not waiting:
            return []
        needs = min(self._bytes.weight(client) for client, _ in waiting)
        over_seconds = STALE_SECONDS if self._has_any_room() else GRACE_SECONDS
        old = [answer for answer in self._answers if now - answer.since > over_seconds]
        old.sort(key=lambda answer: self._bytes.weight(answer.client), reverse=True)  # the oldest first among equals
        removed: list[_Answer] = []
        for answer in old:
            if len(removed) >= len(waiting) or self._bytes.weight(answer.client) <= needs:
                break
            self._remove(answer)
            removed.append(answer)
        return removed

    def _forget(self, answer: _Answer) -> None:
        with self._lock:
            if answer in self._answers:
                self._remove(answer)
        self.freed()

    def _remove(self, answer: _Answer) -> None:
        del self._answers[answer]
        self._bytes.give_back(answer.client, answer.size_bytes)
