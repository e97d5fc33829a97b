"""Runs the gateway: `python -m gateway`."""

import services.light_imports  # noqa: F401  # first of all

# isort: split

from gateway.append_forwarder import AppendForwarder
from gateway.fan_out import FanOut
from gateway.page_token import PageTokens
from gateway.remote import open_shard
from gateway.servicer import GatewayServicer, add_to_server
from gateway.settings import GatewaySettings
from gateway.shards import Shards
from services.server import ServiceServer, main
from services.settings import Origins

SERVICE_NAME = "reput.gateway.v1.GatewayService"


def serve(server: ServiceServer, settings: GatewaySettings, origins: Origins) -> None:
    """Wires the shards' clients, the servicer and the server."""
    opened = [open_shard(targets) for targets in settings.shard_targets()]
    fan_out = FanOut(settings.worker_count)
    servicer = GatewayServicer(Shards([shard for shard, _ in opened], fan_out), PageTokens(settings.page_token_secret))
    clients = [client for _, client in opened]
    forwarder = AppendForwarder(
        [client.channel for client in clients], settings.worker_count, [client.target for client in clients]
    )
    server.add(SERVICE_NAME, lambda servicer, grpc_server: add_to_server(servicer, forwarder, grpc_server), servicer)
    server.on_stop(fan_out.close)
    server.on_stop(forwarder.close)
    server.set_serving(True)


if __name__ == "__main__":
    main("gateway", GatewaySettings, serve)
