"""The simulated schedule service of tests/simulation with its steps written down, for the model of moving.pml.

The service is the real one: its state, writer, and what reads and delivers timers, with its files; so is the fence. A step is
what, who, whom, number, as `SEE` of the model names them: each record that the log takes, in the order of the log.
"""

import itertools
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from commitlog_svc.append.refusals import FollowerFence
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult
from reput.schedule.v1.state_pb2 import StateRecord
from schedule_svc.follower import FOLLOWER, STATE_TOPIC
from services.following.state_topic.state_writer import CHANGE, FULL_BEGIN
from store.errors import StoreError
from store.format.properties import MOVED_FROM, TAGS
from store.format.topic import TIMER_TOPIC
from tests.models.traced_world import Seen
from tests.schedule_svc.memory_life import timed
from tests.simulation.waiting import Waiting, WaitingLog
from tests.simulation.world import BrokenPromiseError, World

TIMER_COUNT = 20
SECONDS = 8.0  # of simulated time: some twenty lives
# What a trace of this world fits into.
BOUNDS = {
    "TIMERS": TIMER_COUNT,
    "KILLS": 250,
    "FULLS": 20,
    "LENGTH": 120,
    "WIDE": TIMER_COUNT + 1,
    "SET": "int",
}


class TracedLog(WaitingLog):
    """A slow log that writes down what it takes; the fence is the real one."""

    def __init__(self, world: World) -> None:
        self.steps: list[Seen] = []
        self._fence = FollowerFence()
        self._newest_epoch = 0
        super().__init__(world)

    @property  # type: ignore[override]
    def epoch(self) -> int:
        """See MemoryLog: of the newest life."""
        return self._newest_epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if epoch > self._newest_epoch:  # a life begins
            self._fence.enter(FOLLOWER, epoch, begins=True)
            self._newest_epoch = epoch
            self.steps.append(Seen("BEGIN"))

    def write(self, records: Sequence[InternalRecord]) -> list[AppendResult]:
        """See MemoryLog."""
        states = [(record, StateRecord.FromString(record.body)) for record in records if record.topic == STATE_TOPIC]
        for _, state in states:
            self._fence.enter(FOLLOWER, state.epoch)
        results = super().write(records)
        for record, result in zip(records, results, strict=True):
            if record.topic == TIMER_TOPIC:
                self.steps.append(Seen("TIME", result.queue_offset))
        copies = {
            int(record.properties[MOVED_FROM].split(" ")[1]) for record in records if MOVED_FROM in record.properties
        }
        for record, state in states:
            if record.properties[TAGS] == FULL_BEGIN:
                self.steps.append(Seen("FULL"))
            elif record.properties[TAGS] == CHANGE:
                for change in state.changes:
                    for position in itertools.accumulate(change.timers_done.queue_offset_steps):
                        copies.discard(position)
                        self.steps.append(Seen("DELIVER", position))
        self.steps += [Seen("COPIED", position) for position in sorted(copies)]  # without a change that says so
        return results


class TracedTimers(Waiting):
    """See the top of this file.

    Args:
        world: in which they are.
        directory: for the files of timers.
    """

    def __init__(self, world: World, directory: Path) -> None:
        super().__init__(world, directory)
        self.log = self.traced = TracedLog(world)

    def _produce(self) -> None:
        while len(self.due_millis) < TIMER_COUNT:
            self.world.pause(self.dice.choice((0.02, 0.6)) * self.dice.random())
            name = f"m{len(self.due_millis)}"
            self.due_millis[name] = self.log.now + self.dice.randint(1, self.dice.choice((300, 3_000)))
            self.log.write([timed(name, self.due_millis[name])])


def steps_of(seed: int) -> list[Seen]:
    """The steps of a history; with broken rules, up to the first false thing that the simulation sees."""
    with tempfile.TemporaryDirectory() as directory, World(seed) as world:
        timers = TracedTimers(world, Path(directory))
        with suppress(AssertionError, BrokenPromiseError, StoreError):
            timers.start()
            world.run_until(SECONDS)
        return timers.traced.steps
