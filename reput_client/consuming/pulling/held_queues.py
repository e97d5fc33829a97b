"""`HeldQueues`: the queues that a pull consumer has, from the time that it gets one until another member may have it.

    not ordered     a queue that another member shall have is committed and dropped
    ordered         nothing further of it is polled; when what was polled is processed, it is committed, dropped and unlocked.
                    A queue is begun when it is locked, from the position that the member before has committed until then.
                    Without its lock it is dropped, and nothing is committed for it.
    broadcast       every member has all queues, without locks; a position is kept here only

`StartPositions` decides where a queue is begun, `QueueLocks` asks for the locks of an ordered consumer.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.consuming.pulling.membership import Membership, StartFrom
from reput_client.consuming.pulling.pull_queue import Fetcher, PullQueue
from reput_client.consuming.settings import PullConsumerSettings
from reput_client.consuming.subscription import Member
from reput_client.errors import NotFoundError, ReputClientError
from reput_client.querying.groups import QueuePosition
from reput_client.querying.query_client import QueryClient

# Of a CommitOffsets.
POSITION_COUNT_MAX = 1_024

_log = logging.getLogger("reput_client")

Offsets = dict[MessageQueue, int]


class StartPositions:
    """Where a pull consumer begins in queues that its group has no position in.

    This is decided once for a group and topic, for all queues of the topic in all shards, and kept as positions:

        the group has a position in the topic    at the first message: this queue, or its shard, came after the group began
        the topic did not exist at an earlier    likewise
        look of this consumer
        else                                     the group begins now: each queue of the topic gets its position

    Two members may begin a topic at the same time: a position that exists is kept, so both continue at the same ones.

    Args:
        client: commits positions.
        consumer_group: the group.
        membership: knows the positions of the group and the queues of its topics.
        start_from: where the group begins.
    """

    def __init__(
        self,
        client: QueryClient,
        consumer_group: str,
        membership: Membership,
        start_from: "StartFrom | datetime",
    ) -> None:
        self._client = client
        self._consumer_group = consumer_group
        self._membership = membership
        self._start_from = start_from
        self._begun: set[str] = set()
        self._decided: Offsets = {}  # where the group begins, as long as not all of it is kept: a shard did not answer
        self._left: Offsets = {}

    def leave(self, queue: MessageQueue, done_offset: int) -> None:
        """This member has lost a queue. In a group that broadcasts it continues there when it has the queue again."""
        if self._membership.is_broadcast:
            self._left[queue] = done_offset

    def begin(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, tuple[int, int | None]]:
        """For each queue the position to begin at, and the group's own position, None when it could not be kept.

        Raises:
            ReputClientError: it is not known now.
        """
        committed = self._committed()
        missing = {queue.topic for queue in queues if queue not in committed}
        starts = dict(self._decided)
        for topic in sorted(missing):
            starts |= self._starts(topic, queues, committed)
        if starts and not self._membership.is_broadcast:
            self._decided = starts
            self._keep(starts)
            self._decided = {}
            committed = self._committed()
        self._begun |= missing
        return {queue: (committed.get(queue, starts.get(queue, 0)), committed.get(queue)) for queue in queues}

    def _committed(self) -> Mapping[MessageQueue, int]:
        return self._left if self._membership.is_broadcast else self._membership.committed()

    def _starts(self, topic: str, queues: Collection[MessageQueue], committed: Mapping[MessageQueue, int]) -> Offsets:
        """A position for the queues of a topic that have none: of those that are wanted, or of all when the group begins."""
        wanted = {queue for queue in queues if queue.topic == topic}
        start = self._start_from
        begun = self._begun | self._membership.absent | {queue.topic for queue in self._decided}
        if topic in begun or any(queue.topic == topic for queue in committed):
            start = StartFrom.FIRST
        else:
            wanted.update(queue for queue in self._membership.known if queue.topic == topic)
        missing = sorted(wanted - committed.keys() - self._decided.keys())
        return {queue: self._membership.start_offset(queue, start) for queue in missing}

    def _keep(self, starts: Offsets) -> None:
        parts: dict[tuple[str, str], list[QueuePosition]] = {}
        for queue, offset in starts.items():
            position = QueuePosition(queue.topic, queue.queue_id, offset, queue.broker_name)
            parts.setdefault((queue.topic, queue.broker_name), []).append(position)
        for (topic, broker_name), positions in parts.items():
            for at in range(0, len(positions), POSITION_COUNT_MAX):
                some = positions[at : at + POSITION_COUNT_MAX]
                try:
                    self._client.commit_offsets(self._consumer_group, some, begins=True)
                except NotFoundError as error:
                    _log.info("topic %s of %s is not begun yet: %s", topic, broker_name, error.message)


# RocketMQ's rebalance.lockInterval and rebalance.lockMaxLiveTime of its client.
RENEW_SECONDS = 20.0
LOCK_SECONDS = 30.0
# Of a LockQueues.
QUEUE_COUNT_MAX = 1_024


class QueueLocks:
    """The locks of one member of an ordered group: it polls and commits only queues that the gateway has locked for it.

    As RocketMQ's ConsumeMessageOrderlyService: a lock is renewed every 20 seconds, and counts for 30 seconds after the request.
    The shard keeps it for 60. So when a lock is lost, another member has the queue no sooner than 30 seconds after this one has
    stopped to poll it, and a commit under way has ended by then.

    Args:
        client: makes the calls.
        member: the consumer.
        clock: seconds, rising.
    """

    def __init__(self, client: QueryClient, member: Member, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._member = member
        self._clock = clock

    def lock(self, queues: Collection[MessageQueue], *, renew: bool = False) -> "Mapping[MessageQueue, float | None]":
        """Lock queues: until when each is locked, by the clock; None: another member has it.

        A queue whose shard does not answer is left out: its last answer holds.
        """
        found: dict[MessageQueue, float | None] = {}
        failure: ReputClientError | None = None
        for of_shard in _by_shard(queues):
            until = self._clock() + LOCK_SECONDS
            try:
                held = self._client.lock_queues(
                    self._member.consumer_group, self._member.client_id, of_shard, renew=renew
                )
            except ReputClientError as error:
                failure = error
                continue
            found |= {queue: until if queue in held else None for queue in of_shard}
        if failure is not None and not found:
            raise failure
        return found

    def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock queues, each shard's; ReputClientError when one does not answer: its locks are over by themselves."""
        failure: ReputClientError | None = None
        for of_shard in _by_shard(queues):
            try:
                self._client.lock_queues(self._member.consumer_group, self._member.client_id, of_shard, unlock=True)
            except ReputClientError as error:
                failure = error
        if failure is not None:
            raise failure


def _by_shard(queues: Collection[MessageQueue]) -> list[list[MessageQueue]]:
    """One call for each shard, so that one that is away does not hold back the others."""
    by_shard: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        by_shard.setdefault(queue.broker_name, []).append(queue)
    return [
        of_shard[begin : begin + QUEUE_COUNT_MAX]
        for of_shard in by_shard.values()
        for begin in range(0, len(of_shard), QUEUE_COUNT_MAX)
    ]


_log = logging.getLogger("reput_client")


class HeldQueues:
    """See the top of this file; one for each consumer.

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
        self._start_positions = StartPositions(client, consumer_group, membership, start_from)
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
        for queue, (offset, committed_offset) in self._start_positions.begin(held).items():
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
                self._start_positions.leave(each.queue, each.done_offset)
                self.by_name.pop(each.queue, None)
            self._changed.notify_all()
