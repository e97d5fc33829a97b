"""The simulated consumer service of tests/simulation with its steps written down, for the model of moving.pml.

The service is the real one: its state, writer, expirer, pops and acknowledgements; so is the fence (`FollowerFence`). It has
one group, unordered or ordered, and a topic with one queue. A step is what, who, whom, number, as `SEE` of the model names
them: each record that the log takes, in the order of the log, and what clients are told.
"""

from collections.abc import Sequence
from contextlib import suppress

from commitlog_svc.append.refusals import FollowerFence
from consumer_svc.state.codec import change_from_proto
from consumer_svc.state.group_states import Change
from consumer_svc.state.queue_state import Ended, HandedOut, Lease, QueueRef, Returned
from consumer_svc.state_topic import FOLLOWER, STATE_TOPIC
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.consumer.v1.state_pb2 import StateRecord
from reput.message.v1.message_pb2 import AppendResult
from services.following.state_topic.state_writer import FULL_BEGIN
from store.errors import StoreError
from store.format.properties import MOVED_FROM, TAGS
from store.format.topic import DLQ_PREFIX
from tests.consumer_svc.test_random_lives import place_of
from tests.models.traced_world import Seen
from tests.simulation.consumers import ATTEMPTS_MAX, TOPIC, Consumers, ConsumersLog, Group
from tests.simulation.world import BrokenPromiseError, World

MESSAGE_COUNT = 8
POSITION_COUNT = MESSAGE_COUNT * ATTEMPTS_MAX
FULL_COUNT_MAX = 8
SECONDS = 5.0  # of simulated time: some ten lives
# What a trace of this world fits into.
BOUNDS = {
    "MESSAGES": MESSAGE_COUNT,
    "RETRIES": POSITION_COUNT - MESSAGE_COUNT,
    "ATTEMPTS": ATTEMPTS_MAX,
    "GIVE_UPS": MESSAGE_COUNT,
    "FULLS": FULL_COUNT_MAX,
    "KILLS": 250,
    "LENGTH": 250,
    "WIDE": POSITION_COUNT + 1,
    "SET": "int",
}
ORDERED_BOUNDS = {**BOUNDS, "ORDERED": 1, "RETRIES": 0, "WIDE": MESSAGE_COUNT + 1}


class TracedLog(ConsumersLog):
    """A slow log that writes down what it takes; the fence is the real one."""

    def __init__(self, world: World, fence: FollowerFence) -> None:
        self.steps: list[Seen] = []
        self._fence = fence
        self._epochs: set[int] = set()
        super().__init__(world)

    @property  # type: ignore[override]
    def epoch(self) -> int:
        """See MemoryLog: that it knows no epoch leaves all to the fence."""
        return 0

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        pass

    def write(self, records: Sequence[InternalRecord]) -> list[AppendResult]:
        """See MemoryLog."""
        states = [StateRecord.FromString(record.body) for record in records if record.topic == STATE_TOPIC]
        for state in states:
            self._fence.enter(FOLLOWER, state.epoch, begins=state.epoch not in self._epochs)
        results = super().write(records)
        for state in states:
            if state.epoch not in self._epochs:
                self._epochs.add(state.epoch)
                self.steps.append(Seen("BEGIN"))
        copies = {
            record.properties[MOVED_FROM]: record.topic.startswith(DLQ_PREFIX)
            for record in records
            if MOVED_FROM in record.properties
        }
        for record, result in zip(records, results, strict=True):
            if record.topic == TOPIC:
                self.steps.append(Seen("SEND", result.queue_offset))
            elif record.topic == STATE_TOPIC and record.properties[TAGS] == FULL_BEGIN:
                self.steps.append(Seen("FULL"))
        for state in states:
            for change in map(change_from_proto, state.changes):
                if change is not None:
                    self._see(change, copies)
        for source in copies:  # without a change that says so
            queue_id, queue_offset, topic = source.split(" ")
            self.steps.append(Seen("COPIED", position_of(QueueRef("", topic, int(queue_id)), int(queue_offset))))
        return results

    def _see(self, change: Change, copies: dict[str, bool]) -> None:
        match change:
            case HandedOut():
                for one in sorted([*change.leases, *change.passed], key=lambda one: one.queue_offset):
                    place = position_of(change.queue, one.queue_offset)
                    is_handed = isinstance(one, Lease)
                    self.steps.append(Seen("HAND", place, 0, one.delivery_number) if is_handed else Seen("PASS", place))
            case Ended():
                for queue_offset in change.queue_offsets:
                    source = f"{change.queue.queue_id} {queue_offset} {change.queue.topic}"
                    is_dead = copies.pop(source, None)
                    place = position_of(change.queue, queue_offset)
                    if is_dead and not change.moved:
                        self.steps.append(Seen("GIVE_UP", place))
                    elif change.moved or is_dead is not None:
                        self.steps.append(Seen("EXPIRE", place, int(bool(is_dead))))
                    else:
                        self.steps.append(Seen("ACK", place))
            case Returned():
                for waiting in change.waiting:
                    self.steps.append(Seen("EXPIRE", position_of(change.queue, waiting.queue_offset)))


