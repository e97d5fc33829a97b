"""Statistics of a log: traffic and delay over time, keys, missing and repeated messages, consumer groups, growth, index files.

    log ── traffic ──▶ topics, hours        each arrow is one scan, with only the columns that it needs
        ── offsets ──▶ queues, gaps
        ── keys ─────▶ keys, hot_keys, the key columns of hours
        ── unique ───▶ duplicates
        ── time ─────▶ timeline
        ── groups ───▶ lag, consume_delays, retries      groups/; only the topics that groups consume
        ── growth ───▶ growth
    index files ─────▶ index_files, index_chains       one task a file

The first scan finds the end of the log; the others stop there, so that the tables agree although the store may still grow.
Spark writes part files into a hidden directory of the output; from them, the driver makes one Parquet and one CSV file for
each table. `out.py` has what a directory and an object store do differently.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from pipeline.analytics import tables
from pipeline.analytics.digest import bucket_seconds_for, digest_of
from pipeline.analytics.groups import Position, Span, positions_of_broker, write_group_tables
from pipeline.analytics.growth import Disk, growth, windows
from pipeline.analytics.index import index_files, index_tables, load_at
from pipeline.analytics.out import AnalyticsOut, analytics_out, publish
from pipeline.analytics.page import page
from pipeline.analytics.texts import LANGUAGES, PAGE_NAMES, Texts
from pipeline.job import JobReport, Progress, refuse_unshared, refuse_unshared_output, run_on_spark, silent
from pipeline.object_files import ObjectFileSystem, open_root
from pipeline.object_root import ObjectRoot
from pipeline.scan.log_files import held_notes
from services.object_uri import named
from store.errors import UnsupportedStoreError
from store.features.table import held_elsewhere, refuse_features
from store.files.file_system import FileSystem, RealFileSystem
from store.format.paths import commit_log_dir, parse_log_file_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE_NAMES = (
    "topics", "namespaces", "hours", "timeline", "queues", "gaps", "keys", "hot_keys", "duplicates", "lag",
    "consume_delays", "retries", "growth", "index_files", "index_chains",
)  # fmt: skip
STEP = "analytics"
STEPS = ("traffic", "keys", "offsets", "duplicates", "timeline", "groups", "growth", "index", "page")
Done = Callable[[str], None]
disk_usage = RealFileSystem().disk_usage


def run(
    spark: "SparkSession",
    store: Path | str,
    out: Path | str,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
    clock: Callable[[], float] = time.time,
    disk: Callable[[Path], tuple[int, int]] = disk_usage,
) -> JobReport:
    """Makes the tables and the page.

    Args:
        spark: a session with the formats registered.
        store: the root of the store, or its URI in an object store; only read.
        out: a directory on a disk that driver and executors share, created if missing, or a URI. Files of an earlier run are
            replaced. `analytics.json` is there only while the files are those of one run that has ended well.
        dry_run: only report what would be read and written.
        progress: called with the count of steps done.
        clock: seconds since 1970.
        disk: size and free space of the disk of a directory (bytes).

    Raises:
        UnsupportedStoreError: `store` has no commitlog/.
        StoreCorruptedError: a state record or `config/consumerOffset.json` is damaged.
        InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError: see `services/object_uri.told`.
        StoreLockedError: another run writes to the directory, or has begun to write to the same place in an object store since.
    """
    if dry_run:
        return plan(store, out, clock=clock)
    report = _begin(store, out, is_dry_run=False, clock=clock)
    refuse_unshared(spark, store, "store")
    refuse_unshared_output(spark, out, "out")
    fs, root, place = _opened(store)
    paths, layout = index_files(root, fs)

    def done(step: str) -> None:
        progress(STEP, STEPS.index(step) + 1, len(STEPS))

    progress(STEP, 0, len(STEPS))
    with analytics_out(out, report.started_at_millis) as goal:
        space = None if isinstance(fs, ObjectFileSystem) else Disk(*disk(root))
        positions = positions_of_broker(fs, root)
        bucket_seconds = _write_tables(spark, place, positions, goal, report, done, space)
        load = partial(load_at, store=place, layout=layout) if layout is not None else None
        loads = [] if load is None else run_on_spark(spark)("index", load, paths)
        for name, rows in index_tables(loads).items():
            goal.write_table(name, rows)
        done("index")
        row_counts = {name: publish(goal.parts(name), goal.folder, name) for name in TABLE_NAMES}
        digest = digest_of(goal.folder, named(root), report.started_at_millis, bucket_seconds, row_counts)
        for language in LANGUAGES:
            (goal.folder / PAGE_NAMES[language]).write_text(page(digest, Texts(language)), encoding="utf-8")
        goal.complete()
    done("page")
    report.counts |= {name: count for name, count in digest.totals.items() if name.endswith(("_count", "_bytes"))}
    report.counts |= {f"{name}_row_count": count for name, count in row_counts.items()}
    if not loads:
        report.notes.append("The store has no index file with entries.")
    return report.end(clock)


def plan(store: Path | str, out: Path | str, *, clock: Callable[[], float] = time.time) -> JobReport:
    """What `run` would read and write; needs no Spark."""
    return _begin(store, out, is_dry_run=True, clock=clock).end(clock)


def _begin(store: Path | str, out: Path | str, *, is_dry_run: bool, clock: Callable[[], float]) -> JobReport:
    report = JobReport.begin("analytics", is_dry_run=is_dry_run, clock=clock)
    goal = ObjectRoot.place(out)
    place = goal.absolute() if isinstance(goal, Path) else goal
    if isinstance(goal, ObjectRoot):
        goal.top_names()  # raises if the place cannot be written to
    fs, root, _ = _opened(store)
    if not fs.is_dir(commit_log_dir(str(root))):
        raise UnsupportedStoreError(f"{named(root)} has no commitlog/: name the root of a store", directory=named(root))
    report.notes += held_notes(held_elsewhere(refuse_features(fs, root)))
    report.counts |= {"log_bytes": _log_bytes(fs, root), "index_file_count": len(index_files(root, fs)[0])}
    report.outputs = {"page": f"{place}/{PAGE_NAMES['en']}", "page_zh": f"{place}/{PAGE_NAMES['zh']}"}
    report.outputs |= {name: f"{place}/{name}.parquet" for name in TABLE_NAMES}
    return report


def _opened(store: Path | str) -> tuple[FileSystem, Path, str]:
    """The port of a store, its root there, and the path or URI by which tasks open it."""
    fs, root = open_root(store)
    return (fs, root, str(store)) if isinstance(fs, ObjectFileSystem) else (fs, root.absolute(), str(root.absolute()))


def _write_tables(
    spark: "SparkSession",
    store: str,
    positions: Sequence[Position],
    goal: AnalyticsOut,
    report: JobReport,
    done: Done,
    disk: Disk | None,
) -> int:
    """Writes the parts of each table of the log; returns the bucket length of `timeline` in seconds."""
    from pyspark.sql import functions as f

    bounds: dict[str, str] = {}

    def read_log(columns: Sequence[str], topics: Sequence[str] = ()) -> "DataFrame":
        reader = spark.read.format("commitlog").option("columns", ",".join(columns))
        if topics:
            reader = reader.option("topics", ",".join(topics))
        return reader.options(**bounds).load(store)

    def write(name: str, rows: "DataFrame") -> None:
        goal.write(name, tables.in_order(name, rows))

    traffic = tables.traffic(read_log)
    try:
        write("topics", traffic.topics)
        write("namespaces", tables.namespaces(traffic.topics))
        ends = traffic.topics.agg(
            f.min("first_commit_log_offset"), f.max("end_commit_log_offset"),
            f.min(f.unix_millis("first_store_time")), f.max(f.unix_millis("last_store_time")),
        ).first()  # fmt: skip
        assert ends is not None
        begin, end, first_millis, last_millis = ends
        if end is not None:
            bounds |= {"startingPhysicalOffset": str(begin), "endingPhysicalOffset": str(end)}
            report.counts |= {"first_commit_log_offset": begin, "end_commit_log_offset": end}
        done("traffic")
        uses = tables.key_uses(read_log).persist()
        try:
            keys, hot_keys = tables.keys(uses)
            write("keys", keys)
            write("hot_keys", hot_keys)
            hours = traffic.hours.join(tables.keys_by_hour(uses), ["topic", "queue_id", "hour"], "left")
            write("hours", hours)
        finally:
            uses.unpersist()
    finally:
        traffic.kept.unpersist()
    done("keys")
    runs = tables.runs(read_log).persist()
    try:
        gaps, queues = tables.gaps_and_queues(runs)
        write("gaps", gaps)
        write("queues", queues)
    finally:
        runs.unpersist()
    done("offsets")
    write("duplicates", tables.duplicates(read_log))
    done("duplicates")
    bucket_seconds = bucket_seconds_for(last_millis - first_millis) if end is not None else 1
    write("timeline", tables.timeline(read_log, bucket_seconds))
    done("timeline")
    topic_names = pq.read_table(goal.parts("topics"), columns=["topic"]).column("topic").to_pylist()
    span = Span(first_millis or 0, last_millis or 0, bucket_seconds)
    notes = write_group_tables(spark, read_log, write, topic_names, span, positions)
    report.notes += notes
    done("groups")
    found = windows(read_log, span.first_millis, span.last_millis).first() if end is not None else None
    goal.write_table("growth", growth(found.asDict() if found else {}, disk, span.first_millis, span.last_millis))
    done("growth")
    return bucket_seconds


def _log_bytes(fs: FileSystem, store: Path) -> int:
    """Total size of the log files, with their part that is not written yet."""
    directory = Path(commit_log_dir(str(store)))
    names = [name for name in fs.listdir(directory) if parse_log_file_name(name) is not None]
    return sum(fs.stat_size(directory / name) for name in names)
