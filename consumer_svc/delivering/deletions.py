"""Deletions: takes the groups past what was deleted with a topic.

A group that has begun in the topic goes on behind its last deleted message, as after a reset: what it had in flight, or waiting
in its retry topics of the topic, is forgotten. To groups that begin later the reader does not give what was deleted
(services/reading/queue_reader.py).
"""

import itertools
import time
from collections.abc import Callable, Iterator

import structlog

from consumer_svc.delivering.life import Life
from consumer_svc.delivering.moves import next_retry_topic_of
from consumer_svc.state.group_states import Change
from consumer_svc.state.queue_state import Ended, Moved, QueueRef
from services.following.state_topic.state_writer import wait_for
from store.errors import ServiceUnavailableError
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

    def see(self) -> None:
        """Take the groups past the deletions that are known; those whose queues are not built yet at the next call."""
        for topic, before in self._life.topics.deleted.items():
            if self._seen.get(topic) == before:
                continue
            try:
                self._pass(topic, before)
            except ServiceUnavailableError as error:
                _log.info("deletion.waits", topic=topic, error=error.message)
                continue
            self._seen[topic] = before

    def see_now(self, seconds_max: float = BUILT_SECONDS_MAX, pause: Callable[[float], object] = time.sleep) -> None:
        """The same for the deletions that there are now; in the log when this returns.

        Raises:
            StoreError: the topics are not known now, or the queues are not built in time.
        """
        life = self._life
        life.refuse_if_over()
        life.topics.load()
        for topic, before in life.topics.deleted.items():
            if self._seen.get(topic) == before:
                continue
            for left in range(int(seconds_max / PAUSE_SECONDS), -1, -1):
                try:
                    self._pass(topic, before)
                    break
                except ServiceUnavailableError:
                    if not left:
                        raise
                    pause(PAUSE_SECONDS)
            self._seen[topic] = before
        with life.lock:
            written = life.newest_write()
        wait_for(written)

    def _pass(self, topic: str, before: int) -> None:
        life = self._life
        with life.lock:
            refs = list(self._refs(topic))
        firsts = [(ref, life.reader.first_after(ref.topic, ref.queue_id, before)) for ref in refs]
        with life.lock:
            changes = [change for ref, first in firsts for change in self._changes(ref, first, topic)]
            if changes:
                life.change(changes)
                for ref, _ in firsts:
                    life.note_again(ref)

    def _changes(self, ref: QueueRef, first: int, topic: str) -> Iterator[Change]:
        """What takes a group to a position, and keeps what it has in flight behind it."""
        state = self._life.states.find(ref)
        if state is None:
            if ref.topic != topic and first and ref.consumer_group in self._life.states.groups:
                yield Moved(ref, first, is_reset=True)
        elif state.next_offset <= first:
            if state.consumer_offset < first:
                yield Moved(ref, first, is_reset=True)
        elif old := sorted(at for at in itertools.chain(state.leases, state.waiting) if at < first):
            yield Ended(ref, old)

    def _refs(self, topic: str) -> Iterator[QueueRef]:
        """The queues of the topic, and of its retry topics, of the groups that have begun in the topic."""
        ends = self._life.reader.recent.ends
        for name, group in self._life.states.groups.items():
            if topic not in group.topics:
                continue
            for each in dict.fromkeys((topic, next_retry_topic_of(name, topic), retry_topic_v2_of(name, topic))):
                for queue_id in ends(each):
                    yield QueueRef(name, each, queue_id)
