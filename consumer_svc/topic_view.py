"""TopicView: what the commit log says of topics: which there are and may be read, whose queues are served, their counts, what
was deleted.

The table is asked for again when it is needed and older than LOOK_SECONDS, and with time (`look`), so that polls that wait for
a topic hear that they wait in vain. The call is small while nothing changes. When it fails, what was known holds.

It has one kind of topics made: `%RETRY%group`, when the group gets its first member over any door, as RocketMQ does. Tools ask
for its route before a message was ever sent back.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from consumer_svc.arrivals import Arrivals
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1.message_pb2 import MESSAGE_TYPE_PRIORITY
from services.rpcs import Calls
from services.rpcs.commitlog import APPEND_INTERNAL, LIST_TOPICS
from store.errors import (
    InvalidMessageError,
    StoreError,
    TopicNotFoundError,
    TopicNotReadableError,
    UnsupportedStoreError,
)
from store.features.table import hidden_by_name
from store.format.topic import DLQ_PREFIX, PERM_READ, RETRY_PREFIX, pull_retry_topic_of, validate_topic

# A change of a topic holds here so much later at most.
LOOK_SECONDS = 0.1
CALL_SECONDS = 2.0
# Of a caller that needs the answer.
NEEDED_CALL_SECONDS = 5.0
# After a call that failed: no caller waits for the next one before.
FAILED_SECONDS = 1.0
# Retry topics that one call makes; the limit of AppendInternal.
MAKE_COUNT_MAX = 1_024
# Of that call: heartbeats, which wait for it, are answered within 2 s.
MAKE_CALL_SECONDS = 1.0
# Calls that one thread makes for others, too; what is left then comes with the next group, or heartbeat.
MAKE_ROUND_COUNT_MAX = 8

_log = structlog.get_logger("reput.consumer")


@dataclass(frozen=True, slots=True)
class _Table:
    """The topics of one version.

    `unreadable` names those that may not be read, `by_priority` those of the type PRIORITY; `lite_minutes` says after how long
    lite topics expire, of topics where they do.
    """

    version: int = 0
    queue_counts: Mapping[str, int] = field(default_factory=dict)
    unreadable: frozenset[str] = frozenset()
    by_priority: frozenset[str] = frozenset()
    deleted_before: Mapping[str, int] = field(default_factory=dict)
    lite_minutes: Mapping[str, int] = field(default_factory=dict)
    are_made_by_messages: bool = True


class TopicView:
    """See the top of this file; thread-safe.

    Args:
        source: gives the table.
        arrivals: hears of topics whose right to read has changed, and of those that are gone.
        clock: seconds, rising.
        hidden: topics whose queues are not served, each with the reason.
    """

    def __init__(
        self,
        source: Calls,
        arrivals: Arrivals,
        clock: Callable[[], float],
        hidden: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._hidden = hidden
        self._source = source
        self._arrivals = arrivals
        self._clock = clock
        self._asking = threading.Lock()
        self._look_at = self._asked_at = self._make_at = clock()
        self._making, self._wanted_lock = threading.Lock(), threading.Lock()
        self._wanted: dict[str, None] = {}  # retry topics that the next call makes, of groups that were made
        self._table = _Table()

    def look(self) -> None:
        """Ask again when it is time; another caller that asks already is not waited for."""
        if self._clock() >= self._look_at and self._asking.acquire(blocking=False):
            try:
                self._ask(CALL_SECONDS)
            except StoreError as error:
                self._look_at = self._clock() + FAILED_SECONDS
                _log.info("topics.not_seen", error=error.message, reason=error.reason())
            finally:
                self._asking.release()

    def check_readable(self, topic: str) -> None:
        """Raise TopicNotReadableError for a topic that is configured without the right to read.

        And UnsupportedStoreError for one whose queues are not served.
        """
        if problem := self._hidden.get(topic) or hidden_by_name(topic):
            raise UnsupportedStoreError(problem, topic=topic)
        self.look()
        if topic in self._table.unreadable:
            raise TopicNotReadableError(
                f"topic {topic} is configured without the right to read: change its perm", topic=topic, perm="read"
            )

    def check_exists(self, topic: str, *, has_messages: bool, may_come: bool = False) -> None:
        """Raise TopicNotFoundError for a topic that there is not, as RocketMQ's broker does (TOPIC_NOT_EXIST).

        There is one that is configured, or has messages and was not deleted. Retry and dead-letter topics may always come: the
        first message that needs them makes them.

        Args:
            topic: the topic.
            has_messages: whether it has a queue with messages, deleted ones included.
            may_come: a topic that was never there, and that its first message makes, is no error.

        Raises:
            StoreError: it is not known here, and the commit log cannot be asked now.
        """
        if self._is_absent(topic, has_messages, may_come):
            self._load_since(self._clock())  # it may have been made meanwhile
            if self._is_absent(topic, has_messages, may_come):
                what = "was deleted" if topic in self._table.deleted_before else "does not exist"
                raise TopicNotFoundError(
                    f"topic {topic!r} {what}: make it, or check its name", topic=topic, isAbsent="true"
                )

    def _is_absent(self, topic: str, has_messages: bool, may_come: bool) -> bool:
        table = self._table
        if topic in table.queue_counts or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            return False
        if topic in table.deleted_before:
            return True
        return not has_messages and not (may_come and table.are_made_by_messages)

    def _load_since(self, seconds: float) -> None:
        """Have what the commit log said later than that; callers that come together share a call."""
        with self._asking:
            if self._asked_at <= seconds:
                self._ask(NEEDED_CALL_SECONDS)

    def load(self) -> None:
        """Ask now; StoreError when that fails."""
        with self._asking:
            self._ask(NEEDED_CALL_SECONDS)

    def is_by_priority(self, topic: str) -> bool:
        """Whether the messages of a topic have priorities, as last seen."""
        return topic in self._table.by_priority

    def lite_expiration_minutes(self, topic: str) -> int:
        """After how many minutes without a message the lite topics of a topic are forgotten, as last seen; 0: never."""
        return self._table.lite_minutes.get(topic, 0)

    @property
    def has_lite_expiration(self) -> bool:
        """Whether lite topics of some topic are forgotten."""
        return bool(self._table.lite_minutes)

    def make_retry_topics(self, consumer_groups: Iterable[str], *, wait: bool) -> None:
        """Have the topics of what members of these groups send back, with one queue each, where there are none.

        Each call writes the topic table, of some 200 bytes for each topic. So those that are asked for during a call are made
        together by the next one. What fails is tried again by a later call; no heartbeat is refused for it.

        Args:
            consumer_groups: groups that were made.
            wait: until they are there, or it failed; else another thread may be making them.
        """
        self.look()
        known = self._table.queue_counts
        missing = dict.fromkeys(
            topic
            for group in consumer_groups
            if (topic := pull_retry_topic_of(group)) not in known and _can_be_made(topic)
        )
        if not missing:
            return
        with self._wanted_lock:
            self._wanted |= missing
        for _ in range(MAKE_ROUND_COUNT_MAX):
            if not (wait or self._wanted) or self._clock() < self._make_at:
                return
            if not self._making.acquire(blocking=wait):
                return  # the thread that makes some looks again after its call
            try:
                self._make_wanted()
            finally:
                self._making.release()
            wait = False

    def want_no_retry_topic(self, consumer_group: str) -> None:
        """A group was deleted: its retry topic is not made any more, unless a call is under way."""
        with self._wanted_lock:
            self._wanted.pop(pull_retry_topic_of(consumer_group), None)

    def _make_wanted(self) -> None:
        """With `_making` held."""
        with self._wanted_lock:
            topics = list(self._wanted)[:MAKE_COUNT_MAX]
        if not topics or self._clock() < self._make_at:  # it failed while this caller waited for its turn
            return
        try:
            self._source.call(APPEND_INTERNAL, pb.AppendInternalRequest(new_topics=topics), MAKE_CALL_SECONDS)
        except StoreError as error:
            self._make_at = self._clock() + FAILED_SECONDS
            _log.info("topics.not_made", count=len(topics), error=error.message, reason=error.reason())
        else:
            with self._wanted_lock:
                for topic in topics:
                    self._wanted.pop(topic, None)
        self._look_at = self._clock()

    @property
    def deleted(self) -> Mapping[str, int]:
        """Of topics that were deleted: the byte of the log where each ended, as last seen."""
        return self._table.deleted_before

    def deleted_before(self, topic: str) -> int:
        """Messages of the topic before this byte of the log are not delivered; 0: none."""
        return self._table.deleted_before.get(topic, 0)

    def queue_counts(self) -> Mapping[str, int]:
        """The queues of each configured topic, as they are now; StoreError when that cannot be told."""
        self.load()
        return self._table.queue_counts

    def _ask(self, timeout_seconds: float) -> None:
        """With the lock held."""
        before = self._table
        self._asked_at = self._clock()
        request = pb.ListTopicsRequest(known_version=before.version)
        answer = self._source.call(LIST_TOPICS, request, timeout_seconds)
        self._look_at = self._clock() + LOOK_SECONDS
        if answer.version == before.version:
            return
        unreadable = frozenset(each.topic for each in answer.topics if not each.perm & PERM_READ)
        by_priority = frozenset(each.topic for each in answer.topics if each.message_type == MESSAGE_TYPE_PRIORITY)
        counts = {each.topic: max(each.write_queue_count, each.read_queue_count) for each in answer.topics}
        minutes = {
            each.topic: each.lite_expiration_minutes for each in answer.topics if each.lite_expiration_minutes > 0
        }
        makes = answer.new_topic_queue_count > 0
        deleted = dict(answer.deleted_before)
        self._table = _Table(answer.version, counts, unreadable, by_priority, deleted, minutes, makes)
        self._arrivals.note_topics((unreadable ^ before.unreadable) | (before.queue_counts.keys() - counts.keys()))


def _can_be_made(topic: str) -> bool:
    """Whether a topic can have this name: that of a retry topic is longer than its group's, and one call makes many topics."""
    try:
        validate_topic(topic)
    except InvalidMessageError:
        return False
    return True
