"""The text of a receipt handle, without its signature."""

import pytest

from store.format.delivery.receipt_handle import (
    HANDLE_LENGTH_MAX,
    ExtraInfo,
    HandleParts,
    HandlePayload,
    decode_check_point,
    decode_payload,
    encode_check_point,
    encode_part,
    encode_payload,
    parse_extra_info,
    split_handle,
    topic_kind_of,
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


# Of RocketMQ 5.5.0, `ExtraInfoUtil.buildExtraInfo(5, 1700000000000, 60000, 7, "t", "broker-a", 3, 9)`.
EXTRA = ExtraInfo(5, 1_700_000_000_000, 60_000, 7, "0", "broker-a", 3, 9)
EXTRA_TEXT = "5 1700000000000 60000 7 0 broker-a 3 9"


def test_what_a_remoting_client_gives_back_names_one_delivery() -> None:
    assert EXTRA.text() == EXTRA_TEXT
    assert parse_extra_info(EXTRA_TEXT) == EXTRA
    assert encode_check_point("t", EXTRA) == f"t {EXTRA_TEXT}"
    assert decode_check_point(f"t {EXTRA_TEXT}") == ("t", EXTRA)


@pytest.mark.parametrize(
    ("topic", "kind"), [("t", "0"), ("%RETRY%g_t", "1"), ("%RETRY%g+t", "2"), ("%RETRY%g", "1"), ("%DLQ%g", "0")]
)
def test_a_topic_of_retries_is_told_from_one_of_producers(topic: str, kind: str) -> None:
    assert topic_kind_of(topic) == kind
    assert decode_check_point(encode_check_point(topic, EXTRA._replace(topic_kind=kind)))[0] == topic


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5 1700000000000 60000 7 0 broker-a 3",
        f"{EXTRA_TEXT} 10",
        "5 1700000000000 60000 7 3 broker-a 3 9",
        "5 1700000000000 60000 7 0  3 9",
        "-5 1700000000000 60000 7 0 broker-a 3 9",
        "5 1700000000000 60000 x 0 broker-a 3 9",
        "5 1700000000000 60000 7 0 broker-a 3 9223372036854775808",
        "5 1700000000000 60000 7 0 broker-a 3 \u0669",
        EXTRA_TEXT.ljust(HANDLE_LENGTH_MAX + 1, "9"),
    ],
)
def test_a_text_with_other_parts_names_no_delivery(text: str) -> None:
    for read in (parse_extra_info, lambda text: decode_check_point(f"t {text}")):
        with pytest.raises(ValueError, match=r"."):
            read(text)


@pytest.mark.parametrize("text", ["t", f" {EXTRA_TEXT}", f"%RETRY%g_t {EXTRA_TEXT}"])
def test_a_delivery_of_another_topic_or_none_is_no_handle(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_check_point(text)
