"""Runs the gateway: `python -m gateway`."""

import services.light_imports  # noqa: F401  # first of all

# isort: split

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.console.opening import open_console
from gateway.fan_out import FanOut
from gateway.freshness import FreshnessGate
from gateway.page_token import PageTokens
from gateway.remote import RemoteShard, found_stored, open_shard
from gateway.rocketmq.admin import AdminServicer
from gateway.rocketmq.servicer import MessagingServicer, add_messaging_to_server
from gateway.search.cel_sandbox import CelSandbox
from gateway.servicer import GatewayServicer, add_to_server
from gateway.settings import GatewaySettings
from gateway.sharding.find import find_shards
from gateway.sharding.summaries import FilterCache
from gateway.sharding.targets import ShardTargets
from gateway.shards import ShardsSource
from services.append_refusals import APPEND_REFUSED
from services.port_calls import PORT_SECONDS
from services.server import ServiceServer, main
from services.settings import Origins
from services.timed_queries import time_queries
from services.tls import TlsIdentity
from store.errors import InvalidSettingError

SERVICE_NAME = "reput.gateway.v1.GatewayService"
ADMIN_NAME = "apache.rocketmq.v2.Admin"
MESSAGING_NAME = "apache.rocketmq.v2.MessagingService"


def serve(server: ServiceServer, settings: GatewaySettings, origins: Origins) -> None:
    """Wires the shards' clients, the servicers and the server."""
    fan_out = FanOut(settings.worker_count)
    filters = FilterCache()
    directory, forwarder = find_shards(server, settings, fan_out, _opener(settings, origins, server.tls, filters))
    shards: ShardsSource = directory
    sign_in = None
    if settings.auth == "on":
        from gateway.auth.opening import require_sign_in  # for those alone who ask for it

        sign_in, shards = require_sign_in(server, settings, directory)
    tokens = PageTokens(settings.page_token_secret)
    sandbox = CelSandbox()
    gate = FreshnessGate(settings.worker_count // 2)
    servicer = GatewayServicer(shards, tokens, sandbox, gate)
    time_queries(servicer, server.meters)
    server.meters.histograms.append(PORT_SECONDS)
    server.meters.counters.append(APPEND_REFUSED)
    server.add(SERVICE_NAME, partial(add_to_server, forwarder=forwarder), servicer)
    server.add(ADMIN_NAME, v2_grpc.add_AdminServicer_to_server, AdminServicer(shards, tokens))
    server.add(MESSAGING_NAME, partial(add_messaging_to_server, forwarder=forwarder), MessagingServicer(shards))
    server.on_stop(fan_out.close)
    server.on_stop(filters.close)
    server.on_stop(sandbox.close)
    server.on_stop(servicer.close)
    server.on_stop(gate.close)
    open_console(server, settings, origins, servicer, sign_in)
    server.set_serving(True)


def _opener(
    settings: GatewaySettings, origins: Origins, tls: TlsIdentity | None, filters: FilterCache
) -> Callable[[ShardTargets], RemoteShard]:
    """Opens a shard, with what the archive has of it; InvalidSettingError where pyarrow is missing."""
    root = settings.archive
    if root is None:
        return partial(open_shard, tls=tls, filters=filters)
    if find_spec("pyarrow") is None:
        raise InvalidSettingError(
            f"settings of gateway: archive = {str(root)!r} ({origins['archive']}) needs pyarrow, which is not installed: "
            "pip install 'reput[pipeline]', or pyarrow alone",
            name="archive",
            source=origins["archive"],
        )
    from gateway.archive import with_archive  # numpy and pyarrow are for gateways with an archive
    from store.archive.archive_reader import ArchiveReader
    from store.archive.parquet_files import ParquetFiles

    parquet = ParquetFiles()

    def open_with_archive(targets: ShardTargets) -> RemoteShard:
        opened = open_shard(targets, tls, filters)
        archive = ArchiveReader(root, targets.broker_name, parquet=parquet)
        found = partial(found_stored, targets.broker_name)
        return replace(opened, shard=with_archive(opened.shard, archive, found))

    return open_with_archive


if __name__ == "__main__":
    main("gateway", GatewaySettings, serve)
