"""Recall handles as RocketMQ 5.3.3 makes them, and ids of transactions."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.format.delivery.waiting_handles import RECALL, TRANSACTION, WaitingHandle, decode_handle, encode_handle
from store.format.properties import PROPERTIES_SIZE_BYTES_MAX

NAMES = st.text("abc_-%|1", min_size=1, max_size=20)
NUMBERS = st.integers(0, 10**18 - 1)
KINDS = st.sampled_from((RECALL, TRANSACTION))
KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


def test_a_recall_handle_is_that_of_rocketmq() -> None:
    """By `RecallMessageHandle.HandleV1.buildHandle`: the five parts joined by spaces, in base64 for URLs."""
    handle = WaitingHandle("T", "broker-a", 1795434208750, "0102FC0000000126AB0B15C0DB00000001")
    expected = base64.urlsafe_b64encode(b"v1 T broker-a 1795434208750 0102FC0000000126AB0B15C0DB00000001").decode()
    assert encode_handle(RECALL, handle) == expected
    assert decode_handle(RECALL, expected, "recall_handle") == handle


@given(NAMES, NAMES, NUMBERS, KEYS, KINDS)
def test_a_handle_is_read_as_it_was_written(topic: str, broker_name: str, number: int, key: str, kind: str) -> None:
    handle = WaitingHandle(topic, broker_name, number, key)
    assert decode_handle(kind, encode_handle(kind, handle), "handle") == handle


def test_the_handle_of_the_longest_unique_key_is_read() -> None:
    """Ids of more than 2,048 characters were refused: such a transaction could not be ended, such a timer not recalled."""
    handle = WaitingHandle("t" * 127, "b" * 127, 10**18 - 1, "k" * PROPERTIES_SIZE_BYTES_MAX)
    assert decode_handle(TRANSACTION, encode_handle(TRANSACTION, handle), "transaction_id") == handle


def test_the_text_of_a_refusal_says_what_is_wrong_in_words_of_its_own() -> None:
    with pytest.raises(InvalidArgumentError, match="'' is none: it has other parts; use that of the receipt"):
        decode_handle(RECALL, "", "recall_handle")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!",
        "dGV4dA==",
        "\u4e2d",
        "A" * 50_000,
        encode_handle(TRANSACTION, WaitingHandle("T", "b", 1, "k")),
        base64.urlsafe_b64encode(b"v1 T b x k").decode(),
        base64.urlsafe_b64encode(b"v1 T b 1").decode(),
        base64.urlsafe_b64encode(b"v1 T b \xff k").decode(),
        base64.urlsafe_b64encode(b"v1 T b " + b"9" * 30 + b" k").decode(),
    ],
)
def test_what_is_no_recall_handle_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="recall_handle"):
        decode_handle(RECALL, text, "recall_handle")
