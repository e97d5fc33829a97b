"""The shards that a gateway knows, while it runs: they join and move, and none leaves.

Whether a shard that cannot be found is gone for good only an operator knows; to leave it out would turn its messages into
"there are none". So a known shard is asked, and an answer without it is PARTIAL and names it, until the gateway is started
anew without it.

A query works on a snapshot (`now`), so that a shard that joins in the middle of it does not matter.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from gateway.fan_out import FanOut
from gateway.ports import Shard
from gateway.sharding.targets import ShardTargets
from gateway.shards import Shards

_log = structlog.get_logger("reput.gateway")


class OpenShard(Protocol):
    """A shard and what is open for it."""

    @property
    def targets(self) -> ShardTargets:
        """Where it is."""

    @property
    def shard(self) -> Shard:
        """The shard."""

    def close(self) -> None:
        """End its calls, and take no more."""


Open = TypeVar("Open", bound=OpenShard)


class ShardDirectory(Generic[Open]):
    """Keeps shards open; thread-safe.

    Args:
        open_shard: opens one; must not wait for anybody.
        fan_out: how several are asked at once.
        retire: takes the `close` of what a moved shard leaves behind, to be called once its calls have ended.
        guard: puts something before a shard when there are several.
        changed: called with all that is open, in order, at each change and before `now` tells of it. When it raises, nothing
            has changed, and the next `keep` calls it again.
        known: called at each change once `now` tells of it.
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
        self._opened: dict[ShardTargets, Open] = {}  # by a `keep` that failed: for the next one
        self._now: Shards | None = None

    def now(self) -> Shards:
        """All of this moment, in the order in which they came; `keep` came before."""
        assert self._now is not None, "a gateway without shards"
        return self._now

    def keep(self, targets: Iterable[ShardTargets]) -> None:
        """Open those that are new, and anew those that have other addresses now; the others stay as they are.

        All of it or nothing: what this raises leaves everything as it was, and the same targets can be given again.
        """
        with self._lock:
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
            asked = [one.shard for one in opened.values()]
            if len(asked) > 1:
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
