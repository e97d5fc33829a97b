"""Beside a broker that runs: what it has delivered by its files does not wait here, and nothing is appended."""

import json
from collections.abc import Callable
from dataclasses import replace

from store.format.delivery.timer_files import TimerCheckpoint, encode_timer_checkpoint
from tests.schedule_svc.memory_life import MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import ManualClock

START = TimerCheckpoint()


def waiting(life: MemoryLife) -> list[str]:
    """The bodies of what waits, the next one that is due first."""
    found, token = life.kinds.listing.page("", 100, "")
    assert token == ""
    return [one.message.unique_key for one in found]


def by_broker(checkpoint: TimerCheckpoint) -> bytes:
    """The page as a broker writes it, without our digest."""
    return encode_timer_checkpoint(checkpoint)[:64].ljust(4096, b"\0")


def test_what_the_broker_has_delivered_does_not_wait(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    now = clock.now // 1000 * 1000
    log.config["delayOffset.json"] = b'{"offsetTable":{}}'
    log.config["timercheck"] = by_broker(replace(START, last_read_millis=now))
    log.write([delayed("a", 1), delayed("b", 1), delayed("c", 2)])
    log.write([timed("t1", now + 2_000), timed("t2", now + 9_000)])
    life = begin(read_only=True, is_beside=True)
    life.work()
    assert sorted(waiting(life)) == ["a", "b", "c", "t1", "t2"]

    clock.now += 4_000
    log.config["delayOffset.json"] = b'{"offsetTable":{1:1'  # half written
    life.work()
    assert len(waiting(life)) == 5
    log.config["delayOffset.json"] = b'{"offsetTable":{1:1}}'
    log.config["timercheck"] = by_broker(replace(START, last_read_millis=now + 4_000))
    life.work()
    assert sorted(waiting(life)) == ["b", "c", "t2"]
    log.config["delayOffset.json"] = json.dumps({"offsetTable": {"1": 2, "2": 1}}).encode()
    log.config["timercheck"] = by_broker(replace(START, last_read_millis=now + 10_000))
    life.work()
    assert waiting(life) == []
    assert list(log.delivered()) == []


def test_what_is_overdue_there_keeps_no_thread_busy(
    log: MemoryLog, begin: Callable[..., MemoryLife], clock: ManualClock
) -> None:
    log.config["delayOffset.json"] = b'{"offsetTable":{}}'
    log.write([delayed("a", 1)])
    life = begin(read_only=True, is_beside=True)
    clock.now += 60_000
    life.work()
    assert life.kinds.levels.work() > life.life.clock.millis()
