"""The replicas of each shard: who leads, since which epoch, who is in sync, and how far each is behind."""

from dataclasses import dataclass
from typing import Any

from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class ShardReplicas:
    """The replicas of a shard, as its leader says.

    Attributes:
        status: the answer of the commit log service; its error where it did not answer.
        leader: name of the leader; empty: not known.
        failover_count: how often the lead changed: each leader after the first has begun an epoch.
        in_sync_count: replicas that must have a record before it is confirmed; only these may lead.
        verdict: `single` (one copy), `no-answer`, `no-leader`, `alone` (no other replica is in sync), `behind`, or `good`.
    """

    broker_name: str
    status: Any
    leader: str
    failover_count: int
    in_sync_count: int
    verdict: str


def replicas_page(calls: Calls, question: Question) -> Page:
    """All shards; `part=live` gives only the changing part."""
    stopwatch = Stopwatch()
    part = question.choice("part", ("all", "live"), "all")
    answer = calls.ask(calls.gateway.GetStatus, pb.GetStatusRequest())
    shards = [_shard(row) for row in answer.services if row.service == "commitlog"]
    values = {"shards": shards, "now_millis": question.now_millis, "took_millis": stopwatch.millis()}
    template = "replicas.html" if part == "all" else "replicas_live.html"
    rows = [to_json(shard.status) for shard in shards]
    return Page(template, values, {"shards": rows, "tookMillis": stopwatch.millis()})


def _shard(row: Any) -> ShardReplicas:
    in_sync_count = sum(replica.in_sync for replica in row.replicas)
    leads = row.role == "leader"
    if row.HasField("error"):
        verdict = "no-answer"
    elif not row.role:
        verdict = "single"
    elif not leads:
        verdict = "no-leader"
    elif in_sync_count < 2:
        verdict = "alone"
    else:
        all_there = all(replica.in_sync and replica.connected for replica in row.replicas)
        verdict = "good" if all_there else "behind"
    return ShardReplicas(
        row.broker_name, row, row.replica if leads else "", max(0, row.epoch - 1), in_sync_count, verdict
    )
