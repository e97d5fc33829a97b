"""What a form that changes something must bring besides its fields.

    form token      shows that a page of this console made the form, for this session: an HMAC over the session
    confirmation    names what was shown and is to be done. The console keeps that, so exactly what was shown is done; it counts
                    once, for the session to which it was shown

A session is what a browser shows with each request and other sites cannot: the sign-in token, or, without sign-in, a random
cookie. Both secrets are of one process: behind several gateways a browser must come back to the same one, or check again.
"""

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from store.errors import InvalidArgumentError

CONFIRMATION_SECONDS = 600.0
# What is shown and not confirmed yet, of all sessions: a message has 4 MiB.
KEPT_COUNT_MAX = 256
KEPT_BYTES_MAX = 32 << 20
TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Kept:
    session: str
    action: str
    command: Any
    size_bytes: int
    end_seconds: float


class Confirmations:
    """Makes and checks both; thread-safe.

    Args:
        clock: monotonic seconds.
        random: returns so many random bytes.
    """

    def __init__(self, clock: Callable[[], float], random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._clock = clock
        self._random = random
        self._secret = random(32)
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def new_session(self) -> str:
        """A name for a browser that does not sign in."""
        return self._random(TOKEN_BYTES).hex()

    def form_token(self, session: str) -> str:
        """The token of the forms that a session is shown."""
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def check_form(self, session: str, token: str) -> None:
        """InvalidArgumentError when the token is not that of the session's forms."""
        if not session or not hmac.compare_digest(self.form_token(session).encode(), token.encode()):
            raise InvalidArgumentError(
                "The form was made for another session, or before the gateway started: load the page again.",
                field="form_token",
            )

    def keep(self, session: str, action: str, command: Any, size_bytes: int) -> str:
        """Keep what a session was shown; the confirmation that does it."""
        confirmation = self._random(TOKEN_BYTES).hex()
        with self._lock:
            self._kept[confirmation] = _Kept(session, action, command, size_bytes, self._clock() + CONFIRMATION_SECONDS)
            self._forget()
        return confirmation

    def take(self, session: str, action: str, confirmation: str) -> Any:
        """What was shown; it is not kept any more.

        Raises:
            InvalidArgumentError: the session was shown no such thing, it is too old, or it was confirmed before.
        """
        with self._lock:
            self._forget()
            kept = self._kept.get(confirmation)
            if kept is None or (kept.session, kept.action) != (session, action):
                raise InvalidArgumentError(
                    "This was confirmed before, or is too old: nothing was done now. Look at what there is, and check again.",
                    field="confirmation",
                )
            del self._kept[confirmation]
        return kept.command

    def _forget(self) -> None:
        """Drop what is too old; beyond the limits, the oldest of the session that has most."""
        now_seconds = self._clock()
        self._kept = {name: kept for name, kept in self._kept.items() if kept.end_seconds > now_seconds}
        while len(self._kept) > KEPT_COUNT_MAX or sum(each.size_bytes for each in self._kept.values()) > KEPT_BYTES_MAX:
            bytes_by_session: dict[str, int] = {}
            for each in self._kept.values():
                bytes_by_session[each.session] = bytes_by_session.get(each.session, 0) + each.size_bytes
            largest = max(bytes_by_session, key=lambda session: bytes_by_session[session])
            oldest = next(name for name, each in self._kept.items() if each.session == largest)
            del self._kept[oldest]


def session_of(token: str, cookie: str) -> str:
    """The session of a browser: of its sign-in token, otherwise of its cookie; empty when it has neither."""
    return hashlib.sha256(token.encode()).hexdigest() if token else cookie
