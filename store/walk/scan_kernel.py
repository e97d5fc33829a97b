"""Every field of a run of records, column by column, and where their texts and bodies lie; the tables are in `scan_layout.py`.

Two passes, so that scans that reject by header skip property parsing: `fill_rows` reads heads and topics, `find_properties`
the property strings of the rows that are left. `mark_frames` reads lengths only.
"""

import numpy as np
import numpy.typing as npt

from store.compiled.bytes_kernel import find_byte, is_bytes
from store.compiled.compiling import Bytes, Number, compiled
from store.format.frame_kernel import bits_of, is_same, load_i32, load_i64, locate, store_time_at
from store.format.guard_kernel import BODY_CRC_AT, is_doubtful
from store.format.properties import KEYS, TAGS, UNIQ_KEY
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
    KEY_ROW_COUNT,
    KEY_SIZE,
    KEYS_AT,
    KEYS_SIZE,
    LENGTHS,
    MARK_OFFSET,
    MARK_RECORD_COUNT,
    MARK_ROW_COUNT,
    MARK_TIME_MAX,
    MARK_TIME_MIN,
    NAME_AT,
    NAME_COUNT_MAX,
    NAME_ROW_COUNT,
    NAME_SIZE,
    NAME_SLOT_COUNT,
    NOT_ASCII,
    PLACE,
    PLAIN,
    PREPARED_OFFSET,
    PROPERTIES_SIZE,
    PROPERTY_COUNT_MAX,
    PROPERTY_NAME_AT,
    PROPERTY_NAME_SIZE,
    PROPERTY_ROW_COUNT,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    ROW_COUNT_32,
    ROW_COUNT_64,
    SIZE,
    SPAN_ROW_COUNT,
    STATED_OFFSET,
    STORE_HOST,
    STORE_TIME,
    SUMS,
    SYS_FLAG,
    TAGS_AT,
    TAGS_HASH,
    TAGS_SIZE,
    TOO_MANY,
    TOPIC,
    UNIQUE_KEY_AT,
    UNIQUE_KEY_SIZE,
    VALUE_AT,
    VALUE_SIZE,
)

