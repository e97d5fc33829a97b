r"""The mark that an atomic request of several records leaves in each of its records: property `__REPUT_REQUEST__`.

    `__REPUT_REQUEST__` \x01 b0 ... b9 `,` a0 ... a9 \x02     40 bytes, right before `__CRC32#`

Both numbers are decimal, 10 digits, filled up with zeros: how many bytes of the request lie before this record, and how
many behind it. The records of a request lie side by side in one log file. So the last record of a log is enough to tell
whether its request is whole (0 bytes behind), and where the request begins. RocketMQ keeps the property and ignores it.

A request of one record has no mark: a record is whole or torn by itself.
"""

from typing import NamedTuple

from store.format.record_layout import CRC_MARKER, CRC_PROPERTY_SIZE_BYTES

REQUEST_MARK = "__REPUT_REQUEST__"
_NAME = REQUEST_MARK.encode() + b"\x01"
_DIGIT_COUNT = 10  # a log file has at most 2^31 - 1 bytes
REQUEST_MARK_SIZE_BYTES = len(_NAME) + 2 * _DIGIT_COUNT + 2
# The mark and the CRC are the last bytes of a record.
TAIL_SIZE_BYTES = REQUEST_MARK_SIZE_BYTES + CRC_PROPERTY_SIZE_BYTES

assert REQUEST_MARK_SIZE_BYTES == 40


class RequestMark(NamedTuple):
    """Bytes of the request before and behind a record."""

    before_bytes: int
    behind_bytes: int


def encode_request_mark(mark: RequestMark) -> bytes:
    """The property's 40 bytes."""
    return b"%b%010d,%010d\x02" % (_NAME, mark.before_bytes, mark.behind_bytes)


def decode_request_mark(tail: bytes | bytearray | memoryview) -> RequestMark | None:
    """The mark in the last TAIL_SIZE_BYTES bytes of a record; None when it has none."""
    mark, crc = bytes(tail[:REQUEST_MARK_SIZE_BYTES]), bytes(tail[REQUEST_MARK_SIZE_BYTES:])
    if len(tail) != TAIL_SIZE_BYTES or not mark.startswith(_NAME) or not crc.startswith(CRC_MARKER):
        return None
    before, comma, behind = mark[len(_NAME) : -1].partition(b",")
    if not (comma and mark.endswith(b"\x02") and len(before) == len(behind) == _DIGIT_COUNT):
        return None
    if not (before.isdigit() and behind.isdigit()):
        return None
    return RequestMark(int(before), int(behind))
