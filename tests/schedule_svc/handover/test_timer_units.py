"""Units of timerlog, against what RocketMQ makes of the same timers."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule_svc.handover.timer_units import LOOK_BACK_MILLIS, encode_last_unit, encode_units, first_slot
from schedule_svc.timers.entries import Entries
from store.format.delivery.timer_files import UNIT_SIZE_BYTES

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
