"""RoleWatch: asks the commit logs of all replicas for their roles, each in a thread of its own."""

import threading
from collections.abc import Callable, Mapping

from services.calling.commitlog import CommitLogClient
from services.replica_role import ReplicaRole, replica_role
from store.errors import StoreError

ASK_SECONDS_MAX = 1.0
POLL_SECONDS = 0.2
LEADER, FOLLOWER, AWAY = "leader", "follower", "away"
# It answers, but does not get the leader's log: it is damaged, refused or cut off; its own status says why.
DETACHED = "detached"


def role_words(
    roles: Mapping[str, ReplicaRole | None], connected: Mapping[str, frozenset[str]] | None = None
) -> dict[str, str]:
    """What is said of each replica: of several that claim to lead, the one with the highest epoch does.

    Args:
        roles: by name; None: it does not answer.
        connected: by name of a leader: the replicas that it sends its log to.
    """
    newest = max((role.epoch for role in roles.values() if role is not None and role.leads), default=0)
    words = {}
    leaders = [name for name, role in roles.items() if role is not None and role.leads and role.epoch == newest]
    following = (connected or {}).get(leaders[0]) if leaders else None
    for name, role in roles.items():
        if role is None or (role.leads and role.epoch < newest):
            words[name] = AWAY
        else:
            is_apart = following is not None and name not in following
            words[name] = LEADER if role.leads else DETACHED if is_apart else FOLLOWER
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
        self._connected: dict[str, frozenset[str]] = {}

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

    def connected(self) -> dict[str, frozenset[str]]:
        """By name of a replica that leads: those that it sends its log to."""
        return dict(self._connected)

    def _run(self, name: str, address: str) -> None:
        client = CommitLogClient(address)
        while not self._stopped.wait(POLL_SECONDS):
            connected: frozenset[str] | None = None
            try:
                status = client.get_status(timeout_seconds=ASK_SECONDS_MAX)
                role = None if status.state == "recovering" else replica_role(status)
                if role is not None and role.leads:
                    connected = frozenset(one.name for one in status.replicas if one.connected)
            except StoreError:
                role = None
            if role != self._roles[name] or connected != self._connected.get(name):
                self._roles[name] = role
                if connected is None:
                    self._connected.pop(name, None)
                else:
                    self._connected[name] = connected
                self._changed()
        client.close()
