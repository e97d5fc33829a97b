# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Every field of a run of records, column by column, and where their texts and bodies lie; the tables are in `scan_layout.py`.

Two passes, so that scans that reject by header skip property parsing: `fill_rows` reads heads and topics, `find_properties`
the property strings of the rows that are left. `mark_frames` reads lengths only.

Each function checks once that its tables have all their rows, and looks at each column that it writes; then it indexes them
without a check. Bytes of the log are checked where they are read, by the functions that read them.

Where the kernel is not compiled, this source does the work.
"""

import cython

from store.compiled.bytes_part import (
    LOW_32,
    LOW_64,
    SIGN_32,
    Bytes,
    bits_of,
    find_byte,
    is_bytes,
    is_same,
    load_i32,
    load_i64,
    need_size,
    reading,
)
from store.format.frame_part import BODY_CRC_AT, HOST_V6_EXTRA, Frame, is_doubtful, locate, store_time_at
from store.format.properties import KEYS, TAGS, UNIQ_KEY

# Numbers of C.
cython.declare(
    AT=cython.longlong, BODY_AT=cython.longlong, BODY_CRC=cython.longlong, BODY_SIZE=cython.longlong,
    BORN_HOST=cython.longlong, BORN_TIME=cython.longlong, FLAG=cython.longlong, INT64_MAX=cython.longlong,
    INT64_MIN=cython.longlong, IS_DOUBTFUL=cython.longlong, KEY_AT=cython.longlong, KEY_ROW_COUNT=cython.longlong,
    KEY_SIZE=cython.longlong,
    KEYS_AT=cython.longlong, KEYS_SIZE=cython.longlong, LENGTHS=cython.longlong, MARK_OFFSET=cython.longlong,
    MARK_RECORD_COUNT=cython.longlong, MARK_ROW_COUNT=cython.longlong,
    MARK_TIME_MAX=cython.longlong, MARK_TIME_MIN=cython.longlong,
    NAME_AT=cython.longlong, NAME_SIZE=cython.longlong, NAME_SLOT_COUNT=cython.longlong,
    NOT_ASCII=cython.longlong, PLAIN=cython.longlong, PREPARED_OFFSET=cython.longlong,
    PROPERTIES_SIZE=cython.longlong, PROPERTY_COUNT_MAX=cython.longlong, PROPERTY_NAME_AT=cython.longlong,
    PROPERTY_NAME_SIZE=cython.longlong, PROPERTY_ROW_COUNT=cython.longlong, QUEUE_ID=cython.longlong,
    QUEUE_OFFSET=cython.longlong, RECONSUME_TIMES=cython.longlong, ROW_COUNT_32=cython.longlong,
    ROW_COUNT_64=cython.longlong, SIZE=cython.longlong, SPAN_ROW_COUNT=cython.longlong,
    STATED_OFFSET=cython.longlong, STORE_HOST=cython.longlong, STORE_TIME=cython.longlong, SUMS=cython.longlong,
    SYS_FLAG=cython.longlong, TAGS_AT=cython.longlong, TAGS_HASH=cython.longlong, TAGS_SIZE=cython.longlong,
    TOO_MANY=cython.longlong, TOPIC=cython.longlong, UNIQUE_KEY_AT=cython.longlong,
    UNIQUE_KEY_SIZE=cython.longlong, VALUE_AT=cython.longlong, VALUE_SIZE=cython.longlong,
)  # fmt: skip
from store.walk.scan_layout import (  # noqa: E402 - their kind is declared first
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
    NAME_SIZE,
    NAME_SLOT_COUNT,
    NOT_ASCII,
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

_HOST_SIZE = cython.declare(cython.longlong, 8)
_STATED_OFFSET_END = cython.declare(cython.longlong, 36)  # in the record
_SLOT_MASK = cython.declare(cython.longlong, NAME_SLOT_COUNT - 1)
_HASH_FACTOR = cython.declare(cython.ulonglong, 0x100000001B3)
_GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_TAGS = cython.declare(Bytes, reading(TAGS.encode()))
_KEYS = cython.declare(Bytes, reading(KEYS.encode()))
_UNIQUE_KEY = cython.declare(Bytes, reading(UNIQ_KEY.encode()))
_PROPERTY_END = cython.declare(cython.uchar, 2)
_NAME_END = cython.declare(cython.uchar, 1)
_SPACE = cython.declare(cython.uchar, 0x20)


@cython.final
@cython.cclass
class _Names:
    """A table of names, how many it has, and the number of the name that was asked for last."""

    table = cython.declare(cython.longlong[:, ::1])
    slots = cython.declare(cython.int[::1])
    count = cython.declare(cython.longlong)
    last = cython.declare(cython.longlong)


@cython.cfunc
@cython.locals(made=_Names)
def _names_of(table: cython.longlong[:, ::1], slots: cython.int[::1]) -> _Names:
    """An empty table."""
    made = _Names()
    made.table = table
    made.slots = slots
    made.count = made.last = 0
    return made


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(index=cython.Py_ssize_t)
def _clear(names: _Names) -> cython.int:
    if cython.compiled:
        with cython.boundscheck(False):
            for index in range(len(names.slots)):
                names.slots[index] = -1
    else:
        names.slots.cast("B")[:] = b"\xff" * names.slots.nbytes
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
@cython.locals(hash_=cython.ulonglong, index=cython.Py_ssize_t, slot=cython.longlong, number=cython.longlong)
def _enter(names: _Names, data: Bytes, at: cython.longlong, size: cython.longlong) -> cython.longlong:
    """The number of the name data[at:at + size], which is entered if it is new; -1 when the table is full."""
    hash_ = size
    need_size(data, at, size)
    with cython.boundscheck(False):
        for index in range(at, at + size):
            hash_ = (hash_ * _HASH_FACTOR & LOW_64) ^ data.data[index]
    slot = (hash_ * _GOLDEN & LOW_64) >> 40
    slot &= _SLOT_MASK
    while names.slots[slot] >= 0:
        number = names.slots[slot]
        if names.table[NAME_SIZE, number] == size and is_same(data, names.table[NAME_AT, number], at, size):
            return number
        slot = slot + 1 & _SLOT_MASK
    if names.count >= names.table.shape[1]:
        return -1
    names.slots[slot] = names.count
    names.table[NAME_AT, names.count] = at
    names.table[NAME_SIZE, names.count] = size
    names.count += 1
    return names.count - 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2)
def _number_of(names: _Names, data: Bytes, at: cython.longlong, size: cython.longlong) -> cython.longlong:
    """As `_enter`, where most names are that of the record before; sets `last`."""
    if not (
        names.count > 0
        and names.table[NAME_SIZE, names.last] == size
        and is_same(data, names.table[NAME_AT, names.last], at, size)
    ):
        number: cython.longlong = _enter(names, data, at, size)
        if number < 0:
            return -1
        names.last = number
    return names.last


@cython.locals(
    bytes_=Bytes, frame=Frame, topics=_Names, hosts=_Names, count=cython.longlong, count_max=cython.longlong,
    stated=cython.longlong, topic=cython.longlong, born_host=cython.longlong, store_host=cython.longlong,
    sys_flag=cython.longlong, time_at=cython.longlong, store_host_size=cython.longlong, rest_at=cython.longlong,
)  # fmt: skip
@cython.boundscheck(False)
def fill_rows(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    commit_log_offset: cython.longlong,
    check: cython.longlong,
    with_hosts: cython.bint,
    row_count_max: cython.longlong,
    rows_32: cython.int[:, ::1],
    rows_64: cython.longlong[:, ::1],
    topic_table: cython.longlong[:, ::1],
    topic_slots: cython.int[::1],
    host_table: cython.longlong[:, ::1],
    host_slots: cython.int[::1],
) -> tuple[int, int, int, int]:
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
        topic_table: a table of names.
        topic_slots: its slots, overwritten.
        host_table: a table of names.
        host_slots: its slots, overwritten.

    Returns:
        How many records, topics and hosts there are, and where in `data` the next record starts.
    """
    if not cython.compiled:
        rows_32, rows_64, topic_table, topic_slots, host_table, host_slots = map(
            memoryview, (rows_32, rows_64, topic_table, topic_slots, host_table, host_slots)
        )
    if rows_32.shape[0] < ROW_COUNT_32 or rows_64.shape[0] < ROW_COUNT_64:
        raise IndexError("a table has too few rows")
    bytes_ = reading(data)
    frame = Frame()
    topics = _names_of(topic_table, topic_slots)
    hosts = _names_of(host_table, host_slots)
    count = topic = born_host = store_host = 0
    count_max = min(row_count_max, rows_32.shape[1], rows_64.shape[1])
    end = min(end, len(bytes_.data))
    with cython.nogil:
        _clear(topics)
        _clear(hosts)
        while count < count_max and at < end:
            stated = commit_log_offset
            if check == LENGTHS:
                if end - at < _STATED_OFFSET_END:
                    break
                stated = load_i64(bytes_, at + 28)
            if not locate(bytes_, at, end, stated, frame):
                break
            topic = _number_of(topics, bytes_, frame.topic_at, frame.properties_at - 2 - frame.topic_at)
            if topic < 0:
                break
            sys_flag = load_i32(bytes_, at + 36)
            time_at = store_time_at(bytes_, at)
            store_host_size = _HOST_SIZE + HOST_V6_EXTRA * (sys_flag >> 5 & 1)
            if with_hosts:
                hosts.last = born_host
                born_host = _number_of(hosts, bytes_, at + 48, time_at - at - 48)
                if born_host < 0:
                    break
                hosts.last = store_host
                store_host = _number_of(hosts, bytes_, time_at + 8, store_host_size)
                if store_host < 0:
                    break
            rest_at = time_at + 8 + store_host_size
            rows_32[SIZE, count] = frame.size
            rows_32[BODY_CRC, count] = load_i32(bytes_, at + BODY_CRC_AT)
            rows_32[QUEUE_ID, count] = load_i32(bytes_, at + 12)
            rows_32[FLAG, count] = load_i32(bytes_, at + 16)
            rows_32[SYS_FLAG, count] = sys_flag
            rows_32[RECONSUME_TIMES, count] = load_i32(bytes_, rest_at)
            rows_32[BODY_SIZE, count] = load_i32(bytes_, frame.body_at - 4)
            rows_32[PROPERTIES_SIZE, count] = at + frame.size - frame.properties_at
            rows_32[TOPIC, count] = topic
            rows_32[BORN_HOST, count] = born_host
            rows_32[STORE_HOST, count] = store_host
            rows_32[IS_DOUBTFUL, count] = (
                is_doubtful(bytes_, at, at + frame.size, frame.body_at, frame.properties_at) if check == SUMS else 0
            )
            rows_64[AT, count] = at
            rows_64[BODY_AT, count] = frame.body_at
            rows_64[QUEUE_OFFSET, count] = load_i64(bytes_, at + 20)
            rows_64[STATED_OFFSET, count] = stated
            rows_64[BORN_TIME, count] = load_i64(bytes_, at + 40)
            rows_64[STORE_TIME, count] = load_i64(bytes_, time_at)
            rows_64[PREPARED_OFFSET, count] = load_i64(bytes_, rest_at + 4)
            count += 1
            at += frame.size
            commit_log_offset += frame.size
    return count, topics.count, hosts.count, at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
