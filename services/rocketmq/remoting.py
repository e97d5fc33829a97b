"""The part of RocketMQ's remoting protocol that a slave needs: one request to a broker, one answer. Numbers are big-endian.

    0   u32   length of what follows (bytes)
    4   u8    how the header is written: 0 is JSON
    5   u24   length of the header (bytes)
    8         header: {"code": 21, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0, "extFields": {...}}
              body

`code` of a request says what is asked, `code` of an answer 0 for success; then `remark` is absent. Bit 0 of `flag` marks an
answer. Sources: `RemotingCommand`, `RequestCode` of RocketMQ 5.3.3.
"""

import contextlib
import json
import re
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from services.rocketmq.address import Address
from store.errors import RecordCorruptedError, ServiceUnavailableError
from store.format.config_json import load_document

GET_ALL_TOPIC_CONFIG, GET_BROKER_CONFIG, GET_BROKER_RUNTIME_INFO = 21, 26, 28
EXCHANGE_BROKER_HA_INFO = 906
GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET, GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 43, 45, 201

OK = 0
CALL_SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 64 << 20  # a hundred thousand topics take 20 MB
_LENGTHS = struct.Struct(">II")
_PROPERTY = re.compile(r"^([^=\n]+)=(.*)$", re.MULTILINE)

assert _LENGTHS.size == 8


def encode_request(code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """The bytes of a request."""
    header = json.dumps(
        {"code": code, "language": "OTHER", "version": 0, "opaque": 1, "flag": 0, "extFields": dict(fields or {})}
    ).encode()
    return _LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body


def decode_answer(frame: bytes) -> tuple[int, str, bytes]:
    """Code, remark and body of an answer without its first length.

    Raises:
        RecordCorruptedError: it is no answer with a JSON header.
    """
    try:
        header_size = int.from_bytes(frame[1:4], "big")
        header: Any = json.loads(frame[4 : 4 + header_size])
        if frame[0] or not isinstance(header, dict):
            raise ValueError("its header is no JSON object")
        return int(header["code"]), str(header.get("remark") or ""), frame[4 + header_size :]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise RecordCorruptedError(f"this is no answer of RocketMQ's remoting protocol: {error}") from error


class Broker:
    """Asks one broker; each call takes a connection of its own.

    Args:
        address: its own port, `listenPort`.
    """

    def __init__(self, address: Address) -> None:
        self._address = address

    def call(self, code: int) -> bytes:
        """The body of the answer to a request without fields.

        Raises:
            ServiceUnavailableError: there was no answer, or the broker refused.
        """
        return self._answer(code, lambda host: {})

    def tell_master(self, ha_port: int) -> None:
        """Tells a slave to follow this machine at a port; errors as `call`."""
        self._answer(EXCHANGE_BROKER_HA_INFO, lambda host: {"masterHaAddress": str(Address(host, ha_port))})

    def _answer(self, code: int, fields_for: Callable[[str], Mapping[str, str]]) -> bytes:
        try:
            answer_code, remark, body = decode_answer(self._exchange(code, fields_for))
        except (OSError, RecordCorruptedError) as error:
            raise ServiceUnavailableError(
                f"the broker at {self._address} did not answer: {error}", service="rocketmq"
            ) from error
        if answer_code != OK:
            raise ServiceUnavailableError(
                f"the broker at {self._address} refused request {code}: {remark or answer_code}", service="rocketmq"
            )
        return body

    def runtime_info(self) -> dict[str, str]:
        """Its figures about itself: `commitLogMinOffset`, `commitLogMaxOffset`, ...; errors as `call`, StoreCorruptedError."""
        table = load_document(self.call(GET_BROKER_RUNTIME_INFO)).get("table")
        return {str(name): str(value) for name, value in table.items()} if isinstance(table, dict) else {}

    def config(self) -> dict[str, str]:
        """Its settings: `mappedFileSizeCommitLog`, ...; errors as `call`."""
        return dict(_PROPERTY.findall(self.call(GET_BROKER_CONFIG).decode(errors="replace")))

    def _exchange(self, code: int, fields_for: Callable[[str], Mapping[str, str]]) -> bytes:
        with (
            contextlib.closing(socket.create_connection(self._address, CALL_SECONDS_MAX)) as connection,
            connection.makefile("rb") as stream,
        ):
            host = str(connection.getsockname()[0])  # of this machine, as the broker reaches it
            connection.sendall(encode_request(code, fields_for(host)))
            size_bytes = int.from_bytes(_exactly(stream.read, 4), "big")
            if not 4 <= size_bytes <= ANSWER_BYTES_MAX:
                raise RecordCorruptedError(f"an answer of {size_bytes} bytes")
            return _exactly(stream.read, size_bytes)


def _exactly(read: Any, size_bytes: int) -> bytes:
    data: bytes = read(size_bytes)
    if len(data) != size_bytes:
        raise ConnectionError("the connection ended inside an answer")
    return data
