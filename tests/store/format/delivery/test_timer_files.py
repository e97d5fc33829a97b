"""RocketMQ's files of timers, as RocketMQ 5.3.3 wrote them and as they are written here."""

import dataclasses
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store.errors import StoreCorruptedError
from store.format.delivery import timer_files
from store.format.delivery.timer_files import (
    BLANK_SIZE_BYTES,
    PAGE_SIZE_BYTES,
    UNIT_SIZE_BYTES,
    TimerCheckpoint,
    UnitChain,
    blank,
    check_timer_page,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
    is_own_timer_checkpoint,
    unit_count_of_file,
)

LONGS = st.integers(-(2**63), 2**63 - 1)
NOW = 1_795_000_000_000


def unit(due_millis: int, commit_log_offset: int) -> bytes:
    """As `TimerMessageStore.doEnqueue` puts the numbers one behind the other."""
    return struct.pack(">iqiqiqiiq", 52, 0, 1, NOW, due_millis - NOW, commit_log_offset, 300, 77, 0)


@given(st.builds(TimerCheckpoint, *[LONGS] * 7))
def test_a_page_written_here_is_read_as_it_was_and_is_ours(checkpoint: TimerCheckpoint) -> None:
    page = encode_timer_checkpoint(checkpoint)
    assert len(page) == PAGE_SIZE_BYTES
    assert decode_timer_checkpoint(page) == checkpoint
    assert is_own_timer_checkpoint(page)


@given(st.builds(TimerCheckpoint, *[LONGS] * 7), st.integers(0, 55), st.integers(1, 255))
def test_a_page_that_a_broker_changed_is_not_ours(checkpoint: TimerCheckpoint, place: int, change: int) -> None:
    page = bytearray(encode_timer_checkpoint(checkpoint))
    page[place] ^= change
    assert not is_own_timer_checkpoint(bytes(page))


def test_a_page_without_its_numbers_is_refused() -> None:
    for size in range(56):
        with pytest.raises(StoreCorruptedError):
            decode_timer_checkpoint(bytes(size))


def as_rocketmq_appends(units: list[bytes], file_size_bytes: int) -> tuple[bytes, dict[int, int]]:
    """`TimerLog.append` and `TimerWheel.putSlot`, one unit after the other: the log, and the last position of each slot."""
    log, last = bytearray(), dict[int, int]()
    for one in units:
        left = file_size_bytes - len(log) % file_size_bytes
        if len(one) + BLANK_SIZE_BYTES > left:
            log += struct.pack(">iqI", left, 0, 0xBBCCDDEE ^ (1880681586 + 8)).ljust(left, b"\0")
        slot = (NOW + int.from_bytes(one[24:28], "big", signed=True)) // 1000
        position = len(log)
        log += one[:4] + struct.pack(">q", last.get(slot, -1)) + one[12:]
        last[slot] = position
    return bytes(log), last


@given(
    st.lists(st.integers(NOW, NOW + 5_000), max_size=40),
    st.lists(st.integers(1, 9), min_size=40, max_size=40),
    st.integers(UNIT_SIZE_BYTES + BLANK_SIZE_BYTES, 400),
)
@example(due=[NOW] * 3, parts=[1] * 40, file_size_bytes=UNIT_SIZE_BYTES + BLANK_SIZE_BYTES)  # a file for each unit
def test_units_are_chained_as_rocketmq_chains_them(due: list[int], parts: list[int], file_size_bytes: int) -> None:
    units = [unit(millis, number) for number, millis in enumerate(due)]
    expected, _ = as_rocketmq_appends(units, file_size_bytes)
    chain = UnitChain(file_size_bytes)
    linked: list[bytes] = []
    left = list(units)
    for count in parts:
        some = chain.link(b"".join(left[:count])).tobytes()
        linked += [some[at : at + UNIT_SIZE_BYTES] for at in range(0, len(some), UNIT_SIZE_BYTES)]
        left = left[count:]
    per_file = unit_count_of_file(file_size_bytes)
    files = [b"".join(linked[at : at + per_file]) for at in range(0, len(linked), per_file)]
    whole = [(one + blank(file_size_bytes)).ljust(file_size_bytes, b"\0") for one in files[:-1]] + files[-1:]
    assert b"".join(whole) == expected


def test_bytes_that_are_no_units_are_refused() -> None:
    for data in (bytes(UNIT_SIZE_BYTES), unit(NOW, 0)[:-1]):
        with pytest.raises(StoreCorruptedError):
            UnitChain(timer_files.FILE_SIZE_BYTES_DEFAULT).link(data)


# From a store of RocketMQ 5.3.3 with mappedFileSizeTimerLog=8192: five timers, two recalls of them, one more timer.
BROKER_PAGE = bytes.fromhex(
    "000001a208eaac5800000000000001a0000000000000000800000000000000080000000000000000000001a208eaade3000000000000000a"
)
BROKER_UNITS = bytes.fromhex(
    "00000034ffffffffffffffff00000001000001a208ea7d78fff76cb000000000000000c8000001290000005400000000000000000000"
    "0034ffffffffffffffff00000001000001a208ea7d78fff7f95000000000000001f10000012900000054000000000000000000000034"
    "ffffffffffffffff00000001000001a208ea7d78fff88208000000000000031a0000012900000054000000000000000000000034ffff"
    "ffffffffffff00000001000001a208ea7d78fff80cd800000000000004430000012900000054000000000000000000000034ffffffff"
    "ffffffff00000001000001a208ea7d78fff82060000000000000056c0000012900000054000000000000000000000034000000000000"
    "009c00000005000001a208ea7d78fff80cd80000000000000d1d0000016b0000005400000000000000000000003400000000000000d0"
    "00000005000001a208ea7d78fff82060000000000000112f0000016b00000054000000000000000000000034ffffffffffffffff0000"
    "0001000001a208eaa0a00000ea600000000000001bf500000129000000540000000000000000"
)


def test_a_page_of_a_broker_is_read_and_is_not_ours() -> None:
    page = BROKER_PAGE.ljust(PAGE_SIZE_BYTES, b"\0")
    assert decode_timer_checkpoint(page) == TimerCheckpoint(1795445927000, 416, 8, 8, 0, 1795445927395, 10)
    assert not is_own_timer_checkpoint(page)


def test_units_of_a_broker_get_the_positions_that_it_gave_them() -> None:
    bare = b"".join(
        BROKER_UNITS[at : at + 4] + bytes(8) + BROKER_UNITS[at + 12 : at + UNIT_SIZE_BYTES]
        for at in range(0, len(BROKER_UNITS), UNIT_SIZE_BYTES)
    )
    assert UnitChain(8192).link(bare).tobytes() == BROKER_UNITS


@pytest.mark.parametrize("page", [TimerCheckpoint(*[0] * 7), TimerCheckpoint(*[NOW] * 7)])
def test_a_page_that_a_broker_writes_is_taken(page: TimerCheckpoint) -> None:
    check_timer_page(encode_timer_checkpoint(page))


@pytest.mark.parametrize(
    ("field", "value"),
    [("last_read_millis", -1), ("last_read_millis", 2**62), ("timer_log_end", -1), ("queue_offset", -1)],
)
def test_a_page_that_nothing_writes_is_damage_with_what_it_says(field: str, value: int) -> None:
    page = dataclasses.replace(TimerCheckpoint(*[NOW] * 7), **{field: value})
    with pytest.raises(StoreCorruptedError, match="config/timercheck cannot be read"):
        check_timer_page(encode_timer_checkpoint(page))
