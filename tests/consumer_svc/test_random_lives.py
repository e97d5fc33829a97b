"""Random producers, consumers, crashes and clock steps over a log in memory, judged by a small model and by the log itself.

A seed makes the whole run. What must hold is rule 4 of the promises: nothing is skipped, nothing acknowledged comes again, each
move is in the log once, nothing overtakes inside a message group, and the state that a restart reads is what the log says.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from consumer_svc.delivering.acks import INVALID, OK
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.state.codec import change_from_proto
from consumer_svc.state.group_states import GroupSettings, GroupStates
from consumer_svc.state_topic import STATE_TOPIC
from consumer_svc.wire import filter_of
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.consumer.v1.state_pb2 import StateRecord
from reput.gateway.v1.gateway_service_pb2 import MessageFilter
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError
from store.format.properties import MOVED_FROM, ORIGIN_MESSAGE_ID, SHARDING_KEY
from store.format.topic import DLQ_PREFIX
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, ManualClock, MemoryLog, contents
from tests.support.waiting import WAIT_SECONDS_MAX

STEP_COUNT = 250
ATTEMPTS_MAX = 3
TOPIC = "t"
TAGS = ("a", "b")


@dataclass
class GroupModel:
    """What is known of one group.

    Attributes:
        name: of the group.
        ordered: nothing overtakes in a message group.
        filter: of its subscription; None: everything.
        acked: messages whose acknowledgement was answered.
        acked_places: where the records lie that were acknowledged: topic, queue and position.
        maybe_acked: messages whose acknowledgement, or giving up, was not answered.
        attempts: deliveries that count, by message, as far as they were answered; None: some answer was lost.
        held: deliveries that a consumer has.
        lost_attempts: polls whose answer was lost.
        skipped: messages that a reset may have gone past.
        repeated: messages that a reset may bring again: their copies too.
    """

    name: str
    ordered: bool
    filter: MessageFilter = field(default_factory=MessageFilter)
    acked: set[str] = field(default_factory=set)
    acked_places: set[tuple[str, int, int]] = field(default_factory=set)
    maybe_acked: set[str] = field(default_factory=set)
    attempts: dict[str, int | None] = field(default_factory=dict)
    held: list[pb.Delivery] = field(default_factory=list)
    lost_attempts: list[pb.PopMessagesRequest] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)


class Run:
    """One random run.

    Args:
        seed: makes it.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.log = MemoryLog(self.clock)
        self.groups = [
            GroupModel("plain", False),
            GroupModel("fifo", True),
            GroupModel("tagged", False, MessageFilter(tags="a")),
        ]
        self.sent: dict[str, StoredMessage] = {}
        self.removed: set[str] = set()
        self.attempt_count = 0
        self.life = self.begin()
        for group in self.groups:
            self.life.groups.update(GroupSettings(group.name, group.ordered))

    def begin(self) -> LogLife:
        """The next life."""
        # Few units in memory, so that older ones are read from the queues.
        clients = LiveConsumers(lambda: self.clock.now / 1000)
        return LogLife(self.log, attempts_max=ATTEMPTS_MAX, recent_count_max=8, clients=clients)

    def run(self) -> None:
        """All steps, and the end, at which everything is consumed."""
        steps = (
            *[self.send] * 5,
            *[self.pop] * 6,
            *[self.ack] * 4,
            *[self.confirm] * 2,
            *[self.nack, self.give_back, self.release, self.give_up, self.step_clock, self.step_clock, self.heartbeat],
            *[
                self.commit,
                self.reset,
                self.full,
                self.crash,
                self.break_appends,
                self.ack_badly,
                self.remove,
                self.build,
            ],
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
            body = f"m{len(self.sent)}"
            group = self.random.choice(("k1", "k2", "k3"))
            tags = self.random.choice(TAGS)
            self.sent[body] = self.log.send(TOPIC, body.encode(), self.random.randrange(2), group, tags)

    def pop(self) -> None:
        """A consumer polls."""
        group = self.random.choice(self.groups)
        if group.lost_attempts and self.random.random() < 0.7:
            ask = group.lost_attempts.pop()
        else:
            self.attempt_count += 1
            ask = pop_of(
                group.name,
                self.random.choice((TOPIC, TOPIC, TOPIC, f"%RETRY%{group.name}_{TOPIC}")),
                queue_id=self.random.choice((None, None, 0, 1)),
                max_messages=self.random.choice((1, 2, 32)),
                invisible_millis=self.random.choice((0, 1_000, 30_000)),
                client_id=self.random.choice(("c1", "c2")),
                attempt_id=f"attempt-{self.attempt_count}",
                filter=group.filter,
                max_per_message_group=self.random.choice((0, 1)),
            )
        self.take(group, ask)

    def take(self, group: GroupModel, ask: pb.PopMessagesRequest) -> int:
        """Poll, and check what comes."""
        try:
            delivered = self.life.pop(ask)
        except StoreError:
            group.attempts = dict.fromkeys(group.attempts)  # what was handed out is not known
            group.attempts |= dict.fromkeys(self.sent)
            raise
        if self.random.random() < 0.1:  # the answer is lost on its way
            if group.ordered:
                group.lost_attempts.append(ask)
            for one in delivered:
                group.attempts[body_of(one)] = None
            return len(delivered)
        batch: list[str] = []
        for one in delivered:
            self.check(group, one, batch)
            batch.append(body_of(one))
            group.held.append(one)
        return len(delivered)

    def check(self, group: GroupModel, one: pb.Delivery, batch: Iterable[str]) -> None:
        """A delivery must be allowed."""
        body = body_of(one)
        assert place_of(one) not in group.acked_places, f"{body} was acknowledged, and comes again"
        # After a reset a message comes again, whatever became of its copies.
        assert body in group.repeated or body not in group.acked, f"{body} was acknowledged, and its copy comes"
        assert filter_of(group.filter).matches(one.message.tags, one.message.properties), f"{body} is not wanted"
        assert 1 <= one.delivery_attempt <= ATTEMPTS_MAX, f"{body} comes for the {one.delivery_attempt}. time"
        known = group.attempts.get(body, 0)
        if known is not None:
            is_next = one.delivery_attempt in (known, known + 1)
            assert body in group.repeated or is_next, (
                f"{body} had {known} attempts, and this is number {one.delivery_attempt}"
            )
            group.attempts[body] = one.delivery_attempt
        dead = {message.body.decode() for message in self.log.messages(DLQ_PREFIX + group.name)}
        assert body in group.repeated or body not in dead, f"{body} is a dead letter, and comes again"
        if group.ordered:
            this = self.sent[body]
            for other, message in self.sent.items():
                is_before = message.queue_id == this.queue_id and message.queue_offset < this.queue_offset
                if not is_before or message.properties[SHARDING_KEY] != this.properties[SHARDING_KEY]:
                    continue
                done = group.acked | group.maybe_acked | dead | self.removed | set(batch)
                assert other in done, f"{body} overtakes {other}"

    def ack(self) -> None:
        """A consumer acknowledges some of what it has, late or not, now and then twice."""
        group = self.random.choice(self.groups)
        if not group.held:
            return
        chosen = self.random.sample(group.held, self.random.randint(1, len(group.held)))
        chosen += chosen[: self.random.randint(0, 1)]
        bodies = [body_of(one) for one in chosen]
        try:
            outcomes = self.life.acks.ack(group.name, [one.receipt_handle for one in chosen])
        except StoreError:
            group.maybe_acked.update(bodies)
            raise
        assert INVALID not in outcomes
        self.note_acked(group, chosen, outcomes)
        group.held = [one for one in group.held if one not in chosen]

    def confirm(self) -> None:
        """The gateway says what reached its clients, late or not, now and then twice."""
        group = self.random.choice(self.groups)
        chosen = self.random.choices(group.held, k=self.random.randint(0, 8)) if group.held else []
        self.life.acks.note_delivered(["x.y.z", *[one.receipt_handle for one in chosen]])

    def note_acked(self, group: GroupModel, chosen: Sequence[pb.Delivery], outcomes: Sequence[int]) -> None:
        """What was answered with OK never comes again."""
        for one, outcome in zip(chosen, outcomes, strict=True):
            if outcome == OK:
                group.acked.add(body_of(one))
                group.acked_places.add(place_of(one))

    def ack_badly(self) -> None:
        """Handles of others, and such that are none."""
        group, other = self.random.sample(self.groups, 2)
        bad = ["", "x.y.z", *[one.receipt_handle for one in other.held[:2]]]
        before = contents(self.life.states)
        assert set(self.life.acks.ack(group.name, bad)) == {INVALID}
        assert contents(self.life.states) == before

    def nack(self) -> None:
        """A consumer says when a message comes again."""
        group = self.random.choice(self.groups)
        if group.held:
            one = self.random.choice(group.held)
            self.life.acks.change_invisible(group.name, one.receipt_handle, self.random.choice((0, 500, 60_000)))

    def give_back(self) -> None:
        """A consumer never saw a message."""
        group = self.random.choice(self.groups)
        if group.held:
            one = group.held.pop(self.random.randrange(len(group.held)))
            group.attempts[body_of(one)] = None  # it does not count
            self.life.acks.give_back(group.name, one.receipt_handle)

    def release(self) -> None:
        """A consumer says when a message comes again that its program did not get."""
        group = self.random.choice(self.groups)
        if group.held:
            one = group.held.pop(self.random.randrange(len(group.held)))
            group.attempts[body_of(one)] = None  # it does not count
            millis = self.random.choice((0, 500, 60_000))
            self.life.acks.change_invisible(group.name, one.receipt_handle, millis, is_released=True)

    def give_up(self) -> None:
        """A consumer cannot consume a message."""
        group = self.random.choice(self.groups)
        if group.held:
            one = group.held.pop(self.random.randrange(len(group.held)))
            self.life.acks.give_up(group.name, one.receipt_handle)

    def step_clock(self) -> None:
        """Time passes."""
        self.clock.now += self.random.choice((100, 1_000, 20_000, 70_000))
        self.life.expire()

    def heartbeat(self) -> None:
        """A client ends: what is renewed for it comes again."""
        group = self.random.choice(self.groups)
        self.life.groups.end_client(group.name, self.random.choice(("c1", "c2")))
        self.life.expire()

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

    def remove(self) -> None:
        """Retention removes the first messages of a queue, and the state records before the newest full state."""
        full_offset = self.log.state().first_offset
        units = self.log.queues[STATE_TOPIC, 0].units
        self.log.remove(STATE_TOPIC, 0, sum(unit.commit_log_offset < full_offset for unit in units))
        key = (TOPIC, self.random.randrange(2))
        if key in self.log.queues and self.random.random() < 0.3:
            count = self.random.randint(0, min(3, len(self.log.queues[key].units)))
            offsets = {unit.commit_log_offset for unit in self.log.queues[key].units[:count]}
            self.removed |= {body for body, sent in self.sent.items() if sent.commit_log_offset in offsets}
            self.log.remove(*key, count)

    def build(self) -> None:
        """The queue service begins or ends to build its queues again."""
        self.log.is_building = not self.log.is_building

    def commit(self) -> None:
        """A position that is known already is committed: nothing changes."""
        group = self.random.choice(self.groups)
        offsets = self.life.pulls.offsets(group.name, TOPIC)
        if offsets:
            before = contents(self.life.states)
            self.life.pulls.commit(group.name, [(ref.topic, ref.queue_id, at) for ref, at in offsets])
            assert contents(self.life.states) == before

    def reset(self) -> None:
        """A group is moved to another position of a queue."""
        group, queue_id = self.groups[-1], self.random.randrange(2)
        queue = self.log.queues.get((TOPIC, queue_id))
        if queue is None or self.random.random() < 0.6:
            return
        target = self.random.randint(queue.first, queue.end)
        there = {body for body, message in self.sent.items() if message.queue_id == queue_id}
        before = {body for body in there if self.sent[body].queue_offset < target}
        group.attempts |= dict.fromkeys(there)
        group.skipped |= before
        forgotten = group.acked & (there - before)
        group.acked -= forgotten
        group.acked_places = {
            (topic, number, at)
            for topic, number, at in group.acked_places
            if topic != TOPIC or number != queue_id or at < target
        }
        group.repeated |= there - before
        try:
            self.life.pulls.reset(group.name, TOPIC, {queue_id: target}, dry_run=False)
        except StoreError:
            group.maybe_acked |= forgotten  # if it was not written, they stay consumed
            raise

    # -- the end

    def finish(self) -> None:
        """Consume everything, and judge."""
        self.log.is_building, self.log.appends_left = False, None
        self.restart()
        for group in self.groups:
            group.held.clear()
            group.lost_attempts.clear()
        for _ in range(12 * ATTEMPTS_MAX):
            self.clock.now += 4 * 3_600_000  # longer than anything is renewed
            self.life.expire()
            for group in self.groups:
                while self.take(group, pop_of(group.name, TOPIC, invisible_millis=10_000, filter=group.filter)):
                    handles = [one.receipt_handle for one in group.held]
                    outcomes = self.life.acks.ack(group.name, handles) if handles else ()
                    self.note_acked(group, group.held, outcomes)
                    group.held.clear()
        for group in self.groups:
            self.judge(group)

    def judge(self, group: GroupModel) -> None:
        """Every message is consumed, dead, removed or not wanted; every move is there once."""
        copies = [*self.log.messages(f"%RETRY%{group.name}_{TOPIC}"), *self.log.messages(DLQ_PREFIX + group.name)]
        sources = [copy.properties[MOVED_FROM] for copy in copies]
        if not group.repeated:
            assert len(set(sources)) == len(sources), "a message was moved twice"
        dead = [copy.body.decode() for copy in self.log.messages(DLQ_PREFIX + group.name)]
        assert group.repeated or len(set(dead)) == len(dead), "a message has two dead letters"
        for copy in copies:
            assert copy.properties[ORIGIN_MESSAGE_ID] == self.sent[copy.body.decode()].offset_msg_id
        wanted = {
            body for body, sent in self.sent.items() if filter_of(group.filter).matches(sent.tags, sent.properties)
        }
        accounted = group.acked | group.maybe_acked | set(dead) | self.removed | group.skipped
        assert wanted - accounted == set(), "messages were skipped"
        assert not group.acked & set(dead) - group.repeated, "an acknowledged message became a dead letter"
        states = self.life.states.groups[group.name]
        assert all(not queue.leases and not queue.waiting for _, queue in states.queues()), "something is left over"


def body_of(one: pb.Delivery) -> str:
    """The text that names a message in all its copies."""
    return one.message.body.decode()


def place_of(one: pb.Delivery) -> tuple[str, int, int]:
    """The place of the record that was delivered."""
    return one.message.topic, one.message.queue_id, one.message.queue_offset


def replayed(log: MemoryLog) -> GroupStates:
    """The state by brute force: every change from the first record on, full states left out."""
    states = GroupStates()
    for body in log.state_bodies:
        for change in map(change_from_proto, StateRecord.FromString(body).changes):
            assert change is not None
            states.apply(change)
    return states


@pytest.mark.parametrize("seed", range(40))
def test_no_message_is_skipped_or_delivered_again_whatever_happens(seed: int) -> None:
    run = Run(seed)
    try:
        run.run()
    finally:
        run.life.close()
