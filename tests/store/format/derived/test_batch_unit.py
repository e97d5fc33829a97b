"""Units of batch queues, as RocketMQ 5.5.0 wrote them from a log with batches of 3, 2 and 7 messages."""

import pytest

from store.format.derived.batch_unit import BATCH_UNIT_SIZE_BYTES, batch_message_count, decode_batch_unit

WRITTEN = bytes.fromhex(
    "0000000000000000000000f00000000000000000000001a22429e4f600000000000000000003ffffffff00000000"
    "00000000000002d0000000d00000000000000000000001a22429e4f600000000000000030002ffffffff00000000"
    "0000000000000408000001700000000000000000000001a22429e4f600000000000000050007ffffffff00000000"
)


def test_the_units_that_a_broker_wrote_are_read_field_by_field() -> None:
    units = [
        decode_batch_unit(WRITTEN[at : at + BATCH_UNIT_SIZE_BYTES])
        for at in range(0, len(WRITTEN), BATCH_UNIT_SIZE_BYTES)
    ]
    stored = 1795903055094
    assert units == [
        (0, 240, 0, stored, 0, 3, -1, 0),
        (720, 208, 0, stored, 3, 2, -1, 0),
        (1032, 368, 0, stored, 5, 7, -1, 0),
    ]
    assert all(unit.is_whole for unit in units)
    assert [unit.next_offset for unit in units] == [240, 928, 1400]
    assert not decode_batch_unit(bytes(BATCH_UNIT_SIZE_BYTES)).is_whole


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("3", 3),
        ("+3", 3),
        ("32767", 32767),
        ("32768", None),
        ("0", None),
        ("-1", None),
        ("", None),
        ("3 ", None),
        ("\u0663", None),
    ],
)
def test_a_count_that_javas_short_does_not_take_is_none(text: str, count: int | None) -> None:
    assert batch_message_count({"INNER_NUM": text}) == count
    assert batch_message_count({}) is None
