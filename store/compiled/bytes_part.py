# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Reading, comparing, copying and writing bytes, for kernels; no function leaves its bytes: it raises IndexError.

Functions take `Bytes`, a class, instead of an array: an array is 208 bytes that each call would copy. They return one number,
and leave a second one in the class: a tuple would need the GIL.
"""

import os
import zlib

import cython

from store.compiled import crc32_function

if cython.compiled:
    from cython.cimports.libc.string import memchr, memcmp, memcpy, memmove
    from cython.cimports.posix.unistd import pread
    from cython.cimports.store.compiled.bytes_part import Crc32

SIGN_16 = cython.declare(cython.longlong, 0x8000)
SIGN_32 = cython.declare(cython.longlong, 0x80000000)
LOW_32 = cython.declare(cython.longlong, 0xFFFFFFFF)
SIGN_64 = cython.declare(cython.ulonglong, 1 << 63)
LOW_64 = cython.declare(cython.ulonglong, (1 << 64) - 1)
_SPREAD_16 = cython.declare(cython.longlong, 0x0000FFFF0000FFFF)
_SPREAD_8 = cython.declare(cython.longlong, 0x00FF00FF00FF00FF)
_SPREAD_4 = cython.declare(cython.longlong, 0x0F0F0F0F0F0F0F0F)
_ZEROS = cython.declare(cython.longlong, 0x3030303030303030)
_SIXES = cython.declare(cython.longlong, 0x0606060606060606)
_ONES = cython.declare(cython.longlong, 0x0101010101010101)
_CRC32_AT = cython.declare(cython.size_t, crc32_function.ADDRESS)


@cython.final
@cython.cclass
class Bytes:
    """Bytes to read and, if they are `writing`, to write; `value` and `begin` are second results of functions."""

    data = cython.declare(cython.const[cython.uchar][::1])
    room = cython.declare(cython.uchar[::1])
    value = cython.declare(cython.longlong)
    begin = cython.declare(cython.Py_ssize_t)


@cython.cfunc
@cython.locals(made=Bytes)
def reading(data: cython.const[cython.uchar][::1]) -> Bytes:
    """Bytes that are read only."""
    made = Bytes()
    made.data = data if cython.compiled else memoryview(data).toreadonly()
    return made


@cython.cfunc
@cython.locals(made=Bytes)
def writing(room: cython.uchar[::1]) -> Bytes:
    """Bytes that are read and written."""
    made = Bytes()
    made.data = made.room = room if cython.compiled else memoryview(room)
    return made


@cython.cfunc
@cython.with_gil
@cython.exceptval(-1)
def outside(begin: cython.Py_ssize_t, other: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """Raises; a function of its own, so that those that check are short enough to be inlined."""
    raise IndexError((begin, other, size))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def need(bytes_: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Checks that data[begin:end] lies in the bytes: once for a loop that does not check each of them."""
    if begin < 0 or begin > end or end > len(bytes_.data):
        return outside(begin, end, len(bytes_.data))
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def need_size(bytes_: Bytes, begin: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """Checks that data[begin:begin + size] lies in the bytes; the sum is not made: it may wrap."""
    if begin < 0 or size < 0 or begin > len(bytes_.data) - size:
        return outside(begin, size, len(bytes_.data))
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def need_room(bytes_: Bytes, begin: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """As `need_size`, for bytes that are to be written."""
    if begin < 0 or size < 0 or begin > len(bytes_.room) - size:
        return outside(begin, size, len(bytes_.room))
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.locals(value=cython.longlong)
def checked_i16(bytes_: Bytes, at: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian signed number at `at`, where the caller has checked that it lies inside."""
    if not cython.compiled:
        return int.from_bytes(bytes_.data[at : at + 2], "big", signed=True)
    value = bytes_.data[at]
    value = value << 8 | bytes_.data[at + 1]
    return (value ^ SIGN_16) - SIGN_16


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.locals(of=cython.p_uchar, value=cython.uint)
def checked_i32(bytes_: Bytes, at: cython.Py_ssize_t) -> cython.longlong:
    """As `checked_i16`."""
    if not cython.compiled:
        return int.from_bytes(bytes_.data[at : at + 4], "big", signed=True)
    of = cython.cast(cython.p_uchar, cython.address(bytes_.data[at]))
    # Unsigned, and in 32 bits: a compiler makes one load of it.
    value = (
        cython.cast(cython.uint, of[0]) << 24 | cython.cast(cython.uint, of[1]) << 16
        | cython.cast(cython.uint, of[2]) << 8 | cython.cast(cython.uint, of[3])
    )  # fmt: skip
    return cython.cast(cython.int, value)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.boundscheck(False)
@cython.locals(of=cython.p_uchar, value=cython.ulonglong)
def checked_i64(bytes_: Bytes, at: cython.Py_ssize_t) -> cython.longlong:
    """As `checked_i16`."""
    if not cython.compiled:
        return int.from_bytes(bytes_.data[at : at + 8], "big", signed=True)
    of = cython.cast(cython.p_uchar, cython.address(bytes_.data[at]))
    value = (
        cython.cast(cython.ulonglong, of[0]) << 56 | cython.cast(cython.ulonglong, of[1]) << 48
        | cython.cast(cython.ulonglong, of[2]) << 40 | cython.cast(cython.ulonglong, of[3]) << 32
        | cython.cast(cython.ulonglong, of[4]) << 24 | cython.cast(cython.ulonglong, of[5]) << 16
        | cython.cast(cython.ulonglong, of[6]) << 8 | cython.cast(cython.ulonglong, of[7])
    )  # fmt: skip
    return cython.cast(cython.longlong, value)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
def load_i16(bytes_: Bytes, at: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian signed number at `at`."""
    need_size(bytes_, at, 2)
    return checked_i16(bytes_, at)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
def load_i32(bytes_: Bytes, at: cython.Py_ssize_t) -> cython.longlong:
    """As `load_i16`."""
    need_size(bytes_, at, 4)
    return checked_i32(bytes_, at)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-0x76543210, check=True)
def load_i64(bytes_: Bytes, at: cython.Py_ssize_t) -> cython.longlong:
    """As `load_i16`."""
    need_size(bytes_, at, 8)
    return checked_i64(bytes_, at)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.locals(
    a=cython.ulonglong, b=cython.ulonglong, c=cython.ulonglong, d=cython.ulonglong,
    short_a=cython.uint, short_b=cython.uint, short_c=cython.uint, short_d=cython.uint,
)  # fmt: skip
def are_equal(one: cython.p_uchar, other: cython.p_uchar, size: cython.Py_ssize_t) -> cython.int:
    """Whether two ranges are equal that the caller has checked."""
    # Most are short: a call takes longer than two words of each, which may overlap.
    if size > 16 or size < 4:
        return memcmp(one, other, size) == 0
    a = b = c = d = 0
    short_a = short_b = short_c = short_d = 0
    if size < 8:
        memcpy(cython.address(short_a), one, 4)
        memcpy(cython.address(short_b), other, 4)
        memcpy(cython.address(short_c), one + size - 4, 4)
        memcpy(cython.address(short_d), other + size - 4, 4)
        return short_a == short_b and short_c == short_d
    memcpy(cython.address(a), one, 8)
    memcpy(cython.address(b), other, 8)
    memcpy(cython.address(c), one + size - 8, 8)
    memcpy(cython.address(d), other + size - 8, 8)
    return a == b and c == d


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def is_same(bytes_: Bytes, one: cython.Py_ssize_t, other: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """Whether two ranges of `size` bytes are equal."""
    need_size(bytes_, one, size)
    need_size(bytes_, other, size)
    if not cython.compiled:
        return bytes_.data[one : one + size] == bytes_.data[other : other + size]
    if size == 0:
        return 1
    with cython.boundscheck(False):
        return are_equal(
            cython.cast(cython.p_uchar, cython.address(bytes_.data[one])),
            cython.cast(cython.p_uchar, cython.address(bytes_.data[other])),
            size,
        )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def begins_with(bytes_: Bytes, at: cython.Py_ssize_t, wanted: Bytes) -> cython.int:
    """Whether these bytes stand at `at`."""
    need_size(bytes_, at, len(wanted.data))
    if not cython.compiled:
        return bytes_.data[at : at + len(wanted.data)] == wanted.data
    if len(wanted.data) == 0:
        return 1
    with cython.boundscheck(False):
        return are_equal(
            cython.cast(cython.p_uchar, cython.address(bytes_.data[at])),
            cython.cast(cython.p_uchar, cython.address(wanted.data[0])),
            len(wanted.data),
        )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def is_bytes(bytes_: Bytes, at: cython.Py_ssize_t, size: cython.Py_ssize_t, wanted: Bytes) -> cython.int:
    """Whether data[at:at + size] are exactly these bytes."""
    return size == len(wanted.data) and begins_with(bytes_, at, wanted)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(begin=cython.p_uchar, place=cython.p_uchar)
def find_byte(bytes_: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t, wanted: cython.uchar) -> cython.Py_ssize_t:
    """Where the first such byte stands in data[at:end]; `end` without one."""
    need(bytes_, at, end)
    if not cython.compiled:
        found = bytes_.data[at:end].tobytes().find(wanted)
        return end if found < 0 else at + found
    if at == end:
        return end
    with cython.boundscheck(False):
        begin = cython.cast(cython.p_uchar, cython.address(bytes_.data[at]))
    place = cython.cast(cython.p_uchar, memchr(begin, wanted, end - at))
    return end if place == cython.NULL else at + (place - begin)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(seen=cython.uchar, index=cython.Py_ssize_t)
def bits_of(bytes_: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """The bitwise OR of data[begin:end]; above 0x7F when a byte is not ASCII."""
    seen = 0
    need(bytes_, begin, end)
    with cython.boundscheck(False):
        for index in range(begin, end):
            seen |= bytes_.data[index]
    return seen


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(index=cython.Py_ssize_t, is_=cython.int)
def is_text(bytes_: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, least: cython.uchar) -> cython.int:
    """Whether all bytes are printable ASCII, and not below `least`."""
    is_ = 1
    need(bytes_, begin, end)
    with cython.boundscheck(False):
        for index in range(begin, end):
            is_ &= (bytes_.data[index] >= least) & (bytes_.data[index] < 0x7F)
    return is_


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    first=cython.int, second=cython.int, least=cython.int, most=cython.int, more=cython.int, place=cython.int
)
def is_utf8(bytes_: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Whether data[at:end] is UTF-8 as Unicode defines it: shortest forms, no surrogates, nothing above U+10FFFF."""
    need(bytes_, at, at)
    while at < end:
        first = bytes_.data[at]
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return 0
        more = 1 + (first >= 0xE0) + (first >= 0xF0)
        if more > end - at:
            return 0
        second = bytes_.data[at]
        least = 0x80
        most = 0xBF
        if first == 0xE0:
            least = 0xA0
        elif first == 0xED:
            most = 0x9F
        elif first == 0xF0:
            least = 0x90
        elif first == 0xF4:
            most = 0x8F
        if second < least or second > most:
            return 0
        for place in range(1, more):
            if bytes_.data[at + place] & 0xC0 != 0x80:
                return 0
        at += more
    return 1


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
@cython.boundscheck(False)
@cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
def _read_long_varint(bytes_: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """As `read_varint`, which has checked that the bytes lie inside."""
    value = 0
    shift = 0
    while at < end and shift < 64:
        byte = bytes_.data[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            bytes_.value = (value ^ SIGN_64) - SIGN_64
            return at
        shift += 7
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2)
@cython.locals(byte=cython.longlong)
def read_varint(bytes_: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the varint at `at` ends, -1 when there is none before `end`; `value` is then its 64 bits, signed, else 0."""
    bytes_.value = 0
    if at >= end:
        need(bytes_, at, at)
        return -1
    need(bytes_, at, end)
    with cython.boundscheck(False):
        byte = bytes_.data[at]
    if byte < 0x80:
        bytes_.value = byte
        return at + 1
    return _read_long_varint(bytes_, at, end)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-2)
def read_span(bytes_: Bytes, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The end of the bytes whose length is the varint at `at`, -1 when some are missing; `begin` is where they begin."""
    bytes_.begin = read_varint(bytes_, at, end)
    if bytes_.begin < 0 or bytes_.value < 0 or bytes_.value > end - bytes_.begin:
        bytes_.begin = 0
        return -1
    return bytes_.begin + bytes_.value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(
    size=cython.Py_ssize_t, of=cython.p_uchar, to=cython.p_uchar, first=cython.ulonglong, last=cython.ulonglong,
    short_first=cython.uint, short_last=cython.uint,
)  # fmt: skip
def copy(
    source: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t, target: Bytes, at: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Copies source[begin:end] to `at`, which may overlap it; returns where the copy ends."""
    need(source, begin, end)
    size = end - begin
    need_room(target, at, size)
    if not cython.compiled:
        target.room[at : at + size] = source.data[begin:end]
        return at + size
    if size == 0:
        return at
    with cython.boundscheck(False):
        of = cython.cast(cython.p_uchar, cython.address(source.data[begin]))
        to = cython.address(target.room[at])
    # Most are short: a call takes longer than two words that may overlap, both read before one is written.
    first = last = 0
    short_first = short_last = 0
    if size > 16:
        memmove(to, of, size)
    elif size >= 8:
        memcpy(cython.address(first), of, 8)
        memcpy(cython.address(last), of + size - 8, 8)
        memcpy(to, cython.address(first), 8)
        memcpy(to + size - 8, cython.address(last), 8)
    elif size >= 4:
        memcpy(cython.address(short_first), of, 4)
        memcpy(cython.address(short_last), of + size - 4, 4)
        memcpy(to, cython.address(short_first), 4)
        memcpy(to + size - 4, cython.address(short_last), 4)
    else:
        memmove(to, of, size)
    return at + size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
@cython.locals(index=cython.Py_ssize_t, to=cython.p_uchar)
def put(target: Bytes, at: cython.Py_ssize_t, value: cython.longlong, size: cython.Py_ssize_t) -> cython.int:
    """Writes a number of `size` bytes, big-endian."""
    need_room(target, at, size)
    if cython.compiled:
        with cython.boundscheck(False):
            to = cython.address(target.room[at])  # so that it is not read again behind each byte
    else:
        to = target.room[at:]
    for index in range(size):
        to[index] = value >> 8 * (size - 1 - index) & 0xFF
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.locals(digits=cython.longlong)
def hex_digits(value: cython.longlong) -> cython.longlong:
    """The last 8 hexadecimal digits of a number, a byte each."""
    digits = value & LOW_32
    digits = (digits << 16 | digits) & _SPREAD_16
    digits = (digits << 8 | digits) & _SPREAD_8
    digits = (digits << 4 | digits) & _SPREAD_4
    # Adding 6 to a digit from 10 on sets its bit 4.
    return digits + _ZEROS + (digits + _SIXES >> 4 & _ONES) * 7


@cython.cfunc
@cython.nogil
@cython.exceptval(-1)
@cython.locals(rest=cython.ulonglong)
def _put_long_varint(target: Bytes, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    rest = value & LOW_64
    need_room(target, at, size_of_bits(rest))
    with cython.boundscheck(False):
        while rest > 0x7F:
            target.room[at] = rest & 0x7F | 0x80
            rest >>= 7
            at += 1
        target.room[at] = rest
    return at + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def put_varint(target: Bytes, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Writes a number of 64 bits, of which a negative one takes 10 bytes; returns where it ends."""
    if value < 0 or value > 0x7F:
        return _put_long_varint(target, at, value)
    need_room(target, at, 1)
    with cython.boundscheck(False):
        target.room[at] = value
    return at + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.locals(size=cython.Py_ssize_t)
def size_of_bits(bits: cython.ulonglong) -> cython.Py_ssize_t:
    """How many bytes a varint of these 64 bits has."""
    size = 1
    while bits > 0x7F:
        bits >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.locals(size=cython.Py_ssize_t)
def size_of_varint(value: cython.longlong) -> cython.Py_ssize_t:
    """How many bytes `put_varint` writes for a number that is not negative."""
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def put_number(target: Bytes, at: cython.Py_ssize_t, tag: cython.uchar, value: cython.longlong) -> cython.Py_ssize_t:
    """Writes a protobuf field with a tag of one byte, or nothing for 0; returns where the next field begins."""
    if value == 0:
        return at
    need_room(target, at, 1)
    with cython.boundscheck(False):
        target.room[at] = tag
    return put_varint(target, at + 1, value)


@cython.cfunc
@cython.with_gil
@cython.exceptval(-1)
def _crc32_of_python(bytes_: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """A function of its own: a slice is 208 bytes that its function clears at each call."""
    return zlib.crc32(bytes_.data[begin:end])


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def crc32(bytes_: Bytes, begin: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """`zlib.crc32(data[begin:end])`."""
    need(bytes_, begin, end)
    if begin >= end:
        return 0
    if cython.compiled and _CRC32_AT != 0:
        with cython.boundscheck(False):
            return cython.cast(Crc32, _CRC32_AT)(0, cython.address(bytes_.data[begin]), end - begin)
    return _crc32_of_python(bytes_, begin, end)


@cython.cfunc
@cython.nogil
@cython.exceptval(-2)
def read_file(
    fd: cython.int, offset: cython.longlong, size: cython.Py_ssize_t, target: Bytes, at: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Reads bytes of a file into target[at:at + size]; returns how many, -1 when it failed.

    Fewer than `size`: the file ends there, or a signal came.
    """
    need_room(target, at, size)
    if size <= 0:
        return 0
    if cython.compiled:
        with cython.boundscheck(False):
            return pread(fd, cython.address(target.room[at]), size, offset)
    with cython.gil:
        try:
            return os.preadv(fd, [target.room[at : at + size]], offset)
        except OSError:
            return -1
