"""How many fields a request may have at its top level, counted in its bytes before protobuf makes objects of them.

Two bytes are an empty message of a repeated field, of which protobuf makes an object of 60 to 130 bytes: 3.8 MB of them take
250 MiB, and twelve callers at once took 1.5 GiB of a commitlog service.
"""

from store.errors import InvalidArgumentError

# The largest requests that are meant: 1,024 messages of many joined requests, the ends of 2,048 deliveries, 65,536 clients.
FIELD_COUNT_MAX = 1 << 17
# A field has a tag and at least one byte more.
_FIELD_BYTES_MIN = 2
_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED_64: 8, _FIXED_32: 4}


def check_field_count(request: bytes, path: str) -> None:
    """InvalidArgumentError when the request has more than FIELD_COUNT_MAX fields; bytes that are no protobuf pass."""
    end = len(request)
    if end <= FIELD_COUNT_MAX * _FIELD_BYTES_MIN:
        return
    position = 0
    for _ in range(FIELD_COUNT_MAX):
        if position >= end:
            return
        tag, position = _varint(request, position, end)
        kind = tag & 7
        if kind == _DELIMITED:
            size_bytes, position = _varint(request, position, end)
            position += size_bytes
        elif kind == _VARINT:
            _, position = _varint(request, position, end)
        elif kind in _FIXED_SIZES:
            position += _FIXED_SIZES[kind]
        else:
            return  # protobuf says what is wrong
    if position < end:
        raise InvalidArgumentError(
            f"the request of {path} has more than {FIELD_COUNT_MAX:,} fields: split it", field="request"
        )


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number at the position and the position behind it."""
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:  # longer than any number: protobuf refuses it
            return 0, end
    return value, position
