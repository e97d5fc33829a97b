"""`config/delayOffset.json`, as RocketMQ 5.3.3 wrote it (tests/fixtures) and as it is written here."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import StoreCorruptedError
from store.format.config_json import is_own
from store.format.delivery.delay_offset_file import (
    TransactionOffsets,
    decode_delay_offsets,
    decode_transaction_offsets,
    encode_delay_offsets,
)

POSITIONS = st.integers(0, 2**62)
OFFSETS = st.dictionaries(st.integers(1, 256), POSITIONS, max_size=20)
NONE = TransactionOffsets()


def test_positions_that_a_broker_wrote_are_read(broker_store: Path) -> None:
    data = (broker_store / "config" / "delayOffset.json").read_bytes()
    assert decode_delay_offsets(data) == {1: 10, 2: 10, 3: 6}  # as the file reads
    assert decode_transaction_offsets(data) is None
    assert not is_own(data)


@given(OFFSETS, st.builds(TransactionOffsets, POSITIONS, POSITIONS), st.integers(0, 2**50))
def test_positions_written_here_are_read_as_they_were(
    offsets: dict[int, int], transactions: TransactionOffsets, time_millis: int
) -> None:
    data = encode_delay_offsets(offsets, transactions, None, time_millis=time_millis)
    assert decode_delay_offsets(data) == offsets
    assert decode_transaction_offsets(data) == transactions
    assert is_own(data)
    again = json.loads(encode_delay_offsets({}, NONE, data, time_millis=time_millis))
    assert again["dataVersion"] == {"stateVersion": 0, "counter": 2, "timestamp": time_millis}
    assert again["offsetTable"] == {}


@pytest.mark.parametrize("table", ['{"x":1}', '{"0":1}', '{"1":-1}', '{"1":"2"}', "[]", "null"])
def test_entries_that_are_no_position_of_a_level_are_left_out(table: str) -> None:
    assert decode_delay_offsets(f'{{"offsetTable":{table}}}'.encode()) == {}


@pytest.mark.parametrize("own", ["null", "{}", '{"transactions":7}', '{"transactions":{"half":-1,"operation":0}}'])
def test_a_member_without_both_positions_says_nothing(own: str) -> None:
    assert decode_transaction_offsets(f'{{"reput":{own}}}'.encode()) is None


def test_a_file_that_is_no_json_object_is_refused() -> None:
    for data in (b"", b"{", b"[]"):
        for read in (decode_delay_offsets, decode_transaction_offsets):
            with pytest.raises(StoreCorruptedError):
                read(data)
