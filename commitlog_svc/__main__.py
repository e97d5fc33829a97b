"""Runs the commitlog service: `python -m commitlog_svc`.

Exits with code 3 when the log was fenced: start it again, then it recovers.
"""

import services.light_imports  # noqa: F401  # must be imported first

# isort: split

import threading
import time
from collections.abc import Callable, Mapping

import structlog

from commitlog_svc.append.append_path import Timings
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.log_status import LogStatus
from commitlog_svc.retention.disk_space import DiskLevel
from commitlog_svc.servicer import CommitLogServicer, add_to_server
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.local.server import over_bytes, serve_local
from services.local.wire import APPENDS, LOOKUPS, LocalMethod
from services.observing.append_refusals import APPEND_REFUSED
from services.observing.meters import ROCKETMQ_LABELS, Meters, rocketmq_labels
from services.serving.server import ServiceServer, main
from services.settings.service_settings import Origins
from store.errors import StoreError

EXIT_CODE_FENCED = 3
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


def add_meters(log: LogStatus, settings: CommitLogSettings, meters: Meters) -> None:
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
    meters.gauge(
        "rocketmq_storage_message_reserve_time", "Age of the oldest message, milliseconds.", reserve, ROCKETMQ_LABELS
    )


def serve(server: ServiceServer, settings: CommitLogSettings, origins: Origins) -> None:
    """Wires the log, its servicer and the server."""
    logger = structlog.get_logger("reput.commitlog")

    def fenced(error: StoreError) -> None:
        logger.error("log.fenced", error=error.message, **error.metadata)
        server.set_serving(False)
        server.fail(EXIT_CODE_FENCED)

    log = CommitLog(settings.store, settings, on_fenced=fenced, timings=timings_of(server.meters))
    log.hold()  # before a socket is made: a process that does not get the store must not answer for it
    add_meters(log.status, settings, server.meters)
    server.meters.counters.append(APPEND_REFUSED)
    servicer = CommitLogServicer(
        log, settings.broker_name, settings.store_host, auto_create_topic=settings.auto_create_topic
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

    def recover() -> None:
        done = threading.Event()
        arguments = (log, done, logger.info, PROGRESS_SECONDS)
        threading.Thread(target=say_progress, args=arguments, name="commitlog-progress", daemon=True).start()
        try:
            found = log.recover()
        finally:
            done.set()
        server.on_stop(log.close)
        status = log.status
        if status.file_size_bytes != settings.file_size_bytes and status.file_count:
            logger.warning(
                "setting.overruled", name="file_size_bytes", set=settings.file_size_bytes, used=status.file_size_bytes
            )
        if found.cut_offset is not None:
            logger.warning("log.tail_cut", offset=found.cut_offset, why=found.cut_why, kept=settings.read_only)
        logger.info(
            "log.recovered",
            first_offset=status.first_offset,
            end_offset=found.end_offset,
            walked_from_offset=found.walked_from_offset,
            records_walked=found.record_count,
        )
        server.set_serving(True)

    server.in_background(recover)


if __name__ == "__main__":
    main("commitlog", CommitLogSettings, serve)
