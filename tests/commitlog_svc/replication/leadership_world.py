"""A simulated shard: replicas with LeadershipRules, a coordinator, links, clocks, and what goes wrong with them; from a seed.

True time is a number of its own. Each replica has a clock with its own rate and beginning. A call to the coordinator arrives
after some time, also after its caller has given it up; its answer may be lost. A replica that is stopped takes no step; what
reached it waits. A disk may be lost: its replica starts empty and gets the log back piece by piece.
Each leader appends entries, which heartbeats carry to the others; an entry is acknowledged when all of the
in-sync set have it and the leader may acknowledge. At every event:

- no two replicas may acknowledge;
- whoever becomes leader has every entry that was acknowledged in an epoch before.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from commitlog_svc.replication.leading.leadership_rules import LeadershipRules, LeaseTimes, Step
from commitlog_svc.replication.leading.record import ShardRecord, forced
from commitlog_svc.replication.leading.view import Role

TIMES = LeaseTimes()
CALL_SECONDS_MAX = TIMES.lease_seconds / 3
HEARTBEAT_SECONDS = 0.3
LAG_SECONDS_MAX = (1.0, 5.0, 15.0)
REFILL_COUNT = 4  # entries that a replica whose disk was lost gets with one heartbeat
# Less than margin / lease together: two clocks that differ by more are not promised anything.
RATE_ERROR_MAX = 0.05
# After everything is well: a restart, a call that was given up and the pause behind it, the patience of a slow clock, and a few
# intervals.
LIVE_SECONDS_MAX = 15.0
FAULTS = (
    *(
        "cut",
        "cut one way",
        "cut from replicas",
        "cut from coordinator",
        "deaf to coordinator",
        "cut from all",
        "cut from all",
    ),
    *("stop", "kill", "coordinator down", "answers lost", "calls slow", "hand over"),
)


@dataclass(eq=False)
class Replica:
    name: str
    rate: float
    offset: float
    rules: LeadershipRules
    life: int = 0
    epoch: int = 0  # durable, of its log
    store_id: str = ""  # durable
    is_refilling: bool = False  # its disk was lost, and it has not all of a leader's log again
    log: list[tuple[int, int]] = field(default_factory=list)  # durable
    acknowledged_count: int = 0  # so many entries from its beginning are acknowledged, by this life as the leader
    is_up: bool = True
    stopped_until: float = 0.0
    is_asking: bool = False
    has_led: bool = False
    heard: tuple[int, int] = (0, 0)  # life of the leader, number of its last heartbeat
    heartbeats: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)  # whose positions those are
    begin: int = 0  # of its epoch, while it leads
    answered_at: dict[str, float] = field(default_factory=dict)


class World:
    def __init__(
        self,
        seed: int,
        rules: type[LeadershipRules] = LeadershipRules,
        names: tuple[str, ...] = ("r1", "r2", "r3"),
        *,
        with_lost_data: bool = False,
        with_lost_disks: bool = False,
    ) -> None:
        self.dice = random.Random(seed)
        self.time = 0.0
        self._rules = rules
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._lives = itertools.count(1)
        self.record: ShardRecord | None = None
        self.version: str | None = None
        self.coordinator_up = True
        self.cut: set[tuple[str, str]] = set()  # (from, to), also to and from "coordinator"
        self.answer_loss = 0.0
        self.lag_seconds_max = self.dice.choice(LAG_SECONDS_MAX)
        self.slow_calls = 0.0
        self._with_lost_data = with_lost_data
        self._with_lost_disks = with_lost_disks
        self.acknowledged: dict[tuple[int, int], int] = {}  # entries, and the epoch in which they were
        self.takeovers = 0
        self.trace: list[str] = []
        self.replicas: list[Replica] = []
        for name in names:
            rate = 1 + self.dice.choice([-1, 0, 1]) * RATE_ERROR_MAX
            replica = Replica(name, rate, self.dice.uniform(-1e6, 1e6), None)  # type: ignore[arg-type]
            self.replicas.append(replica)
            self._begin_life(replica)

    # --- time

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def run(self, until: float, *, reached: Callable[[], bool] = lambda: False) -> bool:
        while self._events and self._events[0][0] <= until:
            self.time, _, event = heapq.heappop(self._events)
            event()
            self._check()
            if reached():
                return True
        self.time = until
        return reached()

    def clock(self, replica: Replica) -> float:
        return replica.offset + replica.rate * self.time

    def leaders(self) -> list[Replica]:
        return [one for one in self._in_the_lead() if self._runs(one) and one.rules.may_acknowledge(self.clock(one))]

    def _in_the_lead(self) -> list[Replica]:
        """Those that were elected: at most one of them may acknowledge."""
        return [one for one in self.replicas if one.rules.role is Role.LEADER]

    def say(self, text: str) -> None:
        self.trace.append(f"{self.time:8.3f} {text}")

    def _check(self) -> None:
        if len(self._in_the_lead()) < 2:
            return
        leaders = self.leaders()
        if len(leaders) > 1:
            told = [f"{one.name} in epoch {one.rules.view().epoch}" for one in leaders]
            raise AssertionError("\n".join([*self.trace[-60:], f"{self.time:.3f}: both may acknowledge: {told}"]))

    def _runs(self, replica: Replica) -> bool:
        return replica.is_up and self.time >= replica.stopped_until

    def _in_life(self, replica: Replica, event: Callable[[], None]) -> Callable[[], None]:
        """The event in this life only, and not before a stopped process goes on."""
        life = replica.life

        def happen() -> None:
            if replica.life != life or not replica.is_up:
                return
            if self.time < replica.stopped_until:
                self.at(replica.stopped_until, happen)
                return
            event()

        return happen

    # --- a replica

    def _begin_life(self, replica: Replica) -> None:
        replica.life, replica.is_up, replica.is_asking, replica.has_led = next(self._lives), True, False, False
        replica.stopped_until, replica.heard, replica.positions, replica.answered_at = 0.0, (0, 0), {}, {}
        replica.stores, replica.acknowledged_count = {}, 0
        if replica.epoch == 0:
            replica.store_id = f"store-{next(self._numbers)}"
        replica.rules = self._rules(
            replica.name,
            {"commitlog": replica.name},
            TIMES,
            lambda: replica.epoch,
            replica.name == "r1",
            self.clock(replica),
            self.dice.random,
            replica.store_id,
        )
        self._every(replica, 0.05, self._ask)
        self._every(replica, HEARTBEAT_SECONDS, self._lead)

    def _every(self, replica: Replica, seconds: float, act: Callable[[Replica], None]) -> None:
        def tick() -> None:
            act(replica)
            self.at(self.time + seconds, self._in_life(replica, tick))

        self.at(self.time + self.dice.uniform(0, seconds), self._in_life(replica, tick))

    def end_life(self, replica: Replica, why: str, away_seconds: float) -> None:
        if not replica.is_up:
            return
        self.say(f"{replica.name} ends: {why}")
        replica.is_up = False

        def start() -> None:
            self._begin_life(replica)
            self.say(f"{replica.name} starts, life {replica.life}")

        self.at(self.time + away_seconds, start)

    def _ask(self, replica: Replica) -> None:
        if replica.rules.has_resigned:
            self.end_life(replica, "resigned", self.dice.uniform(0.2, 2))
            return
        if replica.rules.role is Role.LEADER and not replica.has_led:
            view = replica.rules.view()
            replica.has_led = True
            replica.epoch, replica.begin = view.epoch, len(replica.log)
            self.takeovers += 1
            self.say(f"{replica.name} leads epoch {view.epoch} with {sorted(view.in_sync)}, {len(replica.log)} entries")
            # One that was stopped with the answer to its write in hand may wake when a later one has acknowledged already.
            held = set(replica.log)
            lost = {entry for entry, epoch in self.acknowledged.items() if epoch < view.epoch and entry not in held}
            if lost:
                raise AssertionError("\n".join([*self.trace[-60:], f"{replica.name} leads without {sorted(lost)[:5]}"]))
        if replica.is_asking:
            return
        step = replica.rules.next_step(self.clock(replica))
        if step is not None:
            replica.is_asking = True
            self._call(replica, step)

    def _call(self, replica: Replica, step: Step) -> None:
        started, life = self.clock(replica), replica.life
        if step.record is not None:
            self.say(
                f"{replica.name} asks {step.purpose.value} {step.record.epoch}/{step.record.renewal} on {step.version}"
            )
        is_slow = self.dice.random() < self.slow_calls
        way = self.dice.uniform(0.2, 4) if is_slow else self.dice.uniform(0.001, 0.02)
        is_open = True

        def give_up() -> None:
            nonlocal is_open
            if is_open:
                is_open, replica.is_asking = False, False
                replica.rules.on_unknown(step, self.clock(replica))

        def arrive() -> None:
            if not self.coordinator_up or (replica.name, "coordinator") in self.cut:
                return
            stored, version, has_written = self.record, self.version, False
            if step.record is not None and self.version == step.version:
                self.record, self.version, has_written = step.record, str(next(self._numbers)), True
                version = self.version
                self.say(
                    f"stored: {step.record.epoch} {step.record.leader or '-'} {sorted(step.record.in_sync)} as {version}"
                )
            if ("coordinator", replica.name) in self.cut or self.dice.random() < self.answer_loss:
                return
            self.at(
                self.time + self.dice.uniform(0.001, 0.02),
                self._in_life(replica, lambda: answer(stored, version, has_written)),
            )

        def answer(stored: ShardRecord | None, version: str | None, has_written: bool) -> None:
            nonlocal is_open
            if not is_open or replica.life != life:
                return
            is_open, replica.is_asking = False, False
            if step.record is None:
                replica.rules.on_read(stored, version, self.clock(replica))
            elif has_written:
                assert version is not None
                replica.rules.on_written(step, version, started)
            else:
                replica.rules.on_conflict(step, self.clock(replica))

        self.at(self.time + way, arrive)
        self.at(self.time + CALL_SECONDS_MAX / replica.rate, self._in_life(replica, give_up))

    # --- a leader and what it sends

    def _lead(self, leader: Replica) -> None:
        if leader.rules.role is not Role.LEADER or leader.rules.has_resigned or not leader.has_led:
            return
        view = leader.rules.view()
        leader.log.append((view.epoch, len(leader.log)))
        self._acknowledge(leader)
        self._choose_in_sync(leader)
        leader.heartbeats += 1
        for follower in self.replicas:
            if follower is not leader:
                self._send(leader, follower, view.epoch)

    def _send(self, leader: Replica, follower: Replica, epoch: int) -> None:
        sent_at, number, life = self.clock(leader), (leader.life, leader.heartbeats), leader.life
        log = list(leader.log)

        def deliver() -> None:
            if (leader.name, follower.name) in self.cut or (
                number[0] == follower.heard[0] and number <= follower.heard
            ):
                return
            if follower.rules.view().leader != leader.name:
                return  # it follows whom the record names
            if epoch < follower.epoch or not follower.rules.note_leader_heard(epoch, self.clock(follower)):
                return
            follower.heard, follower.epoch = number, epoch
            follower.log = log[: len(follower.log) + REFILL_COUNT] if follower.is_refilling else list(log)
            follower.is_refilling &= len(follower.log) < len(log)
            taken, store_id = len(follower.log), follower.store_id
            if (follower.name, leader.name) not in self.cut:
                self.at(
                    self.time + self.dice.uniform(0.001, 0.2), self._in_life(leader, lambda: answered(taken, store_id))
                )

        def answered(taken: int, store_id: str) -> None:
            if leader.life != life:
                return
            leader.rules.note_promise(follower.name, sent_at)
            if leader.stores.get(follower.name, store_id) != store_id:
                leader.positions.pop(follower.name, None)
            leader.stores[follower.name] = store_id
            leader.positions[follower.name] = max(taken, leader.positions.get(follower.name, 0))
            if taken == len(log):
                leader.answered_at[follower.name] = self.clock(leader)
            self._acknowledge(leader)
            self._choose_in_sync(leader)

        self.at(self.time + self.dice.uniform(0.001, 0.2), self._in_life(follower, deliver))

    def _confirmed(self, leader: Replica) -> int:
        others = leader.rules.view().in_sync - {leader.name}
        return min([len(leader.log), *(leader.positions.get(name, 0) for name in others)])

    def _acknowledge(self, leader: Replica) -> None:
        if leader.rules.may_acknowledge(self.clock(leader)):
            confirmed = self._confirmed(leader)
            for entry in leader.log[leader.acknowledged_count : confirmed]:
                self.acknowledged.setdefault(entry, leader.epoch)
            leader.acknowledged_count = max(confirmed, leader.acknowledged_count)

    def _choose_in_sync(self, leader: Replica) -> None:
        if leader.rules.is_change_open():
            return
        view, now = leader.rules.view(), self.clock(leader)
        if not leader.heartbeats:
            leader.answered_at = dict.fromkeys(view.in_sync, now)
        age = {one.name: now - leader.answered_at.get(one.name, now - 4) for one in self.replicas}
        age[leader.name] = 0
        wanted = {name for name in view.in_sync if age[name] <= self.lag_seconds_max}
        confirmed = self._confirmed(leader)
        needed = max(confirmed, leader.begin)
        fit = {name for name in age if age[name] < 1 and leader.positions.get(name, -1) >= needed}
        wanted |= fit
        stores = {name: leader.stores[name] for name in fit & leader.stores.keys()}
        stores = {name: store for name, store in stores.items() if store != view.store_ids.get(name)}
        wanted.add(leader.name)
        for name in view.in_sync - leader.answered_at.keys():
            leader.answered_at.setdefault(name, now)
        if frozenset(wanted) != view.in_sync or stores:
            leader.rules.want_in_sync(frozenset(wanted), stores)

    # --- what goes wrong

    def trouble(self, until: float) -> None:
        """Groups of faults, mostly of the leader, with time between the groups in which replicas get in sync again."""
        time = self.dice.uniform(5, 8)
        while time < until:
            for _ in range(self.dice.choice([1, 2, 2, 3])):
                if time < until:  # the last group may be longer
                    self.at(time, self._one_fault)
                time += self.dice.choice([0, 0.3, 2, 4]) * self.dice.random()
            time += self.dice.choice([1, 4, 8, 12]) * self.dice.uniform(0.5, 1)

    def _one_fault(self) -> None:
        replica, other = self.dice.sample(self.replicas, 2)
        leads = [one for one in self._in_the_lead() if one.is_up]
        if leads and self.dice.random() < 0.7:
            replica = self.dice.choice(leads)
            other = self.dice.choice([one for one in self.replicas if one is not replica])
        seconds = self.dice.choice([1, 3, 5, 8, 12]) * self.dice.uniform(0.7, 1.3)
        kinds = [*FAULTS, *["lost"] * 2 * self._with_lost_data, *["disk lost"] * 4 * self._with_lost_disks]
        kind = self.dice.choice(kinds)
        self.say(f"fault: {kind}, {replica.name}, {other.name}, {seconds:.1f} s")
        coordinator_ways = {(replica.name, "coordinator"), ("coordinator", replica.name)}
        replica_ways = {way for one in self.replicas for way in ((replica.name, one.name), (one.name, replica.name))}
        match kind:
            case "cut":
                self._cut({(replica.name, other.name), (other.name, replica.name)}, seconds)
            case "cut one way":
                self._cut({self.dice.choice([(replica.name, other.name), (other.name, replica.name)])}, seconds)
            case "cut from replicas":
                self._cut(replica_ways, seconds)
            case "cut from coordinator":
                self._cut(coordinator_ways, seconds)
            case "deaf to coordinator":
                self._cut({("coordinator", replica.name)}, seconds)
            case "cut from all":
                self._cut(coordinator_ways | replica_ways, seconds)
            case "stop":
                replica.stopped_until = max(replica.stopped_until, self.time + seconds)
            case "kill":
                self.end_life(replica, "killed", self.dice.choice([0.1, 1, 6]) * self.dice.random())
            case "coordinator down":
                self.coordinator_up = False
                self.at(self.time + seconds, lambda: setattr(self, "coordinator_up", True))
            case "answers lost":
                self.answer_loss = 0.6
                self.at(self.time + seconds, lambda: setattr(self, "answer_loss", 0.0))
            case "calls slow":
                self.slow_calls = 0.6
                self.at(self.time + seconds, lambda: setattr(self, "slow_calls", 0.0))
            case "disk lost":
                self._lose_disk(replica)
            case "lost":
                self.record, self.version = None, None
            case "hand over":
                if self._runs(replica) and replica.has_led and not replica.rules.has_resigned:
                    self.hand_over(replica, other)

    def _lose_disk(self, replica: Replica) -> None:
        """The replica goes on with an empty disk, if another one has all that was acknowledged and may lead."""
        members = self.record.in_sync if self.record is not None else frozenset()
        others = [one for one in self.replicas if one is not replica and one.name in members]
        if not any(self.acknowledged.keys() <= set(one.log) and not one.is_refilling for one in others):
            return
        self.end_life(replica, "disk lost", self.dice.choice([0.1, 1, 6]) * self.dice.random())
        if not replica.is_up:
            replica.log, replica.epoch, replica.is_refilling = [], 0, True
            # Soon after its first bytes it starts again: its log does not look empty then.
            self.at(self.time + self.dice.uniform(0.5, 8), lambda: self.end_life(replica, "killed", 0.1))

    def hand_over(self, leader: Replica, to: Replica) -> None:
        try:
            leader.rules.want_hand_over(to.name)
        except Exception as refused:  # as the caller of Leadership.hand_over sees it
            self.say(f"refused: {refused}")
            return
        self.at(self.time + TIMES.lease_seconds, self._in_life(leader, leader.rules.resign))

    def _cut(self, ways: set[tuple[str, str]], seconds: float) -> None:
        self.cut |= ways

        def mend() -> None:
            self.cut -= ways

        self.at(self.time + seconds, mend)

    def heal(self) -> None:
        self.say("everything is well")
        self.cut, self.coordinator_up, self.answer_loss, self.slow_calls = set(), True, 0.0, 0.0
        for replica in self.replicas:
            replica.stopped_until = min(replica.stopped_until, self.time)

    def force(self, replica: Replica) -> None:
        """What `reput lead --force` stores."""
        self.say(f"forced: {replica.name}")
        self.record, self.version = forced(self.record, replica.name), str(next(self._numbers))
