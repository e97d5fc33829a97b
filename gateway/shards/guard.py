"""Keeps a shard that hangs from using up the threads that all queries share.

A call to a shard may take most of its caller's deadline. While one of several shards hangs, each query holds a thread
for that long; after as many queries as there are threads, no thread is left for the other shards (docs/scale.md has
figures). So a call is refused at once when:

    half of all threads wait for the shard, the oldest call for over HURRY_SECONDS, and no call was answered within these
    no call was answered within PATIENCE_SECONDS, and
        several calls are running, the oldest for over PATIENCE_SECONDS; one alone may only be slow: the next one tests
        or the last call exceeded its deadline, and another one is running: a single call tests the shard, and further ones
        wait HURRY_SECONDS for its answer

A refused call makes the answer PARTIAL with the shard's name, as a call that times out does. When no shard is left, the
query fails with UNAVAILABLE, which names the service and the shard; so a service that hangs is told from a caller that has
too little time. A service that waits in vain for another one answers so, and does not hang itself: the other one is named.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from gateway.ports.chain import Answering, Concern, ShardMethod
from gateway.ports.deadline import Deadline
from gateway.ports.shard import ARCHIVE_PROBLEM, GET_RECORD, GET_RECORDS, KEYS_PROGRESS, QUEUES_PROGRESS, Shard
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

# A healthy shard answers in milliseconds; a cold disk may take a second.
PATIENCE_SECONDS = 2.0
# Many short calls at once are not refused, and a call that ended sooner had a caller in a hurry.
HURRY_SECONDS = 0.25

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


class ShardGuard:
    """Counts the running calls to one service of a shard; thread-safe.

    Args:
        service: its name.
        broker_name: the shard's name.
        thread_count: the number of threads that all queries share.
        clock: seconds, rising.
    """

    def __init__(
        self, service: str, broker_name: str, thread_count: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._service = service
        self._broker_name = broker_name
        self._share_count = max(thread_count // 2, 1)
        self._clock = clock
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._waiter_count = 0  # of calls that wait for another one's end
        self._begun: dict[int, float] = {}  # begin of each running call, oldest first
        self._number = 0
        self._was_late = False
        self._answered_at = -math.inf

    def call(
        self, call: Callable[Parameters, Answer], *arguments: Parameters.args, **options: Parameters.kwargs
    ) -> Answer:
        """Make a call to the shard; ServiceUnavailableError when it hangs, and the errors of the call."""
        number, begin = self._begin()
        try:
            answer = call(*arguments, **options)
        except DeadlineExceededError as error:
            waited = self._clock() - begin
            hanging = error.metadata.get("service", self._service)
            if hanging != self._service:
                self._end(number, was_late=False, is_answered=True)
                raise self._unavailable(f"did not answer {self._service} in time", hanging) from error
            # A short deadline of the caller does not show that the shard hangs.
            self._end(number, was_late=waited >= PATIENCE_SECONDS or self._was_late)
            if waited < HURRY_SECONDS:
                raise
            raise self._unavailable(f"did not answer for {waited:.1f} s") from error
        except StoreError:
            self._end(number, was_late=False, is_answered=True)
            raise
        except BaseException:
            self._end(number, was_late=self._was_late)
            raise
        self._end(number, was_late=False, is_answered=True)
        return answer

    def _begin(self) -> tuple[int, float]:
        with self._lock:
            if self._begun:
                refusal = self._refusal()
                if refusal is not None and self._waited() < HURRY_SECONDS:
                    self._waiter_count += 1
                    self._ended.wait(HURRY_SECONDS - self._waited())
                    self._waiter_count -= 1
                    refusal = self._refusal()
                if refusal is not None:
                    raise refusal
            self._number += 1
            now = self._begun[self._number] = self._clock()
            return self._number, now

    def _waited(self) -> float:
        """For how long the oldest call has run; with the lock held, as `_refusal`."""
        return self._clock() - next(iter(self._begun.values()), self._clock())

    def _refusal(self) -> ServiceUnavailableError | None:
        if not self._begun:
            return None
        waited = self._waited()
        silent_seconds = self._clock() - self._answered_at
        is_silent = silent_seconds > PATIENCE_SECONDS
        is_slow = waited > PATIENCE_SECONDS and len(self._begun) > 1
        is_full = min(waited, silent_seconds) > HURRY_SECONDS and len(self._begun) >= self._share_count
        if is_full or (is_silent and (is_slow or self._was_late)):
            return self._unavailable(f"does not answer: {len(self._begun)} calls wait for it, one for {waited:.1f} s")
        return None

    def _unavailable(self, what: str, service: str = "") -> ServiceUnavailableError:
        service = service or self._service
        return ServiceUnavailableError(
            f"{service} of shard {self._broker_name} {what}: it hangs or is overloaded. Look at this service, and ask again.",
            service=service,
            brokerName=self._broker_name,
        )

    def _end(self, number: int, *, was_late: bool, is_answered: bool = False) -> None:
        now = self._clock()
        with self._lock:
            del self._begun[number]
            self._was_late = was_late
            if is_answered:
                self._answered_at = now
            if self._waiter_count:
                self._ended.notify_all()


def guarded(shard: Shard, thread_count: int, clock: Callable[[], float] = time.monotonic) -> Shard:
    """The shard with a guard for each of its services. Its status is asked without a guard.

    Args:
        shard: the shard.
        thread_count: the number of threads that all queries share.
        clock: seconds, rising.
    """

    def guard(service: str) -> ShardGuard:
        return ShardGuard(service, shard.broker_name, thread_count, clock)

    guards = {service: guard(service) for service in ("commitlog", "consumequeue", "index", "consumer", "schedule")}
    # One service answers for all, unless slow reads of an archive are among the records.
    records = guard("commitlog") if shard.has(ARCHIVE_PROBLEM) else guards["commitlog"]

    def link(method: ShardMethod[Any, Any], request: Any, deadline: Deadline, below: Answering) -> Any:
        # Not where the call waits on purpose, or cannot wait.
        if not (method.is_guarded and deadline.waits) or (
            method in (QUEUES_PROGRESS, KEYS_PROGRESS) and request.wait_millis
        ):
            return below(method, request, deadline)
        reads = method is GET_RECORD or method is GET_RECORDS
        return (records if reads else guards[method.service]).call(below, method, request, deadline)

    return shard.with_link(Concern.GUARD, link)
