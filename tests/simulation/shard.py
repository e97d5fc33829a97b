"""A shard of three replicas in a simulated world, judged by its promises.

Each replica is the real one: its log with flushes, recovery and cuts on a disk in memory, the rules of leading with their
thread, the leader's and the follower's side with all of theirs. Simulated are the disks (what was not flushed may be lost), the
streams between replicas (late, cut, reset), the coordinator (slow, away, its answers lost), clocks that run at different rates,
kills, power cuts and processes that stand still. Producers append all the time; at every step of every task:

- at most one replica may acknowledge;
- what a replica shows never changes: the bytes before its confirm offset are those that any replica showed before;
- whoever leads has each message that was acknowledged as replicated in an epoch before its own, at its offset.

After the last fault the shard heals: one leads, all replicas are in sync, and their logs are equal.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.replication.leading.leadership import ElectedLeadership
from commitlog_svc.replication.leading.leadership_rules import LeaseTimes
from commitlog_svc.replication.leading.record import ShardRecord
from commitlog_svc.replication.leading.view import Role
from commitlog_svc.replication.replica import Replica
from commitlog_svc.settings import CommitLogSettings
from services.coordination.port import StoredRecord
from store.errors import CoordinatorUnavailableError, RecordConflictError, StoreError
from store.files.locks import BrokerLock, OwnerLock
from tests.commitlog_svc.support import BORN_HOST, new_message
from tests.simulation.world import BrokenPromiseError, Process, Waiters, World, judged
from tests.torture.memory_files import MemoryFileSystem

ROOT = Path("/simulated")
NAMES = ("r1", "r2", "r3")
TIMES = LeaseTimes(lease_seconds=1.0, margin_seconds=0.2, renew_seconds=0.25, jitter_seconds=0.1)
RATE_ERROR = 0.05
FILE_BYTES = 64 << 10
FAULT_SECONDS = 12.0  # of a history, before all is well again
HEAL_SECONDS_MAX = 20.0
FLUSH_SECONDS = 0.004
CUT_LOOK_SECONDS = 0.02
FAULTS = (
    *["kill", "power", "stop", "cut", "cut one way", "cut from all", "reset"] * 2,
    *[
        "cut from coordinator",
        "deaf to coordinator",
        "coordinator down",
        "answers lost",
        "calls slow",
        "slow disk",
        "hand over",
    ],
    *["power of all", "kill leader", "kill leader", *["power of all after slow disks"] * 3],
)


class SimulatedDisk(MemoryFileSystem):
    """A disk in memory whose flushes take time; others may go first at each write.

    Attributes:
        flush_seconds: a flush takes up to so long.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.flush_seconds = FLUSH_SECONDS

    def fdatasync(self, fd: int) -> None:
        """See FileSystem."""
        self.world.pause(self.world.dice.uniform(0.0001, self.flush_seconds))
        super().fdatasync(fd)

    def fsync_dir(self, path: Any) -> None:
        """See FileSystem."""
        self.world.may_yield()
        super().fsync_dir(path)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
        """See FileSystem."""
        self.world.may_yield()
        super().pwrite(fd, data, position)

    def rename(self, source: Any, target: Any) -> None:
        """See FileSystem."""
        self.world.may_yield()
        super().rename(source, target)

    def found(self, after: MemoryFileSystem) -> "SimulatedDisk":
        """A disk with the files of another one."""
        disk = SimulatedDisk(self.world)
        disk._names, disk._durable_names, disk._directories = after._names, after._durable_names, after._directories
        return disk


