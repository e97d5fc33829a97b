"""AppendPath: takes an append request from its check to the flush.

    AppendMessages, ordinary      bytes ─ ScannedBatch (kernel) ──┐
    AppendMessages, anything else messages ─ MessageChecker ──────┼─ Appender ─ GroupCommit
    AppendInternal                records ─ InternalChecker ──────┘

The plain path takes each request that is not ordinary, and all where the kernel is not compiled.
"""

import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from commitlog_svc.append.appender import Appender
from commitlog_svc.append.group_commit import GroupCommit
from commitlog_svc.append.internal_check import InternalChecker, InternalRecord
from commitlog_svc.append.message_check import MessageChecker, NewMessage, check_count
from commitlog_svc.append.records import AppendReceipt, PreparedRecord
from commitlog_svc.append.refusals import AppendRefusals, FollowerFence
from commitlog_svc.append.topics.queue_offsets import QueueTurns
from commitlog_svc.append.topics.topics import TopicTable
from commitlog_svc.append.waiting import WaitingLimits
from commitlog_svc.log_settings import LogSettings
from commitlog_svc.lookup import FrameStarts, read_record
from commitlog_svc.recovery.recovery import RecoveredLog
from store.compiled import loading
from store.errors import FlushFailedError, InvalidArgumentError
from store.files.mapped_files import MappedFileQueue
from store.format.host import Host
from store.format.message_id import UniqueKeyGenerator
from store.format.record import BLANK_SIZE_BYTES
from store.format.topic import LITE_MESSAGE_TYPE, REPLY_TOPIC_SUFFIX, validate_topic
from store.store_time import next_store_time

if TYPE_CHECKING:
    from commitlog_svc.append.recent_keys import RecentKeys
    from commitlog_svc.append.scanned_batch import RequestScanner

KERNELS = ("commitlog_svc.append.batch_kernel", "commitlog_svc.append.recent_keys_kernel")


def _ignore(*_: object) -> None:
    """Does nothing."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Functions that are called with what the log has done, once for each batch.

    They run in the threads that do the work: they must return at once and must not raise.

    Attributes:
        flushed: takes the seconds of a successful flush.
        appended: takes whether the append waited for the disk, its number of messages, and its seconds.
    """

    flushed: Callable[[float], None] = _ignore
    appended: Callable[[bool, int, float], None] = _ignore


NO_TIMINGS = Timings()


@dataclass(frozen=True, slots=True)
class Written:
    """A request that is in the log, and what its caller still waits for: `AppendPath.settle`.

    Attributes:
        end_offset: where its bytes end (bytes); those of the older messages that its receipts name lie before it, too.
        sync: whether it waits for the disk; None: as the settings say.
        replicated: whether it waits for the in-sync replicas, too.
        message_count: of the request.
        began: when its check began (seconds of the path's clock).
    """

    end_offset: int
    sync: bool | None
    replicated: bool
    message_count: int
    began: float


def _queue_counts(records: Iterable[PreparedRecord]) -> dict[str, int]:
    """By topic: how many queues hold these records, and those before them."""
    counts: dict[str, int] = {}
    for record in records:
        topic, queue_id = record.queue_key
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    return counts


