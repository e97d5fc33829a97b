"""The job `query`: the four query modes over an archive and the live store together, as point lookups without Spark.

    archive   |----------------------|              looked up by its own indexes (store/archive)
    log               |---------------------|       files without a sealed segment are walked; no queue or index is needed

A message that is in both is one row, read from the log; from the archive if the log's record is damaged. A query lists the
archive once, and again behind a walk. `union_view` in
`pipeline/archive/view.py` is the same for Spark.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from pipeline.archive.segment import log_path, map_log_file, walk_log_file
from pipeline.object_files import ObjectFileSystem, open_root
from pipeline.scan.log_files import ReadableLog, readable_log
from store.archive.archive_reader import ArchiveReader
from store.archive.lookups import AsListed, missing_log
from store.archive.manifest import Segment
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import NO_UNIT_BITS
from store.errors import (
    OffsetOutOfRangeError,
    RecordCorruptedError,
    RecordNotFoundError,
    StoreCorruptedError,
    StoreError,
    UnsupportedStoreError,
)
from store.files.config_file import read_config_file
from store.files.file_system import FileSystem, RealFileSystem
from store.files.mapped_files import MappedFile
from store.format.derived.index_layout import index_key, key_hash
from store.format.message_id import decode_offset_msg_id
from store.format.record import Record, decode_header, decode_record
from store.format.record_layout import HEADER_BYTES_MAX
from store.format.topic import decode_deleted_topics
from store.walk.checks import SizeCheck
from store.walk.cursor import OneFile, RecordCursor

COUNT_DEFAULT = 64
ANY_TOPIC = ""


class Source(StrEnum):
    """Where a message was read."""

    LIVE = "live"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message, where it was read, and whether its topic was deleted after it was stored (`config/topics.json`)."""

    record: Record
    source: Source
    is_deleted: bool = False


@dataclass(slots=True)
class QueryAnswer:
    """The answer to a query.

    Attributes:
        messages: newest first; in a query by queue offset, in queue order.
        has_more: whether more messages match than were requested.
        problem: why messages may be missing; None if the answer is complete.
    """

    messages: list[FoundMessage] = field(default_factory=list)
    has_more: bool = False
    problem: StoreError | None = None


