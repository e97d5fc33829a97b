"""A recovered log's way of appending, put together: who checks, who gives queue offsets, who writes."""

import os
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from commitlog_svc.append_gate import AppendGate
from commitlog_svc.append_path import AppendPath
from commitlog_svc.appender import Appender
from commitlog_svc.frame_starts import FrameStarts
from commitlog_svc.group_commit import GroupCommit
from commitlog_svc.log_settings import LogSettings
from commitlog_svc.lookup import read_record
from commitlog_svc.message_check import MessageChecker
from commitlog_svc.queue_turns import QueueTurns
from commitlog_svc.recovery import RecoveredLog
from commitlog_svc.safe_point_writer import SafePointWriter
from commitlog_svc.timings import Timings
from commitlog_svc.topics import TopicTable
from store.files.mapped_file_queue import MappedFileQueue
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator
from store.format.record import BLANK_SIZE_BYTES

if TYPE_CHECKING:
    from commitlog_svc.scanned_request import RequestScanner


def open_appends(
    found: RecoveredLog,
    settings: LogSettings,
    files: MappedFileQueue,
    starts: FrameStarts,
    topics: TopicTable,
    commits: GroupCommit,
    gate: AppendGate,
    safe_points: SafePointWriter,
    clock_millis: Callable[[], int],
    timings: Timings,
) -> tuple[Appender, AppendPath]:
    """The appender behind the log's end, and the path that requests take to it.

    Args:
        found: what recovery found.
        settings: see LogSettings.
        files, starts: the log.
        topics: which topics there are.
        commits: who flushes.
        gate: refuses appends.
        safe_points: is told when what was appended was stored.
        clock_millis: milliseconds since 1970.
        timings: who is told how long appends took.
    """
    store_host = Host.parse(settings.store_host)
    unique_keys = UniqueKeyGenerator(
        store_host.ip,
        os.getpid(),
        # Tells one life of this process id from the next; nothing ever reads it.
        class_loader_hash=zlib.crc32(os.urandom(16)) - (1 << 31),
        clock_millis=clock_millis,
    )
    turns = QueueTurns()
    checker = MessageChecker(
        topics,
        turns,
        unique_keys,
        clock_millis,
        store_host=store_host,
        message_size_bytes_max=settings.message_size_bytes_max,
        properties_crc=settings.properties_crc,
        auto_create_topic=settings.auto_create_topic,
    )
    appender = Appender(
        files,
        found.queue_offsets,
        found.end_offset,
        found.last_store_time_millis,
        clock_millis,
        gate.refuse,
        commits.fail,
        lambda offset: read_record(files, starts, offset, appender.end_offset),
    )
    appender.last_record = found.last_record

    def make_scanner() -> "RequestScanner":
        from commitlog_svc.scanned_request import RequestScanner  # not before there are kernels: numpy takes memory

        return RequestScanner(
            turns,
            unique_keys,
            clock_millis,
            appender.give_queue_slots,
            store_host=store_host,
            message_size_bytes_max=settings.message_size_bytes_max,
            frame_size_bytes_max=files.file_size_bytes - BLANK_SIZE_BYTES,
            properties_crc=settings.properties_crc,
        )

    path = AppendPath(
        appender,
        checker,
        make_scanner,
        commits,
        topics,
        files,
        starts,
        refuse=gate.refuse,
        written_times=safe_points.written_times,
        is_sync=settings.flush_mode == "sync",
        timings=timings,
    )
    return appender, path
