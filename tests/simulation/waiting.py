"""The schedule service in a simulated world, on a log in memory: delay levels and timers, judged by promise 4.

The service is the real one: its state and writer's thread, and for each kind of waiting messages its worker's thread. The log
answers after some time, and now and then not at all. The service is killed at any step of any thread; its files of timers may
be lost, and retention removes the state records before the newest full state. At each record and at the end:

- no message appears before its time, by the store times of the log;
- each message that waits appears once.
"""

import itertools
import shutil
import tempfile
from pathlib import Path

from schedule_svc.follower import STATE_TOPIC
from schedule_svc.life import Worker
from services.convert import timestamp_to_millis
from store.errors import StoreError
from tests.schedule_svc.memory_life import DELAYS_MILLIS, MemoryLife, MemoryLog, delayed, timed
from tests.simulation.slow_log import SlowLog
from tests.simulation.world import BrokenPromiseError, Process, World, judged

FAULT_SECONDS = 8.0
DRAIN_SECONDS_MAX = 60.0
LEVELS = (1, 2)


class WaitingLog(SlowLog, MemoryLog):
    """A slow log with the state of waiting messages."""


class Waiting:
    """See the top of this file.

    Args:
        world: in which they are.
        directory: for the files of timers.
    """

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.dice, self.directory = world, world.dice, directory
        self.log = WaitingLog(world)
        self.due_millis: dict[str, int] = {}
        self.delivered: set[str] = set()
        self.process = Process("none")
        self.life: MemoryLife | None = None
        self.life_count = self._seen_count = 0
        self.is_well = False

    def start(self) -> None:
        """Begin everything."""
        self._begin_life()
        for task in (self._keep_alive, self._produce, self._trouble):
            self.world.begin(None, task)

    # -- the service

    def _begin_life(self) -> None:
        process = self.process = self.world.process(f"life {self.life_count}")
        self.life_count += 1

        def begin() -> None:
            life = self.life = MemoryLife(self.log, self.directory)
            workers = [Worker(life.life, kind) for kind in life.kinds.all]
            for worker in workers:
                worker.start()
            self.world.say(f"{process.name} serves")
            applied_offset = -1
            for turn in itertools.count(1):
                if self.log.end != applied_offset:
                    applied_offset = self.log.end
                    self.log.take()
                    life.follower.apply(None, applied_offset, 0, applied_offset)
                    for worker in workers:
                        worker.note()
                self.world.pause(0.02)
                if turn % 40 == 0 and self.dice.random() < 0.5:
                    life.life.write_full(life.kinds.all)

        def try_begin() -> None:
            try:
                begin()
            except StoreError as error:
                self.world.say(f"{process.name} ends: {error}")
                self.world.begin(None, self.end_life)

        self.world.begin(process, try_begin)

    def end_life(self) -> None:
        """Kill the service, and start it again."""
        self.life = None
        self.world.kill(self.process)
        self.world.say(f"{self.process.name} is killed")
        if self.dice.random() < 0.2:
            self.world.say("the files of timers are lost")
            shutil.rmtree(self.directory)
            self.directory.mkdir()
        if self.dice.random() < 0.5 and (STATE_TOPIC, 0) in self.log.queues:
            full_offset = self.log.state().first_offset
            units = self.log.queues[STATE_TOPIC, 0].units
            self.log.remove(STATE_TOPIC, 0, sum(unit.commit_log_offset < full_offset for unit in units))
        self._begin_life()

    def _keep_alive(self) -> None:
        while True:
            self.world.pause(0.05)
            writer = self.life.writer if self.life is not None else None
            if writer is not None and writer.error is not None:
                self.world.say("the writer broke")
                self.end_life()

    def _trouble(self) -> None:
        while self.world.now < FAULT_SECONDS:
            self.world.pause(self.dice.choice((0.05, 0.3, 1.5)) * self.dice.random())
            match self.dice.choice(("kill", "kill", "silent")):
                case "kill":
                    self.end_life()
                case "silent":
                    self.log.silent_share = self.dice.choice((0.0, 0.05))
        self.log.silent_share, self.is_well = 0.0, True
        self.world.say("everything is well")

    def _produce(self) -> None:
        while not self.is_well:
            self.world.pause(self.dice.choice((0.02, 0.3)) * self.dice.random())
            name = f"m{len(self.due_millis)}"
            if self.dice.random() < 0.4:
                level = self.dice.choice(LEVELS)
                self.log.write([delayed(name, level)])
                self.due_millis[name] = self.log.now + DELAYS_MILLIS[level - 1]
            else:
                self.due_millis[name] = self.log.now + self.dice.randint(1, self.dice.choice((300, 3_000)))
                self.log.write([timed(name, self.due_millis[name])])

    # -- the promises

    def judge(self) -> None:
        """The messages that have appeared since the last look."""
        appeared = list(self.log.delivered())
        for message in appeared[self._seen_count :]:
            name = message.body.decode()
            if name in self.delivered:
                raise BrokenPromiseError(f"{name} appears twice")
            early_millis = self.due_millis[name] - timestamp_to_millis(message.store_time, "store_time")
            if early_millis > 0:
                raise BrokenPromiseError(f"{name} appears {early_millis} ms before its time")
            self.delivered.add(name)
        self._seen_count = len(appeared)

    def is_done(self) -> bool:
        """Whether all have appeared."""
        return self.delivered == self.due_millis.keys()


def run_history(seed: int) -> Waiting:
    """One history; BrokenPromiseError with the history and its seed."""
    with tempfile.TemporaryDirectory() as directory, World(seed) as world, judged(world, seed):
        waiting = Waiting(world, Path(directory))
        waiting.start()
        while not (waiting.is_well and waiting.is_done()):
            if world.now > FAULT_SECONDS + DRAIN_SECONDS_MAX:
                missing = sorted(waiting.due_millis.keys() - waiting.delivered)
                raise BrokenPromiseError(f"{missing[:5]} do not appear")
            world.run_until(world.now + 0.1)
            waiting.judge()
    return waiting
