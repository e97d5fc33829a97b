# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""An append request, from its bytes to records in the log's format, and to the bytes of their receipts: no object a message.

    scan     parses, checks and encodes in one pass: records that lack their place
    fill     before the log's lock: queue ids, generated unique keys, CRCs of bodies, hashes of unique keys
    place    under the log's lock: offsets, store time, `__CRC32#`
    answer   the receipts as an AppendMessagesResponse

`scan` takes ordinary requests and returns NOT_MINE for all others, also for bad messages. Then the plain path
(`commitlog_svc/append/message_check.py`) parses the request and decides, so refusals are written once. `scan` changes only its
batch.

Not ordinary are: a topic that is not in the table; text beyond ASCII, control characters; a repeated or unknown field; a
property that the store or the choice of a queue uses; anything beyond the limits. Of `wire_properties` only the unique key must
be such text: all else is copied. A record without `__CRC32#` whose end resembles one is not ordinary either.

The three others stop at a row that is not valid, and return a smaller count. They look at each number of a row before they
use it, and index tables without a second check then: `count` is at most the number of rows, whose columns Batch has looked at.

Functions hold the GIL for a batch of few bytes: getting it back would take longer than the work.
"""

import cython

from commitlog_svc.append import layout as wire
from store.compiled.bytes_part import (
    LOW_32,
    LOW_64,
    SIGN_32,
    Bytes,
    are_equal,
    begins_with,
    bits_of,
    copy,
    crc32,
    find_byte,
    hex_digits,
    is_bytes,
    is_text,
    load_i32,
    need,
    put,
    put_number,
    read_span,
    read_varint,
    reading,
    size_of_varint,
    writing,
)
from store.format.frame_part import Frame, locate
from store.format.freshness_token import CHECK_DIGIT_COUNT, FRAME_CHARACTER_COUNT, VERSION
from store.format.host import IPV4_HOST_SIZE_BYTES, IPV6_HOST_SIZE_BYTES
from store.format.record_layout import (
    CRC_MARKER,
    CRC_PROPERTY_SIZE_BYTES,
    HEADS,
    STORE_TIMES_AT,
    TOPIC_SIZE_BYTES_MAX_V1,
)
from store.format.sys_flag import BORN_HOST_V6, COMPRESSION_TYPE_MASK, PRODUCER_MASK, CompressionType
from store.format.topic import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

NOT_MINE = -1
GIL_HELD_BYTES_MAX = 128 << 10
RESULT_BYTES_MAX = 208  # largest receipt without its unique key and its two copies of the broker name
# Indices in the scratch: begin and end of each key; behind them begin and end of name and of value of each property.
PROPERTIES_AT = 2 * wire.KEY_COUNT_MAX
SPAN_COUNT = PROPERTIES_AT + 4 * wire.PROPERTY_COUNT_MAX

# The same and others as numbers of C.
_GIL_HELD_BYTES_MAX = cython.declare(cython.Py_ssize_t, GIL_HELD_BYTES_MAX)
_PROPERTIES_AT = cython.declare(cython.Py_ssize_t, PROPERTIES_AT)
_KEY_COUNT_MAX = cython.declare(cython.Py_ssize_t, wire.KEY_COUNT_MAX)
_PROPERTY_COUNT_MAX = cython.declare(cython.Py_ssize_t, wire.PROPERTY_COUNT_MAX)
_TURN_COUNT_MAX = cython.declare(cython.Py_ssize_t, wire.TURN_COUNT_MAX)
_FLUSH_MODE_MAX = cython.declare(cython.longlong, wire.FLUSH_MODE_MAX)
_HEAD_SIZE_MIN = cython.declare(cython.Py_ssize_t, HEADS[0].size)
_V6_EXTRA = cython.declare(cython.Py_ssize_t, HEADS[1].size - HEADS[0].size)
_BORN_HOST_V6 = cython.declare(cython.int, BORN_HOST_V6)
_STORE_TIME_AT = cython.declare(cython.Py_ssize_t, STORE_TIMES_AT[0])
_V4_SIZE = cython.declare(cython.Py_ssize_t, IPV4_HOST_SIZE_BYTES)
_V6_SIZE = cython.declare(cython.Py_ssize_t, IPV6_HOST_SIZE_BYTES)
_PRODUCER_MASK = cython.declare(cython.longlong, PRODUCER_MASK)
_COMPRESSION_TYPE_MASK = cython.declare(cython.longlong, COMPRESSION_TYPE_MASK)
_COMPRESSION_TYPE_MAX = cython.declare(cython.longlong, CompressionType.ZLIB << 8)
_WIRE_EXCLUDES = cython.declare(cython.int, 1 << (wire.TAGS_TAG >> 3) | 1 << (wire.UNIQUE_KEY_TAG >> 3))
_GUARD_SIZE = cython.declare(cython.Py_ssize_t, CRC_PROPERTY_SIZE_BYTES)
_TOPIC_SIZE_MAX = cython.declare(cython.Py_ssize_t, TOPIC_SIZE_BYTES_MAX_V1)
_PROPERTIES_SIZE_MAX = cython.declare(cython.longlong, 32767)
_TIME_SECONDS_MAX = cython.declare(cython.longlong, 253_402_300_799)
_RESULT_BYTES_MAX = cython.declare(cython.longlong, RESULT_BYTES_MAX)
_BODY_CRC_MASK = cython.declare(cython.longlong, 0x7FFFFFFF)
_KEY_DIGIT_COUNT = cython.declare(cython.Py_ssize_t, 4)  # hexadecimal digits of a counter at the end of a generated key
_OFFSET_DIGIT_COUNT = cython.declare(cython.Py_ssize_t, 16)
_CHECK_DIGIT_COUNT = cython.declare(cython.Py_ssize_t, CHECK_DIGIT_COUNT)
_TOKEN_FRAME_SIZE = cython.declare(cython.Py_ssize_t, FRAME_CHARACTER_COUNT)
_TOKEN_VERSION = cython.declare(cython.longlong, ord(VERSION))
_HASH_START = cython.declare(cython.ulonglong, wire.HASH_START)
_HASH_FACTOR = cython.declare(cython.ulonglong, wire.HASH_FACTOR)
_LOW_63 = cython.declare(cython.ulonglong, wire.HASH_MASK >> 1)
_P61 = cython.declare(cython.ulonglong, (1 << 61) - 1)  # see `commitlog_svc/append/recent_keys.py`
_LOW_29 = cython.declare(cython.ulonglong, 0x1FFFFFFF)

_REQUEST_MESSAGES = cython.declare(cython.int, wire.REQUEST_MESSAGES_TAG)
_REQUEST_FLUSH = cython.declare(cython.int, wire.REQUEST_FLUSH_TAG)
_REQUEST_DEDUPLICATE = cython.declare(cython.int, wire.REQUEST_DEDUPLICATE_TAG)
_TOPIC = cython.declare(cython.int, wire.TOPIC_TAG)
_QUEUE_ID_FIELD = cython.declare(cython.int, wire.QUEUE_ID_TAG)
_BODY = cython.declare(cython.int, wire.BODY_TAG)
_TAGS = cython.declare(cython.int, wire.TAGS_TAG)
_KEYS = cython.declare(cython.int, wire.KEYS_TAG)
_PROPERTIES = cython.declare(cython.int, wire.PROPERTIES_TAG)
_FLAG = cython.declare(cython.int, wire.FLAG_TAG)
_UNIQUE_KEY = cython.declare(cython.int, wire.UNIQUE_KEY_TAG)
_BORN_TIME = cython.declare(cython.int, wire.BORN_TIME_TAG)
_RECONSUME_TIMES = cython.declare(cython.int, wire.RECONSUME_TIMES_TAG)
_SYS_FLAG = cython.declare(cython.int, wire.SYS_FLAG_TAG)
_BORN_HOST = cython.declare(cython.int, wire.BORN_HOST_TAG)
_WIRE_PROPERTIES = cython.declare(cython.int, wire.WIRE_PROPERTIES_TAG)
_ENTRY_NAME = cython.declare(cython.int, wire.ENTRY_NAME_TAG)
_ENTRY_VALUE = cython.declare(cython.int, wire.ENTRY_VALUE_TAG)
_SECONDS = cython.declare(cython.int, wire.SECONDS_TAG)
_NANOS = cython.declare(cython.int, wire.NANOS_TAG)
_RESULTS = cython.declare(cython.int, wire.RESPONSE_RESULTS_TAG)
_RESULT_OFFSET_MSG_ID = cython.declare(cython.int, wire.RESULT_OFFSET_MSG_ID_TAG)
_RESULT_UNIQUE_KEY = cython.declare(cython.int, wire.RESULT_UNIQUE_KEY_TAG)
_RESULT_QUEUE_ID = cython.declare(cython.int, wire.RESULT_QUEUE_ID_TAG)
_RESULT_QUEUE_OFFSET = cython.declare(cython.int, wire.RESULT_QUEUE_OFFSET_TAG)
_RESULT_COMMIT_LOG_OFFSET = cython.declare(cython.int, wire.RESULT_COMMIT_LOG_OFFSET_TAG)
_RESULT_STORE_TIME = cython.declare(cython.int, wire.RESULT_STORE_TIME_TAG)
_RESULT_BROKER_NAME = cython.declare(cython.int, wire.RESULT_BROKER_NAME_TAG)
_RESULT_FRESHNESS_TOKEN = cython.declare(cython.int, wire.RESULT_FRESHNESS_TOKEN_TAG)

_ROW_COLUMN_COUNT = cython.declare(cython.Py_ssize_t, wire.ROW_COLUMN_COUNT)
_RECORD_BEGIN = cython.declare(cython.Py_ssize_t, wire.RECORD_BEGIN)
_RECORD_SIZE = cython.declare(cython.Py_ssize_t, wire.RECORD_SIZE)
_TOPIC_NUMBER = cython.declare(cython.Py_ssize_t, wire.TOPIC_NUMBER)
_QUEUE_ID = cython.declare(cython.Py_ssize_t, wire.QUEUE_ID)
_UNIQUE_KEY_BEGIN = cython.declare(cython.Py_ssize_t, wire.UNIQUE_KEY_BEGIN)
_UNIQUE_KEY_SIZE = cython.declare(cython.Py_ssize_t, wire.UNIQUE_KEY_SIZE)
_IS_GENERATED = cython.declare(cython.Py_ssize_t, wire.IS_GENERATED)
_KEY_HASH = cython.declare(cython.Py_ssize_t, wire.KEY_HASH)
_QUEUE_OFFSET = cython.declare(cython.Py_ssize_t, wire.QUEUE_OFFSET)
_COMMIT_LOG_OFFSET = cython.declare(cython.Py_ssize_t, wire.COMMIT_LOG_OFFSET)
_TURN_COLUMN_COUNT = cython.declare(cython.Py_ssize_t, wire.TURN_COLUMN_COUNT)
_TURN_TOPIC_NUMBER = cython.declare(cython.Py_ssize_t, wire.TURN_TOPIC_NUMBER)
_TURN_MESSAGE_COUNT = cython.declare(cython.Py_ssize_t, wire.TURN_MESSAGE_COUNT)
_TURN_BEGIN = cython.declare(cython.Py_ssize_t, wire.TURN_BEGIN)

_KEYS_NAME = cython.declare(Bytes, reading(b"KEYS\x01"))
_TAGS_NAME = cython.declare(Bytes, reading(b"TAGS\x01"))
_UNIQUE_KEY_NAME = cython.declare(Bytes, reading(b"UNIQ_KEY\x01"))
_GUARD_MARKER = cython.declare(Bytes, reading(CRC_MARKER))
_UNIQUE_KEY_TEXT = cython.declare(Bytes, reading(b"UNIQ_KEY"))
_SCHEDULE_TOPIC = cython.declare(Bytes, reading(SCHEDULE_TOPIC.encode()))
_TIMER_TOPIC = cython.declare(Bytes, reading(TIMER_TOPIC.encode()))
_HALF_TOPIC = cython.declare(Bytes, reading(HALF_TOPIC.encode()))


@cython.final
@cython.cclass
class Topics:
    """The columns of `TopicColumns`: the topics that messages may name, by number.

    Args:
        slots: numbers of topics by `layout.hash_bytes` of the name, open addressing, -1 in empty slots; a power of two.
        names: their bytes, one row for each; at least as wide as the longest name.
        sizes, queue_counts, queue_slot_begins: as many as names.
        queue_slots: see `place`.
    """

    slots = cython.declare(cython.const[cython.longlong][::1])
    names = cython.declare(cython.const[cython.uchar][:, ::1])
    sizes = cython.declare(cython.const[cython.longlong][::1])
    queue_counts = cython.declare(cython.const[cython.longlong][::1])
    queue_slot_begins = cython.declare(cython.const[cython.longlong][::1])
    queue_slots = cython.declare(cython.const[cython.longlong][::1])

    def __init__(
        self,
        slots: cython.const[cython.longlong][::1],
        names: cython.const[cython.uchar][:, ::1],
        sizes: cython.const[cython.longlong][::1],
        queue_counts: cython.const[cython.longlong][::1],
        queue_slot_begins: cython.const[cython.longlong][::1],
        queue_slots: cython.const[cython.longlong][::1],
    ) -> None:
        if not cython.compiled:
            slots, names, sizes = memoryview(slots), memoryview(names), memoryview(sizes)
            queue_counts, queue_slots = memoryview(queue_counts), memoryview(queue_slots)
            queue_slot_begins = memoryview(queue_slot_begins)
        if {names.shape[0], queue_counts.shape[0], queue_slot_begins.shape[0]} != {sizes.shape[0]}:
            raise ValueError("columns of topics have different lengths")
        if names.shape[1] < _TOPIC_SIZE_MAX or slots.shape[0] == 0 or slots.shape[0] & slots.shape[0] - 1:
            raise ValueError("a table of topics is too narrow, or its slots are not a power of two")
        self.slots, self.names, self.sizes = slots, names, sizes
        self.queue_counts, self.queue_slot_begins, self.queue_slots = queue_counts, queue_slot_begins, queue_slots


@cython.final
@cython.cclass
class Names:
    """A table of the hashes of names (`topic_columns.hash_table`)."""

    slots = cython.declare(cython.const[cython.longlong][::1])

    def __init__(self, slots: cython.const[cython.longlong][::1]) -> None:
        if slots.shape[0] == 0 or slots.shape[0] & slots.shape[0] - 1:
            raise ValueError("the slots of a table of names are not a power of two")
        self.slots = slots if cython.compiled else memoryview(slots)


@cython.final
@cython.cclass
class Rules:
    """What is ordinary.

    Args:
        refused: property names that are not.
        wire_refused: those that are not in `wire_properties`.
        message_count_max: of a request.
        body_bytes_max: of a message.
        request_body_bytes_max: of all messages of a request.
        record_bytes_max: largest record.
        generated_key_size: bytes of a unique key that the store makes.
        is_guarded: whether records end with `__CRC32#`.
    """

    refused = cython.declare(Names)
    wire_refused = cython.declare(Names)
    message_count_max = cython.declare(cython.longlong)
    body_bytes_max = cython.declare(cython.longlong)
    request_body_bytes_max = cython.declare(cython.longlong)
    record_bytes_max = cython.declare(cython.longlong)
    generated_key_size = cython.declare(cython.longlong)
    is_guarded = cython.declare(cython.bint)

    def __init__(
        self,
        refused: Names,
        wire_refused: Names,
        *,
        message_count_max: int,
        body_bytes_max: int,
        request_body_bytes_max: int,
        record_bytes_max: int,
        generated_key_size: int,
        is_guarded: bool,
    ) -> None:
        self.refused, self.wire_refused = refused, wire_refused
        self.message_count_max, self.body_bytes_max = message_count_max, body_bytes_max
        self.request_body_bytes_max, self.record_bytes_max = request_body_bytes_max, record_bytes_max
        self.generated_key_size, self.is_guarded = generated_key_size, is_guarded


@cython.final
@cython.cclass
class Head:
    """The first bytes of every record of one sender, up to the body.

    Args:
        v4, v6: with all fields that are equal for every message, for a born host of IPv4 and one of IPv6.
        is_v6: which of them has the sender's address.
    """

    v4 = cython.declare(Bytes)
    v6 = cython.declare(Bytes)
    is_v6 = cython.declare(cython.bint)

    def __init__(self, v4: bytes, v6: bytes, *, is_v6: bool) -> None:
        if len(v4) < _HEAD_SIZE_MIN or len(v6) != len(v4) + _V6_EXTRA:
            raise ValueError("the heads of a record have other sizes than those of a record")
        self.v4, self.v6, self.is_v6 = reading(v4), reading(v6), is_v6


@cython.final
@cython.cclass
class _Message:
    """Where in the request the parts of one message lie, and its numbers; an empty range for a part that it does not have.

    `spans` has the ranges of its keys and properties, the properties in the order of their names.
    """

    topic_begin = cython.declare(cython.Py_ssize_t)
    topic_end = cython.declare(cython.Py_ssize_t)
    body_begin = cython.declare(cython.Py_ssize_t)
    body_end = cython.declare(cython.Py_ssize_t)
    tags_begin = cython.declare(cython.Py_ssize_t)
    tags_end = cython.declare(cython.Py_ssize_t)
    key_begin = cython.declare(cython.Py_ssize_t)  # of the unique key
    key_end = cython.declare(cython.Py_ssize_t)
    queue_id = cython.declare(cython.longlong)  # -1: none
    flag = cython.declare(cython.longlong)
    sys_flag = cython.declare(cython.longlong)
    reconsume_times = cython.declare(cython.longlong)
    has_wire = cython.declare(cython.bint)
    wire_begin = cython.declare(cython.Py_ssize_t)
    wire_end = cython.declare(cython.Py_ssize_t)
    host = cython.declare(Bytes)  # of the producer, as stored
    host_size = cython.declare(cython.Py_ssize_t)  # 0: none is given
    born_millis = cython.declare(cython.longlong)
    key_count = cython.declare(cython.Py_ssize_t)
    keys_bytes = cython.declare(cython.Py_ssize_t)  # with a separator behind each
    property_count = cython.declare(cython.Py_ssize_t)
    properties_bytes = cython.declare(cython.Py_ssize_t)  # likewise
    spans = cython.declare(cython.longlong[::1])


@cython.final
@cython.cclass
class Batch:
    """The records of one request and their table; can be used for one request after the other.

    Args:
        records: gets the records one behind the other, with gaps for generated keys.
        rows, turns: tables, see `layout.py`.
        spans: scratch of SPAN_COUNT.

    Attributes:
        count: of the records.
        size_bytes: of the records together.
        flush: the mode of the request.
        is_deduplicated: whether the request asks for that.
        generated_count: how many unique keys the store makes.
        keys_bytes: of all unique keys.
        turn_count: of rows in `turns`.
    """

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    size_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    flush = cython.declare(cython.longlong, visibility="readonly")
    is_deduplicated = cython.declare(cython.bint, visibility="readonly")
    generated_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    keyless_count = cython.declare(cython.Py_ssize_t)  # of those without one
    keys_bytes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    turn_count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    records = cython.declare(Bytes)
    rows = cython.declare(cython.longlong[:, ::1])
    turns = cython.declare(cython.longlong[:, ::1])
    message = cython.declare(_Message)
    topics = cython.declare(Topics)
    head = cython.declare(Head)
    is_guarded = cython.declare(cython.bint)

    def __init__(
        self,
        records: cython.uchar[::1],
        rows: cython.longlong[:, ::1],
        turns: cython.longlong[:, ::1],
        spans: cython.longlong[::1],
    ) -> None:
        if not cython.compiled:
            rows, turns, spans = memoryview(rows), memoryview(turns), memoryview(spans)
        if (
            rows.shape[1] < _ROW_COLUMN_COUNT
            or turns.shape[1] < _TURN_COLUMN_COUNT
            or turns.shape[0] < _TURN_COUNT_MAX
            or spans.shape[0] < SPAN_COUNT
        ):
            raise ValueError("a table of a batch is too small")
        self.records = writing(records)
        self.rows, self.turns = rows, turns
        self.message = _Message()
        self.message.spans = spans
        self.message.host = writing(bytearray(_V6_SIZE))
        self.count = self.size_bytes = self.generated_count = self.keyless_count = self.keys_bytes = self.turn_count = 0
        self.flush, self.is_deduplicated, self.is_guarded = 0, False, False


# Tables of names: open addressing by `layout.hash_bytes`, -1 in empty slots. Their length is a power of two.


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(value=cython.ulonglong, at=cython.Py_ssize_t)
def _hash_name(source: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """`layout.hash_bytes`, without the top bit."""
    value = _HASH_START
    need(source, begin, end)
    with cython.boundscheck(False):
        for at in range(begin, end):
            value = (value ^ source.data[at]) * _HASH_FACTOR & LOW_64
    return value & _LOW_63


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.boundscheck(False)
@cython.locals(size=cython.Py_ssize_t, index=cython.Py_ssize_t)
def _is_topic(
    source: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, topics: Topics, number: cython.longlong
) -> cython.int:
    """Whether source[begin:end] is the name of topic `number`."""
    size = end - begin
    if number < 0 or number >= topics.sizes.shape[0] or topics.sizes[number] != size or size > topics.names.shape[1]:
        return 0
    need(source, begin, end)
    if not cython.compiled:
        for index in range(size):
            if source.data[begin + index] != topics.names[number, index]:
                return 0
        return 1
    return size == 0 or are_equal(
        cython.cast(cython.p_uchar, cython.address(source.data[begin])),
        cython.cast(cython.p_uchar, cython.address(topics.names[number, 0])),
        size,
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
@cython.locals(slot=cython.longlong, mask=cython.longlong, number=cython.longlong, _tried=cython.Py_ssize_t)
def _find_topic(source: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, topics: Topics) -> cython.longlong:
    """The number of a topic, or -1."""
    if end - begin > _TOPIC_SIZE_MAX:
        return -1
    mask = topics.slots.shape[0] - 1
    slot = _hash_name(source, begin, end) & mask
    for _tried in range(topics.slots.shape[0]):
        number = topics.slots[slot]
        if number < 0:
            break
        if _is_topic(source, begin, end, topics, number):
            return number
        slot = slot + 1 & mask
    return -1


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(hash_=cython.longlong, slot=cython.longlong, mask=cython.longlong, _tried=cython.Py_ssize_t)
def _is_among(source: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, names: Names) -> cython.int:
    """Whether the table has the hash of this name, so that it may have the name."""
    hash_ = _hash_name(source, begin, end)
    mask = names.slots.shape[0] - 1
    slot = hash_ & mask
    for _tried in range(names.slots.shape[0]):
        if names.slots[slot] < 0:
            return 0
        if names.slots[slot] == hash_:
            return 1
        slot = slot + 1 & mask
    return 1


# scan


@cython.cfunc
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
@cython.locals(size=cython.Py_ssize_t, index=cython.Py_ssize_t, a=cython.longlong, b=cython.longlong)
def _compare(
    source: Bytes,
    a_begin: cython.Py_ssize_t,
    a_end: cython.Py_ssize_t,
    b_begin: cython.Py_ssize_t,
    b_end: cython.Py_ssize_t,
) -> cython.longlong:
    """Negative, 0 or positive, if the first text sorts before, equal to or behind the second."""
    size = min(a_end - a_begin, b_end - b_begin)
    for index in range(size):
        a = source.data[a_begin + index]
        b = source.data[b_begin + index]
        if a != b:
            return a - b
    return (a_end - a_begin) - (b_end - b_begin)


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    name_begin=cython.Py_ssize_t, name_end=cython.Py_ssize_t, value_begin=cython.Py_ssize_t, value_end=cython.Py_ssize_t,
    place=cython.Py_ssize_t, before=cython.Py_ssize_t, index=cython.Py_ssize_t, order=cython.longlong,
)  # fmt: skip
def _read_property(
    request: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, rules: Rules, message: _Message
) -> cython.int:
    """Inserts the ranges of a property in the order of names; 0 when it is not ordinary."""
    if begin >= end or request.data[begin] != _ENTRY_NAME:
        return 0
    name_end = read_span(request, begin + 1, end)
    name_begin = request.begin
    if name_end < 0 or name_end <= name_begin or name_end >= end or request.data[name_end] != _ENTRY_VALUE:
        return 0
    value_end = read_span(request, name_end + 1, end)
    value_begin = request.begin
    if value_end != end or value_end <= value_begin or message.property_count >= _PROPERTY_COUNT_MAX:
        return 0
    if not is_text(request, name_begin, name_end, 0x20) or not is_text(request, value_begin, value_end, 0x20):
        return 0
    if _is_among(request, name_begin, name_end, rules.refused):
        return 0
    place = message.property_count
    while place > 0:
        before = _PROPERTIES_AT + 4 * (place - 1)
        order = _compare(request, message.spans[before], message.spans[before + 1], name_begin, name_end)
        if order == 0:
            return 0
        if order < 0:
            break
        for index in range(before, before + 4):
            message.spans[index + 4] = message.spans[index]
        place -= 1
    index = _PROPERTIES_AT + 4 * place
    message.spans[index] = name_begin
    message.spans[index + 1] = name_end
    message.spans[index + 2] = value_begin
    message.spans[index + 3] = value_end
    message.property_count += 1
    message.properties_bytes += name_end - name_begin + value_end - value_begin + 2
    return 1


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(at=cython.Py_ssize_t, entry_end=cython.Py_ssize_t, name_end=cython.Py_ssize_t)
def _read_wire(
    request: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, rules: Rules, message: _Message
) -> cython.int:
    """Takes the range of a property string, and finds its unique key; 0 when it is not ordinary."""
    message.has_wire = True
    message.wire_begin = at = begin
    message.wire_end = end
    while at < end:
        entry_end = find_byte(request, at, end, 2)
        name_end = find_byte(request, at, entry_end, 1)
        if at < name_end and name_end + 1 < entry_end:  # else no reader takes it for a property
            if _is_among(request, at, name_end, rules.wire_refused):
                return 0
            if is_bytes(request, at, name_end - at, _UNIQUE_KEY_TEXT):  # of several the last one counts
                message.key_begin = name_end + 1
                message.key_end = entry_end
        at = entry_end + 1
    return 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2)
@cython.locals(byte=cython.int)
def _digit(source: Bytes, at: cython.Py_ssize_t) -> cython.int:
    """The value of a hexadecimal digit, or -1."""
    byte = source.data[at]
    if 0x30 <= byte <= 0x39:
        return byte - 0x30
    byte |= 0x20
    return byte - 0x57 if 0x61 <= byte <= 0x66 else -1


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    colon=cython.Py_ssize_t, port=cython.longlong, part=cython.longlong, digits=cython.int, digit=cython.int,
    count=cython.Py_ssize_t, gap=cython.Py_ssize_t, byte=cython.int,
)  # fmt: skip
def _read_host(request: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, message: _Message) -> cython.int:
    """Takes an address such as 1.2.3.4:10911 or [::1]:10911 as it is stored; 0 for any other text.

    Not taken, though it is an address: IPv6 that ends as IPv4.
    """
    colon = end - 1
    while colon > at and request.data[colon] != 0x3A:
        colon -= 1
    if colon <= at or end - colon < 2 or end - colon > 6:
        return 0
    port = 0
    for count in range(colon + 1, end):
        digit = _digit(request, count)
        if digit < 0 or digit > 9:
            return 0
        port = port * 10 + digit
    if port > 0xFFFF:
        return 0
    part = digits = 0
    count = 0
    if request.data[at] != 0x5B:
        while at <= colon:
            if at == colon or request.data[at] == 0x2E:
                if digits == 0 or count > 3:
                    return 0
                message.host.room[count] = part
                count += 1
                part = digits = 0
            else:
                digit = _digit(request, at)
                # No digit may stand behind a zero at the begin.
                if digit < 0 or digit > 9 or (digits == 1 and part == 0):
                    return 0
                part = part * 10 + digit
                digits += 1
                if part > 0xFF:
                    return 0
            at += 1
        if count != 4:
            return 0
        put(message.host, 4, port, 4)
        message.host_size = _V4_SIZE
        return 1
    colon -= 1
    at += 1
    if colon <= at or request.data[colon] != 0x5D:
        return 0
    gap = -1
    if request.data[at] == 0x3A:
        at += 1
        if at >= colon or request.data[at] != 0x3A:
            return 0
    while at < colon:
        byte = request.data[at]
        digit = _digit(request, at)
        at += 1
        if digit >= 0:
            digits += 1
            if digits > 4 or count > 7:
                return 0
            part = part << 4 | digit
            message.host.room[2 * count] = part >> 8
            message.host.room[2 * count + 1] = part & 0xFF
        elif byte != 0x3A:
            return 0
        elif digits > 0:
            if at >= colon:
                return 0
            count += 1
            part = digits = 0
        elif gap >= 0:
            return 0
        else:
            gap = count
    count += digits > 0
    if gap >= 0:
        if count > 7:
            return 0
        copy(message.host, 2 * gap, 2 * count, message.host, 16 - 2 * (count - gap))
        for at in range(2 * gap, 16 - 2 * (count - gap)):
            message.host.room[at] = 0
    elif count != 8:
        return 0
    put(message.host, 16, port, 4)
    message.host_size = _V6_SIZE
    return 1


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
@cython.locals(seconds=cython.longlong, nanos=cython.longlong, tag=cython.int)
def _read_time(request: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """A Timestamp in milliseconds since 1970, or -1 when it is not ordinary."""
    seconds = nanos = 0
    while at < end:
        tag = request.data[at]
        at = read_varint(request, at + 1, end)
        if at < 0 or request.value < 0:
            return -1
        if tag == _SECONDS and request.value <= _TIME_SECONDS_MAX:
            seconds = request.value
        elif tag == _NANOS and request.value < 1_000_000_000:
            nanos = request.value
        else:
            return -1
    return seconds * 1000 + nanos // 1_000_000


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(tag=cython.int, field=cython.int, seen=cython.int, begin=cython.Py_ssize_t, value=cython.longlong)
def _read_message(
    request: Bytes,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    rules: Rules,
    now_millis: cython.longlong,
    message: _Message,
) -> cython.int:
    """Finds the parts of a NewMessage; 0 when one of them is not ordinary."""
    message.topic_begin = message.topic_end = message.body_begin = message.body_end = 0
    message.tags_begin = message.tags_end = message.key_begin = message.key_end = 0
    message.key_count = message.keys_bytes = message.property_count = message.properties_bytes = 0
    message.wire_begin = message.wire_end = message.host_size = 0
    message.has_wire = False
    message.queue_id = -1
    message.flag = message.sys_flag = message.reconsume_times = 0
    message.born_millis = now_millis
    seen = 0
    while at < end:
        tag = request.data[at]
        at += 1
        if tag in (_KEYS, _PROPERTIES):
            at = read_span(request, at, end)
            begin = request.begin
            if at < 0 or at <= begin:
                return 0
            if tag == _PROPERTIES:
                if not _read_property(request, begin, at, rules, message):
                    return 0
                continue
            if message.key_count >= _KEY_COUNT_MAX or not is_text(request, begin, at, 0x21):
                return 0
            message.spans[2 * message.key_count] = begin
            message.spans[2 * message.key_count + 1] = at
            message.key_count += 1
            message.keys_bytes += at - begin + 1
            continue
        field = tag >> 3
        if tag >= 0x80 or seen >> field & 1:
            return 0
        seen |= 1 << field
        if tag in (_QUEUE_ID_FIELD, _FLAG, _RECONSUME_TIMES, _SYS_FLAG):
            at = read_varint(request, at, end)
            value = request.value
            if at < 0 or value < -SIGN_32 or value >= SIGN_32:
                return 0
            if tag == _FLAG:
                message.flag = value
            elif value < 0:
                return 0
            elif tag == _QUEUE_ID_FIELD:
                message.queue_id = value
            elif tag == _RECONSUME_TIMES:
                message.reconsume_times = value
            elif value & ~_PRODUCER_MASK or value & _COMPRESSION_TYPE_MASK > _COMPRESSION_TYPE_MAX:
                return 0
            else:
                message.sys_flag = value
            continue
        at = read_span(request, at, end)
        begin = request.begin
        if at < 0:
            return 0
        if tag == _TOPIC:
            message.topic_begin = begin
            message.topic_end = at
        elif tag == _BODY:
            message.body_begin = begin
            message.body_end = at
        elif tag == _TAGS:
            message.tags_begin = begin
            message.tags_end = at
        elif tag == _UNIQUE_KEY:
            message.key_begin = begin
            message.key_end = at
            if at == begin:
                return 0
        elif tag == _BORN_TIME:
            message.born_millis = _read_time(request, begin, at)
            if message.born_millis < 0:
                return 0
        elif tag == _BORN_HOST:
            if at > begin and not _read_host(request, begin, at, message):
                return 0
        elif tag == _WIRE_PROPERTIES:
            if not _read_wire(request, begin, at, rules, message):
                return 0
        else:
            return 0
    if message.has_wire and (seen & _WIRE_EXCLUDES or message.key_count > 0 or message.property_count > 0):
        return 0
    return (
        message.topic_end > message.topic_begin
        and message.body_end > message.body_begin
        and message.body_end - message.body_begin <= rules.body_bytes_max
        and is_text(request, message.tags_begin, message.tags_end, 0x20)
        and is_text(request, message.key_begin, message.key_end, 0x20)
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(place=cython.Py_ssize_t)
def _take_turn(batch: Batch, topic_number: cython.longlong) -> cython.Py_ssize_t:
    """The row of a topic in the turns, a new one if need be; TURN_COUNT_MAX when there is no room."""
    place = batch.turn_count - 1
    while place >= 0 and batch.turns[place, _TURN_TOPIC_NUMBER] != topic_number:
        place -= 1
    if place < 0:
        place = batch.turn_count
        if place >= _TURN_COUNT_MAX:
            return place
        batch.turns[place, _TURN_TOPIC_NUMBER] = topic_number
        batch.turns[place, _TURN_MESSAGE_COUNT] = 0
        batch.turns[place, _TURN_BEGIN] = 0
        batch.turn_count += 1
    batch.turns[place, _TURN_MESSAGE_COUNT] += 1
    return place


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    begin=cython.Py_ssize_t, to=cython.Py_ssize_t, key_size=cython.Py_ssize_t, size=cython.Py_ssize_t,
    body_size=cython.Py_ssize_t, topic_size=cython.Py_ssize_t, properties_bytes=cython.Py_ssize_t,
    is_open=cython.bint, is_v6=cython.bint, head_size=cython.Py_ssize_t, is_generated=cython.bint,
    place=cython.Py_ssize_t, same=cython.int, last=cython.uchar,
)  # fmt: skip
def _write_record(
    request: Bytes, message: _Message, rules: Rules, head: Head, batch: Batch, records: Bytes
) -> cython.int:
    """Writes a record behind the others, and its places into its row; 0 when it is too large or not ordinary."""
    begin = batch.size_bytes
    body_size = message.body_end - message.body_begin
    topic_size = message.topic_end - message.topic_begin
    key_size = message.key_end - message.key_begin
    is_generated = not message.has_wire and key_size == 0
    is_open = False
    if message.has_wire:
        properties_bytes = message.wire_end - message.wire_begin
        # As `prepare_record` and the plain path do: before `__CRC32#`, and behind a zero.
        if properties_bytes > 0:
            last = request.data[message.wire_end - 1]
            is_open = last == 0 or (last != 2 and rules.is_guarded)
        properties_bytes += is_open
    else:
        if is_generated:
            key_size = rules.generated_key_size
        properties_bytes = message.properties_bytes + len(_UNIQUE_KEY_NAME.data) + key_size + 1
        if message.key_count > 0:
            properties_bytes += len(_KEYS_NAME.data) + message.keys_bytes
        if message.tags_end > message.tags_begin:
            properties_bytes += len(_TAGS_NAME.data) + message.tags_end - message.tags_begin + 1
    if rules.is_guarded:
        properties_bytes += _GUARD_SIZE
    is_v6 = message.host_size == _V6_SIZE or (message.host_size == 0 and head.is_v6)
    head_size = len(head.v6.data) if is_v6 else len(head.v4.data)
    size = head_size + body_size + 1 + topic_size + 2 + properties_bytes
    if properties_bytes > _PROPERTIES_SIZE_MAX or size > rules.record_bytes_max or size > records.data.shape[0] - begin:
        return 0
    to = copy(head.v6, 0, head_size, records, begin) if is_v6 else copy(head.v4, 0, head_size, records, begin)
    put(records, begin, size, 4)
    put(records, begin + 16, message.flag, 4)
    if message.sys_flag != 0:
        put(records, begin + 36, message.sys_flag | records.data[begin + 39], 4)
    put(records, begin + 40, message.born_millis, 8)
    if message.host_size > 0:
        copy(message.host, 0, message.host_size, records, begin + 48)
    put(records, to - 16, message.reconsume_times, 4)
    put(records, to - 4, body_size, 4)
    to = copy(request, message.body_begin, message.body_end, records, to)
    records.room[to] = topic_size
    to = copy(request, message.topic_begin, message.topic_end, records, to + 1)
    put(records, to, properties_bytes, 2)
    to += 2
    batch.rows[batch.count, _UNIQUE_KEY_SIZE] = key_size
    if message.has_wire:
        batch.rows[batch.count, _UNIQUE_KEY_BEGIN] = to + message.key_begin - message.wire_begin if key_size > 0 else to
        to = copy(request, message.wire_begin, message.wire_end, records, to)
        if is_open:
            records.room[to] = 0x02
            to += 1
    else:
        to = _write_properties(request, message, batch, records, to, key_size)
    if rules.is_guarded:
        copy(_GUARD_MARKER, 0, len(_GUARD_MARKER.data), records, to)
        records.room[begin + size - 1] = 0x02
    elif properties_bytes >= _GUARD_SIZE:
        same = 0
        for place in range(len(_GUARD_MARKER.data) - 1):
            same += records.data[begin + size - _GUARD_SIZE + place] == _GUARD_MARKER.data[place]
        if same > 4:
            return 0
    batch.rows[batch.count, _RECORD_BEGIN] = begin
    batch.rows[batch.count, _RECORD_SIZE] = size
    batch.rows[batch.count, _IS_GENERATED] = is_generated
    batch.generated_count += is_generated
    batch.keyless_count += key_size == 0
    batch.keys_bytes += key_size
    batch.size_bytes += size
    return 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(place=cython.Py_ssize_t, span=cython.Py_ssize_t)
def _write_properties(
    request: Bytes,
    message: _Message,
    batch: Batch,
    records: Bytes,
    to: cython.Py_ssize_t,
    key_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes keys, tags, unique key and properties, and the place of the unique key into the row; returns where they end."""
    if message.key_count > 0:
        to = copy(_KEYS_NAME, 0, len(_KEYS_NAME.data), records, to)
        for place in range(message.key_count):
            to = copy(request, message.spans[2 * place], message.spans[2 * place + 1], records, to)
            records.room[to] = 0x20
            to += 1
        records.room[to - 1] = 0x02
    if message.tags_end > message.tags_begin:
        to = copy(_TAGS_NAME, 0, len(_TAGS_NAME.data), records, to)
        to = copy(request, message.tags_begin, message.tags_end, records, to)
        records.room[to] = 0x02
        to += 1
    to = copy(_UNIQUE_KEY_NAME, 0, len(_UNIQUE_KEY_NAME.data), records, to)
    batch.rows[batch.count, _UNIQUE_KEY_BEGIN] = to
    if message.key_begin < message.key_end:
        copy(request, message.key_begin, message.key_end, records, to)
    else:
        # `fill` writes the key that is generated. What an earlier request left here could look like the guard until then.
        for place in range(key_size):
            records.room[to + place] = 0x30
    to += key_size
    records.room[to] = 0x02
    to += 1
    for place in range(message.property_count):
        span = _PROPERTIES_AT + 4 * place
        to = copy(request, message.spans[span], message.spans[span + 1], records, to)
        records.room[to] = 0x01
        to = copy(request, message.spans[span + 2], message.spans[span + 3], records, to + 1)
        records.room[to] = 0x02
        to += 1
    return to


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
@cython.locals(
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, message_end=cython.Py_ssize_t, tag=cython.int,
    body_bytes=cython.longlong, count_max=cython.longlong, topic_number=cython.longlong, last_topic=cython.longlong,
    queue_count=cython.longlong, place=cython.Py_ssize_t,
)  # fmt: skip
def _scan(
    batch: Batch,
    message: _Message,
    rules: Rules,
    topics: Topics,
    head: Head,
    request: Bytes,
    now_millis: cython.longlong,
) -> cython.Py_ssize_t:
    batch.count = batch.size_bytes = batch.generated_count = batch.keys_bytes = batch.turn_count = 0
    batch.flush = batch.keyless_count = 0
    batch.is_deduplicated = 0
    count_max = min(rules.message_count_max, batch.rows.shape[0])
    body_bytes = last_topic = at = 0
    end = request.data.shape[0]
    while at < end:
        tag = request.data[at]
        if tag in (_REQUEST_FLUSH, _REQUEST_DEDUPLICATE):
            at = read_varint(request, at + 1, end)
            if at < 0:
                return -1
            if tag == _REQUEST_FLUSH:
                batch.flush = request.value
            else:
                batch.is_deduplicated = request.value != 0
            continue
        if tag != _REQUEST_MESSAGES or batch.count >= count_max:
            return -1
        message_end = read_span(request, at + 1, end)
        if message_end < 0:
            return -1
        at = message_end
        if not _read_message(request, request.begin, message_end, rules, now_millis, message):
            return -1
        body_bytes += message.body_end - message.body_begin
        topic_number = last_topic
        if not _is_topic(request, message.topic_begin, message.topic_end, topics, topic_number):
            topic_number = _find_topic(request, message.topic_begin, message.topic_end, topics)
            if topic_number < 0:
                return -1
            last_topic = topic_number
        queue_count = topics.queue_counts[topic_number]
        if queue_count <= 0 or message.queue_id >= queue_count:
            return -1
        if message.queue_id < 0:
            place = _take_turn(batch, topic_number)
            if place >= _TURN_COUNT_MAX:
                return -1
            message.queue_id = -1 - place
        if not _write_record(request, message, rules, head, batch, batch.records):
            return -1
        batch.rows[batch.count, _TOPIC_NUMBER] = topic_number
        batch.rows[batch.count, _QUEUE_ID] = message.queue_id
        batch.count += 1
    if batch.flush < 0 or batch.flush > _FLUSH_MODE_MAX or body_bytes > rules.request_body_bytes_max:
        return -1
    if batch.count == 0 or (batch.is_deduplicated and batch.generated_count + batch.keyless_count > 0):
        return -1
    return batch.count


