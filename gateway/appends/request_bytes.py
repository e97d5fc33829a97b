"""Append requests and responses as bytes: recognized, joined and split again without decoding a message.

Protobuf reads the bytes of two requests, one after the other, as one request with the messages of both. So small requests
of many callers are sent as one, which costs the commitlog little more than each of them alone. The answer has a receipt for
each message, in order, and is cut where the requests were joined. Only requests with known fields, each complete, and
without options of one caller (`deduplicate`) are joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MESSAGES_TAG = 0x0A  # field 1, length-delimited: `messages` of a request, `results` of a response
FLUSH_TAG = 0x10  # field 2, varint
FLUSH_MODE_COUNT = 4
# Joining a larger request gains nothing, and its length would delay the other callers.
SMALL_REQUEST_BYTES_MAX = 64 * 1024
SMALL_MESSAGE_COUNT_MAX = 32
VARINT_BYTES_MAX = 5


@dataclass(frozen=True, slots=True)
class SmallAppend:
    """Facts about a request that is joined with others.

    Attributes:
        message_count: its messages, 1 or more.
        flush: its FlushMode; only requests with the same one may be joined.
    """

    message_count: int
    flush: int


def read_small_append(request: bytes) -> SmallAppend | None:
    """A request that may be joined; None for one that has to be sent alone, also when it is damaged."""
    end = len(request)
    if end > SMALL_REQUEST_BYTES_MAX:
        return None
    position = message_count = flush = 0
    while position < end:
        tag = request[position]
        if tag == MESSAGES_TAG:
            position = _after_field(request, position + 1, end)
            if position < 0:
                return None
            message_count += 1
        elif tag == FLUSH_TAG and position + 1 < end and request[position + 1] < FLUSH_MODE_COUNT:
            flush = request[position + 1]
            position += 2
        else:
            return None
    if not 0 < message_count <= SMALL_MESSAGE_COUNT_MAX:
        return None
    return SmallAppend(message_count, flush)


def split_results(response: bytes, message_counts: Sequence[int]) -> list[bytes] | None:
    """The response for each request, given how many messages each had; None when the total is another."""
    end = len(response)
    position = 0
    responses = []
    for message_count in message_counts:
        begin = position
        for _ in range(message_count):
            if position >= end or response[position] != MESSAGES_TAG:
                return None
            position = _after_field(response, position + 1, end)
            if position < 0:
                return None
        responses.append(response[begin:position])
    return responses if position == end else None


def _after_field(data: bytes, position: int, end: int) -> int:
    """The end of a length-delimited field whose length is at the position; -1 when it ends outside the data."""
    size_bytes = 0
    for shift in range(0, VARINT_BYTES_MAX * 7, 7):
        if position >= end:
            return -1
        byte = data[position]
        position += 1
        size_bytes |= (byte & 0x7F) << shift
        if byte < 0x80:
            position += size_bytes
            return position if position <= end else -1
    return -1