class AppendPath:
    """Takes append requests; thread-safe.

    Args:
        found: the recovered log.
        settings: see LogSettings.
        files, starts: the log.
        topics: the topic table.
        commits: flushes.
        refusals: raises when nothing may be appended.
        written_times: gets the end and the store time of each append.
        clock_millis: milliseconds since 1970.
        timings: see Timings.
        clock: seconds, rising.

    Attributes:
        appender: writes the log.
    """

    def __init__(
        self,
        found: RecoveredLog,
        settings: LogSettings,
        files: MappedFileQueue,
        starts: FrameStarts,
        topics: TopicTable,
        commits: GroupCommit,
        refusals: AppendRefusals,
        written_times: deque[tuple[int, int]],
        clock_millis: Callable[[], int],
        timings: Timings = NO_TIMINGS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings = settings
        self._files = files
        self._topics = topics
        self._commits = commits
        self._refuse = refusals.refuse
        self._refusals = refusals
        self._written_times = written_times
        self._is_sync = settings.flush_mode != "async"
        self._is_replicated = settings.flush_mode == "replicated"
        self._clock_millis = clock_millis
        self._timings = timings
        self._clock = clock
        self._store_host = Host.parse(settings.store_host)
        self._fence = FollowerFence()
        self._turns = QueueTurns()
        self._unique_keys = UniqueKeyGenerator(
            self._store_host.ip,
            os.getpid(),
            # Only has to differ between two processes with the same id.
            class_loader_hash=zlib.crc32(os.urandom(16)) - (1 << 31),
            clock_millis=clock_millis,
        )
        self._checker = MessageChecker(
            topics,
            self._turns,
            self._unique_keys,
            clock_millis,
            store_host=self._store_host,
            message_size_bytes_max=settings.message_size_bytes_max,
            properties_crc=settings.properties_crc,
            auto_create_topic=settings.auto_create_topic,
            enable_lmq=settings.enable_lmq,
            waiting_limits=WaitingLimits(len(settings.delay_levels_millis), settings.timer_max_delay_seconds),
            store_time_millis=lambda: next_store_time(clock_millis(), self.appender.last_store_time_millis),
        )
        self._internal_checker = InternalChecker(
            clock_millis,
            store_host=self._store_host,
            message_size_bytes_max=settings.message_size_bytes_max,
            properties_crc=settings.properties_crc,
        )
        self.appender = Appender(
            files,
            found.queue_offsets,
            found.light,
            found.end_offset,
            found.last_store_time_millis,
            clock_millis,
            refusals.refuse,
            commits.fail,
            lambda offset: read_record(files, starts, offset, self.appender.end_offset),
        )
        self.appender.last_record = found.last_record
        self.appender.batch_topics = dict(found.batch_topics)
        self._lock = threading.Lock()  # held while one of the fields below is created
        self._scanner: RequestScanner | None = None
        self._recent: RecentKeys | None = None
        self._tail_starts = found.tail_starts

    def append_messages(
        self,
        messages: Sequence[NewMessage],
        *,
        sync: bool | None,
        born_host: Host,
        deduplicate: bool = False,
        replicated: bool = False,
    ) -> list[AppendReceipt]:
        """`write_messages` and `settle`; arguments and errors of both."""
        receipts, written = self.write_messages(
            messages, sync=sync, born_host=born_host, deduplicate=deduplicate, replicated=replicated
        )
        self.settle(written)
        return receipts

    def write_messages(
        self,
        messages: Sequence[NewMessage],
        *,
        sync: bool | None,
        born_host: Host,
        deduplicate: bool = False,
        replicated: bool = False,
    ) -> tuple[list[AppendReceipt], Written]:
        """Checks the whole request and writes all its messages in one piece. The plain path.

        Args:
            messages: 1 to 1,024.
            sync: wait for the disk; None: as the settings say.
            born_host: the host that sent them.
            deduplicate: a message with topic and unique key of a recent one is not written; it gets the receipt of that one.
            replicated: with `sync`: wait for the in-sync replicas, too.

        Raises:
            InvalidArgumentError, InvalidMessageError, TopicNotFoundError: nothing was written.
            StoreReadOnlyError, StoreRecoveringError, DiskFullError: nothing was written.
            NotLeaderError, NotEnoughReplicasError: nothing was written.
            FlushFailedError: the outcome is unknown, the log is fenced.
        """
        began = self._clock()
        self._refuse(False)
        records = self._checker.check(messages, born_host, deduplicate=deduplicate)
        replicated = self._admit_replicated(sync, replicated=replicated)
        if deduplicate:
            self._begin_recent_keys()
        self._commits.wait_for_room()
        topics = {record.topic for record in records}
        waiting_topics = _queue_counts(record for record in records if record.waiting is not None)
        try:
            self._topics.create_missing(topics.union(waiting_topics), waiting_topics)
            receipts = self.appender.append(records, deduplicate=deduplicate)
        except (FlushFailedError, OSError) as error:
            raise self._fatal(error) from error
        scanner = self._scanner
        if scanner is not None and (unknown := scanner.unknown(topics)):
            self._add_topics(scanner, unknown)
        return receipts, self._written(receipts, sync, replicated=replicated, began=began)

    def check_messages(self, messages: Sequence[NewMessage], *, born_host: Host, deduplicate: bool) -> None:
        """The checks of `append_messages`; same arguments and errors. Writes nothing."""
        self._refuse(False)
        self._checker.check(messages, born_host, deduplicate=deduplicate)

    def append_internal(
        self,
        records: Sequence[InternalRecord],
        *,
        sync: bool | None,
        born_host: Host,
        follower: str = "",
        follower_epoch: int = 0,
        replicated: bool = False,
        new_topics: Sequence[str] = (),
    ) -> list[AppendReceipt]:
        """Writes the records of a service with one `pwritev` into one log file: all of them or none, also across a power cut.

        Args:
            records: 1 to 1,024; none: only make the new topics, or keep out what an earlier life of the follower may still
                append.
            sync: wait for the disk; None: as the settings say.
            born_host: of records that name none.
            follower: the name of the follower that appends; empty: it is not fenced.
            follower_epoch: which life of the follower this is.
            replicated: with `sync`: wait for the in-sync replicas, too.
            new_topics: at most 1,024; those that are not there are made, with one queue each.

        Raises:
            FollowerFencedError: a later life of the follower appends; nothing was written.
            InvalidArgumentError, InvalidMessageError: nothing was written.
            StoreReadOnlyError, StoreRecoveringError, DiskFullError: nothing was written.
            NotLeaderError, NotEnoughReplicasError: nothing was written.
            FlushFailedError: the outcome is unknown, the log is fenced.
            NotConfirmedError: it was written, and may be cut.
        """
        began = self._clock()
        if new_topics:
            self._make_topics(new_topics)
            if not records:
                return []
        if follower and not records:
            if self._refusals.gate is not None:
                self._refusals.gate.refuse()
            self.appender.barrier(lambda: self._fence.enter(follower, follower_epoch, begins=True))
            return []
        self._refuse(True)
        replicated = self._admit_replicated(sync, replicated=replicated)
        prepared = self._internal_checker.check(records, born_host)
        self.appender.check_fits(prepared)  # before topics are made
        self._fence.enter(follower, follower_epoch)
        self._commits.wait_for_room()
        queue_counts = _queue_counts(prepared)
        try:
            self._topics.create_missing(queue_counts, queue_counts)
            receipts = self.appender.append_internal(prepared, lambda: self._fence.enter(follower, follower_epoch))
        except (FlushFailedError, OSError) as error:
            raise self._fatal(error) from error
        self.settle(self._written(receipts, sync, replicated=replicated, began=began))
        return receipts

    def _make_topics(self, topics: Sequence[str]) -> None:
        check_count(len(topics), "new_topics")
        for topic in topics:
            validate_topic(topic)
        self._refuse(True)
        try:
            self._topics.create_missing(topics, dict.fromkeys(topics, 1))
        except (FlushFailedError, OSError) as error:
            raise self._fatal(error) from error

    def forget_topics(self) -> None:
        """Must be called after topics were changed or deleted: the fast path learns them again, message by message."""
        with self._lock:
            self._scanner = None

    def write_request(
        self, data: bytes, *, born_host: Host, id_prefix: str, broker_name: str
    ) -> tuple[bytes | list[AppendReceipt], Written] | None:
        """`write_messages` from the bytes of an ordinary request to the bytes of its answer, or to receipts. The fast path.

        None: the fast path does not take this request. Nothing has changed then; use `write_messages`.

        Args:
            data: an AppendMessagesRequest or AppendMessageStreamRequest.
            born_host: the host that sent it.
            id_prefix: the hexadecimal digits of the store's host.
            broker_name: the shard's name.

        Raises:
            StoreReadOnlyError, StoreRecoveringError, DiskFullError: nothing was written.
            InvalidArgumentError, NotLeaderError, NotEnoughReplicasError: nothing was written.
            FlushFailedError: the outcome is unknown, the log is fenced.
        """
        began = self._clock()
        self._refuse(False)
        scanner = self._scanner or self._find_scanner()
        if scanner is None:
            return None
        batch = scanner.scan(data, born_host, self._recent)
        if batch is None:
            return None
        if batch.deduplicate and self._recent is None:
            self._begin_recent_keys()
        try:
            replicated = self._admit_replicated(batch.sync, replicated=batch.replicated)
            self._commits.wait_for_room()
            receipts = self.appender.append_scanned(batch)
            answer = batch.answer(id_prefix, broker_name) if receipts is None else receipts
        except (FlushFailedError, OSError) as error:
            raise self._fatal(error) from error
        finally:
            scanner.give_back(batch)
        if receipts is not None:
            return answer, self._written(receipts, batch.sync, replicated=replicated, began=began)
        end_offset, store_time_millis = batch.end
        self._written_times.append((end_offset, store_time_millis))
        self._commits.note_written(end_offset)
        return answer, Written(end_offset, batch.sync, replicated, batch.message_count, began)

    def waits(self, written: Written) -> bool:
        """Whether `settle` waits for a disk, here or elsewhere."""
        return written.replicated or (self._is_sync if written.sync is None else written.sync)

    def settle(self, written: Written) -> None:
        """Waits for what a request has asked for: its bytes on the disk, and on those of the replicas.

        Raises:
            FlushFailedError: the outcome is unknown, the log is fenced.
            NotConfirmedError: it was written, and may be cut.
        """
        gate = self._refusals.gate
        sync = self._is_sync if written.sync is None else written.sync
        if written.replicated and gate is not None:
            # The confirm offset is never beyond this disk: one wait is enough.
            self._commits.want_flushed(written.end_offset)
            gate.wait_replicated(written.end_offset)
        else:
            if sync:
                self._commits.wait_flushed(written.end_offset)
            if gate is not None:
                gate.check_written(written.end_offset)
        self._timings.appended(sync, written.message_count, self._clock() - written.began)

    def flush_soon(self) -> None:
        """Ask for a flush of all that is written, and do not wait for it; FlushFailedError when flushing has ended."""
        self._commits.want_flushed(self._commits.written_offset)

    def _admit_replicated(self, sync: bool | None, *, replicated: bool) -> bool:
        """Whether the append waits for replicas; raises when it would wait in vain."""
        if not replicated and (sync is not None or not self._is_replicated):
            return False
        if self._refusals.gate is None:
            raise InvalidArgumentError(
                "flush is FLUSH_MODE_REPLICATED, and this shard has no replicas: use FLUSH_MODE_SYNC, or set "
                "REPUT_COMMITLOG_COORDINATOR",
                field="flush",
            )
        self._refusals.gate.refuse_replicated()
        return True

    def _written(self, receipts: list[AppendReceipt], sync: bool | None, *, replicated: bool, began: float) -> Written:
        fresh = [receipt for receipt in receipts if not receipt.deduplicated]
        if fresh:
            self._written_times.append((fresh[-1].end_offset, fresh[-1].store_time_millis))
            self._commits.note_written(fresh[-1].end_offset)
        # Older messages count, too: their own request may not have waited. That request noted the end of its write;
        # the end of a single message is not noted here, because it may lie inside that request.
        end_offset = max(receipt.end_offset for receipt in receipts)
        return Written(end_offset, sync, replicated, len(receipts), began)

    def _fatal(self, error: FlushFailedError | OSError) -> FlushFailedError:
        """Fences the log, also after an error of a new file, a directory or the topic table: the disk is not reliable."""
        if isinstance(error, OSError):
            error = FlushFailedError(f"the disk refused an append ({error}): check the disk, then restart")
        self._commits.fail(error)
        return error

    def _find_scanner(self) -> "RequestScanner | None":
        kernel = loading.load(KERNELS[0])
        if kernel is None:
            return None
        with self._lock:
            if self._scanner is None:
                self._scanner = self._make_scanner(kernel)
            return self._scanner

    def _make_scanner(self, kernel: ModuleType) -> "RequestScanner":
        # numpy takes memory: import it only with the first append.
        from commitlog_svc.append.scanned_batch import RequestScanner

        return RequestScanner(
            kernel,
            self._turns,
            self._unique_keys,
            self._clock_millis,
            self.appender.give_queue_slots,
            store_host=self._store_host,
            message_size_bytes_max=self._settings.message_size_bytes_max,
            record_size_bytes_max=self._files.file_size_bytes - BLANK_SIZE_BYTES,
            properties_crc=self._settings.properties_crc,
        )

    def _add_topics(self, scanner: "RequestScanner", topics: Iterable[str]) -> None:
        with self._lock:
            for topic in topics:
                # Replies and messages of lite topics are looked at one by one (message_check.py).
                is_watched = topic.endswith(REPLY_TOPIC_SUFFIX) or self._topics.message_type(topic) == LITE_MESSAGE_TYPE
                if self._topics.find(topic) is not None and not is_watched:
                    scanner.add_topic(topic, self._topics.writable_queue_count(topic))

    def _begin_recent_keys(self) -> None:
        if self._recent is not None:
            return
        from commitlog_svc.append.recent_keys import (
            RecentKeys,
            seed_table,  # numpy takes memory: import it only for deduplication
        )

        with self._lock:  # other requests that deduplicate wait until the tail is read
            if self._recent is None:
                recent = RecentKeys()
                end_offset = self.appender.begin_recent_keys(recent)
                self.appender.seed_recent_keys(seed_table(self._files, self._tail_starts, end_offset, recent.key_hash))
                self._recent = recent
