"""What a replica knows about who leads, and what it needs of the leadership of its shard."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from commitlog_svc.replication.leading.record import NO_STORE_IDS


class Role(enum.Enum):
    """The role of a replica; in one life of a process it only goes up, and a leader that is deposed ends its process."""

    UNKNOWN = "unknown"
    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class LeadershipView:
    """One moment's knowledge.

    Attributes:
        role: of this replica. UNKNOWN: there is no record, or it was never read.
        epoch: of the record; of a leader, its own; without a record the last one that is known.
        leader: name, empty where nobody leads.
        leader_address: HOST:PORT of its commitlog service, empty where not known.
        in_sync: who has to have a record before it is confirmed. Of a leader whose change of the set is under way: both
            sets together.
        hand_over_to: an operator asks the leader to hand over to this replica.
        resigned: this replica led and must not any longer: the process has to end.
        store_ids: see ShardRecord.
        refusal: why this replica does not stand for election although nobody leads, for logs and the operator.
    """

    role: Role
    epoch: int = 0
    leader: str = ""
    leader_address: str = ""
    in_sync: frozenset[str] = frozenset()
    hand_over_to: str = ""
    resigned: bool = False
    refusal: str = ""
    store_ids: Mapping[str, str] = field(default_factory=dict)


class Leadership(Protocol):
    """Who leads, decided at the coordinator; thread-safe. See leadership.py.

    Attributes:
        now: the clock of all times here: seconds, rising, of this machine.
    """

    now: Callable[[], float]

    @property
    def view(self) -> LeadershipView:
        """What is known now."""
        ...

    def may_acknowledge(self) -> bool:
        """Whether this replica leads and no other can lead yet."""
        ...

    def note_leader_heard(self, epoch: int) -> bool:
        """The leader of an epoch spoke on its stream; whether to answer it: an answer is a promise not to stand for a lease."""
        ...

    def note_promise(self, replica: str, sent_at: float) -> None:
        """A replica has answered what this leader sent at that time: it has not stood before."""
        ...

    def note_epoch(self, epoch: int) -> None:
        """A replica knows of an epoch: the leader of an earlier one resigns."""
        ...

    def change_in_sync(self, names: frozenset[str], store_ids: Mapping[str, str] = NO_STORE_IDS) -> bool:
        """Stores another in-sync set, and the stores of some of its members; False when that did not happen, or is not known.

        Blocks.
        """
        ...

    def hand_over(self, to: str) -> None:
        """Gives the lead up in favour of a replica that has everything. Blocks."""
        ...

    def refuse_hand_over(self, to: str) -> None:
        """Takes an operator's wish to hand over to that replica out of the record, soon."""
        ...

    def wait_change(self, view: LeadershipView, timeout_seconds: float) -> LeadershipView:
        """The view, as soon as it is another than that one, at the latest after the timeout."""
        ...
