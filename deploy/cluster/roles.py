"""RoleWatch: asks the commit logs of all replicas for their roles, each in a thread of its own."""

import threading
from collections.abc import Callable, Mapping

from services.calling.commitlog import CommitLogClient
from services.replica_role import ReplicaRole, replica_role
from store.errors import StoreError

ASK_SECONDS_MAX = 1.0
POLL_SECONDS = 0.2
LEADER, FOLLOWER, AWAY = "leader", "follower", "away"


def role_words(roles: Mapping[str, ReplicaRole | None]) -> dict[str, str]:
    """What is said of each replica: of several that claim to lead, the one with the highest epoch does.

    Args:
        roles: by name; None: it does not answer.
    """
    newest = max((role.epoch for role in roles.values() if role is not None and role.leads), default=0)
    words = {}
    for name, role in roles.items():
        if role is None or (role.leads and role.epoch < newest):
            words[name] = AWAY
        else:
            words[name] = LEADER if role.leads else FOLLOWER
    return words


class RoleWatch:
    """See the top of this file; thread-safe.

    Args:
        addresses: of the commit logs, by name of the replica.
        changed: called by the threads after each change.
    """

    def __init__(self, addresses: Mapping[str, str], changed: Callable[[], object]) -> None:
        self._addresses = addresses
        self._changed = changed
        self._stopped = threading.Event()
        self._roles: dict[str, ReplicaRole | None] = dict.fromkeys(addresses)

    def start(self) -> None:
        """Ask from now on until `stop`."""
        for name, address in self._addresses.items():
            threading.Thread(target=self._run, args=(name, address), name=f"role-{name}", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def roles(self) -> dict[str, ReplicaRole | None]:
        """The newest answers."""
        return dict(self._roles)

    def _run(self, name: str, address: str) -> None:
        client = CommitLogClient(address)
        while not self._stopped.wait(POLL_SECONDS):
            try:
                status = client.get_status(timeout_seconds=ASK_SECONDS_MAX)
                role = None if status.state == "recovering" else replica_role(status)
            except StoreError:
                role = None
            if role != self._roles[name]:
                self._roles[name] = role
                self._changed()
        client.close()
