"""Runs the name server: `python -m nameserver_svc`."""

if __name__ == "__main__":
    import services.light_imports  # noqa: F401  # before the others, and in a process of its own only

# isort: split

import ssl
import time
from functools import partial

import structlog

from nameserver_svc.kv_config import KvConfig
from nameserver_svc.requests import NameServer, expire_until
from nameserver_svc.route_table import RouteTable
from nameserver_svc.servicer import NameServerServicer
from nameserver_svc.settings import NameServerSettings
from reput.nameserver.v1 import nameserver_service_pb2_grpc as pb_grpc
from services.rocketmq.address import Address, parse_address
from services.rocketmq.remoting_server import RemotingServer
from services.serving.process import main
from services.serving.server import Service, ServiceServer, write_atomically
from services.settings.service_settings import Origins
from store.errors import InvalidSettingError

_log = structlog.get_logger("reput.nameserver")


def serve(server: ServiceServer, settings: NameServerSettings, origins: Origins) -> None:
    """Puts the service onto a server, and takes the remoting port."""
    table = RouteTable(time.monotonic)
    kv_config = KvConfig(settings.kv_config_path)
    address = parse_address(settings.remoting_address, port_min=0)
    config = {
        "listenPort": str(address.port),
        "orderMessageEnable": str(settings.order_message_enable).lower(),
        "kvConfigPath": str(settings.kv_config_path or ""),
    }
    handler = NameServer(table, kv_config, config, gives_order_config=settings.order_message_enable)
    remoting = RemotingServer(
        "remoting", handler, lambda: _tls_context(server, settings), failed=lambda error: server.fail(1, repr(error))
    )
    server.add(
        "reput.nameserver.v1.NameServerService",
        pb_grpc.add_NameServerServiceServicer_to_server,
        NameServerServicer(table, kv_config),
    )
    server.meters.number(
        "reput_nameserver_brokers", "Addresses of brokers that are registered.", lambda: table.broker_count
    )
    server.meters.number("reput_nameserver_topics", "Topics that have a route.", lambda: table.topic_count)
    server.meters.number(
        "reput_nameserver_connections", "Connections of brokers and clients.", lambda: remoting.connection_count
    )
    bound = listen(remoting, address)
    server.on_stop(handler.close)
    server.on_stop(remoting.close)
    remoting.start()
    if settings.remoting_address_file is not None:
        write_atomically(settings.remoting_address_file, f"{bound}\n")
    _log.info("remoting.listening", address=str(bound))
    server.in_background(partial(expire_until, server.stopping, table), "expire")
    server.set_serving(True)


def listen(remoting: RemotingServer, address: Address) -> Address:
    """Take the port.

    Raises:
        InvalidSettingError: it cannot be bound.
    """
    try:
        return remoting.listen(address)
    except OSError as error:
        raise InvalidSettingError(
            f"nameserver cannot listen at {address}: {error.strerror or error}; set remoting_address to another one",
            name="nameserver_remoting_address",
            source=str(address),
        ) from error


def _tls_context(server: ServiceServer, settings: NameServerSettings) -> ssl.SSLContext | None:
    """For RocketMQ's clients, which show no certificate; None without a certificate of our own."""
    files = settings.remoting_tls_files
    return None if files is None else server.identity_of(files).current().context


SERVICE = Service("nameserver", NameServerSettings, serve)

if __name__ == "__main__":
    main(SERVICE)
