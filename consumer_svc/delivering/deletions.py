"""Deletions: takes the groups past what was deleted with a topic.

A group that has begun in the topic goes on behind its last deleted message, as after a reset: what it had in flight, or waiting
in its retry topics of the topic, is forgotten. To groups that begin later the reader does not give what was deleted
(services/reading/queue_reader.py).
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import structlog

from consumer_svc.delivering.life import Life
from consumer_svc.delivering.moves import next_retry_topic_of
from consumer_svc.state.group_states import Change
from consumer_svc.state.queue_state import Ended, Moved, QueueRef
from services.following.state_topic.state_writer import wait_for
from store.errors import ServiceUnavailableError, StoreError, UnsupportedStoreError, failure_fields
from store.format.topic import retry_topic_v2_of

# The queues are some milliseconds behind the log.
BUILT_SECONDS_MAX = 3.0
PAUSE_SECONDS = 0.01

_log = structlog.get_logger("reput.consumer")


class Deletions:
    """See the top of this file; for one thread at a time.

    Args:
        life: what delivery shares.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._seen: dict[str, int] = {}
        self._problems: dict[str, str] = {}

    def see(self) -> None:
        """Take the groups past the deletions that are known.

        Those whose queues cannot be read now, because they are not built yet or for another reason, at the next call.
        """
        due = self._due()
        refs = self._refs(due)
        for topic, before in due.items():
            try:
                self._pass(topic, before, refs[topic])
            except StoreError as error:
                if self._problems.get(topic) != error.message:  # once, not at each look
                    _log.info("deletion.waits", **failure_fields(error, topic=topic))
                self._problems[topic] = error.message
                continue
            self._see(topic, before)

    def see_now(self, seconds_max: float = BUILT_SECONDS_MAX, pause: Callable[[float], object] = time.sleep) -> None:
        """The same for the deletions that there are now; in the log when this returns.

        Raises:
            StoreError: the topics are not known now, or the queues are not built in time.
        """
        life = self._life
        life.refuse_if_over()
        life.topics.load()
        due = self._due()
        refs = self._refs(due)
        for topic, before in due.items():
            for left in range(int(seconds_max / PAUSE_SECONDS), -1, -1):
                try:
                    self._pass(topic, before, refs[topic])
                    break
                except ServiceUnavailableError:
                    if not left:
                        raise
                    pause(PAUSE_SECONDS)
            self._see(topic, before)
        with life.lock:
            written = life.newest_write()
        wait_for(written)

    def _due(self) -> dict[str, int]:
        """The deletions that the groups were not taken past yet."""
        return {topic: before for topic, before in self._life.topics.deleted.items() if self._seen.get(topic) != before}

    def _see(self, topic: str, before: int) -> None:
        self._seen[topic] = before
        self._problems.pop(topic, None)

    def _pass(self, topic: str, before: int, refs: Sequence[QueueRef]) -> None:
        """Take groups past a deletion; each queue is asked once, however many groups have it."""
        life = self._life
        firsts: dict[tuple[str, int], int] = {}
        for each in dict.fromkeys((ref.topic, ref.queue_id) for ref in refs):
            with contextlib.suppress(UnsupportedStoreError):  # nothing of such a queue is delivered
                firsts[each] = life.reader.first_after(*each, before)
        known = [ref for ref in refs if (ref.topic, ref.queue_id) in firsts]
        with life.lock:
            changes = [change for ref in known for change in self._changes(ref, firsts[ref.topic, ref.queue_id], topic)]
            if changes:
                life.change(changes)
                for ref in known:
                    life.note_again(ref)

    def _changes(self, ref: QueueRef, first: int, topic: str) -> Iterator[Change]:
        """The changes that take a group to a position and keep what it has in flight behind it."""
        state = self._life.states.find(ref)
        if state is None:
            if ref.topic != topic and first and ref.consumer_group in self._life.states.groups:
                yield Moved(ref, first, is_reset=True)
        elif state.next_offset <= first:
            if state.consumer_offset < first:
                yield Moved(ref, first, is_reset=True)
        elif old := sorted(at for at in itertools.chain(state.leases, state.waiting) if at < first):
            yield Ended(ref, old)

    def _refs(self, topics: Collection[str]) -> dict[str, list[QueueRef]]:
        """By topic: its queues, and those of its retry topics, of the groups that have begun in the topic."""
        refs: dict[str, list[QueueRef]] = {topic: [] for topic in topics}
        if not refs:
            return refs
        ends = self._life.reader.recent.ends
        with self._life.lock:
            for name, group in self._life.states.groups.items():
                for topic in [topic for topic in group.topics if topic in refs]:
                    for each in dict.fromkeys(
                        (topic, next_retry_topic_of(name, topic), retry_topic_v2_of(name, topic))
                    ):
                        refs[topic] += [QueueRef(name, each, queue_id) for queue_id in ends(each)]
        return refs
