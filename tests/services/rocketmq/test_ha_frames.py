"""RocketMQ's HA protocol as bytes, against bytes written by hand from its description."""

import pytest

from services.rocketmq.ha_frames import ReportDecoder, TransferDecoder
from store.errors import RecordCorruptedError

# Two bodies, a heartbeat behind each: offset 16, 3 bytes; offset 19, 0 bytes; offset 19, 2 bytes; offset 21, 0 bytes.
SENT = bytes.fromhex(
    "0000000000000010 00000003 616263  0000000000000013 00000000  0000000000000013 00000002 6465  0000000000000015 00000000"
)


@pytest.mark.parametrize("cut_bytes", range(1, len(SENT) + 1))
def test_transfers_are_read_however_the_network_cuts_them(cut_bytes: int) -> None:
    decoder, log, heartbeats = TransferDecoder(), bytearray(16), []
    for begin in range(0, len(SENT), cut_bytes):
        for piece in decoder.feed(memoryview(SENT[begin : begin + cut_bytes])):
            assert piece.offset == len(log)
            log += piece.data
            heartbeats += [] if piece.data else [piece.offset]
    assert bytes(log[16:]) == b"abcde"
    assert heartbeats == [19, 21]


@pytest.mark.parametrize("header", ["ffffffffffffffff 00000003", "0000000000000010 ffffffff"])
def test_a_header_that_no_master_sends_is_refused(header: str) -> None:
    with pytest.raises(RecordCorruptedError, match="haListenPort"):
        list(TransferDecoder().feed(memoryview(bytes.fromhex(header))))


def test_of_several_reports_the_last_whole_one_counts() -> None:
    decoder = ReportDecoder()
    assert decoder.feed(bytes.fromhex("00000000 000000")) is None
    assert decoder.feed(bytes.fromhex("07 0000000000000009 00000000000000")) == 9
    assert decoder.feed(bytes.fromhex("0a")) == 10
