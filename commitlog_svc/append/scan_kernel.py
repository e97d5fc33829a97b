"""Parses, checks and encodes an append request in one pass: from its bytes to records that lack their place.

`scan` takes ordinary requests and returns NOT_MINE for all others, also for bad messages. Then the plain path
(`commitlog_svc/append/message_check.py`) parses the request and decides, so refusals are written once. `scan` changes only the
arrays for its results.

Not ordinary are: a topic that is not in the table; text beyond ASCII, control characters; a repeated or unknown field; a
property that the store or the choice of a queue uses; anything beyond the limits.
"""

from typing import Any

import numpy as np

from commitlog_svc.append import layout as wire
from commitlog_svc.append.layout import Int64s, Number
from commitlog_svc.append.names_kernel import find_name, has_hash, is_name
from store.compiled.bytes_kernel import copy, is_text, put, read_span, read_varint
from store.compiled.compiling import Bytes, compiled, compiled_holding
from store.format.record_layout import CRC_MARKER, CRC_PROPERTY_SIZE_BYTES

NOT_MINE = -1
_PROPERTIES_SIZE_BYTES_MAX = 32767
_TIME_SECONDS_MAX = 253_402_300_799
_NAMES = np.frombuffer(b"KEYS\x01TAGS\x01UNIQ_KEY\x01", dtype=np.uint8).copy()
_KEYS_AT, _TAGS_AT, _UNIQUE_KEY_AT, _NAMES_END = 0, 5, 10, 19
_MARKER = np.frombuffer(CRC_MARKER, dtype=np.uint8).copy()
# Indices in the scratch, behind the spans of keys and properties.
_PROPERTIES_AT = 2 * wire.KEY_COUNT_MAX
_SCRATCH_SIZE = _PROPERTIES_AT + 4 * wire.PROPERTY_COUNT_MAX


@compiled
def _compare(data: Bytes, a_begin: Number, a_end: Number, b_begin: Number, b_end: Number) -> Number:
    """Negative, 0 or positive, if the first text sorts before, equal to or behind the second."""
    size = min(a_end - a_begin, b_end - b_begin)
    for index in range(size):
        difference = np.int64(data[a_begin + index]) - np.int64(data[b_begin + index])
        if difference != 0:
            return difference
    return (a_end - a_begin) - (b_end - b_begin)


@compiled
def _read_property(data: Bytes, begin: Number, end: Number, refused: Int64s, spans: Int64s, count: Number) -> bool:
    """Inserts the spans of a property in the order of names; False when it is not ordinary."""
    if begin >= end or data[begin] != wire.ENTRY_NAME_TAG:
        return False
    name_begin, name_end = read_span(data, begin + 1, end)
    if name_end <= name_begin or name_end >= end or data[name_end] != wire.ENTRY_VALUE_TAG:
        return False
    value_begin, value_end = read_span(data, name_end + 1, end)
    if value_end <= value_begin or value_end != end or count >= wire.PROPERTY_COUNT_MAX:
        return False
    if not is_text(data, name_begin, name_end, 0x20) or not is_text(data, value_begin, value_end, 0x20):
        return False
    if has_hash(data, name_begin, name_end, refused):
        return False
    place = count
    while place > 0:
        before = _PROPERTIES_AT + 4 * (place - 1)
        order = _compare(data, spans[before], spans[before + 1], name_begin, name_end)
        if order == 0:
            return False
        if order < 0:
            break
        for index in range(before, before + 4):
            spans[index + 4] = spans[index]
        place -= 1
    at = _PROPERTIES_AT + 4 * place
    spans[at], spans[at + 1], spans[at + 2], spans[at + 3] = name_begin, name_end, value_begin, value_end
    return True


