"""Settings of the replication."""

from dataclasses import dataclass

FETCH_COUNT_MAX = 8  # fetches that a leader serves to one replica at the same time


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """Settings of the replication.

    Attributes:
        min_in_sync: least number of in-sync replicas, the leader among them, with which `replicated` appends are taken.
        lag_seconds_max: a replica that lags more leaves the in-sync set.
        bytes_per_second_max: of the log to one follower, over its stream and its fetches; 0: no limit.
        fetch_count: whole files that this replica fetches at the same time while it is far behind.
    """

    min_in_sync: int = 2
    lag_seconds_max: float = 5.0
    bytes_per_second_max: int = 0
    fetch_count: int = 3
