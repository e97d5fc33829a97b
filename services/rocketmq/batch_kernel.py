# cython: boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""A batch of a client of RocketMQ (store/format/client_batch.py) as the messages of an AppendMessagesRequest.

`encode` takes the messages of one flag. It stops before one of another flag, and before one that is cut or whose lengths
disagree: the plain path decides what that is. The fields are those of `reput.message.v1.NewMessage`.
"""

import cython

from store.compiled.bytes_part import (
    Bytes,
    copy,
    load_i16,
    load_i32,
    put_number,
    put_varint,
    reading,
    size_of_varint,
    writing,
)

# Before the body of a message, and between it and the properties; see store/format/client_batch.py.
_HEAD_SIZE = cython.declare(cython.Py_ssize_t, 20)
_PROPERTIES_SIZE_SIZE = cython.declare(cython.Py_ssize_t, 2)
# Field 1 of AppendMessagesRequest, 3 and 15 of NewMessage.
_MESSAGES = cython.declare(cython.int, 0x0A)
_BODY = cython.declare(cython.int, 0x1A)
_PROPERTIES = cython.declare(cython.int, 0x7A)


@cython.locals(
    batch=Bytes, first=Bytes, target=Bytes, to=cython.Py_ssize_t, end=cython.Py_ssize_t, count=cython.Py_ssize_t,
    size=cython.longlong, body_size=cython.longlong, properties_size=cython.longlong, properties_at=cython.Py_ssize_t,
    content_size=cython.longlong,
)  # fmt: skip
def encode(
    data: bytes,
    at: cython.Py_ssize_t,
    count_max: cython.Py_ssize_t,
    flag: cython.longlong,
    head: bytes,
    room: bytearray,
) -> tuple[int, int, int]:
    """Writes the messages that begin at a byte of a batch.

    Args:
        data: the batch.
        at: where the first one begins.
        count_max: how many are written at most.
        flag: of the messages.
        head: the fields of a NewMessage that all of them have in common.
        room: gets the messages; it must have `room_bytes` at least.

    Returns:
        Where the next message begins, how many were written, and how many bytes.
    """
    batch, first, target = reading(data), reading(head), writing(room)
    to = count = 0
    end = len(batch.data)
    with cython.nogil:
        while count < count_max and at <= end - _HEAD_SIZE - _PROPERTIES_SIZE_SIZE:
            size = load_i32(batch, at)
            body_size = load_i32(batch, at + 16)
            if load_i32(batch, at + 12) != flag or body_size < 0 or size > end - at:
                break
            if body_size > size - _HEAD_SIZE - _PROPERTIES_SIZE_SIZE:
                break
            properties_at = at + _HEAD_SIZE + body_size + _PROPERTIES_SIZE_SIZE
            properties_size = load_i16(batch, properties_at - _PROPERTIES_SIZE_SIZE)
            if properties_size < 0 or properties_at + properties_size != at + size:
                break
            content_size = (
                len(first.data)
                + 2
                + size_of_varint(body_size)
                + body_size
                + size_of_varint(properties_size)
                + properties_size
            )
            to = put_number(target, to, _MESSAGES, content_size)
            to = copy(first, 0, len(first.data), target, to)
            to = put_field(target, to, _BODY, batch, at + _HEAD_SIZE, body_size)
            to = put_field(target, to, _PROPERTIES, batch, properties_at, properties_size)
            at += size
            count += 1
    return at, count, to


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(-1)
def put_field(
    target: Bytes, to: cython.Py_ssize_t, tag: cython.int, batch: Bytes, at: cython.Py_ssize_t, size: cython.longlong
) -> cython.Py_ssize_t:
    """Writes a field of bytes, also an empty one."""
    target.room[to] = tag
    to = put_varint(target, to + 1, size)
    return copy(batch, at, at + size, target, to)


def room_bytes(batch_bytes: int, head_bytes: int, count: int) -> int:
    """The bytes that messages take at most.

    Args:
        batch_bytes: of the batch.
        head_bytes: of what they have in common.
        count: of the messages.
    """
    # The lengths and tags of a message take 5 and 1 bytes each at most, those in a batch 22.
    return batch_bytes + count * (head_bytes + 18)
