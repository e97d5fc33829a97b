"""The producers that can be asked for verdicts: those with an open session, whose settings name topics or groups.

A schedule service is told in one call which topics and groups have producers here. Where clients name more than it has room
for, addresses take turns, and so do the clients of an address: one that names many leaves out its own (ADR 0040).
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol, TypeAlias

import structlog

from reput.schedule.v1 import schedule_service_pb2 as pb
from store.format.properties import PRODUCER_GROUP

# A schedule service forgets a gateway after a minute.
KEEP_SECONDS = 5.0
KEEP_CALL_SECONDS = 2.0
# Topics that one producer may serve; a heartbeat has a limit of its own for groups.
TOPIC_COUNT_MAX = 1_024
# Topics of all producers that one KeepProducers names, and groups likewise: the service takes 65,536, and gRPC 4 MiB.
NAME_COUNT_MAX = 16_384
NAMES_BYTES_MAX = 1 << 20
# Names that are looked at, where there are more, to find those: a group may have thousands of producers.
LOOK_COUNT_MAX = 131_072
# Checks of a shard with which no producer could be asked, and that it was not told of yet; further ones count there.
UNASKED_COUNT_MAX = 1_024

_log = structlog.get_logger("reput.gateway")


class Session(Protocol):
    """An open way to a producer."""

    def ask(self, check: pb.WatchChecksResponse.Check) -> bool:
        """Send a question; False: the producer cannot be asked now. Returns at once."""


# The client of a session, as services/serving/admission/shares.py has it: its name and its address.
Owner: TypeAlias = tuple[str, str]


class _Served(NamedTuple):
    """What a session is for: `names` are its topics, and its groups."""

    client_id: str
    owner: Owner
    session: Session
    names: tuple[frozenset[str], frozenset[str]]


class _Table:
    """The sessions of each topic, or of each group; not thread-safe.

    Attributes:
        sessions: by name, and then by their keys.
    """

    def __init__(self, kind: str) -> None:
        self.sessions: dict[str, dict[int, Session]] = {}
        self._kind = kind
        self._size_bytes = 0
        self._has_room = True

    def settle(self, key: int, session: Session | None, before: frozenset[str], names: frozenset[str]) -> bool:
        """A session is for these names, and no longer for those; whether other names have sessions now."""
        is_changed = False
        for name in before - names:
            of_name = self.sessions[name]
            del of_name[key]
            if not of_name:
                del self.sessions[name]
                self._size_bytes -= len(name.encode())
                is_changed = True
        if session is not None:
            for name in names - before:
                if name not in self.sessions:
                    self.sessions[name] = {}
                    self._size_bytes += len(name.encode())
                    is_changed = True
                self.sessions[name][key] = session
        return is_changed

    def told(self, served: Iterable[tuple[Owner, frozenset[str]]]) -> list[str]:
        """The names that have sessions; as many as one call may name."""
        has_room = len(self.sessions) <= NAME_COUNT_MAX and self._size_bytes <= NAMES_BYTES_MAX
        if has_room != self._has_room:
            self._has_room = has_room
            if not has_room:
                _log.warning("transactions.producers_left_out", kind=self._kind, count=len(self.sessions))
        return list(self.sessions) if has_room else _shared(served)


def _shared(served: Iterable[tuple[Owner, frozenset[str]]]) -> list[str]:
    """Names of each client, one at a time, until a call has no room for more."""
    addresses: dict[str, dict[str, list[frozenset[str]]]] = {}
    for (name, address), names in served:
        addresses.setdefault(address, {}).setdefault(name, []).append(names)
    turns = _in_turns(_in_turns(map(chain.from_iterable, clients.values())) for clients in addresses.values())
    found: dict[str, None] = {}
    left = NAMES_BYTES_MAX
    for name in islice(turns, LOOK_COUNT_MAX):
        if name not in found:
            left -= len(name.encode())
            if left < 0 or len(found) >= NAME_COUNT_MAX:
                break
            found[name] = None
    return list(found)


def _in_turns(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    """The first of each, then the second of each, and so on."""
    waiting = deque(map(iter, parts))
    while waiting:
        part = waiting.popleft()
        for each in part:
            yield each
            waiting.append(part)
            break


class Producers:
    """The producers of a gateway; thread-safe.

    Args:
        choose: picks one of several.
    """

    def __init__(self, choose: Callable[[Sequence[Session]], Session] = random.choice) -> None:
        self._choose = choose
        self._lock = threading.Lock()
        self._served: dict[int, _Served] = {}
        self._tables = _Table("topics"), _Table("groups")
        self._changed = threading.Event()
        self._unasked: dict[str, list[str]] = {}

    def settle(
        self,
        client_id: str,
        session: Session,
        topics: Sequence[str],
        producer_groups: Iterable[str] = (),
        owner: Owner = ("", ""),
    ) -> None:
        """A producer has said which topics it serves, or for which groups it sends; replaces what it said before here.

        Args:
            client_id: its id.
            session: a way to it.
            topics: that it serves, TOPIC_COUNT_MAX at most.
            producer_groups: for which it sends.
            owner: its client.
        """
        names = frozenset(topics[:TOPIC_COUNT_MAX]), frozenset(producer_groups)
        with self._lock:
            is_changed = self._settle(id(session), _Served(client_id, owner, session, names))
        if is_changed:
            self._changed.set()

    def drop(self, session: Session) -> None:
        """A session has ended."""
        with self._lock:
            is_changed = self._settle(id(session), None)
        if is_changed:
            self._changed.set()

    def end(self, client_id: str) -> None:
        """A client has ended: its sessions are asked no more."""
        with self._lock:
            ended = [key for key, served in self._served.items() if served.client_id == client_id]
            changes = [self._settle(key, None) for key in ended]
        if any(changes):
            self._changed.set()

    def topics(self) -> list[str]:
        """The topics that are served here, as many as one call may name."""
        return self._told(0)

    def groups(self) -> list[str]:
        """The groups that have a producer here, as many as one call may name."""
        return self._told(1)

    def ask(self, check: pb.WatchChecksResponse.Check) -> bool:
        """Ask one producer of the topic or of the group; False: none can be asked. The service asks again later."""
        group = check.message.properties.get(PRODUCER_GROUP, "")
        with self._lock:
            of_topics, of_groups = (table.sessions for table in self._tables)
            found = of_topics.get(check.message.topic, {}) | of_groups.get(group, {})
        sessions = list(found.values())
        while sessions:
            session = self._choose(sessions)
            if session.ask(check):
                return True
            sessions.remove(session)
        _log.info("transactions.check_unasked", topic=check.message.topic)
        return False

    def ask_all(self, broker_name: str, checks: Iterable[pb.WatchChecksResponse.Check]) -> None:
        """Ask for the checks of a shard; those with which no producer can be asked are told to it with the next keep."""
        unasked = [check.transaction_id for check in checks if not self.ask(check)]
        if unasked:
            with self._lock:
                waiting = self._unasked.setdefault(broker_name, [])
                waiting += unasked[: UNASKED_COUNT_MAX - len(waiting)]
            self._changed.set()

    def take_unasked(self, broker_name: str) -> Sequence[str]:
        """The transaction ids that this shard is to be told of, each once."""
        with self._lock:
            return self._unasked.pop(broker_name, ())

    def wait_for_change(self, seconds: float) -> bool:
        """Wait until the topics may have changed; False when the time is over first."""
        is_changed = self._changed.wait(seconds)
        self._changed.clear()
        return is_changed

    def wake(self) -> None:
        """End the wait for a change."""
        self._changed.set()

    def _told(self, kind: int) -> list[str]:
        with self._lock:
            return self._tables[kind].told((served.owner, served.names[kind]) for served in self._served.values())

    def _settle(self, key: int, served: _Served | None) -> bool:
        """With the lock held; whether other topics or groups have producers now."""
        before = self._served.pop(key, None)
        if served is not None:
            self._served[key] = served
        nothing = frozenset[str](), frozenset[str]()
        parts = zip(self._tables, before.names if before else nothing, served.names if served else nothing, strict=True)
        session = served.session if served else None
        changes = [table.settle(key, session, old, new) for table, old, new in parts]
        return any(changes)
