"""RocketMQ's remoting protocol, against bytes as a broker sends them."""

import json
import socket
import threading

import pytest

from services.rocketmq.address import Address, parse_address, parse_mirror
from services.rocketmq.remoting import Broker
from store.errors import InvalidArgumentError, ServiceUnavailableError


def answer(code: int, body: bytes, remark: str | None = None) -> bytes:
    """An answer of a broker, as RemotingCommand writes it with JSON."""
    header = json.dumps({"code": code, "flag": 1, "language": "JAVA", "opaque": 1, "remark": remark}).encode()
    return (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body


def asked(reply: bytes, call: str) -> object:
    """What a call returns when the broker replies so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                connection.recv(size, socket.MSG_WAITALL)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return getattr(Broker(Address(*listener.getsockname())), call)()
        finally:
            thread.join()


def test_figures_and_settings_of_a_broker_are_read_from_its_answers() -> None:
    figures = b'{"table":{"commitLogMaxOffset":"1200","commitLogMinOffset":"-1"}}'
    assert asked(answer(0, figures), "runtime_info") == {"commitLogMaxOffset": "1200", "commitLogMinOffset": "-1"}
    assert asked(answer(0, b"brokerName=a=b\nmappedFileSizeCommitLog=131072\n"), "config") == {
        "brokerName": "a=b",
        "mappedFileSizeCommitLog": "131072",
    }


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (answer(16, b"", "No permission."), "No permission"),
        (b"", "ended inside"),
        (answer(0, b"{}")[:-1], "ended inside"),
        (b"\x7f\xff\xff\xff", "an answer of"),
        (b"\x00\x00\x00\x08" + b"\x01\x00\x00\x04null", "binary header that is cut"),
    ],
)
def test_a_broker_that_refuses_or_answers_garbage_is_named(reply: bytes, why: str) -> None:
    with pytest.raises(ServiceUnavailableError, match=why):
        asked(reply, "config")


def test_addresses_of_settings_are_checked() -> None:
    assert parse_mirror("rocketmq://broker-1:10912") == ("broker-1", 10912)
    assert str(parse_address("[::1]:10911")) == "[::1]:10911"
    for wrong in ("broker-1", "broker-1:", ":10911", "broker-1:0", "broker-1:65536", "broker-1:10x"):
        with pytest.raises(InvalidArgumentError):
            parse_address(wrong)
    with pytest.raises(InvalidArgumentError, match="rocketmq://HOST:HA_PORT"):
        parse_mirror("http://broker-1:10912")


def test_a_slave_is_told_the_address_of_this_machine_as_it_sees_it() -> None:
    heard: list[dict[str, object]] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                heard.append(json.loads(connection.recv(size, socket.MSG_WAITALL)[4:]))
                connection.sendall(answer(0, b""))

        thread = threading.Thread(target=serve)
        thread.start()
        Broker(Address(*listener.getsockname())).tell_master(10912)
        thread.join()
    # RequestCode.EXCHANGE_BROKER_HA_INFO and the field of ExchangeHAInfoRequestHeader
    assert [(each["code"], each["extFields"]) for each in heard] == [(906, {"masterHaAddress": "127.0.0.1:10912"})]
