"""Runs the gateway: `python -m gateway`. All objects are connected here."""

import services.light_imports  # noqa: F401  # must be the first import

# isort: split

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from console.opening import open_console
from gateway.appends.forwarder import AppendForwarder, AppendTarget
from gateway.appends.route_watch import RouteWatch
from gateway.appends.routes import AppendRoutes
from gateway.ports.fan_out import FanOut
from gateway.queries.freshness import FreshnessWaits
from gateway.queries.page_token import PageTokens
from gateway.rocketmq.admin import AdminServicer
from gateway.rocketmq.servicer import MessagingServicer, add_messaging_to_server
from gateway.search.cel_sandbox import CelSandbox
from gateway.servicer import GatewayServicer, add_to_server
from gateway.settings import GatewaySettings
from gateway.shards.directory import ShardDirectory
from gateway.shards.discovery import Discovery, ShardFile, ShardOrdinals, ShardSource
from gateway.shards.guard import guarded
from gateway.shards.remote import RemoteShard, commitlog_answers, found_stored, open_shard
from gateway.shards.summaries import FilterCache
from gateway.shards.targets import ShardTargets, parse_template
from gateway.timed_queries import QUERY_SECONDS
from gateway.wire import MessageShardsSource
from reput.message.v1.message_pb2 import StoredMessage
from services.calling.port_calls import PORT_SECONDS
from services.observing.append_refusals import APPEND_REFUSED
from services.observing.telemetry import get_audit_logger
from services.serving.server import ServiceServer, main
from services.serving.tls import TlsIdentity
from services.settings.service_settings import Origins
from store.errors import InvalidSettingError

if TYPE_CHECKING:
    from gateway.auth.guard import GatewayGuard

SERVICE_NAME = "reput.gateway.v1.GatewayService"
ADMIN_NAME = "apache.rocketmq.v2.Admin"
MESSAGING_NAME = "apache.rocketmq.v2.MessagingService"
# Addresses that are reachable from this machine only.
LOCAL_PREFIXES = ("127.", "[::1]", "localhost", "unix:")

_log = structlog.get_logger("reput.gateway")


