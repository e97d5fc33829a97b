"""Runs the gateway: `python -m gateway`."""

import services.light_imports  # noqa: F401  # first of all

# isort: split

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.append_forwarder import AppendForwarder
from gateway.fan_out import FanOut
from gateway.page_token import PageTokens
from gateway.ports import Shard
from gateway.remote import found_stored, open_shard
from gateway.rocketmq.admin import AdminServicer
from gateway.rocketmq.servicer import MessagingServicer, add_messaging_to_server
from gateway.search.cel_sandbox import CelSandbox
from gateway.servicer import GatewayServicer, add_to_server
from gateway.settings import GatewaySettings
from gateway.shards import Shards
from services.server import ServiceServer, main
from services.settings import Origins
from store.errors import InvalidSettingError

SERVICE_NAME = "reput.gateway.v1.GatewayService"
ADMIN_NAME = "apache.rocketmq.v2.Admin"
MESSAGING_NAME = "apache.rocketmq.v2.MessagingService"


def serve(server: ServiceServer, settings: GatewaySettings, origins: Origins) -> None:
    """Wires the shards' clients, the servicers and the server."""
    opened = [open_shard(targets) for targets in settings.shard_targets()]
    fan_out = FanOut(settings.worker_count)
    asked = [shard for shard, _ in opened]
    if settings.archive is not None:
        asked = _with_archives(asked, settings.archive, origins)
    shards = Shards(asked, fan_out)
    tokens = PageTokens(settings.page_token_secret)
    sandbox = CelSandbox()
    clients = [client for _, client in opened]
    forwarder = AppendForwarder(
        [client.channel for client in clients], settings.worker_count, [client.target for client in clients]
    )
    server.add(SERVICE_NAME, partial(add_to_server, forwarder=forwarder), GatewayServicer(shards, tokens, sandbox))
    server.add(ADMIN_NAME, v2_grpc.add_AdminServicer_to_server, AdminServicer(shards, tokens))
    server.add(MESSAGING_NAME, partial(add_messaging_to_server, forwarder=forwarder), MessagingServicer(shards))
    server.on_stop(fan_out.close)
    server.on_stop(sandbox.close)
    server.on_stop(forwarder.close)
    server.set_serving(True)


def _with_archives(shards: Sequence[Shard], root: Path, origins: Origins) -> list[Shard]:
    """The shards with what the archive has of each; InvalidSettingError where pyarrow is missing."""
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
    return [
        with_archive(
            shard,
            ArchiveReader(root, shard.broker_name, parquet=parquet),
            partial(found_stored, shard.broker_name),
        )
        for shard in shards
    ]


if __name__ == "__main__":
    main("gateway", GatewaySettings, serve)