@cython.locals(request=Bytes, count=cython.Py_ssize_t)
def scan(
    batch: Batch,
    rules: Rules,
    topics: Topics,
    head: Head,
    data: cython.const[cython.uchar][::1],
    now_millis: cython.longlong,
) -> int:
    """Fills the batch with the records of a request, without their place; returns how many, or NOT_MINE.

    Args:
        batch: what it held before is lost.
        rules, topics: what is ordinary.
        head: of the sender's records.
        data: the request.
        now_millis: the born time of messages without one.
    """
    request = reading(data)
    batch.topics, batch.head, batch.is_guarded = topics, head, rules.is_guarded
    if len(request.data) <= _GIL_HELD_BYTES_MAX:
        count = _scan(batch, batch.message, rules, topics, head, request, now_millis)
    else:
        with cython.nogil:
            count = _scan(batch, batch.message, rules, topics, head, request, now_millis)
    return count


# What is written in more than one step.


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _number_size(value: cython.longlong) -> cython.longlong:
    """How many bytes `put_number` writes."""
    return 1 + size_of_varint(value) if value != 0 else 0


# fill


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.locals(
    a_high=cython.ulonglong, a_low=cython.ulonglong, b_high=cython.ulonglong, b_low=cython.ulonglong,
    middle=cython.ulonglong, low=cython.ulonglong, total=cython.ulonglong,
)  # fmt: skip
def _hash_on(value: cython.ulonglong, factor: cython.ulonglong, word: cython.ulonglong) -> cython.ulonglong:
    """value * factor + word modulo 2^61 - 1; the first two are below it."""
    a_high = value >> 32
    a_low = value & LOW_32
    b_high = factor >> 32
    b_low = factor & LOW_32
    middle = a_high * b_low + a_low * b_high
    low = a_low * b_low
    total = (a_high * b_high << 3) + (middle >> 29) + ((middle & _LOW_29) << 32) + (low & _P61) + (low >> 61)
    total = (total & _P61) + (total >> 61) + (word & _P61) + (word >> 61)
    total = (total & _P61) + (total >> 61)
    return total - _P61 if total >= _P61 else total


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(value=cython.ulonglong, word=cython.ulonglong, at=cython.Py_ssize_t, index=cython.Py_ssize_t)
def _hash_key(
    source: Bytes,
    begin: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    start: cython.ulonglong,
    factor: cython.ulonglong,
) -> cython.longlong:
    """`recent_keys.KeyHash` of a unique key; `start` is the hash of its topic."""
    value = start
    at = begin
    need(source, begin, end)
    with cython.boundscheck(False):
        while at + 8 <= end:
            word = 0
            for index in range(8):
                word |= cython.cast(cython.ulonglong, source.data[at + index]) << 8 * index
            value = _hash_on(value, factor, word)
            at += 8
        if at < end:
            word = 0
            for index in range(end - at):
                word |= cython.cast(cython.ulonglong, source.data[at + index]) << 8 * index
            value = _hash_on(value, factor, word)
    return _hash_on(value, factor, end - begin)