@cython.locals(index=cython.Py_ssize_t, result=cython.uint, signed=cython.longlong)
def _java_hash(data: Bytes, begin: cython.longlong, size: cython.longlong) -> cython.longlong:
    """Java's String.hashCode of ASCII."""
    need_size(data, begin, size)
    result = 0
    with cython.boundscheck(False):
        for index in range(begin, begin + size):
            result = result * 31 + data.data[index] & LOW_32
    signed = result
    return (signed ^ SIGN_32) - SIGN_32


@cython.final
@cython.cclass
class _Properties:
    """The table of all properties, with all its rows, and where those of the record at hand begin and end in it."""

    table = cython.declare(cython.int[:, ::1])
    first = cython.declare(cython.longlong)
    count = cython.declare(cython.longlong)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(place=cython.longlong, move=cython.longlong, index=cython.longlong)
@cython.boundscheck(False)
def _add_property(
    properties: _Properties,
    data: Bytes,
    name_at: cython.longlong,
    name_size: cython.longlong,
    value_at: cython.longlong,
    value_size: cython.longlong,
) -> cython.int:
    """Puts a property behind those of its record, instead of one with its name; whether there was room.

    Without room the record has none.
    """
    place = properties.first
    while place < properties.count and not (
        properties.table[PROPERTY_NAME_SIZE, place] == name_size
        and is_same(data, properties.table[PROPERTY_NAME_AT, place], name_at, name_size)
    ):
        place += 1
    for move in range(place, properties.count - 1):
        for index in range(PROPERTY_ROW_COUNT):
            properties.table[index, move] = properties.table[index, move + 1]
    if place == properties.count:
        if properties.count == properties.table.shape[1] or properties.count - properties.first == PROPERTY_COUNT_MAX:
            properties.count = properties.first
            return 0
        properties.count += 1
    properties.table[PROPERTY_NAME_AT, properties.count - 1] = name_at
    properties.table[PROPERTY_NAME_SIZE, properties.count - 1] = name_size
    properties.table[VALUE_AT, properties.count - 1] = value_at
    properties.table[VALUE_SIZE, properties.count - 1] = value_size
    return 1


