"""Keeps a shard that hangs from taking the threads that all queries share.

A call to a shard has most of its caller's time. So while one of several shards hangs, each query would hold a thread for it
until then, and after as many queries as there are threads none is left to ask the sound ones (docs/scale.md has figures).

    calls are under way, the oldest for over PATIENCE_SECONDS               no other is begun
    half of all threads wait for the shard, the oldest for over HURRY_SECONDS   no other is begun
    a call ended late, and none has been answered since                     one at a time: it finds out

Who is refused is told so at once, and the answer is PARTIAL and names the shard, as it would have been later.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gateway.ports import Shard
from store.errors import DeadlineExceededError, ServiceUnavailableError, StoreError

# Sound shards answer in milliseconds; a cold disk may take a second.
PATIENCE_SECONDS = 2.0
# Many calls at once are no reason for a refusal when each is soon over.
HURRY_SECONDS = 0.25
# Calls that wait on purpose.
WAITING_CALLS = frozenset({"progress"})


class ShardGuard:
    """Counts what is under way to one shard; thread-safe.

    Args:
        name: the shard's.
        thread_count: of the threads that all queries share.
        clock: seconds, rising.
    """

    def __init__(self, name: str, thread_count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._share_count = max(thread_count // 2, 1)
        self._clock = clock
        self._lock = threading.Lock()
        self._begun: dict[int, float] = {}  # in the order of their begin
        self._number = 0
        self._was_late = False

    def call(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a call to the shard; ServiceUnavailableError when it hangs, and what the call raises."""
        number, begin = self._begin()
        try:
            answer = call(*arguments, **options)
        except DeadlineExceededError:
            # A caller without time says nothing about the shard.
            self._end(number, was_late=self._clock() - begin >= PATIENCE_SECONDS or self._was_late)
            raise
        except StoreError:
            self._end(number, was_late=False)
            raise
        except BaseException:
            self._end(number, was_late=self._was_late)
            raise
        self._end(number, was_late=False)
        return answer

    def _begin(self) -> tuple[int, float]:
        now = self._clock()
        with self._lock:
            if self._begun:
                waited = now - next(iter(self._begun.values()))
                if (
                    self._was_late
                    or waited > PATIENCE_SECONDS
                    or (waited > HURRY_SECONDS and len(self._begun) >= self._share_count)
                ):
                    raise ServiceUnavailableError(
                        f"{self._name} does not answer: {len(self._begun)} calls wait for it, one for {waited:.1f} s",
                        service=self._name,
                    )
            self._number += 1
            self._begun[self._number] = now
            return self._number, now

    def _end(self, number: int, *, was_late: bool) -> None:
        with self._lock:
            del self._begun[number]
            self._was_late = was_late


class _Guarded:
    """A port, each of whose calls goes through a guard."""

    def __init__(self, port: object, guard: ShardGuard) -> None:
        self._port = port
        self._guard = guard

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call, guard = getattr(self._port, name), self._guard
        if name in WAITING_CALLS or not callable(call):
            return call  # type: ignore[no-any-return]  # as the port has it

        def guarded(*arguments: Any, **options: Any) -> Any:
            return guard.call(call, *arguments, **options)

        self.__dict__[name] = guarded  # the next call finds it at once
        return guarded


def guarded(shard: Shard, thread_count: int, clock: Callable[[], float] = time.monotonic) -> Shard:
    """The shard behind a guard for each of its services; its status is asked past them."""

    def behind(port: Any, service: str) -> Any:
        return _Guarded(port, ShardGuard(f"{service} of {shard.broker_name}", thread_count, clock))

    records = behind(shard.records, "commitlog")
    is_one: bool = shard.topics is shard.records  # type: ignore[comparison-overlap]  # one client serves both ports
    topics = records if is_one else behind(shard.topics, "commitlog")
    return replace(
        shard,
        records=records,
        topics=topics,
        queues=behind(shard.queues, "consumequeue"),
        keys=behind(shard.keys, "index"),
    )
