"""kill -9 of any service at any moment while groups consume: each message reaches each group, order holds, moves happen once.

Producers append to one topic; an ordinary and an ordered group consume it, each with several consumers that acknowledge (also
twice), hide, give up or forget what they get. Every call and its answer is noted with its time, and services are killed and
started again. In the end everything left is consumed, all stop, and the log's own bytes are the judge:

- every message that was acknowledged to its producer is there once
- each group has acknowledged it, or has it in its dead letters
- no message is delivered by a pop that began after its acknowledgement was answered
- in the ordered group, a message comes after all earlier ones of its message group are done with
- no record was moved twice to a retry or dead-letter topic
"""

import math
import random
import re
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.gateway.v1 import gateway_service_pb2_grpc as gateway_grpc
from reput.message.v1 import message_pb2
from services.calling.client import ServiceClient
from services.rpcs import consumer as rpc
from store.errors import StoreError
from tests.support.service import CHANNEL_OPTIONS
from tests.support.waiting import wait_until
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed
from tests.torture.store_check import Frame, read_frames
from tests.torture.stores import TIME_LIMIT
from tests.torture.test_random_kills import NAMES, Services, all_services

pytestmark = TIME_LIMIT
TOPIC = "orders"
PLAIN, ORDERED = "plain", "ordered"
MESSAGE_GROUPS = ("a", "b", "c", "d")
CONSUMERS_PER_GROUP = 2
ATTEMPTS_MAX = 4
CALL_SECONDS_MAX = 5.0
DRAIN_SECONDS_MAX = 240.0
# Two consumers must be able to follow, also on a busy machine.
PRODUCER_PAUSE_SECONDS = 0.05
MOVED_FROM = re.compile(rb"__REPUT_MOVED_FROM__\x01([^\x02]*)\x02")


@dataclass(frozen=True)
class Delivered:
    """A message that a consumer got: by a pop that began and was answered at these times (seconds)."""

    name: str
    message_group: str
    sequence: int
    pop_began: float
    answered: float
    attempt: int


@dataclass
class Seen:
    """What the consumers of one group saw.

    Attributes:
        delivered: in the order of the answers.
        acked: by message, when its acknowledgement was answered first.
        maybe_done: messages whose acknowledgement or giving up may have been carried out, and since when.
    """

    delivered: list[Delivered] = field(default_factory=list)
    acked: dict[str, float] = field(default_factory=dict)
    maybe_done: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Producer:
    """Appends messages of growing numbers to each message group; one request at a time, never sent again."""

    def __init__(self, address: str, seed: int) -> None:
        self.acked: list[str] = []
        self._random = random.Random(seed)
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._sequences: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the request in hand."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the producer hangs"
        self._channel.close()

    def _run(self) -> None:
        stub = gateway_grpc.GatewayServiceStub(self._channel)
        while not self._stopping.is_set():
            names, request = self._next()
            try:
                stub.AppendMessages(request, timeout=CALL_SECONDS_MAX, wait_for_ready=True)
            except grpc.RpcError:
                continue
            self.acked += names
            self._stopping.wait(PRODUCER_PAUSE_SECONDS)

    def _next(self) -> tuple[list[str], gateway_pb.AppendMessagesRequest]:
        names, messages = [], []
        for _ in range(self._random.randrange(1, 5)):
            message_group = self._random.choice(MESSAGE_GROUPS)
            self._sequences[message_group] += 1
            name = f"{message_group}-{self._sequences[message_group]}"
            names.append(name)
            properties = {"__SHARDINGKEY": message_group}
            messages.append(message_pb2.NewMessage(topic=TOPIC, body=f"{name}|".encode(), properties=properties))
        flush = message_pb2.FLUSH_MODE_SYNC
        return names, gateway_pb.AppendMessagesRequest(messages=messages, flush=flush)


