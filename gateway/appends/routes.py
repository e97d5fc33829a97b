"""The shard of each message, when there are several shards.

    broker_name given        this shard
    deduplicate              the request's first unique key decides: a request sent again reaches the log that has it
    CORRELATION_ID of a      it decides among the shards that accept the topic, as a sharding key does: the replies to one
    reply                    request are in one log, whose order says which is the first
    lite topic, sharding     it decides among the shards that accept the topic: always the same one, which keeps the order
    everything else          one shard for the whole request, in turn; the shard of the first message above, if any

A shard accepts a topic when it has the topic, or creates it with the first message. (If only the existing topics counted,
a topic created by a first message would stay on that one shard, as with RocketMQ's brokers, and a new shard would stay
empty.) To keep a topic on some shards only, switch `auto_create_topic` off.

A key is looked up on a ring on which each shard has many points. So a shard that joins takes a share from all others, and
nothing moves between the others. The commitlog chooses the queue inside the shard.

`RouteWatch` keeps the routes up to date: it asks every shard regularly which topics it has.
"""

import bisect
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from gateway.ports.deadline import Deadline
from gateway.ports.shard import LIST_TOPICS, Shard
from gateway.ports.shards import ShardsSource
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import BrokerNotFoundError, StoreError
from store.format.properties import CORRELATION_ID, LITE_TOPIC, MSG_TYPE, REPLY_TYPE, SHARDING_KEY

