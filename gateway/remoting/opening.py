"""Opens the remoting doors of a gateway: a port for each shard, because requests of many clients name no broker (ADR 0127)."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from gateway.remoting import (
    assignments,
    broker,
    groups,
    lite,
    members,
    pops,
    positions,
    pulls,
    queries,
    sends,
    topics,
    transactions,
    users,
)
from gateway.remoting.door import Door, Handler, SignIn
from gateway.remoting.door_shard import DoorShard
from services.rocketmq.address import Address
from services.rocketmq.proxy_header import Networks, is_in
from services.rocketmq.remoting_server import Connection, RemotingServer
from services.serving.server import ServiceServer, write_atomically
from store.errors import InvalidSettingError

# RocketMQ's fast port, for clients with `vipChannelEnabled`.
FAST_PORT_BELOW = 2
ROOMS: Sequence[Callable[[DoorShard], Mapping[int, Handler]]] = (
    assignments.handlers,
    broker.handlers,
    groups.handlers,
    lite.handlers,
    members.handlers,
    pops.handlers,
    positions.handlers,
    pulls.handlers,
    queries.handlers,
    sends.handlers,
    topics.handlers,
    transactions.handlers,
    users.handlers,
)

_log = structlog.get_logger("reput.remoting")


class OpenDoor:
    """A door and its port.

    Args:
        shard: what the door serves.
        tls_context: the context of each new TLS connection, or None.
        tls_only: connections without TLS are closed.
        has_fast_port: a fixed port has its fast port beside it.
        failed: called when nothing is served any more.
        sign_in: finds the rights of each request; None: every client may do everything.
        door_count: doors of this process: the limits of their connections share its memory.
        proxies: whose connections begin with the header of a proxy.

    Attributes:
        address: the bound one, when it listens.
    """

    def __init__(
        self,
        shard: DoorShard,
        tls_context: Callable[[], ssl.SSLContext | None] = lambda: None,
        *,
        tls_only: bool = False,
        has_fast_port: bool = True,
        failed: Callable[[Exception], object] = lambda error: None,
        sign_in: SignIn | None = None,
        door_count: int = 1,
        proxies: Networks = (),
    ) -> None:
        table: dict[int, Handler] = {}
        for handlers in ROOMS:
            table.update(handlers(shard))
        self._shard = shard
        self._has_fast_port = has_fast_port
        self._door = Door(table, shard.clients, sign_in=sign_in)
        self.server = RemotingServer(
            f"remoting-{shard.broker_name}",
            self._door,
            tls_context,
            tls_only=tls_only,
            failed=failed,
            turn_ended=self._end_turn,
            take=self._take,
            server_count=door_count,
            is_proxy=lambda host: is_in(host, proxies),
        )
        self.address = Address("", 0)

    def open(self, address: Address) -> Address:
        """Take the port and begin to serve; a fixed port has its fast port beside it, if that is free. OSError."""
        self.address = self.server.listen(address)
        if self._has_fast_port and address.port > FAST_PORT_BELOW:
            fast = Address(address.host, address.port - FAST_PORT_BELOW)
            try:
                self.server.listen(fast)
            except OSError as error:
                _log.warning("remoting.no_fast_port", address=str(fast), error=str(error))
        self._shard.topics.start()
        self.server.start()
        return self.address

    def _end_turn(self) -> None:
        for end_turn in self._shard.on_turn_ended:
            try:
                end_turn()
            except Exception:  # a bug must not end the loop of all connections
                _log.exception("request.failed")

    def _take(self, connection: Connection, frame: bytes) -> Callable[[], object] | None:
        if self._door.signs_in:
            return None
        for take in self._shard.takers:
            begin = take(connection, frame, self._door.ask_of)
            if begin is not None:
                return begin
        return None

    def close(self) -> None:
        """End all connections."""
        for close in self._shard.on_close:  # before the ends of connections, which are none of their clients
            close()
        self.server.close()
        self._shard.topics.close()
        self._door.close()


def open_doors(
    server: ServiceServer,
    doors: Mapping[str, Address],
    shard_of: Callable[[str], DoorShard],
    address_file: Path | None,
    tls_context: Callable[[], ssl.SSLContext | None],
    *,
    tls_only: bool,
    has_fast_ports: bool,
    sign_in: SignIn | None = None,
    proxies: Networks = (),
) -> None:
    """Open a door for each shard that has an address; they are closed with the server.

    Args:
        server: of the gateway.
        doors: where each listens, by the shard's name.
        shard_of: gives what a door has of its shard.
        address_file: gets the bound addresses.
        tls_context: the context of each new TLS connection, or None.
        tls_only: connections without TLS are closed.
        has_fast_ports: fixed ports have their fast ports beside them.
        sign_in: finds the rights of each request; None: every client may do everything.
        proxies: whose connections begin with the header of a proxy.

    Raises:
        InvalidSettingError: a port cannot be bound.
    """
    bound: list[str] = []
    servers: dict[str, RemotingServer] = {}
    server.meters.gauge(
        "reput_gateway_remoting_connections",
        "Connections of RocketMQ's clients.",
        lambda: {(name,): float(each.connection_count) for name, each in servers.items()},
        ("broker_name",),
    )
    for name, address in doors.items():
        door = OpenDoor(
            shard_of(name),
            tls_context,
            tls_only=tls_only,
            has_fast_port=has_fast_ports,
            failed=lambda error: server.fail(1, repr(error)),
            sign_in=sign_in,
            door_count=len(doors),
            proxies=proxies,
        )
        try:
            listening = door.open(address)
        except OSError as error:
            door.close()
            raise InvalidSettingError(
                f"gateway cannot listen at {address}: {error.strerror or error}; set remoting_address to another one",
                name="remoting_address",
                source=str(address),
            ) from error
        server.on_stop(door.close)
        servers[name] = door.server
        bound.append(f"{name}={listening}" if len(doors) > 1 else str(listening))
        _log.info("remoting.listening", address=str(listening), broker_name=name)
    if address_file is not None and bound:
        write_atomically(address_file, "".join(f"{line}\n" for line in bound))