def position_of(ref: QueueRef, queue_offset: int) -> int:
    """The position in the model: the retry topic's are behind those of the topic."""
    return queue_offset if ref.topic == TOPIC else MESSAGE_COUNT + queue_offset


class TracedMoves(Consumers):
    """See the top of this file.

    Args:
        world: in which they are.
        fence: of the log.
        ordered: the group; each pop asks for one message then.
    """

    def __init__(self, world: World, fence: FollowerFence, *, ordered: bool) -> None:
        super().__init__(world)
        self.groups = [Group("fifo" if ordered else "plain", ordered=ordered)]
        self.pop_counts = (1, 1) if ordered else self.pop_counts
        self.log = self.traced = TracedLog(world, fence)

    def _trouble(self) -> None:
        full_count = 0
        while True:
            self.world.pause(self.dice.choice((0.02, 0.3, 1.0)) * self.dice.random())
            life = self.life
            match self.dice.choice(("kill", "kill", "hang", "full", "full", "silent")):
                case "kill":
                    self.end_life(hangs=False)
                case "hang":
                    self.end_life(hangs=True)
                case "full" if life is not None and full_count < FULL_COUNT_MAX:
                    full_count += 1
                    self.world.begin(self.process, life.life.write_full)
                case "silent":
                    self.log.silent_share = self.dice.choice((0.0, 0.05))

    def _produce(self) -> None:
        while len(self.sent) < MESSAGE_COUNT:
            self.world.pause(self.dice.choice((0.02, 0.6)) * self.dice.random())
            body = f"m{len(self.sent)}"
            self.sent[body] = self.log.send(TOPIC, body.encode(), message_group=f"k{len(self.sent) // 2}")

    def _judge(self, group: Group, one: pb.Delivery, began_at: float, batch: set[str]) -> None:
        self.traced.steps.append(Seen("GOT", _position(one), 0, one.delivery_attempt))

    def _end(self, group: Group, one: pb.Delivery) -> None:
        super()._end(group, one)
        if group.acked_places.pop(place_of(one), None) is not None:
            self.traced.steps.append(Seen("TOLD", _position(one)))


def _position(one: pb.Delivery) -> int:
    return position_of(QueueRef("", one.message.topic, one.message.queue_id), one.message.queue_offset)


def steps_of(seed: int, *, ordered: bool = False) -> list[Seen]:
    """The steps of a history; with broken rules, up to the first false thing that the simulation sees."""
    with World(seed) as world:
        moves = TracedMoves(world, FollowerFence(), ordered=ordered)
        with suppress(AssertionError, BrokenPromiseError, StoreError):
            moves.start()
            world.run_until(SECONDS)
        return moves.traced.steps