class Consumer:
    """A member of a group that treats what it gets in all ways that there are; in `draining` it only acknowledges."""

    def __init__(self, address: str, group: str, seen: Seen, seed: int) -> None:
        self.draining = threading.Event()
        self.idle_since = time.monotonic()
        self._group = group
        self._seen = seen
        self._random = random.Random(seed)
        self._client = ServiceClient("consumer", address)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the call in hand."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a consumer hangs"
        self._client.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                deliveries = self._client.call(rpc.POP_MESSAGES, self._question(), CALL_SECONDS_MAX).deliveries
            except StoreError:
                self._stopping.wait(0.02)
                self.idle_since = time.monotonic()
                continue
            if not deliveries:
                self._stopping.wait(0.02)
                continue
            self.idle_since = answered = time.monotonic()
            for delivery in deliveries:
                name = delivery.message.body.decode().rstrip("|")
                message_group, _, sequence = name.partition("-")
                attempt = delivery.delivery_attempt
                with self._seen.lock:
                    row = Delivered(name, message_group, int(sequence), began, answered, attempt)
                    self._seen.delivered.append(row)
            for delivery in deliveries:
                self._treat(delivery.message.body.decode().rstrip("|"), delivery.receipt_handle)

    def _question(self) -> pb.PopMessagesRequest:
        millis = 3_000 if self.draining.is_set() else self._random.choice((100, 400, 3_000))
        return pb.PopMessagesRequest(
            consumer_group=self._group,
            topic=TOPIC,
            max_messages=self._random.choice((1, 4, 32)),
            invisible_duration={"nanos": millis % 1000 * 1_000_000, "seconds": millis // 1000},
            max_per_message_group=0 if self.draining.is_set() else 1,
        )

    def _treat(self, name: str, handle: str) -> None:
        chance = 0.0 if self.draining.is_set() else self._random.random()
        if chance < 0.75:
            self._ack(name, handle)
            if chance > 0.7:
                self._ack(name, handle)
        elif chance < 0.85:
            nanos = self._random.randrange(300) * 1_000_000
            self._try(
                lambda: self._client.call(
                    rpc.CHANGE_INVISIBLE_DURATION,
                    pb.ChangeInvisibleDurationRequest(
                        consumer_group=self._group, receipt_handle=handle, invisible_duration={"nanos": nanos}
                    ),
                    CALL_SECONDS_MAX,
                )
            )
        elif chance < 0.87:
            self._maybe(name)
            forward = pb.ForwardToDeadLetterTopicRequest(consumer_group=self._group, receipt_handle=handle)
            self._try(lambda: self._client.call(rpc.FORWARD_TO_DEAD_LETTER_TOPIC, forward, CALL_SECONDS_MAX))

    def _ack(self, name: str, handle: str) -> None:
        self._maybe(name)
        request = pb.AckMessagesRequest(consumer_group=self._group, receipt_handles=[handle])
        answer = self._try(lambda: self._client.call(rpc.ACK_MESSAGES, request, CALL_SECONDS_MAX))
        if answer is not None and answer.outcomes[0] == pb.AckMessagesResponse.OUTCOME_OK:
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


def make_groups(address: str) -> None:
    """The two groups, with few attempts."""
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = gateway_grpc.GatewayServiceStub(channel)
        for group in (PLAIN, ORDERED):
            request = gateway_pb.UpdateConsumerGroupRequest(
                consumer_group=group, ordered=group == ORDERED, delivery_attempts_max=ATTEMPTS_MAX
            )
            stub.UpdateConsumerGroup(request, timeout=30, wait_for_ready=True)


def moved_from(root: Path, frames: list[Frame]) -> Counter[tuple[str, bytes]]:
    """How often each record was moved, by the topic it went to; read from the records' bytes."""
    counts: Counter[tuple[str, bytes]] = Counter()
    files = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir() if path.name.isdecimal()}
    bases = sorted(files)
    for frame in frames:
        if frame.topic.startswith(("%RETRY%", "%DLQ%")):
            base = max(each for each in bases if each <= frame.commit_log_offset)
            at = frame.commit_log_offset - base
            (source,) = MOVED_FROM.findall(files[base][at : at + frame.size_bytes])
            counts[frame.topic.partition("_")[0].replace("%RETRY%", "").replace("%DLQ%", ""), source] += 1
    return counts


