"""Completes scanned records: `fill` before the log's lock, `place` under it; and `answer`, their receipts as bytes.

The rows come from `scan_kernel.scan`. A function stops at a row that is not valid, and returns a smaller count.
"""

from typing import Any

import numpy as np

from commitlog_svc.append import layout as wire
from commitlog_svc.append.layout import Int64s, Number
from store.compiled.bytes_kernel import copy, put, put_number, size_of_varint
from store.compiled.compiling import Bytes, compiled, compiled_holding
from store.compiled.crc32_kernel import crc32
from store.format.freshness_token import CHECK_DIGIT_COUNT, FRAME_CHARACTER_COUNT, VERSION
from store.format.record_layout import CRC_PROPERTY_SIZE_BYTES

_HEX = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8).copy()
_CRC_MASK = 0x7FFFFFFF
_COUNTER_SIZE = 4  # hexadecimal digits at the end of a generated key
_P61 = np.uint64((1 << 61) - 1)  # see `commitlog_svc/append/recent_keys.py`
_LOW_32 = np.uint64(0xFFFFFFFF)
_LOW_29 = np.uint64(0x1FFFFFFF)
_RESULT_BYTES_MAX = 200  # of one receipt without its unique key and its two copies of the broker name
_TOKEN_VERSION = np.uint8(ord(VERSION))


@compiled
def _multiply(a: Number, b: Number) -> Number:
    """a * b modulo 2^61 - 1; both below it, all unsigned."""
    a_high, a_low = a >> np.uint64(32), a & _LOW_32
    b_high, b_low = b >> np.uint64(32), b & _LOW_32
    middle = a_high * b_low + a_low * b_high
    low = a_low * b_low
    total = (
        (a_high * b_high << np.uint64(3))
        + (middle >> np.uint64(29))
        + ((middle & _LOW_29) << np.uint64(32))
        + (low & _P61)
        + (low >> np.uint64(61))
    )
    total = (total & _P61) + (total >> np.uint64(61))
    return total - _P61 if total >= _P61 else total


@compiled
def _hash_on(value: Number, factor: Number, word: Number) -> Number:
    total = _multiply(value, factor) + word % _P61
    return total - _P61 if total >= _P61 else total


@compiled
def _hash_key(data: Bytes, begin: Number, end: Number, start: Number, factor: Number) -> Number:
    """`recent_keys.KeyHash` of a unique key; `start` is the hash of its topic."""
    value, multiplier = np.uint64(start), np.uint64(factor)
    for at in range(begin, end, 8):
        word = np.uint64(0)
        for index in range(min(8, end - at)):
            word |= np.uint64(data[at + index]) << np.uint64(8 * index)
        value = _hash_on(value, multiplier, word)
    return np.int64(_hash_on(value, multiplier, np.uint64(end - begin)))


@compiled
def _is_row(rows: Int64s, index: Number, size: Number, head_size: Number) -> bool:
    """Whether a row's record and key lie inside `size` bytes."""
    begin, record_size = rows[index, wire.RECORD_BEGIN], rows[index, wire.RECORD_SIZE]
    key_begin, key_size = rows[index, wire.UNIQUE_KEY_BEGIN], rows[index, wire.UNIQUE_KEY_SIZE]
    return bool(
        0 <= begin <= size and head_size + CRC_PROPERTY_SIZE_BYTES <= record_size <= size - begin
        and begin <= key_begin and 0 <= key_size <= begin + record_size - key_begin
    )  # fmt: skip


