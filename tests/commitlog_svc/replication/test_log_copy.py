"""LogCopy: what arrives in any pieces becomes the same log; what is wrong becomes none of it."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.replication.log_copy import LogCopy
from store.errors import InvalidArgumentError, StoreCorruptedError
from store.files.mapped_files import MappedFileQueue
from tests.commitlog_svc.internal import append_internal, internal_record
from tests.commitlog_svc.support import append, make_log, new_message, open_log
from tests.torture.memory_files import MemoryFileSystem

FILE_BYTES = 16384


class Source:
    """A log: its bytes up to its end, that end, and the next offsets of its queues."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A log of several files."""
    root = tmp_path_factory.mktemp("source")
    with open_log(root) as log:
        for number in range(40):
            append(log, *(new_message(b"%d" % number * 300, topic) for topic in ("orders", "other")))
            append_internal(log, internal_record(b"a" * 700), internal_record(b"b", "rmq_sys_state"))
        end_offset, _, queue_offsets, _ = log.opened.appender.snapshot()
        data = b"".join(part for _, part in files_of(log).iterate(0, end_offset, 1 << 20))
    assert end_offset > 4 * FILE_BYTES
    return Source(data, end_offset, queue_offsets)


def files_of(log: CommitLog) -> MappedFileQueue:
    return log._files


@contextmanager
def opened_copy(root: Path) -> Iterator[tuple[CommitLog, LogCopy]]:
    with open_log(root) as log:
        yield log, log.begin_copy()


def pieces_of(data: bytes, cuts: list[int]) -> Iterator[tuple[int, bytes]]:
    places = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    for begin, end in itertools.pairwise(places):
        yield begin, data[begin:end]


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 1 << 20), max_size=60), whole_requests=st.booleans())
def test_bytes_in_any_pieces_become_the_same_log(
    source, tmp_path_factory, cuts: list[int], whole_requests: bool
) -> None:
    data, end_offset, queue_offsets = source
    root = tmp_path_factory.mktemp("copy")
    with opened_copy(root) as (log, copy):
        ends = [0]
        for offset, piece in pieces_of(data, cuts):
            copy.receive(offset, piece)
            ends.append(copy.settle_records(whole_requests=whole_requests))
            assert ends[-1] >= ends[-2]
        assert log.opened.appender.end_offset == end_offset
        assert log.opened.appender.snapshot()[2] == queue_offsets
        copied = b"".join(part for _, part in files_of(log).iterate(0, end_offset, 1 << 20))
        assert copied == data
    with open_log(root) as log:  # what a restart finds is the same
        assert log.opened.found.end_offset == end_offset
        assert log.opened.appender.snapshot()[2] == queue_offsets


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 1 << 20), flip=st.integers(1, 255), length=st.integers(1, 40_000))
def test_a_wrong_byte_never_becomes_part_of_the_log(
    source, tmp_path_factory, place: int, flip: int, length: int
) -> None:
    data, end_offset, _ = source
    place %= end_offset
    wrong = bytearray(data)
    wrong[place] ^= flip
    with opened_copy(tmp_path_factory.mktemp("copy")) as (log, copy):
        try:
            for begin in range(0, end_offset, length):
                copy.receive(begin, bytes(wrong[begin : begin + length]))
                copy.settle_records()
        except StoreCorruptedError:
            pass
        settled = copy.settled_offset
        own = b"".join(part for _, part in files_of(log).iterate(0, settled, 1 << 20))
        in_tail_of_a_file = own != data[:settled] and own == bytes(wrong[:settled])
        # Bytes between a blank and the end of its file are no part of any record.
        assert own == data[:settled] or in_tail_of_a_file
        if not in_tail_of_a_file:
            assert settled <= place or data[place] == wrong[place]


def test_nothing_is_shown_before_it_is_settled_and_a_promoted_log_goes_on_there(source, tmp_path: Path) -> None:
    data, _, _ = source
    with opened_copy(tmp_path) as (log, copy):
        copy.receive(0, data[:10_000])
        assert log.opened.appender.end_offset == 0
        end_offset = copy.settle_records()
        assert 0 < end_offset < 10_000
        copy.close()
        (receipt,) = append(log, new_message(b"of the new writer"))
        assert receipt.commit_log_offset == end_offset
        behind = receipt.commit_log_offset + receipt.store_size_bytes
        assert not any(files_of(log).read(behind, 10_000))
    with open_log(tmp_path) as log:
        assert log.opened.found.end_offset == behind


