"""Runs the commitlog service: `python -m commitlog_svc`.

Exits with code 3 when the log was fenced, and with code 4 when the owner of a log that is followed cut or replaced it, when
this replica of a shard has led and does not any more, or when it has to cut its log: start it again, then it recovers.
"""

if __name__ == "__main__":
    import services.light_imports  # noqa: F401  # before the others, and in a process of its own only

# isort: split

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from commitlog_svc.append.append_path import Timings
from commitlog_svc.broker_address import KnownOnce, host_at
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.log_status import LogStatus
from commitlog_svc.nameservers import NameServers, Topics, parse_nameservers
from commitlog_svc.recovery.store_root import StoreRoot
from commitlog_svc.retention.disk_space import DiskLevel
from commitlog_svc.rocketmq_ha.broker_state import BrokerState
from commitlog_svc.rocketmq_ha.master import HaMaster
from commitlog_svc.rocketmq_ha.slave import HaSlave
from commitlog_svc.servicer import CommitLogServicer, add_to_server
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.local.server import over_bytes, serve_local
from services.local.wire import APPENDS, LOOKUPS, TAILS, LocalMethod
from services.observing.meters import APPEND_REFUSED, ROCKETMQ_LABELS, Meters, rocketmq_labels, show_moved_aside
from services.rocketmq.address import Address, parse_address, parse_addresses, parse_mirror
from services.rocketmq.remoting import Broker
from services.rocketmq.system_topics import system_topics, with_rows
from services.serving.process import main
from services.serving.server import Service, ServiceServer
from services.settings.service_settings import DEFAULT, Origins
from store.errors import InvalidArgumentError, InvalidSettingError, LogChangedError, StoreError, failure_fields
from store.features.table import Support
from store.files.file_system import RealFileSystem
from store.format.delivery.delay_levels import hold_delay_levels
from store.format.topic import PERM_WRITE

if TYPE_CHECKING:
    from commitlog_svc.replication.replica_process import ReplicaProcess

EXIT_CODE_FENCED = 3
EXIT_CODE_CHANGED = 4
FEATURE_PLACES_TOLD_MAX = 10  # of one feature in its log event
PROGRESS_SECONDS = 5.0  # a long recovery shows its progress in the log of the process


def say_progress(log: CommitLog, done: threading.Event, say: Callable[..., object], interval_seconds: float) -> None:
    """Logs the progress of the recovery at each interval until `done`."""
    while not done.wait(interval_seconds):
        progress = log.recovery_progress
        say(
            "log.recovering",
            begin_offset=progress.begin_offset,
            next_offset=progress.next_offset,
            end_offset=progress.end_offset,
            records_walked=progress.record_count,
        )


def timings_of(meters: Meters) -> Timings:
    """Timings that record into meters."""
    flushes = meters.histogram("commitlog_flush_seconds", "Time of a flush of the log.").of()
    appends = meters.histogram("commitlog_append_seconds", "Time of an append request in the log.", ("mode",))
    messages = meters.counter("commitlog_appended_messages", "Messages appended.", ("mode",))
    in_mode = {True: (appends.of("sync"), messages.of("sync")), False: (appends.of("async"), messages.of("async"))}

    def appended(is_sync: bool, message_count: int, seconds: float) -> None:
        histogram, counter = in_mode[is_sync]
        histogram.observe(seconds)
        counter.add(message_count)

    return Timings(flushed=flushes.observe, appended=appended)


def tell_features(root: StoreRoot, say: Callable[..., object]) -> None:
    """Logs each feature of the store that is not wholly supported."""
    for each in root.features:
        if each.feature.support is not Support.SUPPORTED:
            where = list(each.evidence[:FEATURE_PLACES_TOLD_MAX])
            say(
                "store.feature",
                feature=each.feature.name,
                verdict=str(each.feature.support),
                where=where,
                text=each.text,
            )


def add_meters(log: LogStatus, root: StoreRoot, settings: CommitLogSettings, meters: Meters) -> None:
    """Adds the metrics that GetStatus does not have."""

    def watermarks() -> Mapping[tuple[str, ...], float]:
        usage = log.disk_usage
        if usage is None or not usage.total_bytes:
            return {}
        return {
            (level.word,): settings.disk_limits.free_bytes_at(level, usage.total_bytes)
            for level in (DiskLevel.CLEAN, DiskLevel.CLEAN_FORCIBLY, DiskLevel.FULL)
        }

    def reserve() -> Mapping[tuple[str, ...], float]:
        first = log.first_store_time_millis
        return {} if first is None else {rocketmq_labels(settings.broker_name): max(0.0, time.time() * 1000 - first)}

    def first_time() -> float | None:
        first = log.first_store_time_millis
        return None if first is None else first / 1000

    meters.gauge(
        "reput_disk_watermark_free_bytes",
        "The level is reached when the free bytes are at or below this.",
        watermarks,
        ("level",),
    )
    meters.number(
        "reput_commitlog_first_store_timestamp_seconds", "Store time of the oldest record, since 1970.", first_time
    )
    meters.number(
        "reput_commitlog_unreadable_topics",
        "Rows of config/topics.json that cannot be read.",
        lambda: log.unreadable_topic_count,
    )
    meters.number(
        "reput_commitlog_ahead_of_clock_seconds",
        "How far the greatest store time of the log is ahead of the clock; 0: not at all.",
        lambda: log.ahead_millis / 1000,
    )
    meters.number(
        "reput_commitlog_unreadable_config_files",
        "Files of config/ that could not be used as they are, since the start.",
        lambda: log.unreadable_config_file_count,
    )
    meters.gauge(
        "reput_store_features",
        "1 for each feature of RocketMQ that the store uses, by what Reput does about it.",
        lambda: {(each.feature.name, str(each.feature.support)): 1.0 for each in root.features},
        ("feature", "verdict"),
    )
    show_moved_aside(meters, RealFileSystem(), settings.store, "commitlog")
    meters.gauge(
        "rocketmq_storage_message_reserve_time", "Age of the oldest message, milliseconds.", reserve, ROCKETMQ_LABELS
    )