@compiled
def fill(
    records: Bytes,
    rows: Int64s,
    count: Number,
    head_size: Number,
    turns: Int64s,
    queue_counts: Int64s,
    key_text: Bytes,
    key_counter: Number,
    topic_hashes: Int64s,
    hash_factor: Number,
) -> Number:
    """Sets queue ids, generated unique keys, body CRCs and hashes; returns the number of messages done.

    Args:
        records, rows, turns: see `layout.py`.
        count: number of messages.
        head_size: size of a record up to its body, in bytes.
        queue_counts, topic_hashes: indexed by the number of the topic.
        key_text: the begin of all generated keys; four digits of a counter follow.
        key_counter: counter of the first.
        hash_factor: the factor of the hashes; 0: make no hashes.
    """
    if (
        rows.shape[1] < wire.ROW_COLUMN_COUNT
        or turns.shape[1] < wire.TURN_COLUMN_COUNT
        or count > len(rows)
        or head_size < 88
    ):
        return 0
    if len(topic_hashes) != len(queue_counts):
        return 0
    for index in range(count):
        number = rows[index, wire.TOPIC_NUMBER]
        if not _is_row(rows, index, len(records), head_size) or not 0 <= number < len(queue_counts):
            return index
        begin = rows[index, wire.RECORD_BEGIN]
        queue_id = rows[index, wire.QUEUE_ID]
        if queue_id < 0:
            turn = -1 - queue_id
            if turn >= len(turns) or queue_counts[number] <= 0:
                return index
            queue_id = turns[turn, wire.TURN_BEGIN] % queue_counts[number]
            turns[turn, wire.TURN_BEGIN] += 1
            rows[index, wire.QUEUE_ID] = queue_id
        put(records, begin + 12, queue_id, 4)
        body_begin = begin + head_size
        body_size = np.int64(0)
        for at in range(body_begin - 4, body_begin):
            body_size = body_size << 8 | np.int64(records[at])
        key_begin, key_size = rows[index, wire.UNIQUE_KEY_BEGIN], rows[index, wire.UNIQUE_KEY_SIZE]
        if body_size > key_begin - body_begin:
            return index
        if rows[index, wire.IS_GENERATED] != 0:
            if key_size != len(key_text) + _COUNTER_SIZE:
                return index
            copy(key_text, 0, len(key_text), records, key_begin)
            for place in range(_COUNTER_SIZE):
                digit = key_counter >> (4 * (_COUNTER_SIZE - 1 - place)) & 0xF
                records[key_begin + len(key_text) + place] = _HEX[digit]
            key_counter += 1
        put(records, begin + 8, np.int64(crc32(records, body_begin, body_begin + body_size)) & _CRC_MASK, 4)
        if hash_factor != 0:
            rows[index, wire.KEY_HASH] = _hash_key(
                records, key_begin, key_begin + key_size, topic_hashes[number], hash_factor
            )
    return count


@compiled
def place(
    records: Bytes,
    rows: Int64s,
    count: Number,
    head_size: Number,
    is_guarded: Number,
    commit_log_offset: Number,
    store_time_at: Number,
    store_time_millis: Number,
    queue_slot_begins: Int64s,
    queue_slots: Int64s,
    queue_offsets: Int64s,
) -> Number:
    """Sets queue offsets, commit-log offsets, store time and CRC of the records; returns the number of messages done.

    Args:
        records, rows: see `layout.py`.
        count: number of messages.
        head_size: size of a record up to its body, in bytes.
        is_guarded: 1: each record ends with `__CRC32#`.
        commit_log_offset: where the first record goes.
        store_time_at: position of the store time in a record.
        store_time_millis: since 1970.
        queue_slot_begins: indexed by the number of the topic: where in `queue_slots` its queues begin.
        queue_slots: index in `queue_offsets` of a queue's next offset.
        queue_offsets: the next offset of each queue; increased.
    """
    if rows.shape[1] < wire.ROW_COLUMN_COUNT or count > len(rows) or not 48 <= store_time_at <= head_size - 8:
        return 0
    for index in range(count):
        number = rows[index, wire.TOPIC_NUMBER]
        if not _is_row(rows, index, len(records), head_size) or not 0 <= number < len(queue_slot_begins):
            return index
        at = queue_slot_begins[number] + rows[index, wire.QUEUE_ID]
        if not 0 <= at < len(queue_slots) or not 0 <= queue_slots[at] < len(queue_offsets):
            return index
        begin, size = rows[index, wire.RECORD_BEGIN], rows[index, wire.RECORD_SIZE]
        queue_offset = queue_offsets[queue_slots[at]]
        queue_offsets[queue_slots[at]] = queue_offset + 1
        rows[index, wire.QUEUE_OFFSET], rows[index, wire.COMMIT_LOG_OFFSET] = queue_offset, commit_log_offset
        put(records, begin + 20, queue_offset, 8)
        put(records, begin + 28, commit_log_offset, 8)
        put(records, begin + store_time_at, store_time_millis, 8)
        if is_guarded != 0:
            crc = np.int64(crc32(records, begin, begin + size - CRC_PROPERTY_SIZE_BYTES)) & _CRC_MASK
            for digit_at in range(begin + size - 11, begin + size - 1):
                records[digit_at] = 0x30 + crc % 10
                crc //= 10
        commit_log_offset += size
    return count


@compiled
def _put_token(target: Bytes, at: Number, id_digits_at: Number, broker_name: Bytes) -> Number:
    """Writes the freshness token (`store/format/freshness_token.py`); `target` has the offset's 16 digits. Returns its end."""
    target[at] = _TOKEN_VERSION
    end = copy(target, id_digits_at, id_digits_at + 16, target, at + 1)
    end = copy(broker_name, 0, len(broker_name), target, end)
    check = np.int64(crc32(target, at, end))
    for place in range(CHECK_DIGIT_COUNT):
        target[end + place] = _HEX[check >> (4 * (CHECK_DIGIT_COUNT - 1 - place)) & 0xF]
    return end + CHECK_DIGIT_COUNT