def half_of_a_request(root: Path) -> tuple[bytes, int, int]:
    """A log that ends inside an atomic request, at the end of one of its records; that request's begin, and its end."""
    with open_log(root) as log:
        append(log, new_message(b"before"))
        records = [internal_record(b"%d" % number * 700) for number in range(4)]
        receipts = append_internal(log, *records)
        begin, end = receipts[0].commit_log_offset, receipts[-1].end_offset
        return files_of(log).read(0, receipts[1].end_offset), begin, end


def test_half_of_an_atomic_request_does_not_stay_in_a_log_that_nobody_sends_more(tmp_path: Path) -> None:
    data, begin_offset, _ = half_of_a_request(tmp_path / "source")
    with opened_copy(tmp_path / "copy") as (log, copy):
        copy.receive(0, data)
        assert copy.settle_records(whole_requests=True) == begin_offset
        copy.close()
        assert log.flushes.written_offset == log.opened.appender.end_offset == begin_offset
        assert not any(files_of(log).read(begin_offset, len(data)))
        (receipt,) = append(log, new_message(b"of the next leader"))
        assert receipt.commit_log_offset == begin_offset
        assert receipt.queue_offset == 1
    with open_log(tmp_path / "copy") as log:
        assert log.opened.found.end_offset == receipt.end_offset


def test_half_of_an_atomic_request_does_not_stay_in_a_copy_that_is_killed(tmp_path: Path) -> None:
    data, begin_offset, _ = half_of_a_request(tmp_path / "source")
    fs = MemoryFileSystem()
    log = make_log(tmp_path / "copy", fs)  # type: ignore[arg-type]  # it has all calls of the port
    log.recover()
    copy = log.begin_copy()
    copy.receive(0, data)
    log.flushes.wait_flushed(copy.settle_records(whole_requests=True))
    found = fs.copy()
    log.close()
    with open_log(tmp_path / "copy", found) as again:  # type: ignore[arg-type]  # as above
        assert again.opened.found.end_offset == begin_offset


def test_an_atomic_request_that_came_in_two_halves_is_part_of_the_log_once_it_is_whole(tmp_path: Path) -> None:
    half, begin_offset, end_offset = half_of_a_request(tmp_path / "source")
    with open_log(tmp_path / "source") as log:
        rest = files_of(log).read(len(half), end_offset - len(half))
    with opened_copy(tmp_path / "copy") as (_, copy):
        copy.receive(0, half)
        assert copy.settle_records(whole_requests=True) == begin_offset
        copy.receive(len(half), rest)
        assert copy.settle_records(whole_requests=True) == end_offset


def test_half_of_an_atomic_request_that_a_broker_has_is_part_of_a_copy_of_its_log(tmp_path: Path) -> None:
    half, _, _ = half_of_a_request(tmp_path / "source")
    with opened_copy(tmp_path / "copy") as (_, copy):
        copy.receive(0, half)
        assert copy.settle_records() == len(half)


def test_settling_up_to_a_place_inside_a_record_is_refused_and_takes_nothing(source, tmp_path: Path) -> None:
    data, _, _ = source
    with opened_copy(tmp_path) as (log, copy):
        copy.receive(0, data[:5_000])
        with pytest.raises(StoreCorruptedError) as refused:
            copy.settle(4_999)
        assert "not whole" in refused.value.message
        assert log.opened.appender.end_offset == copy.received_offset == 0
        assert not any(files_of(log).read(0, 5_000))


def test_bytes_that_leave_a_hole_are_refused_and_change_nothing(source, tmp_path: Path) -> None:
    data, _, _ = source
    with opened_copy(tmp_path) as (log, copy):
        copy.receive(0, data[:100])
        with pytest.raises(InvalidArgumentError):
            copy.receive(101, data[101:200])
        assert not any(files_of(log).read(100, 200))
        copy.receive(100, data[100:200])


def test_a_copy_of_a_log_whose_first_files_are_gone_begins_at_a_file(source, tmp_path: Path) -> None:
    data, end_offset, _ = source
    with opened_copy(tmp_path) as (log, copy):
        with pytest.raises(InvalidArgumentError):
            copy.receive(FILE_BYTES + 1, data[FILE_BYTES + 1 :])
        copy.receive(2 * FILE_BYTES, data[2 * FILE_BYTES :])
        copy.settle(end_offset)
        assert (files_of(log).first_offset, log.opened.appender.end_offset) == (2 * FILE_BYTES, end_offset)


def test_an_empty_log_that_copied_nothing_is_empty(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.recover()
    copy = log.begin_copy()
    assert copy.settle_records() == 0
    copy.close()
    log.close()
