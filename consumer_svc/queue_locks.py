"""QueueLocks: which member of a group has a queue for itself, for members that pull in order; RocketMQ's RebalanceLockManager.

A lock holds for LOCK_SECONDS after its member asked last. In memory only. After a start, and where the log leads its shard from
now on, nothing is known of the locks that were held before. So a queue that somebody may have locked (its group has a position
in it) is given only to a member that says that it has it, for the first LOCK_SECONDS. So a lock is never held by two, also over
a restart or a change of leaders. RocketMQ gives it to the first that asks.

Locks are divided among their callers as everything that is kept (services/serving/admission/shares.py, ADR 0111): a client has
at most a tenth of them, so one that locks all it can leaves others theirs. Those of a member that has ended are unlocked.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from consumer_svc.state.queue_state import QueueRef
from services.serving.admission.shares import Client, client_of_name, kept_shares
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
# Callers without room make the service look for locks that are over so often at most.
SWEEP_SECONDS = 1.0


@dataclass(slots=True)
class _Lock:
    client_id: str
    until: float  # seconds of the clock
    owner: Client  # in whose share it counts


class QueueLocks:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
        count_max: locks of all callers.
    """

    def __init__(self, clock: Callable[[], float], count_max: int = LOCK_COUNT_MAX) -> None:
        self._clock = clock
        self._shares = kept_shares(count_max)
        self._started = clock()
        self._lock = threading.Lock()
        self._locks: dict[QueueRef, _Lock] = {}
        self._members: dict[tuple[str, str], dict[QueueRef, None]] = {}  # by group and client id
        self._groups: dict[str, dict[QueueRef, None]] = {}
        self._sweep_at = SWEEP_COUNT_MIN
        self._refused_until = self._started

    def begin_again(self) -> None:
        """Locks are asked for here from now on, because the log leads: others may have been given meanwhile, elsewhere."""
        with self._lock:
            self._started = self._clock()
            self._locks.clear()
            self._members.clear()
            self._groups.clear()
            self._shares = kept_shares(self._shares.count_max)

    def lock(
        self,
        client_id: str,
        queues: Sequence[QueueRef],
        *,
        renew: bool,
        was_consumed: Callable[[QueueRef], bool],
        caller: str = "",
    ) -> list[QueueRef]:
        """Lock queues for a member, or longer; those that it has now.

        Args:
            client_id: the member.
            queues: 1 to 1,024.
            renew: it has them by an answer that is younger than LOCK_SECONDS.
            was_consumed: whether the group of a queue has a position in it.
            caller: in whose share new locks count.

        Raises:
            InvalidArgumentError: a name or a number is not possible.
            ResourceBusyError: the caller's share of locks is in use; none of those that it did not have is locked.
        """
        check(client_id, queues)
        owner = client_of_name(caller)
        now = self._clock()
        is_new = now - self._started < LOCK_SECONDS
        held: list[QueueRef] = []
        new: list[QueueRef] = []
        with self._lock:
            for ref in queues:
                known = self._locks.get(ref)
                if known is not None and known.client_id == client_id:
                    known.until = now + LOCK_SECONDS
                elif known.until > now if known is not None else is_new and not renew and was_consumed(ref):
                    continue
                else:
                    try:
                        self._make_room(now, owner)
                    except ResourceBusyError:
                        for each in new:
                            self._end(each, self._locks[each], now)
                        raise
                    self._add(ref, _Lock(client_id, now + LOCK_SECONDS, owner))
                    new.append(ref)
                held.append(ref)
        return held

    def has_some(self, consumer_group: str) -> bool:
        """Whether a member of a group has a queue; RocketMQ's `isLockAllExpired` is the opposite."""
        now = self._clock()
        with self._lock:
            return any(self._locks[ref].until > now for ref in self._groups.get(consumer_group, ()))

    def unlock(self, client_id: str, queues: Sequence[QueueRef]) -> None:
        """Unlock the queues that a member has; errors as `lock`."""
        check(client_id, queues)
        now = self._clock()
        with self._lock:
            for ref in queues:
                known = self._locks.get(ref)
                if known is not None and known.client_id == client_id:
                    self._end(ref, known, now)

    def end_client(self, consumer_group: str, client_id: str) -> None:
        """A member has ended: its queues are free."""
        now = self._clock()
        with self._lock:
            for ref in list(self._members.get((consumer_group, client_id), ())):
                self._end(ref, self._locks[ref], now)

    def _end(self, ref: QueueRef, lock: _Lock, now: float) -> None:
        """End a lock."""
        if now - self._started >= LOCK_SECONDS:
            self._drop(ref)
        else:
            lock.until = now  # the entry stays: the queue is known to be free

    def _add(self, ref: QueueRef, lock: _Lock) -> None:
        if ref in self._locks:
            self._drop(ref)
        self._locks[ref] = lock
        self._members.setdefault((ref.consumer_group, lock.client_id), {})[ref] = None
        self._groups.setdefault(ref.consumer_group, {})[ref] = None
        self._shares.take(lock.owner)

    def _drop(self, ref: QueueRef) -> None:
        lock = self._locks.pop(ref)
        self._shares.give_back(lock.owner)
        member = ref.consumer_group, lock.client_id
        del self._members[member][ref]
        if not self._members[member]:
            del self._members[member]
        del self._groups[ref.consumer_group][ref]
        if not self._groups[ref.consumer_group]:
            del self._groups[ref.consumer_group]

    def _make_room(self, now: float, owner: Client) -> None:
        """Drop locks that are over when there are many, or the owner has no room."""
        shares = self._shares
        has_room = shares.has_room(owner)
        if has_room and len(self._locks) < self._sweep_at:
            return
        if now - self._started >= LOCK_SECONDS and (has_room or now >= self._refused_until):
            for ref in [ref for ref, lock in self._locks.items() if lock.until <= now]:
                self._drop(ref)
            self._refused_until = now + SWEEP_SECONDS
        self._sweep_at = max(2 * len(self._locks), SWEEP_COUNT_MIN)
        if not shares.has_room(owner):
            raise ResourceBusyError(
                f"this client has locked {shares.held(owner)} queues, and with at most {shares.count_max} locks of all clients "
                f"that is its share: unlock some, or wait {LOCK_SECONDS:.0f} s until those end that are not renewed",
                countMax=shares.count_max,
            )


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