def begin_mirror(
    log: CommitLog, settings: CommitLogSettings, server: ServiceServer, changed: Callable[[StoreError], None]
) -> None:
    """Begins to copy the log of the broker that the settings name; the copy ends before the log is closed.

    Args:
        log, settings, server: of the process.
        changed: called when the process has to start again.
    """
    broker = Broker(parse_address(settings.mirror_broker)) if settings.mirror_broker else None

    def find_first_offset() -> int:
        assert broker is not None
        log.use_file_size(int(broker.config()["mappedFileSizeCommitLog"]))
        return max(0, int(broker.runtime_info()["commitLogMinOffset"]))  # -1: it has no file yet

    slave = HaSlave(
        log,
        parse_mirror(settings.mirror),
        find_first_offset=None if broker is None else find_first_offset,
        wait_for_flush=settings.flush_mode == "sync",
        learn_topics=broker is None,
        on_changed=changed,
    )
    log.status.mirror = slave.state
    if broker is not None:
        broker_state = BrokerState(broker, log.topics, log.opened.config_files, slave.state)
        server.on_stop(broker_state.close)
        broker_state.start()
    server.on_stop(slave.close)
    slave.start()


def begin_master(log: CommitLog, settings: CommitLogSettings, server: ServiceServer) -> None:
    """Begins to send the log to slaves of RocketMQ."""
    master = HaMaster(
        log, parse_address(settings.rocketmq_ha_address, port_min=0), parse_addresses(settings.rocketmq_slaves)
    )
    server.on_stop(master.close)
    server.meters.gauge(
        "reput_commitlog_rocketmq_slave_offset_bytes",
        "Up to where a connected slave of RocketMQ has the log.",
        lambda: {(slave,): offset for slave, offset in master.acknowledged_offsets().items()},
        ("slave",),
    )
    structlog.get_logger("reput.commitlog").info("rocketmq_ha.listening", address=str(master.address))
    master.start()


def begin_registration(
    log: CommitLog,
    settings: CommitLogSettings,
    server: ServiceServer,
    address: Address,
    leads: Callable[[], bool],
) -> NameServers:
    """Begins to register the shard at the name servers of the settings; the end of the process unregisters it.

    Args:
        log, settings, server: of the process; the log is recovered.
        address: where clients reach the shard.
        leads: tells whether this replica leads.
    """
    auto_create_count = log.topics.new_topic_queue_count if settings.auto_create_topic else 0
    always = system_topics(settings.cluster_name, settings.broker_name, auto_create_count)

    def topics() -> Topics:
        version = log.topics.data_version()  # before the topics: what is newer than its version is told again
        rows = with_rows(always, log.topics.all())
        if settings.read_only:
            rows = {name: replace(row, perm=row.perm & ~PERM_WRITE) for name, row in rows.items()}
        return Topics(version, rows)

    fields = {
        "clusterName": settings.cluster_name,
        "brokerName": settings.broker_name,
        "brokerAddr": str(address),
        "haServerAddr": settings.rocketmq_ha_address,
    }

    nameservers = NameServers(
        parse_nameservers(settings.nameservers),
        fields,
        topics,
        leads,
        is_known=KnownOnce(address),
        tls_context=partial(settings.client_context, settings.nameservers_ca),
    )
    server.meters.gauge(
        "reput_nameserver_registered",
        "1 while the shard is registered at the name server.",
        lambda: {(address,): float(is_so) for address, is_so in nameservers.registered().items()},
        ("nameserver",),
    )
    log.topics.on_written.append(nameservers.topics_changed)
    server.on_stop(nameservers.close)
    nameservers.start()
    return nameservers


def _told_address(settings: CommitLogSettings) -> Address | None:
    """Where clients reach the shard; None: nowhere.

    Where doors have an address each, those of other shards lead nowhere, and a broker has the clients of its log.
    """
    if settings.follow or settings.mirror:
        return None
    return settings.door() if settings.broker_address else parse_address(settings.store_host, port_min=0)