class UnionReader:
    """An archive and optionally the store that it was made from.

    Args:
        archive: the archive, or its URI in an object store.
        store: the store root, or its URI; None for the archive alone.
        broker_name: the shard.

    Raises:
        StoreError: the archive cannot be opened.
    """

    def __init__(
        self,
        archive: Path | str,
        store: Path | str | None,
        *,
        broker_name: str = "broker-a",
    ) -> None:
        archive_fs, root = open_root(archive, "archive")
        self._archive = ArchiveReader(root, broker_name, archive_fs)
        self._archive.range()  # raises if `archive` is not an archive
        self._fs: FileSystem = RealFileSystem()
        self._store: Path | None = None
        if store is not None:
            self._fs, self._store = open_root(store)
        self._maps: dict[int, memoryview] = {}
        self._deleted_before: Mapping[str, int] = {} if self._store is None else _deleted_topics(self._fs, self._store)
        self._log = self._read_log()

    def plan(self) -> dict[str, int]:
        """The reads that a query would make: counts, and offsets in bytes."""
        archive = self._archive.as_listed()
        segments = _whole(archive)
        sealed = {segment.first_offset for segment in segments if segment.is_sealed}
        first, end = archive.range()
        return {
            "segment_count": len(segments),
            "archive_first_offset": first,
            "archive_end_offset": end,
            "log_file_count": len(self._log.files),
            "walked_file_count": sum(1 for offset in self._log.first_offsets if offset not in sealed),
        }

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_millis: int | None = None,
        end_millis: int | None = None,
        count: int = COUNT_DEFAULT,
    ) -> QueryAnswer:
        """Messages of a topic with exactly this key, stored in the window (milliseconds, both ends inclusive)."""
        return self._by_hash(topic, key, begin_millis, end_millis, count, is_unique=False)

    def by_unique_key(self, topic: str, unique_key: str, *, count: int = COUNT_DEFAULT) -> QueryAnswer:
        """All copies of a message."""
        return self._by_hash(topic, unique_key, None, None, count, is_unique=True)

    def by_id(self, offset_msg_id: str) -> FoundMessage:
        """The message at the offset that the id names.

        Raises:
            InvalidMessageIdError: the id is not valid.
            RecordNotFoundError: no message starts there, in the log or in the archive.
        UnsupportedStoreError: it lies before both, and the store may have it where it is not read.
            RecordCorruptedError: the log's is damaged, and the archive does not have it.
            StoreError: the message exists and cannot be read.
        """
        offset = decode_offset_msg_id(offset_msg_id)[1]
        archive = self._archive.as_listed()
        try:
            return self._read(offset, archive)
        except RecordNotFoundError:
            firsts = [archive.range()[0], *self._log.first_offsets[:1]]
            held = self._elsewhere(ANY_TOPIC)
            if held is not None and offset < min(firsts):
                raise held from None
            raise

    def by_offset(self, topic: str, queue_id: int, queue_offset: int, *, count: int = 1) -> QueryAnswer:
        """Up to `count` messages of a queue from a queue offset on."""
        archive = self._archive.as_listed()
        answer = QueryAnswer(problem=self._hole(archive))
        places: dict[int, int] = {}
        for columns in self._walked(answer, archive):
            if topic in columns.topics:
                chosen = np.flatnonzero(
                    (columns.topic_numbers == columns.topics.index(topic))
                    & (columns.queue_ids == queue_id)
                    & (columns.queue_offsets >= queue_offset)
                    & (columns.sys_flags & NO_UNIT_BITS == 0)
                )
                found_here = columns.queue_offsets[chosen].tolist(), columns.commit_log_offsets[chosen].tolist()
                places.update(zip(*found_here, strict=True))
        # Behind the walk: a log file that retention has removed meanwhile is in the archive.
        hits = archive.units(topic, queue_id, queue_offset, count + 1)
        answer.problem = hits.problem or answer.problem
        places = {unit.queue_offset: unit.commit_log_offset for unit in hits.units} | places
        if min(places, default=queue_offset + 1) > queue_offset:
            answer.problem = answer.problem or self._elsewhere(topic)
        for place in sorted(places)[:count]:
            found = self._read_listed(places[place], answer, archive)
            if found is not None:
                answer.messages.append(found)
        answer.has_more = len(places) > count
        return answer

    def _by_hash(
        self, topic: str, key: str, begin_millis: int | None, end_millis: int | None, count: int, *, is_unique: bool
    ) -> QueryAnswer:
        archive = self._archive.as_listed()
        answer = QueryAnswer(problem=self._hole(archive) or self._elsewhere(topic))
        seen: set[int] = set()
        for offset in self._candidates(topic, key, begin_millis, end_millis, answer, archive):
            if offset in seen:
                continue
            seen.add(offset)
            found = self._read_listed(offset, answer, archive)
            if found is None:
                continue
            record = found.record
            if (
                record.topic != topic
                or (record.unique_key != key if is_unique else key not in record.keys)
                or (begin_millis is not None and record.store_time_millis < begin_millis)
                or (end_millis is not None and record.store_time_millis > end_millis)
            ):
                continue
            if len(answer.messages) == count:
                answer.has_more = True
                break
            answer.messages.append(found)
        return answer

    def _candidates(
        self,
        topic: str,
        key: str,
        begin_millis: int | None,
        end_millis: int | None,
        answer: QueryAnswer,
        archive: AsListed[Segment],
    ) -> Iterator[int]:
        """Commit-log offsets of records whose key has the hash, descending (bytes)."""
        hash_ = key_hash(index_key(topic, key))
        walked: set[int] = set()
        for columns in self._walked(answer, archive):
            records = columns.key_records[columns.key_hashes == hash_]
            walked.update(columns.commit_log_offsets[records].tolist())
        waiting = sorted(walked)
        below: int | None = None
        while True:
            hits = archive.search(
                topic, key, below_offset=below, begin_millis=begin_millis, end_millis=end_millis, count=COUNT_DEFAULT
            )
            answer.problem = answer.problem or hits.problem
            for offset in hits.commit_log_offsets:
                while waiting and waiting[-1] > offset:
                    yield waiting.pop()
                yield offset
            if not hits.more:
                yield from reversed(waiting)
                return
            below = hits.commit_log_offsets[-1]

    def _read_listed(
        self, commit_log_offset: int, answer: QueryAnswer, archive: AsListed[Segment]
    ) -> FoundMessage | None:
        """A record of which is known that it exists; None if it cannot be read, which the answer then says."""
        try:
            return self._read(commit_log_offset, archive)
        except StoreError as error:
            answer.problem = answer.problem or error
            return None

    def _read(self, commit_log_offset: int, archive: AsListed[Segment]) -> FoundMessage:
        found = self._read_somewhere(commit_log_offset, archive)
        is_deleted = commit_log_offset < self._deleted_before.get(found.record.topic, 0)
        return replace(found, is_deleted=True) if is_deleted else found

    def _read_somewhere(self, commit_log_offset: int, archive: AsListed[Segment]) -> FoundMessage:
        """Reads a record from the log if it is there and sound, else from the archive."""
        damage: RecordCorruptedError | None = None
        first = max((offset for offset in self._log.first_offsets if offset <= commit_log_offset), default=None)
        if first is not None and commit_log_offset < self._log.end_offset:
            try:
                frame = self._frame(first, commit_log_offset)
                if len(frame):
                    return FoundMessage(decode_record(frame, commit_log_offset=commit_log_offset), Source.LIVE)
            except FileNotFoundError:
                self._log = self._read_log()  # retention has removed the file
            except RecordCorruptedError as error:
                damage = error
        try:
            with suppress(StoreError):
                return FoundMessage(archive.record(commit_log_offset), Source.ARCHIVE)
            archive.list_again()  # it is in none of these segments, or in one whose files a newer one has replaced
            return FoundMessage(archive.record(commit_log_offset), Source.ARCHIVE)
        except OffsetOutOfRangeError as error:
            if first is not None and damage is not None and self._is_lost(first, commit_log_offset):
                raise damage from error
            raise RecordNotFoundError(
                f"{error.message} The log does not have it either.", commitLogOffset=commit_log_offset
            ) from error

    def _is_lost(self, first_offset: int, commit_log_offset: int) -> bool:
        """Whether a record may have started where none can be read: not inside of another one, nor behind the log's end."""
        assert self._store is not None
        path = log_path(self._store, first_offset)
        file = MappedFile(self._fs, path, first_offset, self._fs.stat_size(path), writable=False)
        try:
            cursor = RecordCursor(OneFile(file), first_offset, SizeCheck())
            for begin, size_bytes in cursor:
                if commit_log_offset < begin + size_bytes:
                    return begin == commit_log_offset
            is_damaged = cursor.why is not None or cursor.record_behind() is not None
            return is_damaged and cursor.offset <= commit_log_offset
        finally:
            file.close()

    def _walked(self, answer: QueryAnswer, archive: AsListed[Segment]) -> Iterator[DispatchColumns]:
        """The records of log files without a sealed segment, newest file first; up to damage, which the answer then says.

        At its end `archive` is listed again, if there was something to walk.
        """
        # Without all manifests no file counts as archived, and the whole log is walked; lookups report the damage.
        sealed = {segment.first_offset for segment in _whole(archive) if segment.is_sealed}
        unsealed = [first for first in reversed(self._log.first_offsets) if first not in sealed]
        for first in unsealed:
            try:
                log_file = self._map(first)
            except FileNotFoundError:
                continue  # retention has removed it: it is archived, or a hole
            if self._store is not None and len(log_file):
                path = log_path(self._store, first)
                try:
                    columns, _, _ = walk_log_file(log_file, first, path, self._log.end_offset)
                except StoreCorruptedError as error:
                    answer.problem = answer.problem or error
                    columns, _, _ = walk_log_file(log_file, first, path, int(error.metadata["commitLogOffset"]))
                yield columns
        if unsealed:  # a walk takes its time: meanwhile segments may have been published, and their log files removed
            archive.list_again()

    def _hole(self, archive: AsListed[Segment]) -> StoreError | None:
        """The error for log that is missing between archive and store; None if there is none."""
        end = archive.range()[1]
        if self._log.files and end < self._log.files[0].first_offset:
            return missing_log(end, self._log.files[0].first_offset)
        return None

    def _elsewhere(self, topic: str) -> StoreError | None:
        """The error for messages of a topic, or of any with ANY_TOPIC, that the store may have where they are not read."""
        held = self._log.held
        found = (
            held.get(topic) or held.get(ANY_TOPIC) or (next(iter(held.values()), None) if topic == ANY_TOPIC else None)
        )
        if found is None:
            return None
        return UnsupportedStoreError(f"Messages may be missing: {found[1]}.", feature=found[0])

    def _read_log(self) -> ReadableLog:
        return ReadableLog([], 0, None, False) if self._store is None else readable_log(self._fs, self._store)

    def _frame(self, first_offset: int, commit_log_offset: int) -> memoryview | bytes:
        """The log file's bytes from an offset on, at least one record; empty behind its end. Of an object only the record."""
        if first_offset in self._maps or not isinstance(self._fs, ObjectFileSystem):
            return self._map(first_offset)[commit_log_offset - first_offset :]
        assert self._store is not None
        path = log_path(self._store, first_offset)
        end = first_offset + self._fs.stat_size(path)
        if commit_log_offset >= end:
            return b""
        file = MappedFile(self._fs, path, first_offset, end - first_offset, writable=False)
        try:
            head = file.read(commit_log_offset, HEADER_BYTES_MAX)
            return file.read(commit_log_offset, decode_header(head, 0, commit_log_offset).size_bytes)
        finally:
            file.close()

    def _map(self, first_offset: int) -> memoryview:
        assert self._store is not None
        if first_offset not in self._maps:
            self._maps[first_offset] = map_log_file(self._fs, log_path(self._store, first_offset))
        return self._maps[first_offset]


def _whole(archive: AsListed[Segment]) -> list[Segment]:
    """The segments, by offset; none if the manifest of one cannot be read."""
    segments = [each for each in archive.log_files if not isinstance(each, StoreError)]
    return segments if len(segments) == len(archive.log_files) else []


def _deleted_topics(fs: FileSystem, store: Path) -> Mapping[str, int]:
    """Where in the log the topics ended that were deleted; none where the file does not say it."""
    with suppress(StoreCorruptedError, OSError):
        content = read_config_file(fs, store / "config" / "topics.json").content
        if content:
            return decode_deleted_topics(content)
    return {}
