"""World: processes whose threads are tasks of virtual time, in an order that a seed decides.

    with World(seed) as world:
        process = world.process("r1", rate=1.05)
        world.start(process, call)        # inside, `threading` and `time` of Reput's modules are those of this world
        world.run(60.0)
        world.kill(process)

Reput's code is the real one: locks, conditions, events, threads and clocks are taken from the modules `threading` and `time`,
and these are replaced in every module of Reput while a world is open. Nothing runs beside anything else, so that a history is a
function of its seed. A task goes on until it waits; now and then it lets others go first where it takes a lock or writes to the
disk, so that a kill also lies between two calls of the disk.
"""

import functools
import gc
import importlib
import inspect
import random
import sys
import threading
import time
import types
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self

import structlog
from greenlet import GreenletExit

from benchmarks.simulation.virtual_time import Task, VirtualTime

BEGIN_SECONDS = 1_800_000_000.0  # the time of the walls at the begin: 2027
YIELD_SHARE = 0.05  # of the places where a task may let others go first
HISTORY_LINES_MAX = 400
ROOMS = (
    "commitlog_svc",
    "services",
    "store",
    "consumer_svc",
    "schedule_svc",
    "tests.consumer_svc",
    "tests.schedule_svc",
)
LIBRARIES = ("concurrent.futures._base", "queue")


class BrokenPromiseError(AssertionError):
    """A promise was broken."""


class Process:
    """A process of the world.

    Attributes:
        rate: of its clock.
        stopped_until: no task of it goes on before (seconds of the world).
        is_dead: it was killed: nothing of it takes effect any more.
    """

    def __init__(self, name: str, rate: float = 1.0, clock_begin: float = 0.0) -> None:
        self.name = name
        self.rate = rate
        self.clock_begin = clock_begin
        self.stopped_until = 0.0
        self.is_dead = False
        self.tasks: list[Task] = []