Int8s = npt.NDArray[np.int8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Int32Rows = npt.NDArray[np.int32]
Int64Rows = npt.NDArray[np.int64]

_HOST_SIZE = 8
_HOST_V6_EXTRA = 12
_TAGS, _KEYS, _UNIQUE_KEY = (np.frombuffer(name.encode(), dtype=np.uint8) for name in (TAGS, KEYS, UNIQ_KEY))
_NAME_AND_VALUE_END = 2
_NAME_END = 1
_SPACE = 0x20


@compiled
def _name_number(data: Bytes, at: Number, size: Number, names: Int64Rows, count: Number, slots: Int32s) -> Number:
    """The number of a stretch in a table of names, `count` for one that was just entered; -1 when the table is full."""
    hash_, first = np.uint64(size), np.uint64(at)
    for index in range(np.uint64(size)):
        hash_ = hash_ * np.uint64(0x100000001B3) ^ np.uint64(data[first + index])
    slot = np.int64(np.uint64(hash_ * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & (NAME_SLOT_COUNT - 1)
    while slots[slot] >= 0:
        number = np.int64(slots[slot])
        if names[NAME_SIZE, number] == size and is_same(data, names[NAME_AT, number], at, size):
            return number
        slot = (slot + 1) & (NAME_SLOT_COUNT - 1)
    if count >= names.shape[1]:
        return -1
    slots[slot] = count
    names[NAME_AT, count] = at
    names[NAME_SIZE, count] = size
    return count


@compiled
def _name_number_after(
    last: Number, data: Bytes, at: Number, size: Number, names: Int64Rows, count: Number, slots: Int32s
) -> Number:
    """As `_name_number`, where most names are that of the record before."""
    if count > 0 and names[NAME_SIZE, last] == size and is_same(data, names[NAME_AT, last], at, size):
        return last
    return _name_number(data, at, size, names, count, slots)


@compiled
def fill_rows(
    data: Bytes,
    at: Number,
    end: Number,
    commit_log_offset: Number,
    check: Number,
    with_hosts: Number,
    row_count_max: Number,
    rows_32: Int32Rows,
    rows_64: Int64Rows,
    topics: Int64Rows,
    topic_slots: Int32s,
    hosts: Int64Rows,
    host_slots: Int32s,
) -> tuple[Number, Number, Number, Number]:
    """Fills the tables with the records from data[at] on; stops before the first that is not in order or does not fit.

    Args:
        data: bytes of the log.
        at: where the first record starts.
        end: no record starts here or behind; a record may not reach beyond it either.
        commit_log_offset: of `at`; every record must say its place, unless `check` is LENGTHS.
        check: LENGTHS, PLACE, or SUMS, which marks records as doubtful.
        with_hosts: whether hosts are numbered.
        row_count_max: how many records are wanted, at most; the tables may be wider.
        rows_32: int32[ROW_COUNT_32, n].
        rows_64: int64[ROW_COUNT_64, n].
        topics: a table of names.
        topic_slots: its slots, overwritten.
        hosts: a table of names.
        host_slots: its slots, overwritten.

    Returns:
        How many records, topics and hosts there are, and where in `data` the next record starts.
    """
    count: Number = 0
    topic_count: Number = 0
    host_count: Number = 0
    topic_slots[:] = -1
    host_slots[:] = -1
    count_max = min(row_count_max, rows_32.shape[1], rows_64.shape[1])
    end = min(end, len(data))
    topic = np.int64(0)
    born_host = np.int64(0)
    store_host = np.int64(0)
    while count < count_max and at < end:
        stated = commit_log_offset
        if check == LENGTHS:
            if end - at < BODY_CRC_AT + 28:
                break
            stated = load_i64(data, at + 28)
        size, body_at, topic_at, properties_at = locate(data, at, end, stated)
        if size == 0:
            break
        topic_size = properties_at - 2 - topic_at
        topic = _name_number_after(topic, data, topic_at, topic_size, topics, topic_count, topic_slots)
        if topic < 0:
            break
        topic_count = max(topic_count, topic + 1)
        sys_flag = load_i32(data, at + 36)
        time_at = store_time_at(data, at)
        store_host_size = _HOST_SIZE + _HOST_V6_EXTRA * (sys_flag >> 5 & 1)
        if with_hosts:
            born_host = _name_number_after(born_host, data, at + 48, time_at - at - 48, hosts, host_count, host_slots)
            if born_host < 0:
                break
            host_count = max(host_count, born_host + 1)
            store_host = _name_number_after(
                store_host, data, time_at + 8, store_host_size, hosts, host_count, host_slots
            )
            if store_host < 0:
                break
            host_count = max(host_count, store_host + 1)
        rest_at = time_at + 8 + store_host_size
        rows_32[SIZE, count] = size
        rows_32[BODY_CRC, count] = load_i32(data, at + BODY_CRC_AT)
        rows_32[QUEUE_ID, count] = load_i32(data, at + 12)
        rows_32[FLAG, count] = load_i32(data, at + 16)
        rows_32[SYS_FLAG, count] = sys_flag
        rows_32[RECONSUME_TIMES, count] = load_i32(data, rest_at)
        rows_32[BODY_SIZE, count] = load_i32(data, body_at - 4)
        rows_32[PROPERTIES_SIZE, count] = at + size - properties_at
        rows_32[TOPIC, count] = topic
        rows_32[BORN_HOST, count] = born_host
        rows_32[STORE_HOST, count] = store_host
        rows_32[IS_DOUBTFUL, count] = (
            is_doubtful(data, at, at + size, body_at, properties_at) if check == SUMS else np.int64(0)
        )
        rows_64[AT, count] = at
        rows_64[BODY_AT, count] = body_at
        rows_64[QUEUE_OFFSET, count] = load_i64(data, at + 20)
        rows_64[STATED_OFFSET, count] = stated
        rows_64[BORN_TIME, count] = load_i64(data, at + 40)
        rows_64[STORE_TIME, count] = load_i64(data, time_at)
        rows_64[PREPARED_OFFSET, count] = load_i64(data, rest_at + 4)
        count += 1
        at += size
        commit_log_offset += size
    return count, topic_count, host_count, at


@compiled
def _java_hash(data: Bytes, begin: Number, end: Number) -> Number:
    """Java's String.hashCode of ASCII."""
    first = np.uint64(begin)
    result = np.uint32(0)
    for index in range(np.uint64(end - begin)):
        result = np.uint32(result * np.uint32(31) + data[first + index])
    return (np.int64(result) ^ 0x80000000) - 0x80000000


@compiled
def _place_of(data: Bytes, at: Number, size: Number, properties: Int32Rows, begin: Number, count: Number) -> Number:
    """The place of a name among those of one record, `count` when it is new there."""
    for place in range(begin, count):
        if properties[PROPERTY_NAME_SIZE, place] == size and is_same(
            data, np.int64(properties[PROPERTY_NAME_AT, place]), at, size
        ):
            return place
    return count


@compiled
def find_properties(
    data: Bytes,
    begins: Int64s,
    sizes: Int32s,
    spans: Int32Rows,
    kinds: Int8s,
    with_map: Number,
    properties: Int32Rows,
    property_ends: Int32s,
    with_keys: Number,
    keys: Int32Rows,
    key_ends: Int32s,
) -> None:
    """Reads property strings as `store/format/properties.py` does.

    Of two properties with one name the later wins and stands where the later stood; one without name or value does not
    count.

    Args:
        data: bytes of the log, fewer than 2^31.
        begins: where each string begins; it must lie inside `data`.
        sizes: its length.
        spans: int32[SPAN_ROW_COUNT, n], filled; meaningless for a row that is not PLAIN, but inside `data`.
        kinds: filled with PLAIN, NOT_ASCII (positions are right if it is UTF-8, the hash is not), or TOO_MANY (to be
            read by the plain codec).
        with_map: whether all properties are wanted.
        properties: int32[PROPERTY_ROW_COUNT, m], filled with those of one row after the other.
        property_ends: the first place in it behind those of each row.
        with_keys: whether single keys are wanted.
        keys: int32[KEY_ROW_COUNT, m], filled likewise with the parts of KEYS.
        key_ends: the first place in it behind those of each row.
    """
    property_count: Number = 0
    key_count: Number = 0
    for row in range(len(begins)):
        at = begins[row]
        end = at + np.int64(sizes[row])
        kind = PLAIN
        if bits_of(data, at, end) > 0x7F:
            kind = NOT_ASCII
        for index in range(TAGS_AT, TAGS_HASH, 2):
            spans[index, row] = at
            spans[index + 1, row] = -1
        first_property = property_count
        while at < end:
            name_at = at
            at = find_byte(data, name_at, end, _NAME_AND_VALUE_END)
            name_end = find_byte(data, name_at, at, _NAME_END)
            name_size = name_end - name_at
            value_at = name_end + 1
            value_size = at - value_at
            at += 1
            if name_size == 0 or value_size <= 0:
                continue
            if is_bytes(data, name_at, name_size, _TAGS):
                spans[TAGS_AT, row] = value_at
                spans[TAGS_SIZE, row] = value_size
            elif is_bytes(data, name_at, name_size, _KEYS):
                spans[KEYS_AT, row] = value_at
                spans[KEYS_SIZE, row] = value_size
            elif is_bytes(data, name_at, name_size, _UNIQUE_KEY):
                spans[UNIQUE_KEY_AT, row] = value_at
                spans[UNIQUE_KEY_SIZE, row] = value_size
            if with_map and kind != TOO_MANY:
                place = _place_of(data, name_at, name_size, properties, first_property, property_count)
                for move in range(place, property_count - 1):  # the later one stands behind the others
                    for index in range(PROPERTY_ROW_COUNT):
                        properties[index, move] = properties[index, move + 1]
                if place == property_count:
                    if property_count == properties.shape[1] or property_count - first_property == PROPERTY_COUNT_MAX:
                        kind = TOO_MANY
                        property_count = first_property
                        continue
                    property_count += 1
                properties[PROPERTY_NAME_AT, property_count - 1] = name_at
                properties[PROPERTY_NAME_SIZE, property_count - 1] = name_size
                properties[VALUE_AT, property_count - 1] = value_at
                properties[VALUE_SIZE, property_count - 1] = value_size
        spans[TAGS_HASH, row] = 0
        if spans[TAGS_SIZE, row] > 0:
            tags_at = np.int64(spans[TAGS_AT, row])
            spans[TAGS_HASH, row] = _java_hash(data, tags_at, tags_at + np.int64(spans[TAGS_SIZE, row]))
        if with_keys and spans[KEYS_SIZE, row] > 0 and kind != TOO_MANY:
            first_key = key_count
            at = np.int64(spans[KEYS_AT, row])
            end = at + np.int64(spans[KEYS_SIZE, row])
            while at < end:
                key_at = at
                at = find_byte(data, key_at, end, _SPACE)
                if at > key_at:
                    if key_count == keys.shape[1]:
                        kind = TOO_MANY
                        key_count = first_key
                        break
                    keys[KEY_AT, key_count] = key_at
                    keys[KEY_SIZE, key_count] = at - key_at
                    key_count += 1
                at += 1
        kinds[row] = kind
        property_ends[row] = property_count
        key_ends[row] = key_count


@compiled
def mark_frames(
    data: Bytes,
    at: Number,
    end: Number,
    commit_log_offset: Number,
    check: Number,
    block_size: Number,
    block_end: Number,
    marks: Int64Rows,
) -> tuple[Number, Number, Number, Number]:
    """Hops from record to record, and notes the first one of each block of the log.

    Args:
        data: bytes of the log.
        at: where the first record starts.
        end: as in `fill_rows`.
        commit_log_offset: of `at`.
        check: LENGTHS or PLACE.
        block_size: of the blocks, bytes.
        block_end: commit-log offset where the block under way ends; the record at or behind it begins another.
        marks: int64[MARK_ROW_COUNT, n]; its first column is the block under way, which goes on.

    Returns:
        How many records there are, where in `data` the next one starts, how many columns of `marks` are in use, and
        `block_end` of the block under way.
    """
    count: Number = 0
    mark = np.int64(0)
    end = min(end, len(data))
    while at < end:
        stated = commit_log_offset
        if check == LENGTHS:
            if end - at < BODY_CRC_AT + 28:
                break
            stated = load_i64(data, at + 28)
        size, _, _, _ = locate(data, at, end, stated)
        if size == 0:
            break
        if commit_log_offset >= block_end:
            if mark + 1 == marks.shape[1]:
                break
            mark += 1
            marks[MARK_OFFSET, mark] = commit_log_offset
            marks[MARK_RECORD_COUNT, mark] = 0
            marks[MARK_TIME_MIN, mark] = INT64_MAX
            marks[MARK_TIME_MAX, mark] = INT64_MIN
            block_end += (commit_log_offset - block_end) // block_size * block_size + block_size
        time = load_i64(data, store_time_at(data, at))
        marks[MARK_RECORD_COUNT, mark] += 1
        marks[MARK_TIME_MIN, mark] = min(marks[MARK_TIME_MIN, mark], time)
        marks[MARK_TIME_MAX, mark] = max(marks[MARK_TIME_MAX, mark], time)
        count += 1
        at += size
        commit_log_offset += size
    return count, at, mark + 1, block_end


def touch() -> None:
    """Compile what is called from outside."""
    data = np.zeros(1, dtype=np.uint8)
    data.flags.writeable = False
    slots = np.empty(NAME_SLOT_COUNT, dtype=np.int32)
    names = np.empty((NAME_ROW_COUNT, NAME_COUNT_MAX), dtype=np.int64)
    fill_rows(
        data, 0, 1, 0, PLACE, True, 1,
        np.empty((ROW_COUNT_32, 1), dtype=np.int32),
        np.empty((ROW_COUNT_64, 1), dtype=np.int64),
        names, slots, names, slots,
    )  # fmt: skip
    none_32, none_64 = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    find_properties(
        data, none_64, none_32, np.empty((SPAN_ROW_COUNT, 0), dtype=np.int32), np.empty(0, dtype=np.int8),
        True, np.empty((PROPERTY_ROW_COUNT, 0), dtype=np.int32), none_32,
        True, np.empty((KEY_ROW_COUNT, 0), dtype=np.int32), none_32,
    )  # fmt: skip
    mark_frames(data, 0, 1, 0, PLACE, 1, 1, np.empty((MARK_ROW_COUNT, 1), dtype=np.int64))