@compiled
def _read_time(data: Bytes, at: Number, end: Number) -> Number:
    """A Timestamp in milliseconds since 1970, or -1 when it is not ordinary."""
    seconds = nanos = np.int64(0)
    while at < end:
        tag = data[at]
        value, at = read_varint(data, at + 1, end)
        if at < 0 or value < 0:
            return np.int64(-1)
        if tag == wire.SECONDS_TAG and value <= _TIME_SECONDS_MAX:
            seconds = value
        elif tag == wire.NANOS_TAG and value < 1_000_000_000:
            nanos = value
        else:
            return np.int64(-1)
    return seconds * 1000 + nanos // 1_000_000


@compiled
def _take_turn(turns: Int64s, count: Number, topic_number: Number) -> Number:
    """The row of a topic in `turns`; `count` for one that was just added, wire.TURN_COUNT_MAX when there is no room."""
    place = count - 1
    while place >= 0 and turns[place, wire.TURN_TOPIC_NUMBER] != topic_number:
        place -= 1
    if place < 0:
        place = count
        if place < wire.TURN_COUNT_MAX:
            turns[place, wire.TURN_TOPIC_NUMBER] = topic_number
            turns[place, wire.TURN_MESSAGE_COUNT] = 0
            turns[place, wire.TURN_BEGIN] = 0
    if place < wire.TURN_COUNT_MAX:
        turns[place, wire.TURN_MESSAGE_COUNT] += 1
    return place


