# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""A kernel that has every function of `bytes_part.py`, for its tests."""

from store.compiled.bytes_part import (
    Bytes,
    begins_with,
    bits_of,
    copy,
    crc32,
    find_byte,
    is_bytes,
    is_same,
    is_text,
    is_utf8,
    load_i16,
    load_i32,
    load_i64,
    put,
    put_number,
    put_varint,
    read_file,
    read_span,
    read_varint,
    reading,
    size_of_varint,
    writing,
)


def ask(name: str, data: object, *arguments: int) -> int:
    """The answer of a function that reads bytes."""
    bytes_: Bytes = reading(data)
    functions = {
        "load_i16": lambda: load_i16(bytes_, arguments[0]),
        "load_i32": lambda: load_i32(bytes_, arguments[0]),
        "load_i64": lambda: load_i64(bytes_, arguments[0]),
        "is_same": lambda: is_same(bytes_, arguments[0], arguments[1], arguments[2]),
        "find_byte": lambda: find_byte(bytes_, arguments[0], arguments[1], arguments[2]),
        "bits_of": lambda: bits_of(bytes_, arguments[0], arguments[1]),
        "is_text": lambda: is_text(bytes_, arguments[0], arguments[1], arguments[2]),
        "is_utf8": lambda: is_utf8(bytes_, arguments[0], arguments[1]),
        "crc32": lambda: crc32(bytes_, arguments[0], arguments[1]),
    }
    return functions[name]()


def match(name: str, data: object, at: int, size: int, wanted: object) -> int:
    """The answer of `begins_with` or `is_bytes`."""
    bytes_: Bytes = reading(data)
    other: Bytes = reading(wanted)
    return begins_with(bytes_, at, other) if name == "begins_with" else is_bytes(bytes_, at, size, other)


def parse(name: str, data: object, at: int, end: int) -> tuple[int, int]:
    """The value and the end of a varint, or begin and end of a span."""
    bytes_: Bytes = reading(data)
    if name == "read_varint":
        at = read_varint(bytes_, at, end)
        return bytes_.value, at
    at = read_span(bytes_, at, end)
    return bytes_.begin, at


def write(name: str, room: object, at: int, value: int, more: int) -> int:
    """The answer of a function that writes a number; `more` is its size or its tag."""
    bytes_: Bytes = writing(room)
    if name == "put":
        return put(bytes_, at, value, more)
    return put_varint(bytes_, at, value) if name == "put_varint" else put_number(bytes_, at, more, value)


def write_read_only(data: object) -> int:
    """What is only read is to be written."""
    bytes_: Bytes = reading(data)
    return put_varint(bytes_, 0, 1)


def copied(data: object, begin: int, end: int, room: object, at: int) -> int:
    """The answer of `copy`."""
    source: Bytes = reading(data)
    target: Bytes = writing(room)
    return copy(source, begin, end, target, at)


def moved(room: object, begin: int, end: int, at: int) -> int:
    """The answer of `copy` inside the same bytes."""
    bytes_: Bytes = writing(room)
    return copy(bytes_, begin, end, bytes_, at)


def from_file(fd: int, offset: int, size: int, room: object, at: int) -> int:
    """The answer of `read_file`."""
    bytes_: Bytes = writing(room)
    return read_file(fd, offset, size, bytes_, at)


def varint_size(value: int) -> int:
    """The answer of `size_of_varint`."""
    return size_of_varint(value)


def use_crc32(address: int) -> None:
    """Takes the C function at an address; 0: that of Python's zlib."""
    global _CRC32_AT  # noqa: PLW0603 - the part's, which a compiled kernel has in itself
    _CRC32_AT = address
