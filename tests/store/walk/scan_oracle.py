"""The oracle of `scan_kernel.py`: the same functions over the same tables, made of the plain codecs."""

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from store.errors import RecordCorruptedError
from store.format.java_text import java_string_hash
from store.format.properties import KEYS, TAGS, UNIQ_KEY
from store.format.record import RecordHeader, decode_header, decode_record, locate_topic
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
    KEY_AT,
    KEY_SIZE,
    KEYS_AT,
    LENGTHS,
    MARK_OFFSET,
    MARK_RECORD_COUNT,
    MARK_TIME_MAX,
    MARK_TIME_MIN,
    NAME_AT,
    NAME_SIZE,
    NOT_ASCII,
    PLAIN,
    PREPARED_OFFSET,
    PROPERTIES_SIZE,
    PROPERTY_COUNT_MAX,
    PROPERTY_NAME_AT,
    PROPERTY_NAME_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    SIZE,
    STATED_OFFSET,
    STORE_HOST,
    STORE_TIME,
    SUMS,
    SYS_FLAG,
    TAGS_AT,
    TAGS_HASH,
    TOO_MANY,
    TOPIC,
    UNIQUE_KEY_AT,
    VALUE_AT,
    VALUE_SIZE,
)

Array = npt.NDArray[Any]
_BORN_HOST_AT = 48
_NAMED = {TAGS.encode(): TAGS_AT, KEYS.encode(): KEYS_AT, UNIQ_KEY.encode(): UNIQUE_KEY_AT}


class _Names:
    """A table of names, being filled."""

    def __init__(self, table: Array) -> None:
        self._table = table
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: bytes, at: int) -> int:
        """The name's number; -1 when the table is full."""
        number = self._numbers.get(name)
        if number is None:
            number = len(self._numbers)
            if number >= self._table.shape[1]:
                return -1
            self._numbers[name] = number
            self._table[NAME_AT, number], self._table[NAME_SIZE, number] = at, len(name)
        return number


def _header(frame: memoryview, stated_offset: int | None) -> tuple[RecordHeader, int, int, int] | None:
    """Header of the frame in order that begins here, and where in it body, topic and properties start."""
    try:
        header = decode_header(frame, 0, stated_offset)
    except RecordCorruptedError:
        return None
    if header.is_blank or header.size_bytes > len(frame):
        return None
    body_at = HEADS[(header.sys_flag >> 4) & 3].size
    topic_at, properties_at, why = locate_topic(
        frame[: header.size_bytes], header.magic, body_at + header.body_size_bytes
    )
    return None if why else (header, body_at, topic_at, properties_at)


