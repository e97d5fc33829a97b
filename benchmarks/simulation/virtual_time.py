"""Virtual time: threads that run one at a time, in the order of a clock that only they move.

Code under simulation is the real one, blocking calls and all. Where it would wait (for a shard, for a thread of a pool, for
the CPU that all of them share) it sleeps here instead; then the next due thread goes on, and no real time passes. Between
two sleeps a thread runs for real, and the CPU time that this takes is put on the virtual clock:

    thread 1   |run 0.2 ms|--- asks shard, 1.1 ms ---|run|
    thread 2              |run 0.2 ms|--- asks shard, 0.9 ms ---|run|          one CPU: runs never overlap
"""

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from gateway.ports.shards import FanOut
from store.errors import StoreError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Task:
    """A thread of the simulation."""

    def __init__(self) -> None:
        self.turn = threading.Semaphore(0)
        self.resumed_seconds = 0.0


class VirtualTime:
    """The clock and the scheduler.

    Args:
        counts_cpu: whether what runs between two sleeps takes time; tests are exact without.

    Attributes:
        now: seconds since the begin.
        cpu_seconds: CPU used so far, by what ran and by `use_cpu`.
    """

    def __init__(self, *, counts_cpu: bool = True) -> None:
        self.now = 0.0
        self.cpu_seconds = 0.0
        self._counts_cpu = counts_cpu
        self._cpu_free_at = 0.0
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Task]] = []
        self._current = Task()
        self._running_count = 0
        self._main: Task | None = None
        self._failure: BaseException | None = None

    def clock(self) -> float:
        """The time, for code that takes a clock."""
        return self.now

    def run(self, main: Callable[[], Answer]) -> Answer:
        """Call something in virtual time; returns once all that it started has ended, or waits for ever.

        Raises:
            BaseException: what a thread of it raised.
        """
        self._current = Task()
        self._current.resumed_seconds = time.thread_time()
        answer = main()
        self._pay()
        while self._running_count and (self._due or self._failure is None):
            if not self._due:
                break  # all others wait for something that never happens here: threads of pools
            self._main = self._current
            self._switch()
        if self._failure is not None:
            raise self._failure
        return answer

    def start(self, call: Callable[[], object]) -> None:
        """Call something in a thread of its own, from now on."""
        task = Task()
        self._running_count += 1

        def work() -> None:
            self._resume(task)
            try:
                call()
                self._pay()
            except BaseException as error:
                self._failure = self._failure or error
            self._running_count -= 1
            self._give_turn()

        threading.Thread(target=work, daemon=True).start()
        self.wake(task)

    def sleep(self, seconds: float) -> None:
        """Until so much time has passed."""
        self._pay()
        self._sleep_until(self.now + seconds)

    def use_cpu(self, seconds: float) -> None:
        """Until the CPU, which does one thing after the other, has done so much for this thread."""
        self._pay()
        self._use(seconds)

    def park(self) -> None:
        """Until another thread calls `wake` with what `current` was here."""
        self._pay()
        self._switch()

    def current(self) -> Task:
        """This thread."""
        return self._current

    def wake(self, task: Task) -> None:
        """Let a parked thread go on, behind all that is due now."""
        heapq.heappush(self._due, (self.now, next(self._numbers), task))

    def _pay(self) -> None:
        """Put what this thread ran since its turn began on the clock."""
        if self._counts_cpu:
            self._use(time.thread_time() - self._current.resumed_seconds)

    def _use(self, seconds: float) -> None:
        self.cpu_seconds += seconds
        self._cpu_free_at = max(self._cpu_free_at, self.now) + seconds
        self._sleep_until(self._cpu_free_at)

    def _sleep_until(self, due_seconds: float) -> None:
        heapq.heappush(self._due, (due_seconds, next(self._numbers), self._current))
        self._switch()

    def _switch(self) -> None:
        task = self._current
        self._give_turn()
        self._resume(task)

    def _resume(self, task: Task) -> None:
        """When it is its turn."""
        task.turn.acquire()
        self._current = task
        task.resumed_seconds = time.thread_time()

    def _give_turn(self) -> None:
        """Let the next one run; the one that called `run` when no thread is due."""
        if self._due:
            due_seconds, _, task = heapq.heappop(self._due)
            self.now = max(self.now, due_seconds)
            task.turn.release()
        elif self._main is not None:
            self._main.turn.release()


class Moment:
    """Something that happens once, for which one thread waits."""

    def __init__(self, virtual: VirtualTime) -> None:
        self._virtual = virtual
        self._has_happened = False
        self._waiter: Task | None = None

    def happen(self) -> None:
        """It does."""
        self._has_happened = True
        if self._waiter is not None:
            self._virtual.wake(self._waiter)

    def wait(self) -> None:
        """Until it has."""
        if not self._has_happened:
            self._waiter = self._virtual.current()
            self._virtual.park()


class VirtualFanOut(FanOut):
    """A gateway's FanOut in virtual time: so many threads for all calls together.

    Args:
        virtual: the clock.
        thread_count_max: as FanOut.

    Attributes:
        busy_count_max: threads that were busy at the same time.
        waiting_count_max: calls that waited for a thread at the same time.
    """

    def __init__(self, virtual: VirtualTime, thread_count_max: int) -> None:
        self._virtual = virtual
        self._thread_count_max = thread_count_max
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy_count = 0
        self.busy_count_max = 0
        self.waiting_count_max = 0

    def ask(self, items: Iterable[Item], call: Callable[[Item], Answer]) -> list[Answer | StoreError]:
        """See FanOut."""
        asked = list(items)
        answers: list[Any] = [None] * len(asked)
        moments = [Moment(self._virtual) for _ in asked]

        def ask_one(number: int) -> None:
            try:
                answers[number] = call(asked[number])
            except StoreError as error:
                answers[number] = error
            moments[number].happen()

        for number in range(1, len(asked)):
            self._submit(partial(ask_one, number))
        ask_one(0)
        for moment in moments:
            moment.wait()
        return answers

    def close(self) -> None:
        """See FanOut."""

    def _submit(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)
        if self._busy_count < self._thread_count_max:
            self._busy_count += 1
            self.busy_count_max = max(self.busy_count_max, self._busy_count)
            self._virtual.start(self._work)
        else:
            self.waiting_count_max = max(self.waiting_count_max, len(self._waiting))

    def _work(self) -> None:
        while self._waiting:
            self._waiting.popleft()()
        self._busy_count -= 1
