"""kill -9 of any service at any moment while groups consume over all doors: each message reaches each group, order holds.

A producer sends to one topic over `reput.gateway.v1`, RocketMQ's gRPC protocol and remoting. An ordinary and an ordered group
pop it, each with consumers that acknowledge (also twice), hide, give up or forget what they get. A third group has members of
all doors; the members of the last pull over remoting in order, under locks. Another producer sends to lite topics below a
parent: one group shares them, in one the members take them from each other, one gets all. Every call and its answer is noted
with its time, and services, or all of the shard, are killed and started again. In the end everything left is consumed, all
stop, and the log's own bytes are the judge:

- every message that was acknowledged to its producer is there once
- each group has acknowledged it, or has it in its dead letters
- no message is delivered by a pop that began after its acknowledgement was answered
- in the ordered group, a message comes after all earlier ones of its message group are done with; likewise for a lite topic
- once a member's taking of a lite topic was answered, no pop of another one brings a message of it. Members of lite topics say
  once what they want, so what a restart loses they never get
- no record was moved twice to a retry or dead-letter topic
- a position that a member is told is the last one that was stored, and no pull leads back
"""

import itertools
import math
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration

from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from store.errors import StoreError
from tests.gateway.remoting.one_group import Member, PoppingMember, PullingMember
from tests.gateway.remoting.one_group import Seen as Processed
from tests.support.ports import free_port
from tests.support.service import CHANNEL_OPTIONS
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount, level
from tests.torture.lasting_clients import (
    Door,
    GrpcPops,
    LastingMember,
    OrderlyMember,
    Popped,
    PositionCall,
    Positions,
    SeenInOrder,
    ServicePops,
    ThreeSenders,
    may_tell,
)
from tests.torture.seeds import pick_seed
from tests.torture.store_check import Frame, read_frames
from tests.torture.stores import TIME_LIMIT
from tests.torture.test_random_kills import NAMES, all_services

pytestmark = TIME_LIMIT
TOPIC = "orders"
SETTINGS = {"REPUT_GATEWAY_RECEIVE_INVISIBLE_MILLIS_MIN": "100", "REPUT_GATEWAY_POLL_MILLIS_MIN": "50"}
QUEUE_COUNT = 2
PLAIN, ORDERED = "plain", "ordered"
MIXED, LOCKING = "mixed", "locking"
PARENT = "sessions"
SHARED, OWNED, WILD = "shared", "owned", "wild"
# Of groups of lite topics: RocketMQ's attributes.
LITE_GROUPS = {SHARED: {}, OWNED: {"lite.sub.model": "Exclusive"}, WILD: {"lite.sub.wildcard": "true"}}
MESSAGE_GROUPS = ("a", "b", "c", "d")  # also the lite topics
ATTEMPTS_MAX = 4
# When both die at once, queues that have a position are locked again after 60 s only.
WHO_KNOW_LOCKS = {"gateway", "consumer"}
SHARD = tuple(name for name in NAMES if name != "gateway")
DRAIN_SECONDS_MAX = 240.0
# Two consumers must be able to follow, also on a busy machine.
PRODUCER_PAUSE_SECONDS = 0.05
LITE_PAUSE_SECONDS = 0.15
TAKING_SECONDS, NAMING_CHANCE = (0.1, 0.6), 0.2
MOVED_FROM = re.compile(rb"__REPUT_MOVED_FROM__\x01([^\x02]*)\x02")


@dataclass(frozen=True)
class Delivered:
    """A message that a consumer got: by a pop that began and was answered at these times (seconds).

    `member`: the number of the consumer in its group, from 1.
    """

    name: str
    message_group: str
    sequence: int
    pop_began: float
    answered: float
    attempt: int
    member: int


@dataclass
class Seen:
    """What the consumers of one group saw.

    Attributes:
        delivered: in the order of the answers.
        acked: by message, when its acknowledgement was answered first.
        maybe_done: messages whose acknowledgement or giving up may have been carried out, and since when.
        taken: by lite topic, the calls of members that took it from others; a position stands for the number of the member.
    """

    delivered: list[Delivered] = field(default_factory=list)
    acked: dict[str, float] = field(default_factory=dict)
    maybe_done: dict[str, float] = field(default_factory=dict)
    taken: dict[str, list[PositionCall]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)


