"""The page of the store shows what each service says of itself."""

import re
from collections.abc import Sequence
from dataclasses import replace

from gateway.ports.shard import STATUSES, ReplicaStatus, ServiceStatus
from store.errors import ServiceUnavailableError
from tests.console.asking import Browser, console_over
from tests.gateway.test_servicer import ProtoShard

OVERDUE_MILLIS = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC


class WithServices(ProtoShard):
    """A shard whose services say what the test says."""

    rows: Sequence[ServiceStatus] = ()

    def shard(self, broker_name="broker-a"):
        return super().shard(broker_name).serving(STATUSES, lambda request, deadline: self.rows)


def live_part(records, fan_out, *rows: ServiceStatus) -> str:
    """The changing part of the page, its text only."""
    shard = WithServices(records)
    shard.rows = rows
    app = console_over([shard], fan_out)
    try:
        return re.sub(r"<[^>]+>|\s+", " ", Browser(app).get("/store?part=live").text)
    finally:
        app.close()


def test_a_schedule_service_shows_what_waits_and_since_when_a_message_is_overdue(records, fan_out) -> None:
    idle = ServiceStatus("schedule", "unix:/s", state="serving", scheduled_count=1_234, transaction_count=5)
    shown = live_part(records, fan_out, idle)
    assert "Messages that wait" in shown
    assert re.search(r"1\D?234 messages wait for a time, 5 for a verdict", shown)
    assert "the oldest was due" not in shown

    late = live_part(records, fan_out, replace(idle, oldest_due_time_millis=OVERDUE_MILLIS))
    assert re.search(r"the oldest was due\s+2023-11-1[45]", late), late


def test_a_schedule_service_that_does_not_answer_shows_no_counts(records, fan_out) -> None:
    shown = live_part(records, fan_out, ServiceStatus("schedule", "unix:/s", ServiceUnavailableError("gone")))

    assert "no answer" in shown
    assert "wait for a time" not in shown


def test_a_leader_shows_each_replica_with_what_it_lacks(records, fan_out) -> None:
    replicas = (
        ReplicaStatus("r1", True, True, 0, 0),
        ReplicaStatus("r2", True, True, 0, 0),
        ReplicaStatus("r3", False, True, 2_048, 3_000),
        ReplicaStatus("r4", False, False, 4_096, 60_000),
    )
    log = ServiceStatus("commitlog", "a:1", state="serving", replica="r1", role="leader", epoch=7, replicas=replicas)

    shown = live_part(records, fan_out, log)

    assert re.search(r"Replicas , epoch 7|Replicas, epoch 7", shown), shown
    for name, state in (("r1", "leads"), ("r2", "in sync"), ("r3", "catching up"), ("r4", "away")):
        assert re.search(rf"{name}\s+{state}", shown), (name, shown)
    assert re.search(r"r3\s+catching up\s+2(\.0)? Ki?B, 3", shown), shown


def test_a_shard_with_one_copy_shows_no_replicas(records, fan_out) -> None:
    assert "Replicas" not in live_part(records, fan_out, ServiceStatus("commitlog", "a:1", state="serving"))
