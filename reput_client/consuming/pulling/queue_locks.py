"""The locks of an ordered pull consumer: it polls and commits only queues that the gateway has locked for it.

RocketMQ's ConsumeMessageOrderlyService: a lock is renewed every 20 seconds, and counts for 30 seconds after it was asked for.
The shard keeps it for 60. So when a lock is lost, another member has the queue no sooner than 30 seconds after this one has
stopped to poll it, and a commit under way has ended by then.
"""

import time
from collections.abc import Callable, Collection, Mapping

from reput_client.consuming.pulling.allocation import MessageQueue
from reput_client.consuming.subscription import Member
from reput_client.errors import ReputClientError
from reput_client.querying.query_client import QueryClient

# RocketMQ's rebalance.lockInterval and rebalance.lockMaxLiveTime of its client.
RENEW_SECONDS = 20.0
LOCK_SECONDS = 30.0
# Of a LockQueues.
QUEUE_COUNT_MAX = 1_024


class QueueLocks:
    """Asks for the locks of one member.

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

        A queue whose shard does not answer is left out: what was known of it holds.
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
