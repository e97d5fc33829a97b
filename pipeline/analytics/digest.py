"""The data of the page: a bounded part of the published tables, in plain Python.

The tables may have millions of rows; the page shows of each the topics with the most messages, the first rows, or sums.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.analytics.texts import time_text

TOPIC_COUNT_MAX = 50  # rows of the tables by topic
BAND_COUNT_MAX = 7  # topics with their own colour in the charts; the last colour is for all others
LISTED_COUNT_MAX = 20  # gaps, duplicates
OTHERS = "all others"
BUCKET_COUNT_MAX = 120  # points of a curve that can still be told apart
DAY_SECONDS = 86_400
BUCKETS_SECONDS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, DAY_SECONDS)

Row = dict[str, Any]


@dataclass
class Timeline:
    """Traffic over time in equal buckets, including empty ones.

    Attributes:
        bucket_seconds: length of a bucket.
        begins_millis: begin of each bucket, since 1970.
        messages: messages per second by topic, for the topics with the most messages and OTHERS.
        bytes: bytes per second, for the same topics.
        delay_p50: median delay from birth to store in each bucket (milliseconds); None without a message.
        delay_p99: 99th percentile of the delay; see `delay_p50`.
    """

    bucket_seconds: int
    begins_millis: list[int]
    messages: dict[str, list[float]]
    bytes: dict[str, list[float]]
    delay_p50: list[float | None]
    delay_p99: list[float | None]

    def titles(self) -> list[str]:
        """Full names of the buckets."""
        return [f"{time_text(begin)} UTC" for begin in self.begins_millis]


@dataclass
class GroupLag:
    """How far a group is behind in a topic.

    Attributes:
        consumer_group: the group.
        topic: the topic.
        queue_count: queues that the group has a position in.
        counts: messages behind at the end of each bucket, all queues together; None before its first position.
        millis: how long the oldest of them has waited (milliseconds); None if that is not known.
        begins_millis: begin of each bucket.
    """

    consumer_group: str
    topic: str
    queue_count: int
    counts: list[float | None]
    millis: list[float | None]
    begins_millis: list[int]


@dataclass
class Digest:
    """The data of the page.

    Attributes:
        store: path of the store.
        made_at_millis: when the job began.
        totals: sums over all topics, named as in the tables.
        topics: rows of `topics` joined with those of `keys`, most messages first.
        timeline: traffic over time; None for an empty log.
        queues: rows of `queues` by topic, for the topics shown.
        hot_keys: rows of `hot_keys` by topic, for the topics shown.
        gaps: the largest gaps.
        duplicates: unique keys with the most copies.
        lags: rows of `lag` summed over the queues of a group and topic, for the groups that are shown, and for each bucket.
        waits: rows of `consume_delays`, most messages first.
        retries: rows of `retries`, most copies first.
        growth: rows of `growth`.
        index_files: rows of `index_files`, the oldest first.
        chains: rows of `index_chains`.
        row_counts: count of rows of each table.
    """

    store: str
    made_at_millis: int
    totals: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    topics: list[Row] = field(default_factory=list)
    timeline: Timeline | None = None
    queues: dict[str, list[Row]] = field(default_factory=dict)
    hot_keys: dict[str, list[Row]] = field(default_factory=dict)
    gaps: list[Row] = field(default_factory=list)
    duplicates: list[Row] = field(default_factory=list)
    lags: list["GroupLag"] = field(default_factory=list)
    waits: list[Row] = field(default_factory=list)
    retries: list[Row] = field(default_factory=list)
    growth: list[Row] = field(default_factory=list)
    index_files: list[Row] = field(default_factory=list)
    chains: list[Row] = field(default_factory=list)
    row_counts: dict[str, int] = field(default_factory=dict)


def digest_of(out: Path, store: str, made_at_millis: int, bucket_seconds: int, row_counts: Mapping[str, int]) -> Digest:
    """The digest of the tables in a directory.

    Args:
        out: the directory; it has `NAME.parquet` for each table.
        store: path of the store, to be shown.
        made_at_millis: when the job began.
        bucket_seconds: bucket length of the table `timeline`.
        row_counts: count of rows of each table.
    """
    digest = Digest(store, made_at_millis, row_counts=dict(row_counts))

    def table(name: str, **options: Any) -> pa.Table:
        return _with_millis(pq.read_table(out / f"{name}.parquet", **options))

    topics = table("topics")
    for name in ("message_count", "store_size_bytes", "born_after_store_count"):
        digest.totals[name] = pc.sum(topics.column(name)).as_py() or 0
    for name, pick in (("first_store_time", pc.min), ("last_store_time", pc.max)):
        if topics.num_rows:
            digest.totals[name] = pick(topics.column(name)).as_py()
    digest.topics = topics.slice(0, TOPIC_COUNT_MAX).to_pylist()
    names = [row["topic"] for row in digest.topics]
    shown = [("topic", "in", names)] if names else None

    keys = {row["topic"]: row for row in table("keys", filters=shown).to_pylist()}
    digest.topics = [row | keys.get(row["topic"], {}) for row in digest.topics]
    queues = table("queues")
    for name in ("gap_count", "missing_count", "repeated_count"):
        digest.totals[name] = pc.sum(queues.column(name)).as_py() or 0
    digest.queues = _by_topic(table("queues", filters=shown).to_pylist())
    digest.hot_keys = _by_topic(table("hot_keys", filters=shown).to_pylist())
    digest.gaps = _greatest(table("gaps"), "missing_count")
    duplicates = table("duplicates")
    digest.totals["spare_copy_count"] = (pc.sum(duplicates.column("copy_count")).as_py() or 0) - duplicates.num_rows
    digest.duplicates = _greatest(duplicates, "copy_count")
    digest.lags = lags_of(table("lag"), bucket_seconds)
    digest.totals["lag_count"] = sum(int(lag.counts[-1] or 0) for lag in digest.lags)
    digest.waits = sorted(table("consume_delays").to_pylist(), key=lambda row: -row["consumed_count"])[
        :LISTED_COUNT_MAX
    ]
    digest.retries = sorted(table("retries").to_pylist(), key=lambda row: -row["copy_count"])[:LISTED_COUNT_MAX]
    digest.growth = table("growth").to_pylist()
    digest.index_files = table("index_files").to_pylist()
    digest.chains = table("index_chains").to_pylist()
    if digest.totals["message_count"]:
        digest.timeline = timeline_of(table("timeline"), names, bucket_seconds)
    return digest


def timeline_of(rows: pa.Table, topics_by_size: Sequence[str], bucket_seconds: int) -> Timeline:
    """The table `timeline` laid out for charts.

    Args:
        rows: rows of the table with `begin` in milliseconds; `topic` is null in rows for all topics together.
        topics_by_size: the topics with the most messages, the largest first; those after BAND_COUNT_MAX are joined.
        bucket_seconds: length of a bucket.
    """
    own = list(topics_by_size[:BAND_COUNT_MAX])
    step = bucket_seconds * 1000
    plain = rows.to_pylist()
    begins = sorted({row["begin"] for row in plain})
    places = {begin: i for i, begin in enumerate(range(begins[0], begins[-1] + 1, step))}
    bands = [*own, OTHERS] if len(topics_by_size) > len(own) else own
    messages = {name: [0.0] * len(places) for name in bands}
    sizes = {name: [0.0] * len(places) for name in bands}
    p50: list[float | None] = [None] * len(places)
    p99: list[float | None] = [None] * len(places)
    for row in plain:
        i = places[row["begin"]]
        if row["topic"] is None:
            p50[i], p99[i] = row["delay_p50_millis"], row["delay_p99_millis"]
            continue
        name = row["topic"] if row["topic"] in own else OTHERS
        messages[name][i] += row["message_count"] / bucket_seconds
        sizes[name][i] += row["store_size_bytes"] / bucket_seconds
    return Timeline(bucket_seconds, list(places), messages, sizes, p50, p99)


def lags_of(rows: pa.Table, bucket_seconds: int) -> list[GroupLag]:
    """The table `lag`, its queues added up; those that are furthest behind at the end come first.

    Args:
        rows: rows of the table with `begin` in milliseconds.
        bucket_seconds: length of a bucket.
    """
    summed = rows.group_by(["consumer_group", "topic", "begin"]).aggregate(
        [("lag_count", "sum"), ("lag_millis", "max"), ("queue_id", "count")]
    )
    plain = summed.to_pylist()
    if not plain:
        return []
    begins = range(min(row["begin"] for row in plain), max(row["begin"] for row in plain) + 1, bucket_seconds * 1000)
    found: dict[tuple[str, str], GroupLag] = {}
    for row in plain:
        name = row["consumer_group"], row["topic"]
        if name not in found:
            found[name] = GroupLag(*name, 0, [None] * len(begins), [None] * len(begins), list(begins))
        lag, i = found[name], begins.index(row["begin"])
        lag.queue_count = max(lag.queue_count, row["queue_id_count"])
        lag.counts[i], lag.millis[i] = row["lag_count_sum"], row["lag_millis_max"]
    return sorted(found.values(), key=lambda lag: (-(lag.counts[-1] or 0), lag.consumer_group, lag.topic))


def bucket_seconds_for(span_millis: int) -> int:
    """The length of buckets that divides a span into a readable number of them."""
    for seconds in BUCKETS_SECONDS:
        if span_millis / 1000 / seconds <= BUCKET_COUNT_MAX:
            return seconds
    return -(-span_millis // (1000 * BUCKET_COUNT_MAX * DAY_SECONDS)) * DAY_SECONDS


def _by_topic(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["topic"], []).append(row)
    return found


def _greatest(rows: pa.Table, column: str) -> list[Row]:
    order = pc.select_k_unstable(rows, LISTED_COUNT_MAX, [(column, "descending")])
    found: list[Row] = rows.take(order).to_pylist()
    return found


def _with_millis(rows: pa.Table) -> pa.Table:
    """The rows with times as milliseconds, because a record may state a time that `datetime` cannot hold."""
    for number, field_ in enumerate(rows.schema):
        if pa.types.is_timestamp(field_.type):
            micros = rows.column(number).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            rows = rows.set_column(number, field_.name, pc.divide(micros, 1000))
    return rows
