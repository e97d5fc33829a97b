"""The simulated shard of tests/commitlog_svc/replication with its steps written down, for the model of leading.pml.

The rules of leadership are the real ones (LeadershipRules), and so is the place where two logs agree (epochs.py). Streams
begin, break and cut as in follower_side.py. A step is what, who, whom, number, as `SEE` of the model names them. An answer of
the coordinator takes no time or is lost; what is asked takes time, is given up, and may arrive later.
"""

import contextlib
from typing import NamedTuple

from commitlog_svc.replication.epochs import Epoch, agreed_offset
from commitlog_svc.replication.leading.leadership_rules import LeadershipRules, Purpose, Step
from commitlog_svc.replication.leading.record import ShardRecord
from commitlog_svc.replication.leading.view import Role
from tests.commitlog_svc.replication.leadership_world import CALL_SECONDS_MAX, RATE_ERROR_MAX, TIMES, Replica, World

NAMES = ("r1", "r2", "r3")
# Ticks at equal distances of true time: the slowest clock has its lease within LEASE_TICKS - 1 of them, and the fastest one
# waits for LEASE_TICKS at least. Both are so for 57 or more.
LEASE_TICKS = 60
TICK_SECONDS = (TIMES.lease_seconds + TIMES.margin_seconds) / (1 + RATE_ERROR_MAX) / LEASE_TICKS
ENTRIES_MAX = 200
MARK = "a call is made"
# What a trace of this world fits into.
BOUNDS = {
    "REPLICAS": len(NAMES),
    "EPOCHS": 40,
    "LENGTH": ENTRIES_MAX,
    "LEASE": LEASE_TICKS,
    "RESTARTS": 250,
    "STRAYS": 250,
    "SLOW_REPORTS": 1,
}


class Seen(NamedTuple):
    """A step, as the model names it."""

    what: str
    who: int = 0
    whom: int = 0
    number: int = 0