@compiled
def scan(
    data: Bytes,
    head: Bytes,
    now_millis: Number,
    limits: Int64s,
    topic_slots: Int64s,
    topic_names: Bytes,
    topic_sizes: Int64s,
    queue_counts: Int64s,
    refused: Int64s,
    spans: Int64s,
    records: Bytes,
    rows: Int64s,
    turns: Int64s,
    found: Int64s,
) -> Number:
    """Writes records without their place, one behind the other; returns how many, or NOT_MINE.

    Args:
        data: the request.
        head: a record up to its body, with all fields that are equal for every message of this sender.
        now_millis: the born time of messages without one.
        limits, found, rows, turns: see `layout.py`; the last three are results.
        topic_slots, refused: tables by `hash_bytes` (`names_kernel.py`): the numbers of topics; the hashes of property
            names that are not ordinary.
        topic_names, topic_sizes, queue_counts: indexed by the number of the topic.
        spans: scratch of SCRATCH_SIZE.
        records: gets the records; with gaps for generated keys.
    """
    if (
        len(limits) < wire.LIMIT_COUNT or len(found) < wire.FOUND_COUNT or len(spans) < _SCRATCH_SIZE
        or rows.shape[1] < wire.ROW_COLUMN_COUNT or turns.shape[1] < wire.TURN_COLUMN_COUNT or len(turns) < wire.TURN_COUNT_MAX
        or len(head) < 88 or len(queue_counts) != len(topic_sizes) or len(topic_names) != len(topic_sizes)
    ):  # fmt: skip
        return NOT_MINE
    end, count, turn_count, generated_count, keys_size, body_bytes = len(data), 0, 0, 0, 0, 0
    flush = deduplicate = np.int64(0)
    at = record = last_topic = 0
    is_guarded = limits[wire.LIMIT_IS_GUARDED] != 0
    while at < end:
        tag = data[at]
        if tag in (wire.REQUEST_FLUSH_TAG, wire.REQUEST_DEDUPLICATE_TAG):
            value, at = read_varint(data, at + 1, end)
            if at < 0:
                return NOT_MINE
            if tag == wire.REQUEST_FLUSH_TAG:
                flush = value
            else:
                deduplicate = value
            continue
        if tag != wire.REQUEST_MESSAGES_TAG or count >= min(limits[wire.LIMIT_MESSAGE_COUNT], len(rows)):
            return NOT_MINE
        at, message_end = read_span(data, at + 1, end)
        if message_end < 0:
            return NOT_MINE
        # Read the fields.
        seen = key_count = keys_bytes = property_count = properties_bytes = 0
        topic_begin = topic_end = body_begin = body_end = tags_begin = tags_end = key_begin = key_end = 0
        queue_id, flag, born_millis = np.int64(-1), np.int64(0), now_millis
        while at < message_end:
            tag = data[at]
            at += 1
            if tag in (wire.KEYS_TAG, wire.PROPERTIES_TAG):
                begin, at = read_span(data, at, message_end)
                if at <= begin:
                    return NOT_MINE
                if tag == wire.KEYS_TAG:
                    if key_count >= wire.KEY_COUNT_MAX or not is_text(data, begin, at, 0x21):
                        return NOT_MINE
                    spans[2 * key_count], spans[2 * key_count + 1] = begin, at
                    key_count += 1
                    keys_bytes += at - begin + 1
                else:
                    if not _read_property(data, begin, at, refused, spans, property_count):
                        return NOT_MINE
                    property_count += 1
                continue
            field: Number = np.int64(tag) >> 3
            if tag >= 0x80 or seen >> field & 1:
                return NOT_MINE
            seen |= 1 << field
            if tag in (wire.QUEUE_ID_TAG, wire.FLAG_TAG):
                value, at = read_varint(data, at, message_end)
                if at < 0 or value != np.int64(np.int32(value)):
                    return NOT_MINE
                if tag == wire.FLAG_TAG:
                    flag = value
                elif value < 0:
                    return NOT_MINE
                else:
                    queue_id = value
                continue
            begin, at = read_span(data, at, message_end)
            if at < 0:
                return NOT_MINE
            if tag == wire.TOPIC_TAG:
                topic_begin, topic_end = begin, at
            elif tag == wire.BODY_TAG:
                body_begin, body_end = begin, at
            elif tag == wire.TAGS_TAG:
                tags_begin, tags_end = begin, at
            elif tag == wire.UNIQUE_KEY_TAG:
                key_begin, key_end = begin, at
                if at == begin:
                    return NOT_MINE
            elif tag == wire.BORN_TIME_TAG:
                born_millis = _read_time(data, begin, at)
                if born_millis < 0:
                    return NOT_MINE
            else:
                return NOT_MINE
        # Check them.
        topic_number = last_topic
        if not is_name(data, topic_begin, topic_end, topic_names, topic_sizes, topic_number):
            topic_number = find_name(data, topic_begin, topic_end, topic_slots, topic_names, topic_sizes)
            if topic_number < 0:
                return NOT_MINE
            last_topic = topic_number
        queue_count = queue_counts[topic_number]
        body_size: Number = body_end - body_begin
        body_bytes += body_size
        if (
            queue_count <= 0 or queue_id >= queue_count or topic_end == topic_begin
            or body_size <= 0 or body_size > limits[wire.LIMIT_BODY_BYTES]
            or not is_text(data, tags_begin, tags_end, 0x20) or not is_text(data, key_begin, key_end, 0x20)
        ):  # fmt: skip
            return NOT_MINE
        if queue_id < 0:
            place = _take_turn(turns, turn_count, topic_number)
            if place >= wire.TURN_COUNT_MAX:
                return NOT_MINE
            turn_count = max(turn_count, place + 1)
            queue_id = np.int64(-1 - place)
        is_generated = key_end == key_begin
        key_size = limits[wire.LIMIT_GENERATED_KEY_BYTES] if is_generated else key_end - key_begin
        for place in range(property_count):
            span = _PROPERTIES_AT + 4 * place
            properties_bytes += spans[span + 1] - spans[span] + spans[span + 3] - spans[span + 2] + 2
        properties_bytes += _NAMES_END - _UNIQUE_KEY_AT + key_size + 1
        if key_count > 0:
            properties_bytes += keys_bytes + _TAGS_AT - _KEYS_AT
        if tags_end > tags_begin:
            properties_bytes += _UNIQUE_KEY_AT - _TAGS_AT + tags_end - tags_begin + 1
        if is_guarded:
            properties_bytes += CRC_PROPERTY_SIZE_BYTES
        record_size = len(head) + body_size + 1 + topic_end - topic_begin + 2 + properties_bytes
        if (
            properties_bytes > _PROPERTIES_SIZE_BYTES_MAX or record_size > limits[wire.LIMIT_RECORD_BYTES]
            or record_size > len(records) - record
        ):  # fmt: skip
            return NOT_MINE
        # Write the record.
        to = copy(head, 0, len(head), records, record)
        put(records, record, record_size, 4)
        put(records, record + 16, flag, 4)
        put(records, record + 40, born_millis, 8)
        put(records, to - 4, body_size, 4)
        to = copy(data, body_begin, body_end, records, to)
        records[to] = topic_end - topic_begin
        to = copy(data, topic_begin, topic_end, records, to + 1)
        put(records, to, properties_bytes, 2)
        to += 2
        if key_count > 0:
            to = copy(_NAMES, _KEYS_AT, _TAGS_AT, records, to)
            for place in range(key_count):
                to = copy(data, spans[2 * place], spans[2 * place + 1], records, to)
                records[to] = 0x20
                to += 1
            records[to - 1] = 0x02
        if tags_end > tags_begin:
            to = copy(_NAMES, _TAGS_AT, _UNIQUE_KEY_AT, records, to)
            to = copy(data, tags_begin, tags_end, records, to)
            records[to] = 0x02
            to += 1
        to = copy(_NAMES, _UNIQUE_KEY_AT, _NAMES_END, records, to)
        rows[count, wire.UNIQUE_KEY_BEGIN], rows[count, wire.UNIQUE_KEY_SIZE] = to, key_size
        copy(data, key_begin, key_end, records, to)
        to += key_size
        records[to] = 0x02
        to += 1
        for place in range(property_count):
            span = _PROPERTIES_AT + 4 * place
            to = copy(data, spans[span], spans[span + 1], records, to)
            records[to] = 0x01
            to = copy(data, spans[span + 2], spans[span + 3], records, to + 1)
            records[to] = 0x02
            to += 1
        if is_guarded:
            to = copy(_MARKER, 0, len(_MARKER), records, to)
            records[record + record_size - 1] = 0x02
        rows[count, wire.RECORD_BEGIN], rows[count, wire.RECORD_SIZE] = record, record_size
        rows[count, wire.TOPIC_NUMBER], rows[count, wire.QUEUE_ID] = topic_number, queue_id
        rows[count, wire.IS_GENERATED] = is_generated
        generated_count += is_generated
        keys_size += key_size
        record += record_size
        count += 1
    if count == 0 or flush < 0 or flush > wire.FLUSH_MODE_MAX or body_bytes > limits[wire.LIMIT_REQUEST_BODY_BYTES]:
        return NOT_MINE
    if deduplicate != 0 and generated_count > 0:
        return NOT_MINE
    found[wire.FOUND_FLUSH], found[wire.FOUND_DEDUPLICATE], found[wire.FOUND_SIZE_BYTES] = (
        flush,
        deduplicate != 0,
        record,
    )
    found[wire.FOUND_GENERATED_COUNT], found[wire.FOUND_TURN_COUNT], found[wire.FOUND_KEYS_SIZE_BYTES] = (
        generated_count, turn_count, keys_size,
    )  # fmt: skip
    return count


@compiled_holding
def scan_holding(*arguments: Any) -> Number:
    """`scan` with the GIL held."""
    return scan(*arguments)


def touch() -> None:
    """Compiles it."""
    data = np.frombuffer(bytes(1), dtype=np.uint8)
    nothing = np.zeros(0, dtype=np.int64)
    table = np.zeros((1, 1), dtype=np.int64)
    names, records = np.zeros((1, 1), dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    arguments = (
        data, data, 0, nothing, nothing, names, nothing, nothing, nothing, nothing, records, table, table, nothing,
    )  # fmt: skip
    scan(*arguments)
    scan_holding(*arguments)
