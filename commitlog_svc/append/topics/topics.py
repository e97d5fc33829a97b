"""The topics of the store, in `config/topics.json` as RocketMQ keeps them.

The first message of a topic creates it, or a command. The file is replaced before that message is written, so that a broker
that opens the store routes every topic that has messages and was not deleted since. What a real broker wrote there is kept,
also fields that are unknown here.

A row that cannot be read is kept as it is, whenever the file is written. Until it is repaired by hand, or the topic is deleted
by command, the topic takes no message from clients, and is neither made anew nor changed: it would get other settings.

For a file that is damaged as a whole its `.bak` is used; see `store/files/config_file.py`. Where that is damaged, too,
topics come from the queues that the log has.

TopicCommands: topics that are created, changed and deleted by command (docs/adr/0047-config-files-and-topics.md).

TopicChange: what a command wants of a topic, checked as RocketMQ's `updateTopic` checks it.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from store.errors import InvalidArgumentError, InvalidMessageError, TopicExistsError, TopicNotFoundError
from store.files.config_file import ConfigFile, RememberedCheck, read_config_file, replace_config_file, tell
from store.files.file_system import FileSystem
from store.format import paths
from store.format.topic import (
    DLQ_PREFIX,
    LITE_EXPIRATION_ATTRIBUTE,
    LITE_EXPIRATION_MINUTES_MAX,
    MESSAGE_TYPE_ATTRIBUTE,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPIC_QUEUE_COUNTS,
    TOPIC_NAME_SHOWN,
    TOPIC_QUEUE_COUNT_MAX,
    DataVersion,
    TopicConfig,
    TopicRows,
    UnreadableRow,
    decode_data_version,
    decode_deleted_topics,
    decode_topic_members,
    decode_topic_rows,
    dump_topic_table,
    is_system_topic,
    next_topic_members,
    validate_topic,
    version_of_members,
)

PERMS = (PERM_WRITE, PERM_READ, PERM_READ | PERM_WRITE)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """New values of a topic; None: this value stays as it is.

    Attributes:
        write_queue_count: queues that a producer may write to.
        read_queue_count: queues that a consumer reads.
        perm: 2 write, 4 read, 6 both.
        message_type: a value of MESSAGE_TYPES; empty: the topic has no such attribute.
        lite_expiration_minutes: 0: the topic has no such attribute.
    """

    write_queue_count: int | None = None
    read_queue_count: int | None = None
    perm: int | None = None
    message_type: str | None = None
    lite_expiration_minutes: int | None = None

    def check(self) -> None:
        """InvalidArgumentError, with `field`, when RocketMQ's clients cannot work with a value."""
        for field in ("write_queue_count", "read_queue_count"):
            count = getattr(self, field)
            if count is not None and not 1 <= count <= TOPIC_QUEUE_COUNT_MAX:
                raise InvalidArgumentError(
                    f"{field} is {count}: 1 to {TOPIC_QUEUE_COUNT_MAX} are allowed", field=field, value=count
                )
        minutes = self.lite_expiration_minutes
        if minutes is not None and not 0 <= minutes <= LITE_EXPIRATION_MINUTES_MAX:
            raise InvalidArgumentError(
                f"lite_expiration_minutes is {minutes}: 1 to {LITE_EXPIRATION_MINUTES_MAX} are allowed, and 0 for never",
                field="lite_expiration_minutes",
                value=minutes,
            )
        if self.perm is not None and self.perm not in PERMS:
            raise InvalidArgumentError(
                f"perm is {self.perm}: use 2 (write), 4 (read) or 6 (both)", field="perm", value=self.perm
            )

    def applied_to(self, config: TopicConfig) -> TopicConfig:
        """The configuration with these values; everything else stays."""
        attributes = dict(config.attributes)
        if self.message_type:
            attributes[MESSAGE_TYPE_ATTRIBUTE] = self.message_type
        elif self.message_type is not None:
            attributes.pop(MESSAGE_TYPE_ATTRIBUTE, None)
        if self.lite_expiration_minutes:
            attributes[LITE_EXPIRATION_ATTRIBUTE] = str(self.lite_expiration_minutes)
        elif self.lite_expiration_minutes is not None:
            attributes.pop(LITE_EXPIRATION_ATTRIBUTE, None)
        return replace(
            config,
            write_queue_count=config.write_queue_count if self.write_queue_count is None else self.write_queue_count,
            read_queue_count=config.read_queue_count if self.read_queue_count is None else self.read_queue_count,
            perm=config.perm if self.perm is None else self.perm,
            attributes=attributes,
        )