def hash_key(data: bytes, start: int, factor: int) -> int:
    """`recent_keys.KeyHash` of a unique key; `start` is the hash of its topic."""
    return _hash_key(reading(data), 0, len(data), start, factor)


@cython.locals(
    bytes_=Bytes, frame=Frame, count=cython.Py_ssize_t, end=cython.longlong, topic_end=cython.longlong,
    topic_size=cython.longlong, part_at=cython.longlong, part_end=cython.longlong, key_at=cython.longlong,
    key_end=cython.longlong, name_size=cython.longlong, value=cython.ulonglong,
)  # fmt: skip
def hash_records(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    commit_log_offset: cython.longlong,
    factor: cython.ulonglong,
    rows: cython.longlong[:, ::1],
) -> tuple[int, int]:
    """Sets KEY_HASH, of topic and unique key, and COMMIT_LOG_OFFSET of a row for each record from data[at] on.

    Stops before the first record that is not in order, or waits, or has a byte above 0x7F in its topic or unique key.

    Returns:
        How many rows are set, and where in `data` the next record starts.
    """
    if not cython.compiled:
        rows = memoryview(rows)
    bytes_ = reading(data)
    frame = Frame()
    count = 0
    end = len(bytes_.data)
    name_size = len(_UNIQUE_KEY_NAME.data)
    if rows.shape[1] < _ROW_COLUMN_COUNT:
        return 0, at
    with cython.nogil:
        while count < rows.shape[0] and locate(bytes_, at, end, commit_log_offset, frame):
            topic_end = frame.properties_at - 2
            topic_size = topic_end - frame.topic_at
            if (
                is_bytes(bytes_, frame.topic_at, topic_size, _SCHEDULE_TOPIC)
                or is_bytes(bytes_, frame.topic_at, topic_size, _TIMER_TOPIC)
                or is_bytes(bytes_, frame.topic_at, topic_size, _HALF_TOPIC)
            ):
                break
            key_at = key_end = part_at = frame.properties_at
            while part_at < at + frame.size:
                part_end = find_byte(bytes_, part_at, at + frame.size, 2)
                if part_end - part_at > name_size and begins_with(bytes_, part_at, _UNIQUE_KEY_NAME):
                    key_at = part_at + name_size
                    key_end = part_end
                part_at = part_end + 1
            if bits_of(bytes_, frame.topic_at, topic_end) > 0x7F or bits_of(bytes_, key_at, key_end) > 0x7F:
                break
            value = _hash_key(bytes_, frame.topic_at, topic_end, 1, factor)
            rows[count, _KEY_HASH] = _hash_key(bytes_, key_at, key_end, value, factor)
            rows[count, _COMMIT_LOG_OFFSET] = commit_log_offset
            count += 1
            at += frame.size
            commit_log_offset += frame.size
    return count, at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    begin=cython.longlong, size=cython.longlong, key_begin=cython.longlong, key_size=cython.longlong, room=cython.longlong
)  # fmt: skip
@cython.boundscheck(False)
def _is_row(batch: Batch, index: cython.Py_ssize_t) -> cython.int:
    """Whether a row's record and key lie inside the records."""
    begin = batch.rows[index, _RECORD_BEGIN]
    size = batch.rows[index, _RECORD_SIZE]
    key_begin = batch.rows[index, _UNIQUE_KEY_BEGIN]
    key_size = batch.rows[index, _UNIQUE_KEY_SIZE]
    room = batch.records.data.shape[0]
    return (
        begin >= 0 and begin <= room and size >= batch.head.v4.data.shape[0] + 4 and size <= room - begin
        and key_begin >= begin and key_size >= 0 and key_size <= begin + size - key_begin
    )  # fmt: skip


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def _v6_extra(records: Bytes, begin: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """How much longer the head of this record is than one with a born host of IPv4."""
    return _V6_EXTRA if records.data[begin + 39] & _BORN_HOST_V6 else 0


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    index=cython.Py_ssize_t, number=cython.longlong, begin=cython.Py_ssize_t,
    queue_id=cython.longlong, turn=cython.longlong, body_begin=cython.Py_ssize_t, body_size=cython.Py_ssize_t,
    key_begin=cython.Py_ssize_t, key_size=cython.Py_ssize_t,
)  # fmt: skip
@cython.boundscheck(False)
def _fill(
    batch: Batch,
    records: Bytes,
    topics: Topics,
    key_text: Bytes,
    key_counter: cython.longlong,
    topic_hashes: cython.const[cython.longlong][::1],
    hash_factor: cython.ulonglong,
) -> cython.Py_ssize_t:
    for index in range(batch.count):
        number = batch.rows[index, _TOPIC_NUMBER]
        if not _is_row(batch, index) or number < 0 or number >= topics.queue_counts.shape[0]:
            return index
        begin = batch.rows[index, _RECORD_BEGIN]
        queue_id = batch.rows[index, _QUEUE_ID]
        if queue_id < 0:
            turn = -1 - queue_id
            if turn >= batch.turn_count or topics.queue_counts[number] <= 0 or batch.turns[turn, _TURN_BEGIN] < 0:
                return index
            queue_id = batch.turns[turn, _TURN_BEGIN] % topics.queue_counts[number]
            batch.turns[turn, _TURN_BEGIN] += 1
            batch.rows[index, _QUEUE_ID] = queue_id
        put(records, begin + 12, queue_id, 4)
        body_begin = begin + batch.head.v4.data.shape[0] + _v6_extra(records, begin)
        body_size = load_i32(records, body_begin - 4)
        key_begin = batch.rows[index, _UNIQUE_KEY_BEGIN]
        key_size = batch.rows[index, _UNIQUE_KEY_SIZE]
        if body_size < 0 or body_size > key_begin - body_begin:
            return index
        if batch.rows[index, _IS_GENERATED]:
            if key_size != len(key_text.data) + _KEY_DIGIT_COUNT:
                return index
            put(records, copy(key_text, 0, len(key_text.data), records, key_begin), hex_digits(key_counter), 4)
            key_counter += 1
        put(records, begin + 8, crc32(records, body_begin, body_begin + body_size) & _BODY_CRC_MASK, 4)
        if hash_factor != 0:
            if number >= topic_hashes.shape[0]:
                return index
            batch.rows[index, _KEY_HASH] = _hash_key(
                records, key_begin, key_begin + key_size, topic_hashes[number], hash_factor
            )
    return batch.count


