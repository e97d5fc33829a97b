"""Random sends, times, recalls, kills, lost files, lost tails and retention over a log in memory, judged by a small model.

A seed makes the whole run. What must hold: each message that is due is in the log exactly once, none before its time by the
store times of the log, and none is lost.
"""

import contextlib
import pathlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from schedule_svc.follower import STATE_TOPIC
from schedule_svc.timers import recalls, roller, timer_index
from services.convert import timestamp_to_millis
from services.following.state_topic import state_follower
from store.errors import ScheduledMessageNotFoundError, StoreError
from tests.schedule_svc.memory_life import DELAYS_MILLIS, TARGET, MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import ManualClock, Queue
from tests.support.waiting import WAIT_SECONDS_MAX

STEP_COUNT = 150
HOUR_MILLIS = 3_600_000


@dataclass(slots=True)
class Sent:
    """A message as the model knows it. `deliver_millis`: its time; `level`: 0 for a timer."""

    due_millis: int
    level: int
    is_recalled: bool = False
    may_be_recalled: bool = False


class Run:
    """One random run.

    Args:
        seed: makes it.
        directory: for the files of timers.
    """

    def __init__(self, seed: int, directory: pathlib.Path) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock)
        self.sent: dict[str, Sent] = {}
        self.life = self.begin()

    def begin(self) -> MemoryLife:
        """The next life; it begins when the state can be read."""
        self.log.appends_left = None
        self.log.unreadable -= {unit.commit_log_offset for unit in self.log.queues.get((STATE_TOPIC, 0), Queue()).units}
        return MemoryLife(self.log, self.directory)

    def run(self) -> None:
        """All steps, and the end, at which everything is delivered."""
        steps = (
            *[self.send] * 6,
            *[self.work] * 6,
            *[self.step_clock] * 4,
            *[self.recall] * 3,
            *[self.full, self.crash, self.break_appends, self.restart, self.lose_files, self.remove, self.jump],
            *[self.unread, self.forget_files, self.cut, self.cut],
        )
        for _ in range(STEP_COUNT):
            try:
                self.random.choice(steps)()
            except StoreError:
                assert self.life.writer is not None
                if self.life.writer.error is not None:
                    self.crash()
        self.finish()

    # -- steps

    def send(self) -> None:
        """Producers send."""
        for _ in range(self.random.randint(1, 12)):
            name = f"m{len(self.sent)}"
            if self.random.random() < 0.3:
                level = self.random.randint(1, len(DELAYS_MILLIS))
                self.log.write([delayed(name, level)])
                self.sent[name] = Sent(self.log.now + DELAYS_MILLIS[level - 1], level)
            else:
                ahead = self.random.choice((1, 500, 3_000, 60_000, HOUR_MILLIS, 5 * HOUR_MILLIS))
                due_millis = self.log.now + self.random.randint(1, ahead)
                self.log.write([timed(name, due_millis)])
                self.sent[name] = Sent(due_millis, 0)

    def work(self) -> None:
        """The service does what is due."""
        self.life.work()

    def step_clock(self) -> None:
        """Time passes."""
        self.clock.now += self.random.choice((1, 300, 999, 1_000, 5_000, 60_000, HOUR_MILLIS // 2))

    def jump(self) -> None:
        """The clock of the machine is set."""
        self.clock.now += self.random.choice((-HOUR_MILLIS, -5_000, HOUR_MILLIS))

    def recall(self) -> None:
        """Someone takes a message back."""
        timers = [name for name, one in self.sent.items() if not one.level]
        if not timers:
            return
        name = self.random.choice(timers[-30:])
        one = self.sent[name]
        self.life.follow()
        self.life.kinds.reader.work()  # its thread; a recall waits for it
        try:
            self.life.kinds.recalls.recall(TARGET, name, one.due_millis)
            assert not one.is_recalled, f"{name} was recalled twice"
            one.is_recalled = True
        except ScheduledMessageNotFoundError:
            copies = sum(message.body == name.encode() for message in self.log.delivered())
            assert one.is_recalled or one.may_be_recalled or copies or self.is_in_hand(), f"{name} is not found"
        except StoreError:
            one.may_be_recalled = True
            raise

    def is_in_hand(self) -> bool:
        """Whether messages are being delivered, which cannot be read now."""
        book = self.life.kinds.timers.book
        return bool(len(book.in_hand) or book.kept)

    def full(self) -> None:
        """The full state is written."""
        self.life.life.write_full(self.life.kinds.all).result(WAIT_SECONDS_MAX)

    def break_appends(self) -> None:
        """An append will fail, carried out or not."""
        self.log.appends_left = self.random.randint(0, 3)
        self.log.writes_failing = self.random.random() < 0.5

    def unread(self) -> None:
        """Some records cannot be read for a while."""
        if self.log.unreadable:
            self.log.unreadable.clear()
        else:
            self.log.unreadable.update(self.random.sample(sorted(self.log.records), min(3, len(self.log.records))))

    def crash(self) -> None:
        """The process is killed, and started."""
        self.life.end(is_clean=False)
        self.life = self.begin()

    def restart(self) -> None:
        """It ends cleanly, and is started."""
        self.life.end(is_clean=True)
        self.life = self.begin()

    def lose_files(self) -> None:
        """The files of the timers are lost."""
        self.life.end(is_clean=self.random.random() < 0.5)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.life = self.begin()

    def forget_files(self) -> None:
        """A file is damaged."""
        files = sorted(self.directory.glob("*.run"))
        self.life.end(is_clean=True)
        if files and files[0].exists():
            files[0].write_bytes(files[0].read_bytes()[:-1] + b"?")
        self.life = self.begin()

    def cut(self) -> None:
        """A power cut, or a change of leaders, takes what the service wrote and Reput has not shown."""
        self.life.follow()
        shown_end = self.log.end
        timers = [name for name, one in self.sent.items() if not one.level]
        kinds = self.life.kinds
        work: list[Callable[[], object]] = [kind.work for kind in kinds.all]
        work.append(lambda: self.life.follower.apply(None, shown_end, 0, shown_end))
        if timers:
            name = self.random.choice(timers[-30:])
            work.append(lambda: kinds.recalls.recall(TARGET, name, self.sent[name].due_millis))
        for step in self.random.choices(work, k=8):
            with contextlib.suppress(StoreError):
                step()
            assert self.life.writer is not None
            self.life.writer.newest().exception(WAIT_SECONDS_MAX)
        if self.life.reported:
            self.log.remove_before(self.life.reported[-1])
        self.life.end(is_clean=self.random.random() < 0.5)
        self.log.cut(shown_end)
        self.life = self.begin()

    def remove(self) -> None:
        """Retention removes all that nobody needs."""
        self.life.follow()
        if self.life.reported:
            self.log.remove_before(self.life.reported[-1])

    # -- the end

    def finish(self) -> None:
        """Let all time pass, and judge."""
        self.log.unreadable.clear()
        self.log.appends_left = None
        assert self.life.writer is not None
        if self.life.writer.error is not None:
            self.crash()
        for _ in range(4):
            self.clock.now = max(self.clock.now, self.log.now) + 6 * HOUR_MILLIS
            self.life.work()
        copies: dict[str, int] = {}
        last_of_level: dict[int, int] = {}
        for message in self.log.delivered():
            name = message.body.decode()
            one = self.sent[name]
            copies[name] = copies.get(name, 0) + 1
            stored_millis = timestamp_to_millis(message.store_time, "store_time")
            assert stored_millis >= one.due_millis, f"{name} came {one.due_millis - stored_millis} ms early"
            if one.level:
                assert int(name[1:]) > last_of_level.get(one.level, -1), f"{name} was overtaken in its level"
                last_of_level[one.level] = int(name[1:])
        for name, one in self.sent.items():
            allowed = (0,) if one.is_recalled else (0, 1) if one.may_be_recalled else (1,)
            assert copies.get(name, 0) in allowed, f"{name} is in the log {copies.get(name, 0)} times: {one}"
        assert self.life.kinds.levels.pending_count() == 0
        assert self.life.kinds.timers.book.pending_count() == 0
        self.life.end(is_clean=True)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written, merged and rolled after a few messages."""
    monkeypatch.setattr(state_follower, "FULL_LOG_BYTES", 3_000)
    monkeypatch.setattr(timer_index, "MEMORY_COUNT_MAX", 8)
    monkeypatch.setattr(timer_index, "FRESH_COUNT_MAX", 3)
    monkeypatch.setattr(timer_index, "FILE_COUNT_MAX", 64)
    monkeypatch.setattr(timer_index, "CONFIRM_SECONDS_MAX", 0.2)
    monkeypatch.setattr(recalls, "KNOWN_SECONDS_MAX", 0.01)
    monkeypatch.setattr(roller, "LOOK_MILLIS", 1_000)
    monkeypatch.setattr(roller, "SOON_MILLIS", 10_000)
    monkeypatch.setattr(roller, "PASS_BYTES", 2_000)


@pytest.mark.parametrize("seed", range(30))
def test_each_due_message_is_there_once_and_never_early(seed: int, tmp_path: pathlib.Path) -> None:
    Run(seed, tmp_path / "timers").run()
