"""ClientIds: whose each client id is that RocketMQ's clients send with their calls.

A gateway knows a client by its id: its settings, that it lives, the checks that it answers, its end. The id is a text that the
client chooses. So an id that is alive belongs to the identity that used it first, and settings, heartbeats and ends of another
identity are refused. An id is alive for EXPIRE_SECONDS after the last of them, and until its client says that it has ended.

Nobody is locked out for ever: an id that its identity does not use is free soon, clients make a new id at each start, and an
identity that uses ever new ids loses its own oldest ones, not those of others. In memory, of one gateway, as what it protects.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from store.errors import InvalidArgumentError, PermissionDeniedError

# As long as a gateway remembers a silent client: gateway/rocketmq/clients.py.
EXPIRE_SECONDS = 120.0
# Ids of one identity, and of all: some 300 bytes each.
IDENTITY_COUNT_MAX = 8_192
COUNT_MAX = 65_536
# Both doors refuse or leave out longer ids before this.
CLIENT_ID_CHARACTERS_MAX = 255
# Of an id in an error.
CHARACTERS_SHOWN = 64


class ClientIds:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._identities: dict[str, str] = {}
        self._used: dict[str, OrderedDict[str, float]] = {}  # by identity: when each id was used, the oldest first

    def claim(self, client_id: str, identity: str) -> None:
        """An identity has used an id.

        Raises:
            PermissionDeniedError: another one has it.
            InvalidArgumentError: it is too long.
        """
        if len(client_id) > CLIENT_ID_CHARACTERS_MAX:
            raise InvalidArgumentError(
                f"the client id has {len(client_id)} characters: at most {CLIENT_ID_CHARACTERS_MAX} are possible.",
                field="client_id",
            )
        now = self._clock()
        with self._lock:
            owner = self._identities.get(client_id)
            if owner is not None and owner != identity:
                if now - self._used[owner][client_id] < EXPIRE_SECONDS:
                    raise PermissionDeniedError(
                        f"the client id {client_id[:CHARACTERS_SHOWN]!r} is in use by another client: use an id of your own",
                        client=identity,
                    )
                self._forget(client_id)
            used = self._used.setdefault(identity, OrderedDict())
            self._identities[client_id] = identity
            used[client_id] = now
            used.move_to_end(client_id)
            while len(used) > 1 and (len(used) > IDENTITY_COUNT_MAX or _is_over(used, now)):
                self._forget(next(iter(used)))
            if len(self._identities) > COUNT_MAX:
                self._make_room(now, client_id)

    def release(self, client_id: str, identity: str) -> None:
        """A client has ended: its id is free, if it was that identity's."""
        with self._lock:
            if self._identities.get(client_id) == identity:
                self._forget(client_id)

    def _make_room(self, now: float, kept: str) -> None:
        """Forget what is over; when that is nothing, the id of another that was used least recently."""
        over = [used for used in self._used.values() if _is_over(used, now)]
        for used in over:
            while used and _is_over(used, now):
                self._forget(next(iter(used)))
        if not over:
            at, oldest = min((next(iter(used.items()))[::-1] for used in self._used.values()), default=(now, kept))
            if oldest != kept and at <= now:
                self._forget(oldest)

    def _forget(self, client_id: str) -> None:
        identity = self._identities.pop(client_id)
        used = self._used[identity]
        del used[client_id]
        if not used:
            del self._used[identity]


def _is_over(used: OrderedDict[str, float], now: float) -> bool:
    """Whether the oldest id of an identity is alive no more."""
    return now - next(iter(used.values())) >= EXPIRE_SECONDS
