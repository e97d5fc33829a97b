"""The store: the state of each service of each shard, and its changes over time. The replicas of each shard: who leads, since
which epoch, who is in sync, and how far each is behind.
"""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.parts.charts import Line, line
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb

# Five minutes of samples. Samples are taken only while a page is open.
SAMPLE_COUNT_MAX = 150
SAMPLE_SECONDS_MIN = 1.0
SPAN_SECONDS = 300.0
# Further shards are in the table, without charts.
CHARTED_SHARD_COUNT_MAX = 8
CHART_WIDTH, CHART_HEIGHT = 320, 72


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of one shard at a time (monotonic seconds); sizes in bytes. None: that service did not answer."""

    seconds: float
    log_end: int | None
    flushed: int | None
    queued: int | None
    indexed: int | None


@dataclass(frozen=True, slots=True)
class ShardView:
    """A shard on the page.

    Attributes:
        rows: the answers of its services.
        charts: name of the chart, its line (None: too few samples), and whether its unit is bytes per second.
        disk_percent: of the disk in use; None when it is not known.
        recovery_percent: of a running recovery; None when there is none.
        lag_millis: by builder, the age of its newest record behind the log's; without builders for which it is unknown.
    """

    broker_name: str
    rows: Sequence[Any]
    charts: Sequence[tuple[str, Line | None, bool]]
    disk_percent: float | None
    recovery_percent: float | None
    lag_millis: dict[str, int]


@dataclass(slots=True)
class StoreHistory:
    """The last samples by shard, taken when a page is made; thread-safe."""

    clock: Callable[[], float] = time.monotonic
    _samples: dict[str, deque[Sample]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, answer: Any) -> dict[str, list[Sample]]:
        """Add a sample from an answer, unless the last one is fresh; returns all samples."""
        now = self.clock()
        with self._lock:
            for broker_name, rows in _by_shard(answer).items():
                kept = self._samples.setdefault(broker_name, deque(maxlen=SAMPLE_COUNT_MAX))
                if not kept or now - kept[-1].seconds >= SAMPLE_SECONDS_MIN:
                    kept.append(_sample(now, rows))
            return {name: list(samples) for name, samples in self._samples.items()}


def store_page(history: StoreHistory, calls: Calls, question: Question) -> Page:
    """The state of all services behind the gateway; `part=live` gives only the changing part."""
    stopwatch = Stopwatch()
    answer = calls.ask(calls.gateway.GetStatus, pb.GetStatusRequest())
    took_millis = stopwatch.millis()
    samples = history.note(answer)
    part = question.choice("part", ("all", "live"), "all")
    shards = [
        _view(name, rows, samples.get(name, []) if number < CHARTED_SHARD_COUNT_MAX else [])
        for number, (name, rows) in enumerate(_by_shard(answer).items())
    ]
    values = {
        "shards": shards,
        "version": answer.version,
        "took_millis": took_millis,
        "now_millis": question.now_millis,
        "width": CHART_WIDTH,
        "height": CHART_HEIGHT,
        "span_minutes": int(SPAN_SECONDS // 60),
    }
    template = "store.html" if part == "all" else "store_live.html"
    return Page(template, values, {"answer": to_json(answer), "tookMillis": took_millis})


def _by_shard(answer: Any) -> dict[str, list[Any]]:
    shards: dict[str, list[Any]] = {}
    for service in answer.services:
        shards.setdefault(service.broker_name, []).append(service)
    return shards


def _sample(now: float, rows: Sequence[Any]) -> Sample:
    known = {row.service: row for row in rows if not row.HasField("error")}
    log, queue, index = known.get("commitlog"), known.get("consumequeue"), known.get("index")
    return Sample(
        now,
        log.log_end_offset if log is not None else None,
        log.next_offset if log is not None else None,
        queue.next_offset if queue is not None else None,
        # A switched-off index has no lag.
        index.next_offset if index is not None and index.state != "off" else None,
    )


def _view(broker_name: str, rows: Sequence[Any], samples: Sequence[Sample]) -> ShardView:
    log = next((row for row in rows if row.service == "commitlog" and not row.HasField("error")), None)
    disk_percent = recovery_percent = None
    lag_millis: dict[str, int] = {}
    if log is not None and log.disk_total_bytes:
        disk_percent = round(100 * (1 - log.disk_free_bytes / log.disk_total_bytes), 1)
    if log is not None and log.recovery_end_offset:
        length = max(1, log.recovery_end_offset - log.recovery_begin_offset)
        recovery_percent = round(100 * (log.recovery_next_offset - log.recovery_begin_offset) / length, 1)
    if log is not None and log.HasField("newest_store_time"):
        for row in rows:
            if row.service in ("consumequeue", "index") and row.HasField("newest_store_time"):
                lag = log.newest_store_time.ToMilliseconds() - row.newest_store_time.ToMilliseconds()
                lag_millis[row.service] = max(0, lag)
    return ShardView(broker_name, rows, _charts(samples), disk_percent, recovery_percent, lag_millis)


def _charts(samples: Sequence[Sample]) -> list[tuple[str, Line | None, bool]]:
    if not samples:
        return []
    rates = [
        (after.seconds, max(0.0, (after.log_end - before.log_end) / (after.seconds - before.seconds)))
        for before, after in itertools.pairwise(samples)
        if before.log_end is not None and after.log_end is not None and after.seconds > before.seconds
    ]
    series: list[tuple[str, list[tuple[float, float]], bool]] = [("appended", rates, True)]
    for name, attribute in (("unflushed", "flushed"), ("consumequeue", "queued"), ("index", "indexed")):
        points = [
            (sample.seconds, float(max(0, sample.log_end - reached)))
            for sample in samples
            if sample.log_end is not None and (reached := getattr(sample, attribute)) is not None
        ]
        series.append((name, points, False))
    return [(name, line(points, SPAN_SECONDS, CHART_WIDTH, CHART_HEIGHT), rate) for name, points, rate in series]


@dataclass(frozen=True, slots=True)
class ShardReplicas:
    """The replicas of a shard, as its leader says.

    Attributes:
        status: the answer of the commit log service; its error where it did not answer.
        leader: name of the leader; empty: not known.
        failover_count: how often the lead changed: each leader after the first has begun an epoch.
        in_sync_count: replicas that must have a record before it is confirmed; only these may lead.
        health: `single` (one copy), `no-answer`, `no-leader`, `alone` (no other replica is in sync), `behind`, or `good`.
    """

    broker_name: str
    status: Any
    leader: str
    failover_count: int
    in_sync_count: int
    health: str


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
        health = "no-answer"
    elif not row.role:
        health = "single"
    elif not leads:
        health = "no-leader"
    elif in_sync_count < 2:
        health = "alone"
    else:
        all_there = all(replica.in_sync and replica.connected for replica in row.replicas)
        health = "good" if all_there else "behind"
    return ShardReplicas(
        row.broker_name, row, row.replica if leads else "", max(0, row.epoch - 1), in_sync_count, health
    )
