"""What an audit of a cluster makes of what it read: rows, which replica counts, and what is no finding. Pure decisions."""

from typing import Any

from pipeline.audit.cluster.logs import Difference
from pipeline.audit.cluster.replicas import Range
from pipeline.audit.rows import ROW_FIELDS

# What a crash leaves, and so a snapshot of a running store; the next start repairs it.
LEFT_BY_A_CRASH = {"LOG_TORN_TAIL", "LOG_STALE_BYTES", "LOG_FILE_UNFINISHED"}
# What a snapshot of queues or indexes shows that is younger than that of the log.
AHEAD_OF_THE_LOG = {"QUEUE_SURPLUS_UNITS", "INDEX_SURPLUS_ENTRIES", "STATE_AHEAD", "CHECKPOINT_AHEAD"}
# With entries ahead of the log, these follow from them in the same file.
OF_THE_SAME_FILE = {"INDEX_HEADER_WRONG", "INDEX_SLOT_WRONG", "INDEX_CHAIN_WRONG"}

Row = dict[str, Any]


def identity(row: Row) -> str:
    """What makes a finding the same in a later run: where it is, not how it is told."""
    names = ("broker_name", "replica", "kind", "file", "offset", "commit_log_offset", "topic", "queue")
    return "|".join(str(row[name]) for name in names)


def excuse(rows: list[Row], log_end_offset: int) -> None:
    """Makes findings information that follow from snapshots of a running store, taken one after the other."""
    ahead = [
        row for row in rows if row["kind"] in AHEAD_OF_THE_LOG and (row["commit_log_offset"] or -1) >= log_end_offset
    ]
    files = {row["file"] for row in ahead}
    for row in rows:
        is_of_crash = row["kind"] in LEFT_BY_A_CRASH and row["severity"] == "warning"
        if is_of_crash or row in ahead or (row["kind"] in OF_THE_SAME_FILE and row["file"] in files):
            row["severity"] = "info"


def row_of(
    broker_name: str, replica: str, kind: str, file: str, byte: int, offset: int | None, what: str, count: int = 1
) -> Row:
    """A row of an error; `byte` counts in the file, `offset` in the log (bytes)."""
    given = {
        "broker_name": broker_name, "replica": replica, "kind": kind, "severity": "error", "file": file, "offset": byte,
        "commit_log_offset": offset, "count": count, "what": what,
    }  # fmt: skip
    return {**dict.fromkeys(ROW_FIELDS), **given}


def reference_of(found: dict[str, str], archived: str) -> str:
    """The replica with the bytes that most have; of equally many those that the archive has, then the first."""
    hashes = list(found.values())
    best = max(hashes, key=lambda sha256: (hashes.count(sha256), sha256 == archived))
    return next(name for name, sha256 in found.items() if sha256 == best)


def deviants(found: dict[str, str], archived: str) -> list[tuple[str, str]]:
    """Each replica with other bytes than the reference, and the reference."""
    if len(set(found.values())) < 2:
        return []
    reference = reference_of(found, archived)
    return [(name, reference) for name, sha256 in found.items() if sha256 != found[reference]]


def judged(found: Difference, place: Range, other: str) -> tuple[str, str]:
    """Kind and text of a difference of two logs."""
    where = f"{found.count} bytes differ from {other}, from commit-log offset {found.first} to {found.last}"
    if found.one is None and found.other is not None:
        return "REPLICA_DAMAGED", f"{where}; the record at {found.other[0]} is sound there and not here"
    if found.one is None or found.other is None:
        return "REPLICA_DIFFERS", f"{where}; neither has a sound record there"
    behind = max(found.one[1], found.other[1])
    if found.last >= behind or behind >= place.end:
        return "REPLICA_DIVERGED", f"{where}; both have sound records, others from {found.one[0]} on"
    return "REPLICA_DIFFERS", f"{where}; the record at {found.one[0]} is sound in both"
