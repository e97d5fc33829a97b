"""Beginnings: where a pull consumer begins in queues that its group has no position in.

This is decided once for a group and topic, for all queues of the topic in all shards, and kept as positions:

    the group has a position in the topic    at the first message: this queue, or its shard, came after the group began
    there was no such topic at an earlier    likewise
    look of this consumer
    else                                     the group begins now: each queue of the topic gets its position

Two members may begin a topic at the same time: a position that is there is kept, so both go on at the same ones.
"""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime

from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.consuming.pulling.membership import Membership, StartFrom
from reput_client.errors import NotFoundError
from reput_client.querying.groups import QueuePosition
from reput_client.querying.query_client import QueryClient

# Of a CommitOffsets.
POSITION_COUNT_MAX = 1_024

_log = logging.getLogger("reput_client")

Offsets = dict[MessageQueue, int]


class Beginnings:
    """See the top of this file.

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
        """This member does not have a queue any more; where it was matters in a group that broadcasts."""
        if self._membership.is_broadcast:
            self._left[queue] = done_offset

    def begin(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, tuple[int, int | None]]:
        """Where to go on in each queue, and the position that the group has there, None when it could not be kept.

        Raises:
            ReputClientError: it cannot be told now.
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
