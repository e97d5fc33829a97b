"""HeldQueues: the queues that a pull consumer has, from the time that it gets one until another member may have it.

not ordered     a queue that another member shall have is committed and dropped
ordered         nothing further of it is polled; when what was polled is processed, it is committed, dropped and unlocked.
                A queue is begun when it is locked, from the position that the member before has committed until then.
                Without its lock it is dropped, and nothing is committed for it.
broadcast       every member has all queues, without locks; a position is kept here only
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.consuming.pulling.beginnings import POSITION_COUNT_MAX, Beginnings
from reput_client.consuming.pulling.fetching import Fetcher
from reput_client.consuming.pulling.membership import Membership, StartFrom
from reput_client.consuming.pulling.pull_queue import PullQueue
from reput_client.consuming.pulling.queue_locks import LOCK_SECONDS, RENEW_SECONDS, QueueLocks
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.errors import NotFoundError, ReputClientError
from reput_client.querying.groups import QueuePosition
from reput_client.querying.query_client import QueryClient

_log = logging.getLogger("reput_client")


class HeldQueues:
    """See the top of this file.

    Args:
        changed: the condition of the consumer; its lock guards the queues.
        client: commits positions.
        consumer_group: the group.
        membership: knows the positions of the group.
        fetcher: fetches the queues.
        locks: of an ordered consumer; else None.
        start_from: where the group begins.
        settings: limits and times.
        clock: that of the locks.

    Attributes:
        by_name: the queues; the lock is held.
    """

    def __init__(
        self,
        changed: threading.Condition,
        client: QueryClient,
        consumer_group: str,
        membership: Membership,
        fetcher: Fetcher,
        locks: QueueLocks | None,
        start_from: "StartFrom | datetime",
        settings: PullConsumerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.by_name: dict[MessageQueue, PullQueue] = {}
        self._changed = changed
        self._client = client
        self._consumer_group = consumer_group
        self._membership = membership
        self._fetcher = fetcher
        self._locks = locks
        self._beginnings = Beginnings(client, consumer_group, membership, start_from)
        self._settings = settings
        self._clock = clock
        self._committing = threading.Lock()  # positions arrive in the order in which they are committed

    @property
    def _shared_locks(self) -> QueueLocks | None:
        return None if self._membership.is_broadcast else self._locks

    def rebalance(self, share: frozenset[MessageQueue]) -> None:
        """Have these queues; ReputClientError when some cannot be had now."""
        with self._changed:
            for queue, each in self.by_name.items():
                if queue in share:
                    each.is_leaving = False
                elif not each.is_leaving:
                    each.leave()
            lost = [
                each
                for each in self.by_name.values()
                if each.is_leaving and (self._shared_locks is None or not each.is_polled)
            ]
            gained = sorted(share - set(self.by_name))
            self._changed.notify_all()
        if lost:
            try:
                self.commit()
            finally:
                self._drop(lost)
            self.unlock([each.queue for each in lost])
        if gained:
            self._begin(gained)

    def _begin(self, gained: Collection[MessageQueue]) -> None:
        locks = self._shared_locks
        locked = dict.fromkeys(gained, math.inf) if locks is None else locks.lock(gained)
        held = {queue: until for queue, until in locked.items() if until is not None}
        if not held:
            return
        begun = []
        for queue, (offset, committed_offset) in self._beginnings.begin(held).items():
            begun.append(PullQueue(queue, offset, committed_offset, self._settings))
            begun[-1].locked_until = held[queue]
        with self._changed:
            for each in begun:
                self.by_name[each.queue] = each
                self._fetcher.begin(each)
        if self._settings.commit_seconds:
            self.commit()

    def renew(self) -> None:
        """Renew the locks of an ordered consumer that are due; ReputClientError when no shard answers."""
        if self._shared_locks is None or self._locks is None:
            return
        now = self._clock()
        with self._changed:
            over = [each for each in self.by_name.values() if each.locked_until <= now]
        if over:
            self._drop(over)
        with self._changed:
            due = [each for each in self.by_name.values() if each.locked_until < now + LOCK_SECONDS - RENEW_SECONDS]
        if not due:
            return
        found = self._locks.lock([each.queue for each in due], renew=True)
        refused = [each for each in due if found.get(each.queue, now) is None]
        with self._changed:
            for each in due:
                each.locked_until = found.get(each.queue, each.locked_until) or now
        if refused:
            self._drop(refused)

    def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Let other members lock queues."""
        if self._locks is None or not queues:
            return
        try:
            self._locks.unlock(queues)
        except ReputClientError as error:
            _log.info("some locks of the group %s end by themselves: %s", self._consumer_group, error.message)

    def commit(self) -> None:
        """Keep the positions behind what is processed; ReputClientError when they cannot be kept now."""
        with self._committing:
            now = self._clock()
            with self._changed:
                behind = [
                    each
                    for each in self.by_name.values()
                    if each.done_offset != each.committed_offset and now < each.locked_until
                ]
                offsets = [each.done_offset for each in behind]
            try:
                self._commit(behind, offsets)
            except NotFoundError:  # a topic that there is not keeps no position of another one back
                self._commit_by_topic(behind, offsets)

    def _commit_by_topic(self, queues: Sequence[PullQueue], offsets: Sequence[int]) -> None:
        by_topic: dict[tuple[str, str], list[tuple[PullQueue, int]]] = {}
        for each, offset in zip(queues, offsets, strict=True):
            by_topic.setdefault((each.queue.broker_name, each.queue.topic), []).append((each, offset))
        for (broker_name, topic), held in by_topic.items():
            try:
                self._commit([each for each, _ in held], [offset for _, offset in held])
            except NotFoundError as error:
                _log.info("positions in topic %s of %s are not kept yet: %s", topic, broker_name, error.message)

    def _commit(self, queues: Sequence[PullQueue], offsets: Sequence[int]) -> None:
        positions = [
            QueuePosition(each.queue.topic, each.queue.queue_id, offset, each.queue.broker_name)
            for each, offset in zip(queues, offsets, strict=True)
        ]
        for begin in range(0, len(positions), POSITION_COUNT_MAX):
            end = begin + POSITION_COUNT_MAX
            if not self._membership.is_broadcast:
                self._client.commit_offsets(self._consumer_group, positions[begin:end])
            for each, offset in zip(queues[begin:end], offsets[begin:end], strict=True):
                each.committed_offset = offset

    def _drop(self, lost: Iterable[PullQueue]) -> None:
        with self._changed:
            for each in lost:
                each.remove()
                self._beginnings.leave(each.queue, each.done_offset)
                self.by_name.pop(each.queue, None)
            self._changed.notify_all()
