"""What happens to an append request, from its check to the disk, the fast way or the plain one.

The fast way needs compiled kernels, which an idle service never loads: the first request of many messages, or so many
requests of few, has them loaded. Until then, and for every request that is not ordinary, the plain way serves.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from commitlog_svc.appender import Appender, AppendReceipt
from commitlog_svc.frame_starts import FrameStarts
from commitlog_svc.group_commit import GroupCommit
from commitlog_svc.message_check import MessageChecker, NewMessage
from commitlog_svc.timings import NO_TIMINGS, Timings
from commitlog_svc.topics import TopicTable
from store.errors import FlushFailedError
from store.files.mapped_file_queue import MappedFileQueue
from store.format.host import Host
from store.kernels import loading

if TYPE_CHECKING:
    from commitlog_svc.recent_keys import RecentKeys
    from commitlog_svc.scanned_request import RequestScanner

KERNELS = ("append_scan_kernel", "append_place_kernel", "recent_keys_kernel")
BATCH_MESSAGE_COUNT_MIN = 8  # who sends so many at once will send more
REQUEST_COUNT_MIN = 64  # so many requests are no idle service's


class AppendPath:
    """Takes appends; thread-safe.

    Args:
        appender: writes.
        checker: the plain way.
        make_scanner: makes the fast way; called once, when the kernels are loaded.
        commits: who flushes.
        topics: which topics there are.
        files, starts: the log, to find recent keys in.
        refuse: raises when nothing may be written.
        written_times: takes the end of each append with its store time.
        is_sync: whether who does not say waits for the disk.
        timings: who is told of each request that was written.
        clock: seconds, rising.
    """

    def __init__(
        self,
        appender: Appender,
        checker: MessageChecker,
        make_scanner: "Callable[[], RequestScanner]",
        commits: GroupCommit,
        topics: TopicTable,
        files: MappedFileQueue,
        starts: FrameStarts,
        *,
        refuse: Callable[[], None],
        written_times: deque[tuple[int, int]],
        is_sync: bool,
        timings: Timings = NO_TIMINGS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._appender = appender
        self._checker = checker
        self._make_scanner = make_scanner
        self._commits = commits
        self._topics = topics
        self._files = files
        self._starts = starts
        self._refuse = refuse
        self._written_times = written_times
        self._is_sync = is_sync
        self._timings = timings
        self._clock = clock
        self._lock = threading.Lock()  # held while one of those below is made
        self._scanner: RequestScanner | None = None
        self._recent: RecentKeys | None = None
        self._request_count = 0

    def append_messages(
        self, messages: Sequence[NewMessage], *, sync: bool | None, born_host: Host, deduplicate: bool = False
    ) -> list[AppendReceipt]:
        """The plain way; see CommitLog."""
        began = self._clock()
        self._refuse()
        self._request_count += 1
        if len(messages) >= BATCH_MESSAGE_COUNT_MIN or self._request_count >= REQUEST_COUNT_MIN:
            loading.load_in_background(*KERNELS)
        frames = self._checker.check(messages, born_host, deduplicate=deduplicate)
        if deduplicate:
            self._begin_recent_keys()
        self._commits.wait_for_room()
        topics = {prepared.queue_key[0] for prepared in frames}
        try:
            self._topics.create_missing(topics)
            receipts = self._appender.append(frames, deduplicate=deduplicate)
        except (FlushFailedError, OSError) as error:
            raise self._fatal(error) from error
        if self._scanner is not None and not topics.issubset(self._scanner.topics):
            self._add_topics(self._scanner, topics)
        self._written(receipts, sync)
        self._tell(sync, len(receipts), began)
        return receipts

    def check_messages(self, messages: Sequence[NewMessage], *, born_host: Host, deduplicate: bool) -> None:
        """See CommitLog."""
        self._refuse()
        self._checker.check(messages, born_host, deduplicate=deduplicate)

    def append_request(
        self, data: bytes, *, born_host: Host, id_prefix: str, broker_name: str
    ) -> bytes | list[AppendReceipt] | None:
        """The fast way; see CommitLog."""
        began = self._clock()
        self._refuse()
        scanner = self._scanner or self._find_scanner()
        if scanner is None:
            return None
        batch = scanner.scan(data, born_host, self._recent)
        if batch is None:
            return None
        if batch.deduplicate and self._recent is None:
            self._begin_recent_keys()
        try:
            self._commits.wait_for_room()
            receipts = self._appender.append_scanned(batch)
            answer = batch.answer(id_prefix, broker_name) if receipts is None else receipts
        except (FlushFailedError, OSError) as error:
            raise self._fatal(error) from error
        finally:
            scanner.give_back(batch)
        if receipts is not None:
            self._written(receipts, batch.sync)
        else:
            end_offset, store_time_millis = batch.end
            self._written_times.append((end_offset, store_time_millis))
            self._commit(end_offset, batch.sync)
        self._tell(batch.sync, batch.message_count, began)
        return answer

    def _written(self, receipts: list[AppendReceipt], sync: bool | None) -> None:
        fresh = [receipt for receipt in receipts if not receipt.deduplicated]
        if fresh:
            self._written_times.append((fresh[-1].end_offset, fresh[-1].store_time_millis))
        # Also of those that were there already: whoever wrote them may not have waited.
        self._commit(max(receipt.end_offset for receipt in receipts), sync)

    def _commit(self, end_offset: int, sync: bool | None) -> None:
        self._commits.note_written(end_offset)
        if sync or (sync is None and self._is_sync):
            self._commits.wait_flushed(end_offset)

    def _tell(self, sync: bool | None, message_count: int, began: float) -> None:
        self._timings.appended(self._is_sync if sync is None else sync, message_count, self._clock() - began)

    def _fatal(self, error: FlushFailedError | OSError) -> FlushFailedError:
        """Ends the log, also for a new file, a directory or the topics: the disk is not to be trusted."""
        if isinstance(error, OSError):
            error = FlushFailedError(f"the disk refused an append ({error}): check the disk, then restart")
        self._commits.fail(error)
        return error

    def _find_scanner(self) -> "RequestScanner | None":
        if loading.ready(KERNELS[0]) is None or loading.ready(KERNELS[1]) is None:
            return None
        with self._lock:
            if self._scanner is None:
                self._scanner = self._make_scanner()
            return self._scanner

    def _add_topics(self, scanner: "RequestScanner", topics: set[str]) -> None:
        with self._lock:
            for topic in topics.difference(scanner.topics):
                if self._topics.find(topic) is not None:
                    scanner.add_topic(topic, self._topics.writable_queue_count(topic))

    def _begin_recent_keys(self) -> None:
        if self._recent is not None:
            return
        from commitlog_svc.log_tail import seed_table  # not before somebody asks: numpy takes memory
        from commitlog_svc.recent_keys import RecentKeys

        with self._lock:  # others that deduplicate wait until the tail is read
            if self._recent is None:
                recent = RecentKeys()
                end_offset = self._appender.begin_recent_keys(recent)
                self._appender.seed_recent_keys(seed_table(self._files, self._starts, end_offset, recent.key_hash))
                self._recent = recent
