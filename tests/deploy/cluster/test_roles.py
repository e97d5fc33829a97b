"""What the status file says of each replica's role."""

import pytest

from deploy.cluster.roles import role_words
from services.replica_role import ReplicaRole

FOLLOWS = ReplicaRole(leads=False)


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"r1": ReplicaRole(True, 3), "r2": FOLLOWS, "r3": None}, {"r1": "leader", "r2": "follower", "r3": "away"}),
        ({"r1": ReplicaRole(True, 3), "r2": ReplicaRole(True, 4)}, {"r1": "away", "r2": "leader"}),
        ({"r1": None, "r2": FOLLOWS}, {"r1": "away", "r2": "follower"}),
    ],
    ids=["one leads", "a deposed one does not know it yet", "nobody leads"],
)
def test_one_replica_at_most_is_called_the_leader(roles, words) -> None:
    assert role_words(roles) == words


def test_a_replica_that_the_leader_sends_nothing_to_is_not_called_a_follower() -> None:
    """Its log is damaged, or it was refused: it answers, but holds no copy that anyone could count on."""
    roles = {"r1": ReplicaRole(True, 3), "r2": FOLLOWS, "r3": FOLLOWS, "r4": None}
    words = role_words(roles, {"r1": frozenset({"r2"})})
    assert words == {"r1": "leader", "r2": "follower", "r3": "detached", "r4": "away"}
