"""HaMaster against bytes of slaves, and against our own slave: a log copied over both is the same log."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.rocketmq_ha.master import HaMaster
from commitlog_svc.rocketmq_ha.slave import HaSlave
from services.calling.backoff import Backoff
from services.rocketmq.address import Address
from services.rocketmq.ha_frames import TransferDecoder
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.waiting import wait_until

FILE_BYTES = 16384


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[tuple[CommitLog, HaMaster]]:
    """A log of several files that slaves may copy."""
    with open_log(tmp_path / "leader") as log:
        for number in range(60):
            append(log, *(new_message(b"%d" % number * 300, topic) for topic in ("orders", "other")))
        assert log.status.end_offset > 4 * FILE_BYTES
        master = HaMaster(log, Address("127.0.0.1", 0))
        master.start()
        try:
            yield log, master
        finally:
            master.close()


def received(master: HaMaster, report: int, size_bytes: int) -> list[tuple[int, bytes]]:
    """What a slave gets after its first report, up to a number of bytes."""
    decoder, pieces = TransferDecoder(), list[tuple[int, bytes]]()
    with socket.create_connection(master.address, 10) as connection:
        connection.sendall(report.to_bytes(8, "big"))
        while sum(len(data) for _, data in pieces) < size_bytes:
            data = connection.recv(1 << 16)
            if not data:
                break
            pieces += [(piece.offset, bytes(piece.data)) for piece in decoder.feed(memoryview(data))]
    return pieces


@pytest.mark.parametrize("begin", [0, 1, FILE_BYTES, 2 * FILE_BYTES + 5])
def test_a_slave_gets_the_bytes_from_where_it_asks_and_an_empty_one_gets_all(
    leader: tuple[CommitLog, HaMaster], begin: int
) -> None:
    log, master = leader
    size_bytes = log.status.end_offset - begin
    pieces = received(master, begin, size_bytes)
    assert pieces[0][0] == begin
    assert b"".join(data for _, data in pieces) == log.read_bytes(begin, size_bytes)
    assert wait_until(lambda: not master.acknowledged_offsets()) >= 0  # it has left


def test_a_slave_that_has_more_than_this_log_gets_nothing(leader: tuple[CommitLog, HaMaster]) -> None:
    log, master = leader
    assert received(master, log.status.end_offset + 1, 1) == []


def test_a_slave_that_comes_back_from_the_same_port_was_forgotten_with_its_refused_connection(
    leader: tuple[CommitLog, HaMaster],
) -> None:
    log, master = leader
    refused = socket.create_connection(master.address, 10)
    here = refused.getsockname()
    refused.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the port is free at once
    refused.sendall((log.status.end_offset + 1).to_bytes(8, "big"))
    name = str(Address(*here))
    wait_until(lambda: master.acknowledged_offsets().get(name, -1) > 0)
    former = master._slaves[name].thread
    refused.close()
    with socket.create_connection(master.address, 10, source_address=here) as connection:
        connection.sendall(bytes(8))
        assert connection.recv(1)
        former.join()
        assert master.acknowledged_offsets() == {name: 0}


def test_nothing_behind_the_confirm_offset_is_sent(tmp_path: Path) -> None:
    with open_log(tmp_path, flush_interval_millis=60_000) as log:
        first = append(log, new_message(b"flushed"), sync=True)[0]
        append(log, new_message(b"not flushed"), sync=False)
        master = HaMaster(log, Address("127.0.0.1", 0))
        master.start()
        with contextlib.closing(master), socket.create_connection(master.address, 10) as connection:
            connection.sendall(bytes(8))
            header = connection.recv(12, socket.MSG_WAITALL)
            assert int.from_bytes(header[8:], "big") == first.store_size_bytes
            log.flushes.wait_flushed(log.status.end_offset)
            connection.recv(first.store_size_bytes, socket.MSG_WAITALL)
            header = connection.recv(12, socket.MSG_WAITALL)
            assert int.from_bytes(header[:8], "big") == first.store_size_bytes


def test_our_slave_behind_our_master_has_the_same_log(leader: tuple[CommitLog, HaMaster], tmp_path: Path) -> None:
    log, master = leader
    with open_log(tmp_path / "follower", mirror=f"rocketmq://{master.address}") as copy:
        slave = HaSlave(copy, master.address, nothing_seconds=0.04, backoff=Backoff(first_seconds=0.01))
        slave.start()
        try:
            append(log, new_message(b"while it copies"))
            end_offset = log.status.end_offset
            wait_until(lambda: copy.status.flushed_offset == end_offset, lambda: slave.state)
            assert copy.read_bytes(0, end_offset) == log.read_bytes(0, end_offset)
            wait_until(lambda: end_offset in master.acknowledged_offsets().values())
        finally:
            slave.close()