def check_command_topic(topic: str) -> None:
    """InvalidArgumentError, with field `topic`, when no command may name this topic."""
    try:
        validate_topic(topic)
    except InvalidMessageError as error:
        refused = InvalidArgumentError(error.message)
        refused.metadata = error.metadata
        raise refused from error
    if is_system_topic(topic):
        raise InvalidArgumentError(f"{topic} belongs to the broker: no command changes it", field="topic", topic=topic)


# Of one event; the status and the metric count all.
ROWS_TOLD_MAX = 10
ROW_CHARACTERS_TOLD_MAX = 4_096
# Deleted topics whose messages the log has: 100 bytes each in a file that replicas copy whole.
DELETED_COUNT_MAX = 10_000
_log = structlog.get_logger("reput.commitlog")

NO_COUNTS: Mapping[str, int] = {}
# Topics that services make, with the queues that they write to; RocketMQ gives them one, too.
ONE_QUEUE_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX)


class TopicTable:
    """Topic configurations by name; thread-safe.

    Args:
        fs: the file system.
        root: the store root.
        default_queue_count: queues of a new topic.
        clock_millis: milliseconds since 1970, for the file's version.

    Attributes:
        on_written: each is called when the file was replaced.
        file_problem: why the file could not be used as it was at its last read, and what was used; empty when it could.
        closed: topics that take no message from clients, each with the reason: they use what is not supported.
    """

    def __init__(self, fs: FileSystem, root: Path, default_queue_count: int, clock_millis: Callable[[], int]) -> None:
        self._fs = fs
        self._check = RememberedCheck()
        self._path = Path(paths.topics_file(str(root)))
        self._default_queue_count = default_queue_count
        self._clock_millis = clock_millis
        self._lock = threading.Lock()
        self._topics: dict[str, TopicConfig] = {}
        self._unreadable: dict[str, UnreadableRow] = {}
        self._deleted: dict[str, int] = {}
        self._version = clock_millis() << 20
        self._data_version: DataVersion | None = None  # of the file; None: it is to be read
        self._use_count = 0
        self._written: tuple[int, Mapping[str, Any]] = (
            0,
            {},
        )  # hash of the file that was written last, its members without rows
        self._queue_counts_seen: dict[str, int] = {}
        self.file_problem = ""
        self.on_written: list[Callable[[], object]] = []
        self.closed: Mapping[str, str] = {}

    def load(self, queues_seen: Iterable[tuple[str, int]]) -> None:
        """Reads the file.

        Args:
            queues_seen: topic and id of each queue that has messages, configured or not.
        """
        found = self._read()
        if found.problem and found.problem != self.file_problem:
            tell(self._path, found.problem)
        if found.content is not None and (not found.problem or not self._topics):
            # While a broker writes its file it is damaged for a moment: then what is known stays.
            self._use(decode_topic_rows(found.content), decode_deleted_topics(found.content))
        self.file_problem = found.problem
        self.see(queues_seen)

    def see(self, queues: Iterable[tuple[str, int]]) -> None:
        """Notes queues that have messages: topic and id of each, configured or not."""
        for topic, queue_id in queues:
            if queue_id < TOPIC_QUEUE_COUNT_MAX:  # else a damaged or foreign record says it
                self._queue_counts_seen[topic] = max(self._queue_counts_seen.get(topic, 0), queue_id + 1)

    def copy(self, content: bytes) -> None:
        """Replaces the file by that of another replica; errors as `create`, StoreCorruptedError."""
        rows, deleted = decode_topic_rows(content), decode_deleted_topics(content)
        with self._lock:
            replace_config_file(self._fs, self._path, content, self._check)
            self._use(rows, deleted)

    def read(self) -> bytes | None:
        """The file, or what is used in its place; None when there is none."""
        return self._read().content

    def _read(self) -> ConfigFile:
        return read_config_file(self._fs, self._path, self._check)

    def find(self, topic: str) -> TopicConfig | None:
        """The topic's configuration, or None when it has none."""
        return self._topics.get(topic)

    @property
    def unreadable(self) -> Mapping[str, UnreadableRow]:
        """The rows that cannot be read, by name."""
        return self._unreadable

    @property
    def problem(self) -> str:
        """The problem of the file and what to do; empty when there is none. A damaged file is told until the next start."""
        problems = [self.file_problem] if self.file_problem else []
        if self._unreadable:
            names = ", ".join(repr(name[:TOPIC_NAME_SHOWN]) for name in list(self._unreadable)[:3])
            problems.append(
                f"config/topics.json has rows that cannot be read ({len(self._unreadable)}: {names}): these topics take no "
                "message; repair the rows while the service is stopped, or delete the topics"
            )
        return "; ".join(problems)

    def problem_of(self, topic: str) -> str:
        """Why a topic takes no message from clients, and what to do; empty for one that does."""
        return self.closed.get(topic) or self._row_problem_of(topic)

    def _row_problem_of(self, topic: str) -> str:
        """Why a topic cannot be changed, and what to do; empty for all but those of unreadable rows."""
        row = self._unreadable.get(topic)
        return (
            f"the row of topic {topic[:TOPIC_NAME_SHOWN]} in config/topics.json cannot be read ({row.problem}): repair it "
            "while the service is stopped, or delete the topic"
            if row is not None
            else ""
        )

    @property
    def version(self) -> int:
        """Grows with each change of a configuration; other processes begin with other numbers."""
        return self._version

    def data_version(self) -> DataVersion:
        """The version that the file says, for name servers; reads the file once after a change: it may have many MB."""
        known, use_count = self._data_version, self._use_count
        if known is None:
            content = self.read()
            known = DataVersion() if content is None else decode_data_version(content)
            with self._lock:
                if use_count == self._use_count:  # else the file may have been read before a change
                    self._data_version = known
        return known

    @property
    def new_topic_queue_count(self) -> int:
        """Queues of a topic that its first message creates."""
        return self._default_queue_count

    def message_type(self, topic: str) -> str:
        """The value of its attribute `message.type`; empty when it has none."""
        config = self.find(topic)
        return "" if config is None else config.attributes.get(MESSAGE_TYPE_ATTRIBUTE, "")

    def writable_queue_count(self, topic: str) -> int:
        """How many queues a producer may write to: as configured, or as a new topic gets; 0 without write permission.

        Also 0 for a topic whose row cannot be read.
        """
        config = self._topics.get(topic)
        if config is None:
            if topic in self._unreadable:
                return 0
            return max(self._default_queue_count, self._queue_counts_seen.get(topic, 0))
        return min(config.write_queue_count, TOPIC_QUEUE_COUNT_MAX) if config.perm & PERM_WRITE else 0

    def readable_queue_count(self, topic: str) -> int:
        """How many queues consumers read; 0 for a topic that is not configured."""
        config = self._topics.get(topic)
        return 0 if config is None else min(config.read_queue_count, TOPIC_QUEUE_COUNT_MAX)

    def create_missing(self, topics: Collection[str], queue_counts_min: Mapping[str, int] = NO_COUNTS) -> list[str]:
        """Creates the topics that are not configured, and gives retry topics the queues that they lack; the table is on the
        disk when this returns. Returns the names of new topics.

        Args:
            topics: names.
            queue_counts_min: by topic: the least number of queues that a new topic gets, and a retry topic that is there: a
                broker reads no others.
        """

        def grows(topic: str) -> bool:
            return topic.startswith(RETRY_PREFIX) and self.readable_queue_count(topic) < queue_counts_min.get(topic, 0)

        if all(map(self._topics.__contains__, topics)) and not any(map(grows, queue_counts_min)):
            return []
        with self._lock:
            missing = [topic for topic in sorted(topics) if topic not in self._topics and topic not in self._unreadable]
            growing = [topic for topic in queue_counts_min if topic in self._topics and grows(topic)]
            if not missing and not growing:
                return []
            table = dict(self._topics)
            for topic in growing:
                config = table[topic]
                # Doubled: each growth writes the table and registers it, while appends wait.
                count = min(max(queue_counts_min[topic], 2 * config.read_queue_count), TOPIC_QUEUE_COUNT_MAX)
                table[topic] = replace(
                    config, read_queue_count=count, write_queue_count=max(config.write_queue_count, count)
                )
            for topic in missing:
                count = queue_counts_min.get(topic, 0)
                if topic in SYSTEM_TOPIC_QUEUE_COUNTS:
                    count = max(SYSTEM_TOPIC_QUEUE_COUNTS[topic], count)
                elif not count or not topic.startswith(ONE_QUEUE_PREFIXES):
                    count = max(self.writable_queue_count(topic), count)
                count = min(count, TOPIC_QUEUE_COUNT_MAX)
                table[topic] = TopicConfig(topic, read_queue_count=count, write_queue_count=count)
            self._write(table)
            return missing

    def create(self, topic: str, change: TopicChange) -> TopicConfig:
        """Creates a topic; it is on the disk when this returns. Returns its configuration.

        Args:
            topic: a name.
            change: what the new topic has; counts that it leaves open are those that a first message gives.

        Raises:
            TopicExistsError: there is one that the change would alter, or a row that cannot be read.
            DiskFullError, FlushFailedError: the table is unchanged in memory; the file is the old or the new one.
        """
        with self._lock:
            self._refuse_unreadable(topic)
            found = self._topics.get(topic)
            if found is None:
                count = min(self.writable_queue_count(topic), TOPIC_QUEUE_COUNT_MAX)
                config = change.applied_to(TopicConfig(topic, read_queue_count=count, write_queue_count=count))
                self._write({**self._topics, topic: config})
                return config
            if change.applied_to(found) != found:
                raise TopicExistsError(
                    f"there is a topic {topic} with other values ({found.write_queue_count} queues to write, "
                    f"{found.read_queue_count} to read, perm {found.perm}): update it",
                    topic=topic,
                )
            return found

    def update(self, topic: str, change: TopicChange) -> TopicConfig:
        """Changes a topic; the change is on the disk when this returns. Returns its configuration.

        Raises:
            TopicNotFoundError: there is none of that name.
            TopicExistsError: there is a row that cannot be read.
            DiskFullError, FlushFailedError: as `create`.
        """
        with self._lock:
            self._refuse_unreadable(topic)
            found = self._topics.get(topic)
            if found is None:
                raise TopicNotFoundError(f"there is no topic {topic}: create it", topic=topic)
            config = change.applied_to(found)
            if config != found:
                self._write({**self._topics, topic: config})
            return config

    def delete(self, topic: str, log_first_offset: int = 0, log_end_offset: int = 0) -> bool:
        """Forgets a topic, on the disk when this returns; False when there was none. Errors as `create`.

        A row that cannot be read is dropped, too. What the log has of the topic is not delivered any more (`deleted`).

        Args:
            topic: a name.
            log_first_offset: where the log begins: what was deleted before need not be known any more (bytes).
            log_end_offset: where it ends; 0: nothing of the topic is in it.
        """
        with self._lock:
            deleted = {name: at for name, at in self._deleted.items() if at > log_first_offset}
            found = self._topics.get(topic)
            is_seen = topic in self._queue_counts_seen or topic in deleted or topic in self._unreadable
            if (found is not None or is_seen) and log_end_offset > log_first_offset:
                deleted.pop(topic, None)  # the newest one stands last
                deleted[topic] = log_end_offset
                for name in list(deleted)[:-DELETED_COUNT_MAX]:
                    _log.warning("topics.deletion_forgotten", topic=name, deleted=len(deleted))
                    del deleted[name]
            kept = {name: row for name, row in self._unreadable.items() if name != topic}
            is_unreadable = topic in self._unreadable
            if is_unreadable:
                row = repr(self._unreadable[topic].value)
                _log.warning("topics.unreadable_row_dropped", topic=topic, row=row[:ROW_CHARACTERS_TOLD_MAX])
            elif found is None and deleted == self._deleted:
                return False
            self._write({name: config for name, config in self._topics.items() if name != topic}, kept, deleted)
            if found is not None:
                # Its messages are still there: a topic that is made again has the queues in which they lie.
                count = min(max(found.write_queue_count, found.read_queue_count), TOPIC_QUEUE_COUNT_MAX)
                self._queue_counts_seen[topic] = max(self._queue_counts_seen.get(topic, 0), count)
            return found is not None or is_unreadable

    @property
    def deleted(self) -> Mapping[str, int]:
        """Of topics that were deleted: the byte of the log where each ended. What lies before it is not delivered."""
        return self._deleted

    def replace(self, data: bytes) -> None:
        """Takes the whole table of another broker, on the disk when this returns; errors as `create`, StoreCorruptedError.

        Args:
            data: a `topics.json`.
        """
        rows = decode_topic_rows(data)
        with self._lock:
            if rows != (self._topics, self._unreadable):
                replace_config_file(self._fs, self._path, data, self._check)
                self._use(rows, decode_deleted_topics(data))

    def all(self) -> list[TopicConfig]:
        """Every configured topic, by name."""
        return sorted(self._topics.values(), key=lambda config: config.topic)

    def _write(
        self,
        table: dict[str, TopicConfig],
        unreadable: dict[str, UnreadableRow] | None = None,
        deleted: dict[str, int] | None = None,
    ) -> None:
        deleted = self._deleted if deleted is None else deleted
        rows = TopicRows(table, self._unreadable if unreadable is None else unreadable)
        previous = self._read().content or b"{}"
        before = self._written[1] if hash(previous) == self._written[0] else decode_topic_members(previous)
        members = next_topic_members(before, self._clock_millis(), deleted)
        encoded = dump_topic_table(members, table, rows.unreadable)
        self._check.trust(encoded, self._path.name)
        replace_config_file(self._fs, self._path, encoded, self._check)
        self._written = hash(encoded), members
        self._use(rows, deleted, version_of_members(members))
        for each in self.on_written:
            each()

    def _refuse_unreadable(self, topic: str) -> None:
        """TopicExistsError for a topic that would get other settings than those of its row."""
        if problem := self._row_problem_of(topic):
            raise TopicExistsError(problem, topic=topic)

    def _use(self, rows: TopicRows, deleted: dict[str, int], version: DataVersion | None = None) -> None:
        is_other = rows.topics != self._topics or deleted != self._deleted
        fresh = [name for name in rows.unreadable if self._unreadable.get(name) != rows.unreadable[name]]
        for name in fresh[:ROWS_TOLD_MAX]:
            _log.warning(
                "topics.row_unreadable",
                topic=name[:TOPIC_NAME_SHOWN].encode(errors="backslashreplace").decode(),
                file=str(self._path),
                problem=rows.unreadable[name].problem,
                rows=len(rows.unreadable),
            )
        self._unreadable = rows.unreadable
        self._topics = rows.topics
        self._deleted = deleted
        self._data_version = version
        self._use_count += 1
        self._version += is_other  # after the table: who reads the version first never misses what is newer


