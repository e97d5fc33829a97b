"""A client's batch, against bytes that RocketMQ's MessageDecoder (5.3.3 and 5.5.0) made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidMessageError
from store.format.client_batch import BatchEntry, decode_client_batch, encode_client_batch, flag_of_first
from store.format.properties import parse_properties

THEIRS = bytes.fromhex(
    "00000044000000000000000000000007000000056669727374002975016772c3bcc39f65024b455953016b31206b3202574149540174727565"
    "02544147530154616741020000001900000000000000000000000000000003000102"
    "0000"
)
entries = st.lists(
    st.builds(BatchEntry, st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=40), st.binary(max_size=40)),
    max_size=5,
)


def test_a_batch_of_a_java_client_is_read_and_written_alike() -> None:
    first, second = decode_client_batch(THEIRS)
    assert (first.flag, first.body) == (7, b"first")
    assert parse_properties(first.properties) == {"u": "grüße", "KEYS": "k1 k2", "WAIT": "true", "TAGS": "TagA"}
    assert second == BatchEntry(0, b"\0\1\2", b"")
    assert encode_client_batch([first, second]) == THEIRS


@given(entries)
def test_every_batch_reads_back_as_it_was_written(several: list[BatchEntry]) -> None:
    assert decode_client_batch(encode_client_batch(several)) == several


@given(entries, st.data())
def test_a_damaged_batch_is_refused_or_is_the_batch_of_its_bytes(
    several: list[BatchEntry], data: st.DataObject
) -> None:
    whole = bytearray(encode_client_batch(several) + data.draw(st.binary(max_size=4)))
    for at in data.draw(st.lists(st.integers(0, max(0, len(whole) - 1)), max_size=3)):
        if whole:
            whole[at] = data.draw(st.integers(0, 255))
    try:
        found = decode_client_batch(bytes(whole))
    except InvalidMessageError:
        return
    rewritten = encode_client_batch(found)
    assert len(rewritten) == len(whole)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (THEIRS[:-1], "it is cut"),
        (THEIRS + b"\0", "it is cut"),
        (b"\0\0\0\x15" + THEIRS[4:], "lengths disagree"),
        (THEIRS[:16] + b"\xff\xff\xff\xff" + THEIRS[20:], "lengths disagree"),
        (THEIRS[:25] + b"\xff\xff" + THEIRS[27:], "lengths disagree"),
        (THEIRS[:16] + b"\x7f\xff\xff\xff" + THEIRS[20:], "it is cut"),
    ],
)
def test_a_batch_that_is_none_names_its_byte(data: bytes, why: str) -> None:
    with pytest.raises(InvalidMessageError, match=rf"byte \d+ of the batch cannot be read: .*{why}"):
        decode_client_batch(data)


def test_a_batch_of_too_many_messages_is_refused_before_the_rest_is_read() -> None:
    data = encode_client_batch([BatchEntry(0, b"", b"")] * 4) + b"what comes behind them is not looked at"
    with pytest.raises(InvalidMessageError, match="more than 4 messages"):
        decode_client_batch(data, 4)
    assert len(decode_client_batch(encode_client_batch([BatchEntry(0, b"", b"")] * 4), 4)) == 4


def test_the_flag_of_the_first_message_is_read_without_the_rest() -> None:
    assert flag_of_first(THEIRS) == 7
    assert flag_of_first(encode_client_batch([BatchEntry(-7, b"", b"")])) == -7