class Producer:
    """Sends messages of growing numbers to each message group, over each door; one request at a time, never sent again."""

    def __init__(self, senders: ThreeSenders, topic: str, pause_seconds: float, seed: int) -> None:
        self.acked: list[str] = []
        self.acked_by_way: Counter[int] = Counter()
        self._random = random.Random(seed)
        self._senders = senders
        self._topic = topic
        self._pause_seconds = pause_seconds
        self._sequences: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the request in hand."""
        self._stopping.set()
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive(), "the producer hangs"
        self._senders.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for _ in range(self._random.randrange(1, 4)):
                message_group = self._random.choice(MESSAGE_GROUPS)
                self._sequences[message_group] += 1
                name = f"{message_group}-{self._sequences[message_group]}"
                way = self._random.randrange(len(self._senders.ways))
                if self._senders.ways[way](self._topic, name, message_group):
                    self.acked.append(name)
                    self.acked_by_way[way] += 1
            self._stopping.wait(self._pause_seconds)


class Consumer:
    """A member of a group that treats what it gets in all ways that there are; in `draining` it only acknowledges."""

    def __init__(self, pops: ServicePops | GrpcPops, group: str, number: int, seen: Seen, seed: int) -> None:
        self.draining = threading.Event()
        self.idle_since = time.monotonic()
        self._group = group
        self._number = number
        self._seen = seen
        self._random = random.Random(seed)
        self._pops = pops
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the call in hand."""
        self._stopping.set()
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive(), "a consumer hangs"
        self._pops.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                found = self._pop()
            except StoreError:
                self._stopping.wait(0.02)
                self.idle_since = time.monotonic()
                continue
            if not found:
                self._stopping.wait(0.02)
                continue
            self.idle_since = answered = time.monotonic()
            for name, _, attempt in found:
                message_group, _, sequence = name.partition("-")
                with self._seen.lock:
                    row = Delivered(name, message_group, int(sequence), began, answered, attempt, self._number)
                    self._seen.delivered.append(row)
            for name, handle, _ in found:
                self._treat(name, handle)

    def _pop(self) -> list[Popped]:
        millis = 3_000 if self.draining.is_set() else self._random.choice((100, 400, 3_000))
        invisible = Duration(seconds=millis // 1000, nanos=millis % 1000 * 1_000_000)
        per_group_max = 0 if self.draining.is_set() else 1
        return self._pops.pop(self._group, self._random.choice((1, 4, 32)), invisible, per_group_max)

    def _treat(self, name: str, handle: str) -> None:
        chance = 0.0 if self.draining.is_set() else self._random.random()
        if chance < 0.75:
            self._ack(name, handle)
            if chance > 0.7:
                self._ack(name, handle)
        elif chance < 0.85:
            invisible = Duration(nanos=self._random.randrange(300) * 1_000_000)
            self._try(lambda: self._pops.hide(self._group, handle, invisible))
        elif chance < 0.87:
            self._maybe(name)
            self._try(lambda: self._pops.give_up(self._group, handle))

    def _ack(self, name: str, handle: str) -> None:
        self._maybe(name)
        if self._try(lambda: self._pops.ack(self._group, handle)):
            with self._seen.lock:
                self._seen.acked.setdefault(name, time.monotonic())

    def _maybe(self, name: str) -> None:
        with self._seen.lock:
            self._seen.maybe_done.setdefault(name, time.monotonic())

    def _try(self, call):
        try:
            return call()
        except StoreError:
            return None


class TakingConsumer(Consumer):
    """A member of an exclusive group that takes lite topics from the others, and sometimes names all, which takes none."""

    # By time: its polls over gRPC wait longer than those at the service.
    _acts_at = 0.0

    def _pop(self) -> list[Popped]:
        if time.monotonic() >= self._acts_at and not self.draining.is_set():
            self._acts_at = time.monotonic() + self._random.uniform(*TAKING_SECONDS)
            if self._random.random() < NAMING_CHANCE:
                self._pops.name_lite_topics(self._group, MESSAGE_GROUPS, is_all=True)
            else:
                take(self._pops, self._group, self._number, self._seen, [self._random.choice(MESSAGE_GROUPS)])
        return super()._pop()


def take(pops: ServicePops | GrpcPops, group: str, number: int, seen: Seen, names: Sequence[str]) -> None:
    """Have a member own lite topics from now on, and note when that began and was answered; StoreError."""
    call = PositionCall(True, number, time.monotonic(), math.inf)
    with seen.lock:
        for name in names:
            seen.taken[name].append(call)
    pops.name_lite_topics(group, names, is_all=False)
    call.answered = time.monotonic()


def make_groups(address: str) -> None:
    """The topics, and the groups that pop, with few attempts."""
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = gateway_grpc.GatewayServiceStub(channel)
        topic = gateway_pb.CreateTopicRequest(topic=TOPIC, queue_count=QUEUE_COUNT)
        stub.CreateTopic(topic, timeout=WAIT_SECONDS_MAX, wait_for_ready=True)
        parent = gateway_pb.CreateTopicRequest(
            topic=PARENT, queue_count=QUEUE_COUNT, message_type=message_pb2.MESSAGE_TYPE_LITE
        )
        stub.CreateTopic(parent, timeout=WAIT_SECONDS_MAX)
        for group in (PLAIN, ORDERED, *LITE_GROUPS):
            request = gateway_pb.UpdateConsumerGroupRequest(
                consumer_group=group, ordered=group == ORDERED, delivery_attempts_max=ATTEMPTS_MAX
            )
            if group in LITE_GROUPS:
                request.lite_attributes.update({"lite.bind.topic": PARENT, **LITE_GROUPS[group]})
            stub.UpdateConsumerGroup(request, timeout=WAIT_SECONDS_MAX, wait_for_ready=True)


def moved_from(root: Path, frames: list[Frame]) -> Counter[tuple[str, bytes]]:
    """How often each record was moved, by the topic it went to; read from the records' bytes."""
    counts: Counter[tuple[str, bytes]] = Counter()
    files = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir() if path.name.isdecimal()}
    bases = sorted(files)
    for frame in frames:
        if frame.topic.startswith(("%RETRY%", "%DLQ%")):
            base = max(each for each in bases if each <= frame.commit_log_offset)
            at = frame.commit_log_offset - base
            sources = MOVED_FROM.findall(files[base][at : at + frame.size_bytes])
            if not sources and frame.topic == f"%RETRY%{MIXED}":
                continue  # a member has sent it back
            (source,) = sources
            counts[frame.topic.partition("_")[0].replace("%RETRY%", "").replace("%DLQ%", ""), source] += 1
    return counts


