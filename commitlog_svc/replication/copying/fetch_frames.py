"""FetchLogResponse as bytes: to parse and serialize a message of 1 MiB would copy it twice more on each side."""

from reput.commitlog.v1 import replication_pb2 as pb

_TAG = 0x0A  # field 1, length-delimited
_SEVEN_BITS, _MORE = 0x7F, 0x80
_SIZE_BYTES_MAX = 5


def encode_fetched(data: bytes) -> bytes:
    """The message with these bytes of the log."""
    head, left = bytearray([_TAG]), len(data)
    while left > _SEVEN_BITS:
        head.append(left & _SEVEN_BITS | _MORE)
        left >>= 7
    head.append(left)
    return bytes(head) + data


def decode_fetched(message: bytes) -> memoryview:
    """The bytes of the log in a message; google.protobuf's DecodeError when it is none."""
    if message[:1] == bytes([_TAG]):
        size_bytes = shift = 0
        for at in range(1, min(len(message), 1 + _SIZE_BYTES_MAX)):
            size_bytes |= (message[at] & _SEVEN_BITS) << shift
            shift += 7
            if not message[at] & _MORE:
                if at + 1 + size_bytes == len(message):
                    return memoryview(message)[at + 1 :]
                break
    return memoryview(pb.FetchLogResponse.FromString(message).data)  # with fields of a later release