class StreamBrokenError(grpc.RpcError):
    """A stream of the simulated network has ended."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the simulated stream broke"

    def trailing_metadata(self) -> tuple[()]:
        return ()

    def initial_metadata(self) -> tuple[()]:
        return ()


class Pipe:
    """One direction of a stream: messages arrive in order, each after some time, or never."""

    def __init__(self, shard: "Shard", sender: str, receiver: str) -> None:
        self._shard = shard
        self._way = (sender, receiver)
        self._world = shard.world
        self._sent: deque[tuple[float, Any]] = deque()
        self._last_at = 0.0
        self._reader = Waiters(shard.world)
        self.end: BaseException | None = None

    def send(self, message: Any) -> None:
        """Put a message on its way."""
        self._last_at = max(
            self._last_at, self._world.now + self._world.dice.uniform(0.0001, self._shard.delay_seconds)
        )
        self._sent.append((self._last_at, message))
        self._reader.wake()

    def close(self, end: BaseException, *, is_broken: bool = False) -> None:
        """Nothing is sent any more; broken: what is under way does not arrive."""
        self.end = self.end or end
        if is_broken:
            self._sent.clear()
        self._reader.wake()

    def messages(self) -> Iterator[Any]:
        """What arrives, in the task that asks.

        Raises:
            BaseException: how it ended.
        """
        while True:
            if self._sent and self._sent[0][0] <= self._world.now and self._way not in self._shard.cut:
                yield self._sent.popleft()[1]
            elif self.end is not None and not self._sent:
                if isinstance(self.end, StopIteration):
                    return
                raise self.end
            else:
                # A way that is cut is looked at again and again, for want of an event.
                soon = self._sent[0][0] - self._world.now if self._sent else 0.0
                until = None if not self._sent else soon if soon > 0 else CUT_LOOK_SECONDS
                self._reader.wait(None if until is None else until * self._world.here().rate)


class Call:
    """A call of one replica to another, as its caller sees it; `serve` runs at the other one."""

    def __init__(self, shard: "Shard", caller: "Node", other: "Node", requests: Iterator[Any], method: str) -> None:
        self._shard, self._world, self.caller, self.other = shard, shard.world, caller, other
        self._there, self._back = Pipe(shard, caller.name, other.name), Pipe(shard, other.name, caller.name)
        self._answers = self._back.messages()
        shard.calls.append(self)
        self._world.begin(caller.process, lambda: self._pump(requests))
        self._world.begin(other.process, lambda: self._serve(method))

    def __iter__(self) -> Iterator[Any]:
        return self._answers

    def __next__(self) -> Any:
        return next(self._answers)

    def cancel(self) -> None:
        """As a call of gRPC."""
        self.break_off()

    def break_off(self) -> None:
        """Both ends see that it broke; what is under way is lost."""
        for pipe in (self._there, self._back):
            pipe.close(StreamBrokenError(), is_broken=True)
        if self in self._shard.calls:
            self._shard.calls.remove(self)

    def _pump(self, requests: Iterator[Any]) -> None:
        with suppress(StoreError):  # a log that cannot be flushed any more
            for request in requests:
                if self._there.end is not None:
                    return
                self._there.send(request)
        self._there.close(StopIteration())

    def _serve(self, method: str) -> None:
        requests = self._there.messages()
        try:
            if method == "Replicate":
                answers: Any = self.other.replica.serve(requests)
            else:
                answers = self.other.replica.fetch(next(requests))
            for answer in answers:
                if self._back.end is not None:
                    answers.close()
                    return
                self._back.send(answer)
            self._back.close(StopIteration())
        except (StoreError, grpc.RpcError) as error:
            self._world.say(f"{self.other.name}: ends {method} of {self.caller.name}: {str(error)[:140]}")
            self._back.close(StreamBrokenError())


class Channel:
    """As a channel of gRPC to another replica."""

    def __init__(self, shard: "Shard", caller: "Node", address: str) -> None:
        self._shard, self._caller, self._address = shard, caller, address

    def stream_stream(self, path: str, **_: Any) -> Callable[[Iterator[Any]], Call]:
        """As gRPC."""
        return lambda requests: self._call(requests, path)

    def unary_stream(self, path: str, **_: Any) -> Callable[[Any], Call]:
        """As gRPC."""
        return lambda request: self._call(iter([request]), path)

    def unary_unary(self, path: str, **_: Any) -> Callable[[Any], Any]:
        """As gRPC; replicas make none."""
        raise_for = NotImplementedError(path)

        def call(_request: Any) -> Any:
            raise raise_for

        return call

    def close(self) -> None:
        """Nothing is held."""

    def _call(self, requests: Iterator[Any], path: str) -> Call:
        shard = self._shard
        ways = {(self._caller.name, self._address), (self._address, self._caller.name)}
        other = shard.nodes[self._address]
        if ways & shard.cut or other.process.is_dead or not other.is_open:
            shard.world.pause(shard.world.dice.uniform(0.01, 0.3))
            raise StreamBrokenError
        return Call(shard, self._caller, other, requests, path.rsplit("/", 1)[-1])


class Coordinator:
    """The shard's record as one replica reaches it."""

    def __init__(self, shard: "Shard", name: str) -> None:
        self._shard, self._name = shard, name

    def read(self, timeout_seconds: float) -> StoredRecord | None:
        """See RecordStore."""
        answer: StoredRecord | None = self._ask(lambda: self._shard.record, timeout_seconds)
        return answer

    def write(self, data: bytes, version: str | None, timeout_seconds: float) -> str:
        """See RecordStore."""
        shard = self._shard

        def store() -> str | None:
            if version != (shard.record.version if shard.record is not None else None):
                return None
            before, now = shard.known_record, ShardRecord.from_bytes(data)
            shard.record, shard.known_record = StoredRecord(data, f"v{next(shard.numbers)}"), now
            if before is None or replace(before, renewal=now.renewal) != now:
                shard.world.say(
                    f"coordinator: {self._name} stores epoch {now.epoch}, leader {now.leader or 'none'}, "
                    f"in sync {sorted(now.in_sync)}"
                )
            return shard.record.version

        stored: str | None = self._ask(store, timeout_seconds)
        if stored is None:
            raise RecordConflictError("another version is stored")
        return stored

    def _ask(self, act: Callable[[], Any], timeout_seconds: float) -> Any:
        shard, world = self._shard, self._shard.world
        dice, me, answers = world.dice, world.current(), list[Any]()
        is_slow = dice.random() < shard.slow_call_share

        def travel() -> None:
            world.pause(dice.uniform(0.1, 2.0) if is_slow else dice.uniform(0.001, 0.01))
            if not shard.coordinator_up or (self._name, "coordinator") in shard.cut:
                return
            answer = act()
            world.pause(dice.uniform(0.001, 0.01))
            if ("coordinator", self._name) in shard.cut or dice.random() < shard.answer_loss_share:
                return
            answers.append(answer)
            world.wake(me)

        world.begin(None, travel)
        turn = me.turn_count
        world.wait_here(timeout_seconds)
        assert me.turn_count == turn + 1
        if not answers:
            raise CoordinatorUnavailableError("the coordinator has not answered")
        return answers[0]


