"""Hosts as text and as stored bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.format.host import Host, decode_host, encode_host

CASES = [
    (Host("127.0.0.1", 10911), "127.0.0.1:10911", "7f00000100002a9f"),
    (Host("0.0.0.0", 0), "0.0.0.0:0", "0000000000000000"),
    (Host("255.255.255.255", 65535), "255.255.255.255:65535", "ffffffff0000ffff"),
    (Host("2001:db8::2", 1001), "[2001:db8::2]:1001", "20010db8000000000000000000000002000003e9"),
    (Host("::", 1), "[::]:1", "00" * 16 + "00000001"),
]


@pytest.mark.parametrize(("host", "text", "stored"), CASES)
def test_host_text_and_bytes(host: Host, text: str, stored: str) -> None:
    assert text == str(host)
    assert host == Host.parse(text)
    assert bytes.fromhex(stored) == encode_host(host)
    assert host == decode_host(bytes.fromhex(stored))


def test_parse_brings_addresses_to_one_spelling() -> None:
    assert Host("2001:db8::2", 5) == Host.parse("[2001:0DB8:0:0:0:0:0:2]:5")


@pytest.mark.parametrize(
    "text",
    ["", "1.2.3.4", "1.2.3.4:", ":1", "::1:5", "[1.2.3.4]:5", "1.2.3:5", "1.2.3.4:-1", "1.2.3.4:65536", "1.2.3.4:٣",
     "host:5", "[fe80::1%eth0]:5", "[::1]5", "1.2.3.4:5\0"],
)  # fmt: skip
def test_text_that_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Host.parse(text)


@pytest.mark.parametrize("host", [Host("1.2.3", 1), Host("x", 1), Host("1.2.3.4", 1 << 31), Host("1.2.3\0", 1)])
def test_host_without_stored_form_is_refused(host: Host) -> None:
    with pytest.raises(InvalidArgumentError):
        encode_host(host)


@given(st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)))
def test_any_stored_host_comes_back(data: bytes) -> None:
    assert data == encode_host(decode_host(data))
