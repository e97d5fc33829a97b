"""Which messages each topic takes, as the shards' topic tables say (attribute `message.type`).

A sender asks for each message, so answers come from a copy. A look at all shards replaces the copy: after LOOK_SECONDS, without
waiting for it; and for a topic that the copy does not have, or messages that do not fit it, whose senders wait for the look. A
topic has its type from its first moment on, so a sender never overtakes the command that created it, or changed it to what it
sends; what no longer fits is refused LOOK_SECONDS later.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

import structlog

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from gateway.ports.deadline import Deadline
from gateway.ports.shard import LIST_TOPICS, Shard
from gateway.ports.shards import ShardsSource
from gateway.rocketmq.status import RefusedError
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.message.v1 import message_pb2
from store.errors import StoreError

# A look is small while nothing changes.
LOOK_SECONDS = 1.0
# Looks take at most a fiftieth of a thread, however many topics there are.
LOOK_FACTOR = 50
# Between looks that senders wait for, so that those to a topic that cannot be made, or does not fit, do not ask without pause.
PAUSE_SECONDS = 0.1
# A copy that is older is not used: no sender has asked for long.
KEEP_SECONDS = 30.0
# A shard that does not answer for so long is left out; what it said before holds.
ASK_SECONDS = 2.0
# What a topic takes that is MIXED, or has no type because its first message made it.
ALL_TYPES = (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION)
_TYPES: Mapping[int, "tuple[v2.MessageType, ...]"] = {
    message_pb2.MESSAGE_TYPE_NORMAL: (v2.NORMAL,),
    message_pb2.MESSAGE_TYPE_FIFO: (v2.FIFO,),
    message_pb2.MESSAGE_TYPE_DELAY: (v2.DELAY,),
    message_pb2.MESSAGE_TYPE_TRANSACTION: (v2.TRANSACTION,),
    message_pb2.MESSAGE_TYPE_PRIORITY: (v2.PRIORITY,),
    message_pb2.MESSAGE_TYPE_LITE: (v2.LITE,),
}

Types: TypeAlias = "tuple[v2.MessageType, ...]"
# What a shard said: the version of its table, and the number of the type by topic.
_Said: TypeAlias = "tuple[int, Mapping[str, int]]"
_NOTHING: _Said = (0, {})

_log = structlog.get_logger("reput.gateway")


def types_of(message_type: int) -> Types:
    """The types that a topic takes, by the number of its `message.type`. One without a type takes all."""
    return _TYPES.get(message_type, ALL_TYPES)


def type_of(message: v2.Message) -> "v2.MessageType":
    """The type of a message that is sent, by what it asks, as RocketMQ's proxy tells it (`TopicMessageType`)."""
    system = message.system_properties
    if system.message_type == v2.TRANSACTION:
        return v2.TRANSACTION
    if system.message_type == v2.DELAY or system.HasField("delivery_timestamp"):
        return v2.DELAY
    if system.message_group:
        return v2.FIFO
    if system.HasField("priority"):
        return v2.PRIORITY
    return v2.LITE if system.HasField("lite_topic") else v2.NORMAL


def check_type(message: v2.Message, message_type: int) -> None:
    """RefusedError when the topic has a type, and the message is of another one.

    A topic without a type takes no priority, as it is not delivered by priority. A MIXED one does, as RocketMQ's. Lite topics
    need a topic of their type: in another one no subscription would reach them.
    """
    types, actual = types_of(message_type), type_of(message)
    if message_type == message_pb2.MESSAGE_TYPE_UNSPECIFIED and actual == v2.PRIORITY:
        raise RefusedError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message has a priority, and topic {message.topic.name} is not there or has no message type: make it with the "
            "type PRIORITY, or leave the priority out",
        )
    if message_type not in _TYPES and actual == v2.LITE:
        raise RefusedError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message has a lite topic, and topic {message.topic.name} is not there or not of the type LITE: make it with "
            "this type, or leave the lite topic out",
        )
    if message_type in _TYPES and actual not in types:
        raise RefusedError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message is of type {v2.MessageType.Name(actual)}, and topic {message.topic.name} takes "
            f"{v2.MessageType.Name(types[0])}: send it to another topic",
        )


class TopicTypes:
    """The copy; thread-safe.

    Args:
        source: the shards, whoever asks.
        clock: seconds, rising.

    Attributes:
        source: the same.
    """

    def __init__(self, source: ShardsSource, clock: Callable[[], float] = time.monotonic) -> None:
        self.source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._by_shard: dict[str, _Said] = {}
        self._types: Mapping[str, int] = {}
        self._looked_at = -KEEP_SECONDS
        self._look_at = -KEEP_SECONDS
        self._waiting: list[tuple[str, Callable[[int], None]]] = []
        self._is_looking = False

    def tell(self, topic: str, then: Callable[[int], None], *, newest: bool = False) -> None:
        """Call `then` with the number of a topic's type, now or after a look; UNSPECIFIED: it has none, or no shard has it.

        With `newest` after a look in any case: the type that the copy has may have been changed.
        """
        now = self._clock()
        with self._lock:
            known = self._types.get(topic) if not newest and now - self._looked_at < KEEP_SECONDS else None
            if known is None:
                self._waiting.append((topic, then))
            begins = (known is None or now >= self._look_at) and not self._is_looking
            self._is_looking |= begins
        if begins:
            try:
                threading.Thread(target=self._run, name="topic-types", daemon=True).start()
            except RuntimeError:  # no further thread can be started
                _log.exception("topic_types.look_failed")
                self._give_up()
        if known is not None:
            then(known)

    def _run(self) -> None:
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            self._look()
            for topic, then in waiting:
                try:
                    then(self._types.get(topic, message_pb2.MESSAGE_TYPE_UNSPECIFIED))
                except Exception:  # it would end the thread, and others would wait for ever
                    _log.exception("topic_types.sender_failed")
            with self._lock:
                if not self._waiting:
                    self._is_looking = False
                    return
            time.sleep(PAUSE_SECONDS)

    def _give_up(self) -> None:
        """Answer all that wait: the topics are taken for topics without a type."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._is_looking = False
        for _, then in waiting:
            then(message_pb2.MESSAGE_TYPE_UNSPECIFIED)

    def _look(self) -> None:
        begun = self._clock()
        try:
            shards = self.source.now()
            deadline = Deadline.after(ASK_SECONDS)
            before = self._by_shard
            answers = shards.fan_out.ask(
                shards, lambda shard: _types_in(shard, before.get(shard.broker_name, _NOTHING), deadline)
            )
            self._by_shard = {
                shard.broker_name: before.get(shard.broker_name, _NOTHING) if isinstance(answer, StoreError) else answer
                for shard, answer in zip(shards, answers, strict=True)
            }
        except Exception:
            _log.exception("topic_types.look_failed")
        types: dict[str, int] = {}
        for _, of_shard in self._by_shard.values():
            for topic, number in of_shard.items():
                types[topic] = types.get(topic) or number
        now = self._clock()
        self._types, self._looked_at = types, now
        self._look_at = now + max(LOOK_SECONDS, LOOK_FACTOR * (now - begun))


def _types_in(shard: Shard, known: _Said, deadline: Deadline) -> _Said:
    version = known[0]
    answer = shard.call(LIST_TOPICS, log_pb.ListTopicsRequest(known_version=version), deadline)
    if answer.version and answer.version == version:
        return known
    return answer.version, {topic.topic: int(topic.message_type) for topic in answer.topics}
