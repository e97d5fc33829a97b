"""All consume queues of a store root: found at start, created with their first unit, flushed together.

Queues of a broker that no record states as its own are left alone: they are not in the table, and nothing of them is read,
written or removed. See `unexplained.py`. Light queues are served from files of our own (`light_queues.py`).
"""

import heapq
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING

from consumequeue_svc.batch_queues import BatchQueues
from consumequeue_svc.consume_queue import ConsumeQueue, SavedQueue, Unflushed
from consumequeue_svc.light_queues import UP_TO_DATE, LightQueue, LightQueues
from consumequeue_svc.time_search import UNSEEN, RisingRuns
from consumequeue_svc.unexplained import Keeper
from store.errors import (
    InvalidArgumentError,
    QueueNotFoundError,
    StoreRecoveringError,
    TopicNotFoundError,
    UnsupportedStoreError,
)
from store.features.table import hidden_by_record
from store.files.file_system import FileSystem, WholeDisk, drop_cached_pages
from store.files.open_files import OPEN_FILE_COUNT_MAX, OpenFiles
from store.format.paths import own_state_dir, queue_dir
from store.format.topic import LIGHT_QUEUE_COUNT_MAX, TOPIC_NAME_SHOWN, is_light_queue
from store.readers.queue_reader import QueueUnits, queue_folders

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

QueueId = tuple[str, int]
# Refused queues that are remembered, so that each is reported once: their topics may have 32 KiB each.
REFUSED_COUNT_MAX = 256
# Queues left alone that a log line and the status name.
LEFT_ALONE_COUNT_SHOWN = 10
# A checkpoint with more files flushes them all at once: each alone is a round of the disk, and 100,000 of them take a minute.
WHOLE_DISK_FILE_COUNT_MIN = 256
# Units in memory, of 20 bytes and up to 200 with what holds them; with more, records wait for the checkpoint under way.
WAITING_UNIT_COUNT_MAX = 1 << 20
TAKEN_OVER = "a broker dispatched records of other topics to this queue, and now its topic has records of its own"
_log = logging.getLogger("reput.consumequeue")