def _is_doubtful(frame: memoryview) -> int:
    try:
        decode_record(frame)
    except RecordCorruptedError:
        return 1
    return 0


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
    """See `scan_kernel.fill_rows`; the slots are not used, and only what is wrong is doubtful."""
    view = data.data[: min(end, len(data))].toreadonly()
    topic_names, host_names = _Names(topics), _Names(hosts)
    count = 0
    while count < min(row_count_max, rows_32.shape[1], rows_64.shape[1]) and at < len(view):
        found = _header(view[at:], None if check == LENGTHS else commit_log_offset)
        if found is None:
            break
        header, body_at, topic_at, properties_at = found
        frame = view[at : at + header.size_bytes]
        topic = topic_names.number(bytes(frame[topic_at : properties_at - 2]), at + topic_at)
        born_host = store_host = 0
        if with_hosts and topic >= 0:
            born_host = host_names.number(header.born_host_bytes, at + _BORN_HOST_AT)
            store_host_at = at + _BORN_HOST_AT + len(header.born_host_bytes) + 8
            store_host = host_names.number(header.store_host_bytes, store_host_at) if born_host >= 0 else -1
        if min(topic, born_host, store_host) < 0:
            break
        rows_32[:, count] = 0
        for row, value in (
            (SIZE, header.size_bytes),
            (BODY_CRC, header.body_crc),
            (QUEUE_ID, header.queue_id),
            (FLAG, header.flag),
            (SYS_FLAG, header.sys_flag),
            (RECONSUME_TIMES, header.reconsume_times),
            (BODY_SIZE, header.body_size_bytes),
            (PROPERTIES_SIZE, header.size_bytes - properties_at),
            (TOPIC, topic),
            (BORN_HOST, born_host),
            (STORE_HOST, store_host),
            (IS_DOUBTFUL, _is_doubtful(frame) if check == SUMS else 0),
        ):
            rows_32[row, count] = value
        for row, value in (
            (AT, at),
            (BODY_AT, at + body_at),
            (QUEUE_OFFSET, header.queue_offset),
            (STATED_OFFSET, header.commit_log_offset),
            (BORN_TIME, header.born_time_millis),
            (STORE_TIME, header.store_time_millis),
            (PREPARED_OFFSET, header.prepared_transaction_offset),
        ):
            rows_64[row, count] = value
        count += 1
        at += header.size_bytes
        commit_log_offset += header.size_bytes
    return count, len(topic_names), len(host_names), at


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
    """See `scan_kernel.find_properties`."""
    property_count = key_count = 0
    for row, (begin, size) in enumerate(zip(begins.tolist(), sizes.tolist(), strict=True)):
        text = data[begin : begin + size].tobytes()
        found = _parse(text)
        kind = PLAIN if text.isascii() else NOT_ASCII
        for name, place in _NAMED.items():
            value_at, value = found.get(name, (0, b""))
            spans[place, row], spans[place + 1, row] = begin + value_at, len(value) or -1
        tags = found.get(TAGS.encode(), (0, b""))[1]
        spans[TAGS_HASH, row] = java_string_hash(tags.decode("ascii")) if tags.isascii() else 0
        if with_map:
            if len(found) > min(PROPERTY_COUNT_MAX, properties.shape[1] - property_count):
                kind = TOO_MANY
            else:
                property_count = _put(properties, property_count, begin, found)
        if with_keys and kind != TOO_MANY:
            spans_of_keys = _key_spans(begin + found[KEYS.encode()][0], found) if KEYS.encode() in found else []
            if len(spans_of_keys) > keys.shape[1] - key_count:
                kind = TOO_MANY
            else:
                for key_at, key_size in spans_of_keys:
                    keys[KEY_AT, key_count], keys[KEY_SIZE, key_count] = key_at, key_size
                    key_count += 1
        kinds[row], property_ends[row], key_ends[row] = kind, property_count, key_count


def _parse(text: bytes) -> dict[bytes, tuple[int, bytes]]:
    """Value and where in the text it stands, by name; in the order of the values."""
    found: dict[bytes, tuple[int, bytes]] = {}
    at = 0
    for entry in text.split(b"\x02"):
        name, _, value = entry.partition(b"\x01")
        if name and value:
            found.pop(name, None)
            found[name] = (at + len(name) + 1, value)
        at += len(entry) + 1
    return found


def _put(properties: Array, count: int, begin: int, found: dict[bytes, tuple[int, bytes]]) -> int:
    for name, (value_at, value) in found.items():
        properties[PROPERTY_NAME_AT, count] = begin + value_at - 1 - len(name)
        properties[PROPERTY_NAME_SIZE, count] = len(name)
        properties[VALUE_AT, count] = begin + value_at
        properties[VALUE_SIZE, count] = len(value)
        count += 1
    return count


def _key_spans(at: int, found: dict[bytes, tuple[int, bytes]]) -> Sequence[tuple[int, int]]:
    spans = []
    for key in found[KEYS.encode()][1].split(b" "):
        if key:
            spans.append((at, len(key)))
        at += len(key) + 1
    return spans


def mark_frames(
    data: Array,
    at: int,
    end: int,
    commit_log_offset: int,
    check: int,
    block_size: int,
    block_end: int,
    marks: Array,
) -> tuple[int, int, int, int]:
    """See `scan_kernel.mark_frames`."""
    view = data.data[: min(end, len(data))].toreadonly()
    count = mark = 0
    while at < len(view):
        found = _header(view[at:], None if check == LENGTHS else commit_log_offset)
        if found is None:
            break
        header = found[0]
        if commit_log_offset >= block_end:
            if mark + 1 == marks.shape[1]:
                break
            mark += 1
            marks[:, mark] = (commit_log_offset, 0, INT64_MAX, INT64_MIN)
            block_end += (commit_log_offset - block_end) // block_size * block_size + block_size
        marks[MARK_RECORD_COUNT, mark] += 1
        marks[MARK_TIME_MIN, mark] = min(int(marks[MARK_TIME_MIN, mark]), header.store_time_millis)
        marks[MARK_TIME_MAX, mark] = max(int(marks[MARK_TIME_MAX, mark]), header.store_time_millis)
        count += 1
        at += header.size_bytes
        commit_log_offset += header.size_bytes
    assert marks[MARK_OFFSET, mark] <= commit_log_offset
    return count, at, mark + 1, block_end