def order_problems(seen: Seen, frames: list[Frame]) -> list[str]:
    """Where a message of the ordered group came before an earlier one of its message group was done with.

    Earlier is what stands before it in its queue. A message is done with when a call that may have ended it began before. One
    pop may bring several of a message group, in order.
    """
    together: dict[tuple[float, float], set[str]] = defaultdict(set)
    places = {frame.message_id: (frame.queue_id, frame.queue_offset) for frame in frames if frame.topic == TOPIC}
    dead = {frame.message_id for frame in frames if frame.topic == f"%DLQ%{ORDERED}"}
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
        batch = together[row.pop_began, row.answered]
        batch.add(row.name)
        if earlier_done_at[row.name] <= row.answered:
            continue
        for earlier in by_group[row.message_group]:
            if places[earlier] >= places[row.name] or places[earlier][0] != places[row.name][0]:
                continue
            done = seen.maybe_done.get(earlier)
            if earlier not in dead | batch and (done is None or done > row.answered):
                problems.append(f"{row.name} was delivered (attempt {row.attempt}) before {earlier} was done with")
                break
    return problems


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


def consume_under_kills(store: Path, seed: int, kill_count: int) -> str:
    """Kill services while two groups consume; the problems as text."""
    chance = random.Random(seed)
    seen = {PLAIN: Seen(), ORDERED: Seen()}
    with all_services(store) as services:
        make_groups(services.gateway)
        producer = Producer(services.gateway, seed)
        consumers = [
            Consumer(services.consumer, group, seen[group], seed + number)
            for number in range(CONSUMERS_PER_GROUP)
            for group in (PLAIN, ORDERED)
        ]
        try:
            for _ in range(kill_count):
                wait_for_acks(seen, chance.randrange(1, 60))
                names = tuple(chance.sample(NAMES, chance.choice((1, 1, 2))))
                services.kill(names)
                services.start(names)
            wait_for_acks(seen, 20)
            producer.stop()
            for consumer in consumers:
                consumer.draining.set()
            drain(services, consumers)
        finally:
            for consumer in consumers:
                consumer.stop()
        assert services.stop() == dict.fromkeys(NAMES, 0)
    problems: list[str] = []
    frames = read_frames(store, problems)
    found = Counter(frame.message_id for frame in frames if frame.topic == TOPIC)
    problems += [f"{name} is there {found[name]} times" for name in producer.acked if found[name] != 1]
    for group, what_it_saw in seen.items():
        problems += problems_of(group, what_it_saw, producer.acked, frames)
    problems += order_problems(seen[ORDERED], frames)
    problems += [f"{what} was moved {count} times" for what, count in moved_from(store, frames).items() if count > 1]
    print(
        f"{kill_count} kills, {len(producer.acked)} messages, {[len(each.delivered) for each in seen.values()]} deliveries"
    )
    return "\n".join(problems[:20])


def wait_for_acks(seen: dict[str, Seen], count: int) -> None:
    """Return when that many more acknowledgements were answered."""
    target = sum(len(each.acked) for each in seen.values()) + count
    wait_until(lambda: sum(len(each.acked) for each in seen.values()) >= target, f"{target} acknowledgements", 120)


def drain(services: Services, consumers: list[Consumer]) -> None:
    """Return when every group has consumed all of its queues, and nothing came for longer than anything is hidden."""
    client = ServiceClient("consumer", services.consumer)
    left: list[str] = []

    def is_drained() -> bool:
        rows = [
            (group, row)
            for group in (PLAIN, ORDERED)
            for row in client.call(rpc.GET_GROUP, pb.GetGroupRequest(consumer_group=group)).queues
        ]
        left[:] = [f"{group}: {str(row)!r}" for group, row in rows if row.consumer_offset != row.max_offset]
        return not left and time.monotonic() - max(consumer.idle_since for consumer in consumers) > 4.0

    try:
        wait_until(is_drained, lambda: f"the groups have consumed all but {left}", DRAIN_SECONDS_MAX, poll_seconds=0.2)
    finally:
        client.close()


def test_consumers_under_random_kills_miss_nothing_and_keep_their_order(tmp_path: Path) -> None:
    seed = pick_seed("delivery-kills")
    problems = consume_under_kills(tmp_path / "store", seed, amount(sample=2, change=12, full=400))
    assert not problems, f"seed {seed}:\n{problems}"
