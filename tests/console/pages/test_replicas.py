"""The page of replicas: role, epoch, in-sync set, lag in bytes and time, and how often the leader changed."""

from dataclasses import replace

import pytest

from gateway.ports.shard import ReplicaStatus
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.test_servicer import ProtoShard

LEADER = ReplicaStatus("r1", in_sync=True, connected=True, lag_bytes=0, lag_millis=0)
NEAR = ReplicaStatus("r2", in_sync=True, connected=True, lag_bytes=0, lag_millis=0)
FAR = ReplicaStatus("r3", in_sync=False, connected=True, lag_bytes=3 << 20, lag_millis=2_500)
AWAY = ReplicaStatus("r3", in_sync=False, connected=False, lag_bytes=5 << 20, lag_millis=90_000)


class ReplicatedShard(ProtoShard):
    """A shard whose commit log has replicas.

    Attributes:
        facts: fields of its status.
    """

    facts: dict[str, object]

    def statuses(self, deadline):
        log, *others = super().statuses(deadline)
        return [replace(log, **self.facts), *others]


def page_of(records, fan_out, facts: dict[str, object]) -> tuple[str, dict]:
    shard = ReplicatedShard(records[:1])
    shard.facts = facts
    app = console_over([shard], fan_out)
    browser = Browser(app)
    shown = Tags(browser.get("/replicas").text).text, browser.get_json("/replicas").json
    app.close()
    return shown


def led(*replicas: ReplicaStatus) -> dict[str, object]:
    return {"role": "leader", "replica": "r1", "epoch": 4, "replicas": replicas, "coordinator": "127.0.0.1:2379"}


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (led(LEADER, NEAR), "all replicas are in sync"),
        (led(LEADER, NEAR, FAR), "a replica is away or behind"),
        (led(LEADER, NEAR, AWAY), "a replica is away or behind"),
        (led(LEADER, FAR), "no other replica is in sync"),
        ({"role": "follower", "replica": "r2", "epoch": 4}, "no leader is known"),
        ({}, "one copy, no replicas"),
    ],
)
def test_each_shard_leads_with_its_verdict(records, fan_out, facts, verdict: str) -> None:
    text, _ = page_of(records, fan_out, facts)

    assert verdict in text
    assert text.index(verdict) < text.index("asked at")


def test_the_page_shows_leader_epoch_changes_in_sync_set_and_lag(records, fan_out) -> None:
    text, answer = page_of(records, fan_out, led(LEADER, NEAR, FAR))

    assert "Leader r1 Epoch 4 Changes of the leader 3 In sync 2 of 3 Coordinator 127.0.0.1:2379" in text
    assert "r3 follows catching up 3.0 MiB 2.5 s" in text
    assert "r2 follows in sync 0 B 0 ms" in text
    (shard,) = answer["shards"]
    assert [each["replica"] for each in shard["replicas"]] == ["r1", "r2", "r3"]


def test_a_replica_that_is_away_is_said_to_be(records, fan_out) -> None:
    assert "r3 follows away 5.0 MiB 90.0 s" in page_of(records, fan_out, led(LEADER, NEAR, AWAY))[0]


def test_the_page_is_in_the_navigation_of_every_page(browser: Browser) -> None:
    assert 'href="/replicas"' in browser.get("/topics").text