class TracedWorld(World):
    """See the top of this file. The shard exists: all replicas are in its set, and nobody runs that leads.

    Attributes:
        steps: what was seen.
    """

    def __init__(self, seed: int, rules: type[LeadershipRules] = LeadershipRules) -> None:
        self.steps: list[Seen] = []
        self._next_tick = TICK_SECONDS
        self._tables: dict[str, tuple[Epoch, ...]] = {}
        self._streams: dict[str, tuple[int, int]] = {}  # of a follower: lives of both
        self._reporting: set[tuple[int, str]] = set()  # life of the leader, and follower: a report is under way
        self._attempts: dict[str, int] = {}
        super().__init__(seed, rules, NAMES)
        self.record, self.version = ShardRecord(1, "r1", frozenset(NAMES), lease_millis=4000), "first"
        for replica in self.replicas:
            replica.epoch, self._tables[replica.name] = 1, (Epoch(1, 0),)
            self._begin_life(replica)
        self.steps.clear()

    def steps_of(self, seconds: float) -> list[Seen]:
        """The steps of so many seconds under faults; with broken rules, up to the first false thing that World sees."""
        self.trouble(seconds)
        with contextlib.suppress(*() if self._rules is LeadershipRules else (AssertionError,)):
            self.run(seconds)
        return [step for step in self.steps if step.what != MARK]

    def _see(self, what: str, who: Replica, whom: Replica | None = None, number: int = 0) -> None:
        self._pass_time()
        self.steps.append(Seen(what, self._index(who), self._index(whom or who), number))

    def _pass_time(self) -> None:
        while self._next_tick <= self.time:
            self.steps.append(Seen("TICK"))
            self._next_tick += TICK_SECONDS

    def _index(self, replica: Replica) -> int:
        return NAMES.index(replica.name)

    # --- lives

    def _begin_life(self, replica: Replica) -> None:
        self._forget(replica)
        self._see("START", replica)
        super()._begin_life(replica)

    def end_life(self, replica: Replica, why: str, away_seconds: float) -> None:
        if replica.is_up:
            self._forget(replica)
            self._see("START", replica)
        super().end_life(replica, why, away_seconds)

    def _forget(self, replica: Replica) -> None:
        self._streams.pop(replica.name, None)
        self._attempts.pop(replica.name, None)

    # --- the coordinator

    def _call(self, replica: Replica, step: Step) -> None:
        started, life, asked_at = self.clock(replica), replica.life, len(self.steps)
        if step.record is not None:
            self._see(MARK, replica)  # where a call that is given up was made
            asked_at = len(self.steps) - 1
        is_slow = self.dice.random() < self.slow_calls
        way = self.dice.uniform(0.2, 4) if is_slow else self.dice.uniform(0.001, 0.02)
        is_open, counted = True, replica.rules.view().in_sync

        def give_up() -> None:
            nonlocal is_open
            if is_open:
                is_open, replica.is_asking = False, False
                replica.rules.on_unknown(step, self.clock(replica))

        def arrive() -> None:
            nonlocal is_open
            if not self.coordinator_up or (replica.name, "coordinator") in self.cut:
                return
            is_waited_for = is_open and replica.life == life and self._runs(replica)
            is_answered = (
                is_waited_for
                and ("coordinator", replica.name) not in self.cut
                and self.dice.random() >= self.answer_loss
            )
            has_written = step.record is not None and self.version == step.version
            if has_written:
                assert step.record is not None
                before = self.record
                assert before is not None
                self._see_written(
                    replica, step, before, counted, asked_at, is_answered=is_answered, is_lost=not is_waited_for
                )
                self.record, self.version = step.record, str(next(self._numbers))
                if step.purpose is Purpose.TAKE_OVER and replica.life == life:
                    self._attempts[replica.name] = step.record.epoch
            if not is_answered:
                return
            is_open, replica.is_asking = False, False
            if step.record is None:
                self._read(replica)
            elif has_written:
                assert self.version is not None
                replica.rules.on_written(step, self.version, started)
                if step.purpose is Purpose.TAKE_OVER:
                    self._lead_now(replica)
                self._see_counted(replica)
            else:
                if self._attempts.pop(replica.name, 0):
                    self._see("CONFLICT", replica, number=step.record.epoch)
                replica.rules.on_conflict(step, self.clock(replica))

        self.at(self.time + way, arrive)
        self.at(self.time + CALL_SECONDS_MAX / replica.rate, self._in_life(replica, give_up))

    def _see_written(
        self,
        replica: Replica,
        step: Step,
        before: ShardRecord,
        counted: frozenset[str],
        asked_at: int,
        *,
        is_answered: bool,
        is_lost: bool,
    ) -> None:
        """A write takes effect. One that nobody waits for any more was a stray since it was asked for.

        `counted` is the set that the writer counted then. It may be larger than the one before: then the new set is smaller
        than what was counted, and may have a replica that the one before had not.
        """
        record = step.record
        assert record is not None
        outcome = "" if is_answered else "_UNKNOWN" if is_lost else "_LOST"
        whom = replica
        match step.purpose:
            case Purpose.TAKE_OVER:
                what = "TAKE_OVER"
            case Purpose.HAND_OVER:
                # For nobody: its successor has left the set.
                what, whom = "HAND_OVER", self._of(record.hand_over_to or min(set(NAMES) - record.in_sync))
                outcome = outcome if is_lost else ""
            case _ if record.in_sync == before.in_sync:
                what = "RENEW"
            case _:
                smaller, larger = (counted | before.in_sync) - record.in_sync, record.in_sync - before.in_sync
                assert len(smaller) <= 1, "one change at a time"
                what, whom = ("SMALLER", self._of(min(smaller))) if smaller else ("LARGER", self._of(min(larger)))
        number = record.epoch
        if is_lost:
            self.steps[asked_at] = Seen(what + outcome, self._index(replica), self._index(whom), number)
            leader = self._of(record.leader) if record.leader else None
            self._pass_time()
            self.steps.append(Seen("STRAY", *(self._index(leader) if leader else 3 for _ in range(2)), number))
        elif what == "TAKE_OVER":
            self._see(what, replica, number=number)
            self._see("ELECTED" if is_answered else "ANSWER_LOST", replica, number=number)
        else:
            self._see(what + outcome, replica, whom, number)

    def _read(self, replica: Replica) -> None:
        record, rules = self.record, replica.rules
        assert record is not None
        known = rules.view()
        if self.version != rules._version or not rules._was_read:
            leader = NAMES.index(record.leader) if record.leader else len(NAMES)
            self._pass_time()
            self.steps.append(Seen("READ", self._index(replica), leader, record.epoch))
            if (known.leader, known.epoch) != (record.leader, record.epoch):
                self._streams.pop(replica.name, None)
            if record.leader != replica.name or record.epoch != self._attempts.get(replica.name):
                self._attempts.pop(replica.name, None)
        rules.on_read(record, self.version, self.clock(replica))

    def _want_in_sync(self, leader: Replica, names: frozenset[str]) -> None:
        leader.rules.want_in_sync(names)
        self._see_counted(leader)

    def _see_counted(self, leader: Replica) -> None:
        """It counts each member of a set that may be stored, whatever the record has."""
        if leader.rules.has_resigned or leader.rules._successor is not None:
            return
        for name in sorted(leader.rules._pending - {leader.name}):
            self._see("COUNT", leader, self._of(name), leader.epoch)

    def _lead_now(self, replica: Replica) -> None:
        epoch = replica.rules.view().epoch
        self._forget(replica)
        replica.has_led, replica.epoch, replica.begin = True, epoch, len(replica.log)
        kept = [one for one in self._tables[replica.name] if one.begin_offset <= replica.begin and one.epoch < epoch]
        self._tables[replica.name] = (*kept, Epoch(epoch, replica.begin))
        self.takeovers += 1

    def _of(self, name: str) -> Replica:
        return self.replicas[NAMES.index(name)]

    # --- a leader and what it sends

    def _lead(self, leader: Replica) -> None:
        rules = leader.rules
        if rules.role is not Role.LEADER or rules.has_resigned or rules._successor is not None:
            return
        self._acknowledge(leader)
        is_ready = leader.acknowledged_count >= leader.begin
        if rules.may_acknowledge(self.clock(leader)) and is_ready and len(leader.log) < ENTRIES_MAX:
            leader.log.append((leader.epoch, len(leader.log)))
            self._see("APPEND", leader, number=len(leader.log))
        self._acknowledge(leader)
        self._choose_in_sync(leader)
        leader.heartbeats += 1
        for follower in self.replicas:
            if follower is not leader:
                self._send(leader, follower, leader.epoch)

    def _acknowledge(self, leader: Replica) -> None:
        if leader.rules.may_acknowledge(self.clock(leader)):
            confirmed = self._confirmed(leader)
            if confirmed > leader.acknowledged_count:
                self._see("CONFIRM", leader, number=confirmed)
        super()._acknowledge(leader)

    def _choose_in_sync(self, leader: Replica) -> None:
        """As World, but one replica at a time."""
        if leader.rules.is_change_open():
            return
        view, now = leader.rules.view(), self.clock(leader)
        if len(leader.answered_at) < len(NAMES):
            leader.answered_at = dict.fromkeys(NAMES, now)
        needed = max(leader.acknowledged_count, leader.begin)
        for other in self.replicas:
            if other is leader:
                continue
            age = now - leader.answered_at[other.name]
            has_all = leader.positions.get(other.name, -1) >= needed
            if other.name in view.in_sync and age > self.lag_seconds_max and leader.rules.may_acknowledge(now):
                self._want_in_sync(leader, view.in_sync - {other.name})
                return
            if other.name not in view.in_sync and age < 1 and has_all:
                self._want_in_sync(leader, view.in_sync | {other.name})
                return

    def _send(self, leader: Replica, follower: Replica, epoch: int) -> None:
        view, now, life = follower.rules.view(), self.clock(leader), leader.life
        is_heard = self._runs(follower) and (leader.name, follower.name) not in self.cut
        is_target = view.role is Role.FOLLOWER and (view.leader, view.epoch) == (leader.name, epoch)
        if not is_heard or not is_target or epoch < follower.epoch or not follower.rules._was_read:
            return
        stream = (life, follower.life)
        if self._streams.get(follower.name) != stream and not self._connect(leader, follower):
            return
        if (life, follower.name) in self._reporting or not follower.rules.note_leader_heard(
            epoch, self.clock(follower)
        ):
            return
        follower.log = list(leader.log)
        taken = len(follower.log)
        self._see("HEAR", follower, leader, taken)
        if (follower.name, leader.name) in self.cut:
            self._streams.pop(follower.name)
            return
        self._reporting.add((life, follower.name))

        def answered() -> None:
            self._reporting.discard((life, follower.name))
            if leader.life != life or self._reports_of.get((life, follower.name)) != number:
                return
            if leader.rules.has_resigned or leader.rules._successor is not None:
                return  # it counts for nothing; in the model this life is over
            leader.rules.note_promise(follower.name, now)
            leader.positions[follower.name] = taken
            leader.answered_at[follower.name] = self.clock(leader)
            self._see("REPORT", leader, follower, taken)
            self._acknowledge(leader)
            self._choose_in_sync(leader)

        number = self._reports_of[life, follower.name] = next(self._numbers)
        self.at(self.time + self.dice.uniform(0.001, 0.2), self._in_life(leader, answered))

    @property
    def _reports_of(self) -> dict[tuple[int, str], int]:
        """The report that is under way on the present stream."""
        return self.__dict__.setdefault("_reports", {})

    def _connect(self, leader: Replica, follower: Replica) -> bool:
        """Whether a stream begins; where the logs differ the follower cuts its own and starts again."""
        mine, theirs = self._tables[leader.name], self._tables[follower.name]
        agreed = max(0, agreed_offset(mine, len(leader.log), theirs, len(follower.log))) if follower.log else 0
        self._see("CONNECT", follower, leader, leader.epoch)
        self._reporting.discard((leader.life, follower.name))
        self._reports_of.pop((leader.life, follower.name), None)
        leader.positions[follower.name] = min(agreed, leader.positions.get(follower.name, 0))
        if agreed < len(follower.log):
            follower.log = follower.log[:agreed]
            kept = tuple(one for one in theirs if one.begin_offset < agreed)
            self._tables[follower.name], follower.epoch = kept, kept[-1].epoch if kept else 0
            self.end_life(follower, "cut", 0.1)
            return False
        self._tables[follower.name], follower.epoch = mine, leader.epoch
        self._streams[follower.name] = leader.life, follower.life
        return True
