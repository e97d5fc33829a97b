"""The few verbs that the queries need from a shard: gRPC clients, local readers and test doubles all fit.

Every call takes the caller's Deadline and raises StoreErrors: ServiceUnavailableError when the service behind the port
does not answer, DeadlineExceededError when the time is over, and what each method names.
Offsets are bytes in the log (`commit_log_offset`) or messages in a queue (`queue_offset`); times are milliseconds since
1970.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from gateway.deadline import Deadline
from gateway.sharding.key_facts import HeldKeys, KeyExplanation
from gateway.time_window import TimeWindow
from store.errors import StoreError


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A stored record, as far as queries look at it.

    `head_size_bytes` is what it adds to an answer without its body. `body_size_bytes` is the body's size, or an upper
    bound of it when `body_omitted` says that the reader left it out. `payload` is what the answer will show; queries
    never look inside. `is_archived` says that it came from the shard's archive: its log has dropped it.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_time_millis: int
    store_host: str
    keys: tuple[str, ...]
    unique_key: str
    head_size_bytes: int
    body_size_bytes: int
    body_omitted: bool
    payload: object
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a builder is: the log before `next_offset` is built, `log_end_offset` is the flushed end it knows."""

    next_offset: int
    log_end_offset: int
    catching_up: bool
    built_up_to_millis: int | None = None

    @property
    def is_behind(self) -> bool:
        """Whether flushed records are not yet built, so that an answer may lack them."""
        return self.catching_up or self.next_offset < self.log_end_offset


@dataclass(frozen=True, slots=True)
class Candidates:
    """Records whose key has the hash asked for, offsets strictly falling; `more` when there are others below.

    `problem` says why some may be missing although the rest was found. `explanation` is there when it was asked for and
    can be had, `held` when an index was asked to summarize itself (shard_summaries.py).
    """

    commit_log_offsets: tuple[int, ...]
    more: bool
    progress: BuildProgress
    damaged_chain_count: int = 0
    problem: StoreError | None = None
    explanation: KeyExplanation | None = None
    held: HeldKeys | None = None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A queue and its range `[min_offset, max_offset)`."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Unit:
    """One position of a queue and the record there; `tags_code` is what its queue unit says, None where none does."""

    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int
    tags_code: int | None = None


@dataclass(frozen=True, slots=True)
class QueueStretch:
    """Units in queue order, empty when out of range, and the queue's range.

    `problem` says why some of the units asked for may be missing although the rest was found.
    """

    units: tuple[Unit, ...]
    min_offset: int
    max_offset: int
    progress: BuildProgress
    problem: StoreError | None = None


class Boundary(Enum):
    """Which side of equal store times a search answers."""

    LOWER = "lower"
    UPPER = "upper"


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A position, and the queue's range; the store times of its first and last message, None when it has none.

    `progress` is None when no builder was asked. `problem` says why a message may be missing that the position should be
    of.
    """

    queue_offset: int
    min_offset: int
    max_offset: int
    progress: BuildProgress | None = None
    first_store_time_millis: int | None = None
    last_store_time_millis: int | None = None
    problem: StoreError | None = None

    @property
    def catching_up(self) -> bool:
        """Whether the builder is catching up after a start."""
        return self.progress is not None and self.progress.catching_up


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The state of one service of a shard; the numbers are 0 when `error` says why it did not answer.

    `problem` says what is wrong and what to do, empty when all is well. While a log is being recovered, everything from
    `recovery_begin_offset` to `recovery_next_offset` is checked and `recovery_end_offset` is where its files end.
    `newest_store_time_millis` is of the newest record that it has, None when it does not say.
    """

    service: str
    address: str
    error: StoreError | None = None
    log_first_offset: int = 0
    log_end_offset: int = 0
    next_offset: int = 0
    catching_up: bool = False
    state: str = ""
    problem: str = ""
    recovery_begin_offset: int = 0
    recovery_next_offset: int = 0
    recovery_end_offset: int = 0
    file_count: int = 0
    file_size_bytes: int = 0
    key_count: int = 0
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    disk_level: str = ""
    newest_store_time_millis: int | None = None


class RecordReader(Protocol):
    """Reads the log."""

    def get(self, commit_log_offset: int, deadline: Deadline) -> FoundRecord:
        """The record that starts there, with its body.

        RecordNotFoundError when none does, OffsetOutOfRangeError outside the log, RecordCorruptedError when damaged.
        """

    def get_many(
        self, commit_log_offsets: Sequence[int], body_bytes_max: int, deadline: Deadline
    ) -> Sequence[FoundRecord | StoreError]:
        """One outcome for each offset, in order; fewer (but at least one) when the answer was full.

        A body comes along while it fits into `body_bytes_max` bytes of bodies; after the first that does not, none may.
        """


class QueueLocator(Protocol):
    """Reads the consume queues. TopicNotFoundError and QueueNotFoundError when it has no file of such a queue."""

    def list_queues(self, topic: str | None, deadline: Deadline) -> Sequence[QueueRange]:
        """The queues of a topic (none when unknown), or all."""

    def units(
        self, topic: str, queue_id: int, queue_offset: int, unit_count_max: int, deadline: Deadline
    ) -> QueueStretch:
        """Up to `unit_count_max` units from a position on."""

    def search_offset(
        self, topic: str, queue_id: int, time_millis: int, boundary: Boundary, deadline: Deadline
    ) -> FoundOffset:
        """The position for a store time."""

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """How far the queues are: once they are past that byte, or after so long, or at once when too many wait."""


class KeyLocator(Protocol):
    """Reads the key index."""

    def search(
        self,
        topic: str,
        key: str,
        window: TimeWindow,
        *,
        below_offset: int | None,
        count_max: int,
        deadline: Deadline,
        explain: bool = False,
    ) -> Candidates:
        """Up to `count_max` candidates, newest first, only such as start below `below_offset` (None: all).

        `explain` also asks how they were found.

        The index knows whole seconds and hashes: a candidate may lie outside the window and be another key's.
        """

    def progress(self, past_offset: int, wait_seconds: float, deadline: Deadline) -> BuildProgress:
        """How far the index is: once it is past that byte, or after so long, or at once when too many wait."""


class TopicCatalog(Protocol):
    """Knows the configured topics."""

    def queue_counts(self, deadline: Deadline) -> Mapping[str, int]:
        """Number of queues by topic name, for every configured topic."""

    def new_topic_queue_count(self, deadline: Deadline) -> int:
        """Queues that a topic gets which its first message makes; 0 when topics are made by hand."""


class StatusReader(Protocol):
    """Asks a shard's services how they are."""

    def statuses(self, deadline: Deadline) -> Sequence[ServiceStatus]:
        """One row for each service; a service that does not answer has its error in the row."""


class Archive(Protocol):
    """Knows what of a shard's archive cannot be had; its messages come through the other ports."""

    def problem(self, topic: str | None, deadline: Deadline) -> StoreError | None:
        """Why messages of a topic, or of any, may be missing that the log has dropped; None when all is well."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One CommitLog with its queues and indexes, and what it has dropped where there is an archive."""

    broker_name: str
    records: RecordReader
    queues: QueueLocator
    keys: KeyLocator
    topics: TopicCatalog
    services: StatusReader
    archive: Archive | None = None
