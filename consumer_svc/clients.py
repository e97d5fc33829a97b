"""Clients: the consumers that live, by group, as gateways report them. In memory only: a restart learns them within seconds."""

import threading
from collections.abc import Callable, Sequence

from reput.consumer.v1 import consumer_service_pb2 as pb

# A member of a group that was not heard of for so long is gone. RocketMQ's clientExpiredTimeout.
MEMBER_SECONDS = 120.0
# Heartbeats come every 10 s; what is in flight for a client that missed three of them is not renewed any more.
RENEWED_SECONDS = 30.0
CLIENT_COUNT_MAX = 100_000


class Clients:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, tuple[float, pb.Client]]] = {}  # by group and client id
        self._count = 0
        self._swept = self._started - RENEWED_SECONDS

    def keep(self, client: pb.Client) -> None:
        """Note that a client lives."""
        with self._lock:
            members = self._seen.setdefault(client.consumer_group, {})
            if client.client_id not in members:
                if self._count >= CLIENT_COUNT_MAX:
                    self._sweep()
                    if self._count >= CLIENT_COUNT_MAX:
                        if not members:
                            self._seen.pop(client.consumer_group, None)
                        return
                    members = self._seen.setdefault(client.consumer_group, members)
                self._count += 1
            members[client.client_id] = (self._clock(), client)

    def end(self, consumer_group: str, client_id: str) -> None:
        """Note that a client has ended."""
        with self._lock:
            members = self._seen.get(consumer_group, {})
            if members.pop(client_id, None) is not None:
                self._count -= 1
            if not members:
                self._seen.pop(consumer_group, None)

    def is_renewed(self, consumer_group: str, client_id: str) -> bool:
        """Whether what is in flight for the client is to be renewed.

        After a start nothing is known of any client, so all are taken to live until they had time to be heard of.
        """
        now = self._clock()
        if now - self._started < RENEWED_SECONDS:
            return True
        seen = self._seen.get(consumer_group, {}).get(client_id)
        return seen is not None and now - seen[0] < RENEWED_SECONDS

    def members(self, consumer_group: str) -> Sequence[pb.Client]:
        """The members of a group that live, by id."""
        now = self._clock()
        with self._lock:
            for name, (seen, _) in list(self._seen.get(consumer_group, {}).items()):
                if now - seen >= MEMBER_SECONDS:
                    del self._seen[consumer_group][name]
                    self._count -= 1
            members = self._seen.get(consumer_group, {})
            if not members:
                self._seen.pop(consumer_group, None)
            return [client for _, (_, client) in sorted(members.items())]

    def _sweep(self) -> None:
        """Forget the clients that are gone, of all groups; once in RENEWED_SECONDS at most."""
        now = self._clock()
        if now - self._swept < RENEWED_SECONDS:
            return
        self._swept = now
        for name, members in list(self._seen.items()):
            for client_id, (seen, _) in list(members.items()):
                if now - seen >= MEMBER_SECONDS:
                    del members[client_id]
                    self._count -= 1
            if not members:
                del self._seen[name]

    def count(self) -> int:
        """Clients that were heard of."""
        return self._count
