"""Which replicas may answer, what is old, and what an answer may lack: decisions alone."""

import pytest

from gateway.shards.replica_choice import (
    BESIDE_LEADER_SECONDS_MAX,
    Choice,
    ReadFrom,
    ReplicaFacts,
    Staleness,
    fit,
    is_near,
    old_end,
    staleness_of,
)

NOW = 1_000.0


def follows(age: float | None, confirm: int = 100, heard: int = 100) -> ReplicaFacts:
    return ReplicaFacts(False, confirm, heard, None if age is None else NOW - age)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(None, ["r2", "r3", "r4", "r6"]), (1.0, ["r2"]), (0.0, []), (3_600.0, ["r2", "r3", "r4"])],
    ids=["any", "limited", "never stale", "a wide limit"],
)
def test_replicas_answer_in_the_order_of_their_age_within_the_limit(limit: float | None, expected: list[str]) -> None:
    replicas = {
        "r6": follows(None),
        "r4": follows(BESIDE_LEADER_SECONDS_MAX + 1),
        "r3": follows(5.0),
        "r2": follows(0.5),
        "r5": None,
        "old": ReplicaFacts(True, 100),
    }
    assert fit(replicas, Choice(ReadFrom.ANY, limit), NOW) == expected


@pytest.mark.parametrize(
    ("age", "limit", "expected"),
    [(0.5, None, True), (11.0, None, False), (None, None, False), (11.0, 20.0, True)],
    ids=["fresh", "stale", "not known", "as the caller allows"],
)
def test_a_replica_is_asked_before_a_leader_only_when_it_lacks_little(
    age: float | None, limit: float | None, expected: bool
) -> None:
    assert is_near(follows(age), Choice(ReadFrom.REPLICA, limit), NOW) is expected


def test_of_two_replicas_of_one_age_the_one_with_more_of_the_log_is_first() -> None:
    replicas = {"r2": follows(None, 50), "r3": follows(None, 70)}
    assert fit(replicas, Choice(ReadFrom.ANY), NOW) == ["r3", "r2"]


@pytest.mark.parametrize(
    ("leader", "expected"),
    [
        (None, 0),
        (ReplicaFacts(True, 1_000), 0),
        (ReplicaFacts(True, 1_000, in_memory_size_bytes=400), 600),
        (ReplicaFacts(True, 1_000, in_memory_size_bytes=0), 1_000),
        (ReplicaFacts(True, 100, in_memory_size_bytes=400), 0),
    ],
)
def test_cold_is_what_lies_further_from_the_end_than_the_memory_holds(
    leader: ReplicaFacts | None, expected: int
) -> None:
    assert old_end(leader) == expected


@pytest.mark.parametrize(
    ("replicas", "built", "expected"),
    [
        ([follows(2.0)], 100, Staleness(2.0, 0)),
        ([follows(2.0, heard=150)], 100, Staleness(2.0, 50)),
        ([follows(2.0), follows(3.0)], 100, Staleness(3.0, 0)),
        ([follows(2.0)], 99, Staleness(None, 1)),
        ([follows(None)], 100, Staleness(None, 0)),
        ([follows(2.0), follows(None)], 100, Staleness(None, 0)),
        ([follows(-1.0)], 100, Staleness(0.0, 0)),
    ],
    ids=["whole", "heard of more", "the oldest counts", "not built", "not known", "one not known", "asked since"],
)
def test_an_answer_may_lack_what_the_oldest_replica_lacks_and_what_is_not_built(
    replicas: list[ReplicaFacts], built: int, expected: Staleness
) -> None:
    assert staleness_of(replicas, NOW, built) == expected