def serve(server: ServiceServer, settings: GatewaySettings, origins: Origins) -> None:
    """Connects the shards, the servicers, the console and the server.

    Raises:
        InvalidSettingError: a setting names a file, an address or a package that cannot be used.
    """
    fan_out = FanOut(settings.worker_count)
    filters = FilterCache()
    directory, forwarder = find_shards(server, settings, fan_out, _opener(settings, origins, server.tls, filters))
    shards: MessageShardsSource = directory
    guard = None
    if settings.auth == "on":
        guard, shards = _require_sign_in(server, settings, directory)
    tokens = PageTokens(settings.page_token_secret)
    sandbox = CelSandbox()
    waits = FreshnessWaits(settings.worker_count // 2, builder_wait_seconds=settings.builder_wait_millis / 1000)
    servicer = GatewayServicer(shards, tokens, sandbox, waits)
    server.meters.histograms += [QUERY_SECONDS, PORT_SECONDS]
    server.meters.counters.append(APPEND_REFUSED)
    server.add(SERVICE_NAME, partial(add_to_server, forwarder=forwarder), servicer)
    server.add(ADMIN_NAME, v2_grpc.add_AdminServicer_to_server, AdminServicer(shards, tokens, waits))
    server.add(MESSAGING_NAME, partial(add_messaging_to_server, forwarder=forwarder), MessagingServicer(shards))
    for close in (fan_out.close, filters.close, sandbox.close, servicer.close, waits.close):
        server.on_stop(close)
    open_console(server, settings, origins, servicer, guard)
    server.set_serving(True)


def find_shards(
    server: ServiceServer,
    settings: GatewaySettings,
    fan_out: FanOut,
    open_remote: Callable[[ShardTargets], RemoteShard],
) -> tuple[ShardDirectory[RemoteShard, StoredMessage], AppendForwarder]:
    """The shards and the forwarder of appends; both follow the discovery of shards until the server stops."""
    routes = AppendRoutes()
    forwarder = AppendForwarder(alone_count=settings.worker_count, routes=routes)
    discovery = Discovery(settings.shards_poll_seconds)

    def known() -> None:
        watch.wake()

    def changed(opened: Sequence[RemoteShard]) -> None:
        forwarder.keep(
            [AppendTarget(one.targets.broker_name, one.commitlog.channel, one.commitlog.target) for one in opened],
            discovery.retire,
        )

    directory: ShardDirectory[RemoteShard, StoredMessage] = ShardDirectory(
        open_remote,
        fan_out,
        retire=discovery.retire,
        guard=partial(guarded, thread_count=settings.worker_count),
        changed=changed,
        known=known,
    )
    watch = RouteWatch(directory, routes)
    source = _source(settings, server.tls)
    directory.keep(source.look() if isinstance(source, ShardFile) else settings.shard_targets())
    if source is not None:
        discovery.start(source, directory)
    watch.start()
    for stop in (forwarder.close, discovery.stop, watch.stop):
        server.on_stop(stop)
    return directory, forwarder


def _source(settings: GatewaySettings, tls: TlsIdentity | None) -> ShardSource | None:
    """The source of further shards while the gateway runs; None when the settings name all of them."""
    if settings.shards_file is not None:
        return ShardFile(settings.shards_file)
    if settings.shard_template and settings.shard_count < settings.shard_count_max:
        template = parse_template(settings.shard_template)
        return ShardOrdinals(
            template, settings.shard_count, settings.shard_count_max, partial(commitlog_answers, tls=tls)
        )
    return None


def _opener(
    settings: GatewaySettings, origins: Origins, tls: TlsIdentity | None, filters: FilterCache
) -> Callable[[ShardTargets], RemoteShard]:
    """Opens a shard, with its archive if there is one; InvalidSettingError when an archive needs pyarrow and it is missing."""
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
    # numpy and pyarrow are loaded only by gateways with an archive.
    from gateway.shards.archived.shard import with_archive
    from store.archive.archive_reader import ArchiveReader
    from store.archive.parquet_files import ParquetFiles

    parquet = ParquetFiles()

    def open_with_archive(targets: ShardTargets) -> RemoteShard:
        opened = open_shard(targets, tls, filters)
        archive = ArchiveReader(root, targets.broker_name, parquet=parquet)
        found = partial(found_stored, targets.broker_name)
        return replace(opened, shard=with_archive(opened.shard, archive, found))

    return open_with_archive


def _require_sign_in(
    server: ServiceServer, settings: GatewaySettings, source: MessageShardsSource
) -> "tuple[GatewayGuard, MessageShardsSource]":
    """Puts the guard before all handlers: the guard, and the shards limited to what the caller may see.

    Raises:
        InvalidSettingError: the access file or the file of JWT keys cannot be used.
    """
    # Loaded only by gateways that check callers.
    from gateway.auth.access_file import WatchedFile, parse_clients
    from gateway.auth.audit import WINDOW_SECONDS, Audit
    from gateway.auth.caller_shards import CallerShards
    from gateway.auth.guard import GatewayGuard
    from gateway.auth.jwt_tokens import JwtTokens
    from gateway.auth.sign_in import SignIn

    assert settings.access_file is not None, "checked with the settings"
    jwts = None
    if settings.jwt_keys_file is not None:
        jwts = JwtTokens(
            settings.jwt_keys_file,
            settings.jwt_issuer,
            settings.jwt_audience,
            clock=time.monotonic,
            wall_clock=time.time,
        )
    clients = WatchedFile("access_file", settings.access_file, parse_clients, time.monotonic)
    audit = Audit(get_audit_logger().info, time.monotonic)
    guard = GatewayGuard(SignIn(clients, jwts, asks_certificates=settings.client_ca is not None), audit)
    server.guard_calls(guard)
    server.on_stop(audit.close)

    def flush() -> None:
        while not server.stopping.wait(WINDOW_SECONDS):
            audit.flush()

    threading.Thread(target=flush, name="gateway-audit", daemon=True).start()
    if settings.server_tls_files is None and not settings.address.startswith(LOCAL_PREFIXES):
        _log.warning("auth.in_the_clear", address=settings.address, hint="API keys and JWTs travel without TLS")
    return guard, CallerShards(source, StoredMessage())


if __name__ == "__main__":
    main("gateway", GatewaySettings, serve)
