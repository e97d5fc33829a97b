"""Lookups between services of one process: the handler runs in the caller's thread, and no socket is used.

Two threads that share one interpreter lock hand it over four times for a lookup of 100 us, which costs more than the lookup
(ADR 0120). Only lookups of hosted services go this way (services/serving/hosted.py): short reads that may be repeated. A lookup
ends when its handler ends, also behind the caller's deadline. The rest of a process's calls use its sockets.
"""

import os
from collections.abc import Callable

from services.local.wire import LocalMethod

# Answers a request's bytes; raises StatusError as a connection does.
Answers = Callable[[LocalMethod, bytes], bytes]

# By path of the socket; a path belongs to one LocalServer at a time.
_servers: dict[str, Answers] = {}


def join(path: str, answers: Answers) -> None:
    """A server of this process listens there."""
    _servers[path] = answers


def leave(path: str, answers: Answers) -> None:
    """It listens no more."""
    if _servers.get(path) == answers:
        del _servers[path]


def server_at(path: str) -> Answers | None:
    """What listens there, in this process."""
    return _servers.get(path)


os.register_at_fork(after_in_child=_servers.clear)  # the threads of the services are not in the child