@cython.locals(
    bytes_=Bytes, found=_Properties, key_count=cython.longlong, row=cython.Py_ssize_t, at=cython.longlong,
    end=cython.longlong, kind=cython.longlong, index=cython.longlong, name_at=cython.longlong, name_end=cython.longlong,
    name_size=cython.longlong, value_at=cython.longlong, value_size=cython.longlong, first_key=cython.longlong,
    key_at=cython.longlong,
)  # fmt: skip
@cython.boundscheck(False)
def find_properties(
    data: cython.const[cython.uchar][::1],
    begins: cython.const[cython.longlong][::1],
    sizes: cython.const[cython.int][::1],
    spans: cython.int[:, ::1],
    kinds: cython.schar[::1],
    with_map: cython.bint,
    properties: cython.int[:, ::1],
    property_ends: cython.int[::1],
    with_keys: cython.bint,
    keys: cython.int[:, ::1],
    key_ends: cython.int[::1],
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
    if not cython.compiled:
        begins, sizes, spans, kinds, properties, property_ends, keys, key_ends = map(
            memoryview, (begins, sizes, spans, kinds, properties, property_ends, keys, key_ends)
        )
    if (
        min(sizes.shape[0], spans.shape[1], kinds.shape[0], property_ends.shape[0], key_ends.shape[0]) < begins.shape[0]
        or spans.shape[0] < SPAN_ROW_COUNT or properties.shape[0] < PROPERTY_ROW_COUNT or keys.shape[0] < KEY_ROW_COUNT
    ):  # fmt: skip
        raise IndexError("a table is too small")
    bytes_ = reading(data)
    found = _Properties()
    found.table = properties
    found.count = found.first = key_count = 0
    with cython.nogil:
        for row in range(len(begins)):
            at = begins[row]
            end = at + sizes[row]
            kind = PLAIN
            if bits_of(bytes_, at, end) > 0x7F:
                kind = NOT_ASCII
            for index in range(TAGS_AT, TAGS_HASH, 2):
                spans[index, row] = at
                spans[index + 1, row] = -1
            found.first = found.count
            while at < end:
                name_at = at
                at = find_byte(bytes_, name_at, end, _PROPERTY_END)
                name_end = find_byte(bytes_, name_at, at, _NAME_END)
                name_size = name_end - name_at
                value_at = name_end + 1
                value_size = at - value_at
                at += 1
                if name_size == 0 or value_size <= 0:
                    continue
                if is_bytes(bytes_, name_at, name_size, _TAGS):
                    spans[TAGS_AT, row] = value_at
                    spans[TAGS_SIZE, row] = value_size
                elif is_bytes(bytes_, name_at, name_size, _KEYS):
                    spans[KEYS_AT, row] = value_at
                    spans[KEYS_SIZE, row] = value_size
                elif is_bytes(bytes_, name_at, name_size, _UNIQUE_KEY):
                    spans[UNIQUE_KEY_AT, row] = value_at
                    spans[UNIQUE_KEY_SIZE, row] = value_size
                if (
                    with_map
                    and kind != TOO_MANY
                    and not _add_property(found, bytes_, name_at, name_size, value_at, value_size)
                ):
                    kind = TOO_MANY
            spans[TAGS_HASH, row] = 0
            if spans[TAGS_SIZE, row] > 0:
                spans[TAGS_HASH, row] = _java_hash(bytes_, spans[TAGS_AT, row], spans[TAGS_SIZE, row])
            if with_keys and spans[KEYS_SIZE, row] > 0 and kind != TOO_MANY:
                first_key = key_count
                at = spans[KEYS_AT, row]
                end = at + spans[KEYS_SIZE, row]
                while at < end:
                    key_at = at
                    at = find_byte(bytes_, key_at, end, _SPACE)
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
            property_ends[row] = found.count
            key_ends[row] = key_count


@cython.locals(
    bytes_=Bytes, frame=Frame, count=cython.longlong, mark=cython.longlong, stated=cython.longlong, time=cython.longlong,
    record_count=cython.longlong, time_min=cython.longlong, time_max=cython.longlong,
)  # fmt: skip
@cython.boundscheck(False)
def mark_frames(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    commit_log_offset: cython.longlong,
    check: cython.longlong,
    block_size: cython.longlong,
    block_end: cython.longlong,
    marks: cython.longlong[:, ::1],
) -> tuple[int, int, int, int]:
    """Hops from record to record, and notes the first one of each block of the log.

    Args:
        data: bytes of the log.
        at: where the first record starts.
        end: as in `fill_rows`.
        commit_log_offset: of `at`.
        check: LENGTHS or PLACE.
        block_size: of the blocks, bytes; at least 1.
        block_end: commit-log offset where the block under way ends; the record at or behind it begins another.
        marks: int64[MARK_ROW_COUNT, n]; its first column is the block under way, which goes on.

    Returns:
        How many records there are, where in `data` the next one starts, how many columns of `marks` are in use, and
        `block_end` of the block under way.
    """
    if not cython.compiled:
        marks = memoryview(marks)
    bytes_ = reading(data)
    frame = Frame()
    if marks.shape[0] < MARK_ROW_COUNT or marks.shape[1] == 0:
        raise IndexError("a table of marks is too small")
    count = mark = record_count = 0
    time_min = marks[MARK_TIME_MIN, 0]
    time_max = marks[MARK_TIME_MAX, 0]
    block_size = max(block_size, 1)
    end = min(end, len(bytes_.data))
    with cython.nogil:
        while at < end:
            stated = commit_log_offset
            if check == LENGTHS:
                if end - at < _STATED_OFFSET_END:
                    break
                stated = load_i64(bytes_, at + 28)
            if not locate(bytes_, at, end, stated, frame):
                break
            if commit_log_offset >= block_end:
                if mark + 1 == marks.shape[1]:
                    break
                marks[MARK_RECORD_COUNT, mark] += record_count
                marks[MARK_TIME_MIN, mark] = time_min
                marks[MARK_TIME_MAX, mark] = time_max
                mark += 1
                marks[MARK_OFFSET, mark] = commit_log_offset
                marks[MARK_RECORD_COUNT, mark] = record_count = 0
                time_min = INT64_MAX
                time_max = INT64_MIN
                block_end += (commit_log_offset - block_end) // block_size * block_size + block_size
            time = load_i64(bytes_, store_time_at(bytes_, at))
            record_count += 1
            time_min = min(time_min, time)
            time_max = max(time_max, time)
            count += 1
            at += frame.size
            commit_log_offset += frame.size
        marks[MARK_RECORD_COUNT, mark] += record_count
        marks[MARK_TIME_MIN, mark] = time_min
        marks[MARK_TIME_MAX, mark] = time_max
    return count, at, mark + 1, block_end
