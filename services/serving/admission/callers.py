"""The client of a call: a verified identity, else the connection (shares.py has the rule for clients)."""

import threading
from contextvars import ContextVar
from typing import Any

from services.serving.admission.shares import Client, client_of_identity, client_of_peer
from services.serving.call_guard import CallGuard

_here = threading.local()
# gRPC runs a handler in a context of its own, which goes with its work to other threads (gateway/ports/shards.py).
_in_context: ContextVar[Client | None] = ContextVar("reput_client", default=None)
# Of the name of a client that is told to another service. The subject of a token may be as long as its issuer likes.
NAME_CHARACTERS_MAX = 256


class Callers:
    """Finds the client of a call.

    Attributes:
        guard: knows identities; None: each connection is a client.
    """

    def __init__(self) -> None:
        self.guard: CallGuard | None = None

    def of(self, context: Any, method: str) -> Client:
        """The client; UnauthenticatedError when the guard wants an identity and there is none."""
        if self.guard is not None:
            name = self.guard.client_of(method, context)
            if name:
                return client_of_identity(name)
        return client_of_peer(context.peer())


class WorkingFor:
    """Sets the client that this thread works for inside the block, and everything that it has other threads do there.

    Not a generator: each call with an answer has such a block.
    """

    __slots__ = ("_client", "_token")

    def __init__(self, client: Client) -> None:
        self._client = client

    def __enter__(self) -> None:
        _here.client = self._client
        self._token = _in_context.set(self._client)

    def __exit__(self, *_: object) -> None:
        _in_context.reset(self._token)
        _here.client = None


def note_in_context(client: Client) -> None:
    """Sets the client that everything in the context of this thread works for, also in other threads."""
    _in_context.set(client)


def client_here(context: Any) -> Client:
    """The client that this thread works for; the connection of the call where nothing else is known."""
    return _found() or client_of_peer(context.peer())


def caller_here() -> str:
    """The name of the client that this thread works for, to tell it to another service; empty where it works for none."""
    client = _found()
    return "" if client is None else client.name[:NAME_CHARACTERS_MAX]


def caller_of_call(call: Any) -> str:
    """Likewise, of a call that has no thread (services/serving/calls/unary_call.py)."""
    client: Client | None = getattr(call, "client", None)
    return (client or client_here(call)).name[:NAME_CHARACTERS_MAX]


def _found() -> Client | None:
    return getattr(_here, "client", None) or _in_context.get()
