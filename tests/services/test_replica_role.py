"""The role of a commit log, and what services above one that does not lead say to changes."""

import grpc
import pytest

from reput.commitlog.v1.commitlog_service_pb2 import GetStatusResponse
from services.replica_role import ReplicaRole, not_leading, replica_role
from services.status import code_of


@pytest.mark.parametrize(
    ("role", "epoch", "expected"),
    [
        ("", 0, ReplicaRole(leads=True, epoch=0)),
        ("leader", 4, ReplicaRole(leads=True, epoch=4)),
        ("follower", 4, ReplicaRole(leads=False, epoch=0)),
        ("unknown", 0, ReplicaRole(leads=False, epoch=0)),
    ],
)
def test_a_log_without_replicas_leads_and_of_replicas_only_the_leader(role, epoch, expected) -> None:
    assert replica_role(GetStatusResponse(role=role, epoch=epoch)) == expected


def test_consumers_that_reach_a_follower_between_two_leaders_ask_again() -> None:
    """It was FAILED_PRECONDITION once, as of a store that is only read: consumers gave up for good."""
    assert code_of(not_leading()) is grpc.StatusCode.UNAVAILABLE
