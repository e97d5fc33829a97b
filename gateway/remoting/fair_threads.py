"""FairThreads: the threads of a door, and what waits for one. Addresses take turns, and so do the clients of an address.

    add ─▶ waiting ─▶ a thread ─▶ ended
           WORK_COUNT_MAX, divided by the rule for clients (services/serving/admission/shares.py)
                     THREAD_COUNT, divided likewise: a client that is alone has half of them
                     ADMINISTRATION_THREAD_COUNT of them for administration, which may take seconds each

So the heartbeat of one client waits for one piece of work of each other client at most, however much those have asked for.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from services.serving.admission.shares import Client, FairQueue, Shares

THREAD_COUNT = 16
ADMINISTRATION_THREAD_COUNT = 4
# Requests that wait for a thread or are in one; each holds its body, of at most 16 MiB.
WORK_COUNT_MAX = 2_048

Work: TypeAlias = Callable[[], object]


class FairThreads:
    """See the top of this file; thread-safe.

    Args:
        name: of the threads.
        thread_count: threads.
        work_count_max: what may wait or run.
    """

    def __init__(self, name: str, thread_count: int = THREAD_COUNT, work_count_max: int = WORK_COUNT_MAX) -> None:
        self._thread_count = thread_count
        self._threads = ThreadPoolExecutor(thread_count, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._all = Shares(work_count_max)
        self._running = Shares(thread_count)
        self._usual: FairQueue[Work] = FairQueue()
        self._administration: FairQueue[Work] = FairQueue()
        self._administration_count = 0  # that runs
        self._active_count = 0
        self._is_closed = False

    @property
    def work_count_max(self) -> int:
        """What may wait or run."""
        return self._all.count_max

    def add(self, client: Client, work: Work, *, is_administration: bool = False) -> bool:
        """Have a thread run something that raises nothing; False: the client has its share, or the door is closed."""
        with self._lock:
            if self._is_closed or not self._all.has_room(client):
                return False
            self._all.take(client)
            (self._administration if is_administration else self._usual).append(client, work)
            if self._active_count < self._thread_count:
                self._active_count += 1
                self._threads.submit(self._run)
        return True

    def close(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while True:
            with self._lock:
                found = None if self._is_closed else self._next()
                if found is None:  # what waits may not run before something ends, whose thread goes on with it
                    self._active_count -= 1
                    return
                client, work, is_administration = found
            try:
                work()
            finally:
                with self._lock:
                    self._running.give_back(client)
                    self._all.give_back(client)
                    self._administration_count -= is_administration

    def _next(self) -> tuple[Client, Work, bool] | None:
        """What runs next; administration has one thread at least, where some waits."""
        queues = [(self._usual, False)]
        if self._administration_count < ADMINISTRATION_THREAD_COUNT:
            queues.insert(1 if self._administration_count else 0, (self._administration, True))
        for queue, is_administration in queues:
            found = queue.pop(lambda client, work: self._running.has_room(client))
            if found is not None:
                self._running.take(found[0])
                self._administration_count += is_administration
                return *found, is_administration
        return None