class World(VirtualTime):
    """See the top of this file.

    Args:
        seed: makes the history.

    Attributes:
        dice: of the world and of all that draws in it.
        history: what happened, a line each.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(counts_cpu=False)
        self.dice = random.Random(seed)
        self.history: deque[str] = deque(maxlen=HISTORY_LINES_MAX)
        self.after_step: Callable[[], None] = lambda: None
        self._hub_task = self._current
        self._outside = Process("world")
        self.threads: dict[Task, SimulatedThread] = {}
        self._processes: dict[Task, Process] = {self._current: self._outside}
        self._here = self._outside
        self._reaped: list[Task] = []
        self._undo: list[Callable[[], None]] = []
        self._seed = seed

    def __enter__(self) -> Self:
        if gc.isenabled():
            # A world keeps what it makes until its end: to look for garbage meanwhile costs a tenth and finds little.
            gc.disable()
            self._undo.append(gc.enable)
        random_state = random.getstate()
        random.seed(self._seed)
        self._undo.append(lambda: random.setstate(random_state))
        self._replace_modules()
        before = structlog.get_config()
        self._undo.append(lambda: structlog.configure(**before))
        structlog.configure(processors=[self._take_log], cache_logger_on_first_use=False)
        self.replace(uuid, "uuid4", lambda: uuid.UUID(int=self.dice.getrandbits(128), version=4))
        return self

    def __exit__(self, *_: object) -> None:
        for process in set(self._processes.values()) - {self._outside}:
            self.kill(process)
        for task, process in list(self._processes.items()):
            if process is self._outside and task.stack is not self._hub:
                self._reaped.append(task)
        self._outside.is_dead = True
        self._reap()
        for undo in reversed(self._undo):
            undo()

    # -- processes

    def process(self, name: str, rate: float = 1.0, clock_begin: float = 0.0) -> Process:
        """A process that has no thread yet."""
        return Process(name, rate, clock_begin)

    def begin(self, process: Process | None, call: Callable[[], object]) -> Task:
        """Call something in a thread of a process; None: outside of all."""
        owner = process or self._outside
        task = self.start(call)
        self._processes[task] = owner
        owner.tasks.append(task)
        return task

    def here(self) -> Process:
        """The process whose task runs."""
        return self._here

    def kill(self, process: Process) -> None:
        """End a process now: its tasks never go on."""
        process.is_dead = True
        self._reaped += [task for task in process.tasks if task is not self._current]

    def stop(self, process: Process, seconds: float) -> None:
        """Let a process stand still."""
        process.stopped_until = max(process.stopped_until, self.now + seconds)

    def clock_of(self, process: Process) -> float:
        """Seconds of the rising clock of a process."""
        return process.clock_begin + process.rate * self.now

    # -- time

    def run_until(self, seconds: float) -> None:
        """Let the world go on to a time."""
        self.run_due(seconds)
        self.now = max(self.now, seconds)

    def resume(self, task: Task) -> None:
        """See VirtualTime; not before a stopped process goes on."""
        process = self._processes.get(task, self._outside)
        if process.is_dead and task.stack is not self._hub:
            return
        if self.now < process.stopped_until:
            self.wake(task, process.stopped_until - self.now)
            return
        self._here = process
        super().resume(task)
        if task.stack.dead:
            self._forget(task)
        if self._reaped:
            self._reap()
        self._current, self._here = self._hub_task, self._outside
        self.after_step()

    def wait_here(self, seconds: float | None) -> None:
        """The running task waits until it is woken, at most so many seconds of its process."""
        process = self._here
        self.end_dead(process)
        if seconds is not None:
            self.wake(self._current, max(0.0, seconds) / process.rate)
        self._hub.switch()
        if process.is_dead:
            raise GreenletExit

    def pause(self, seconds: float) -> None:
        """The running task sleeps so many seconds of its process."""
        self.wait_here(seconds)

    def may_yield(self) -> None:
        """Now and then the others go first."""
        if not self._here.is_dead and self.dice.random() < YIELD_SHARE:
            self.pause(0.0)

    def end_dead(self, process: Process) -> None:
        """Ends the running task if its process was killed."""
        if process.is_dead:
            raise GreenletExit

    def say(self, text: str) -> None:
        """A line of the history."""
        self.history.append(f"{self.now:9.4f} {text}")

    # -- inside

    def _reap(self) -> None:
        while self._reaped:
            task = self._reaped.pop()
            if not task.stack.dead:
                self._current, self._here = task, self._processes[task]
                with suppress(Exception):  # what a dead process still says
                    task.stack.throw(GreenletExit)
            self._forget(task)

    def _forget(self, task: Task) -> None:
        process = self._processes.pop(task, None)
        self.threads.pop(task, None)
        if process is not None:
            process.tasks.remove(task)

    def _take_log(self, _logger: Any, method: str, event: dict[str, Any]) -> Any:
        if not self.here().is_dead:
            name = event.pop("event", "")
            values = " ".join(f"{key}={value}" for key, value in event.items() if key != "exc_info")
            self.say(f"{self.here().name}: {name} {values}".rstrip())
            if event.get("exc_info") and isinstance(sys.exc_info()[1], Exception):
                self.say(f"{self.here().name}: {sys.exc_info()[1]!r}")
        raise structlog.DropEvent

    def _replace_modules(self) -> None:
        threads, clock = SimulatedThreading(self), SimulatedClock(self)
        others = {id(getattr(time, name)): getattr(clock, name) for name in SimulatedClock.NAMES}
        others |= {id(getattr(threading, name)): getattr(threads, name) for name in SimulatedThreading.NAMES}
        others |= {id(threading): threads, id(time): clock}
        for owner, name, value in _places(len(sys.modules)):
            if isinstance(value, tuple):
                self.replace(owner, name, tuple(others.get(id(each), each) for each in value))
            elif isinstance(value, dict):
                self.replace(owner, name, {each: others.get(id(given), given) for each, given in value.items()})
            else:
                self.replace(owner, name, others[id(value)])

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Give an attribute another value while this world is open."""
        before = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, before))
        setattr(owner, name, value)


@contextmanager
def judged(world: World, seed: int) -> Iterator[None]:
    """Whatever fails inside is a BrokenPromiseError with the history and its seed."""
    try:
        yield
    except Exception as error:
        lines = "\n".join(world.history)
        raise BrokenPromiseError(f"{lines}\n{world.now:9.4f} seed {seed}: {type(error).__name__}: {error}") from error


