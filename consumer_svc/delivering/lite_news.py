"""LiteNews: the lite topics that may have something for the clients of a shard.

Each client has the set of those lite topics that it subscribes to and that may have messages for it; the clients of a wildcard
group have one together. So memory goes with what has news, however many lite topics there are. A lite topic is looked at when
it is taken out of the set. It comes back when it gets a message, when what was in flight in it is done with or comes again,
and when it could not be read.

Nothing of this is written. After a start, and when a client subscribes to very many lite topics at once, the ends of all light
queues of the parent are compared with the positions of the groups, page by page (`LiteTopics.look_through`).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from consumer_svc.arrivals import Arrivals
from consumer_svc.state.group_states import Group, GroupStates
from consumer_svc.state.queue_state import QueueRef
from store.format.topic import split_lite_queue

# The news of all clients of a group that get all lite topics.
EVERY_CLIENT = ""
# Answers of a client that may be asked for again, the newest ones.
ATTEMPT_COUNT_MAX = 8
# Lite topics that a poll passes over, because other polls look at them or the client has unsubscribed.
LOOKED_COUNT_MAX = 256

ClientKey = tuple[str, str]


@dataclass(slots=True)
class _Woken:
    """The clients that are to poll again: by group and parent topic, and groups of which all wildcard clients are."""

    clients: set[tuple[str, str, str]] = field(default_factory=set)
    groups: set[tuple[str, str]] = field(default_factory=set)


class LiteNews:
    """See the top of this file. Its owner holds the lock of the life.

    Args:
        states: of all groups.
        arrivals: hears of clients with news.
    """

    def __init__(self, states: GroupStates, arrivals: Arrivals) -> None:
        self._states = states
        self._arrivals = arrivals
        # Oldest first. To find its first key, a plain dict passes over the places of all keys that were deleted before it.
        self._news: dict[ClientKey, OrderedDict[str, None]] = {}
        # Lite topics that polls look at, by group and queue: the clients that have passed over them meanwhile.
        self._picking: dict[tuple[str, str], set[str]] = {}
        self._attempts: dict[ClientKey, OrderedDict[str, list[QueueRef]]] = {}
        self._unchecked: set[str] = set()  # parent topics
        self._heard: dict[ClientKey, int] = {}  # when clients polled or subscribed last (ms since 1970)
        self._versions: dict[ClientKey, int] = {}  # of the newest subscriptions of clients that number them
        for group in states.groups.values():
            for ref, state in group.queues() if group.settings.lite is not None else ():
                for lease in state.leases.values():
                    if lease.attempt_id:
                        self.note_attempt(ref.consumer_group, lease.client_id, lease.attempt_id, ref)
                if state.waiting and not state.leases:
                    self.note(ref.consumer_group, ref.topic)
            if group.lite.clients and group.settings.lite is not None:
                self._unchecked.add(group.settings.lite.bind_topic)

    def arrived(self, queues: Iterable[str]) -> None:
        """There are new messages in light queues."""
        if not self._states.bound:
            return
        woken = _Woken()
        for queue in queues:
            lite = split_lite_queue(queue)
            for name in self._states.bound.get(lite[0], ()) if lite is not None else ():
                self._put(name, queue, woken)
        self._wake(woken)

    def note(self, consumer_group: str, queue: str) -> None:
        """A lite topic may have something for a group: its clients look again."""
        woken = _Woken()
        self._put(consumer_group, queue, woken)
        self._wake(woken)

    def _put(self, consumer_group: str, queue: str, woken: "_Woken") -> None:
        """Put a lite topic into the news of the clients of a group; they are woken later, and each once."""
        group = self._states.groups.get(consumer_group)
        lite = split_lite_queue(queue)
        if group is None or lite is None:
            return
        for client_id in group.lite.subscribers(queue):
            self._news.setdefault((consumer_group, client_id), OrderedDict())[queue] = None
            woken.clients.add((consumer_group, lite[0], client_id))
        if group.lite.wildcards():
            self._news.setdefault((consumer_group, EVERY_CLIENT), OrderedDict())[queue] = None
            woken.groups.add((consumer_group, lite[0]))

    def _wake(self, woken: "_Woken") -> None:
        for name, topic in woken.groups:
            woken.clients.update((name, topic, client_id) for client_id in self._states.groups[name].lite.wildcards())
        if woken.clients:
            self._arrivals.note_lite(woken.clients)

    def take(self, consumer_group: str, client_id: str) -> str | None:
        """Take the next lite topic that a client is to look at; no other client gets it until `give_back` or `done`."""
        group = self._states.groups.get(consumer_group)
        client = group.lite.clients.get(client_id) if group is not None else None
        if client is None:
            return None
        key = (consumer_group, EVERY_CLIENT if client.is_wildcard else client_id)
        news = self._news.get(key)
        while news:
            queue = None
            for one in islice(news, LOOKED_COUNT_MAX):
                passing = self._picking.get((consumer_group, one))
                if passing is None:
                    queue = one
                    break
                passing.add(client_id)
            if queue is None:
                return None
            del news[queue]
            if not news:
                del self._news[key]
            if client.is_wildcard or queue in client.queues:
                self._picking[consumer_group, queue] = set()
                return queue
        return None

    def done(self, consumer_group: str, queue: str, *, is_left: bool = False) -> None:
        """A lite topic was looked at; `is_left`: nothing of it was handed out, so clients that have passed it look now."""
        passing = self._picking.pop((consumer_group, queue), None)
        lite = split_lite_queue(queue)
        if passing and is_left and lite is not None:
            self._arrivals.note_lite({(consumer_group, lite[0], client_id) for client_id in passing})

    def put_back(self, consumer_group: str, client_id: str, queue: str) -> None:
        """A client shall look at a lite topic again with its next poll."""
        group = self._states.groups.get(consumer_group)
        client = group.lite.clients.get(client_id) if group is not None else None
        if client is not None:
            key = (consumer_group, EVERY_CLIENT if client.is_wildcard else client_id)
            self._news.setdefault(key, OrderedDict())[queue] = None

    def has_some(self, consumer_group: str, client_id: str) -> bool:
        """Whether a client has something to look at that no other poll looks at."""
        group = self._states.groups.get(consumer_group)
        client = group.lite.clients.get(client_id) if group is not None else None
        news = self._news.get(
            (consumer_group, EVERY_CLIENT if client is not None and client.is_wildcard else client_id), ()
        )
        return any((consumer_group, queue) not in self._picking for queue in islice(news, LOOKED_COUNT_MAX))

    def forget(self, consumer_group: str, client_id: str | None = None) -> None:
        """A client, or all of a group, has ended."""
        if client_id is not None:
            keys = [(consumer_group, client_id)]
        else:
            keys = [
                key for key in {*self._news, *self._attempts, *self._heard, *self._versions} if key[0] == consumer_group
            ]
        for key in keys:
            self._news.pop(key, None)
            self._attempts.pop(key, None)
            self._heard.pop(key, None)
            self._versions.pop(key, None)

    def is_late(self, consumer_group: str, client_id: str, version: int) -> bool:
        """Whether a client's subscriptions of a version (0: not known) are older than the newest ones."""
        return 0 < version < self._versions.get((consumer_group, client_id), 0)

    def note_version(self, consumer_group: str, client_id: str, version: int) -> None:
        """A client's subscriptions have changed by a call of a version; 0: not known."""
        key = consumer_group, client_id
        if version > self._versions.get(key, 0):
            self._versions[key] = version

    def hear(self, consumer_group: str, client_id: str, millis: int) -> None:
        """A client polled or subscribed at a time (ms since 1970)."""
        group = self._states.groups.get(consumer_group)
        if group is not None and client_id in group.lite.clients:
            self._heard[consumer_group, client_id] = millis

    def heard_millis(self, consumer_group: str, client_id: str) -> int:
        """When a client was heard of last (ms since 1970); 0: not in this life."""
        return self._heard.get((consumer_group, client_id), 0)

    def note_attempt(self, consumer_group: str, client_id: str, attempt_id: str, ref: QueueRef) -> None:
        """A poll of that name gave a client messages of a queue."""
        attempts = self._attempts.setdefault((consumer_group, client_id), OrderedDict())
        attempts.setdefault(attempt_id, []).append(ref)
        while len(attempts) > ATTEMPT_COUNT_MAX:
            attempts.popitem(last=False)

    def attempt(self, consumer_group: str, client_id: str, attempt_id: str) -> Sequence[QueueRef]:
        """The queues of which a poll of that name gave a client messages."""
        attempts = self._attempts.get((consumer_group, client_id))
        return list(dict.fromkeys(attempts.get(attempt_id, ()))) if attempts is not None else ()

    # -- all lite topics of a parent

    def check_all(self, topic: str) -> None:
        """Have the lite topics of a parent looked through for news."""
        self._unchecked.add(topic)

    def unchecked(self) -> str | None:
        """A parent topic that is to be looked through; it is then taken as looked through."""
        return self._unchecked.pop() if self._unchecked else None

    def see_ends(self, topic: str, ends: Iterable[tuple[str, int]]) -> None:
        """Lite topics of a parent, by their light queues, have messages up to these positions."""
        groups = [self._states.groups[name] for name in self._states.bound.get(topic, ())]
        woken = _Woken()
        for queue, end in ends:
            for group in groups:
                is_asked_for = group.lite.wildcards() or group.lite.subscribers(queue)
                if is_asked_for and self._may_have(group, queue, end):
                    self._put(group.settings.consumer_group, queue, woken)
        self._wake(woken)

    def _may_have(self, group: Group, queue: str, end: int) -> bool:
        position = group.light.get(queue)
        if position is not None:  # most are such, and need no state
            return (position if isinstance(position, int) else position[0]) < end
        state = self._states.find(QueueRef(group.settings.consumer_group, queue, 0))
        if state is None:
            return end > self._states.begin_offset(queue)
        return not state.leases and (bool(state.waiting) or state.next_offset < end)
