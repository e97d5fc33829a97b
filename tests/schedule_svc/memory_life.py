"""Lives of the schedule service on a log in memory, without threads of their own: `work` does what is due."""

import pathlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import FLUSH_MODE_UNSPECIFIED, StoredMessage
from schedule_svc.follower import STATE_TOPIC, TOPIC, ScheduleFollower
from schedule_svc.kinds import KindRules, Kinds
from schedule_svc.life import Append, Life
from schedule_svc.state.schedule_state import ScheduleState
from schedule_svc.transactions.half_messages import CheckRules
from schedule_svc.transactions.kind import LastingTransactions
from services.following.follower_progress import FollowerProgress
from services.following.state_topic.state_log import LoadedState, load_state
from services.following.state_topic.state_writer import StateWriter
from services.following.store_clock import DueClock
from services.reading.queue_reader import QueueReader
from services.reading.recent_units import RecentUnits
from store.format.properties import (
    DELAY,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from store.format.topic import SCHEDULE_TOPIC, TIMER_TOPIC
from tests.support import memory_log
from tests.support.memory_log import ManualClock, Queue, always_newer
from tests.support.waiting import WAIT_SECONDS_MAX

DELAYS_MILLIS = (1_000, 5_000, 60_000)
ROLL_AFTER_MILLIS = 600_000
TARGET = "orders"


class MemoryLog(memory_log.MemoryLog):
    """A log in memory with the state of waiting messages."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, STATE_TOPIC)

    def state(self) -> LoadedState[ScheduleState]:
        """The state as the log has it."""
        queue = self.queues.get((STATE_TOPIC, 0), Queue())
        return load_state(
            TOPIC,
            queue.first,
            queue.end,
            lambda offset, count: queue.units[offset - queue.first : offset - queue.first + count],
            lambda units: [self.records[unit.commit_log_offset].body for unit in units],
        )

    def cut(self, commit_log_offset: int) -> None:
        """Lose what is at an offset and behind it: a power cut, or a new leader, takes what was not confirmed."""
        for key, queue in list(self.queues.items()):
            queue.units[:] = [unit for unit in queue.units if unit.commit_log_offset < commit_log_offset]
            if not queue.end:
                del self.queues[key]
        self.records = {offset: record for offset, record in self.records.items() if offset < commit_log_offset}
        self.written = [message for message in self.written if message.commit_log_offset < commit_log_offset]
        self.end = commit_log_offset

    def delivered(self, topic: str = TARGET) -> Iterator[StoredMessage]:
        """The messages that were ever appended to a topic, in log order."""
        return (message for message in self.written if message.topic == topic)


class MemoryLife:
    """A life of the service on a MemoryLog.

    Args:
        log: the log.
        directory: of the files of timers.
        read_only: nothing is appended.
        is_beside: a broker runs on the store; `read_only`, too.

    Attributes:
        leads: whether the log leads, without a break since the begin.
    """

    def __init__(
        self, log: MemoryLog, directory: pathlib.Path, *, read_only: bool = False, is_beside: bool = False
    ) -> None:
        self.log = log
        self.leads = True
        self.writer: StateWriter | None = None
        append: Append | None = None
        if not read_only:
            epoch = log.epoch + 1
            self.writer = StateWriter(TOPIC, partial(log.append, epoch), epoch)
            append = partial(log.append, epoch, flush=FLUSH_MODE_UNSPECIFIED)
            log.epoch = epoch
        self.loaded = log.state()
        if self.writer is not None:
            self.writer.changes_behind_full = self.loaded.change_count
        recent = log.recent = RecentUnits(16)
        recent.set_ends((topic, queue_id, queue.end) for (topic, queue_id), queue in log.queues.items())
        client: Any = log
        clock = DueClock(lambda: log.clock.now, log.now)
        reader = QueueReader(recent, client, client, clock=always_newer())
        self.life = Life(self.writer, reader, clock, append)
        self.progress = FollowerProgress()
        rules = KindRules(None if read_only else directory, DELAYS_MILLIS, ROLL_AFTER_MILLIS, "broker-a", CheckRules())
        lasting = LastingTransactions()
        end_offset = lambda: log.end  # noqa: E731
        self.kinds = Kinds.of(
            self.life,
            self.loaded.states,
            client,
            self.progress,
            end_offset,
            lambda: self.leads,
            rules,
            lasting,
            is_beside=is_beside,
        )
        for kind in self.kinds.all:
            kind.begin()
        self.reported: list[int] = []
        self.follower = ScheduleFollower(
            self.life,
            self.writer,
            self.kinds,
            self.progress,
            recent,
            log.end,
            self.loaded.first_offset,
            lambda offset, _store_time: self.reported.append(offset),
            end_offset,
            always_newer(),
        )

    def follow(self) -> None:
        """Hear of all records of the log."""
        self.follower.apply(None, self.log.end, 0, self.log.end)

    def work(self) -> None:
        """Do all that is due now; what it does is in the log when this returns."""
        while True:
            self.follow()
            end = self.log.end
            try:
                for kind in self.kinds.all:
                    kind.work()
            finally:
                if self.writer is not None:
                    self.writer.newest().exception(WAIT_SECONDS_MAX)  # before a test moves the clock
            if self.writer is not None:
                self.writer.newest().result(WAIT_SECONDS_MAX)
            if self.log.end == end:
                return

    def end(self, *, is_clean: bool) -> None:
        """End the life."""
        if is_clean:
            self.follower.stop()
        else:
            self.follower.abandon()


def delayed(name: str, level: int, topic: str = TARGET) -> InternalRecord:
    """A message that waits by a delay level, as the commit log stores it."""
    properties = {DELAY: str(level), REAL_TOPIC: topic, REAL_QUEUE_ID: "0", UNIQ_KEY: name}
    return InternalRecord(topic=SCHEDULE_TOPIC, queue_id=level - 1, body=name.encode(), properties=properties)


def timed(name: str, deliver_millis: int, topic: str = TARGET, **properties: str) -> InternalRecord:
    """A message that waits for a time, as the commit log stores it."""
    all_properties = {
        TIMER_DELIVER_MS: str(deliver_millis),
        TIMER_OUT_MS: str((deliver_millis - 1) // 1000 * 1000),
        REAL_TOPIC: topic,
        REAL_QUEUE_ID: "0",
        UNIQ_KEY: name,
        **properties,
    }
    return InternalRecord(topic=TIMER_TOPIC, body=name.encode(), properties=all_properties)
