"""A log in memory as services of a simulated world see it: late, now and then silent, with a stream to each life."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult, FlushMode
from services.reading.recent_units import RecentUnits
from store.errors import DeadlineExceededError, FollowerFencedError
from tests.simulation.world import Process, Waiters, World
from tests.support.memory_log import START_MILLIS, ManualClock, MemoryLog

STREAM_SECONDS_MAX = 0.005  # until what was written reaches a life


class WorldClock(ManualClock):
    """The wall of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property  # type: ignore[override]
    def now(self) -> int:
        """Milliseconds since 1970."""
        return START_MILLIS + int(self._world.now * 1000)


class Feed:
    """The stream of the log to each life that follows it: columns reach a life some time after they were written."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lives: list[tuple[Process, deque[Any], Waiters]] = []

    def follow(self, recent: RecentUnits) -> Callable[[], None]:
        """The running process follows the log from now on, with these units; what is returned takes what has come."""
        process, columns, reader = self._world.here(), deque[Any](), Waiters(self._world)
        self._lives = [life for life in self._lives if not life[0].is_dead]
        self._lives.append((process, columns, reader))

        def take() -> None:
            while columns:
                recent.add(columns.popleft())

        def take_again_and_again() -> None:
            while True:
                while not columns:
                    reader.wait(None)
                self._world.pause(self._world.dice.uniform(0.0, STREAM_SECONDS_MAX))
                take()

        self._world.begin(process, take_again_and_again)
        return take

    def add(self, columns: Any) -> None:
        """As RecentUnits."""
        for _, waiting, reader in self._lives:
            waiting.append(columns)
            reader.wake()


class SlowLog(MemoryLog):
    """A log in memory that takes time, before and after it writes; a class of a service's own log is mixed in.

    Attributes:
        silent_share: of the appends that are not answered, written or not.
        take: has the newest life hear of what was written.
    """

    def __init__(self, world: World, *args: Any) -> None:
        self._feed = Feed(world)
        self.take: Callable[[], None] = lambda: None
        super().__init__(WorldClock(world), *args)
        self._world = world
        self.silent_share = 0.0
        self._begun: dict[int, Process] = {}  # epochs, and whose they are: a life begins with one that nobody else has

    @property  # type: ignore[override]
    def recent(self) -> Feed:
        """See MemoryLog: what is written reaches each life."""
        return self._feed

    @recent.setter
    def recent(self, recent: RecentUnits | None) -> None:
        if recent is not None:
            self.take = self._feed.follow(recent)

    def append(self, epoch: int, records: Sequence[InternalRecord], flush: FlushMode) -> Sequence[AppendResult]:
        """See MemoryLog."""
        dice = self._world.dice
        self._world.pause(dice.choice((0.001, 0.02)) * dice.random())
        is_silent = dice.random() < self.silent_share
        if is_silent and dice.random() < 0.5:
            raise DeadlineExceededError("the append was not answered")
        if self._begun.setdefault(epoch, self._world.here()) is not self._world.here():
            raise FollowerFencedError("another life has begun with this epoch", follower="consumer")
        results = super().append(epoch, records, flush)
        self._world.pause(dice.choice((0.001, 0.02)) * dice.random())
        if is_silent:
            raise DeadlineExceededError("the append was not answered")
        return results
