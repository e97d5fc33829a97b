"""Lookups of single messages that a log has dropped; an archive and the cold tier answer them.

Both hold whole log files, each described by a row of a manifest. `LogFileLookups` decides which log files are asked, in which
order, and what an answer says when one of them cannot be read: the rest, and a `problem`. A subclass lists the log files and
opens one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from store.errors import OffsetOutOfRangeError, StoreCorruptedError, StoreError
from store.format.derived.index_layout import index_key, key_hash
from store.format.record import Record


class ArchivedUnit(NamedTuple):
    """One message of a queue: its queue offset, its commit-log offset and size in bytes."""

    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int


@dataclass(frozen=True, slots=True)
class KeyHits:
    """Commit-log offsets of records whose key has the given hash, falling.

    `more` says whether there are others below; `problem` why some may be missing.
    """

    commit_log_offsets: tuple[int, ...]
    more: bool
    problem: StoreError | None = None


@dataclass(frozen=True, slots=True)
class QueueHits:
    """Messages of a queue, by rising queue offset; `problem` says why some may be missing."""

    units: tuple[ArchivedUnit, ...]
    problem: StoreError | None = None


@dataclass(frozen=True, slots=True)
class TimeHit:
    """A message of a queue by store time, in milliseconds; `problem` says why it may be the wrong one.

    Attributes:
        queue_offset: its place; None when no message is on that side of the time.
        first_store_time_millis: of the queue's first message; None when it cannot be read.
        last_store_time_millis: of its last.
        problem: why messages may be missing.
    """

    queue_offset: int | None
    first_store_time_millis: int | None
    last_store_time_millis: int | None
    problem: StoreError | None = None


class LogFile(Protocol):
    """The row of a manifest: what is known of a log file before it is opened. Offsets in bytes, times in milliseconds."""

    @property
    def first_offset(self) -> int:
        """The log file's first byte."""

    @property
    def end_offset(self) -> int:
        """The first byte of the log behind it."""

    @property
    def begin_time_millis(self) -> int:
        """The earliest store time."""

    @property
    def end_time_millis(self) -> int:
        """The latest store time."""

    def has_topic(self, topic: str) -> bool:
        """Whether a record has this topic."""


