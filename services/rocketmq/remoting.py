"""What Reput asks brokers and name servers of RocketMQ over its remoting protocol (services/rocketmq/command.py), one call a
connection.
"""

import re
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from services.rocketmq.address import Address, NameServer
from services.rocketmq.codes import RequestCode
from services.rocketmq.command import OK, Command, FrameError, decode, encode
from store.errors import ServiceUnavailableError
from store.format.config_json import load_document

if TYPE_CHECKING:
    import ssl

CALL_SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 64 << 20  # a hundred thousand topics take 20 MB
_PROPERTY = re.compile(r"^([^=\n]+)=(.*)$", re.MULTILINE)


class Broker:
    """Asks one broker; each call takes a connection of its own.

    Args:
        address: its own port, `listenPort`.
        signed: signs a request, for a broker that wants that (services/rocketmq/signature.py).
    """

    def __init__(self, address: Address, signed: Callable[[Command], Command] = lambda command: command) -> None:
        self._address = address
        self._signed = signed

    def call(self, code: int, **fields: str) -> bytes:
        """The body of the answer to a request.

        Raises:
            ServiceUnavailableError: there was no answer, or the broker refused.
        """
        return self._answer(code, lambda host: fields)

    def tell_master(self, ha_port: int) -> None:
        """Tells a slave to follow this machine at a port; errors as `call`."""
        self._answer(RequestCode.EXCHANGE_BROKER_HA_INFO, lambda host: {"masterHaAddress": str(Address(host, ha_port))})

    def ask(self, code: int, fields_for: Callable[[str], Mapping[str, str]] = lambda host: {}) -> Command:
        """The answer to a request, which may be a refusal.

        Args:
            code: of the request.
            fields_for: gives its fields for the address of this machine, as the broker reaches it.

        Raises:
            ServiceUnavailableError: there was no answer.
        """
        try:
            with socket.create_connection(self._address, CALL_SECONDS_MAX) as connection:
                host = str(connection.getsockname()[0])
                return exchange(connection, self._signed(Command(code, fields_for(host), opaque=1)))
        except (OSError, FrameError) as error:
            raise ServiceUnavailableError(
                f"the broker at {self._address} did not answer: {error}", service="rocketmq"
            ) from error

    def _answer(self, code: int, fields_for: Callable[[str], Mapping[str, str]]) -> bytes:
        answer = self.ask(code, fields_for)
        if answer.code != OK:
            raise ServiceUnavailableError(
                f"the broker at {self._address} refused request {code}: {answer.remark or answer.code}",
                service="rocketmq",
            )
        return answer.body

    def runtime_info(self) -> dict[str, str]:
        """Its figures about itself: `commitLogMinOffset`, `commitLogMaxOffset`, ...; errors as `call`, StoreCorruptedError."""
        table = load_document(self.call(RequestCode.GET_BROKER_RUNTIME_INFO)).get("table")
        return {str(name): str(value) for name, value in table.items()} if isinstance(table, dict) else {}

    def config(self) -> dict[str, str]:
        """Its settings: `mappedFileSizeCommitLog`, ...; errors as `call`."""
        return dict(_PROPERTY.findall(self.call(RequestCode.GET_BROKER_CONFIG).decode(errors="replace")))


def connect(server: NameServer, seconds: float, tls_context: "Callable[[], ssl.SSLContext]") -> socket.socket:
    """A connection to a name server; each wait takes so long at most. OSError: there is none, or TLS refuses it.

    Args:
        server: the name server.
        seconds: of a wait, also of later ones.
        tls_context: gives the context of a TLS connection.
    """
    connection = socket.create_connection(server.address, seconds)
    if not server.is_tls:
        return connection
    with closing(connection):  # the TLS connection has its descriptor from then on
        return tls_context().wrap_socket(connection, server_hostname=server.address.host)


def ask(
    server: NameServer,
    command: Command,
    seconds: float,
    answer_bytes_max: int,
    tls_context: "Callable[[], ssl.SSLContext]",
) -> Command:
    """The answer of a name server to one request, over a connection of its own; arguments as `connect`.

    Raises:
        ServiceUnavailableError: there was none.
    """
    try:
        with connect(server, seconds, tls_context) as connection:
            return exchange(connection, command, answer_bytes_max)
    except (OSError, FrameError) as error:
        raise ServiceUnavailableError(f"{server} did not answer: {error}", service="rocketmq") from error


def exchange(connection: socket.socket, command: Command, answer_bytes_max: int = ANSWER_BYTES_MAX) -> Command:
    """The answer to the only request of a connection.

    Raises:
        OSError: the connection broke, or ended inside an answer.
        FrameError: what came is no answer, or too long.
    """
    connection.sendall(encode(command))
    with connection.makefile("rb") as stream:
        size_bytes = int.from_bytes(_exactly(stream.read, 4), "big")
        if not 4 <= size_bytes <= answer_bytes_max:
            raise FrameError(f"an answer of {size_bytes} bytes")
        return decode(_exactly(stream.read, size_bytes))


def _exactly(read: Any, size_bytes: int) -> bytes:
    data: bytes = read(size_bytes)
    if len(data) != size_bytes:
        raise ConnectionError("the connection ended inside an answer")
    return data
