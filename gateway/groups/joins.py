"""The joins that polls wait for: who is next, how many may wait, and what ends them. What a join does is in joining.py.

    waiting    in the queue of their client; clients and addresses take turns, so many new groups of one client delay no other
    joining    in one of THREAD_COUNT threads, one at a time for a group: joins of one group must not meet; other groups of
               the same client pass those that wait for that
    settling   the group has begun elsewhere: they wait SETTLE_SECONDS, all together, and then wait for a thread again

A join whose polls have all ended is skipped. A service of a shard that did not answer in time is not waited for again at once
(`Silence`).
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field

import structlog

from gateway.groups.joining import SETTLE_SECONDS, Join, Silence, begin_later, join
from gateway.ports.shards import ShardsSource
from services.serving.admission.callers import note_in_context
from services.serving.admission.shares import Client, FairQueue, Shares, client_of_name
from store.errors import ResourceBusyError, ServiceUnavailableError, StoreError

# Polls that wait for joins in all. A client that is alone may have half of them.
POLL_COUNT_MAX = 4_096
# Joins at once: while one waits for a shard, those of other groups go on.
THREAD_COUNT = 4

Then = Callable[[StoreError | None], object]
IsOver = Callable[[], bool]

_log = structlog.get_logger("reput.gateway")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A join, and the polls that wait for it.

    Attributes:
        polls: what to call, and whether the poll has ended.
        is_settled: the shard is asked for the second time, see `begin_later`.
    """

    one: Join
    client: Client
    polls: list[tuple[Then, IsOver]] = field(default_factory=list)
    is_settled: bool = False


class Joins:
    """Joins of polls, in threads of its own; thread-safe.

    Args:
        shards: all shards, whoever asks.
        pause: waits for so many seconds; None: until `close` at most.
        clock: seconds, rising.
        poll_count_max: polls that may wait.
    """

    def __init__(
        self,
        shards: ShardsSource,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        poll_count_max: int = POLL_COUNT_MAX,
    ) -> None:
        self._shards = shards
        self._closed = threading.Event()
        self._pause = pause or self._closed.wait
        self._silence = Silence(clock)
        self._lock = threading.Lock()
        self._shares = Shares(poll_count_max)
        self._queue: FairQueue[_Waiting] = FairQueue()
        self._queued: dict[Join, _Waiting] = {}  # those in the queue, which further polls may wait for
        self._joining: set[str] = set()  # groups
        self._settling: list[_Waiting] = []
        self._is_settling = False
        self._thread_count = 0
        self._threads = ThreadPoolExecutor(THREAD_COUNT + 1, "joins")  # one settles

    def join(self, one: Join, then: Then, is_over: IsOver = lambda: False) -> None:
        """Call `then` with None when the shard knows the group and where it begins, else with the error; once, later.

        The error is ResourceBusyError, at once, when as many polls of the client wait as its share allows.

        Args:
            one: the shard, the group and the topic.
            then: of the poll.
            is_over: whether the poll has ended: nothing is done for it then.
        """
        client = client_of_name(one.caller)
        error: StoreError | None = None
        with self._lock:
            if self._closed.is_set():
                error = _ends()
            elif not self._shares.has_room(client):
                error = ResourceBusyError(
                    f"{self._shares.held(client)} polls of this client wait until shards know their groups, which is its share "
                    f"of the {self._shares.count_max} of all clients: ask again later"
                )
            else:
                self._shares.take(client)
                waiting = self._queued.get(one)
                if waiting is None:
                    waiting = self._queued[one] = _Waiting(one, client)
                    self._add(waiting)
                waiting.polls.append((then, is_over))
        if error is not None:
            then(error)

    def close(self) -> None:
        """Begin no more joins, and tell the polls that wait; returns when those under way have ended."""
        with self._lock:
            self._closed.set()
            left = [waiting for _, waiting in self._queue.drop(lambda _: True)] + self._settling
            self._queued, self._settling = {}, []
        for waiting in left:
            self._tell(waiting, _ends())
        self._threads.shutdown()

    def _add(self, waiting: _Waiting) -> None:
        """With the lock held, and open."""
        self._queue.append(waiting.client, waiting)
        if self._thread_count < THREAD_COUNT:
            self._thread_count += 1
            self._threads.submit(self._run)

    def _next(self) -> _Waiting | None:
        with self._lock:
            found = self._queue.pop(lambda _, waiting: waiting.one.consumer_group not in self._joining, may_pass=True)
            if found is None:  # a thread that has a group takes what waits for it
                self._thread_count -= 1
                return None
            waiting = found[1]
            if self._queued.get(waiting.one) is waiting:
                del self._queued[waiting.one]
            self._joining.add(waiting.one.consumer_group)
            return waiting

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            error: StoreError | None = None
            is_done = True
            try:
                if all(is_over() for _, is_over in waiting.polls):
                    error = ServiceUnavailableError("the poll has ended", service="gateway")
                else:
                    is_done = copy_context().run(self._step, waiting)
            except StoreError as failure:
                error = failure
            except Exception as failure:  # a bug; the polls must not wait for ever
                if not self._closed.is_set():  # else the shards are closed, too
                    _log.exception("group.join_failed")
                error = StoreError(f"the shard was not told of the group: {failure!r}")
            with self._lock:
                self._joining.discard(waiting.one.consumer_group)
                is_open = not self._closed.is_set()
                if not is_done and is_open:
                    self._settling.append(waiting)
                    if not self._is_settling:
                        self._is_settling = True
                        self._threads.submit(self._settle)
            if is_done:
                self._tell(waiting, error)
            elif not is_open:
                self._tell(waiting, _ends())

    def _step(self, waiting: _Waiting) -> bool:
        note_in_context(waiting.client)
        if not waiting.is_settled:
            return join(self._shards.now(), waiting.one, self._silence)
        begin_later(self._shards.now(), waiting.one, self._silence)
        return True

    def _settle(self) -> None:
        """Together, so that a shard with many new groups costs one pause."""
        while True:
            with self._lock:
                count = len(self._settling)
                if not count:
                    self._is_settling = False
                    return
            self._pause(SETTLE_SECONDS)
            with self._lock:
                settled, self._settling = self._settling[:count], self._settling[count:]
                for waiting in settled:
                    waiting.is_settled = True
                    self._add(waiting)

    def _tell(self, waiting: _Waiting, error: StoreError | None) -> None:
        with self._lock:
            self._shares.give_back(waiting.client, len(waiting.polls))
        for then, _ in waiting.polls:
            try:
                then(error)
            except Exception:  # a bug; the other polls are told, and the thread goes on
                _log.exception("group.poll_not_told", consumer_group=waiting.one.consumer_group)


def _ends() -> ServiceUnavailableError:
    return ServiceUnavailableError("this gateway ends: ask another one", service="gateway")
