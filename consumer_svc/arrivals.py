"""Arrivals: tells every watcher which queues may have something to deliver, and which groups have other members.

A slow watcher costs a bounded set of names and queues.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from reput.consumer.v1.consumer_service_pb2 import (
    GroupTopic,
    LiteClient,
    LostLiteTopic,
    TopicQueues,
    WatchArrivalsResponse,
)

# More names and queues than this are not kept for one watcher: it is told to look at everything.
NAME_COUNT_MAX = 10_000
# Of one message to a watcher; gRPC takes 4 MiB.
MESSAGE_BYTES_MAX = 1_000_000

Row = TypeVar("Row")


@dataclass(slots=True)
class Arrived:
    """Where something has arrived since the last look; possibly everywhere.

    Attributes:
        topics: in any queue of these.
        queues: in these queues, by topic.
        group_topics: for a group in any queue of a topic.
        all: anywhere.
        member_groups: the groups whose members have changed.
        queue_count: of all topics together.
        lite_clients: group, parent topic and client of those with news of lite topics.
        all_lite_clients: any client may have such news.
        lost: group, parent topic, client and lite topic of those that a client does not own any more.
    """

    topics: set[str] = field(default_factory=set)
    queues: dict[str, set[int]] = field(default_factory=dict)
    group_topics: set[tuple[str, str]] = field(default_factory=set)
    all: bool = False
    member_groups: set[str] = field(default_factory=set)
    queue_count: int = 0
    lite_clients: set[tuple[str, str, str]] = field(default_factory=set)
    all_lite_clients: bool = False
    lost: set[tuple[str, str, str, str]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return (
            self.all
            or self.all_lite_clients
            or bool(
                self.topics or self.queues or self.group_topics or self.member_groups or self.lite_clients or self.lost
            )
        )

    def messages(self) -> Iterator[WatchArrivalsResponse]:
        """What a watcher is told, in messages of at most MESSAGE_BYTES_MAX."""
        return _in_parts(
            WatchArrivalsResponse(
                topics=sorted(self.topics | self.queues.keys()),
                queues=[
                    TopicQueues(topic=topic, queue_ids=sorted(queue_ids))
                    for topic, queue_ids in self.queues.items()
                    if topic not in self.topics
                ],
                group_topics=[
                    GroupTopic(consumer_group=group, topic=topic) for group, topic in sorted(self.group_topics)
                ],
                all=self.all,
                member_groups=sorted(self.member_groups),
                lite_clients=[
                    LiteClient(consumer_group=group, topic=topic, client_id=client_id)
                    for group, topic, client_id in sorted(self.lite_clients)
                ],
                lost_lite_topics=[
                    LostLiteTopic(consumer_group=group, topic=topic, client_id=client_id, lite_topic=lite_topic)
                    for group, topic, client_id, lite_topic in sorted(self.lost)
                ],
                all_lite_clients=self.all_lite_clients,
            )
        )


def _in_parts(message: WatchArrivalsResponse) -> Iterator[WatchArrivalsResponse]:
    """The same, in messages of at most MESSAGE_BYTES_MAX or with one name of each kind."""
    names = (
        message.topics,
        message.group_topics,
        message.member_groups,
        message.lite_clients,
        message.lost_lite_topics,
    )
    if message.ByteSize() <= MESSAGE_BYTES_MAX or all(len(each) <= 1 for each in names):
        yield message
        return
    queues = {row.topic: row for row in message.queues}
    for number in range(2):
        topics = _half(message.topics, number)
        yield from _in_parts(
            WatchArrivalsResponse(
                topics=topics,
                queues=[queues[topic] for topic in topics if topic in queues],
                group_topics=_half(message.group_topics, number),
                all=message.all and not number,
                member_groups=_half(message.member_groups, number),
                lite_clients=_half(message.lite_clients, number),
                lost_lite_topics=_half(message.lost_lite_topics, number),
                all_lite_clients=message.all_lite_clients and not number,
            )
        )


def _half(rows: Sequence[Row], number: int) -> Sequence[Row]:
    """The first half, number 0, or the rest."""
    middle = len(rows) // 2
    return rows[middle:] if number else rows[:middle]


class Watcher:
    """One watcher; made by `Arrivals.watch`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived = Arrived(all=True)
        self._is_over = False

    def take(self, timeout_seconds: float) -> Arrived:
        """Wait for something and take it; empty when the time ran out first, or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._arrived) or self._is_over, timeout_seconds)
            arrived, self._arrived = self._arrived, Arrived()
        return arrived

    def note(
        self,
        topics: Iterable[str] = (),
        queues: Mapping[str, Collection[int]] = MappingProxyType({}),
        group_topics: Iterable[tuple[str, str]] = (),
        member_groups: Iterable[str] = (),
        lite_clients: Iterable[tuple[str, str, str]] = (),
        lost: Iterable[tuple[str, str, str, str]] = (),
        *,
        everything: bool = False,
    ) -> None:
        """Note what has arrived; returns at once."""
        with self._changed:
            arrived = self._arrived
            arrived.topics.update(topics)
            for topic, queue_ids in queues.items():
                known = arrived.queues.setdefault(topic, set())
                arrived.queue_count -= len(known)
                known.update(queue_ids)
                arrived.queue_count += len(known)
            arrived.group_topics.update(group_topics)
            arrived.member_groups.update(member_groups)
            if not arrived.all_lite_clients:
                arrived.lite_clients.update(lite_clients)
            arrived.lost.update(lost)
            names = len(arrived.topics) + len(arrived.group_topics) + len(arrived.member_groups)
            if len(arrived.lite_clients) > NAME_COUNT_MAX:
                arrived.lite_clients, arrived.all_lite_clients = set(), True  # polls of other groups need not look
            if len(arrived.lost) > NAME_COUNT_MAX:
                arrived.lost = set()  # their former owners name them again within 30 s, and are told
            if everything or names + len(arrived.queues) + arrived.queue_count > NAME_COUNT_MAX:
                self._arrived = Arrived(all=True, lost=arrived.lost)  # `all` does not say which lite topics were lost
            self._changed.notify()

    def end(self) -> None:
        """Wait no longer from now on."""
        with self._changed:
            self._is_over = True
            self._changed.notify()


class Arrivals:
    """Passes arrivals on to all watchers; thread-safe."""

    def __init__(self) -> None:
        self._watchers: tuple[Watcher, ...] = ()
        self._lock = threading.Lock()

    def watch(self) -> Watcher:
        """A new watcher, which first hears that anything may have arrived."""
        watcher = Watcher()
        with self._lock:
            self._watchers += (watcher,)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """Tell a watcher nothing more."""
        with self._lock:
            self._watchers = tuple(one for one in self._watchers if one is not watcher)

    def note_topics(self, topics: Iterable[str]) -> None:
        """Any queue of these topics may have something to tell."""
        topics = tuple(topics)  # every watcher reads them
        for watcher in self._watchers:
            watcher.note(topics)

    def note_queues(self, queues: Mapping[str, Collection[int]]) -> None:
        """Queues have new messages, by topic."""
        for watcher in self._watchers:
            watcher.note(queues=queues)

    def note_group(self, consumer_group: str, topic: str) -> None:
        """A group may have messages of a topic again, or only now; of any topic when it is empty."""
        for watcher in self._watchers:
            watcher.note(group_topics=((consumer_group, topic),))

    def note_members(self, consumer_group: str) -> None:
        """The members of a group have changed."""
        for watcher in self._watchers:
            watcher.note(member_groups=(consumer_group,))

    def note_lite(self, clients: Collection[tuple[str, str, str]]) -> None:
        """Clients have news of the lite topics of a parent, given by group, parent topic and client."""
        for watcher in self._watchers:
            watcher.note(lite_clients=clients)

    def note_lost(self, lost: Iterable[tuple[str, str, str, str]]) -> None:
        """Clients do not own lite topics any more, given by group, parent topic, client and lite topic."""
        lost = tuple(lost)  # every watcher reads them
        for watcher in self._watchers:
            watcher.note(lost=lost)

    def note_all(self) -> None:
        """Anything may have arrived."""
        for watcher in self._watchers:
            watcher.note(everything=True)

    def end(self) -> None:
        """The service stops: no watcher waits any more."""
        for watcher in self._watchers:
            watcher.end()