@functools.lru_cache(maxsize=1)
def _places(_module_count: int) -> list[tuple[Any, str, Any]]:
    """Where `threading`, `time` and what is of them stand: owner, attribute and value; the same until a module is imported.

    A clock that is the default of an argument was taken when its module was read: then the value is the tuple or dict of
    defaults.
    """
    functions = {id(getattr(time, name)) for name in SimulatedClock.NAMES}
    values = {id(threading), id(time), *functions}
    values |= {id(getattr(threading, name)) for name in SimulatedThreading.NAMES}
    places = []
    for module in _modules():
        places += [(module, name, value) for name, value in vars(module).items() if id(value) in values]
        for function in _functions_of(module):
            given, named = function.__defaults__, function.__kwdefaults__
            if given and any(id(value) in functions for value in given):
                places.append((function, "__defaults__", given))
            if named and any(id(value) in functions for value in named.values()):
                places.append((function, "__kwdefaults__", named))
    return places


def _modules() -> list[types.ModuleType]:
    for name in LIBRARIES:
        importlib.import_module(name)
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name in LIBRARIES or any(name == room or name.startswith(f"{room}.") for room in ROOMS)
        if isinstance(module, types.ModuleType)
    ]


def _functions_of(module: types.ModuleType) -> Iterator[Any]:
    for value in list(vars(module).values()):
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            yield value
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            yield from (each for each in vars(value).values() if isinstance(each, types.FunctionType))


