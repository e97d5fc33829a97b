"""DoorWaits: the pulls, or pops, of a door that wait for messages. They take no thread.

One looks once when it comes, and then waits. Both are divided among clients (services/serving/admission/shares.py):

- LOOK_COUNT_MAX look for the first time at once; others wait for their turn, so one client with thousands of queues does
  not keep the consumer service from what others ask it.
- WAITING_COUNT_MAX wait. One beyond its client's share looks once, and is answered as if its time were over.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog

from gateway.delivery.polls import QueueName
from gateway.delivery.waiting_room import WaitingRoom
from gateway.remoting.door import Ask
from services.rocketmq.codes import ResponseCode
from services.rocketmq.remoting_server import Connection
from services.serving.admission.shares import FairQueue, Shares
from store.errors import StoreError

# Some 20 KiB each: one for each queue and group that is consumed here.
WAITING_COUNT_MAX = 16_384
LOOK_COUNT_MAX = 512
# A client asks for 15 or 20 s, and gives up after 30.
WAIT_SECONDS_MAX = 60.0
# How much longer than its time one waits for a look that is under way.
GIVE_UP_SECONDS = 5.0

_log = structlog.get_logger("reput.remoting")


@dataclass(slots=True, eq=False)
class Place:
    """What is known of a request that waits.

    Attributes:
        ask: the request.
        is_counted: among those that wait.
        is_first_look: it is counted among those that look for the first time.
        has_looked: it has begun to.
        is_added: to the room.
    """

    ask: Ask
    is_counted: bool = False
    is_first_look: bool = False
    has_looked: bool = False
    is_added: bool = False


class Waiting(Protocol):
    """A poll of the waiting room that has a place."""

    place: Place
    name: QueueName
    ends_at: float
    gives_up_at: float

    def leave(self) -> None:
        """Its connection has ended."""


class DoorWaits:
    """See the top of this file; thread-safe.

    Args:
        room: where they wait.
        clock: that of the room.
        waiting_count_max: of those that may wait.
        look_count_max: of those that look for the first time at once.
    """

    def __init__(
        self,
        room: WaitingRoom,
        clock: Callable[[], float],
        waiting_count_max: int = WAITING_COUNT_MAX,
        look_count_max: int = LOOK_COUNT_MAX,
    ) -> None:
        self._room = room
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[Connection, dict[Waiting, None]] = {}
        self._places = Shares(waiting_count_max)
        self._looking = Shares(look_count_max)
        self._to_look: FairQueue[Waiting] = FairQueue()
        self._is_beginning = False  # a thread begins looks

    def ends_at(self, wait_millis: int) -> float:
        """Until when a request may wait that asks for so long."""
        return self._clock() + min(max(wait_millis / 1000, 0.0), WAIT_SECONDS_MAX)

    def begin(self, poll: Waiting) -> None:
        """Let one look in its turn, and wait."""
        ask = poll.place.ask
        with self._lock:
            poll.place.is_counted = self._places.has_room(ask.caller)
            if poll.place.is_counted:
                self._places.take(ask.caller)
            else:
                poll.ends_at = self._clock()
                poll.gives_up_at = poll.ends_at + GIVE_UP_SECONDS
            self._waiting.setdefault(ask.connection, {})[poll] = None
            self._to_look.append(ask.caller, poll)
        self._begin_looks()
        if ask.connection.is_closed:
            self.forget(ask.connection)

    def names(self) -> Iterable[QueueName]:
        """What those wait for that wait now."""
        with self._lock:
            return [poll.name for polls in self._waiting.values() for poll in polls]

    def looked(self, poll: Waiting) -> None:
        """The first look has ended, or was not needed."""
        with self._lock:
            if not poll.place.is_first_look:
                return
            poll.place.is_first_look = False
            self._looking.give_back(poll.place.ask.caller)
        self._begin_looks()

    def done(self, poll: Waiting) -> None:
        """One is answered."""
        ask = poll.place.ask
        with self._lock:
            waiting = self._waiting.get(ask.connection, {})
            if poll in waiting:
                del waiting[poll]
                if poll.place.is_counted:
                    self._places.give_back(ask.caller)
            if not waiting:
                self._waiting.pop(ask.connection, None)

    def forget(self, connection: Connection) -> None:
        """A connection has ended: so do those that wait for it."""
        with self._lock:
            waiting = self._waiting.pop(connection, {})
            for poll in waiting:
                if poll.place.is_counted:
                    self._places.give_back(poll.place.ask.caller)
            added = [poll for poll in waiting if poll.place.is_added]
        for poll in added:
            poll.leave()

    def _begin_looks(self) -> None:
        """Have those look whose turn it is; one thread at a time does it."""
        with self._lock:
            if self._is_beginning:
                return
            self._is_beginning = True
        while True:
            with self._lock:
                found = self._to_look.pop(lambda client, poll: self._looking.has_room(client))
                if found is None:
                    self._is_beginning = False
                    return
                client, poll = found
                is_open = self._is_open(poll)
                if is_open:
                    poll.place.is_first_look = True
                    self._looking.take(client)
            if is_open:
                self._let_wait(poll)

    def _is_open(self, poll: Waiting) -> bool:
        return poll in self._waiting.get(poll.place.ask.connection, {})

    def _let_wait(self, poll: Waiting) -> None:
        place = poll.place
        try:
            self._room.add(poll)  # type: ignore[arg-type]  # each is a Poll, too
        except StoreError as error:
            self.done(poll)
            place.has_looked = False
            place.ask.refuse(error)
        except Exception as error:  # a bug
            _log.exception("wait.failed", topic=poll.name.topic)
            self.done(poll)
            place.has_looked = False
            place.ask.answer(code=ResponseCode.SYSTEM_ERROR, remark=f"the request failed: {error!r}")
        else:
            with self._lock:
                place.is_added = True
                is_open = self._is_open(poll)
            if not is_open:
                poll.leave()
        if not place.has_looked:
            self.looked(poll)
