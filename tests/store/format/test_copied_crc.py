"""A broker with its default settings copies a message with all its properties, and an old `__CRC32#` among them."""

import pytest

from store.errors import RecordCorruptedError
from store.format.record import decode_record
from store.format.record_layout import CRC_PROPERTY_SIZE_BYTES, encode_crc_property, masked_crc

# Written by RocketMQ 5.3.3 at offset 8229: the retry of a message that was stored here with `__CRC32#`.
RETRY = (
    bytes.fromhex(
        "000000c2daa320a74054072f00000000000000000000000000000000000000000000202500000000000001a20837c7787f00000100005c"
        "73000001a20838c8b37f00000100005c73000000010000000000000000000000026d310a25524554525925475f54005b"
    )
    + b"UNIQ_KEY\x010102FC0000000126AB0B15C0DB00000001\x021ST_POP_TIME\x011795434208750\x02__CRC32#\x012742292760\x02"
)


def test_a_broker_s_copy_with_an_old_crc_is_a_whole_record() -> None:
    record = decode_record(RETRY, commit_log_offset=8229)
    assert (record.topic, record.body, record.reconsume_times) == ("%RETRY%G_T", b"m1", 1)
    assert (record.has_copied_crc, record.is_guarded) == (True, False)


def test_a_record_that_no_broker_copied_has_a_crc_that_must_be_right() -> None:
    data = RETRY.replace(b"1ST_POP_TIME", b"1ST_POP_TIMe")
    with pytest.raises(RecordCorruptedError, match="__CRC32# says"):
        decode_record(data, commit_log_offset=8229)


@pytest.mark.parametrize("last_bytes", [b"274229276x\x02", b"2742292760\x03"])
def test_what_is_no_crc_of_any_record_is_damage_in_a_copy_too(last_bytes: bytes) -> None:
    with pytest.raises(RecordCorruptedError, match="__CRC32# says"):
        decode_record(RETRY[: -len(last_bytes)] + last_bytes, commit_log_offset=8229)


def test_a_copy_whose_own_crc_is_right_is_guarded() -> None:
    frame = bytearray(RETRY)
    frame[-CRC_PROPERTY_SIZE_BYTES:] = encode_crc_property(masked_crc(frame[:-CRC_PROPERTY_SIZE_BYTES]))
    record = decode_record(frame, commit_log_offset=8229)
    assert (record.has_copied_crc, record.is_guarded) == (False, True)
