"""Puts together what a gateway knows its shards by, and the way that appends take to them."""

from collections.abc import Callable, Sequence
from functools import partial

import structlog

from gateway.appends.forwarder import AppendForwarder, AppendTarget
from gateway.appends.route_watch import RouteWatch
from gateway.appends.routes import AppendRoutes
from gateway.fan_out import FanOut
from gateway.remote import RemoteShard
from gateway.settings import GatewaySettings
from gateway.sharding.directory import ShardDirectory
from gateway.sharding.discovery import Discovery, ShardFile, ShardOrdinals, ShardSource
from gateway.sharding.guard import guarded
from gateway.sharding.targets import ShardTargets, parse_template
from services.clients.commitlog import CommitLogClient
from services.server import ServiceServer
from services.tls import TlsIdentity
from store.errors import StoreError

# What a new ordinal has to say who it is.
ASK_SECONDS = 2.0

_log = structlog.get_logger("reput.gateway")


def commitlog_answers(targets: ShardTargets, tls: TlsIdentity | None = None) -> bool:
    """Whether the shard's commitlog is there, also one that is being recovered, and has the shard's name."""
    client = CommitLogClient(targets.commitlog, tls=tls)
    try:
        broker_name = client.get_status(timeout_seconds=ASK_SECONDS).broker_name
    except StoreError:
        return False
    finally:
        client.close()
    if broker_name != targets.broker_name:
        _log.warning(
            "shard.has_another_name",
            commitlog=targets.commitlog,
            broker_name=broker_name,
            expected_name=targets.broker_name,
        )
        return False
    return True


def find_shards(
    server: ServiceServer,
    settings: GatewaySettings,
    fan_out: FanOut,
    open_shard: Callable[[ShardTargets], RemoteShard],
) -> tuple[ShardDirectory[RemoteShard], AppendForwarder]:
    """The shards of a gateway, and the way for appends to them; both follow what is discovered until the server stops.

    Raises:
        InvalidSettingError: the file of shards cannot be used.
    """
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

    directory: ShardDirectory[RemoteShard] = ShardDirectory(
        open_shard,
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
    server.on_stop(forwarder.close)
    server.on_stop(discovery.stop)
    server.on_stop(watch.stop)
    return directory, forwarder


def _source(settings: GatewaySettings, tls: TlsIdentity | None) -> ShardSource | None:
    """What may tell of more shards than those that are known at the start."""
    if settings.shards_file is not None:
        return ShardFile(settings.shards_file)
    if settings.shard_template and settings.shard_count < settings.shard_count_max:
        template = parse_template(settings.shard_template)
        return ShardOrdinals(
            template, settings.shard_count, settings.shard_count_max, partial(commitlog_answers, tls=tls)
        )
    return None
