"""A record read at its offset, with as few reads as it takes."""

import pytest

from store.errors import RecordCorruptedError
from store.walk.record_reader import FIRST_READ_BYTES, read_record_at
from tests.store.walk.logs import BASE, frames_of, message

SMALL, BIG = frames_of([message(), message(body=bytes(2 * FIRST_READ_BYTES))])


class Log:
    """Bytes from BASE on, and the reads that were made."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, size_bytes: int) -> bytes:
        self.reads.append((offset, size_bytes))
        return self.data[offset - BASE : offset - BASE + size_bytes]


def test_a_small_record_takes_one_read_and_a_large_one_two() -> None:
    log = Log(SMALL + BIG)
    assert read_record_at(log.read, BASE, 100_000).store_size_bytes == len(SMALL)
    assert len(log.reads) == 1
    assert read_record_at(log.read, BASE + len(SMALL), 100_000).body == bytes(2 * FIRST_READ_BYTES)
    assert log.reads[1:] == [(BASE + len(SMALL), FIRST_READ_BYTES), (BASE + len(SMALL), len(BIG))]


@pytest.mark.parametrize("size_bytes_max", [4, 100, len(SMALL) - 1])
def test_nothing_is_read_behind_the_end(size_bytes_max: int) -> None:
    log = Log(SMALL)
    with pytest.raises(RecordCorruptedError):
        read_record_at(log.read, BASE, size_bytes_max)
    assert all(size <= size_bytes_max for _, size in log.reads)


@pytest.mark.parametrize("data", [b"\xff" * 200, bytes(200), SMALL[1:], BIG, b"\x7f\xff\xff\xff" + SMALL[4:], b""])
def test_other_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(RecordCorruptedError):
        read_record_at(Log(data).read, BASE, 1 << 30)


def test_a_large_size_is_believed_only_with_a_head_that_states_the_offset() -> None:
    log = Log(b"??" + BIG)
    with pytest.raises(RecordCorruptedError):
        read_record_at(log.read, BASE + 2, 1 << 30)
    assert len(log.reads) == 1
