"""A small log with consumer groups that behave at random, and what it must show, by brute force.

The state records are made with consumer_svc's own codec, its state tells where a group is. What is consumed by a change is
the difference of two sets: `queue_state.py` says which messages of a queue are consumed.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from consumer_svc.state.codec import change_to_proto, pieces_of
from consumer_svc.state.group_states import Change, GroupDeleted, GroupStates
from consumer_svc.state.queue_state import (
    Ended,
    HandedOut,
    Hidden,
    Lease,
    Moved,
    Postponed,
    QueueRef,
    QueueState,
    Returned,
)
from reput.consumer.v1 import state_pb2 as pb
from store.format.record import PreparedMessage, patch_record, prepare_record
from tests.store.walk.logs import V4

STATE_TOPIC = "rmq_sys_REPUT_CONSUMER_STATE"
BEGIN_MILLIS = 1_700_000_000_000
Place = tuple[str, str, int]  # group, topic, queue id


@dataclass
class GroupLog:
    """A log in the making.

    Attributes:
        frames: its records.
        records: topic, queue id, queue offset, sysFlag, birth, store time, properties and size of each.
        positions: time, place and position after each state record; None: the group was deleted.
        consumed: time, place and queue offset of each message that was consumed.
        state_records: commit-log offset, time, kind and body of each.
    """

    states: GroupStates = field(default_factory=GroupStates)
    frames: list[bytes] = field(default_factory=list)
    records: list[tuple[str, int, int, int, int, int, dict[str, str], int]] = field(default_factory=list)
    positions: list[tuple[int, Place, int | None]] = field(default_factory=list)
    consumed: list[tuple[int, Place, int]] = field(default_factory=list)
    state_records: list[tuple[int, int, str, bytes]] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    time_millis: int = BEGIN_MILLIS
    size_bytes: int = 0

    def append(
        self,
        topic: str,
        queue_id: int = 0,
        body: bytes = b"body",
        properties: Mapping[str, str] = MappingProxyType({}),
        *,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        born_before_millis: int = 0,
    ) -> int:
        """Append a record; its commit-log offset."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        born = self.time_millis - born_before_millis
        prepared = PreparedMessage(
            topic, queue_id, body, text.encode(), born, V4, V4, sys_flag=sys_flag, reconsume_times=reconsume_times
        )
        frame = prepare_record(prepared)
        place, offset = (topic, queue_id), self.size_bytes
        patch_record(frame, self.ends[place], offset, self.time_millis)
        row = (topic, queue_id, self.ends[place], sys_flag, born, self.time_millis, dict(properties), len(frame))
        self.records.append(row)
        self.frames.append(bytes(frame))
        self.size_bytes += len(frame)
        if sys_flag & 4 == 0:
            self.ends[place] += 1
        return offset

    def change(self, *changes: Change) -> None:
        """Append a state record, and note what it did."""
        before = {self._place(ref) for ref in self._refs()}
        for change in changes:
            known = {self._place(ref): self._consumed(ref) for ref in self._refs()}
            self.states.apply(change)
            counts = isinstance(change, Ended) or (isinstance(change, Moved) and not change.is_reset)
            for ref in self._refs():
                if counts and self._place(ref) in known:
                    for offset in sorted(self._consumed(ref) - known[self._place(ref)]):
                        self.consumed.append((self.time_millis, self._place(ref), offset))
        self._append_state("change", pb.StateRecord(epoch=1, changes=map(change_to_proto, changes)))
        after = {self._place(ref): self.states.queue(ref).consumer_offset for ref in self._refs()}
        for place in sorted(before | after.keys()):
            self.positions.append((self.time_millis, place, after.get(place)))

    def full(self) -> None:
        """Append a full state."""
        self._append_state("full-begin", pb.StateRecord(epoch=1))
        for groups in pieces_of(self.states):
            self._append_state("full", pb.StateRecord(epoch=1, groups=groups))
        self._append_state("full-end", pb.StateRecord(epoch=1))

    def write(self, root: Path, file_bytes: int = 1 << 20) -> Path:
        """The store root with the log in one file."""
        (root / "commitlog").mkdir(parents=True)
        (root / "commitlog" / f"{0:020d}").write_bytes(b"".join(self.frames).ljust(file_bytes, b"\0"))
        return root

    def _append_state(self, kind: str, record: pb.StateRecord) -> None:
        body = record.SerializeToString(deterministic=True)
        offset = self.append(STATE_TOPIC, 0, body, {"TAGS": kind})
        self.state_records.append((offset, self.time_millis, kind, body))

    def _refs(self) -> Iterator[QueueRef]:
        for group in self.states.groups.values():
            yield from (ref for ref, _ in group.queues())

    def _place(self, ref: QueueRef) -> Place:
        return ref.consumer_group, ref.topic, ref.queue_id

    def _consumed(self, ref: QueueRef) -> set[int]:
        """A message below `next_offset` that is neither in flight nor waiting is consumed, unless it was moved."""
        queue = self.states.queue(ref)
        return set(range(queue.next_offset)) - queue.leases.keys() - queue.waiting.keys() - queue.moved.keys()


