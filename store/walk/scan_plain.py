"""The functions of `scan_kernel.py`, made of the plain codecs: for a process that cannot compile, or was told not to.

Slow, and small: everything about a record that the caller can ask the plain codec itself is left to the caller. So each row
is doubtful when sums are to be checked, and the properties of each row are to be read plainly (TOO_MANY).
"""

from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from store.errors import RecordCorruptedError
from store.format.record_header import RecordHeader, decode_header, locate_topic
from store.format.record_layout import HEADS
from store.walk.scan_layout import (
    AT,
    BODY_AT,
    BODY_CRC,
    BODY_SIZE,
    BORN_HOST,
    BORN_TIME,
    FLAG,
    INT64_MAX,
    INT64_MIN,
    IS_DOUBTFUL,
    LENGTHS,
    MARK_RECORD_COUNT,
    MARK_TIME_MAX,
    MARK_TIME_MIN,
    NAME_AT,
    NAME_SIZE,
    PREPARED_OFFSET,
    PROPERTIES_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    SIZE,
    STATED_OFFSET,
    STORE_HOST,
    STORE_TIME,
    SUMS,
    SYS_FLAG,
    TOO_MANY,
    TOPIC,
)

Array = npt.NDArray[Any]
BORN_HOST_AT = 48  # in a record, bytes


def fill_rows(
    data: Array,
    at: int,
    end: int,
    commit_log_offset: int,
    check: int,
    with_hosts: bool,
    row_count_max: int,
    rows_32: Array,
    rows_64: Array,
    topics: Array,
    topic_slots: Array,
    hosts: Array,
    host_slots: Array,
) -> tuple[int, int, int, int]:
    """See `scan_kernel.fill_rows`; the slots are not used."""
    topic_numbers: dict[bytes, int] = {}
    host_numbers: dict[bytes, int] = {}
    row_count_max = min(row_count_max, rows_32.shape[1], rows_64.shape[1])
    count = 0
    for begin, header, topic_at, properties_at in _records(data, at, end, commit_log_offset, check):
        if count == row_count_max:
            break
        topic = _number(data, topics, topic_numbers, topic_at, properties_at - 2)
        born_host = store_host = 0
        if with_hosts and topic >= 0:
            host_at = begin + BORN_HOST_AT
            host_end = host_at + len(header.born_host_bytes)
            born_host = _number(data, hosts, host_numbers, host_at, host_end)
            store_host_at = host_end + 8
            store_host_end = store_host_at + len(header.store_host_bytes)
            store_host = _number(data, hosts, host_numbers, store_host_at, store_host_end) if born_host >= 0 else -1
        if min(topic, born_host, store_host) < 0:
            break
        at = begin + header.size_bytes
        rows_32[:, count] = 0
        rows_32[[SIZE, BODY_CRC, QUEUE_ID, FLAG, SYS_FLAG, RECONSUME_TIMES, BODY_SIZE], count] = (
            header.size_bytes, header.body_crc, header.queue_id, header.flag, header.sys_flag, header.reconsume_times,
            header.body_size_bytes,
        )  # fmt: skip
        rows_32[[PROPERTIES_SIZE, TOPIC, BORN_HOST, STORE_HOST, IS_DOUBTFUL], count] = (
            at - properties_at, topic, born_host, store_host, check == SUMS,
        )  # fmt: skip
        rows_64[[AT, BODY_AT, QUEUE_OFFSET, STATED_OFFSET, BORN_TIME, STORE_TIME, PREPARED_OFFSET], count] = (
            begin, begin + HEADS[(header.sys_flag >> 4) & 3].size, header.queue_offset, header.commit_log_offset,
            header.born_time_millis, header.store_time_millis, header.prepared_transaction_offset,
        )  # fmt: skip
        count += 1
    return count, len(topic_numbers), len(host_numbers), at


def find_properties(
    data: Array,
    begins: Array,
    sizes: Array,
    spans: Array,
    kinds: Array,
    with_map: bool,
    properties: Array,
    property_ends: Array,
    with_keys: bool,
    keys: Array,
    key_ends: Array,
) -> None:
    """See `scan_kernel.find_properties`; leaves every row to the caller."""
    spans[:] = -1
    spans[0::2, : len(begins)] = begins
    kinds[:] = TOO_MANY
    property_ends[:] = 0
    key_ends[:] = 0


def mark_frames(
    data: Array, at: int, end: int, commit_log_offset: int, check: int, block_size: int, block_end: int, marks: Array
) -> tuple[int, int, int, int]:
    """See `scan_kernel.mark_frames`."""
    base = commit_log_offset - at
    count = mark = 0
    for begin, header, _, _ in _records(data, at, end, commit_log_offset, check):
        offset, time = base + begin, header.store_time_millis
        if offset >= block_end:
            if mark + 1 == marks.shape[1]:
                break
            mark += 1
            marks[:, mark] = (offset, 0, INT64_MAX, INT64_MIN)
            block_end += (offset - block_end) // block_size * block_size + block_size
        marks[MARK_RECORD_COUNT, mark] += 1
        marks[MARK_TIME_MIN, mark] = min(int(marks[MARK_TIME_MIN, mark]), time)
        marks[MARK_TIME_MAX, mark] = max(int(marks[MARK_TIME_MAX, mark]), time)
        count += 1
        at = begin + header.size_bytes
    return count, at, mark + 1, block_end


def _records(
    data: Array, at: int, end: int, commit_log_offset: int, check: int
) -> Iterator[tuple[int, RecordHeader, int, int]]:
    """Where each record in order begins, its header, and where its topic and its properties begin."""
    view = data.data[: min(end, len(data))].toreadonly()
    base = commit_log_offset - at
    while at < len(view):
        try:
            header = decode_header(view, at, None if check == LENGTHS else base + at)
        except RecordCorruptedError:
            return
        if header.is_blank or at + header.size_bytes > len(view):
            return
        frame = view[at : at + header.size_bytes]
        body_at = HEADS[(header.sys_flag >> 4) & 3].size
        topic_at, properties_at, why = locate_topic(frame, header.magic, body_at + header.body_size_bytes)
        if why:
            return
        yield at, header, at + topic_at, at + properties_at
        at += header.size_bytes


def _number(data: Array, table: Array, numbers: dict[bytes, int], begin: int, end: int) -> int:
    """The number of a name, which is entered when it is new; -1 when the table is full."""
    name = data[begin:end].tobytes()
    if name not in numbers:
        if len(numbers) == table.shape[1]:
            return -1
        number = numbers[name] = len(numbers)
        table[NAME_AT, number], table[NAME_SIZE, number] = begin, end - begin
    return numbers[name]
