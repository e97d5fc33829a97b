"""Findings of an audit as rows, and the file or object that they are written to."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.rebuild.object_root import ObjectRoot
from pipeline.rebuild.target import scratch_root
from store.audit.findings import Finding

ROW_FIELDS = (
    "kind", "severity", "file", "offset", "commit_log_offset", "topic", "queue", "count", "what", "expected", "found",
)  # fmt: skip
# These patterns read the texts of findings, which store/audit writes.
_INSTEAD = re.compile(r"(-?\d+) instead of (-?\d+)")
_QUEUE_FILE = re.compile(r"consumequeue/([^/]+)/(\d+)(?:/|$)")
_QUEUE_NAME = re.compile(r"queue (\S+)/(\d+)[,: ]")


def row_of(finding: Finding) -> dict[str, Any]:
    """One finding as a row; `expected` and `found` are set if the finding is about a number."""
    named = _QUEUE_FILE.search(finding.file) or _QUEUE_NAME.search(finding.what)
    differs = _INSTEAD.search(finding.what)
    return {
        "kind": finding.code,
        "severity": str(finding.severity),
        "file": finding.file,
        "offset": finding.byte,
        "commit_log_offset": finding.commit_log_offset,
        "topic": named.group(1) if named else None,
        "queue": int(named.group(2)) if named else None,
        "count": finding.count,
        "what": finding.what,
        "expected": differs.group(2) if differs else None,
        "found": differs.group(1) if differs else None,
    }


def refuse_out(out: Path | str) -> None:
    """InvalidArgumentError if `out` is a URI that findings cannot be written to."""
    place = ObjectRoot.place(out)
    if isinstance(place, ObjectRoot):
        ObjectRoot.parted(place.uri)[0].top_names()


def put_rows(rows: list[dict[str, Any]], out: Path | str) -> str:
    """Writes findings to a file, or to an object if `out` is a URI: whole or not at all there; returns its name for people.

    Args:
        rows: the findings.
        out: its ending says the format, see `write_rows`.
    """
    place = ObjectRoot.place(out)
    if isinstance(place, Path):
        write_rows(rows, place)
        return str(place)
    root, name = ObjectRoot.parted(place.uri)
    with scratch_root() as folder:
        write_rows(rows, folder / name)
        root.put_file(name, folder / name)
    return f"{root}/{name}"


def write_rows(
    rows: list[dict[str, Any]], path: Path, further: Sequence[str] = (), numbers: Sequence[str] = ()
) -> None:
    """Writes the rows as Parquet or CSV, by the file's ending, else as one JSON object per line.

    Args:
        rows: the findings.
        path: the file.
        further, numbers: names of columns beyond ROW_FIELDS; those in `numbers` are numbers, the others texts.
    """
    import json

    if path.suffix not in (".parquet", ".csv"):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return
    import pyarrow as pa

    whole = {"offset", "commit_log_offset", "queue", "count", *numbers}
    names = (*further, *ROW_FIELDS, *numbers)
    schema = pa.schema([(name, pa.int64() if name in whole else pa.string()) for name in names])
    table = pa.Table.from_pylist(rows, schema=schema)
    if path.suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(table, path)
    else:
        from pyarrow import parquet

        parquet.write_table(table, path)