@cython.locals(text=Bytes, count=cython.Py_ssize_t)
def fill(
    batch: Batch,
    key_text: bytes,
    key_counter: cython.longlong,
    topic_hashes: cython.const[cython.longlong][::1],
    hash_factor: cython.ulonglong,
) -> int:
    """Sets queue ids, generated unique keys, body CRCs and hashes of a scanned batch; returns the number of messages done.

    Args:
        batch: its `turns` have their begin.
        key_text: the begin of all generated keys; four digits of a counter follow.
        key_counter: counter of the first.
        topic_hashes: indexed by the number of the topic.
        hash_factor: the factor of the hashes; 0: make no hashes.
    """
    if not cython.compiled:
        topic_hashes = memoryview(topic_hashes)
    text = reading(key_text)
    if batch.size_bytes <= _GIL_HELD_BYTES_MAX:
        count = _fill(batch, batch.records, batch.topics, text, key_counter, topic_hashes, hash_factor)
    else:
        with cython.nogil:
            count = _fill(batch, batch.records, batch.topics, text, key_counter, topic_hashes, hash_factor)
    return count


# place


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    index=cython.Py_ssize_t, number=cython.longlong, at=cython.longlong,
    slot=cython.longlong, begin=cython.Py_ssize_t, size=cython.Py_ssize_t, queue_offset=cython.longlong,
    crc=cython.ulonglong, high=cython.ulonglong, digit_at=cython.Py_ssize_t,
)  # fmt: skip
@cython.boundscheck(False)
def _place(
    batch: Batch,
    records: Bytes,
    topics: Topics,
    commit_log_offset: cython.longlong,
    store_time_millis: cython.longlong,
    queue_offsets: cython.longlong[::1],
) -> cython.Py_ssize_t:
    for index in range(batch.count):
        number = batch.rows[index, _TOPIC_NUMBER]
        if not _is_row(batch, index) or number < 0 or number >= topics.queue_slot_begins.shape[0]:
            return index
        at = topics.queue_slot_begins[number] + batch.rows[index, _QUEUE_ID]
        if at < 0 or at >= topics.queue_slots.shape[0]:
            return index
        slot = topics.queue_slots[at]
        if slot < 0 or slot >= queue_offsets.shape[0]:
            return index
        begin = batch.rows[index, _RECORD_BEGIN]
        size = batch.rows[index, _RECORD_SIZE]
        queue_offset = queue_offsets[slot]
        queue_offsets[slot] = queue_offset + 1
        batch.rows[index, _QUEUE_OFFSET] = queue_offset
        batch.rows[index, _COMMIT_LOG_OFFSET] = commit_log_offset
        put(records, begin + 20, queue_offset, 8)
        put(records, begin + 28, commit_log_offset, 8)
        put(records, begin + _STORE_TIME_AT + _v6_extra(records, begin), store_time_millis, 8)
        if batch.is_guarded:
            crc = crc32(records, begin, begin + size - _GUARD_SIZE) & _BODY_CRC_MASK
            high = crc // 100_000  # two rows of divisions side by side
            crc %= 100_000
            for digit_at in range(begin + size - 11, begin + size - 6):
                records.room[digit_at] = 0x30 + crc % 10
                records.room[digit_at + 5] = 0x30 + high % 10
                crc //= 10
                high //= 10
        commit_log_offset += size
    return batch.count


