"""Runs the gateway: `python -m gateway`. All objects are connected here."""

if __name__ == "__main__":
    import ssl  # before asyncio, for the console's web server: see light_imports

    import services.light_imports  # noqa: F401  # before the others, and in a process of its own only

# isort: split

import secrets
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import structlog

from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.appends.forwarder import AppendForwarder, AppendTarget
from gateway.appends.routes import AppendRoutes, RouteWatch
from gateway.delivery.shards import DeliveryShards
from gateway.delivery.timers import Timers
from gateway.delivery.waiting_room import ALL_FILTERS_CHARACTERS_MAX, WaitingRoom
from gateway.groups.asked_members import AskedMembers
from gateway.ports.chain import Concern
from gateway.ports.shard import Shard
from gateway.ports.shards import FanOut, ShardsSource
from gateway.queries.freshness import FreshnessWaits
from gateway.queries.page import KNOWN_TO_ALL, PageTokens
from gateway.reput.groups import GroupDelivery, LetterAppends
from gateway.reput.pulling import PullStreams
from gateway.reput.query_methods import QUERY_SECONDS
from gateway.reput.requests import Requests
from gateway.reput.servicer import GatewayServicer, add_to_server
from gateway.reput.waiting import WaitingCalls
from gateway.rocketmq.admin import AdminServicer
from gateway.rocketmq.asked_members import MessagingMembers
from gateway.rocketmq.clients import Clients
from gateway.rocketmq.receiving import PollLimits
from gateway.rocketmq.servicer import MessagingServicer, WaitingMessages, add_messaging_to_server
from gateway.rocketmq.topic_types import TopicTypes
from gateway.search.cel_sandbox import CelSandbox
from gateway.settings import GatewaySettings
from gateway.shards.directory import ShardDirectory
from gateway.shards.discovery import Discovery, ShardFile, ShardOrdinals, ShardSource
from gateway.shards.guard import guarded
from gateway.shards.leaders import Leaders, RoleClients
from gateway.shards.remote import RemoteShard, commitlog_answers, found_stored, open_shard
from gateway.shards.remote_delivery import RemoteDelivering
from gateway.shards.replica_choice import ReadFrom
from gateway.shards.replica_reads import REPLICA_READS, ReplicaReads
from gateway.shards.store_facts import with_facts
from gateway.shards.summaries import FilterCache
from gateway.shards.targets import ShardTargets, parse_template
from gateway.waiting.endings import Endings
from gateway.waiting.keeping import ProducerKeeping
from gateway.waiting.producers import Producers
from gateway.waiting.shards import SchedulingShards
from services.calling.client import ServiceClient
from services.calling.port_calls import PORT_SECONDS
from services.observing.meters import APPEND_REFUSED
from services.observing.telemetry import get_audit_logger
from services.serving.admission.shares import Shares
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.serving.tls import TlsIdentity
from services.settings.service_settings import Origins
from store.errors import InvalidArgumentError, InvalidSettingError

if TYPE_CHECKING:
    import ssl

    from gateway.auth.audit import Audit
    from gateway.auth.client_ids import ClientIds
    from gateway.auth.guard import GatewayGuard
    from gateway.auth.sign_in import SignIn
    from gateway.tenants.limited_delivering import LimitedDelivering
    from gateway.tenants.tenants import Tenants

SERVICE_NAME = "reput.gateway.v1.GatewayService"
ADMIN_NAME = "apache.rocketmq.v2.Admin"
MESSAGING_NAME = "apache.rocketmq.v2.MessagingService"
# Addresses that are reachable from this machine only.
LOCAL_PREFIXES = ("127.", "[::1]", "localhost", "unix:")

# Opens a shard at its addresses.
OpenShard: TypeAlias = Callable[[ShardTargets], RemoteShard]

_log = structlog.get_logger("reput.gateway")