def order_problems(group: str, seen: Seen, frames: list[Frame]) -> list[str]:
    """Where a message of a group came before an earlier one of its message group or lite topic was done with.

    Earlier is what stands before it in its queue, or in the log for lite topics. A message is done with when a call that may
    have ended it began before. One pop may bring several of a message group, in order.
    """
    together: dict[tuple[float, float, int], set[str]] = defaultdict(set)
    if group in LITE_GROUPS:
        places = {frame.message_id: (0, frame.commit_log_offset) for frame in frames if frame.topic == PARENT}
    else:
        places = {frame.message_id: (frame.queue_id, frame.queue_offset) for frame in frames if frame.topic == TOPIC}
    dead = {frame.message_id for frame in frames if frame.topic == f"%DLQ%{group}"}
    by_group: dict[str, list[str]] = defaultdict(list)
    for name in sorted(places, key=lambda each: places[each]):
        by_group[name.partition("-")[0]].append(name)
    # When all messages before one were done with: a look at each of them is needed only for rows before that time.
    earlier_done_at: dict[str, float] = {}
    for names in by_group.values():
        latest = -math.inf
        for name in names:
            earlier_done_at[name] = latest
            latest = max(latest, -math.inf if name in dead else seen.maybe_done.get(name, math.inf))
    problems = []
    for row in seen.delivered:
        batch = together[row.pop_began, row.answered, row.member]
        batch.add(row.name)
        if earlier_done_at[row.name] <= row.answered:
            continue
        for earlier in by_group[row.message_group]:
            if places[earlier] >= places[row.name] or places[earlier][0] != places[row.name][0]:
                continue
            done = seen.maybe_done.get(earlier)
            if earlier not in dead | batch and (done is None or done > row.answered):
                problems.append(
                    f"{group}: {row.name} was delivered (attempt {row.attempt}) before {earlier} was done with"
                )
                break
    return problems


