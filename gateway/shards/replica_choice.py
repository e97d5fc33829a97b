"""Which replicas of a shard answer a query: pure decisions.

    caller's choice   the shard has a leader                           nobody leads, or the leader does not answer
    leader            the leader                                       the last leader
    any               the leader; old records: a replica, leader       the replicas, freshest first
    replica           a near replica, then the leader                  the replicas, freshest first

A replica beside a leader never makes an answer less complete: the leader says where the log ends, and what a replica lacks or
does not answer is asked of the leader. What a leader does not answer is asked of every replica: that it is gone may not be
known yet. Without a leader nobody can say that an answer has everything: it is PARTIAL, and
`Staleness` says how much may be missing at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

# A replica beside a leader that lacks more is not asked first: most of its answers would have to be asked again.
BESIDE_LEADER_SECONDS_MAX = 10.0


class ReadFrom(Enum):
    """The values are those of `reput.gateway.v1.ReadFrom`, and of the gateway's setting."""

    LEADER = "leader"
    ANY = "any"
    REPLICA = "replica"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a caller allows.

    Attributes:
        read_from: which replicas.
        staleness_seconds_max: replicas that may lack more are not asked; None: any may be, and beside a leader first only one
            that is near, see `is_near`.
    """

    read_from: ReadFrom = ReadFrom.LEADER
    staleness_seconds_max: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What a replica last said of itself.

    Attributes:
        leads: whether it takes appends.
        confirm_offset: what it shows of the log (bytes).
        leader_confirm_offset: what it has heard that there is at least (bytes); 0 of a leader.
        whole_at: everything that was confirmed before this moment lies before `confirm_offset`; None: not known.
        in_memory_size_bytes: how much of the end of the log is in its memory; None: not known.
    """

    leads: bool
    confirm_offset: int
    leader_confirm_offset: int = 0
    whole_at: float | None = None
    in_memory_size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Staleness:
    """What an answer from replicas may lack at most, where nobody can say that it has everything.

    Attributes:
        seconds: everything that was confirmed longer before the query arrived is there; None: not known.
        known_lag_bytes: what the replicas know that they lack.
    """

    seconds: float | None
    known_lag_bytes: int


def fit(replicas: Mapping[str, ReplicaFacts | None], choice: Choice, now: float) -> Sequence[str]:
    """The replicas that may answer where the leader does not, the freshest first; of one that is not known: none.

    Args:
        replicas: what those that do not lead have said, by name.
        choice: the caller's.
        now: on the clock of `whole_at`.
    """
    known = {name: facts for name, facts in replicas.items() if facts is not None and not facts.leads}
    ages = {name: _age(facts, now) for name, facts in known.items()}
    limit = choice.staleness_seconds_max
    allowed = [name for name in known if limit is None or ages[name] <= limit]
    return sorted(allowed, key=lambda name: (ages[name], -known[name].confirm_offset, name))


def is_near(replica: ReplicaFacts, choice: Choice, now: float) -> bool:
    """Whether a replica that is fit may be asked before a leader that answers."""
    return choice.staleness_seconds_max is not None or _age(replica, now) <= BESIDE_LEADER_SECONDS_MAX


def _age(replica: ReplicaFacts, now: float) -> float:
    return float("inf") if replica.whole_at is None else max(0.0, now - replica.whole_at)


def old_end(leader: ReplicaFacts | None) -> int:
    """Records before this offset (bytes) are not expected in the leader's memory; 0: all may be."""
    if leader is None or leader.in_memory_size_bytes is None:
        return 0
    return max(0, leader.confirm_offset - leader.in_memory_size_bytes)


def staleness_of(replicas: Sequence[ReplicaFacts], arrived_at: float, built_offset: int) -> Staleness:
    """What an answer may lack that these replicas gave.

    Args:
        replicas: what they had said before the query arrived; at least one.
        arrived_at: when it arrived, on the clock of `whole_at`.
        built_offset: the answer has everything before it (bytes).
    """
    heard = max(max(one.leader_confirm_offset, one.confirm_offset) for one in replicas)
    lag_bytes = max(0, heard - built_offset)
    # What was said holds for the log; queues and index may be behind it.
    ages = [
        arrived_at - one.whole_at if one.whole_at is not None and built_offset >= one.confirm_offset else None
        for one in replicas
    ]
    known = [age for age in ages if age is not None]
    return Staleness(max(0.0, *known) if len(known) == len(ages) else None, lag_bytes)
