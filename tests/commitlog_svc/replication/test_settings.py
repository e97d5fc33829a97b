"""Settings of a replica that contradict one another are refused with words."""

from typing import Any

import pydantic
import pytest

from commitlog_svc.settings import CommitLogSettings

ETCD = "etcd://127.0.0.1:2379/reput"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"coordinator": ETCD}, "replica_name is not: each replica of a shard needs a name"),
        ({"coordinator": ETCD, "replica_name": "r1", "read_only": True}, "a replica writes its log"),
        (
            {"coordinator": ETCD, "replica_name": "r1", "mirror": "rocketmq://10.0.0.1:10912"},
            "a mirror has one copy",
        ),
        ({"flush_mode": "replicated"}, "a shard with one copy has sync at most"),
        ({"replica_name": "R/1"}, "replica_name"),
        ({"min_in_sync": 0}, "min_in_sync"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=words):
        CommitLogSettings(**settings)


def test_a_replica_with_a_name_and_a_coordinator_is_accepted_with_its_limits() -> None:
    settings = CommitLogSettings(coordinator=ETCD, replica_name="r1", flush_mode="replicated", lag_seconds_max=2)
    limits = settings.replica_limits
    assert (limits.min_in_sync, limits.lag_seconds_max, limits.bytes_per_second_max) == (2, 2.0, 0)
