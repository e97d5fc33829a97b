"""LiteSubscriptions: which lite topics the clients of one group subscribe to; pure.

A lite topic is named by its light queue (`%LMQ%$parent$lite`). Names are interned: the same text stands in the positions of the
group, in the sets of its clients and in the index from queues to clients.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LiteSubscribed:
    """What a client of a group subscribes to has changed; see the proto. `added` and `removed` are names of light queues."""

    consumer_group: str
    topic: str
    client_id: str
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    is_complete: bool = False
    is_wildcard: bool = False
    is_ended: bool = False


@dataclass(slots=True)
class LiteClient:
    """A client: the light queues that it subscribes to, and whether it gets all of the parent."""

    queues: set[str] = field(default_factory=set)
    is_wildcard: bool = False


class LiteSubscriptions:
    """See the top of this file.

    Attributes:
        clients: by id; changed by `apply` and `drop` only.
        count: lite topics that clients subscribe to, each as often as there are clients that do; a client without any is one.
    """

    def __init__(self) -> None:
        self.clients: dict[str, LiteClient] = {}
        self.count = 0
        # One client, or several: most lite topics have one.
        self._by_queue: dict[str, str | tuple[str, ...]] = {}
        # Each message asks for them, and there may be thousands of other clients.
        self._wildcards: dict[str, None] = {}

    def subscribers(self, queue: str) -> tuple[str, ...]:
        """The clients that subscribe to a lite topic by its name."""
        found = self._by_queue.get(queue, ())
        return (found,) if isinstance(found, str) else found

    def wildcards(self) -> Collection[str]:
        """The clients that subscribe to all lite topics."""
        return self._wildcards.keys()

    def has(self, client_id: str, queue: str) -> bool:
        """Whether a client gets the messages of a lite topic."""
        client = self.clients.get(client_id)
        return client is not None and (client.is_wildcard or queue in client.queues)

    def queues(self) -> Iterator[str]:
        """The lite topics that somebody names."""
        return iter(self._by_queue)

    def apply(self, change: LiteSubscribed) -> None:
        """Apply a change."""
        client = self.clients.get(change.client_id)
        self.count -= _count_of(client)
        self._apply(change, client)
        self.count += _count_of(self.clients.get(change.client_id))

    def _apply(self, change: LiteSubscribed, client: LiteClient | None) -> None:
        if client is None:
            if change.is_ended:
                return
            client = self.clients[change.client_id] = LiteClient()
        removed = client.queues - set(change.added) if change.is_complete or change.is_ended else change.removed
        for queue in removed:
            self._remove(change.client_id, client, queue)
        if change.is_ended:
            del self.clients[change.client_id]
            self._wildcards.pop(change.client_id, None)
            return
        client.is_wildcard = change.is_wildcard
        if change.is_wildcard:
            self._wildcards[change.client_id] = None
        else:
            self._wildcards.pop(change.client_id, None)
        for queue in change.added:
            if queue not in client.queues:
                client.queues.add(queue)
                known = self._by_queue.get(queue)
                if known is None:
                    self._by_queue[queue] = change.client_id
                else:
                    self._by_queue[queue] = (*self.subscribers(queue), change.client_id)

    def drop(self, queue: str) -> None:
        """Remove a lite topic from the subscriptions of all clients."""
        for client_id in self.subscribers(queue):
            client = self.clients[client_id]
            self.count -= _count_of(client)
            self._remove(client_id, client, queue)
            self.count += _count_of(client)

    def _remove(self, client_id: str, client: LiteClient, queue: str) -> None:
        if queue not in client.queues:
            return
        client.queues.discard(queue)
        left = tuple(one for one in self.subscribers(queue) if one != client_id)
        if not left:
            del self._by_queue[queue]
        else:
            self._by_queue[queue] = left if len(left) > 1 else left[0]


def _count_of(client: LiteClient | None) -> int:
    return 0 if client is None else len(client.queues) or 1
