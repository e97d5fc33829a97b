"""What the processes of a shard did, as a behaviour of the model of leadership (tests/models/leading.pml), or not.

Each process says a part of what it did, in an order of its own:

- the coordinator keeps every version of the shard's record, with its revision: who took over, who left the set or came in;
- the log of a replica says in which epochs it led, and where its own log ended when each of them began;
- a replica that leads says again and again how far its log is confirmed, and with which set.

`explaining` makes one order of steps out of them that keeps the order of each, with the steps between them that nobody says (an
answer is read, a follower gets bytes, time passes). The model takes all of them, or it refuses the run. So what is accepted is
a behaviour of the model that looks like the run; of what nobody says, the most harmless is assumed. An entry of the model is
the part of the log between two places that are told.
"""

import base64
import http.client
import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from commitlog_svc.replication.leading.record import ShardRecord
from tests.cluster.shard import BROKER_NAME, Shard
from tests.models.traced_world import Seen
from tests.models.traces import TraceChecker

MODEL = "leading.pml"
KEY = f"reput/{BROKER_NAME}"
LOOK_SECONDS = 0.05
CALL_SECONDS_MAX = 10.0
# What a run fits into. A tick is all the time that a lease lasts: where one ends in between does not matter here.
BOUNDS = {"REPLICAS": 3, "EPOCHS": 40, "LENGTH": 200, "LEASE": 1, "RESTARTS": 250}
FIRST_EPOCH = 1  # of the model, before the first of the shard: all are in its set, and nobody leads


class Confirmed(NamedTuple):
    """What a replica that led said: how far its log was confirmed (bytes), and with which set."""

    in_sync: frozenset[str]
    offset: int


class Led(NamedTuple):
    """A replica began to lead, and its log ended there (bytes)."""

    name: str
    begin_offset: int


@dataclass(frozen=True, slots=True)
class Told:
    """What the processes of a shard said.

    Attributes:
        names: of the replicas; the first one made the shard.
        records: all versions of the record, in the order of their revisions.
        led: by epoch, who said that it leads.
        confirmed: by epoch, what its leader said, in order.
    """

    names: Sequence[str]
    records: Sequence[ShardRecord]
    led: Mapping[int, Sequence[Led]]
    confirmed: Mapping[int, Sequence[Confirmed]]


