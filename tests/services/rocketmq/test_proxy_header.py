"""Headers of proxies, as the specification of the PROXY protocol writes them."""

import ipaddress

import pytest

from services.rocketmq.address import Address
from services.rocketmq.command import FrameError
from services.rocketmq.proxy_header import LINE_BYTES_MAX, ProxyHeader, is_in, parse_header, parse_networks

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
V4 = bytes.fromhex("2111000c" + "c0a80001" + "c0a8000b" + "dc04" + "01bb")
V6 = bytes.fromhex("21210024") + ipaddress.ip_address("2001:db8::7").packed + bytes(16) + bytes.fromhex("c8229fff")
MAPPED = V6.replace(ipaddress.ip_address("2001:db8::7").packed, ipaddress.ip_address("::ffff:192.168.0.1").packed)
FOR_CLIENTS = {
    b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n": Address("192.168.0.1", 56324),  # the specification's example
    b"PROXY TCP6 2001:db8::7 ::1 51234 10911\r\n": Address("2001:db8::7", 51234),
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": Address("255.255.255.255", 65535),
    # It was another client than 192.168.0.1, with a share of its own.
    b"PROXY TCP6 ::ffff:192.168.0.1 ::1 51234 10911\r\n": Address("192.168.0.1", 51234),
    SIGNATURE + MAPPED: Address("192.168.0.1", 51234),
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n": None,
    SIGNATURE + V4: Address("192.168.0.1", 56324),
    SIGNATURE + V6: Address("2001:db8::7", 51234),
    SIGNATURE + bytes.fromhex("21110010") + V4[4:] + b"\x04\x00\x01x": Address("192.168.0.1", 56324),  # an extension
    SIGNATURE + bytes.fromhex("20000000"): None,  # a health check
    SIGNATURE + bytes.fromhex("20110000"): None,
    SIGNATURE + bytes.fromhex("21000000"): None,
    SIGNATURE + bytes.fromhex("213100d8") + bytes(216): None,  # unix sockets
}


@pytest.mark.parametrize("data", FOR_CLIENTS)
def test_a_header_tells_the_client_and_where_the_connection_begins(data: bytes) -> None:
    for behind in (b"", b"\0\0\0\x20frame", SIGNATURE):
        assert parse_header(data + behind) == ProxyHeader(FOR_CLIENTS[data], len(data))
    assert {parse_header(data[:end]) for end in range(len(data))} == {None}


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x20",
        b"\x16\x03\x01",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324\r\n",
        b"PROXY TCP6 192.168.0.1 192.168.0.11 56324 443\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 65536 443\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 -1 443\r\n",
        b"PROXY TCP6 fe80::1%x;y 2001:db8::7 1 443\r\n",  # it came into logs and bornHost
        b"PROXY TCP6 fe80::1%eth0 2001:db8::7 1 443\r\n",
        b"PROXY TCP4 host 192.168.0.11 1 443\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 " + b"1" * LINE_BYTES_MAX,
        SIGNATURE + bytes.fromhex("1111000c") + V4[4:],  # a version 1 in binary
        SIGNATURE + bytes.fromhex("2211000c") + V4[4:],  # a command that there is not
        SIGNATURE + bytes.fromhex("21110008") + V4[4:12],
        SIGNATURE + bytes.fromhex("2111ffff"),
        SIGNATURE[:11] + b"X",
    ],
)
def test_what_is_no_header_is_refused_as_soon_as_it_is_seen(data: bytes) -> None:
    with pytest.raises(FrameError, match="PROXY header"):
        parse_header(data)


def test_proxies_are_named_by_addresses_and_networks() -> None:
    networks = parse_networks("10.0.0.0/8, ::1,192.168.0.7")
    for host, is_one in (
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("::1", True),
        ("fe80::1%eth0", False),
        ("192.168.0.8", False),
    ):
        assert is_in(host, networks) == is_one
    assert not is_in("10.1.2.3", parse_networks(""))
    for wrong in ("10.0.0.1/8", "proxy.example", "10.0.0.0/33"):
        with pytest.raises(ValueError, match=r"network|address|host bits"):
            parse_networks(wrong)
