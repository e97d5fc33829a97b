"""The page of the store shows what each service says of itself.

The page of replicas: role, epoch, in-sync set, lag in bytes and time, and how often the leader changed.
"""

import re
from collections.abc import Sequence

import pytest

from gateway.ports.shard import STATUSES, StatusRow
from reput.gateway.v1.gateway_service_pb2 import GetStatusResponse
from store.errors import ServiceUnavailableError, StoreError
from tests.console.asking import Browser, Tags, console_over
from tests.gateway.memory_shard import MemoryShard

ServiceStatus, ReplicaStatus = GetStatusResponse.ServiceStatus, GetStatusResponse.ReplicaStatus
OVERDUE_SECONDS = 1_700_000_000  # 2023-11-14 22:13:20 UTC


class WithServices(MemoryShard):
    """A shard whose services say what the test says."""

    rows: Sequence[StatusRow] = ()

    def shard(self, broker_name="broker-a"):
        return super().shard(broker_name).serving(STATUSES, lambda request, deadline: self.rows)


def live_part(records, fan_out, status: GetStatusResponse.ServiceStatus, error: StoreError | None = None) -> str:
    """The changing part of the page, its text only."""
    shard = WithServices(records)
    shard.rows = [StatusRow(status, error)]
    app = console_over([shard], fan_out)
    try:
        return re.sub(r"<[^>]+>|\s+", " ", Browser(app).get("/store?part=live").text)
    finally:
        app.close()


def test_a_schedule_service_shows_what_waits_and_since_when_a_message_is_overdue(records, fan_out) -> None:
    idle = ServiceStatus(
        service="schedule", address="unix:/s", state="serving", scheduled_count=1_234, transaction_count=5
    )
    shown = live_part(records, fan_out, idle)
    assert "Messages that wait" in shown
    assert re.search(r"1\D?234 messages wait for a time, 5 for a verdict", shown)
    assert "the oldest was due" not in shown

    idle.oldest_due_time.FromSeconds(OVERDUE_SECONDS)
    late = live_part(records, fan_out, idle)
    assert re.search(r"the oldest was due\s+2023-11-1[45]", late), late


def test_a_schedule_service_that_does_not_answer_shows_no_counts(records, fan_out) -> None:
    shown = live_part(records, fan_out, ServiceStatus(service="schedule"), ServiceUnavailableError("gone"))

    assert "no answer" in shown
    assert "wait for a time" not in shown


def test_a_leader_shows_each_replica_with_what_it_lacks(records, fan_out) -> None:
    replicas = (
        ReplicaStatus(replica="r1", in_sync=True, connected=True),
        ReplicaStatus(replica="r2", in_sync=True, connected=True),
        ReplicaStatus(replica="r3", connected=True, lag_bytes=2_048, lag_millis=3_000),
        ReplicaStatus(replica="r4", lag_bytes=4_096, lag_millis=60_000),
    )
    log = ServiceStatus(service="commitlog", state="serving", replica="r1", role="leader", epoch=7, replicas=replicas)

    shown = live_part(records, fan_out, log)

    assert re.search(r"Replicas , epoch 7|Replicas, epoch 7", shown), shown
    for name, state in (("r1", "leads"), ("r2", "in sync"), ("r3", "catching up"), ("r4", "away")):
        assert re.search(rf"{name}\s+{state}", shown), (name, shown)
    assert re.search(r"r3\s+catching up\s+2(\.0)? Ki?B, 3", shown), shown


def test_a_shard_shows_its_name_servers_and_what_they_tell_rocketmqs_clients(records, fan_out) -> None:
    log = ServiceStatus(service="commitlog", state="serving", broker_address="127.0.0.1:10911")
    log.nameservers.update({"127.0.0.1:9876": True, "10.0.0.9:9876": False})

    shown = " ".join(live_part(records, fan_out, log).split())

    assert "Name server 127.0.0.1:9876 : tells RocketMQ&#39;s clients 127.0.0.1:10911" in shown
    assert "Name server 10.0.0.9:9876 : not registered" in shown
    assert "Name server" not in live_part(records, fan_out, ServiceStatus(service="commitlog", state="serving"))


def test_long_names_that_begin_alike_looked_alike(records, fan_out) -> None:
    begin = "reput-of-the-production-in-europe-west-4-and-its-replicas-in-three-zones"
    replicas = [ReplicaStatus(replica=f"{begin}-r{number}") for number in range(2)]
    log = ServiceStatus(service="commitlog", state="serving", address=f"{begin}.cluster.local:8082", replicas=replicas)

    shown = live_part(records, fan_out, log)

    for end in (":8082", "-r0", "-r1"):
        assert end in shown


def test_a_shard_with_one_copy_shows_no_replicas(records, fan_out) -> None:
    assert "Replicas" not in live_part(records, fan_out, ServiceStatus(service="commitlog", state="serving"))


LEADER = ReplicaStatus(replica="r1", in_sync=True, connected=True, lag_bytes=0, lag_millis=0)
NEAR = ReplicaStatus(replica="r2", in_sync=True, connected=True, lag_bytes=0, lag_millis=0)
FAR = ReplicaStatus(replica="r3", in_sync=False, connected=True, lag_bytes=3 << 20, lag_millis=2_500)
AWAY = ReplicaStatus(replica="r3", in_sync=False, connected=False, lag_bytes=5 << 20, lag_millis=90_000)


class ReplicatedShard(MemoryShard):
    """A shard whose commit log has replicas.

    Attributes:
        facts: fields of its status.
    """

    facts: dict[str, object]

    def statuses(self, deadline):
        log, *others = super().statuses(deadline)
        log.status.MergeFrom(ServiceStatus(**self.facts))
        return [log, *others]


def page_of(records, fan_out, facts: dict[str, object]) -> tuple[str, dict]:
    shard = ReplicatedShard(records[:1])
    shard.facts = facts
    app = console_over([shard], fan_out)
    browser = Browser(app)
    shown = Tags(browser.get("/replicas").text).text, browser.get_json("/replicas").json
    app.close()
    return shown


def led(*replicas: GetStatusResponse.ReplicaStatus) -> dict[str, object]:
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
