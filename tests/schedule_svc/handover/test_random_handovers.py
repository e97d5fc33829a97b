"""Random sends, times and recalls, while Reput and a broker have the store in turn: each message comes once and not early."""

import pathlib
import random
from collections import Counter

import pytest

from schedule_svc.timers import timer_index
from services.convert import timestamp_to_millis
from store.errors import ScheduledMessageNotFoundError
from tests.schedule_svc.handover.model_broker import ModelBroker
from tests.schedule_svc.memory_life import DELAYS_MILLIS, TARGET, MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import ManualClock

STEP_COUNT = 120
SECOND, DAY = 1_000, 86_400_000
# A broker that stands still for longer may deliver what was recalled: it stores recalls and far timers again at different
# times, and what is overdue then comes at once (seeds 1008 and 1009).
STILL_MAX = DAY // 2


class Run:
    """One random run; a seed makes it.

    Args:
        seed: makes it.
        directory: for the files of timers.
        is_killed: Reput does not end cleanly.
    """

    def __init__(self, seed: int, directory: pathlib.Path, *, is_killed: bool) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock)
        self.is_killed = is_killed
        self.owner: MemoryLife | ModelBroker = MemoryLife(self.log, directory)
        self.due: dict[str, int] = {}
        self.timers: list[str] = []
        self.recalled: set[str] = set()

    def run(self) -> None:
        """All steps, and the end, at which everything is delivered."""
        steps = (*[self.send] * 6, *[self.work] * 6, *[self.step_clock] * 4, *[self.recall] * 3, *[self.change] * 2)
        for _ in range(STEP_COUNT):
            self.random.choice(steps)()
        for step in range(32):
            self.clock.now += STILL_MAX
            self.work()
            if step % 4 == 3:
                self.change()
        self.work()
        self.judge()

    def send(self) -> None:
        """Producers send."""
        for _ in range(self.random.randint(1, 8)):
            name = f"m{len(self.due)}"
            if self.random.random() < 0.3:
                level = self.random.randint(1, len(DELAYS_MILLIS))
                self.log.write([delayed(name, level)])
                self.due[name] = self.log.now + DELAYS_MILLIS[level - 1]
            else:
                ahead = self.random.choice((500, 3 * SECOND, 60 * SECOND, 3_600 * SECOND, 3 * DAY, 5 * DAY))
                self.due[name] = max(self.log.now, self.log.clock.now) + self.random.randint(1, ahead)
                self.log.write([timed(name, self.due[name])])
                self.timers.append(name)

    def work(self) -> None:
        """Whoever has the store does what is due."""
        self.owner.work()

    def step_clock(self) -> None:
        """Time passes."""
        self.clock.now += self.random.choice((1, 300, 999, SECOND, 5 * SECOND, 60 * SECOND, 3_600 * SECOND, STILL_MAX))

    def recall(self) -> None:
        """Someone takes a message back."""
        if not self.timers:
            return
        name = self.random.choice(self.timers[-20:])
        if isinstance(self.owner, ModelBroker):
            self.owner.work()
            if name not in self.came() and self.due[name] > max(self.log.now, self.log.clock.now) + 2 * SECOND:
                self.owner.recall(name, (self.due[name] - 1) // 1000 * 1000)
                self.owner.work()  # a broker looks at the topic ten times a second
                self.recalled.add(name)
            return
        self.owner.work()
        try:
            self.owner.kinds.recalls.recall(TARGET, name, self.due[name])
            assert name not in self.recalled
            self.recalled.add(name)
        except ScheduledMessageNotFoundError:
            assert name in self.recalled or name in self.came()

    def change(self) -> None:
        """The other one takes the store."""
        if isinstance(self.owner, ModelBroker):
            self.owner.stop()
            self.owner = MemoryLife(self.log, self.directory)
        else:
            if not self.is_killed:
                # One that has not read the timer topic leaves the broker's timer files as they are. Then a broker goes on as
                # after a restart of its own: what it read when it was overdue comes again (seed 1046).
                self.owner.work()
            self.owner.end(is_clean=not self.is_killed)
            self.owner = ModelBroker(self.log)

    def came(self) -> Counter[str]:
        """How often each message is in its topic."""
        return Counter(message.body.decode() for message in self.log.delivered())

    def judge(self) -> None:
        """What is in the topic at the end."""
        came = self.came()
        wrong = {name: came[name] for name in self.due if came[name] != (name not in self.recalled)}
        if self.is_killed:
            wrong = {name: count for name, count in wrong.items() if count == 0}
        assert not wrong
        for message in self.log.delivered():
            name = message.body.decode()
            early = self.due[name] - timestamp_to_millis(message.store_time, "store_time")
            assert early <= 0, f"{name} came {early} ms early"


@pytest.mark.parametrize("seed", [*range(12), 1008, 1009, 1046])
def test_each_message_comes_once_whoever_has_the_store(
    seed: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_index, "MEMORY_COUNT_MAX", 16)
    Run(seed, tmp_path, is_killed=False).run()


@pytest.mark.parametrize("seed", range(100, 104))
def test_no_message_is_missing_when_reput_is_killed(seed: int, tmp_path: pathlib.Path) -> None:
    Run(seed, tmp_path, is_killed=True).run()