class Node:
    """One replica in one life."""

    def __init__(self, shard: "Shard", name: str, disk: SimulatedDisk, rate: float, clock_begin: float) -> None:
        self.shard, self.name, self.disk = shard, name, disk
        self.process = Process(name, rate, clock_begin)
        self.is_open = False
        self.led_epoch = 0
        self.seen_confirm = 0
        self.seen_limit: int | None = None
        shard.world.begin(self.process, self._open)

    def _open(self) -> None:
        shard = self.shard
        given = CommitLogSettings(
            store=ROOT / self.name,
            file_size_bytes=FILE_BYTES,
            broker_name="b",
            address="127.0.0.1:0",
            lag_seconds_max=2.0,
        )
        self.log = CommitLog(ROOT / self.name, given, self.disk)
        self.replica = Replica(
            self.name,
            "b",
            self.log,
            given.replica_limits,
            lambda address: Channel(shard, self, address),  # type: ignore[arg-type,return-value]
            lambda why: shard.restart(self, why),
        )
        self.log.recover()
        self.leadership = shard.leadership_class(
            self.name,
            {"commitlog": self.name},
            Coordinator(shard, self.name),
            lambda: self.log.epochs.last,
            may_create=self.name == "r1",
            times=TIMES,
            store_id=self.log.store_id,
        )
        self.leadership.start()
        self.replica.start(self.leadership)
        self.is_open = True

    def may_acknowledge(self) -> bool:
        """Asked from outside of all tasks, so without the lock."""
        return self.leadership._rules.may_acknowledge(self.shard.world.clock_of(self.process))

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Bytes of its log."""
        return bytes(self.log.read_bytes(offset, size_bytes))


class Shard:
    """See the top of this file.

    Args:
        world: in which it is.
    """

    leadership_class: type[ElectedLeadership] = ElectedLeadership

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice
        self.numbers = itertools.count(1)
        self.record: StoredRecord | None = None
        self.known_record: ShardRecord | None = None  # the same
        self.coordinator_up = True
        self.slow_call_share = self.answer_loss_share = 0.0
        self.delay_seconds = 0.003
        self.cut: set[tuple[str, str]] = set()
        self.calls: list[Call] = []
        self.acknowledged: dict[int, tuple[bytes, int]] = {}  # offset of a record: its body, and the epoch
        self.shown = bytearray()  # what any replica has shown
        self.takeovers = 0
        self.is_well = False
        for lock in (OwnerLock, BrokerLock):  # real files; a process here holds its disk by being the one that has it
            world.replace(lock, "acquire", lambda lock: None)
            world.replace(lock, "release", lambda lock: None)
        self.nodes = {
            name: Node(
                self,
                name,
                SimulatedDisk(world),
                1 + self.dice.choice((-1, 0, 1)) * RATE_ERROR,
                self.dice.uniform(1, 1e6),
            )
            for name in NAMES
        }
        world.after_step = self.check

    # -- the promises

    def check(self) -> None:
        """Judges the moment; called after each step of each task."""
        leading = []
        for node in self.nodes.values():
            if not node.is_open or node.process.is_dead:
                continue
            limit = node.log.confirm.limit_offset
            if limit != node.seen_limit or node.seen_confirm < (limit or 0):
                node.seen_limit = limit
                self._note_shown(node, node.log.confirm.confirm_offset)
            if node.leadership._rules.role is not Role.LEADER:
                continue
            if self.world.now >= node.process.stopped_until and node.may_acknowledge():
                leading.append(node)
            leader = node.replica._leader
            if leader is not None and node.led_epoch != leader.epoch:
                node.led_epoch = leader.epoch
                self._note_leads(node)
        if len(leading) > 1:
            told = ", ".join(f"{node.name} in epoch {node.leadership._rules.view().epoch}" for node in leading)
            raise BrokenPromiseError(f"two replicas may acknowledge: {told}")

    def _note_shown(self, node: Node, confirmed: int) -> None:
        begin = node.seen_confirm
        if confirmed <= begin:
            return
        data = node.read(begin, confirmed - begin)
        known = bytes(self.shown[begin:confirmed])
        if data[: len(known)] != known:
            at = begin + next(
                place for place, (one, other) in enumerate(zip(data, known, strict=False)) if one != other
            )
            raise BrokenPromiseError(f"{node.name} shows other bytes at {at} than were shown before")
        self.shown[begin:confirmed] = data + known[len(data) :]
        node.seen_confirm = confirmed

    def _note_leads(self, node: Node) -> None:
        self.takeovers += 1
        end = node.log.flushes.written_offset
        for offset, (body, epoch) in self.acknowledged.items():
            if epoch < node.led_epoch and (offset >= end or body not in node.read(offset, 400)):
                raise BrokenPromiseError(
                    f"{node.name} leads epoch {node.led_epoch} with {end} bytes, and lacks {body!r} at {offset}, which was "
                    f"acknowledged in epoch {epoch}"
                )

    # -- producers

    def produce(self) -> None:
        """Appends to whatever replica leads by its own word, again and again; each append is a task of that replica."""
        for number in itertools.count():
            self.world.pause(self.dice.choice((0.01, 0.05, 0.3)) * self.dice.random())
            leading = [
                node for node in self.nodes.values() if node.is_open and not node.process.is_dead and node.replica.leads
            ]
            if leading and not self.is_well:
                self.append(self.dice.choice(leading), b"<%d>" % number)

    def append(self, node: Node, body: bytes) -> None:
        """One message; noted when it is acknowledged."""
        padding = b"." * self.dice.choice((0, 10, 200))

        def work() -> None:
            try:
                (receipt,) = node.log.opened.appends.append_messages(
                    [new_message(body + padding, "t")], sync=True, born_host=BORN_HOST, replicated=True
                )
            except StoreError:
                return
            leader = node.replica._leader
            epoch = leader.epoch if leader is not None else 0
            self.acknowledged[receipt.commit_log_offset] = (body, epoch)
            self.world.say(f"{node.name}: acknowledged {body.decode()} at {receipt.commit_log_offset} in epoch {epoch}")

        self.world.begin(node.process, work)

    # -- what goes wrong

    def restart(self, node: Node, why: str) -> None:
        """The process has to end; it starts again soon."""
        self.world.say(f"{node.name}: ends, {why}")
        self.world.begin(None, lambda: self._end(node, self.dice.uniform(0.0, 0.5), is_power_cut=False))

    def _end(self, node: Node, away_seconds: float, *, is_power_cut: bool) -> None:
        if node.process.is_dead or self.nodes[node.name] is not node:
            return
        self.world.kill(node.process)
        after = node.disk.power_cut(self.dice.getrandbits(30), ROOT) if is_power_cut else node.disk.copy()
        # Of a killed process the others hear at once, of a machine without power later.
        if is_power_cut:
            self.world.pause(self.dice.choice((0.0, 1.0)) * self.dice.random())
        for call in [call for call in self.calls if node in (call.caller, call.other)]:
            call.break_off()
        self.world.pause(away_seconds)
        disk = node.disk.found(after)
        self.world.say(f"{node.name}: starts")
        self.nodes[node.name] = Node(self, node.name, disk, node.process.rate, node.process.clock_begin)

    def trouble(self) -> None:
        """Groups of faults with some time between them."""
        self.world.pause(self.dice.uniform(2, 4))
        while self.world.now < FAULT_SECONDS:
            for _ in range(self.dice.choice((1, 1, 2, 3))):
                if not self.is_well:
                    self._one_fault()
                self.world.pause(self.dice.choice((0.0, 0.3, 1.0)) * self.dice.random())
            self.world.pause(self.dice.choice((0.2, 1.0, 3.0)) * self.dice.random())

    def _one_fault(self) -> None:
        dice, world = self.dice, self.world
        node, other = dice.sample(list(self.nodes.values()), 2)
        leading = [one for one in self.nodes.values() if one.led_epoch and not one.process.is_dead]
        kind, seconds = dice.choice(FAULTS), dice.choice((0.3, 1.0, 1.5, 3.0)) * dice.uniform(0.5, 1.5)
        if leading and (kind == "kill leader" or dice.random() < 0.5):
            node = dice.choice(leading)
            other = dice.choice([one for one in self.nodes.values() if one is not node])
        world.say(f"fault: {kind}, {node.name}, {other.name}, {seconds:.1f} s")
        replica_ways = {way for one in NAMES for way in ((node.name, one), (one, node.name))}
        coordinator_ways = {(node.name, "coordinator"), ("coordinator", node.name)}
        match kind:
            case "kill" | "kill leader" | "power":
                away_seconds = dice.choice((0.0, 0.5, 2.0)) * dice.random()
                world.begin(None, partial(self._end, node, away_seconds, is_power_cut=kind == "power"))
            case "power of all" | "power of all after slow disks":
                if kind != "power of all":
                    for each in self.nodes.values():
                        each.disk.flush_seconds = dice.choice((FLUSH_SECONDS, 0.3))
                    world.pause(dice.uniform(0.05, 0.4))
                for each in list(self.nodes.values()):
                    world.begin(None, partial(self._end, each, dice.random(), is_power_cut=True))
            case "stop":
                world.stop(node.process, seconds)
            case "cut":
                self._for_a_time(self._cut({(node.name, other.name), (other.name, node.name)}), seconds)
            case "cut one way":
                self._for_a_time(self._cut({dice.choice(((node.name, other.name), (other.name, node.name)))}), seconds)
            case "cut from all":
                self._for_a_time(self._cut(replica_ways | coordinator_ways), seconds)
            case "cut from coordinator":
                self._for_a_time(self._cut(coordinator_ways), seconds)
            case "deaf to coordinator":
                self._for_a_time(self._cut({("coordinator", node.name)}), seconds)
            case "reset":
                for call in [call for call in self.calls if node in (call.caller, call.other)]:
                    call.break_off()
            case "coordinator down":
                self._for_a_time(self._set("coordinator_up", False), seconds)
            case "answers lost":
                self._for_a_time(self._set("answer_loss_share", 0.6), seconds)
            case "calls slow":
                self._for_a_time(self._set("slow_call_share", 0.6), seconds)
            case "slow disk":
                node.disk.flush_seconds = 0.3
                self._for_a_time(lambda: setattr(node.disk, "flush_seconds", FLUSH_SECONDS), seconds)
            case "hand over":
                if node.is_open and not node.process.is_dead:
                    world.begin(node.process, partial(self._leave, node))

    def _leave(self, node: Node) -> None:
        node.replica.leave()
        self.restart(node, "it is stopped")

    def _for_a_time(self, mend: Callable[[], None], seconds: float) -> None:
        def wait() -> None:
            self.world.pause(seconds)
            mend()

        self.world.begin(None, wait)

    def _cut(self, ways: set[tuple[str, str]]) -> Callable[[], None]:
        self.cut |= ways
        # A stream whose way is cut stalls; some of them break before it is mended.
        for call in [
            one for one in self.calls if (one.caller.name, one.other.name) in ways and self.dice.random() < 0.5
        ]:
            self._for_a_time(call.break_off, self.dice.uniform(0.1, 3))

        def mend() -> None:
            self.cut -= ways

        return mend

    def _set(self, name: str, value: Any) -> Callable[[], None]:
        setattr(self, name, value)
        return lambda: setattr(self, name, not value if isinstance(value, bool) else 0.0)

    # -- the end

    def heal(self) -> None:
        """No fault any more."""
        self.world.say("everything is well")
        self.cut.clear()
        self.coordinator_up, self.slow_call_share, self.answer_loss_share = True, 0.0, 0.0
        self.is_well = True
        for node in self.nodes.values():
            node.disk.flush_seconds = FLUSH_SECONDS
            node.process.stopped_until = min(node.process.stopped_until, self.world.now)

    def is_equal(self) -> bool:
        """Whether one leads, and all have and show the same."""
        nodes = list(self.nodes.values())
        if any(not node.is_open or node.process.is_dead for node in nodes):
            return False
        leaders = [node for node in nodes if node.replica.serves_as_leader and node.may_acknowledge()]
        ends = {(node.log.flushes.written_offset, node.log.confirm.confirm_offset) for node in nodes}
        return len(leaders) == 1 and len(leaders[0].leadership._rules.view().in_sync) == len(NAMES) and len(ends) == 1

    def judge_end(self) -> None:
        """All that was acknowledged is in every log."""
        for node in self.nodes.values():
            for offset, (body, _) in self.acknowledged.items():
                if body not in node.read(offset, 400):
                    raise BrokenPromiseError(f"{node.name} lacks {body!r} at {offset}, which was acknowledged")


def run_history(seed: int, shard_class: type[Shard] = Shard) -> Shard:
    """One history.

    Raises:
        BrokenPromiseError: with the history and its seed.
    """
    with World(seed) as world, judged(world, seed):
        shard = shard_class(world)
        world.begin(None, shard.produce)
        world.begin(None, shard.trouble)
        world.run_until(FAULT_SECONDS)
        shard.heal()
        ends_at = world.now + HEAL_SECONDS_MAX
        while not shard.is_equal():
            if world.now >= ends_at:
                raise BrokenPromiseError(f"no common log {HEAL_SECONDS_MAX:.0f} s after the last fault")
            world.run_until(world.now + 0.25)
        shard.judge_end()
    return shard
