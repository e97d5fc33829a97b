"""Virtual time: tasks that run one at a time, in the order of a clock that only they move.

Code under simulation is the real one, blocking calls and all. Where it would wait (for a shard, for a thread of a pool, for
the CPU that all of them share) it sleeps here instead; then the next due task goes on, and no real time passes. A task is a
greenlet: it has a stack of its own like a thread, and a switch between two takes about a microsecond. Between
two sleeps a task runs for real, and the CPU time that this takes is put on the virtual clock:

    task 1     |run 0.2 ms|--- asks shard, 1.1 ms ---|run|
    task 2                |run 0.2 ms|--- asks shard, 0.9 ms ---|run|          one CPU: runs never overlap
"""

import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from gateway.ports.shards import FanOut
from store.errors import StoreError

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Task:
    """Something that runs in virtual time, on a stack of its own.

    Attributes:
        turn_count: how often it has gone on; what was to wake it in an earlier wait does not count any more.
    """

    def __init__(self, stack: greenlet) -> None:
        self.stack = stack
        self.turn_count = 0
        self.resumed_seconds = 0.0


class VirtualTime:
    """The clock and the scheduler; all of it in the thread that made it.

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
        self._due: list[tuple[float, int, Task, int]] = []
        self._hub = getcurrent()
        self._current = Task(self._hub)
        self._failure: BaseException | None = None

    def clock(self) -> float:
        """The time, for code that takes a clock."""
        return self.now

    def run(self, main: Callable[[], Answer]) -> Answer:
        """Call something in virtual time; returns once all that it started has ended, or waits for ever.

        Raises:
            BaseException: what a task of it raised.
        """
        answers: list[Answer] = []
        self.start(lambda: answers.append(main()))
        self.run_due()
        return answers[0]

    def run_due(self, until_seconds: float = math.inf) -> None:
        """Let tasks run until nothing is due any more, or only later than a time; errors as `run`."""
        while self._due and self._failure is None and self._due[0][0] <= until_seconds:
            due_seconds, _, task, turn = heapq.heappop(self._due)
            if turn == task.turn_count:
                self.now = max(self.now, due_seconds)
                self.resume(task)
        if self._failure is not None:
            raise self._failure

    def resume(self, task: Task) -> None:
        """Let a task run until it waits."""
        task.turn_count += 1
        self._current = task
        task.resumed_seconds = time.thread_time() if self._counts_cpu else 0.0
        task.stack.switch()

    def start(self, call: Callable[[], object]) -> Task:
        """Call something in a task of its own, from now on."""

        def work() -> None:
            try:
                call()
                self.pay()
            except Exception as error:
                self._failure = self._failure or error

        task = Task(greenlet(work, self._hub))
        self.wake(task)
        return task

    def sleep(self, seconds: float) -> None:
        """Until so much time has passed."""
        self.pay()
        self._sleep_until(self.now + seconds)

    def use_cpu(self, seconds: float) -> None:
        """Until the CPU, which does one thing after the other, has done so much for this task."""
        self.pay()
        self._use(seconds)

    def park(self) -> None:
        """Until another task calls `wake` with what `current` was here; what ran before is to be paid (`pay`)."""
        self._hub.switch()

    def current(self) -> Task:
        """This task."""
        return self._current

    def wake(self, task: Task, after_seconds: float = 0.0) -> None:
        """Let a task that waits go on after so much time, behind all that is due then; the first of several wakes counts."""
        heapq.heappush(self._due, (self.now + after_seconds, next(self._numbers), task, task.turn_count))

    def pay(self) -> None:
        """Put what this task ran since its turn began on the clock."""
        if self._counts_cpu:
            self._use(time.thread_time() - self._current.resumed_seconds)

    def _use(self, seconds: float) -> None:
        self.cpu_seconds += seconds
        self._cpu_free_at = max(self._cpu_free_at, self.now) + seconds
        self._sleep_until(self._cpu_free_at)

    def _sleep_until(self, due_seconds: float) -> None:
        self.wake(self._current, due_seconds - self.now)
        self._hub.switch()


class Moment:
    """Something that happens once, for which one task waits."""

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
        self._virtual.pay()
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