def taken_counts(seen: Seen) -> Counter[int]:
    """Takings that were answered, by member."""
    return Counter(call.position for calls in seen.taken.values() for call in calls if call.answered < math.inf)


def owner_problems(seen: Seen) -> list[str]:
    """Messages of lite topics that came to a member that did not own them then."""
    return [
        f"{OWNED}: {row.name} came to member {row.member}, which does not own it any more"
        for row in seen.delivered
        if not may_tell(PositionCall(False, row.member, row.pop_began, row.answered), seen.taken[row.message_group])
    ]


def problems_of(group: str, seen: Seen, produced: list[str], frames: list[Frame]) -> list[str]:
    """What was promised to a group and is not so."""
    dead = {frame.message_id for frame in frames if frame.topic == f"%DLQ%{group}"}
    problems = [f"{group}: {name} was skipped" for name in produced if name not in seen.maybe_done and name not in dead]
    for row in seen.delivered:
        acked = seen.acked.get(row.name)
        if acked is not None and row.pop_began > acked:
            problems.append(
                f"{group}: {row.name} was delivered again {row.pop_began - acked:.3f} s after its acknowledgement"
            )
    return problems


class GroupOfAllDoors:
    """Members of one group that come over remoting, RocketMQ's gRPC protocol and as PullConsumer."""

    def __init__(self, door: Door, seed: int) -> None:
        self.processed = Processed()
        self._popping = PoppingMember(door, MIXED, TOPIC, self.processed, seed)
        self._pulling: list[Member] = [
            LastingMember(door, MIXED, TOPIC, QUEUE_COUNT, "mixed-r", self.processed, seed + 1, Positions()),
            PullingMember(door, MIXED, TOPIC, self.processed, seed + 2),
        ]
        for member in (self._popping, *self._pulling):
            member.start()

    def end(self, produced: list[str], stub: gateway_grpc.GatewayServiceStub) -> None:
        """Return when all is processed and consumed; AssertionError names what is not."""
        sent = [f"{name}|".encode() for name in produced]
        processed = self.processed
        wait_until(
            lambda: not processed.missing(sent),
            lambda: f"{processed.missing(sent)[:9]} miss",
            seconds=DRAIN_SECONDS_MAX,
        )
        for member in self._pulling:
            member.stop()
        wait_until_consumed(stub, (MIXED,))
        self._popping.stop()


class LockingGroup:
    """Members that pull over remoting, each from queues that it has locked."""

    def __init__(self, door: Door, seed: int) -> None:
        self.processed = SeenInOrder()
        self._positions = Positions()
        self._members = [
            OrderlyMember(
                door, LOCKING, TOPIC, QUEUE_COUNT, f"o-{number}", self.processed, seed + number, self._positions
            )
            for number in range(2)
        ]
        for member in self._members:
            member.start()

    def end(self, produced: list[str]) -> None:
        """Return when all is processed."""
        sent = [f"{name}|".encode() for name in produced]
        processed = self.processed
        wait_until(
            lambda: not processed.missing(sent),
            lambda: f"{processed.missing(sent)[:9]} miss",
            seconds=DRAIN_SECONDS_MAX,
        )
        for member in self._members:
            member.stop()

    def problems(self) -> list[str]:
        """What was promised to it and is not so."""
        return [f"{LOCKING}: {problem}" for problem in self.processed.problems + self._positions.problems()]


