"""The module of each service."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from services.serving.server import Service

MODULES = {
    "commitlog": "commitlog_svc",
    "consumequeue": "consumequeue_svc",
    "index": "index_svc",
    "consumer": "consumer_svc",
    "schedule": "schedule_svc",
    "nameserver": "nameserver_svc",
    "gateway": "gateway",
}
# The followers of a log. The first one's process may have the others beside it: it ends first, because it calls them.
FOLLOWERS = ("consumer", "consumequeue", "index", "schedule")


def load_service(name: str) -> "Service[Any]":
    """Import a service, which takes most of the time of its start."""
    service: Service[Any] = importlib.import_module(f"{MODULES[name]}.__main__").SERVICE
    return service
