"""Units of timerlog, against what RocketMQ makes of the same timers.

Beside a broker that runs: what it has delivered by its files does not wait here, and nothing is appended.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule_svc.broker_files import LOOK_BACK_MILLIS, encode_last_unit, encode_units, first_slot
from schedule_svc.timers.runs import Entries
from store.format.delivery.timer_files import UNIT_SIZE_BYTES, TimerCheckpoint, encode_timer_checkpoint
from tests.schedule_svc.memory_life import MemoryLife, MemoryLog, delayed, timed
from tests.support.memory_log import ManualClock

NOW = 1_795_000_000_400
NOW_SLOT = 1_795_000_000_000
DAY = 86_400_000


def as_do_enqueue_decides(timer_out_millis: int, write_millis: int) -> tuple[int, int]:
    """`TimerMessageStore.doEnqueue` of RocketMQ 5.3.3: slot and magic."""
    window_slots, precision = 3600 * 24 * 2, 1000
    if timer_out_millis - write_millis < window_slots * precision:
        return timer_out_millis, 1
    if timer_out_millis - write_millis - window_slots * precision < window_slots // 3 * precision:
        return write_millis + window_slots // 2 * precision, 1 | 2
    return write_millis + window_slots * precision, 1 | 2


@given(st.lists(st.integers(NOW - 3 * DAY, NOW + 400 * DAY), min_size=1, max_size=20))
def test_slots_and_magics_are_those_of_a_broker(dues: list[int]) -> None:
    timers = Entries.of([(due, number, number * 1000, 7, 300) for number, due in enumerate(dues)])
    first = first_slot(min(dues), NOW)
    data = encode_units(timers, first, NOW)
    for at, (due, number) in enumerate(sorted((due, number) for number, due in enumerate(dues))):
        size, before, magic, written, delay, place, record_size, _, _ = struct.unpack_from(
            ">iqiqiqiiq", data, at * UNIT_SIZE_BYTES
        )
        timer_out = (due - 1) // 1000 * 1000  # `HookUtils.transformTimerMessage`
        assert (written + delay, magic) == as_do_enqueue_decides(timer_out, NOW_SLOT)
        assert (size, before, place, record_size) == (UNIT_SIZE_BYTES, 0, number * 1000, 300)
        assert first <= written + delay


@pytest.mark.parametrize(
    ("oldest", "slot"),
    [
        (None, NOW_SLOT),
        (NOW + DAY, NOW_SLOT),
        (NOW_SLOT + 1, NOW_SLOT),
        (NOW_SLOT, NOW_SLOT - 1000),
        (NOW_SLOT - 999, NOW_SLOT - 1000),
        (NOW - 30 * DAY, NOW_SLOT - LOOK_BACK_MILLIS),
    ],
)
def test_a_broker_reads_first_the_slot_of_the_oldest_timer(oldest: int | None, slot: int) -> None:
    assert first_slot(oldest, NOW) == slot


def test_what_is_overdue_for_long_gets_the_slot_that_is_read_first() -> None:
    first = first_slot(NOW - 30 * DAY, NOW)
    data = encode_units(Entries.of([(NOW - 30 * DAY, 0, 0, 7, 300)]), first, NOW)
    _, _, magic, written, delay, *_ = struct.unpack(">iqiqiqiiq", data)
    assert (written + delay, magic) == (first, 1)


def test_the_last_unit_is_in_a_slot_that_no_broker_reads() -> None:
    _, _, magic, written, delay, place, size, _, _ = struct.unpack(">iqiqiqiiq", encode_last_unit(77, 300, NOW_SLOT))
    assert (written + delay, magic, place, size) == (NOW_SLOT - 1000, 1, 77, 300)


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