class Watch:
    """Asks the replicas of a shard what they confirm, until the end of the block; `told` is for afterwards."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._confirmed: dict[int, list[Confirmed]] = defaultdict(list)
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._look, args=(name,), daemon=True) for name in shard.names]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def _look(self, name: str) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            status = None if self._shard.is_stopped(name) else self._shard.status(name)
            if status is None or status.role != "leader" or not status.HasField("confirm_offset"):
                continue
            seen, known = Confirmed(frozenset(status.in_sync), status.confirm_offset), self._confirmed[status.epoch]
            # In an epoch it only grows: what was said last of a set is enough, and the model has only so many entries.
            if known and known[-1].in_sync == seen.in_sync:
                known.pop()
            known.append(seen)

    def told(self) -> Told:
        """What was said since the shard began; its coordinator has to run, with the data of its first day."""
        shard = self._shard
        records = versions_of(shard.etcd.endpoint, KEY)
        assert records, f"etcd has no {KEY}"
        return Told(shard.names, records, led(shard), dict(self._confirmed))


def versions_of(endpoint: str, key: str) -> list[ShardRecord]:
    """Every version of a record in etcd, the oldest first."""
    calls = http.client.HTTPConnection(endpoint, timeout=CALL_SECONDS_MAX)

    def read(revision: int) -> dict[str, str] | None:
        body = {"key": base64.b64encode(key.encode()).decode(), "revision": str(revision)}
        calls.request("POST", "/v3/kv/range", json.dumps(body))
        answer = json.loads(calls.getresponse().read())
        assert "error" not in answer, answer
        found = answer.get("kvs") or [None]
        return found[0]  # type: ignore[no-any-return]

    versions = []
    now = read(0)
    while now is not None:
        versions.append(ShardRecord.from_bytes(base64.b64decode(now["value"])))
        revision = int(now["mod_revision"])
        now = read(revision - 1) if revision > int(now["create_revision"]) else None
    calls.close()
    return versions[::-1]


def led(shard: Shard) -> dict[int, list[Led]]:
    """By epoch, what the logs of the replicas say of who led it."""
    found: dict[int, list[Led]] = defaultdict(list)
    for name in shard.names:
        for event in _events(shard.directory / f"{name}.log"):
            if event.get("event") == "replica.leads":
                found[event["epoch"]].append(Led(name, event["begin_offset"]))
    return dict(found)


def _events(path: Path) -> Iterable[dict[str, Any]]:
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("{") and line.endswith("}"):  # a process that is killed leaves a part of one
            yield json.loads(line)


class _Replica:
    """What the model knows of a replica, as far as the next steps ask for it."""

    def __init__(self) -> None:
        self.log: list[int] = []  # the epoch of each entry
        self.leads = self.is_fresh = False
        self.known: tuple[int, int] | None = None  # epoch and leader, as it has read them
        self.confirmed = 0
        self.streams: dict[int, int] = {}  # of a leader: what each follower has on its disk, as it said


def refusal_of(told: Told, checker: TraceChecker) -> str:
    """Why the model has no such run; empty: it has one.

    Args:
        told: what the processes said.
        checker: of `leading.pml`, with BOUNDS.
    """
    steps = explaining(told)
    try:
        explained = checker.explained(steps)
    except AssertionError as error:
        return str(error)
    return (
        ""
        if explained == len(steps)
        else f"{steps[explained]} does not follow on {steps[max(0, explained - 12) : explained]}"
    )


def explaining(told: Told) -> list[Seen]:
    """Steps of the model that look like what was told; see the top of this file."""
    return _Story(told).steps


class _Story:
    def __init__(self, told: Told) -> None:
        self._told = told
        places = {one.begin_offset for each in told.led.values() for one in each}
        places |= {one.offset for each in told.confirmed.values() for one in each}
        self._places = sorted(places - {0})
        self._said = defaultdict(list, {epoch: list(each) for epoch, each in told.confirmed.items()})
        self._replicas = [_Replica() for _ in told.names]
        self._stored = (FIRST_EPOCH, 0)
        self.steps: list[Seen] = []
        before: ShardRecord | None = None
        for record in told.records:
            self._write(before, record)
            before = record
        if before is not None and before.leader:
            self._end_epoch(before, None)

    # -- what the coordinator says

    def _write(self, before: ShardRecord | None, record: ShardRecord) -> None:
        if before is None or record.epoch != before.epoch:
            if before is not None and before.leader:
                self._end_epoch(before, record)
            self._take_over(record)
            self._change_set(record, frozenset(self._told.names) if before is None else before.in_sync)
            return
        self._change_set(record, before.in_sync)
        if before.leader and not record.leader:
            leader = self._index(before.leader)
            self._end_epoch(before, record)
            outside = [name for name in self._told.names if name not in record.in_sync]
            heir = self._index(record.hand_over_to or (outside or [before.leader])[0])
            self._see("HAND_OVER", leader, heir, self._epoch_of(record))
            self._store(self._epoch_of(record), len(self._told.names))
            self._restart(leader)

    def _take_over(self, record: ShardRecord) -> None:
        epoch, who = self._epoch_of(record), self._index(record.leader)
        replica = self._replicas[who]
        self._read(who)
        self._see("TICK", 0)  # it has waited for as long as any lease lasts
        self._see("TAKE_OVER", who, who, epoch)
        self._store(epoch, who)
        told = self._told.led.get(record.epoch, ())
        if all(one.name != record.leader for one in told):
            self._see("ANSWER_LOST", who, who, epoch)
        for one in told:
            leader = self._index(one.name)
            self._see("ELECTED", leader, leader, epoch)
            if one.name == record.leader:
                replica.leads = replica.is_fresh = True
                replica.known = self._stored
                replica.streams, replica.confirmed = {}, 0
                if len(replica.log) != self._entries(one.begin_offset):
                    # It says that its log is another one: the model has no such replica.
                    self._see("APPEND", leader, leader, self._entries(one.begin_offset) + 1)

    def _change_set(self, record: ShardRecord, before: frozenset[str]) -> None:
        """One at a time: those that leave, then those that come in."""
        if record.in_sync == before or not record.leader:
            return
        leader, epoch = self._index(record.leader), self._epoch_of(record)
        self._confirm_until(record, before)
        for name in sorted(before - record.in_sync):
            self._see("SMALLER", leader, self._index(name), epoch)
            self._store(epoch, leader)
            self._replicas[leader].is_fresh = True
        for name in sorted(record.in_sync - before):
            self._hear(self._index(name), leader, len(self._replicas[leader].log))
            self._see("LARGER", leader, self._index(name), epoch)
            self._store(epoch, leader)
            self._replicas[leader].is_fresh = True

    # -- what a leader says

    def _confirm_until(self, record: ShardRecord, in_sync: frozenset[str]) -> None:
        """What the leader said it had confirmed before it said that the set is another one."""
        said = self._said[record.epoch]
        while said and said[0].in_sync == in_sync:
            self._confirm(record, in_sync, self._entries(said.pop(0).offset))

    def _end_epoch(self, last: ShardRecord, following: ShardRecord | None) -> None:
        """All that a leader said, and what the next one got of it."""
        said = self._said[last.epoch]
        while said:
            self._confirm(last, last.in_sync, self._entries(said.pop(0).offset))
        leader = self._replicas[self._index(last.leader)]
        if following is None or not leader.leads:
            return
        later = min((epoch for epoch in self._told.led if epoch > last.epoch), default=0)
        for one in self._told.led.get(later, ())[:1]:
            heir, end = self._index(one.name), self._entries(one.begin_offset)
            if len(self._replicas[heir].log) < end:
                self._append(last, last.in_sync, end)
                if one.name != last.leader:
                    self._hear(heir, self._index(last.leader), end)

    def _confirm(self, record: ShardRecord, in_sync: frozenset[str], end: int) -> None:
        leader = self._index(record.leader)
        replica = self._replicas[leader]
        if end <= max(replica.confirmed, self._begin(record)):
            return
        self._append(record, in_sync, end)
        self._confirm_all(leader, in_sync)

    def _append(self, record: ShardRecord, in_sync: frozenset[str], end: int) -> None:
        """It appends once all that it had at first is confirmed."""
        leader = self._index(record.leader)
        replica = self._replicas[leader]
        if replica.confirmed < self._begin(record) and len(replica.log) < end:
            self._confirm_all(leader, in_sync)
        while len(replica.log) < end:
            replica.log.append(self._epoch_of(record))
            self._see("APPEND", leader, leader, len(replica.log))

    def _confirm_all(self, leader: int, in_sync: frozenset[str]) -> None:
        replica = self._replicas[leader]
        end = len(replica.log)
        for name in sorted(in_sync):
            if self._index(name) != leader:
                self._hear(self._index(name), leader, end)
        self._see("CONFIRM", leader, leader, end)
        replica.confirmed = end

    # -- what nobody says

    def _hear(self, who: int, leader: int, end: int) -> None:
        """A follower has so much of the leader's log on its disk, and says so."""
        follower, replica = self._replicas[who], self._replicas[leader]
        while who not in replica.streams:
            if follower.known != self._stored or follower.leads:
                self._read(who)
            self._see("CONNECT", who, leader, self._stored[0])
            agreed = 0
            while agreed < min(len(follower.log), len(replica.log)) and follower.log[agreed] == replica.log[agreed]:
                agreed += 1
            if agreed < len(follower.log):
                follower.log = follower.log[:agreed]
                self._restart(who)
            else:
                replica.streams[who] = 0
        if replica.streams[who] < end or len(follower.log) < end:
            end = max(end, len(follower.log))
            self._see("HEAR", who, leader, end)
            follower.log = replica.log[:end]
            replica.streams[who] = end

    def _read(self, who: int) -> None:
        replica = self._replicas[who]
        if replica.leads and replica.is_fresh:
            self._see("START", who)  # its process ended; the record still names it
            self._restart(who)
        if replica.leads:
            self._see("READ", who, self._stored[1], self._stored[0])
            self._restart(who)
        if replica.is_fresh:
            return
        self._see("READ", who, self._stored[1], self._stored[0])
        if replica.known != self._stored:
            for each in self._replicas:
                each.streams.pop(who, None)
        replica.known, replica.is_fresh = self._stored, True

    def _store(self, epoch: int, leader: int) -> None:
        self._stored = (epoch, leader)
        for replica in self._replicas:
            replica.is_fresh = False

    def _restart(self, who: int) -> None:
        replica = self._replicas[who]
        replica.leads = replica.is_fresh = False
        replica.known, replica.confirmed, replica.streams = None, 0, {}
        for each in self._replicas:
            each.streams.pop(who, None)

    # -- names of things

    def _see(self, what: str, who: int, whom: int | None = None, number: int = 0) -> None:
        self.steps.append(Seen(what, who, who if whom is None else whom, number))

    def _index(self, name: str) -> int:
        return self._told.names.index(name)

    def _epoch_of(self, record: ShardRecord) -> int:
        return record.epoch + FIRST_EPOCH

    def _entries(self, offset: int) -> int:
        """How many entries of the model a log of so many bytes has."""
        return sum(place <= offset for place in self._places)

    def _begin(self, record: ShardRecord) -> int:
        told = [one for one in self._told.led.get(record.epoch, ()) if one.name == record.leader]
        return self._entries(told[0].begin_offset) if told else 0