def serve(server: ServiceServer, settings: GatewaySettings, origins: Origins) -> None:
    """Connects the shards, the servicers, the console and the server.

    Raises:
        InvalidSettingError: a setting names a file, an address or a package that cannot be used.
    """
    fan_out = FanOut(settings.worker_count)
    filters = FilterCache()
    timers = Timers()
    room = WaitingRoom(timers, filters=Shares(ALL_FILTERS_CHARACTERS_MAX))
    delivering = DeliveryShards(room)
    tenants = _open_tenants(server, settings)
    clients = Clients(delivering, tenants=tenants)
    delivering_by = RemoteDelivering if tenants is None else _limited(tenants, timers)
    open_bare = partial(open_shard, tls=server.tls, filters=filters, delivering_by=delivering_by)
    open_remote = _opener(settings, origins, open_bare)
    producers = Producers()
    gateway_id = uuid.uuid4().hex
    scheduling = SchedulingShards(producers, gateway_id)
    endings = Endings(scheduling)
    keeping = ProducerKeeping(producers, scheduling, gateway_id)
    directory, forwarder, reads = find_shards(
        server, settings, fan_out, open_remote, delivering, scheduling, tenants=tenants
    )
    if tenants is not None:
        tenants.follow(directory, server.stopping)
    shards: ShardsSource = reads
    guard, sign_in = None, None
    appends = LetterAppends(forwarder)
    may_consume: Callable[[str], object] | None = None
    if settings.auth == "on":
        from gateway.auth.caller_shards import check_group, check_topic

        sign_in = _require_sign_in(server, settings, reads)
        guard, shards = sign_in.guard, sign_in.shards
        appends = LetterAppends(forwarder, check_topic)
        may_consume = check_group
    tokens = PageTokens(_token_secret(settings))
    sandbox = CelSandbox()
    requests = Requests(directory, delivering, room, timers, forwarder, settings.cluster_name, gateway_id)
    waits = FreshnessWaits(settings.worker_count // 2, builder_wait_seconds=settings.builder_wait_millis / 1000)
    delivery = GroupDelivery(delivering, PullStreams(delivering, room), appends)
    read_from = ReadFrom(settings.read_from)
    servicer = GatewayServicer(
        shards, tokens, sandbox, waits, delivery, reads, read_from, answers_at_once=_is_beside_its_shard(settings)
    )
    servicer.trace_topic = settings.trace_topic
    servicer.tenants = tenants
    members = MessagingMembers(clients, timers)
    servicer.asked_members.ways.append(members)
    delivering.on_arrivals.append(members.hear)
    server.meters.histograms += [QUERY_SECONDS, PORT_SECONDS]
    server.meters.counters += [APPEND_REFUSED, REPLICA_READS]
    calls = WaitingCalls(endings, requests)
    server.add(SERVICE_NAME, partial(add_to_server, forwarder=forwarder, waiting=calls), servicer)
    server.add(ADMIN_NAME, v2_grpc.add_AdminServicer_to_server, AdminServicer(shards, tokens, waits))
    waiting = WaitingMessages(endings, producers, settings.delivery_delay_seconds_max)
    limits = PollLimits(settings.receive_invisible_millis_min, settings.poll_millis_min / 1000)
    types = TopicTypes(directory)
    messaging = MessagingServicer(
        shards, delivering, room, clients, members, server.work, types, waiting, limits, check_group=may_consume
    )
    server.add(MESSAGING_NAME, partial(add_messaging_to_server, forwarder=forwarder), messaging)
    for close in (fan_out.close, filters.close, sandbox.close, servicer.close, waits.close):
        server.on_stop(close)
    server.on_drain(room.close)
    # The last one is called first, and still needs the shards.
    in_use = (timers.close, delivering.close, scheduling.close, clients.close, keeping.close, messaging.receiving.close)
    for close in in_use:
        server.on_stop(close)
    timers.start()
    clients.start()
    keeping.start()
    if settings.remoting_address:
        _open_doors(
            server,
            settings,
            directory,
            sign_in,
            delivering,
            room,
            timers,
            forwarder,
            waiting,
            waits,
            servicer.asked_members,
            tenants,
        )
    if settings.console == "on":
        from console.opening import open_console

        offers = {
            "AppendMessages": forwarder.append_messages,
            "RecallMessage": calls.recall_message,
            "EndTransaction": calls.end_transaction,
        }
        open_console(server, settings, origins, servicer, offers, guard)
    server.set_serving(True)


def _open_doors(
    server: ServiceServer,
    settings: GatewaySettings,
    shards: ShardsSource,
    sign_in: "RequiredSignIn | None",
    delivering: DeliveryShards,
    room: WaitingRoom,
    timers: Timers,
    forwarder: AppendForwarder,
    waiting: WaitingMessages,
    waits: FreshnessWaits,
    asked_members: AskedMembers,
    tenants: "Tenants | None",
) -> None:
    """Open the remoting doors; InvalidSettingError when a port cannot be bound."""
    # Loaded only by gateways that have some.
    from gateway.remoting.builder_waits import BuilderWaits
    from gateway.remoting.door_clients import DoorClients
    from gateway.remoting.door_shard import DoorShard
    from gateway.remoting.opening import open_doors
    from gateway.remoting.topic_copy import TopicCopy
    from services.rocketmq.proxy_header import parse_networks

    doors = settings.doors()
    callers: ShardsSource | None = None
    of_door = None
    if sign_in is not None:
        from gateway.auth.caller_shards import CallerShards
        from gateway.auth.door_guard import DoorGuard

        callers = CallerShards(shards)
        of_door = DoorGuard(sign_in.sign_in, sign_in.audit, sign_in.client_ids)

    def shard_of(name: str) -> DoorShard:
        return DoorShard(
            broker_name=name,
            cluster_name=settings.cluster_name,
            listens_at=str(doors[name]),
            source=shards if callers is None else callers,
            whole=shards,
            deliverings=delivering,
            endings=waiting.endings,
            producers=waiting.producers,
            forwarder=forwarder,
            room=room,
            clients=DoorClients(),
            topics=TopicCopy(lambda: shards.now().named(name)),
            waits=waits,
            builder_waits=BuilderWaits(timers),
            on_arrivals=delivering.on_arrivals,
            asked_members=asked_members,
            tenants=tenants,
            nameserver_tls=partial(settings.client_context, settings.nameservers_ca),
        )

    def tls_context() -> "ssl.SSLContext | None":
        files = settings.server_tls_files
        return None if files is None else server.identity_of(files).current().context

    open_doors(
        server,
        doors,
        shard_of,
        settings.remoting_address_file,
        tls_context,
        tls_only=settings.are_doors_tls_only,
        has_fast_ports=settings.remoting_vip_channel == "on",
        sign_in=of_door,
        proxies=parse_networks(settings.remoting_proxies),
    )


def _open_tenants(server: ServiceServer, settings: GatewaySettings) -> "Tenants | None":
    """The quotas of namespaces; None: there are none. InvalidSettingError when the tenants file cannot be used."""
    if settings.tenants_file is None:
        return None
    # Loaded only by gateways that have quotas.
    from gateway.auth.access_file import WatchedFile
    from gateway.tenants.tenants import Tenants
    from gateway.tenants.tenants_file import parse_tenants_file

    tenants = Tenants(WatchedFile("tenants_file", settings.tenants_file, parse_tenants_file, time.monotonic).current)
    tenants.show(server.meters)
    return tenants


def _limited(tenants: "Tenants", timers: Timers) -> Callable[[str, ServiceClient], "LimitedDelivering"]:
    from gateway.tenants.limited_delivering import LimitedDelivering

    return partial(LimitedDelivering, tenants, timers, time.monotonic)


def _token_secret(settings: GatewaySettings) -> str:
    """What page tokens are encrypted with: nothing that everybody knows where clients may not see everything."""
    if settings.auth != "on" or settings.page_token_secret != KNOWN_TO_ALL:
        return settings.page_token_secret
    _log.info(
        "auth.page_tokens_of_one_gateway",
        hint="several gateways of the same clients need the same REPUT_GATEWAY_PAGE_TOKEN_SECRET",
    )
    return secrets.token_hex(32)


def find_shards(
    server: ServiceServer,
    settings: GatewaySettings,
    fan_out: FanOut,
    open_remote: Callable[[ShardTargets], RemoteShard],
    delivering: DeliveryShards | None = None,
    scheduling: SchedulingShards | None = None,
    *,
    tenants: "Tenants | None" = None,
) -> tuple[ShardDirectory[RemoteShard], AppendForwarder, ReplicaReads]:
    """The shards, the forwarder of appends, and the shards as callers choose to read them.

    All follow discovery and the leaders of shards until the server stops; so do `delivering` and `scheduling`, of the shards
    that have a consumer or a schedule service. `tenants` limits what namespaces do.
    """
    routes = AppendRoutes()

    def keep(targets: Sequence[ShardTargets]) -> None:
        directory.keep(targets)

    def guard(shard: Shard) -> Shard:
        shard = with_facts(guarded(shard, settings.worker_count))
        return shard if tenants is None else shard.with_link(Concern.QUOTAS, tenants.link)

    discovery = Discovery(settings.shards_poll_seconds)
    clients = RoleClients(server.tls)
    leaders = Leaders(keep, clients.ask, discovery.retire)
    check = None if tenants is None else tenants.check_append
    forwarder = AppendForwarder(alone_count=settings.worker_count, routes=routes, leaders=leaders, check=check)

    def known() -> None:
        watch.wake()

    def changed(opened: Sequence[RemoteShard]) -> None:
        forwarder.keep(
            [AppendTarget(one.targets.broker_name, one.commitlog.channel, one.commitlog.target) for one in opened],
            leaders.retire,
        )
        if delivering is not None:
            delivering.keep([one.delivering for one in opened if one.delivering is not None])
        if scheduling is not None:
            scheduling.keep([one.scheduling for one in opened if one.scheduling is not None])

    directory: ShardDirectory[RemoteShard] = ShardDirectory(
        open_remote,
        fan_out,
        retire=leaders.retire,
        guard=guard,
        changed=changed,
        known=known,
    )
    watch = RouteWatch(directory, routes)
    source = _source(settings, server.tls)
    leaders.keep(source.look() if isinstance(source, ShardFile) else settings.shard_targets())
    if source is not None:
        discovery.start(source, leaders)
    server.meters.gauge(
        "reput_gateway_shard_led",
        "1 while this gateway finds a leader of the shard.",
        lambda: {(name,): float(is_led) for name, is_led in leaders.led().items()},
        ("broker_name",),
    )
    leaders.start()
    watch.start()
    # Without summaries of index files: those of each replica are its own.
    reads = ReplicaReads(
        directory,
        leaders.replicas,
        clients.facts,
        partial(open_shard, tls=server.tls),
        partial(guarded, thread_count=settings.worker_count),
        discovery.retire,
    )
    for stop in (
        forwarder.close,
        directory.close,  # before the forwarder: until then it may get shards
        discovery.stop,
        clients.close,
        reads.close,
        leaders.stop,
        watch.stop,
    ):
        server.on_stop(stop)
    return directory, forwarder, reads


def _is_beside_its_shard(settings: GatewaySettings) -> bool:
    """Whether all that queries read is one shard on this machine, without an archive."""
    if settings.archive is not None or settings.cold or settings.shards_file is not None or settings.shard_template:
        return False
    targets = settings.shard_targets()
    return len(targets) == 1 and targets[0].commitlog.startswith("unix:")


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


def _opener(settings: GatewaySettings, origins: Origins, open_bare: OpenShard) -> OpenShard:
    """Opens a shard, with its archive if there is one; InvalidSettingError when an archive needs pyarrow and it is missing."""
    root = settings.archive
    if root is None and not settings.cold:
        return open_bare
    name, value = ("archive", str(root)) if root is not None else ("cold", settings.cold)
    if find_spec("pyarrow") is None:
        raise InvalidSettingError(
            f"settings of gateway: {name} = {value!r} ({origins[name]}) needs pyarrow, which is not installed: "
            "pip install 'reput[pipeline]', or pyarrow alone",
            name=name,
            source=origins[name],
        )
    if root is None:
        return _cold_opener(settings, open_bare)
    # numpy and pyarrow are loaded only by gateways with an archive.
    from gateway.shards.archived_shard import with_archive
    from store.archive.archive_reader import ArchiveReader
    from store.archive.parquet_files import ParquetFiles

    parquet = ParquetFiles()

    def open_with_archive(targets: ShardTargets) -> RemoteShard:
        opened = open_bare(targets)
        archive = ArchiveReader(root, targets.broker_name, parquet=parquet)
        found = partial(found_stored, targets.broker_name)
        return replace(opened, shard=with_archive(opened.shard, archive, found))

    return open_with_archive


def _cold_opener(settings: GatewaySettings, open_bare: OpenShard) -> OpenShard:
    """Opens a shard with its cold tier; InvalidSettingError when the place is no URI that pyarrow knows."""
    from gateway.shards.archived_shard import with_archive
    from gateway.shards.cold_objects import UriObjects
    from store.cold.objects import PageCache
    from store.cold.reader import ColdReader

    assert settings.cold_cache is not None, "checked with the settings"
    try:
        objects = UriObjects(settings.cold)
        cache = PageCache(settings.cold_cache, settings.cold_cache_bytes)
    except InvalidArgumentError as error:
        raise InvalidSettingError(f"settings of gateway: cold: {error.message}", name="cold") from error
    except OSError as error:
        raise InvalidSettingError(f"settings of gateway: cold_cache: {error}", name="cold_cache") from error

    def open_with_cold(targets: ShardTargets) -> RemoteShard:
        opened = open_bare(targets)
        cold = ColdReader(settings.cold.partition("?")[0], targets.broker_name, objects, cache)
        found = partial(found_stored, targets.broker_name)
        return replace(opened, shard=with_archive(opened.shard, cold, found, service="cold"))

    return open_with_cold


class RequiredSignIn(NamedTuple):
    """What checks the callers of a gateway.

    Attributes:
        guard: stands before all handlers of gRPC.
        shards: limited to what the caller may see.
        sign_in: finds the rights of a credential.
        audit: writes the audit log.
        client_ids: whose each client id is.
    """

    guard: "GatewayGuard"
    shards: ShardsSource
    sign_in: "SignIn"
    audit: "Audit"
    client_ids: "ClientIds"


def _require_sign_in(server: ServiceServer, settings: GatewaySettings, source: ShardsSource) -> RequiredSignIn:
    """Puts the guard before all handlers.

    Raises:
        InvalidSettingError: the access file or the file of JWT keys cannot be used.
    """
    # Loaded only by gateways that check callers.
    from gateway.auth.access_file import WatchedFile, parse_access_file
    from gateway.auth.audit import WINDOW_SECONDS, Audit
    from gateway.auth.caller_shards import CallerShards
    from gateway.auth.client_ids import ClientIds
    from gateway.auth.guard import GatewayGuard
    from gateway.auth.jwt_tokens import JwtTokens
    from gateway.auth.sign_in import SignatureDates, SignIn

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
    clients = WatchedFile("access_file", settings.access_file, parse_access_file, time.monotonic)
    audit = Audit(get_audit_logger().info, time.monotonic)
    dates = SignatureDates(settings.signature_window_seconds, settings.time_zones, time.time)
    sign_in = SignIn(clients, jwts, asks_certificates=settings.client_ca is not None, dates=dates)
    client_ids = ClientIds()
    guard = GatewayGuard(sign_in, audit, client_ids)
    server.guard_calls(guard)
    server.on_stop(audit.close)

    def flush() -> None:
        while not server.stopping.wait(WINDOW_SECONDS):
            audit.flush()

    threading.Thread(target=flush, name="gateway-audit", daemon=True).start()
    if settings.server_tls_files is None and not settings.address.startswith(LOCAL_PREFIXES):
        _log.warning("auth.in_the_clear", address=settings.address, hint="API keys and JWTs travel without TLS")
    return RequiredSignIn(guard, CallerShards(source), sign_in, audit, client_ids)


SERVICE = Service("gateway", GatewaySettings, serve)

if __name__ == "__main__":
    main(SERVICE)
