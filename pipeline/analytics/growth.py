"""The table `growth`: how fast the store grew lately, and when its disk is full if it goes on like this.

    the last hour, day, week, and the whole log ──▶ bytes a second ──▶ free bytes / bytes a second

A message takes its record in the log, a unit in its queue and an entry of the index for its unique key and for each key.
Nothing is taken off for what retention will remove: `fits_seconds` says how much log the disk holds at this rate, so the disk
becomes full only if log files are kept for longer than that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.analytics.tables import ReadLog
from store.format.derived.index_layout import ENTRY_SIZE
from store.format.derived.queue_unit import UNIT_SIZE_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOWS = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
LOG = "log"  # the window of the whole log
SCHEMA = pa.schema(
    [
        pa.field("window", pa.string()),
        pa.field("window_seconds", pa.float64()),
        pa.field("message_count", pa.int64()),
        pa.field("log_bytes", pa.int64()),
        pa.field("derived_bytes", pa.int64()),
        pa.field("bytes_per_second", pa.float64()),
        pa.field("disk_free_bytes", pa.int64()),
        pa.field("disk_size_bytes", pa.int64()),
        pa.field("full_after_seconds", pa.float64()),  # null: it does not grow, or the disk is not known
        pa.field("fits_seconds", pa.float64()),  # null likewise
    ]
)


@dataclass(frozen=True)
class Disk:
    """The disk of a store (bytes)."""

    size_bytes: int
    free_bytes: int


def windows(read_log: ReadLog, first_millis: int, last_millis: int) -> "DataFrame":
    """One row: the messages, bytes and index entries of each window, which ends with the last message of the log."""
    from pyspark.sql import functions as f

    log = read_log(["storeSize", "storeTimestamp", "keys", "uniqKey"])
    keys = f.coalesce(f.size("keys"), f.lit(0)) + f.when(f.col("uniqKey").isNotNull(), 1).otherwise(0)
    age_millis = f.lit(last_millis) - f.unix_millis("storeTimestamp")
    measures = []
    for name, seconds in _lengths(first_millis, last_millis).items():
        is_in = age_millis < seconds * 1000 if name != LOG else f.lit(True)
        measures += [
            f.count_if(is_in).alias(f"{name}_message_count"),
            f.sum(f.when(is_in, f.col("storeSize")).otherwise(0)).alias(f"{name}_log_bytes"),
            f.sum(f.when(is_in, keys).otherwise(0)).alias(f"{name}_entry_count"),
        ]
    return log.agg(*measures)


def growth(found: Mapping[str, Any], disk: Disk | None, first_millis: int, last_millis: int) -> pa.Table:
    """The table.

    Args:
        found: the row of `windows`; empty for an empty log.
        disk: the disk of the store; None for an object store, which has no end.
        first_millis: store time of the first message.
        last_millis: store time of the last one.
    """
    rows: list[dict[str, Any]] = []
    whole = sum(_store_bytes(found, LOG)) if found else 0
    for name, seconds in _lengths(first_millis, last_millis).items() if found else ():
        log_bytes, derived_bytes = _store_bytes(found, name)
        rate = (log_bytes + derived_bytes) / seconds
        rows.append(
            {
                "window": name,
                "window_seconds": seconds,
                "message_count": found[f"{name}_message_count"],
                "log_bytes": log_bytes,
                "derived_bytes": derived_bytes,
                "bytes_per_second": rate,
                "disk_free_bytes": disk.free_bytes if disk else None,
                "disk_size_bytes": disk.size_bytes if disk else None,
                "full_after_seconds": disk.free_bytes / rate if disk and rate else None,
                "fits_seconds": (disk.free_bytes + whole) / rate if disk and rate else None,
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


def window_of(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row that a forecast goes by: the longest window up to a day; None without one that grows."""
    growing = [row for row in rows if row["full_after_seconds"] is not None]
    days = [row for row in growing if row["window_seconds"] <= WINDOWS["day"]]
    return max(days, key=lambda row: row["window_seconds"]) if days else (growing[0] if growing else None)


def _lengths(first_millis: int, last_millis: int) -> dict[str, float]:
    """The windows that the log is longer than, and the whole log (seconds); at least a second."""
    span = max((last_millis - first_millis) / 1000, 1.0)
    return {**{name: float(seconds) for name, seconds in WINDOWS.items() if seconds < span}, LOG: span}


def _store_bytes(found: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Bytes of the log, and of queues and index."""
    derived = found[f"{name}_message_count"] * UNIT_SIZE_BYTES + found[f"{name}_entry_count"] * ENTRY_SIZE
    return found[f"{name}_log_bytes"], derived
