"""DeletedTopics: where in the log the topics ended that were deleted, as the commit log's topic table says.

The table is asked for again when it is needed and older than LOOK_SECONDS; the call is small while nothing changes. When it
fails, what was known holds; that is nothing until the log is recovered after a start. Delivery waits for that, and knows itself
what was deleted (consumer_svc/topic_view.py). Queries ask for the whole table, and get the error while nothing is known, or a
change is known of which the table is not. An ask that fails for one of them fails for all that wait for the same.
"""

import threading
import time
from collections.abc import Callable

import structlog

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.rpcs import Calls
from services.rpcs.commitlog import LIST_TOPICS
from store.errors import ServiceUnavailableError, StoreError

# A deletion is seen so much later at most.
LOOK_SECONDS = 0.1
CALL_SECONDS = 2.0
# After a call that failed: no caller waits for the next one before.
FAILED_SECONDS = 1.0

_log = structlog.get_logger("reput.follower")


class DeletedTopics:
    """See the top of this file; thread-safe.

    Args:
        source: calls the commit log, for the topic table.
        clock: seconds, rising.
    """

    def __init__(self, source: Calls, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._asking = threading.Lock()
        self._table = pb.ListTopicsResponse()
        self._error: StoreError | None = None
        self._failed = 0, 0.0  # the change count as the last ask that failed began; until when its error answers
        self._look_at = clock()
        self._changing = threading.Lock()
        self._change_count = 1  # what the store has at the start is the first change
        self._seen_count = 0
        self._asked_count = 0

    def before(self, topic: str) -> int:
        """Messages of the topic before this byte of the log are deleted; 0: none."""
        self._look(CALL_SECONDS, 0)
        return self._table.deleted_before.get(topic, 0)

    def table(self, timeout_seconds: float) -> pb.ListTopicsResponse:
        """The table as last read, without topics; the same object while nothing changes.

        Raises:
            StoreError: nothing is known since the start or since `expire`, and the commit log does not say it in time.
        """
        change_count = self._change_count
        self._look(min(CALL_SECONDS, timeout_seconds), change_count)
        if self._seen_count < change_count:
            raise self._error or ServiceUnavailableError(
                "The commit log does not say what its store has: ask again; reput status shows the service.",
                service="commitlog",
            )
        return self._table

    def fresh_table(self) -> pb.ListTopicsResponse | None:
        """As `table`, where no look is due; None: `table` may ask."""
        if self._seen_count < self._change_count or self._clock() >= self._look_at:
            return None
        return self._table

    def expire(self) -> None:
        """The table has changed: later calls get none that is older."""
        with self._changing:
            self._change_count += 1
        self._look_at = self._clock()

    def _look(self, timeout_seconds: float, change_count: int) -> None:
        """Ask again when it is time, or while fewer changes are seen than `change_count`.

        Only then another caller that asks already is waited for: what it hears may be older. When it hears an error that is
        not older, the calls that wait have that error.
        """
        until = self._clock() + timeout_seconds
        waits = self._seen_count < change_count
        if waits and self._has_failed(change_count):
            return
        if not waits and self._clock() < self._look_at:
            return
        if not self._asking.acquire(waits, timeout_seconds if waits else -1):
            return
        try:
            if self._has_failed(change_count):
                return
            if self._seen_count < change_count or self._clock() >= self._look_at:
                self._ask(max(until - self._clock(), 0))
        except StoreError as error:
            self._error = error
            self._failed = self._asked_count, self._clock() + LOOK_SECONDS
            self._look_at = self._clock() + (FAILED_SECONDS if self._table.version else LOOK_SECONDS)
            _log.info("topics.not_seen", error=error.message, reason=error.reason())
        finally:
            self._asking.release()

    def _has_failed(self, change_count: int) -> bool:
        """Whether an ask failed a moment ago that would have told this change."""
        failed_count, until = self._failed
        return self._seen_count < change_count <= failed_count and self._clock() < until

    def _ask(self, timeout_seconds: float) -> None:
        """With the lock held."""
        change_count = self._asked_count = self._change_count
        # Each new topic is a change: 100,000 of them are not asked for.
        request = pb.ListTopicsRequest(known_version=self._table.version, without_topics=True)
        answer = self._source.call(LIST_TOPICS, request, timeout_seconds)
        if answer.version != self._table.version:
            self._table = answer
        self._error = None
        self._seen_count = change_count
        self._look_at = self._clock() + LOOK_SECONDS


def nothing_deleted(_topic: str) -> int:
    """`before` of a store whose topics are never deleted."""
    return 0
