"""Random producers and clients of lite topics, crashes and clock steps over a log in memory, judged by a small model.

A seed makes the whole run. Of each lite topic and group: nothing is skipped, nothing acknowledged comes again, nothing
overtakes, at no time have two polls messages of it, in an exclusive group only the owner gets some; and the state that a
restart reads is what the log says.
"""

import random
from dataclasses import dataclass, field

import pytest

from consumer_svc.delivering.acks import INVALID, OK
from consumer_svc.live_consumers import LiveConsumers
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import StoreError
from store.format.properties import LITE_TOPIC
from store.format.topic import DLQ_PREFIX
from tests.consumer_svc.lite import ADD, ALL, NONE, REMOVE, bind, poll, send, sync
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog, contents
from tests.consumer_svc.test_random_lives import replayed
from tests.support.waiting import WAIT_SECONDS_MAX

STEP_COUNT = 250
ATTEMPTS_MAX = 3
LITE_TOPICS = ("a", "b", "x", "y")
CLIENTS = ("c1", "c2", "c3")
Action = pb.LiteAction


@dataclass
class Held:
    """A message that a client has, until a time (ms since 1970)."""

    client_id: str
    lite_topic: str
    queue_offset: int
    receipt_handle: str
    until_millis: int


@dataclass
class LiteModel:
    """What is known of one group.

    Attributes:
        acked: lite topics and positions whose acknowledgement was answered.
        maybe_acked: those of which it was not.
        held: what clients have.
        subscribed: by client; None: the answer was lost.
        owners: in an exclusive group, by lite topic; absent: not known.
    """

    name: str
    is_exclusive: bool = False
    is_wildcard: bool = False
    acked: set[tuple[str, int]] = field(default_factory=set)
    maybe_acked: set[tuple[str, int]] = field(default_factory=set)
    held: list[Held] = field(default_factory=list)
    subscribed: dict[str, set[str] | None] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)