def random_changes(chance: random.Random, log: GroupLog) -> list[Change]:
    """Changes as the service makes them, of one or two groups; a queue's messages may be any."""
    changes: list[Change] = []
    states = GroupStates()
    for group in log.states.groups.values():  # the state behind the changes made so far
        for ref, queue in group.queues():
            copied = states.queue(ref)
            copied.next_offset, copied.leases = queue.next_offset, dict(queue.leases)
            copied.waiting, copied.moved = dict(queue.waiting), dict(queue.moved)
    for _ in range(chance.choice((1, 1, 2, 3))):
        ref = QueueRef(chance.choice(("g", "g_orders")), chance.choice(("orders", "payments")), chance.randrange(2))
        end = log.ends[ref.topic, ref.queue_id]
        change = _change(chance, ref, end, states.find(ref) or QueueState())
        states.apply(change)
        changes.append(change)
    return changes


def _change(chance: random.Random, ref: QueueRef, end: int, queue: QueueState) -> Change:
    next_offset, leases = queue.next_offset, list(queue.leases)
    some = sorted(chance.sample(leases, chance.randint(0, len(leases))))
    match chance.randrange(20):
        case 0 | 1 | 2 | 3 | 4 | 5 if next_offset < end:
            until = min(next_offset + chance.randint(1, 6), end)
            out = [at for at in range(next_offset, until) if at not in queue.moved and chance.random() < 0.9]
            cut = chance.randint(0, len(out))
            return HandedOut(
                ref, until, [Lease(offset, 1, 0, 0) for offset in out[:cut]], [Postponed(at, 0, 0) for at in out[cut:]]
            )
        case 6 | 7 | 8 | 9:
            return Ended(ref, some)
        case 10:
            return Ended(ref, some, moved=True)
        case 11 if end > next_offset:  # sent back by a consumer that pulls
            return Ended(ref, [chance.randrange(next_offset, end)], moved=True)
        case 12:
            return Returned(ref, [Postponed(offset, 1, 1) for offset in some])
        case 13 if some:
            return Hidden(ref, some[0], 5)
        case 14:
            return Moved(ref, chance.randint(0, end), is_reset=True)
        case 15 if chance.random() < 0.3:
            return GroupDeleted(ref.consumer_group)
        case _:
            return Moved(ref, chance.randint(max(0, next_offset - 3), end))


def random_log(seed: int, steps: int = 120) -> GroupLog:
    """A log of some steps, half a second each."""
    chance, log = random.Random(seed), GroupLog()
    for _ in range(steps):
        log.time_millis += chance.randrange(1000)
        for _ in range(chance.randrange(4)):
            topic = chance.choice(("orders", "payments", "unread"))
            flag = chance.choice((0, 0, 0, 0, 4, 8))
            keys = (
                {"KEYS": " ".join(chance.sample(("a", "b", "c"), chance.randint(1, 3)))}
                if chance.random() < 0.5
                else {}
            )
            unique = {"UNIQ_KEY": f"U{log.size_bytes}"} if chance.random() < 0.8 else {}
            log.append(
                topic, chance.randrange(2), chance.randbytes(chance.randrange(90)), keys | unique, sys_flag=flag,
                born_before_millis=chance.randrange(5000),
            )  # fmt: skip
        log.time_millis += chance.randrange(100)
        log.change(*random_changes(chance, log))
        if chance.random() < 0.1:
            log.full()
    return log