class SimulatedClock:
    """The module `time` of a process."""

    NAMES = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")

    def __init__(self, world: World) -> None:
        def monotonic() -> float:
            return world.clock_of(world.here())

        def wall() -> float:
            return BEGIN_SECONDS + world.now * world.here().rate

        self.monotonic = self.perf_counter = monotonic
        self.monotonic_ns = self.perf_counter_ns = lambda: int(monotonic() * 1e9)
        self.time = wall
        self.time_ns = lambda: int(wall() * 1e9)
        self.clock_gettime = lambda _clock: monotonic()
        self.sleep = world.pause
        self.gmtime = lambda seconds=None: time.gmtime(wall() if seconds is None else seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class SimulatedThreading:
    """The module `threading` of a world."""

    NAMES = ("Lock", "RLock", "Condition", "Event")

    def __init__(self, world: World) -> None:
        self._world = world
        self.Thread = type("Thread", (SimulatedThread,), {"world": world})
        self.Lock = lambda: SimulatedLock(world)
        self.RLock = lambda: SimulatedLock(world, is_reentrant=True)
        self.Condition = lambda lock=None: SimulatedCondition(world, lock)
        self.Event = lambda: SimulatedEvent(world)
        self.local = type("local", (SimulatedLocal,), {"world": world})

    def current_thread(self) -> Any:
        return self._world.threads.get(self._world.current())

    def get_ident(self) -> int:
        return id(self._world.current())

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class SimulatedLocal:
    """Values of a task."""

    world: World

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][self.world.current()][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["_values"].setdefault(self.world.current(), {})[name] = value


class Waiters:
    """Tasks that wait for one thing, in the order in which they came."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: deque[tuple[Task, list[bool]]] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    def wait(self, seconds: float | None) -> bool:
        """Until `wake` comes to this task, or for so long; whether it came."""
        mine = (self._world.current(), [False])
        self._tasks.append(mine)
        try:
            self._world.wait_here(seconds)
        finally:
            if not mine[1][0]:
                self._tasks.remove(mine)
        return mine[1][0]

    def wake(self, count: int | None = None) -> None:
        """Wakes so many, the oldest first; None: all."""
        for _ in range(len(self._tasks) if count is None else min(count, len(self._tasks))):
            task, is_woken = self._tasks.popleft()
            is_woken[0] = True
            self._world.wake(task)


class SimulatedLock:
    """Lock, or RLock."""

    def __init__(self, world: World, *, is_reentrant: bool = False) -> None:
        self._world = world
        self._is_reentrant = is_reentrant
        self._owner: Task | None = None
        self._count = 0
        self._waiters = Waiters(world)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As threading."""
        world = self._world
        if world._here.is_dead:
            return True
        if blocking and world.dice.random() < YIELD_SHARE:
            world.pause(0.0)
        me = world._current
        if self._is_reentrant and self._owner is me:
            self._count += 1
            return True
        ends_at = None if timeout < 0 else world.now + timeout / world.here().rate
        while self._count:
            left_seconds = None if ends_at is None else (ends_at - world.now) * world.here().rate
            if not blocking or (left_seconds is not None and left_seconds <= 0):
                return False
            self._waiters.wait(left_seconds)
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        """As threading."""
        if self._world._here.is_dead:
            return
        if not self._count:
            raise RuntimeError("release unlocked lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            if self._waiters:
                self._waiters.wake(1)

    def locked(self) -> bool:
        """As threading."""
        return self._count > 0

    def release_whole(self) -> int:
        """Let it go, however often it is held; how often."""
        count, self._count = self._count, 1
        self.release()
        return count

    def acquire_whole(self, count: int) -> None:
        """Take it as often as before."""
        self.acquire()
        self._count = count

    def is_mine(self) -> bool:
        """Whether the running task holds it."""
        return self._count > 0 and self._owner is self._world.current()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedCondition:
    """Condition."""

    def __init__(self, world: World, lock: SimulatedLock | None = None) -> None:
        self._world = world
        self._lock = lock or SimulatedLock(world, is_reentrant=True)
        self._waiters = Waiters(world)
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """As threading."""
        self._world.end_dead(self._world.here())
        if not self._lock.is_mine():
            raise RuntimeError("cannot wait on un-acquired lock")
        count = self._lock.release_whole()
        try:
            return self._waiters.wait(timeout)
        finally:
            if not self._world.here().is_dead:
                self._lock.acquire_whole(count)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """As threading."""
        world = self._world
        ends_at = None if timeout is None else world.now + max(0.0, timeout) / world.here().rate
        while not (found := predicate()):
            left_seconds = None if ends_at is None else (ends_at - world.now) * world.here().rate
            if left_seconds is not None and left_seconds <= 0:
                break
            self.wait(left_seconds)
        return found

    def notify(self, n: int = 1) -> None:
        """As threading."""
        if self._world.here().is_dead:
            return
        if not self._lock.is_mine():
            raise RuntimeError("cannot notify on un-acquired lock")
        self._waiters.wake(n)

    def notify_all(self) -> None:
        """As threading."""
        self.notify(len(self._waiters))


class SimulatedEvent:
    """Event."""

    def __init__(self, world: World) -> None:
        self._is_set = False
        self._world = world
        self._waiters = Waiters(world)

    def is_set(self) -> bool:
        """As threading."""
        return self._is_set

    def set(self) -> None:
        """As threading."""
        self._is_set = True
        if not self._world.here().is_dead:
            self._waiters.wake()

    def clear(self) -> None:
        """As threading."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As threading."""
        world = self._world
        ends_at = None if timeout is None else world.now + max(0.0, timeout) / world.here().rate
        while not self._is_set and (ends_at is None or world.now < ends_at):
            self._waiters.wait(None if ends_at is None else (ends_at - world.now) * world.here().rate)
        return self._is_set


class SimulatedThread:
    """Thread: a task of the process that starts it."""

    world: World

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] = lambda: None,
        name: str = "",
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._call = lambda: target(*args, **(kwargs or {}))
        self._task: Task | None = None
        self._ended = Waiters(self.world)

    def start(self) -> None:
        """As threading."""

        def work() -> None:
            try:
                self._call()
            finally:
                self._ended.wake()

        self._task = self.world.begin(self.world.here(), work)
        self.world.threads[self._task] = self

    def is_alive(self) -> bool:
        """As threading."""
        return self._task is not None and not self._task.stack.dead

    def join(self, timeout: float | None = None) -> None:
        """As threading."""
        if self.is_alive() and not self.world.here().is_dead:
            self._ended.wait(timeout)