class ConsumeQueueTable:
    """The queues by topic and number. One thread writes, any may read.

    Args:
        root: the store root.
        fs: the file system.
        file_size_bytes: size of queue files (bytes).
        ext_file_size_bytes: size of the files of ConsumeQueueExt; 0: none are written.
        keeper: judges and keeps what the log does not explain; None: nothing is kept.
        hidden: topics whose queues are not served, each with the reason: none of their files is read or written.
        batches: knows the ranges of those in batch queues.
        light_queue_count_max: light queues that are built; records of further ones are refused.
        open_file_count_max: files that stay open; with more queues, units wait in memory (`consume_queue.py`).

    Attributes:
        light: the light queues.
        log_first_offset: of the log (bytes), as the builder heard last.
        is_ours: all units were written by Reput, or compared with the log; not while a replay runs.
        left_alone: queues of a broker on the disk that are not in the table.
        unflushed: what the queues changed since the last flush began.
        as_saved: queues that were found as a checkpoint says, from `load` until they change.
        disk: flushes many files at once; None where each is to be flushed by itself.
    """

    def __init__(
        self,
        root: Path,
        fs: FileSystem,
        file_size_bytes: int,
        *,
        ext_file_size_bytes: int = 0,
        keeper: Keeper | None = None,
        hidden: Mapping[str, str] = MappingProxyType({}),
        batches: BatchQueues | None = None,
        light_queue_count_max: int = LIGHT_QUEUE_COUNT_MAX,
        open_file_count_max: int = OPEN_FILE_COUNT_MAX,
    ) -> None:
        self.is_ours = False
        self.log_first_offset = 0
        self.left_alone: set[QueueId] = set()
        self.times = RisingRuns((UNSEEN,))  # until a builder knows better
        self.keeper = keeper or Keeper()
        self.batches = batches or BatchQueues(fs, root)
        self.fs = fs
        self._root = root
        self.file_size_bytes = file_size_bytes
        self.ext_file_size_bytes = ext_file_size_bytes
        self._files = OpenFiles(fs, count_max=open_file_count_max)
        self.light = LightQueues(
            self._files, Path(own_state_dir(str(root), "consumequeue")) / "light", count_max=light_queue_count_max
        )
        self._lock = Lock()
        self._queues: dict[QueueId, ConsumeQueue] = {}
        self._numbers: dict[str, set[int]] = {}  # of these queues, by topic
        self._hidden = dict(hidden)
        self._hidden_at_start = frozenset(hidden)
        self._hidden_by_record: set[str] = set()
        self._refused: set[QueueId] = set()
        self.as_saved: set[QueueId] = set()
        self.unflushed = Unflushed()
        self.disk: WholeDisk | None = None

    def load(
        self,
        *,
        drop_cache: bool = False,
        topics: Collection[str] | None = None,
        saved: Mapping[QueueId, SavedQueue] = MappingProxyType({}),
    ) -> None:
        """Opens every queue that has files.

        Args:
            drop_cache: drop the files from the page cache first: a flush failed before.
            topics: only queues of these.
            saved: what a checkpoint says of queues; `recovery.resume` reads it, too, and has nothing to read of these then.
        """
        if self.disk is None:
            self.disk = WholeDisk.of(self.fs, self._root)  # before the first write: it tells what fails from now on
        for topic, queue_id, offsets in sorted(queue_folders(self.fs, self._root)):
            if topics is not None and topic not in topics:
                continue
            if is_light_queue(topic):
                self.left_alone.add((topic, queue_id))
                continue
            if topic in self._hidden:
                continue
            queue = self._make(topic, queue_id)
            if drop_cache:
                drop_cached_pages(self.fs, queue.files_on_disk())
            if queue.load(offsets, saved.get((topic, queue_id))):
                self.as_saved.add((topic, queue_id))
            if drop_cache and queue.ext_files is not None:
                drop_cached_pages(self.fs, queue.ext_files.paths())
            with self._lock:
                self._put((topic, queue_id), queue)

    def drop_cache(self) -> None:
        """Drops the files from the page cache: a replay keeps what it reads, so it must read the disk."""
        for queue in self._all():
            drop_cached_pages(self.fs, queue.paths())

    def items(self) -> list[tuple[QueueId, ConsumeQueue]]:
        """All queues, by topic and number."""
        with self._lock:
            return sorted(self._queues.items(), key=lambda item: item[0])

    def all(self) -> list[tuple[QueueId, ConsumeQueue]]:
        """All queues, in no order."""
        with self._lock:
            return list(self._queues.items())

    def of_topic(self, topic: str) -> Sequence[tuple[QueueId, ConsumeQueue | LightQueue]]:
        """The queues of a topic, by number; UnsupportedStoreError as from `queue`."""
        if is_light_queue(topic):
            with suppress(TopicNotFoundError):
                return [((topic, 0), self.queue(topic, 0))]
            return ()
        with self._lock:
            ids = [(topic, number) for number in sorted(self._numbers.get(topic, ()))]
            return [(queue_id, self._queues[queue_id]) for queue_id in ids]

    def counts(self) -> tuple[int, int]:
        """How many queues there are, and how many topics."""
        return len(self._queues), len(self._numbers)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """One queue that is no light queue; None when it is not in the table."""
        with self._lock:
            return self._queues.get((topic, queue_id))

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | LightQueue:
        """One queue.

        Raises:
            UnsupportedStoreError: the queues of the topic are not served.
            StoreRecoveringError: it is a light queue, and they are being built.
            TopicNotFoundError: the topic has no queue.
            QueueNotFoundError: it has queues, but not this one.
            UnsupportedStoreError: it is left alone.
        """
        self.refuse_hidden(topic)
        light = self._light_queue(topic) if is_light_queue(topic) else None
        if light is not None and queue_id == 0:
            return light
        with self._lock:
            queue = self._queues.get((topic, queue_id))
            if queue is not None:
                return queue
            has_topic = topic in self._numbers or light is not None
        if (topic, queue_id) in self.left_alone and not (is_light_queue(topic) and self._has_expired(topic, queue_id)):
            shown = topic[:TOPIC_NAME_SHOWN]
            raise UnsupportedStoreError(
                f"queue {queue_id} of {shown!r} is one of RocketMQ's multi-dispatch, and no record of the log says its "
                "position there, or its name has no %LMQ%: that is not supported, its files stay as they are; read it with a "
                "RocketMQ broker, or the messages by the topics that they were sent to",
                topic=shown,
                queueId=queue_id,
            )
        if has_topic:
            raise QueueNotFoundError(
                f"topic {topic!r} has no queue {queue_id}: ListQueues shows those there are",
                topic=topic,
                queueId=queue_id,
            )
        raise TopicNotFoundError(f"topic {topic!r} has no queue in this store", topic=topic)

    def _light_queue(self, topic: str) -> LightQueue | None:
        self.check_light_known(topic)
        return self.light.get(topic)

    def check_light_known(self, topic: str = "") -> None:
        """Raise StoreRecoveringError when units of light queues may be missing."""
        next_offset = self.light.next_offset
        if next_offset != UP_TO_DATE:
            raise StoreRecoveringError(
                "light queues (LMQ) are being built for the part of the log that was applied without them: they are at byte "
                f"{next_offset} of {self.light.aim_offset}; try again soon",
                topic=topic[:TOPIC_NAME_SHOWN],
            )

    def _has_expired(self, topic: str, queue_id: int) -> bool:
        """Whether retention removed the records of all units in a broker's files of a light queue."""
        units = QueueUnits(self._files, Path(queue_dir(str(self._root), topic, queue_id)), self.file_size_bytes)
        units.load()
        return units.next_log_offset() <= self.log_first_offset

    @property
    def hidden(self) -> Mapping[str, str]:
        """The topics whose queues are not served, each with the reason."""
        with self._lock:
            return dict(self._hidden)

    def refuse_hidden(self, topic: str) -> None:
        """UnsupportedStoreError when the queues of the topic are not served."""
        if problem := self._hidden.get(topic):
            raise UnsupportedStoreError(problem, topic=topic)

    def hide(self, topics: Collection[str]) -> None:
        """Serve the queues of these topics no more: the log has a record of them that is an inner batch."""
        for queue_id, queue in self.items():
            if queue_id[0] in topics:
                queue.write_waiting()
        with self._lock:
            for topic in topics:
                if topic not in self._hidden:
                    self._hidden[topic] = hidden_by_record(topic)
                    _log.warning("queues are not served: %s", self._hidden[topic])
                self._hidden_by_record.add(topic)
            for queue_id in [queue_id for queue_id in self._queues if queue_id[0] in self._hidden]:
                self._take(queue_id)  # its files stay as they are

    def forget_batches(self) -> None:
        """Forgets what records told of batch queues: the whole log is applied anew, and it is another one."""
        self.batches.restore({})
        with self._lock:
            topics = self._hidden_by_record - self._hidden_at_start
            for topic in topics:
                del self._hidden[topic]
            self._hidden_by_record.clear()
        if topics:
            self.load(topics=topics)

    def apply(self, columns: "DispatchColumns", *, is_replay: bool = False) -> None:
        """Writes the units of records in their own queues, given in log order; `light` has the others."""
        from store.derive import queue_runs  # not before there is a record: numpy takes memory

        if batches := queue_runs.inner_batches(columns):
            self.batches.note(batches)
            if new_hidden := {batch.topic for batch in batches} - self._hidden_by_record:
                self.hide(new_hidden)
        for topic, number, runs, ext in queue_runs.place_ext_runs(columns, self.ext_file_size_bytes):
            queue_id = topic, number
            if queue_id in self._refused or topic in self._hidden:
                continue
            queue = self._queues.get(queue_id)
            if queue is not None and len(runs) == 1 and not is_replay and queue.append(runs[0]):
                continue
            if queue is None:
                try:
                    if is_light_queue(topic):
                        raise InvalidArgumentError(f"{topic[:TOPIC_NAME_SHOWN]!r} is a light queue (LMQ): a broker's")
                    queue = self._make(*queue_id)
                    if queue_id in self.left_alone:
                        queue.load()
                        queue.keep_aside(TAKEN_OVER)
                        self.left_alone.discard(queue_id)
                except InvalidArgumentError as error:
                    # RocketMQ never writes such a record. Its queue's folder would lie outside the store, or cannot be made.
                    if len(self._refused) < REFUSED_COUNT_MAX:
                        self._refused.add(queue_id)
                        _log.error("queue refused: %s", error.message)
                    continue
            placement = queue.apply(zip(runs, ext, strict=True), is_replay=is_replay)
            if placement.taken_count and not is_replay:
                _log.warning("%s: %d messages whose position was taken were left out", queue_id, placement.taken_count)
            for position, commit_log_offset in placement.damaged:
                _log.error(
                    "the record at %d states position %d in queue %d of %r, for which the log has no room: "
                    "its queue offset is damaged, it is left out of the queue (reput fsck checks the log)",
                    commit_log_offset,
                    position,
                    queue_id[1],
                    queue_id[0],
                )
            if queue.units.end > queue.units.begin:
                with self._lock:
                    self._put(queue_id, queue)

    def end_replay(self, log_first_offset: int) -> int:
        """Cuts off what a replay did not confirm, leaves a broker's queues alone; returns how many were cut."""
        count = 0
        for queue_id, queue in self.items():
            if queue.replayed is None and self.is_dispatched(queue_id[0], queue, log_first_offset):
                self.leave_alone(queue_id)
            else:
                count += queue.end_replay(log_first_offset)
        self.drop_empty()
        self.tell_left_alone()
        self.is_ours = True
        return count

    def leave_alone(self, queue_id: QueueId) -> None:
        """Takes a queue out of the table; its files stay as they are."""
        with self._lock:
            if queue_id in self._queues:
                self._take(queue_id)
        self.left_alone.add(queue_id)

    def tell_left_alone(self) -> None:
        """Logs which queues are left alone."""
        if words := self.left_alone_words():
            _log.warning("%s", words)

    def left_alone_words(self) -> str:
        """Which queues are left alone, and what that means; empty for none."""
        if not self.left_alone:
            return ""
        queues = list(self.left_alone)  # the builder may change it meanwhile
        first = heapq.nsmallest(LEFT_ALONE_COUNT_SHOWN, queues)  # of up to a million
        shown = ", ".join(f"{topic[:TOPIC_NAME_SHOWN]}/{queue_id}" for topic, queue_id in first)
        return (
            f"files of {len(queues)} queues of RocketMQ's multi-dispatch (LMQ) are left alone: neither written nor removed "
            f"({shown}{', ...' if len(queues) > LEFT_ALONE_COUNT_SHOWN else ''})"
        )

    def is_dispatched(self, topic: str, queue: ConsumeQueue, log_first_offset: int) -> bool:
        """Whether the records that a queue's units point to name the topic as a further queue; a few are looked at."""
        units = queue.units.sampled_from(queue.units.end_before(log_first_offset))
        return bool(units) and all(self.keeper.is_dispatched(topic, unit) for unit in units)

    def cut(self, log_end_offset: int, *, next_offset: int | None = None, why_aside: str = "") -> None:
        """Cuts off all units whose record ends behind this offset (bytes).

        Args:
            log_end_offset: the end of the log.
            next_offset: where the records of all units end, at most; None: it is not known.
            why_aside: see ConsumeQueue.cut.
        """
        self.batches.cut(log_end_offset)
        self.light.cut(log_end_offset)
        for queue in self._all() if next_offset is None or next_offset > log_end_offset else ():
            if queue.units.next_log_offset() > log_end_offset:
                queue.cut(queue.units.end_within(log_end_offset), why_aside=why_aside)
        self.drop_empty()

    def hide_expired(
        self, log_first_offset: int, file_count_max: int
    ) -> list[tuple[ConsumeQueue | LightQueues, list[Path]]]:
        """Takes files before the log's first record out of their queues, at most so many.

        Remove them (`ConsumeQueue.remove_hidden`) when a checkpoint without them is written.
        """
        self.log_first_offset = log_first_offset
        hidden: list[tuple[ConsumeQueue | LightQueues, list[Path]]] = []
        if paths := self.light.hide_expired(log_first_offset, file_count_max):
            hidden.append((self.light, paths))
            file_count_max -= len(paths)
        for queue in self._all():
            paths = queue.hide_expired(log_first_offset, file_count_max)
            if paths:
                hidden.append((queue, paths))
                file_count_max -= len(paths)
            if file_count_max <= 0:
                break
        return hidden

    def note_own(self) -> None:
        """Notes what is certainly ours: a replay begins, which may find that the log does not have it any more."""
        for queue in self._all():
            queue.note_own(queue.units.end if self.is_ours else queue.replayed or 0)
        self.is_ours = False

    def forget_replay(self) -> None:
        """Forgets what a replay confirmed: it begins, or begins anew."""
        for queue in self._all():
            queue.forget_replay()

    def begin_replay(self) -> None:
        """See `ConsumeQueue.begin_replay`."""
        for queue in self._all():
            queue.begin_replay()

    def flush(self) -> None:
        """Brings everything written to the disk.

        Raises:
            FlushFailedError: the disk refused.
        """
        self.prepare_flush()()

    def prepare_flush(self) -> Callable[[], None]:
        """A function that flushes everything written so far; any thread may call it while more is written."""
        unflushed = self.unflushed
        waiting = list(unflushed.waiting)
        for queue in waiting:
            queue.age()
        files = unflushed.files | set(map(str, self.light.dirty))
        directories = unflushed.directories | set(map(str, self.light.dirty_directories))
        for changed in (unflushed.waiting, unflushed.files, unflushed.directories):
            changed.clear()
        self.light.dirty.clear()
        self.light.dirty_directories.clear()
        unflushed.waiting_count = 0

        def flush() -> None:
            for queue in waiting:
                queue.write_old(files, directories)
            self._flush(files, directories)

        return flush

    def _flush(self, files: set[str], directories: set[str]) -> None:
        if self.disk is not None and len(files) >= WHOLE_DISK_FILE_COUNT_MIN:
            self.disk.flush()
            files = {path for path in files if not self.disk.holds(path)}
            directories = {path for path in directories if not self.disk.holds(path)}
        for path in sorted(files):
            with suppress(FileNotFoundError):  # its queue began anew since then
                self._files.get(path).flush()
        for directory in sorted(directories):
            if self.fs.is_dir(directory):
                self.fs.fsync_dir(directory)

    def next_log_offset(self) -> int:
        """The first byte of the log behind the newest record of all queues; 0 if there is none."""
        return max((queue.units.next_log_offset() for queue in self._all()), default=0)

    def close(self) -> None:
        """Closes all files."""
        self._files.close()
        if self.disk is not None:
            self.disk.close()

    def _put(self, queue_id: QueueId, queue: ConsumeQueue) -> None:
        """With the lock held, as `_take`."""
        self._queues[queue_id] = queue
        self._numbers.setdefault(queue_id[0], set()).add(queue_id[1])

    def _take(self, queue_id: QueueId) -> ConsumeQueue:
        numbers = self._numbers[queue_id[0]]
        numbers.discard(queue_id[1])
        if not numbers:
            del self._numbers[queue_id[0]]
        return self._queues.pop(queue_id)

    def _all(self) -> list[ConsumeQueue]:
        with self._lock:
            return list(self._queues.values())

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(
            self._files,
            queue_dir(str(self._root), topic, queue_id),
            self.file_size_bytes,
            ext_file_size_bytes=self.ext_file_size_bytes,
            keeper=self.keeper,
            unflushed=self.unflushed,
        )

    def drop_empty(self) -> None:
        """Forgets queues without units."""
        with self._lock:
            for queue_id, queue in list(self._queues.items()):
                if queue.units.end <= queue.units.begin:
                    self._take(queue_id)
