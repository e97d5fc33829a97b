"""QueueLocks: which member of a group has a queue for itself, for members that pull in order; RocketMQ's RebalanceLockManager.

A lock holds for LOCK_SECONDS after its member asked last. In memory only. After a start, and where the log leads its shard from
now on, nothing is known of the locks that were held before. So a queue that somebody may have locked (its group has a position
in it) is given only to a member that says that it has it, for the first LOCK_SECONDS. So a lock is never held by two, also over
a restart or a change of leaders. RocketMQ gives it to the first that asks.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consumer_svc.state.queue_state import QueueRef
from store.errors import InvalidArgumentError, ResourceBusyError
from store.format.topic import RETRY_OR_DLQ_TOPIC_LENGTH_MAX as TOPIC_LENGTH_MAX
from store.format.topic import TOPIC_QUEUE_COUNT_MAX

# RocketMQ's REBALANCE_LOCK_MAX_LIVE_TIME.
LOCK_SECONDS = 60.0
QUEUE_COUNT_MAX = 1_024
LOCK_COUNT_MAX = 100_000
CLIENT_ID_LENGTH_MAX = 1_024
# Locks that are over are dropped when there are so many, and twice as many as were left the last time.
SWEEP_COUNT_MIN = 1_000


@dataclass(slots=True)
class _Lock:
    client_id: str
    until: float  # seconds of the clock


class QueueLocks:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._locks: dict[QueueRef, _Lock] = {}
        self._sweep_at = SWEEP_COUNT_MIN

    def begin_again(self) -> None:
        """Locks are asked for here from now on, because the log leads: others may have been given meanwhile, elsewhere."""
        with self._lock:
            self._started = self._clock()
            self._locks.clear()

    def lock(
        self, client_id: str, queues: Sequence[QueueRef], *, renew: bool, was_consumed: Callable[[QueueRef], bool]
    ) -> list[QueueRef]:
        """Lock queues for a member, or longer; those that it has now.

        Args:
            client_id: the member.
            queues: 1 to 1,024.
            renew: it has them by an answer that is younger than LOCK_SECONDS.
            was_consumed: whether the group of a queue has a position in it.

        Raises:
            InvalidArgumentError: a name or a number is not possible.
            ResourceBusyError: there are too many locks.
        """
        check(client_id, queues)
        now = self._clock()
        is_new = now - self._started < LOCK_SECONDS
        held: list[QueueRef] = []
        with self._lock:
            for ref in queues:
                known = self._locks.get(ref)
                if known is None:
                    if is_new and not renew and was_consumed(ref):
                        continue
                    self._make_room(now)
                    self._locks[ref] = _Lock(client_id, now + LOCK_SECONDS)
                elif known.client_id == client_id or known.until <= now:
                    known.client_id, known.until = client_id, now + LOCK_SECONDS
                else:
                    continue
                held.append(ref)
        return held

    def unlock(self, client_id: str, queues: Sequence[QueueRef]) -> None:
        """Unlock the queues that a member has; errors as `lock`."""
        check(client_id, queues)
        now = self._clock()
        with self._lock:
            for ref in queues:
                known = self._locks.get(ref)
                if known is not None and known.client_id == client_id:
                    known.until = now  # the entry stays: the queue is known to be free

    def _make_room(self, now: float) -> None:
        if len(self._locks) < self._sweep_at:
            return
        if now - self._started >= LOCK_SECONDS:
            self._locks = {ref: lock for ref, lock in self._locks.items() if lock.until > now}
        self._sweep_at = min(max(2 * len(self._locks), SWEEP_COUNT_MIN), LOCK_COUNT_MAX)
        if len(self._locks) >= LOCK_COUNT_MAX:
            raise ResourceBusyError(f"{LOCK_COUNT_MAX} queues are locked: try again when some are unlocked")


def check(client_id: str, queues: Sequence[QueueRef]) -> None:
    """Raise InvalidArgumentError for a name or a number that is not possible."""
    if not 1 <= len(client_id) <= CLIENT_ID_LENGTH_MAX:
        raise InvalidArgumentError(
            f"client_id has {len(client_id)} characters: 1 to {CLIENT_ID_LENGTH_MAX} are possible", field="client_id"
        )
    if not 1 <= len(queues) <= QUEUE_COUNT_MAX:
        raise InvalidArgumentError(f"{len(queues)} queues: 1 to {QUEUE_COUNT_MAX} are possible", field="queues")
    for ref in queues:
        if not 1 <= len(ref.topic) <= TOPIC_LENGTH_MAX or not 0 <= ref.queue_id < TOPIC_QUEUE_COUNT_MAX:
            raise InvalidArgumentError(
                f"topic {ref.topic[:64]!r}, queue {ref.queue_id}: none may be empty, negative or too large",
                field="queues",
            )