@cython.locals(count=cython.Py_ssize_t)
def place(
    batch: Batch,
    commit_log_offset: cython.longlong,
    store_time_millis: cython.longlong,
    queue_offsets: cython.longlong[::1],
) -> int:
    """Sets queue offsets, commit-log offsets, store time and CRC of the records; returns the number of messages done.

    Args:
        batch: a filled one.
        commit_log_offset: where the first record goes.
        store_time_millis: since 1970.
        queue_offsets: the next offset of each queue, increased. `queue_slots` of the topics has the index of each queue,
            from `queue_slot_begins` of its topic on.
    """
    if not cython.compiled:
        queue_offsets = memoryview(queue_offsets)
    if batch.size_bytes <= _GIL_HELD_BYTES_MAX:
        count = _place(batch, batch.records, batch.topics, commit_log_offset, store_time_millis, queue_offsets)
    else:
        with cython.nogil:
            count = _place(batch, batch.records, batch.topics, commit_log_offset, store_time_millis, queue_offsets)
    return count


# answer


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(begin=cython.Py_ssize_t)
def _put_token(
    target: Bytes, at: cython.Py_ssize_t, digits_at: cython.Py_ssize_t, broker_name: Bytes
) -> cython.Py_ssize_t:
    """Writes the freshness token (`store/format/freshness_token.py`) of the offset whose digits `target` has."""
    begin = at
    target.room[at] = _TOKEN_VERSION
    at = copy(target, digits_at, digits_at + _OFFSET_DIGIT_COUNT, target, at + 1)
    at = copy(broker_name, 0, len(broker_name.data), target, at)
    put(target, at, hex_digits(crc32(target, begin, at)), 8)
    return at + _CHECK_DIGIT_COUNT


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
@cython.locals(
    seconds=cython.longlong, nanos=cython.longlong, time_size=cython.longlong, name_size=cython.longlong,
    token_size=cython.longlong, to=cython.Py_ssize_t, index=cython.Py_ssize_t, key_begin=cython.Py_ssize_t,
    key_size=cython.Py_ssize_t, offset=cython.longlong, queue_id=cython.longlong, queue_offset=cython.longlong,
    size=cython.longlong, digits_at=cython.Py_ssize_t, id_begin=cython.Py_ssize_t, id_end=cython.Py_ssize_t,
    rest_begin=cython.Py_ssize_t, rest_end=cython.Py_ssize_t,
)  # fmt: skip
@cython.boundscheck(False)
def _answer(
    batch: Batch,
    store_time_millis: cython.longlong,
    id_prefix: Bytes,
    broker_name: Bytes,
    target: Bytes,
) -> cython.Py_ssize_t:
    seconds = store_time_millis // 1000
    nanos = store_time_millis % 1000 * 1_000_000
    time_size = _number_size(seconds) + _number_size(nanos)
    name_size = len(broker_name.data)
    token_size = _TOKEN_FRAME_SIZE + name_size
    # What is the same in all receipts is copied from the first.
    to = id_begin = id_end = rest_begin = rest_end = 0
    for index in range(batch.count):
        if not _is_row(batch, index):
            return -1
        key_begin = batch.rows[index, _UNIQUE_KEY_BEGIN]
        key_size = batch.rows[index, _UNIQUE_KEY_SIZE]
        offset = batch.rows[index, _COMMIT_LOG_OFFSET]
        queue_id = batch.rows[index, _QUEUE_ID]
        queue_offset = batch.rows[index, _QUEUE_OFFSET]
        if target.data.shape[0] - to < _RESULT_BYTES_MAX + key_size + 2 * name_size:
            return -1
        size = _number_size(len(id_prefix.data) + _OFFSET_DIGIT_COUNT) + len(id_prefix.data) + _OFFSET_DIGIT_COUNT
        size += _number_size(key_size) + key_size + 2 + time_size
        size += _number_size(queue_id) + _number_size(offset) + _number_size(queue_offset)
        size += _number_size(name_size) + name_size + _number_size(token_size) + token_size
        to = put_number(target, to, _RESULTS, size)
        if index == 0:
            id_begin = to
            to = put_number(target, to, _RESULT_OFFSET_MSG_ID, len(id_prefix.data) + _OFFSET_DIGIT_COUNT)
            id_end = to = copy(id_prefix, 0, len(id_prefix.data), target, to)
        else:
            to = copy(target, id_begin, id_end, target, to)
        digits_at = to
        put(target, to, hex_digits(offset >> 32), 8)
        put(target, to + 8, hex_digits(offset), 8)
        to += _OFFSET_DIGIT_COUNT
        to = put_number(target, to, _RESULT_UNIQUE_KEY, key_size)
        to = copy(batch.records, key_begin, key_begin + key_size, target, to)
        to = put_number(target, to, _RESULT_QUEUE_ID, queue_id)
        to = put_number(target, to, _RESULT_QUEUE_OFFSET, queue_offset)
        to = put_number(target, to, _RESULT_COMMIT_LOG_OFFSET, offset)
        if index == 0:
            rest_begin = to
            target.room[to] = _RESULT_STORE_TIME
            target.room[to + 1] = time_size
            to = put_number(target, to + 2, _SECONDS, seconds)
            to = put_number(target, to, _NANOS, nanos)
            to = put_number(target, to, _RESULT_BROKER_NAME, name_size)
            to = copy(broker_name, 0, name_size, target, to)
            rest_end = to = put_number(target, to, _RESULT_FRESHNESS_TOKEN, token_size)
        else:
            to = copy(target, rest_begin, rest_end, target, to)
        to = _put_token(target, to, digits_at, broker_name)
    return to


@cython.locals(prefix=Bytes, name=Bytes, receipts=Bytes, size=cython.Py_ssize_t)
def answer(
    batch: Batch, store_time_millis: cython.longlong, id_prefix: bytes, broker_name: bytes, target: cython.uchar[::1]
) -> int:
    """Writes the receipts of a placed batch as an AppendMessagesResponse; returns the number of bytes, -1 without room.

    Args:
        batch: a placed one.
        store_time_millis: since 1970.
        id_prefix: the hexadecimal digits of the store's host, with which ids begin.
        broker_name: in UTF-8.
        target: gets the bytes.
    """
    prefix, name, receipts = reading(id_prefix), reading(broker_name), writing(target)
    if len(prefix.data) > 40 or len(name.data) > _PROPERTIES_SIZE_MAX:
        return -1
    if batch.size_bytes <= _GIL_HELD_BYTES_MAX:
        size = _answer(batch, store_time_millis, prefix, name, receipts)
    else:
        with cython.nogil:
            size = _answer(batch, store_time_millis, prefix, name, receipts)
    return size
