"""Delay levels: RocketMQ's order and properties, kills, skipped records, and requests that fit."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import AppendResult
from schedule_svc import batches
from schedule_svc.follower import STATE_TOPIC
from store.errors import ServiceUnavailableError
from store.format.properties import DELAY, MOVED_FROM, REAL_QUEUE_ID, REAL_TOPIC, UNIQ_KEY
from store.format.topic import SCHEDULE_TOPIC
from tests.schedule_svc.memory_life import TARGET, MemoryLife, MemoryLog, delayed
from tests.support.memory_log import ManualClock
from tests.support.waiting import WAIT_SECONDS_MAX


def bodies(log: MemoryLog) -> list[str]:
    """What was delivered, in order."""
    return [message.body.decode() for message in log.delivered()]


def test_a_level_delivers_in_order_when_its_delay_has_passed(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([delayed("a", 1), delayed("b", 2)])
    clock.now += 500
    log.write([delayed("c", 1)])
    clock.now += 499
    life.work()
    assert bodies(log) == []
    clock.now += 1
    life.work()
    assert bodies(log) == ["a"]
    clock.now += 500
    life.work()
    assert bodies(log) == ["a", "c"]
    clock.now += 3_500
    life.work()
    assert bodies(log) == ["a", "c", "b"]
    message = next(log.delivered())
    assert dict(message.properties) == {
        UNIQ_KEY: "a",
        REAL_TOPIC: TARGET,
        REAL_QUEUE_ID: "0",
        MOVED_FROM: f"0 0 {SCHEDULE_TOPIC}",
    }


def test_a_queue_behind_the_last_level_waits_as_the_last_level(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([delayed("a", 9)])
    clock.now += 59_999
    life.work()
    assert bodies(log) == []
    clock.now += 1
    life.work()
    assert bodies(log) == ["a"]


@pytest.mark.parametrize("is_written", [False, True])
def test_an_append_whose_outcome_is_not_known_delivers_once(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock, is_written: bool
) -> None:
    life = begin()
    log.write([delayed("a", 1), delayed("b", 1)])
    clock.now += 1_000
    log.appends_left, log.writes_failing = 0, is_written
    with pytest.raises(ServiceUnavailableError):
        life.work()
    log.appends_left = None
    life = begin()
    life.work()
    assert bodies(log) == ["a", "b"]


def test_removed_and_unusable_records_are_skipped_and_counted(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([delayed(name, 1) for name in "abcde"])
    log.remove(SCHEDULE_TOPIC, 0, 2)
    del log.records[log.queues[SCHEDULE_TOPIC, 0].units[0].commit_log_offset].properties[REAL_TOPIC]
    clock.now += 1_000
    life.work()
    assert bodies(log) == ["d", "e"]
    assert life.kinds.levels.skipped_count == 3


def test_messages_of_any_size_go_in_requests_that_fit(
    log: MemoryLog, life: MemoryLife, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES_MAX", 250)  # two records of a log in memory
    log.write([delayed(name, 1) for name in "abc"])
    large = delayed("d", 1)
    large.body = b"d" * (5 << 20)  # larger than an answer
    log.write([large])
    clock.now += 1_000
    life.work()
    assert [len(message.body) for message in log.delivered()] == [1, 1, 1, 5 << 20]
    assert all(len([record for record in request if record.topic == TARGET]) <= 2 for request in log.requests)


def test_nothing_is_written_before_something_is_delivered(log: MemoryLog, life: MemoryLife) -> None:
    log.write([delayed("a", 3)])
    life.work()
    assert (STATE_TOPIC, 0) not in log.queues
    assert life.reported[-1] == 0  # retention waits for the message


def test_the_delay_is_not_a_property_of_the_delivered_message(
    log: MemoryLog, life: MemoryLife, clock: ManualClock
) -> None:
    log.write([delayed("a", 1)])
    clock.now += 1_000
    life.work()
    assert DELAY not in next(log.delivered()).properties


class WatchedLock:
    """The lock of a life that looks at something each time that it is free."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._look = look
        self._depth = 0
        self._is_looking = False

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_error: object) -> None:
        self._depth -= 1
        is_free = not self._depth
        self._lock.release()
        if is_free and not self._is_looking and threading.current_thread() is threading.main_thread():
            self._is_looking = True
            self._look()
            self._is_looking = False


def test_retention_waits_for_a_message_until_its_request_is_in_the_log(
    log: MemoryLog, life: MemoryLife, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the moment in which the request is submitted: the message is the last of its level, and nothing else waits."""
    (stored,) = log.write([delayed("a", 1)])
    clock.now += 1_000
    answered = threading.Event()
    write = log.write

    def write_later(records: Sequence[InternalRecord]) -> list[AppendResult]:
        assert answered.wait(WAIT_SECONDS_MAX)
        return write(records)

    monkeypatch.setattr(log, "write", write_later)
    levels = life.kinds.levels
    needed: list[int] = []
    watched: Any = WatchedLock(lambda: needed.append(levels.needed_offset()))
    life.life.lock = watched
    levels.work()
    answered.set()
    assert life.writer is not None
    life.writer.newest().result(WAIT_SECONDS_MAX)
    assert needed
    assert set(needed) == {stored.commit_log_offset}
    assert levels.needed_offset() > stored.commit_log_offset