class LogFileReader(Protocol):
    """One log file, opened. Every lookup raises a StoreError when a part that it needs is missing or damaged."""

    def record(self, commit_log_offset: int) -> Record:
        """The record that starts there; RecordNotFoundError, or RecordCorruptedError when the log had it so."""

    def offsets_of_key(self, hash_: int, below_offset: int | None) -> Iterator[int]:
        """Commit-log offsets of records with a key of that hash, falling, each once, below an offset (None: all)."""

    def queues(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, first and last queue offset of each queue with a message here."""

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[ArchivedUnit]:
        """Up to `count` messages of a queue from a queue offset on, rising."""

    def time_span(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Store times in milliseconds of a queue's first and last message here; None without any."""

    def at_time(self, topic: str, queue_id: int, time_millis: int, *, is_upper: bool) -> int | None:
        """The queue offset of the first message stored at or after a time, or of the last at or before it; None if none."""


AnyLogFile = TypeVar("AnyLogFile", bound=LogFile)


class LogFileLookups(ABC, Generic[AnyLogFile]):
    """Lookups of single messages of one shard. Thread-safe.

    If a part cannot be read, the answer has the rest, and its `problem` says that it is not complete.

    Args:
        root: where it is, for answers and errors.
        broker_name: the shard.
    """

    # What an error calls it.
    NAME: str

    def __init__(self, root: Path | str, broker_name: str) -> None:
        self.root = root
        self.broker_name = broker_name

    @abstractmethod
    def _listed(self) -> list[AnyLogFile | StoreError]:
        """The log files, by offset; in place of one whose row cannot be read, the error.

        Raises:
            StoreError: none can be listed.
        """

    @abstractmethod
    def _opened(self, log_file: AnyLogFile) -> AbstractContextManager[LogFileReader]:
        """One of them, opened; errors while it is used are StoreErrors."""

    def as_listed(self) -> "AsListed[AnyLogFile]":
        """The same of one listing, for several lookups of one question: in an object store each listing costs requests.

        Raises:
            StoreError: none can be listed.
        """
        return AsListed(self)

    def problem(self) -> StoreError | None:
        """Why it is not complete: it cannot be read, or log is missing between its log files.

        The files that the rows name are not read.
        """
        return self._asked()[1]

    def _asked(self) -> tuple[list[AnyLogFile], StoreError | None]:
        """The sound log files and the problem, of one listing."""
        try:
            listed = self._listed()
        except StoreError as error:
            return [], error
        sound = _sound(listed)
        damaged = next((each for each in listed if isinstance(each, StoreError)), None)
        if damaged is not None:
            return sound, damaged
        for before, after in pairwise(sound):
            if before.end_offset < after.first_offset:
                return sound, missing_log(before.end_offset, after.first_offset)
        return sound, None

    def range(self) -> tuple[int, int]:
        """First and end commit-log offset (bytes); (0, 0) when it is empty."""
        sound = _sound(self._listed())
        return (sound[0].first_offset, sound[-1].end_offset) if sound else (0, 0)

    def record(self, commit_log_offset: int) -> Record:
        """The record that starts there.

        Raises:
            OffsetOutOfRangeError: no log file here holds the offset.
            RecordNotFoundError: no record starts there.
            StoreCorruptedError, RecordCorruptedError: it cannot be read; metadata has `file`.
            UnsupportedStoreError: the place is not what it should be.
            ServiceUnavailableError: the file system or the object store refuses to read it; metadata has `file`.
        """
        for log_file in _sound(self._listed()):
            if log_file.first_offset <= commit_log_offset < log_file.end_offset:
                with self._opened(log_file) as reader:
                    return reader.record(commit_log_offset)
        problem = self.problem()
        if problem is not None:
            raise problem
        first, end = self.range()
        raise OffsetOutOfRangeError(
            f"Commit-log offset {commit_log_offset} is not in the {self.NAME}, which goes from {first} to {end}.",
            commitLogOffset=commit_log_offset,
            firstOffset=first,
            lastOffset=end,
        )

    def search(
        self,
        topic: str,
        key: str,
        *,
        below_offset: int | None = None,
        begin_millis: int | None = None,
        end_millis: int | None = None,
        count: int = 64,
    ) -> KeyHits:
        """Records with a key, or a unique key, of the same hash, newest first; the caller compares topic, key and time.

        Args:
            topic: the topic.
            key: the key.
            below_offset: only records that start below it, in bytes; None: all.
            begin_millis: only log files with a record stored at or after this.
            end_millis: only log files with a record stored at or before this.
            count: the most records.
        """
        hash_ = key_hash(index_key(topic, key))
        found: list[int] = []
        log_files, problem = self._asked()
        for log_file in reversed(log_files):
            if below_offset is not None and log_file.first_offset >= below_offset:
                continue
            if begin_millis is not None and log_file.end_time_millis < begin_millis:
                continue
            if end_millis is not None and log_file.begin_time_millis > end_millis:
                continue
            if not log_file.has_topic(topic):
                continue
            try:
                with self._opened(log_file) as reader:
                    for offset in reader.offsets_of_key(hash_, below_offset):
                        if len(found) == count:
                            return KeyHits(tuple(found), True, problem)
                        found.append(offset)
            except StoreError as error:
                problem = problem or error
        return KeyHits(tuple(found), False, problem)

    def units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> QueueHits:
        """Up to `count` messages of a queue from a queue offset on; missing places are skipped."""
        found: list[ArchivedUnit] = []
        log_files, problem = self._asked()
        for log_file in (each for each in log_files if each.has_topic(topic)):
            if len(found) >= count:
                break
            try:
                with self._opened(log_file) as reader:
                    found.extend(reader.units(topic, queue_id, queue_offset, count - len(found)))
            except StoreError as error:
                problem = problem or error
        return QueueHits(tuple(found), problem)

    def at_time(self, topic: str, queue_id: int, time_millis: int, *, is_upper: bool = False) -> TimeHit:
        """The first message of a queue stored at or after a time, or the last at or before it, also where times fall.

        Args:
            topic: the topic.
            queue_id: the queue.
            time_millis: since 1970 UTC.
            is_upper: return the last at or before it.
        """
        found: int | None = None
        spans: list[tuple[int, int]] = []
        log_files, problem = self._asked()
        for log_file in (each for each in log_files if each.has_topic(topic)):
            try:
                with self._opened(log_file) as reader:
                    span = reader.time_span(topic, queue_id)
                    if span is None:
                        continue
                    spans.append(span)
                    if is_upper:
                        may_hold = log_file.begin_time_millis <= time_millis
                    else:
                        may_hold = found is None and log_file.end_time_millis >= time_millis
                    if may_hold:
                        here = reader.at_time(topic, queue_id, time_millis, is_upper=is_upper)
                        found = found if here is None else here
            except StoreError as error:
                problem = problem or error
        return TimeHit(found, spans[0][0] if spans else None, spans[-1][1] if spans else None, problem)

    def queues(self, topic: str | None = None) -> dict[tuple[str, int], tuple[int, int]]:
        """First queue offset and the one behind the last, by topic and queue id, of one topic or all.

        Raises:
            StoreError: part of it cannot be read.
        """
        ranges: dict[tuple[str, int], tuple[int, int]] = {}
        for log_file in self._listed():
            if isinstance(log_file, StoreError):
                raise log_file
            if topic is None or log_file.has_topic(topic):
                with self._opened(log_file) as reader:
                    for name, queue_id, first, last in reader.queues():
                        if topic in (None, name):
                            known = ranges.get((name, queue_id), (first, last + 1))
                            ranges[name, queue_id] = (min(known[0], first), max(known[1], last + 1))
        return ranges


class AsListed(LogFileLookups[AnyLogFile]):
    """See `LogFileLookups.as_listed`; a log file that is published later is not in it before `list_again`.

    Attributes:
        log_files: by offset; in place of one whose row cannot be read, the error.
    """

    def __init__(self, whole: LogFileLookups[AnyLogFile]) -> None:
        super().__init__(whole.root, whole.broker_name)
        self.NAME = whole.NAME
        self._whole = whole
        self.log_files = whole._listed()

    def list_again(self) -> None:
        """See what there is now; StoreError: none can be listed."""
        self.log_files = self._whole._listed()

    def _listed(self) -> list[AnyLogFile | StoreError]:
        return self.log_files

    def _opened(self, log_file: AnyLogFile) -> AbstractContextManager[LogFileReader]:
        return self._whole._opened(log_file)


# Of either kind.
Lookups = LogFileLookups[Any]


def _sound(listed: list[AnyLogFile | StoreError]) -> list[AnyLogFile]:
    return [each for each in listed if not isinstance(each, StoreError)]


def missing_log(begin_offset: int, end_offset: int) -> StoreCorruptedError:
    """The error for bytes of the log that are neither in the archive nor in the log."""
    return StoreCorruptedError(
        f"The log from {begin_offset} to {end_offset} is not in the archive or cold tier and no longer in the log: its "
        "messages are missing. Archive or ship more often than retention removes files",
        offset=begin_offset,
        beginOffset=begin_offset,
        endOffset=end_offset,
    )