class Run:
    """One random run.

    Args:
        seed: makes it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock)
        self.groups = [LiteModel("shared"), LiteModel("exclusive", True), LiteModel("wild", is_wildcard=True)]
        self.sent = dict.fromkeys(LITE_TOPICS, 0)
        self.life = self.begin()
        for group in self.groups:
            bind(self.log, self.life, group.name, is_exclusive=group.is_exclusive, is_wildcard=group.is_wildcard)

    def begin(self) -> LogLife:
        """The next life; few units in memory, so that older ones are read from the queues."""
        clients = LiveConsumers(lambda: self.clock.now / 1000)
        life = LogLife(self.log, attempts_max=ATTEMPTS_MAX, recent_count_max=4, clients=clients)
        life.life.topics.load()
        return life

    def run(self) -> None:
        """All steps, and the end, at which everything is consumed."""
        steps = (
            *[self.send] * 5,
            *[self.poll] * 8,
            *[self.ack] * 5,
            *[self.subscribe] * 3,
            *[self.nack, self.give_back, self.suspend, self.give_up, self.step_clock, self.step_clock],
            *[self.full, self.crash, self.break_appends, self.build, self.end_client, self.look_through],
        )
        for _ in range(STEP_COUNT):
            step = self.random.choice(steps)
            try:
                step()
            except StoreError:
                if self.life.writer.error is not None:
                    self.restart()
        self.finish()

    # -- steps

    def send(self) -> None:
        """A producer sends."""
        for _ in range(self.random.randint(1, 4)):
            lite_topic = self.random.choice(LITE_TOPICS)
            send(self.log, lite_topic, f"{lite_topic}{self.sent[lite_topic]}")
            self.sent[lite_topic] += 1

    def subscribe(self) -> None:
        """A client subscribes, or no more."""
        group, client_id = self.random.choice(self.groups), self.random.choice(CLIENTS)
        actions = (ALL, NONE) if group.is_wildcard else (ADD, ADD, ADD, REMOVE, ALL, NONE)
        named = () if group.is_wildcard else tuple(self.random.sample(LITE_TOPICS, self.random.randint(1, 3)))
        self.sync(group, client_id, self.random.choice(actions), named)

    def sync(self, group: LiteModel, client_id: str, action: "Action", named: tuple[str, ...]) -> None:
        """Subscribe, and note what it means."""
        mine = group.subscribed.get(client_id, set())
        try:
            count = sync(self.life, client_id, action, *named, name=group.name)
        except StoreError:
            group.subscribed = dict.fromkeys(group.subscribed)
            group.subscribed[client_id] = None
            group.owners.clear()
            raise
        if group.is_wildcard:
            group.subscribed[client_id] = set(LITE_TOPICS) if action == ALL else set()
            return
        if action == ALL and group.is_exclusive:
            if len(group.owners) == len(LITE_TOPICS):
                assert count == sum(group.owners[each] in (client_id, "") for each in named)
            others = {each: owner for each, owner in group.owners.items() if each not in named}
            known = {each: owner for each, owner in group.owners.items() if each in named and owner}
            group.owners = {each: "" if owner == client_id else owner for each, owner in others.items()} | known
            group.owners |= {each: client_id for each in named if each in group.owners and not group.owners[each]}
        elif group.is_exclusive:
            for each in named if action == ADD else ():
                group.owners[each] = client_id
            gone = named if action == REMOVE else LITE_TOPICS if action == NONE else ()
            group.owners |= {each: "" for each in gone if group.owners.get(each) == client_id}
        if action == ALL:
            group.subscribed[client_id] = set(named)
        elif action == NONE:
            group.subscribed[client_id] = set()
        elif mine is not None:
            group.subscribed[client_id] = mine | set(named) if action == ADD else mine - set(named)

    def poll(self) -> None:
        """A client polls."""
        group, client_id = self.random.choice(self.groups), self.random.choice(CLIENTS)
        self.take(group, client_id, self.random.choice((1, 2, 32)))

    def take(self, group: LiteModel, client_id: str, count_max: int) -> int:
        """Poll, and check what comes."""
        invisible_millis = self.random.choice((1_000, 30_000))
        ask = poll(client_id, name=group.name, max_messages=count_max, invisible_millis=invisible_millis)
        delivered = self.life.pop(ask)
        batch: set[tuple[str, int]] = set()
        lite_topics = {one.message.properties[LITE_TOPIC] for one in delivered}
        for lite_topic in lite_topics:
            busy = [held for held in group.held if held.lite_topic == lite_topic and held.until_millis > self.clock.now]
            assert not busy, f"{group.name} has messages of {lite_topic} in flight, and gets more"
            assert group.owners.get(lite_topic, client_id) == client_id, f"{client_id} does not own {lite_topic}"
            wanted = group.subscribed.get(client_id, set())
            assert group.is_exclusive or wanted is None or lite_topic in wanted, f"{client_id} did not ask for it"
        is_lost = self.random.random() < 0.1
        for one in delivered:
            lite_topic, at = one.message.properties[LITE_TOPIC], one.message.queue_offset
            assert one.message.body.decode() == f"{lite_topic}{at}"
            assert (lite_topic, at) not in group.acked, f"{lite_topic}{at} was acknowledged, and comes again"
            assert 1 <= one.delivery_attempt <= ATTEMPTS_MAX
            done = group.acked | group.maybe_acked | self.dead(group) | batch
            before = {(lite_topic, earlier) for earlier in range(at)}
            assert before <= done, f"{lite_topic}{at} overtakes {sorted(before - done)}"
            batch.add((lite_topic, at))
            until = self.clock.now + invisible_millis
            if not is_lost:
                group.held.append(Held(client_id, lite_topic, at, one.receipt_handle, until))
        return len(delivered)

    def dead(self, group: LiteModel) -> set[tuple[str, int]]:
        """The dead letters of a group."""
        bodies = [message.body.decode() for message in self.log.messages(DLQ_PREFIX + group.name)]
        return {(body[0], int(body[1:])) for body in bodies}

    def ack(self) -> None:
        """A client acknowledges some of what it has, late or not."""
        group = self.random.choice(self.groups)
        if not group.held:
            return
        chosen = self.random.sample(group.held, self.random.randint(1, len(group.held)))
        places = [(one.lite_topic, one.queue_offset) for one in chosen]
        group.held = [one for one in group.held if one not in chosen]
        try:
            outcomes = self.life.acks.ack(group.name, [one.receipt_handle for one in chosen])
        except StoreError:
            group.maybe_acked.update(places)
            raise
        assert INVALID not in outcomes
        group.acked |= {place for place, outcome in zip(places, outcomes, strict=True) if outcome == OK}

    def pick_held(self, group: LiteModel) -> Held | None:
        """Something that a client has; it is held no more."""
        return group.held.pop(self.random.randrange(len(group.held))) if group.held else None

    def nack(self) -> None:
        """A client says when a message comes again."""
        group = self.random.choice(self.groups)
        if (one := self.pick_held(group)) is not None:
            self.life.acks.change_invisible(group.name, one.receipt_handle, self.random.choice((0, 500, 60_000)))

    def suspend(self) -> None:
        """A client wants nothing of a lite topic for a while."""
        group = self.random.choice(self.groups)
        if (one := self.pick_held(group)) is not None:
            group.held = [held for held in group.held if held.lite_topic != one.lite_topic]
            self.life.acks.change_invisible(group.name, one.receipt_handle, 5_000, suspends=True)

    def give_back(self) -> None:
        """A client never saw a message."""
        group = self.random.choice(self.groups)
        if (one := self.pick_held(group)) is not None:
            self.life.acks.give_back(group.name, one.receipt_handle)

    def give_up(self) -> None:
        """A client cannot consume a message."""
        group = self.random.choice(self.groups)
        if (one := self.pick_held(group)) is not None:
            self.life.acks.give_up(group.name, one.receipt_handle)

    def step_clock(self) -> None:
        """Time passes, less than a silent client has."""
        self.clock.now += self.random.choice((100, 1_000, 20_000))
        self.life.expire()

    def end_client(self) -> None:
        """A client ends in order."""
        group, client_id = self.random.choice(self.groups), self.random.choice(CLIENTS)
        group.subscribed[client_id] = set()
        group.owners |= {each: "" for each, owner in group.owners.items() if owner == client_id}
        try:
            self.life.lite.end_client(group.name, client_id)
        except StoreError:
            group.subscribed[client_id] = None
            group.owners.clear()
            raise

    def look_through(self) -> None:
        """The follower looks for news of all lite topics."""
        self.life.look_through()

    def full(self) -> None:
        """The full state is written."""
        self.life.life.write_full().result(WAIT_SECONDS_MAX)

    def break_appends(self) -> None:
        """One of the next appends fails, written or not; also in the middle of a full state."""
        self.log.appends_left = self.random.randint(0, 3)
        self.log.writes_failing = self.random.random() < 0.5
        if self.random.random() < 0.4:
            self.life.life.write_full().result(WAIT_SECONDS_MAX)

    def crash(self) -> None:
        """The service is killed."""
        self.restart()

    def restart(self) -> None:
        """A new life begins; the log decides what was done."""
        self.life.close()
        self.log.appends_left = None
        self.life = self.begin()
        assert contents(self.life.states) == contents(replayed(self.log)), "the full states say something else"
        if not self.log.is_building:
            self.life.look_through()

    def build(self) -> None:
        """The queue service begins or ends to build its queues again."""
        self.log.is_building = not self.log.is_building
        if not self.log.is_building:
            self.life.look_through()

    # -- the end

    def finish(self) -> None:
        """Consume everything, and judge."""
        self.log.is_building, self.log.appends_left = False, None
        self.restart()
        for group in self.groups:
            group.held.clear()
            for client_id in CLIENTS[1:]:
                self.sync(group, client_id, NONE, ())
            self.sync(group, CLIENTS[0], ALL, () if group.is_wildcard else LITE_TOPICS)
        self.life.look_through()
        for _ in range(12 * ATTEMPTS_MAX):
            self.clock.now += 70_000
            self.life.expire()
            for group in self.groups:
                while self.take(group, CLIENTS[0], 32):
                    chosen, group.held = group.held, []
                    outcomes = self.life.acks.ack(group.name, [one.receipt_handle for one in chosen]) if chosen else ()
                    for one, outcome in zip(chosen, outcomes, strict=True):
                        if outcome == OK:
                            group.acked.add((one.lite_topic, one.queue_offset))
        everything = {(each, at) for each, count in self.sent.items() for at in range(count)}
        for group in self.groups:
            dead = self.dead(group)
            assert everything - group.acked - group.maybe_acked - dead == set(), f"{group.name} missed messages"
            assert not group.acked & dead, "an acknowledged message became a dead letter"
            bodies = [message.body for message in self.log.messages(DLQ_PREFIX + group.name)]
            assert len(set(bodies)) == len(bodies), "a message has two dead letters"
            queues = [state for _, state in self.life.states.groups[group.name].light_queues()]
            assert all(not state.leases and not state.waiting for state in queues), "something is left over"


@pytest.mark.parametrize("seed", range(40))
def test_each_lite_topic_is_delivered_whole_and_in_order_whatever_happens(seed: int) -> None:
    run = Run(seed)
    try:
        run.run()
    finally:
        run.life.close()
