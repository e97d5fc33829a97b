"""The consumer service in a simulated world, on a log in memory, judged by promise 4.

The service is the real one: its state, its writer's thread, its expirer's thread, pops and acknowledgements of several clients
at the same time. The log answers after some time, and now and then not at all. The service is killed at any step of any of its
threads, or hangs while a later life takes over. Each life reads the log behind the newest full state; retention removes the
state records before it. At each answer and at the end:

- what was acknowledged does not come in an answer to a later pop, neither do its copies;
- no message of a message group overtakes an earlier one in an ordered group;
- each message is consumed or a dead letter, none is skipped; each move is in the log once;
- the state that a life reads is what all changes from the first record on say.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from consumer_svc.delivering.acks import OK
from consumer_svc.live_consumers import LiveConsumers
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state_topic import STATE_TOPIC
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import StoreError
from store.format.properties import MOVED_FROM, ORIGIN_MESSAGE_ID, SHARDING_KEY
from store.format.topic import DLQ_PREFIX
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog, contents
from tests.consumer_svc.test_random_lives import body_of, place_of, replayed
from tests.simulation.slow_log import SlowLog
from tests.simulation.world import BrokenPromiseError, Process, World, judged

ATTEMPTS_MAX = 3
TOPIC = "t"
INVISIBLE_MILLIS = (200, 1_000)
FAULT_SECONDS = 6.0
DRAIN_SECONDS_MAX = 60.0
Place = tuple[str, int, int]


class ConsumersLog(SlowLog, MemoryLog):
    """A slow log with topics and the state of groups."""


class Group:
    """What is known of a group."""

    def __init__(self, name: str, *, ordered: bool) -> None:
        self.name, self.ordered = name, ordered
        self.acked_places: dict[Place, float] = {}  # and when that was answered
        self.acked: dict[str, float] = {}
        self.maybe_done: set[str] = set()  # an acknowledgement was asked for, or it was given up


class Consumers:
    """See the top of this file.

    Args:
        world: in which they are.

    Attributes:
        pop_counts: how many messages a pop asks for, one of these.
    """

    pop_counts = (1, 4)

    def __init__(self, world: World) -> None:
        self.world, self.dice = world, world.dice
        self.log = ConsumersLog(world)
        self.groups = [Group("plain", ordered=False), Group("fifo", ordered=True)]
        self.sent: dict[str, StoredMessage] = {}
        self.process = Process("none")
        self.life: LogLife | None = None
        self.life_count = self.move_count = 0
        self.is_well = False

    def start(self) -> None:
        """Begin everything."""
        self.world.begin(None, self._keep_alive)
        self.world.begin(None, self._produce)
        self.world.begin(None, self._trouble)
        for group, number in itertools.product(self.groups, range(2)):
            self.world.begin(None, lambda group=group, number=number: self._consume(group, f"c{number}"))  # type: ignore[misc]

    # -- the service

    def _keep_alive(self) -> None:
        """Starts a life when there is none, and when the writer of the one that runs broke."""
        self._begin_life()
        while True:
            self.world.pause(0.05)
            if self.life is not None and self.life.writer.error is not None:
                self.world.say("the writer broke")
                self.end_life(hangs=False)

    def _begin_life(self) -> None:
        process = self.process = self.world.process(f"life {self.life_count}")
        self.life_count += 1

        def begin() -> None:
            life = LogLife(
                self.log, attempts_max=ATTEMPTS_MAX, recent_count_max=8, clients=LiveConsumers(lambda: self.world.now)
            )
            if contents(life.states) != contents(replayed(self.log)):
                raise BrokenPromiseError("the state that a life reads is not what all changes say")
            life.expirer.start()
            for group in self.groups:
                if group.name not in life.states.groups:
                    with suppress(StoreError):
                        life.groups.update(GroupSettings(group.name, group.ordered))
            if self.process is process:
                self.life = life
                self.world.say(f"{process.name} serves")

        def try_begin() -> None:
            try:
                begin()
            except StoreError as error:  # its first append was not answered
                self.world.say(f"{process.name} cannot begin: {error}")
                self.world.begin(None, lambda: self.end_life(hangs=False))

        self.world.begin(process, try_begin)

    def end_life(self, *, hangs: bool) -> None:
        """Kill the service, or let it hang while the next life takes over."""
        old, self.life = self.process, None
        if hangs:
            self.world.stop(old, self.dice.uniform(0.1, 1.0))
            self.world.begin(None, lambda: (self.world.pause(2.0), self.world.kill(old)))
        else:
            self.world.kill(old)
        self.world.say(f"{old.name} {'hangs' if hangs else 'is killed'}")
        if self.dice.random() < 0.5:
            self._expire_state()
        self._begin_life()

    def _expire_state(self) -> None:
        full_offset = self.log.state().first_offset
        if (STATE_TOPIC, 0) in self.log.queues:
            units = self.log.queues[STATE_TOPIC, 0].units
            self.log.remove(STATE_TOPIC, 0, sum(unit.commit_log_offset < full_offset for unit in units))

    def _trouble(self) -> None:
        while self.world.now < FAULT_SECONDS:
            self.world.pause(self.dice.choice((0.02, 0.3, 1.0)) * self.dice.random())
            match self.dice.choice(("kill", "kill", "hang", "full", "full", "silent")):
                case "kill":
                    self.end_life(hangs=False)
                case "hang":
                    self.end_life(hangs=True)
                case "full":
                    life = self.life
                    if life is not None:
                        self.world.begin(self.process, lambda life=life: life.life.write_full())  # type: ignore[misc]
                case "silent":
                    self.log.silent_share = self.dice.choice((0.0, 0.05))
        self.log.silent_share, self.is_well = 0.0, True
        self.world.say("everything is well")

    # -- clients

    def _produce(self) -> None:
        while not self.is_well:
            self.world.pause(self.dice.choice((0.02, 0.2)) * self.dice.random())
            body = f"m{len(self.sent)}"
            key = self.dice.choice(("k1", "k2", "k3"))
            self.sent[body] = self.log.send(TOPIC, body.encode(), self.dice.randrange(2), key, "a")

    def _consume(self, group: Group, client_id: str) -> None:
        while True:
            self.world.pause(self.dice.choice((0.02, 0.1)) * self.dice.random())
            began_at = self.world.now
            ask = pop_of(
                group.name,
                TOPIC,
                max_messages=self.dice.choice(self.pop_counts),
                invisible_millis=self.dice.choice(INVISIBLE_MILLIS),
                client_id=client_id,
            )
            delivered: list[pb.Delivery] = self._ask(lambda life, ask=ask: life.pop(ask)) or []  # type: ignore[misc]
            batch = {body_of(one) for one in delivered}
            for one in delivered:
                place, number = "/".join(map(str, place_of(one))), one.delivery_attempt
                self.world.say(
                    f"{group.name}, {client_id}: gets {body_of(one)} of {place}, attempt {number}, asked {began_at:.4f}"
                )
                self._judge(group, one, began_at, batch)
            for one in delivered:
                self._end(group, one)

    def _end(self, group: Group, one: pb.Delivery) -> None:
        """Acknowledge a message, in time or late, or do something else with it."""
        self.world.pause(self.dice.choice((0.0, 0.02, 0.02, 0.4)) * self.dice.random())
        body, handle = body_of(one), one.receipt_handle
        what = "ack" if self.is_well else self.dice.choice(("ack", "ack", "ack", "ack", "nothing", "again", "give up"))
        match what:
            case "ack":
                group.maybe_done.add(body)
                outcomes = self._ask(lambda life: life.acks.ack(group.name, [handle]))
                self.world.say(f"{group.name}: acknowledges {body} of {'/'.join(map(str, place_of(one)))}: {outcomes}")
                if outcomes == [OK]:
                    group.acked[body] = group.acked_places[place_of(one)] = self.world.now
            case "again":
                self.world.say(f"{group.name}: wants {body} again")
                self._ask(lambda life: life.acks.change_invisible(group.name, handle, self.dice.choice((0, 50))))
            case "give up":
                group.maybe_done.add(body)
                self.world.say(f"{group.name}: gives {body} up")
                self._ask(lambda life: life.acks.give_up(group.name, handle))

    def _ask(self, call: Callable[[LogLife], Any]) -> Any:
        """What the service answers; None: it does not."""
        life, me, answers = self.life, self.world.current(), list[Any]()
        if life is None:
            return None

        def work() -> None:
            try:
                answers.append(call(life))
            except StoreError:
                answers.append(None)
            self.world.wake(me)

        self.world.begin(self.process, work)
        self.world.wait_here(5.0 if not self.dice.random() < 0.02 else 0.005)
        return answers[0] if answers else None

    # -- the promises

    def _judge(self, group: Group, one: pb.Delivery, began_at: float, batch: set[str]) -> None:
        body = body_of(one)
        acked_at = min(group.acked_places.get(place_of(one), began_at), group.acked.get(body, began_at))
        if acked_at < began_at:
            raise BrokenPromiseError(f"{group.name}: {body} was acknowledged at {acked_at:.4f}, and comes again")
        if not 1 <= one.delivery_attempt <= ATTEMPTS_MAX:
            raise BrokenPromiseError(f"{group.name}: {body} comes for the {one.delivery_attempt}. time")
        if group.ordered:
            this, dead = self.sent[body], self._dead(group)
            for other, message in self.sent.items():
                is_before = message.queue_id == this.queue_id and message.queue_offset < this.queue_offset
                is_before &= message.properties[SHARDING_KEY] == this.properties[SHARDING_KEY]
                if is_before and other not in group.maybe_done | dead | batch:
                    raise BrokenPromiseError(f"{group.name}: {body} overtakes {other}")

    def _dead(self, group: Group) -> set[str]:
        return {message.body.decode() for message in self.log.messages(DLQ_PREFIX + group.name)}

    def is_done(self) -> bool:
        """Whether nothing is left to deliver."""
        life = self.life
        return life is not None and all(
            self.sent.keys() <= group.acked.keys() | self._dead(group) | group.maybe_done
            and all(not queue.leases and not queue.waiting for _, queue in life.states.groups[group.name].queues())
            for group in self.groups
        )

    def judge_end(self) -> None:
        """What has become of each message."""
        for group in self.groups:
            missing = self.sent.keys() - group.acked.keys() - self._dead(group) - group.maybe_done
            if missing:
                raise BrokenPromiseError(f"{group.name}: {sorted(missing)[:5]} were skipped")
            copies = [*self.log.messages(f"%RETRY%{group.name}_{TOPIC}"), *self.log.messages(DLQ_PREFIX + group.name)]
            sources = [copy.properties[MOVED_FROM] for copy in copies]
            self.move_count += len(copies)
            if len(set(sources)) < len(sources):
                raise BrokenPromiseError(f"{group.name}: a message was moved twice")
            for copy in copies:
                if copy.properties[ORIGIN_MESSAGE_ID] != self.sent[copy.body.decode()].offset_msg_id:
                    raise BrokenPromiseError(f"{group.name}: {copy.body!r} names another origin")


def run_history(seed: int) -> Consumers:
    """One history; BrokenPromiseError with the history and its seed."""
    with World(seed) as world, judged(world, seed):
        consumers = Consumers(world)
        consumers.start()
        world.run_until(FAULT_SECONDS)
        while not (consumers.is_well and consumers.is_done()) and world.now < FAULT_SECONDS + DRAIN_SECONDS_MAX:
            world.run_until(world.now + 0.5)
        consumers.judge_end()
        if not consumers.is_done():
            raise BrokenPromiseError(f"something is left {DRAIN_SECONDS_MAX:.0f} s after the last fault")
    return consumers
