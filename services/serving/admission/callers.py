"""The client of a call: a verified identity, else the connection (shares.py has the rule for clients)."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from services.serving.admission.shares import Client, client_of_identity, client_of_peer
from services.serving.call_guard import CallGuard

_here = threading.local()


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


@contextlib.contextmanager
def working_for(client: Client) -> Iterator[None]:
    """Sets the client that this thread works for inside the block."""
    _here.client = client
    try:
        yield
    finally:
        _here.client = None


def client_here(context: Any) -> Client:
    """The client that this thread works for; the connection of the call where nothing else is known."""
    client: Client | None = getattr(_here, "client", None)
    return client or client_of_peer(context.peer())
