"""The mark of a request in its records."""

import pytest

from store.format.record_layout import encode_crc_property
from store.format.request_mark import (
    REQUEST_MARK_SIZE_BYTES,
    TAIL_SIZE_BYTES,
    RequestMark,
    decode_request_mark,
    encode_request_mark,
)

CRC = encode_crc_property(12345)


@pytest.mark.parametrize("mark", [RequestMark(0, 0), RequestMark(1, 2), RequestMark((1 << 31) - 1, (1 << 31) - 1)])
def test_a_mark_reads_back(mark: RequestMark) -> None:
    data = encode_request_mark(mark)

    assert REQUEST_MARK_SIZE_BYTES == len(data)
    assert mark == decode_request_mark(data + CRC)


def test_the_bytes_are_those_of_the_format() -> None:
    assert b"__REPUT_REQUEST__\x010000000099,0000000100\x02" == encode_request_mark(RequestMark(99, 100))


@pytest.mark.parametrize("at", range(TAIL_SIZE_BYTES))
def test_a_tail_with_a_byte_changed_is_no_mark_or_another_one(at: int) -> None:
    tail = bytearray(encode_request_mark(RequestMark(7, 8)) + CRC)
    tail[at] = 0

    found = decode_request_mark(bytes(tail))

    # The digits and the end of the CRC are the CRC's own matter.
    assert (found is None) == (at < REQUEST_MARK_SIZE_BYTES + len("__CRC32#\x01"))


@pytest.mark.parametrize(
    "tail", [b"", CRC, b"\x02" * TAIL_SIZE_BYTES, encode_request_mark(RequestMark(7, 8)), b"x" * 40 + CRC]
)
def test_other_bytes_are_no_mark(tail: bytes) -> None:
    assert decode_request_mark(tail) is None