def victims(count: int, chance: random.Random) -> Iterator[tuple[str, ...]]:
    """Services to kill at once: all and their shard in turn, in an order of its own each time; some with another one."""
    turns = itertools.chain.from_iterable(
        chance.sample((*((name,) for name in NAMES), SHARD), len(NAMES) + 1) for _ in itertools.count()
    )
    for turn in itertools.islice(turns, count):
        names = turn if turn == SHARD else tuple({turn[0]: None, chance.choice((*turn, *turn, *NAMES)): None})
        yield turn if set(names) == WHO_KNOW_LOCKS and level() != "full" else names


class AllDoors:
    """Producers, and groups of every kind, at all doors of one shard; and the judgement of what they were promised.

    Args:
        gateway: its address.
        door: over remoting.
        seed: of their choices.
        consumer: the address of the consumer service; empty: its clients are at the gateway, too.
        flush: when messages sent over `reput.gateway.v1` are answered.
    """

    def __init__(
        self,
        gateway: str,
        door: Door,
        seed: int,
        consumer: str = "",
        flush: message_pb2.FlushMode = message_pb2.FLUSH_MODE_SYNC,
    ) -> None:
        make_groups(gateway)
        self.seen = {group: Seen() for group in (PLAIN, ORDERED, *LITE_GROUPS)}
        self.producers = [
            Producer(ThreeSenders(gateway, door, flush=flush), TOPIC, PRODUCER_PAUSE_SECONDS, seed),
            Producer(ThreeSenders(gateway, door, is_lite=True, flush=flush), PARENT, LITE_PAUSE_SECONDS, seed + 1),
        ]
        self.consumers = [
            Consumer(pops, group, number, self.seen[group], seed + number)
            for group in (PLAIN, ORDERED)
            for number, pops in enumerate(pops_of_two(consumer, gateway, TOPIC, group), 1)
        ]
        self.consumers += [
            member for group in LITE_GROUPS for member in lite_members(consumer, gateway, group, self.seen[group], seed)
        ]
        self.mixed, self.locking = GroupOfAllDoors(door, seed), LockingGroup(door, seed)

    def drain(self, stub: gateway_grpc.GatewayServiceStub) -> None:
        """Send no more, and return when every group has all; AssertionError names what is not."""
        for producer in self.producers:
            producer.stop()
        for consumer in self.consumers:
            consumer.draining.set()
        produced = self.producers[0].acked
        self.locking.end(produced)
        print("the members with locks have all")
        self.mixed.end(produced, stub)
        wait_until_consumed(stub, tuple(self.seen))
        print("all groups have all")
        # Longer than anything is hidden.
        wait_until(lambda: time.monotonic() - max(each.idle_since for each in self.consumers) > 4.0, "nothing comes")

    def stop(self) -> None:
        """No call of those that pop any more."""
        for consumer in self.consumers:
            consumer.stop()

    def problems(self, store: Path, frames: list[Frame]) -> list[str]:
        """What was promised and is not so.

        Args:
            store: its log's files; nobody has them open.
            frames: all records of the log.
        """
        produced, of_lite_topics = (producer.acked for producer in self.producers)
        problems = self.locking.problems()
        for topic, names in (TOPIC, produced), (PARENT, of_lite_topics):
            found = Counter(frame.message_id for frame in frames if frame.topic == topic)
            problems += [f"{name} of {topic} is there {found[name]} times" for name in names if found[name] != 1]
        for group, what_it_saw in self.seen.items():
            problems += problems_of(group, what_it_saw, of_lite_topics if group in LITE_GROUPS else produced, frames)
            if group != PLAIN:
                problems += order_problems(group, what_it_saw, frames)
        problems += owner_problems(self.seen[OWNED])
        problems += [
            f"{what} was moved {count} times" for what, count in moved_from(store, frames).items() if count > 1
        ]
        return problems

    def __str__(self) -> str:
        owned = self.seen[OWNED]
        return (
            f"{[(len(each.acked), dict(each.acked_by_way)) for each in self.producers]} messages, "
            f"{ {group: len(each.delivered) for group, each in self.seen.items()} } deliveries, "
            f"{dict(Counter(each.member for each in owned.delivered))} of {OWNED} by member, "
            f"{dict(taken_counts(owned))} takings, {dict(self.mixed.processed.by_door)} by door, "
            f"{self.locking.processed.again_count} again in order"
        )


