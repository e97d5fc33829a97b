"""The producers that can be asked for verdicts: those with an open session, whose settings name topics or groups."""

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from reput.schedule.v1 import schedule_service_pb2 as pb
from store.format.properties import PRODUCER_GROUP

# A schedule service forgets a gateway after a minute.
KEEP_SECONDS = 5.0
KEEP_CALL_SECONDS = 2.0
# Topics that one producer may serve, and all of a gateway together: KeepProducers stays below 4 MiB.
TOPIC_COUNT_MAX = 1_024
ALL_TOPIC_COUNT_MAX = 16_384
# Names of producer groups of a gateway, likewise.
ALL_GROUPS_CHARACTERS_MAX = 1 << 20

_log = structlog.get_logger("reput.gateway")


class Session(Protocol):
    """An open way to a producer."""

    def ask(self, check: pb.WatchChecksResponse.Check) -> bool:
        """Send a question; False: the producer cannot be asked now. Returns at once."""


class Producers:
    """The producers of a gateway; thread-safe.

    Args:
        choose: picks one of several.
    """

    def __init__(self, choose: Callable[[Sequence[Session]], Session] = random.choice) -> None:
        self._choose = choose
        self._lock = threading.Lock()
        self._served: dict[int, tuple[str, Session, frozenset[str], frozenset[str]]] = {}
        self._by_topic: dict[str, dict[int, Session]] = {}
        self._by_group: dict[str, dict[int, Session]] = {}
        self._changed = threading.Event()

    def settle(
        self, client_id: str, session: Session, topics: Sequence[str], producer_groups: Iterable[str] = ()
    ) -> None:
        """A producer has said which topics it serves, or for which groups it sends; replaces what it said before here."""
        with self._lock:
            self._remove(id(session))
            served, groups = frozenset(topics[:TOPIC_COUNT_MAX]), frozenset(producer_groups)
            self._served[id(session)] = client_id, session, served, groups
            for table, names in ((self._by_topic, served), (self._by_group, groups)):
                for name in names:
                    table.setdefault(name, {})[id(session)] = session
        self._changed.set()

    def drop(self, session: Session) -> None:
        """A session has ended."""
        with self._lock:
            is_known = self._remove(id(session))
        if is_known:
            self._changed.set()

    def end(self, client_id: str) -> None:
        """A client has ended: its sessions are asked no more."""
        with self._lock:
            ended = [key for key, (owner, *_) in self._served.items() if owner == client_id]
            for key in ended:
                self._remove(key)
        if ended:
            self._changed.set()

    def topics(self) -> list[str]:
        """All topics that are served here."""
        with self._lock:
            return list(self._by_topic)[:ALL_TOPIC_COUNT_MAX]

    def groups(self) -> list[str]:
        """All groups that have a producer here, as many as one call may name."""
        found: list[str] = []
        left = ALL_GROUPS_CHARACTERS_MAX
        with self._lock:
            for group in self._by_group:
                left -= len(group)
                if left < 0:
                    break
                found.append(group)
        return found

    def ask(self, check: pb.WatchChecksResponse.Check) -> bool:
        """Ask one producer of the topic or of the group; False: none can be asked. The service asks again later."""
        group = check.message.properties.get(PRODUCER_GROUP, "")
        with self._lock:
            found = self._by_topic.get(check.message.topic, {}) | self._by_group.get(group, {})
        sessions = list(found.values())
        while sessions:
            session = self._choose(sessions)
            if session.ask(check):
                return True
            sessions.remove(session)
        _log.info("transactions.check_unasked", topic=check.message.topic)
        return False

    def wait_for_change(self, seconds: float) -> bool:
        """Wait until the topics may have changed; False when the time is over first."""
        is_changed = self._changed.wait(seconds)
        self._changed.clear()
        return is_changed

    def wake(self) -> None:
        """End the wait for a change."""
        self._changed.set()

    def _remove(self, key: int) -> bool:
        """With the lock held."""
        _, _, topics, groups = self._served.pop(key, ("", None, frozenset[str](), frozenset[str]()))
        for table, names in ((self._by_topic, topics), (self._by_group, groups)):
            for name in names:
                sessions = table[name]
                del sessions[key]
                if not sessions:
                    del table[name]
        return bool(topics or groups)
