"""Places: a limit of concurrent work with a short, fair wait for a place.

Clients take turns, and each gets its share (admission/shares.py); the callers of a client are served in the order of their
coming. A caller that takes a place again queues behind all waiting callers of its client, so the steps of a few long searches
let others run between them. A waiting caller holds a thread; so few may wait, and a further caller is refused at once.
"""

import threading

from services.serving.admission.shares import Client, FairQueue, Shares
from services.serving.calls.cancellation import Cancellation


class _Turn:
    """One waiting caller."""

    has_place = False


class Places:
    """A limited number of places.

    Args:
        count_max: places.
        waiting_count_max: callers that wait for one at the same time.
    """

    def __init__(self, count_max: int, waiting_count_max: int) -> None:
        self._places = Shares(count_max)
        self._waiting_room = Shares(waiting_count_max)
        self._waiting: FairQueue[_Turn] = FairQueue()
        self._condition = threading.Condition()

    @property
    def waiting_count(self) -> int:
        """Callers that wait."""
        return self._waiting_room.count

    def take(self, cancellation: Cancellation, seconds_max: float, client: Client | None = None) -> bool:
        """Take a place, to be returned by `give_back`; False when there was none, or the caller has gone.

        Args:
            cancellation: of the caller; ends the wait.
            seconds_max: how long to wait.
            client: whose share the place is of; None: all callers are one, which may have all places.
        """
        turn = _Turn()
        client = client or EVERYBODY
        with cancellation.ending(self._wake), self._condition:
            if not self._may_wait(client) and not (self._may_work(client) and not self._waiting.count):
                return False
            self._waiting.append(client, turn)
            self._waiting_room.take(client)
            self._begin_next()
            self._condition.wait_for(lambda: cancellation.is_set or turn.has_place, seconds_max)
            self._waiting_room.give_back(client)
            if turn.has_place and not cancellation.is_set:
                return True
            if turn.has_place:
                self._places.give_back(client)
            else:
                self._waiting.drop(lambda each: each is turn)
            self._begin_next()
            return False

    def give_back(self, client: Client | None = None) -> None:
        """Return a place of the client."""
        with self._condition:
            self._places.give_back(client or EVERYBODY)
            self._begin_next()

    def _may_work(self, client: Client) -> bool:
        places = self._places
        return places.count < places.count_max if client is EVERYBODY else places.has_room(client)

    def _may_wait(self, client: Client) -> bool:
        room = self._waiting_room
        return room.count < room.count_max if client is EVERYBODY else room.has_room(client)

    def _begin_next(self) -> None:
        """Give free places to those whose turn it is; with the condition held."""
        while (found := self._waiting.pop(lambda client, _turn: self._may_work(client))) is not None:
            client, turn = found
            turn.has_place = True
            self._places.take(client)
        self._condition.notify_all()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


# The client of callers that are not told apart.
EVERYBODY = Client("", "")
