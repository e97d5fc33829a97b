"""What a replica knows about who leads."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


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
