# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Where the parts of a stored record lie, and its two CRCs (`store/format/record_layout.py`), for kernels."""

import cython

from store.compiled.bytes_part import (
    Bytes,
    checked_i16,
    checked_i32,
    checked_i64,
    crc32,
    load_i32,
    need_size,
    reading,
)
from store.format.record_layout import (
    CRC_MARKER,
    CRC_PROPERTY_SIZE_BYTES,
    FRAME_SIZE_BYTES_MIN,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
)

BODY_CRC_AT = cython.declare(cython.Py_ssize_t, 8)  # in the record
GUARD_SIZE = cython.declare(cython.Py_ssize_t, CRC_PROPERTY_SIZE_BYTES)
MARKER_SIZE = cython.declare(cython.Py_ssize_t, len(CRC_MARKER))
HOST_V6_EXTRA = cython.declare(cython.longlong, 12)
_FRAME_SIZE_MIN = cython.declare(cython.longlong, FRAME_SIZE_BYTES_MIN)
_HEAD_SIZE = cython.declare(cython.longlong, HEADS[0].size)
_MAGIC_V1 = cython.declare(cython.longlong, MAGIC_V1)
_MAGIC_V2 = cython.declare(cython.longlong, MAGIC_V2)
_TOPIC_SIZE_MAX_V1 = cython.declare(cython.longlong, 127)
_CRC_MASK = cython.declare(cython.longlong, 0x7FFFFFFF)
_DIGIT_COUNT = cython.declare(cython.Py_ssize_t, CRC_PROPERTY_SIZE_BYTES - len(CRC_MARKER) - 1)
_MARKER = cython.declare(Bytes, reading(CRC_MARKER))


@cython.final
@cython.cclass
class Frame:
    """The size of a record, and where its body, topic and properties start in the bytes."""

    size = cython.declare(cython.longlong)
    body_at = cython.declare(cython.longlong)
    topic_at = cython.declare(cython.longlong)
    properties_at = cython.declare(cython.longlong)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    size=cython.longlong, magic=cython.longlong, flags=cython.longlong, body_at=cython.longlong,
    frame_end=cython.longlong, body_size=cython.longlong, length_at=cython.longlong, topic_at=cython.longlong,
    topic_size=cython.longlong, properties_at=cython.longlong, properties_size=cython.longlong,
)  # fmt: skip
def locate(
    data: Bytes, at: cython.longlong, end: cython.longlong, commit_log_offset: cython.longlong, frame: Frame
) -> cython.int:
    """Whether a record in order begins at data[at] and ends before data[end]; sets `frame` then.

    In order is a whole V1 or V2 record that states `commit_log_offset` as its own and whose lengths add up.
    """
    if end - at < _FRAME_SIZE_MIN:
        return 0
    need_size(data, at, _FRAME_SIZE_MIN)
    size = checked_i32(data, at)
    magic = checked_i32(data, at + 4)
    if size < _FRAME_SIZE_MIN or size > end - at or checked_i64(data, at + 28) != commit_log_offset:
        return 0
    need_size(data, at, size)  # all that follows is compared with its end
    flags = data.data[at + 39]
    body_at = at + _HEAD_SIZE + HOST_V6_EXTRA * ((flags >> 4 & 1) + (flags >> 5 & 1))
    frame_end = at + size
    if body_at + 3 > frame_end:
        return 0
    body_size = checked_i32(data, body_at - 4)
    if body_size < 0 or body_size > frame_end - body_at - 3:
        return 0
    length_at = body_at + body_size
    if magic == _MAGIC_V1:
        topic_at = length_at + 1
        topic_size = data.data[length_at]
        if topic_size > _TOPIC_SIZE_MAX_V1:
            return 0
    elif magic == _MAGIC_V2:
        topic_at = length_at + 2
        topic_size = checked_i16(data, length_at)
        if topic_size < 0:
            return 0
    else:
        return 0
    properties_at = topic_at + topic_size + 2
    if properties_at > frame_end:
        return 0
    properties_size = checked_i16(data, properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != frame_end:
        return 0
    frame.size = size
    frame.body_at = body_at
    frame.topic_at = topic_at
    frame.properties_at = properties_at
    return 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def store_time_at(data: Bytes, at: cython.longlong) -> cython.longlong:
    """Where the store time of a located record lies."""
    return at + 56 + HOST_V6_EXTRA * (data.data[at + 39] >> 4 & 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def is_body_right(data: Bytes, at: cython.longlong, body_at: cython.longlong, body_size: cython.longlong) -> cython.int:
    """Whether the body of the record at data[at] has the CRC that the record states; an empty body has none."""
    return body_size == 0 or crc32(data, body_at, body_at + body_size) & _CRC_MASK == load_i32(data, at + BODY_CRC_AT)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(count=cython.longlong, index=cython.Py_ssize_t)
def marker_matches(data: Bytes, at: cython.longlong, end: cython.longlong) -> cython.longlong:
    """How many bytes of the beginning of `__CRC32#` are in their place in data[at:end]."""
    count = 0
    for index in range(min(MARKER_SIZE, end - at)):
        count += data.data[at + index] == _MARKER.data[index]
    return count


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(digits_at=cython.longlong, stated=cython.longlong, digit=cython.longlong, index=cython.Py_ssize_t)
def is_guard_right(data: Bytes, begin: cython.longlong, end: cython.longlong) -> cython.int:
    """Whether the record data[begin:end], which ends with `__CRC32#`, has that CRC."""
    digits_at = end - 1 - _DIGIT_COUNT
    stated = 0
    for index in range(_DIGIT_COUNT - 1, -1, -1):
        digit = data.data[digits_at + index]
        digit -= 0x30
        if digit < 0 or digit > 9:
            return 0
        stated = stated * 10 + digit
    return data.data[end - 1] == 2 and stated == crc32(data, begin, end - GUARD_SIZE) & _CRC_MASK


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(body_size=cython.longlong, matches=cython.longlong)
def is_doubtful(
    data: Bytes,
    at: cython.longlong,
    frame_end: cython.longlong,
    body_at: cython.longlong,
    properties_at: cython.longlong,
) -> cython.int:
    """Whether a CRC of a frame in order is wrong, or what closes its properties may once have been a `__CRC32#`."""
    if not is_body_right(data, at, body_at, load_i32(data, body_at - 4)):
        return 1
    if frame_end - properties_at < GUARD_SIZE:
        return 0
    matches = marker_matches(data, frame_end - GUARD_SIZE, frame_end)
    if matches == MARKER_SIZE:
        return 0 if is_guard_right(data, at, frame_end) else 1
    return 1 if matches > (MARKER_SIZE - 1) // 2 else 0
