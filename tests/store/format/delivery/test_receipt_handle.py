"""The text of a receipt handle, without its signature."""

import pytest

from store.format.delivery.receipt_handle import (
    HandleParts,
    HandlePayload,
    decode_payload,
    encode_part,
    encode_payload,
    split_handle,
)

PAYLOAD = HandlePayload("billing", "Orders", 3, 1 << 40, 2, 1_700_000_000_000)


def test_a_handle_is_read_as_it_was_spelled() -> None:
    payload = encode_payload(PAYLOAD)
    text = ".".join(map(encode_part, (b"broker-a", payload, b"0123456789abcdef")))

    assert text == ("YnJva2VyLWE.YmlsbGluZyBPcmRlcnMgMyAxMDk5NTExNjI3Nzc2IDIgMTcwMDAwMDAwMDAwMA.MDEyMzQ1Njc4OWFiY2RlZg")
    assert split_handle(text) == HandleParts("broker-a", payload, b"0123456789abcdef")
    assert decode_payload(payload) == PAYLOAD


def test_a_handle_names_its_delivery_by_a_serial_that_older_versions_lack() -> None:
    payload = encode_payload(PAYLOAD._replace(serial=1_700_000_000_000_001))

    assert payload == encode_payload(PAYLOAD) + b" 1700000000000001"
    assert decode_payload(payload).serial == 1_700_000_000_000_001
    assert decode_payload(encode_payload(PAYLOAD)).serial == 0


@pytest.mark.parametrize("text", ["", ".", "a.b", "YQ.YQ", "YQ.YQ.YQ.YQ", "é.é.é", "Y.YQ.YQ", "_w.YQ.YQ", "YQ." * 999])
def test_a_text_with_other_parts_is_no_handle(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split_handle(text)


@pytest.mark.parametrize(
    "payload", [b"", b"g t", b"g t 0 0 1", b"g t 0 0 1 x", b"g t 0 0 1 2 3 4", b"g t 0 0 1 2 x", b"\xff t 0 0 1 2"]
)
def test_bytes_with_other_parts_are_no_delivery(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_payload(payload)