# Points of a shard on the ring: the shares differ by about a tenth. One digest gives four points.
RING_POINT_COUNT = 100
# The time for which turns skip an unreachable shard: about the time in which a channel connects again.
REST_SECONDS = 1.0
# An append that took so long (s) makes turns skip its shard for so long (s), as RocketMQ's producers have it with
# `sendLatencyFaultEnable` (`MQFaultStrategy`, 5.3.3).
SLOW_RESTS = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
# Topics whose shards are cached. Clients may invent names, so their number and length are limited: at most 20 MiB. A shard
# refuses messages with longer ones.
TOPIC_COUNT_MAX = 10_000
TOPIC_CHARACTERS_MAX = 255
RING_COUNT_MAX = 64

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Messages of a request that go to one shard.

    Attributes:
        broker_name: the shard's name.
        indexes: of the messages, rising.
        others: shards that would accept them as well, in the order to try.
    """

    broker_name: str
    indexes: tuple[int, ...]
    others: Names = ()


class Ring:
    """Shards on a ring.

    Args:
        names: the names of one or more shards, in any order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        points = []
        for name in names:
            for number in range(RING_POINT_COUNT // 4):
                digest = hashlib.blake2b(f"{number}\0{name}".encode(), digest_size=32).digest()
                points += [(int.from_bytes(digest[at : at + 8]), name) for at in range(0, 32, 8)]
        points.sort()
        self._places = [place for place, _ in points]
        self._names = [name for _, name in points]

    def choose(self, key: str) -> str:
        """The shard for a key."""
        place = int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        return self._names[bisect.bisect(self._places, place) % len(self._names)]


class AppendRoutes:
    """Chooses shards; thread-safe.

    Args:
        clock: seconds, rising.

    Attributes:
        clock: as given.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._turns = itertools.count()
        self._names: Names = ()
        self._topics: dict[str, frozenset[str]] = {}  # of shards that create no topics; the others accept all
        self._by_topic: dict[str, Names] = {}
        self._rings: dict[Names, Ring] = {}
        self._resting: dict[str, float] = {}

    def keep(self, names: Sequence[str]) -> None:
        """Set the shards. A new shard accepts all topics until `tell` says which."""
        with self._lock:
            self._names = tuple(names)
            self._by_topic = {}
            self._rings = {}

    def tell(self, topics_by_shard: Mapping[str, frozenset[str] | None]) -> None:
        """Set the topics of shards; None: the shard creates missing topics. Other shards keep theirs."""
        with self._lock:
            known = {**self._topics, **{name: topics for name, topics in topics_by_shard.items() if topics is not None}}
            for name, topics in topics_by_shard.items():
                if topics is None:
                    known.pop(name, None)
            if known != self._topics:
                self._topics = known
                self._by_topic = {}

    def rest(self, broker_name: str) -> None:
        """Skip an unreachable shard for REST_SECONDS where other shards accept the message."""
        self._resting[broker_name] = self.clock() + REST_SECONDS

    def note_latency(self, broker_name: str, seconds: float) -> None:
        """Skip a shard for a while if an append to it took long, where other shards accept the message."""
        rest_seconds = next((rest for slow, rest in SLOW_RESTS if seconds >= slow), 0.0)
        if rest_seconds:
            until = self.clock() + rest_seconds
            self._resting[broker_name] = max(until, self._resting.get(broker_name, until))

    def shards_of(self, topic: str) -> Names:
        """The shards that accept a topic; all when none does, because each of them then refuses with the reason."""
        if not self._topics:
            return self._names
        shards = self._by_topic.get(topic)
        if shards is None:
            with self._lock:
                names, topics = self._names, self._topics
                shards = tuple(name for name in names if name not in topics or topic in topics[name]) or names
                if len(topic) <= TOPIC_CHARACTERS_MAX:
                    if len(self._by_topic) >= TOPIC_COUNT_MAX:
                        self._by_topic.clear()
                    self._by_topic[topic] = shards
        return shards

    def parts(self, request: pb.AppendMessagesRequest) -> list[Part]:
        """The messages of each shard; a single part where possible.

        Raises:
            BrokerNotFoundError: there is no shard `broker_name`.
        """
        messages = request.messages
        every = tuple(range(len(messages)))
        if request.broker_name:
            if request.broker_name not in self._names:
                names = ", ".join(self._names)
                raise BrokerNotFoundError(
                    f"No shard is called {request.broker_name!r}; there are: {names}.",
                    brokerName=request.broker_name,
                    brokerNames=names,
                )
            return [Part(request.broker_name, every)]
        chosen = [self._chosen(message) for message in messages]
        free = [index for index in every if chosen[index] is None]
        if not free:
            return self._with_others(_grouped(chosen), messages)
        if request.deduplicate:
            home = self._by_unique_key(messages[free[0]])
        else:
            shards = self._shards_of_all({messages[index].topic for index in free})
            home = next((name for name in chosen if name is not None and name in shards), "")
            if not home and shards:
                home, *others = self._in_turn(shards)
                if len(free) == len(messages):
                    return [Part(home, every, tuple(others))]
        for index in free:
            message = messages[index]
            topic_shards = self.shards_of(message.topic)
            if home in topic_shards:
                chosen[index] = home
            else:  # no shard has all topics of the request
                chosen[index] = self._by_unique_key(message) if request.deduplicate else self._in_turn(topic_shards)[0]
        return _grouped(chosen)

    def _with_others(self, parts: list[Part], messages: Sequence[message_pb2.NewMessage]) -> list[Part]:
        """Replies may go to other shards while theirs is away: their caller does not wait until it is back."""
        if len(parts) > 1 or not all(map(_is_reply, messages)):
            return parts
        (part,) = parts
        shards = self._shards_of_all({message.topic for message in messages})
        return [replace(part, others=tuple(name for name in shards if name != part.broker_name))]

    def _chosen(self, message: message_pb2.NewMessage) -> str | None:
        """The shard that the message's own fields decide; None when they do not."""
        properties = message.properties
        if _is_reply(message):
            what = f"reply\0{properties[CORRELATION_ID]}"
        elif LITE_TOPIC in properties:
            what = f"lite\0{properties[LITE_TOPIC]}"
        elif SHARDING_KEY in properties:
            what = f"key\0{properties[SHARDING_KEY]}"
        elif message.HasField("queue_id"):
            what = f"queue\0{message.queue_id}"
        else:
            return None
        return self._on_ring(self.shards_of(message.topic), f"{message.topic}\0{what}")

    def _by_unique_key(self, message: message_pb2.NewMessage) -> str:
        return self._on_ring(self.shards_of(message.topic), f"{message.topic}\0{message.unique_key}")

    def _on_ring(self, names: Names, key: str) -> str:
        ring = self._rings.get(names)
        if ring is None:
            ring = Ring(names)
            with self._lock:
                if len(self._rings) >= RING_COUNT_MAX:
                    self._rings.clear()
                self._rings[names] = ring
        return ring.choose(key)

    def _shards_of_all(self, topics: set[str]) -> Names:
        shards = [self.shards_of(topic) for topic in topics]
        return shards[0] if len(shards) == 1 else tuple(n for n in self._names if all(n in some for some in shards))

    def _in_turn(self, shards: Names) -> Names:
        """The shards, the one whose turn it is first, skipped ones last."""
        begin = next(self._turns) % len(shards)
        turned = shards[begin:] + shards[:begin]
        if not self._resting:
            return turned
        now = self.clock()
        resting = {name for name, until in tuple(self._resting.items()) if until > now}
        if not resting:
            self._resting = {}
            return turned
        return tuple(sorted(turned, key=resting.__contains__))


def _is_reply(message: message_pb2.NewMessage) -> bool:
    return message.properties.get(MSG_TYPE) == REPLY_TYPE and CORRELATION_ID in message.properties


def _grouped(chosen: Sequence[str | None]) -> list[Part]:
    indexes: dict[str, list[int]] = {}
    for index, name in enumerate(chosen):
        assert name is not None
        indexes.setdefault(name, []).append(index)
    return [Part(name, tuple(some)) for name, some in indexes.items()]


# As long as RocketMQ's clients keep a route. Until then a commitlog without the topic refuses the append, and another
# shard is tried.
ROUTE_SECONDS = 30.0
ASK_SECONDS = 5.0

_log = structlog.get_logger("reput.gateway")


class RouteWatch:
    """Asks in its own thread; with one shard it asks nothing.

    Args:
        source: gives the shards.
        routes: gets the topics.
        seconds: the pause between two rounds.
    """

    def __init__(self, source: ShardsSource, routes: AppendRoutes, seconds: float = ROUTE_SECONDS) -> None:
        self._source = source
        self._routes = routes
        self._seconds = seconds
        self._woken = threading.Event()
        self._is_stopped = False

    def start(self) -> None:
        """Ask from now on until `stop`."""
        threading.Thread(target=self._run, name="gateway-routes", daemon=True).start()

    def wake(self) -> None:
        """Ask now, because there is a new shard."""
        self._woken.set()

    def stop(self) -> None:
        """Ask no more."""
        self._is_stopped = True
        self._woken.set()

    def look(self) -> None:
        """One round. The last answer of a shard that does not answer stays valid."""
        shards = self._source.now()
        if len(shards) < 2:
            return
        deadline = Deadline.after(ASK_SECONDS)
        answers = shards.fan_out.ask(shards, lambda shard: _topics_of(shard, deadline))
        self._routes.tell(
            {
                shard.broker_name: answer
                for shard, answer in zip(shards, answers, strict=True)
                if not isinstance(answer, StoreError)
            }
        )

    def _run(self) -> None:
        while not self._is_stopped:
            self._woken.clear()
            try:
                self.look()
            except Exception:
                _log.exception("routes.look_failed")  # the next round tries again
            self._woken.wait(self._seconds)


def _topics_of(shard: Shard, deadline: Deadline) -> frozenset[str] | None:
    """The topics that a shard accepts; None: all, because it creates missing topics."""
    answer = shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(), deadline)
    return None if answer.new_topic_queue_count else frozenset(topic.topic for topic in answer.topics)
