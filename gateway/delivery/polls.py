"""Polls, and the queues in which they wait for the same: the values of the waiting room (waiting_room.py)."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from store.errors import DeadlineExceededError
from store.format.topic import pull_retry_topic_of, retry_topic_of, retry_topic_v2_of


class QueueName(NamedTuple):
    """What polls wait for.

    Attributes:
        broker_name: the shard.
        topic: the topic.
        consumer_group: the group; empty for a pull.
        variant: the filter, as `filter_key` makes it; for a pull something of its own.
        queue_id: for a pull, the queue; only its messages wake it. None: those of each queue.
        client_id: for a pop of lite topics, the client; only its news wake it. Empty: messages of the topic do.
    """

    broker_name: str
    topic: str
    consumer_group: str
    variant: Hashable
    queue_id: int | None = None
    client_id: str = ""


class FilterShares(Protocol):
    """How many characters of filters the polls of each owner may keep: services/serving/admission/shares.py."""

    count_max: int

    def has_room(self, owner: Any, count: int, /) -> bool:
        """Whether an owner may keep so many more."""

    def take(self, owner: Any, count: int, /) -> None:
        """They are kept."""

    def give_back(self, owner: Any, count: int, /) -> None:
        """They are kept no more."""

    def held(self, owner: Any, /) -> int:
        """Those that it keeps."""


def not_answered(broker_name: str) -> DeadlineExceededError:
    """The error of a poll that gives up."""
    return DeadlineExceededError(
        f"The consumer service of shard {broker_name} did not answer in time, so it is not known whether there are messages: "
        "ask again.",
        service="consumer",
        brokerName=broker_name,
    )


class Phase(Enum):
    """Where a poll is; waiting_room.py has the picture."""

    LOOKING = auto()
    PARKED = auto()
    ENDED = auto()


class Poll(ABC):
    """One caller that waits.

    Args:
        name: what it waits for.
        client_id: who waits.
        ends_at: when it ends without messages, on the room's clock.
        gives_up_at: when it ends although its look is under way.
        must_look: it looks at once, whatever earlier looks have found.
        filter_characters: of the filter that it keeps while it waits.
        owner: in whose share they count.
    """

    __slots__ = (
        *("_began", "_is_woken", "_phase", "_queue", "_tick", "client_id", "ends_at", "gives_up_at", "must_look"),
        *("filter_characters", "name", "owner"),
    )

    _queue: "Queue"

    def __init__(
        self,
        name: QueueName,
        client_id: str,
        ends_at: float,
        gives_up_at: float,
        *,
        must_look: bool = False,
        filter_characters: int = 0,
        owner: Any = None,
    ) -> None:
        self.name = name
        self.client_id = client_id
        self.ends_at = ends_at
        self.gives_up_at = gives_up_at
        self.must_look = must_look
        self.filter_characters = filter_characters
        self.owner = owner
        self._phase = Phase.LOOKING
        self._began = 0
        self._is_woken = False
        self._tick = 0

    @property
    def is_over(self) -> bool:
        """Whether it has been answered, or its caller has gone."""
        return self._phase is Phase.ENDED

    @abstractmethod
    def look(self) -> None:
        """Begin one Pop. Its outcome must be told to the room once: `found`, `found_nothing` or `failed`."""

    @abstractmethod
    def end(self) -> None:
        """Answer that there is nothing; called once, unless the poll ends in another way."""

    @abstractmethod
    def give_up(self) -> None:
        """Answer that the look did not end in time, so that nobody knows whether there is something; likewise."""


class Queue:
    """Polls that wait for the same."""

    __slots__ = (
        *("arrived", "idle_since", "looked", "looked_seconds", "looking_count", "name", "parked", "polls", "retries"),
        "width",
    )

    def __init__(self, name: QueueName) -> None:
        self.name = name
        self.polls: dict[Poll, None] = {}
        self.parked: dict[Poll, None] = {}
        self.arrived = 1
        self.looked = 0
        self.looked_seconds = 0.0
        self.looking_count = 0  # of polls that were woken
        self.width = 1
        self.retries = False
        self.idle_since = 0.0


# Stands for each queue of a topic, where it is not known which ones have something.
EACH_QUEUE = -1
# A shard, and what has arrived there: topic; topic and queue; group and topic; group, topic and client.
Arrival = tuple[str | int, ...]


def woken_by(name: QueueName) -> list[Arrival]:
    """The arrivals that concern a queue: of its topic, of its group and topic, of its group, and of the group's retry topics.

    Those of one queue of the topic, for a pull; for a pop of lite topics those of its client and of its group. Group and topic
    may contain the `_` of a retry topic's name, so it cannot be taken apart; here it is put together instead.
    """
    if name.queue_id is not None:
        return [(name.broker_name, name.topic, queue_id) for queue_id in (name.queue_id, EACH_QUEUE)]
    if name.client_id:
        group = name.consumer_group
        of_group: list[Arrival] = [(name.broker_name, group, topic) for topic in (name.topic, "")]
        return [(name.broker_name, group, name.topic, name.client_id), *of_group]
    keys: list[Arrival] = [(name.broker_name, name.topic)]
    if name.consumer_group:
        group = name.consumer_group
        retry_topics = (
            retry_topic_of(group, name.topic),
            retry_topic_v2_of(group, name.topic),
            pull_retry_topic_of(group),
        )
        keys += [(name.broker_name, group, name.topic), (name.broker_name, group, "")]
        keys += [(name.broker_name, topic) for topic in retry_topics]
    return list(dict.fromkeys(keys))
