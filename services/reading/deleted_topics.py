"""DeletedTopics: where in the log the topics ended that were deleted, as the commit log's topic table says.

The table is asked for again when it is needed and older than LOOK_SECONDS; the call is small while nothing changes. When it
fails, what was known holds; that is nothing until the log is recovered after a start. Delivery waits for that, and knows itself
what was deleted (consumer_svc/topic_view.py).
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import StoreError

# A deletion is seen so much later at most.
LOOK_SECONDS = 0.1
CALL_SECONDS = 2.0
# After a call that failed: no caller waits for the next one before.
FAILED_SECONDS = 1.0

_log = structlog.get_logger("reput.follower")


class TopicSource(Protocol):
    """Gives the topic table, as the client of the commit log does."""

    def list_topics(self, *, known_version: int, without_topics: bool, timeout_seconds: float) -> pb.ListTopicsResponse:
        """Where topics were deleted, among others; only `version` when nothing has changed."""


class DeletedTopics:
    """See the top of this file; thread-safe.

    Args:
        source: gives the table.
        clock: seconds, rising.
    """

    def __init__(self, source: TopicSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._asking = threading.Lock()
        self._version = 0
        self._before: Mapping[str, int] = {}
        self._look_at = clock()

    def before(self, topic: str) -> int:
        """Messages of the topic before this byte of the log are deleted; 0: none."""
        if self._clock() >= self._look_at and self._asking.acquire(blocking=False):
            try:
                self._ask(CALL_SECONDS)
            except StoreError as error:
                self._look_at = self._clock() + (FAILED_SECONDS if self._version else LOOK_SECONDS)
                _log.info("topics.not_seen", error=error.message, reason=error.reason())
            finally:
                self._asking.release()
        return self._before.get(topic, 0)

    def _ask(self, timeout_seconds: float) -> None:
        """With the lock held."""
        answer = self._source.list_topics(  # each new topic is a change: 100,000 of them are not asked for
            known_version=self._version, without_topics=True, timeout_seconds=timeout_seconds
        )
        self._look_at = self._clock() + LOOK_SECONDS
        if answer.version != self._version:
            self._version, self._before = answer.version, dict(answer.deleted_before)


def nothing_deleted(_topic: str) -> int:
    """`before` of a store whose topics are never deleted."""
    return 0