def consume_under_kills(store: Path, seed: int, kill_count: int) -> str:
    """Kill services while groups consume; the problems as text."""
    chance = random.Random(seed)
    address = f"127.0.0.1:{free_port()}"
    with all_services(store, {**SETTINGS, "REPUT_GATEWAY_REMOTING_ADDRESS": address}) as services:
        clients = AllDoors(services.gateway, Door(address, services.gateway), seed, services.consumer)
        begun = time.monotonic()
        try:
            for names in victims(kill_count, chance):
                wait_for_acks(clients.seen, chance.randrange(1, 60))
                services.kill(names)
                services.start(names)
                print(f"{time.monotonic() - begun:.1f} s: {names} were killed and serve again")
            wait_for_acks(clients.seen, 20)
            clients.drain(services.running("gateway").stub)
        finally:
            clients.stop()
        assert services.stop() == dict.fromkeys(NAMES, 0)
    problems: list[str] = []
    frames = read_frames(store, problems)
    problems += clients.problems(store, frames)
    assert len(taken_counts(clients.seen[OWNED])) == 2, "the members have taken nothing from each other"
    print(f"{kill_count} kills, {clients}")
    return "\n".join(problems[:20])


def pops_of_two(
    consumer: str, gateway: str, topic: str, group: str, *, is_lite: bool = False
) -> tuple[ServicePops | GrpcPops, GrpcPops]:
    """The calls of two members: one at the consumer service, where its address is given, and one at the gateway."""
    names = [f"{group}-1", f"{group}-2"]
    at_service = ServicePops(consumer, topic, names[0] if is_lite else "") if consumer else None
    return at_service or GrpcPops(gateway, topic, names[0]), GrpcPops(gateway, topic, names[1])


def lite_members(consumer: str, gateway: str, group: str, seen: Seen, seed: int) -> list[Consumer]:
    """Two members of a group of lite topics that have said what they want."""
    both = pops_of_two(consumer, gateway, PARENT, group, is_lite=True)
    if group == OWNED:
        take(both[0], group, 1, seen, MESSAGE_GROUPS)
        return [TakingConsumer(pops, group, number, seen, seed + number) for number, pops in enumerate(both, 1)]
    for pops in both:
        pops.name_lite_topics(group, () if group == WILD else MESSAGE_GROUPS, is_all=group == WILD)
    return [Consumer(pops, group, number, seen, seed + number) for number, pops in enumerate(both, 1)]


def wait_for_acks(seen: dict[str, Seen], count: int) -> None:
    """Return when that many more acknowledgements were answered."""
    target = sum(len(each.acked) for each in seen.values()) + count
    wait_until(lambda: sum(len(each.acked) for each in seen.values()) >= target, f"{target} acknowledgements")


def wait_until_consumed(stub: gateway_grpc.GatewayServiceStub, groups: tuple[str, ...]) -> None:
    """Return when groups have consumed all queues of the topic, and those that pop their retries."""
    left: list[str] = []

    def details(group: str) -> gateway_pb.GetConsumerGroupResponse:
        request = gateway_pb.GetConsumerGroupRequest(consumer_group=group)
        return stub.GetConsumerGroup(request, timeout=WAIT_SECONDS_MAX)

    def is_consumed() -> bool:
        rows = [
            (group, row) for group in groups for row in details(group).queues if row.topic == TOPIC or group != MIXED
        ]
        left[:] = [f"{group}: {str(row)!r}" for group, row in rows if row.consumer_offset != row.max_offset]
        lite = [(group, row) for group in groups for row in details(group).lite_topics]
        left.extend(f"{group}: {str(row)!r}" for group, row in lite if row.lag_count)
        return not left

    wait_until(
        is_consumed, lambda: f"the groups have consumed all but {left}", seconds=DRAIN_SECONDS_MAX, poll_seconds=0.2
    )


def test_consumers_under_random_kills_miss_nothing_and_keep_their_order(tmp_path: Path) -> None:
    seed = pick_seed("delivery-kills")
    problems = consume_under_kills(tmp_path / "store", seed, amount(sample=2, change=7, full=400))
    assert not problems, f"seed {seed}:\n{problems}"
