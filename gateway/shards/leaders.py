"""Leaders: of each shard with replicas, the one that leads, as its commit log says it.

Theory of operation: the commit log of every replica is asked for its status each second, by a few threads; while a shard has no
leader, ten times as often. Every answer decides anew (`choose`): the leader with the highest epoch is the shard. An epoch that
was seen is never left for a lower one, so that a deposed leader that is cut off from everyone but this gateway gets nothing.
While nothing leads, the shard stays where it was: appends there are refused, queries may be answered.

What is still under way at the leader before is ended LEFT_SECONDS after the move: a leader that is stopped would keep its
callers waiting until their deadlines, and nothing that it answers counts any more.

A shard without replicas is passed on as it is and asked nothing.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from gateway.shards.replica_choice import ReplicaFacts
from gateway.shards.targets import ShardTargets
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.commitlog import CommitLogClient
from services.convert import confirm_offset
from services.replica_role import ReplicaRole, replica_role
from services.rpcs import commitlog as rpc
from services.serving.tls import TlsIdentity
from store.errors import StoreError

LOOK_SECONDS = 1.0
# While a shard has no leader: part of the time in which its appends are refused.
SEARCH_SECONDS = 0.1
ASK_SECONDS = 1.0
ASKING_THREAD_COUNT = 16
LEFT_SECONDS = 1.0

_log = structlog.get_logger("reput.gateway")

# What a replica's commit log says of itself; None: it does not answer.
Roles = Mapping[str, ReplicaRole | None]


@dataclass(slots=True)
class _Shard:
    """A shard with replicas: all of them, the chosen one, the highest epoch seen, and the newest answer of each by name."""

    replicas: tuple[ShardTargets, ...]
    chosen: ShardTargets
    epoch: int = 0
    roles: dict[str, ReplicaRole | None] = field(default_factory=dict)

    def is_led(self) -> bool:
        """Whether the chosen one led when it was asked last."""
        role = self.roles.get(self.chosen.replica)
        return role is not None and role.leads and role.epoch >= self.epoch


def choose(roles: Roles, chosen: str, epoch: int) -> tuple[str, int]:
    """The replica that is the shard now, and its epoch.

    Args:
        roles: the newest answers, by replica.
        chosen: the replica that has been the shard.
        epoch: the highest one seen.
    """
    leading = {name: role.epoch for name, role in roles.items() if role is not None and role.leads}
    newest = max(leading.values(), default=-1)
    if newest < epoch or leading.get(chosen) == newest:
        return chosen, max(epoch, newest)
    return min(name for name, its_epoch in leading.items() if its_epoch == newest), newest


class Leaders:
    """See the top of this file; thread-safe.

    Args:
        shards: gets the targets of all shards, one for each, at each change; may raise StoreError, and is called again then.
        ask: asks a replica for its role; None when it does not answer.
        retire: gets the `close` of connections that a shard leaves behind without a change of its leader.
        executor: runs the asking.
        clock: seconds, rising.
    """

    def __init__(
        self,
        shards: Callable[[Sequence[ShardTargets]], object],
        ask: Callable[[ShardTargets], ReplicaRole | None],
        retire: Callable[[Callable[[], None]], object] = lambda close: close(),
        executor: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shards = shards
        self._ask = ask
        self._retire = retire
        self._is_moving = False
        self._executor = executor or ThreadPoolExecutor(ASKING_THREAD_COUNT, thread_name_prefix="gateway-leaders")
        self._clock = clock
        self._changed = threading.Condition(threading.RLock())
        self._replicated: dict[str, _Shard] = {}
        self._known: dict[str, ShardTargets] = {}
        self._asking: set[ShardTargets] = set()
        self._woken = threading.Event()
        self._is_stopped = False

    def keep(self, targets: Iterable[ShardTargets]) -> None:
        """Take shards and replicas, new ones and known ones; a shard that is left out stays. Errors as of `shards`."""
        found: dict[str, list[ShardTargets]] = {}
        for one in targets:
            found.setdefault(one.broker_name, []).append(one)
        with self._changed:
            for name, replicas in found.items():
                if not replicas[0].replica:
                    self._replicated.pop(name, None)
                    self._known[name] = replicas[0]
                    continue
                before = self._replicated.get(name)
                if before is None:
                    self._replicated[name] = _Shard(tuple(replicas), replicas[0])
                else:
                    before.replicas = tuple(replicas)
                    same = [one for one in replicas if one.replica == before.chosen.replica]
                    before.chosen = same[0] if same else replicas[0]
                self._known[name] = self._replicated[name].chosen
            self._shards(list(self._known.values()))
        self._woken.set()

    def retire(self, close: Callable[[], None]) -> None:
        """Takes the `close` of connections that a shard leaves behind, while `shards` runs."""
        if not self._is_moving:
            self._retire(close)
            return
        timer = threading.Timer(LEFT_SECONDS, close)
        timer.daemon = True
        timer.start()

    def is_replicated(self, broker_name: str) -> bool:
        """Whether the shard has replicas."""
        return broker_name in self._replicated

    def replicas(self, broker_name: str) -> tuple[bool, Sequence[ShardTargets]]:
        """Whether the shard has a leader, and its replicas, the leader first or the last one; none without replicas."""
        with self._changed:
            shard = self._replicated.get(broker_name)
            if shard is None:
                return True, ()
            return shard.is_led(), (shard.chosen, *(one for one in shard.replicas if one is not shard.chosen))

    def led(self) -> dict[str, bool]:
        """Of each shard with replicas, whether it had a leader when its replicas were asked last."""
        with self._changed:
            return {name: shard.is_led() for name, shard in self._replicated.items()}

    def note_not_leading(self, broker_name: str, commitlog: str) -> None:
        """The commit log at that address has refused an append because it does not lead, or could not be reached."""
        with self._changed:
            shard = self._replicated.get(broker_name)
            if shard is not None and shard.chosen.commitlog == commitlog:
                shard.roles[shard.chosen.replica] = None
        self._woken.set()

    def wait_until_led(self, broker_name: str, seconds: float) -> bool:
        """Wait until the shard has a leader that the shards know; False when the time ran out first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_stopped or (shard := self._replicated.get(broker_name)) is None or shard.is_led(),
                seconds,
            )

    def start(self) -> None:
        """Look from now on until `stop`."""

        def run() -> None:
            while not self._is_stopped:
                self.look()
                self._woken.wait(LOOK_SECONDS if self._are_led() else SEARCH_SECONDS)
                self._woken.clear()

        threading.Thread(target=run, name="gateway-leaders", daemon=True).start()

    def look(self) -> None:
        """Ask each replica that is not being asked already; returns before they have answered."""
        with self._changed:
            wanted = [one for shard in self._replicated.values() for one in shard.replicas if one not in self._asking]
            self._asking.update(wanted)
        for one in wanted:
            with contextlib.suppress(RuntimeError):  # stopped
                self._executor.submit(self._look_at, one)

    def stop(self) -> None:
        """Look no more."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._woken.set()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _look_at(self, one: ShardTargets) -> None:
        role = None
        try:
            role = self._ask(one)
        except Exception:
            _log.exception("shard.not_asked", broker_name=one.broker_name, replica=one.replica)
        with self._changed:
            self._asking.discard(one)
            shard = self._replicated.get(one.broker_name)
            if shard is None or one not in shard.replicas or self._is_stopped:
                return
            shard.roles[one.replica] = role
            self._decide(shard)
            self._changed.notify_all()

    def _decide(self, shard: _Shard) -> None:
        name, epoch = choose(shard.roles, shard.chosen.replica, shard.epoch)
        if name == shard.chosen.replica:
            shard.epoch = epoch
            return
        chosen = next(one for one in shard.replicas if one.replica == name)
        known = self._known | {chosen.broker_name: chosen}
        self._is_moving = True
        try:
            self._shards(list(known.values()))
        except StoreError as error:
            _log.error("shard.not_moved", broker_name=chosen.broker_name, error=error.message)
            return  # the next answer tries again
        finally:
            self._is_moving = False
        shard.chosen, shard.epoch, self._known = chosen, epoch, known
        _log.info("shard.has_new_leader", broker_name=chosen.broker_name, replica=name, epoch=epoch)

    def _are_led(self) -> bool:
        with self._changed:
            return all(shard.is_led() for shard in self._replicated.values())


def facts_of(status: pb.GetStatusResponse, asked_at: float) -> ReplicaFacts:
    """What a status says of a replica that may be read; asked for at that time (monotonic seconds)."""
    is_known = status.HasField("reach") and status.reach.HasField("staleness")
    return ReplicaFacts(
        leads=status.role == "leader",
        confirm_offset=confirm_offset(status),
        leader_confirm_offset=status.reach.leader_confirm_offset,
        whole_at=asked_at - status.reach.staleness.ToMicroseconds() / 1e6 if is_known else None,
        in_memory_size_bytes=status.in_memory_size_bytes if status.HasField("in_memory_size_bytes") else None,
    )


class RoleClients:
    """Asks the commit logs of replicas for their roles, over a connection for each.

    Args:
        tls: our certificate; None: no TLS.
    """

    def __init__(self, tls: TlsIdentity | None) -> None:
        self._open = partial(CommitLogClient, tls=tls)
        self._clients: dict[str, Any] = {}
        self._facts: dict[str, ReplicaFacts] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def ask(self, one: ShardTargets) -> ReplicaRole | None:
        """The role of a replica; None when it does not answer, or recovers, or after `close`."""
        with self._lock:
            if self._is_closed:
                return None
            client = self._clients.get(one.commitlog)
            if client is None:
                client = self._clients[one.commitlog] = self._open(one.commitlog)
        asked_at = time.monotonic()
        try:
            status = client.call(rpc.GET_STATUS, pb.GetStatusRequest(), ASK_SECONDS)
        except StoreError:
            status = None
        if status is None or status.broker_name != one.broker_name or status.state == "recovering":
            self._facts.pop(one.commitlog, None)
            return None
        self._facts[one.commitlog] = facts_of(status, asked_at)
        return replica_role(status)

    def facts(self, one: ShardTargets) -> ReplicaFacts | None:
        """What a replica said of itself when it was asked last; None when it did not answer."""
        return self._facts.get(one.commitlog)

    def close(self) -> None:
        """Close the connections; the threads that ask may still run."""
        with self._lock:
            self._is_closed = True
            clients = list(self._clients.values())
        for client in clients:
            client.close()