class TopicCommands:
    """Each command may be repeated without harm; thread-safe.

    Args:
        topics: the topic table.
        refuse: raises when nothing may be written.
        changed: called after a change of topics that have messages.
        log_range: where the log begins and ends (bytes).
    """

    def __init__(
        self,
        topics: TopicTable,
        refuse: Callable[[], None],
        changed: Callable[[], None],
        log_range: Callable[[], tuple[int, int]],
    ) -> None:
        self._topics = topics
        self._log_range = log_range
        self._refuse = refuse
        self._changed = changed

    def create(self, topic: str, change: TopicChange) -> TopicConfig:
        """Creates a topic.

        Raises:
            InvalidArgumentError: the name or a value is not allowed; metadata has `field`.
            StoreReadOnlyError, StoreRecoveringError, DiskFullError, FlushFailedError: as appends.
            TopicExistsError: see TopicTable.
        """
        self._check(topic, change)
        return self._topics.create(topic, change)

    def update(self, topic: str, change: TopicChange) -> TopicConfig:
        """Changes a topic; TopicNotFoundError when there is none, others as `create`."""
        self._check(topic, change)
        config = self._topics.update(topic, change)
        self._changed()
        return config

    def delete(self, topic: str) -> bool:
        """Takes a topic out of the table, False when it was not there; errors as `create`.

        Its messages stay in the log, and are not delivered any more.
        """
        self._check(topic, TopicChange())
        existed = self._topics.delete(topic, *self._log_range())
        self._changed()
        return existed

    def _check(self, topic: str, change: TopicChange) -> None:
        check_command_topic(topic)
        change.check()
        self._refuse()
