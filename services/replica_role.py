"""ReplicaRole: what a commit log is among the replicas of its shard, as its GetStatus says it."""

from dataclasses import dataclass

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from store.errors import NotLeaderError


@dataclass(frozen=True, slots=True)
class ReplicaRole:
    """A role.

    Attributes:
        leads: whether the log takes appends; a log without replicas leads always.
        epoch: of its leadership; 0 without replicas and while it does not lead.
    """

    leads: bool = True
    epoch: int = 0


def replica_role(status: pb.GetStatusResponse) -> ReplicaRole:
    """The role in a commit log's status; a service without replicas names none."""
    if not status.role:
        return ReplicaRole()
    leads = status.role == "leader"
    return ReplicaRole(leads, status.epoch if leads else 0)


def not_leading() -> NotLeaderError:
    """What a service above a log that does not lead says to every change: its caller finds the leader, and asks again."""
    return NotLeaderError("this replica does not lead its shard: try again soon")
