"""Runs the commitlog service: `python -m commitlog_svc`.

Ends with code 3 when the log had to be fenced: what runs it should start it again, and the restart recovers.
"""

import services.light_imports  # noqa: F401  # first of all

# isort: split

import threading
from collections.abc import Callable

import structlog

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.servicer import CommitLogServicer, add_to_server
from commitlog_svc.settings import CommitLogSettings
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.append_server import serve_appends
from services.lookup_calls import Lookup
from services.lookup_server import serve_lookups
from services.server import ServiceServer, main
from services.settings import Origins
from store.errors import StoreError

EXIT_CODE_FENCED = 3
PROGRESS_SECONDS = 5.0  # a long recovery shows that it moves, also to whoever reads only the log


def say_progress(log: CommitLog, done: threading.Event, say: Callable[..., object], interval_seconds: float) -> None:
    """Tells how far the recovery is, again and again until `done`."""
    while not done.wait(interval_seconds):
        progress = log.recovery_progress
        say(
            "log.recovering",
            begin_offset=progress.begin_offset,
            next_offset=progress.next_offset,
            end_offset=progress.end_offset,
            records_walked=progress.record_count,
        )


def serve(server: ServiceServer, settings: CommitLogSettings, origins: Origins) -> None:
    """Wires the log, its servicer and the server."""
    logger = structlog.get_logger("reput.commitlog")

    def fenced(error: StoreError) -> None:
        logger.error("log.fenced", error=error.message, **error.metadata)
        server.set_serving(False)
        server.fail(EXIT_CODE_FENCED)

    log = CommitLog(settings.store, settings, on_fenced=fenced)
    servicer = CommitLogServicer(log, settings.broker_name, settings.store_host)
    server.add("reput.commitlog.v1.CommitLogService", add_to_server, servicer)

    lookups = {
        Lookup.GET_MESSAGE: (pb.GetMessageRequest, servicer.GetMessage),
        Lookup.BATCH_GET_MESSAGES: (pb.BatchGetMessagesRequest, servicer.BatchGetMessages),
        Lookup.OPEN_LOG_FILE: (pb.GetMessageRequest, servicer.open_log_file),
    }
    serve_lookups(settings.address, lookups, server)
    serve_appends(settings.address, servicer.local_appends(), server)

    def recover() -> None:
        done = threading.Event()
        arguments = (log, done, logger.info, PROGRESS_SECONDS)
        threading.Thread(target=say_progress, args=arguments, name="commitlog-progress", daemon=True).start()
        try:
            found = log.recover()
        finally:
            done.set()
        server.on_stop(log.close)
        if log.file_size_bytes != settings.file_size_bytes and log.file_count:
            logger.warning(
                "setting.overruled", name="file_size_bytes", set=settings.file_size_bytes, used=log.file_size_bytes
            )
        if found.cut_offset is not None:
            logger.warning("log.tail_cut", offset=found.cut_offset, why=found.cut_why, kept=settings.read_only)
        logger.info(
            "log.recovered",
            first_offset=log.first_offset,
            end_offset=found.end_offset,
            walked_from_offset=found.walked_from_offset,
            records_walked=found.record_count,
        )
        server.set_serving(True)

    server.in_background(recover)


if __name__ == "__main__":
    main("commitlog", CommitLogSettings, serve)
