"""The shards that a running gateway knows: shards join and move, and none is removed.

Only an operator knows whether a shard that cannot be found is gone for good. A gateway that left it out would answer that
its messages do not exist. So it asks a known shard until it is restarted without it; an answer without the shard is
PARTIAL and names it.

A query works on a snapshot (`now`), so a shard that joins during the query does not change it.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from gateway.ports.shard import Shard
from gateway.ports.shards import FanOut, Shards
from gateway.shards.targets import ShardTargets

_log = structlog.get_logger("reput.gateway")


class OpenShard(Protocol):
    """A shard and its open connections."""

    @property
    def targets(self) -> ShardTargets:
        """The addresses of its services."""

    @property
    def shard(self) -> Shard:
        """The shard."""

    def close(self) -> None:
        """End its calls; later calls fail."""


Open = TypeVar("Open", bound=OpenShard)


class ShardDirectory(Generic[Open]):
    """Keeps shards open; thread-safe.

    Args:
        open_shard: opens a shard; must not block.
        fan_out: asks several shards at once.
        retire: gets the `close` of the connections that a moved shard leaves behind, to call it when their calls have ended.
        guard: wraps each shard.
        changed: called with all open shards, in order, at each change, before `now` shows the change. When it raises an
            error, nothing has changed, and the next `keep` calls it again.
        known: called at each change, after `now` shows it.
    """

    def __init__(
        self,
        open_shard: Callable[[ShardTargets], Open],
        fan_out: FanOut,
        *,
        retire: Callable[[Callable[[], None]], object],
        guard: Callable[[Shard], Shard] = lambda shard: shard,
        changed: Callable[[Sequence[Open]], object] = lambda _: None,
        known: Callable[[], object] = lambda: None,
    ) -> None:
        self._open_shard = open_shard
        self._fan_out = fan_out
        self._retire = retire
        self._guard = guard
        self._changed = changed
        self._known = known
        self._guarded: dict[str, Shard] = {}
        self._lock = threading.Lock()
        self._open: dict[str, Open] = {}
        self._opened: dict[ShardTargets, Open] = {}  # opened by a `keep` that failed, used by the next one
        self._now: Shards | None = None
        self._is_closed = False

    def now(self) -> Shards:
        """All current shards, in the order in which they joined. `keep` must have been called before."""
        assert self._now is not None, "a gateway without shards"
        return self._now

    def close(self) -> None:
        """Close all connections, after the last call; a later `keep` opens none."""
        with self._lock:
            self._is_closed = True
            left = [*self._open.values(), *self._opened.values()]
        for one in left:
            one.close()

    def keep(self, targets: Iterable[ShardTargets]) -> None:
        """Open new shards, and open shards again whose addresses have changed. Other shards stay as they are.

        When this raises an error, nothing has changed; the caller may give the same targets again.
        """
        with self._lock:
            if self._is_closed:
                return  # threads that still look are not waited for
            before = self._open
            opened = dict(before)
            guarded = dict(self._guarded)
            for wanted in targets:
                name = wanted.broker_name
                if name in before and before[name].targets == wanted:
                    continue
                if wanted not in self._opened:
                    self._opened[wanted] = self._open_shard(wanted)
                opened[name] = self._opened[wanted]
                guarded[name] = self._guard(opened[name].shard)
            if opened == before:
                return
            self._changed(list(opened.values()))
            asked = [guarded[name] for name in opened]
            self._now, self._open, self._guarded = Shards(asked, self._fan_out), opened, guarded
            stay = {id(one) for one in opened.values()}
            left = [one for one in (*before.values(), *self._opened.values()) if id(one) not in stay]
            self._opened = {}
        for name, one in opened.items():
            if one is not before.get(name):
                event = "shard.moved" if name in before else "shard.joined"
                _log.info(event, broker_name=name, commitlog=one.targets.commitlog)
        for one in left:
            self._retire(one.close)
        self._known()
