"""The record of a shard as a document."""

import json

import pytest

from commitlog_svc.replication.leading.record import ShardRecord
from store.errors import StoreCorruptedError

RECORD = ShardRecord(
    7,
    "r1",
    frozenset({"r2", "r1"}),
    912,
    4000,
    "r2",
    {"r1": {"commitlog": "10.0.0.1:8082", "index": "10.0.0.1:8084"}},
    {"r1": "a", "r2": "b"},
)


def test_a_record_is_the_json_that_the_decision_record_shows() -> None:
    assert json.loads(RECORD.to_bytes()) == {
        "epoch": 7,
        "leader": "r1",
        "in_sync": ["r1", "r2"],
        "renewal": 912,
        "lease_millis": 4000,
        "hand_over_to": "r2",
        "addresses": {"r1": {"commitlog": "10.0.0.1:8082", "index": "10.0.0.1:8084"}},
        "store_ids": {"r1": "a", "r2": "b"},
    }
    assert ShardRecord.from_bytes(RECORD.to_bytes()) == RECORD


def test_fields_of_a_later_release_are_passed_over() -> None:
    document = json.loads(RECORD.to_bytes()) | {"later": 1}

    assert ShardRecord.from_bytes(json.dumps(document).encode()) == RECORD


@pytest.mark.parametrize(
    "damage",
    [
        {"epoch": "7"},
        {"epoch": -1},
        {"epoch": True},
        {"leader": None},
        {"in_sync": 3},
        {"in_sync": [1]},
        {"addresses": []},
        {"addresses": {"r1": "10.0.0.1"}},
        {"store_ids": {"r1": 1}},
    ],
    ids=str,
)
def test_a_damaged_record_is_refused_with_what_to_do(damage: dict[str, object]) -> None:
    document = json.loads(RECORD.to_bytes()) | damage

    with pytest.raises(StoreCorruptedError, match="reput lead --force"):
        ShardRecord.from_bytes(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff"])
def test_what_is_no_record_is_refused_too(data: bytes) -> None:
    with pytest.raises(StoreCorruptedError):
        ShardRecord.from_bytes(data)


@pytest.mark.parametrize("name", ["leader", "hand_over_to"])
def test_half_of_a_surrogate_in_a_record_ended_the_lead_at_its_next_renewal(name: str) -> None:
    """Found by fuzzing: such a record was read, and could not be written again."""
    document = json.loads(ShardRecord(1, "a", frozenset({"a"})).to_bytes()) | {name: "\ud800"}
    with pytest.raises(StoreCorruptedError, match="reput lead --force"):
        ShardRecord.from_bytes(json.dumps(document).encode())