def _with_dialled_host(settings: CommitLogSettings) -> CommitLogSettings:
    """The settings with the IP of the remoting door as the store host, if it has one that DNS tells."""
    door = settings.door()
    if door is None:
        return settings
    host = host_at(door)
    if host is None:
        structlog.get_logger("reput.commitlog").warning(
            "broker_address.unknown", address=str(door), store_host=settings.store_host
        )
        return settings
    return settings.model_copy(update={"store_host": str(host)})


def _replication(log: CommitLog, settings: CommitLogSettings, server: ServiceServer) -> "ReplicaProcess | None":
    """The log's part among the replicas of its shard; None when the shard has one copy."""
    if not settings.coordinator:
        return None
    from commitlog_svc.replication.replica_process import ReplicaProcess  # only with replicas

    return ReplicaProcess(log, settings, server)


def serve(server: ServiceServer, settings: CommitLogSettings, origins: Origins) -> None:
    """Wires the log, its servicer and the server."""
    logger = structlog.get_logger("reput.commitlog")

    def fenced(error: StoreError) -> None:
        logger.error("log.fenced", **failure_fields(error))
        server.set_serving(False)
        server.fail(EXIT_CODE_FENCED)

    def changed(error: StoreError) -> None:
        event = "log.changed_by_owner" if isinstance(error, LogChangedError) else "log.not_followed"
        logger.error(event, **failure_fields(error))
        server.set_serving(False)
        server.fail(EXIT_CODE_CHANGED)

    try:
        server.on_stop(hold_delay_levels(settings.delay_levels_millis))
    except InvalidArgumentError as error:
        raise InvalidSettingError(
            error.message, name="delay_levels", source=origins.get("delay_levels", DEFAULT)
        ) from error
    told = _told_address(settings)
    settings = _with_dialled_host(settings)
    log = CommitLog(settings.store, settings, on_fenced=fenced, timings=timings_of(server.meters), on_changed=changed)
    log.hold()  # before a socket is made: a process that does not get the store must not answer for it
    tell_features(log.root, logger.warning)
    add_meters(log.status, log.root, settings, server.meters)
    server.meters.counters.append(APPEND_REFUSED)
    replication = _replication(log, settings, server)
    servicer = CommitLogServicer(
        log,
        settings.broker_name,
        settings.store_host,
        auto_create_topic=settings.auto_create_topic,
        replica=replication.replica if replication is not None else None,
        in_memory_size_bytes=_memory_size_bytes() * settings.access_message_in_memory_max_ratio // 100,
        broker_address="" if told is None else str(told),
    )
    server.add("reput.commitlog.v1.CommitLogService", add_to_server, servicer)

    lookups = {
        LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, servicer.GetMessage),
        LocalMethod.BATCH_GET_MESSAGES: over_bytes(pb.BatchGetMessagesRequest, servicer.BatchGetMessages),
        LocalMethod.OPEN_LOG_FILE: over_bytes(pb.GetMessageRequest, servicer.open_log_file),
        LocalMethod.COMMITLOG_STATUS: over_bytes(pb.GetStatusRequest, servicer.GetStatus),
    }
    serve_local(LOOKUPS, settings.address, lookups, server)
    serve_local(APPENDS, settings.address, servicer.local_appends(), server)
    serve_local(TAILS, settings.address, servicer.local_tails(), server)

    def recover() -> None:
        done = threading.Event()
        arguments = (log, done, logger.info, PROGRESS_SECONDS)
        threading.Thread(target=say_progress, args=arguments, name="commitlog-progress", daemon=True).start()
        try:
            found = log.recover()
        except LogChangedError as error:
            changed(error)
            return
        finally:
            done.set()
        server.on_stop(log.close)
        if settings.mirror:
            begin_mirror(log, settings, server, changed)
        if settings.rocketmq_ha_address:
            begin_master(log, settings, server)
        status = log.status
        if status.file_size_bytes != settings.file_size_bytes and status.file_count:
            logger.warning(
                "setting.overruled", name="file_size_bytes", set=settings.file_size_bytes, used=status.file_size_bytes
            )
        if found.cut_offset is not None:
            logger.warning("log.tail_cut", offset=found.cut_offset, why=found.cut_why, kept=log.root.read_only)
        logger.info(
            "log.recovered",
            first_offset=status.first_offset,
            end_offset=found.end_offset,
            walked_from_offset=found.walked_from_offset,
            records_walked=found.record_count,
        )
        if replication is not None:
            replication.start()
        # The last one that is told to stop is the first: the shard is out of routes before it hands over its lead.
        if settings.nameservers and told is not None:
            servicer.registration = begin_registration(
                log, settings, server, told, lambda: replication is None or replication.replica.serves_as_leader
            )
        server.set_serving(True)

    server.in_background(recover)


def _memory_size_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


SERVICE = Service("commitlog", CommitLogSettings, serve)

if __name__ == "__main__":
    main(SERVICE)