@compiled
def answer(
    records: Bytes,
    rows: Int64s,
    count: Number,
    head_size: Number,
    id_prefix: Bytes,
    store_time_millis: Number,
    broker_name: Bytes,
    target: Bytes,
) -> Number:
    """Writes the receipts of placed records as an AppendMessagesResponse; returns the number of bytes, -1 without room.

    Args:
        records, rows: see `layout.py`.
        count: number of messages.
        head_size: size of a record up to its body, in bytes.
        id_prefix: the hexadecimal digits of the store's host, with which ids begin.
        store_time_millis: since 1970.
        broker_name: in UTF-8.
        target: gets the bytes.
    """
    if rows.shape[1] < wire.ROW_COLUMN_COUNT or count > len(rows) or len(id_prefix) > 40 or len(broker_name) > 0x7FFF:
        return -1
    seconds, nanos = store_time_millis // 1000, store_time_millis % 1000 * 1_000_000
    time_size = (1 + size_of_varint(seconds) if seconds else 0) + (1 + size_of_varint(nanos) if nanos else 0)
    name_size = len(broker_name)
    token_size = FRAME_CHARACTER_COUNT + name_size
    to = 0
    for index in range(count):
        if not _is_row(rows, index, len(records), head_size):
            return -1
        key_begin, key_size = rows[index, wire.UNIQUE_KEY_BEGIN], rows[index, wire.UNIQUE_KEY_SIZE]
        if len(target) - to < _RESULT_BYTES_MAX + key_size + 2 * name_size:
            return -1
        offset, queue_id, queue_offset = (
            rows[index, wire.COMMIT_LOG_OFFSET], rows[index, wire.QUEUE_ID], rows[index, wire.QUEUE_OFFSET],
        )  # fmt: skip
        size = 2 + len(id_prefix) + 16 + 1 + size_of_varint(key_size) + key_size + 2 + time_size
        size += (1 + size_of_varint(queue_id) if queue_id else 0) + (1 + size_of_varint(offset) if offset else 0)
        size += 1 + size_of_varint(queue_offset) if queue_offset else 0
        size += (1 + size_of_varint(name_size) + name_size) if name_size else 0
        size += 1 + size_of_varint(token_size) + token_size
        to = put_number(target, to, wire.RESPONSE_RESULTS_TAG, size)
        to = put_number(target, to, wire.RESULT_OFFSET_MSG_ID_TAG, len(id_prefix) + 16)
        to = copy(id_prefix, 0, len(id_prefix), target, to)
        digits_at = to
        for place in range(16):
            target[to + place] = _HEX[offset >> (60 - 4 * place) & 0xF]
        to = put_number(target, to + 16, wire.RESULT_UNIQUE_KEY_TAG, key_size)
        to = copy(records, key_begin, key_begin + key_size, target, to)
        to = put_number(target, to, wire.RESULT_QUEUE_ID_TAG, queue_id)
        to = put_number(target, to, wire.RESULT_QUEUE_OFFSET_TAG, queue_offset)
        to = put_number(target, to, wire.RESULT_COMMIT_LOG_OFFSET_TAG, offset)
        target[to], target[to + 1] = wire.RESULT_STORE_TIME_TAG, time_size
        to = put_number(target, to + 2, wire.SECONDS_TAG, seconds)
        to = put_number(target, to, wire.NANOS_TAG, nanos)
        if name_size:
            to = put_number(target, to, wire.RESULT_BROKER_NAME_TAG, name_size)
            to = copy(broker_name, 0, name_size, target, to)
        to = put_number(target, to, wire.RESULT_FRESHNESS_TOKEN_TAG, token_size)
        to = _put_token(target, to, digits_at, broker_name)
    return to


@compiled_holding
def fill_holding(*arguments: Any) -> Number:
    """`fill` with the GIL held."""
    return fill(*arguments)


@compiled_holding
def place_holding(*arguments: Any) -> Number:
    """`place` with the GIL held."""
    return place(*arguments)


@compiled_holding
def answer_holding(*arguments: Any) -> Number:
    """`answer` with the GIL held."""
    return answer(*arguments)


def touch() -> None:
    """Compiles all."""
    text = np.frombuffer(bytes(1), dtype=np.uint8)
    records, numbers, table = np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.int64), np.zeros((1, 1), dtype=np.int64)
    for fill_, place_, answer_ in ((fill, place, answer), (fill_holding, place_holding, answer_holding)):
        fill_(records, table, 1, 88, table, numbers, text, 0, numbers, 0)
        place_(records, table, 1, 88, 0, 0, 56, 0, numbers, numbers, numbers)
        answer_(records, table, 1, 88, text, 0, text, records)
