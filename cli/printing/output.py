"""Answers on stdout: tables for people; JSON, JSON lines, CSV and lines by a pattern for programs."""

import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cli.exits import say_empty, warn
from cli.options import OutputFormat
from cli.printing.tables import plain_text, print_block, print_table
from cli.printing.terminal import json_safe, neutralise, one_line

DETAIL_BODY_CHARACTERS_MAX = 4096
DELETED_SHOWN_MAX = 4
# Columns of a table of messages that a narrow terminal leaves out, the first one first.
MESSAGE_COLUMNS_DROPPED_FIRST = (
    *("body_format", "queue_id", "queue_offset", "unique_key", "tags", "matched_by", "topic"),
)


def to_json(value: object, indent: int | None = None) -> str:
    """One JSON document; characters are not escaped, terminal controls are."""
    return json_safe(json.dumps(value, ensure_ascii=False, indent=indent))


def print_json(value: object) -> None:
    """One indented document."""
    print(to_json(value, indent=2))


def print_jsonl(rows: Iterable[Mapping[str, object]]) -> None:
    """One document in each line."""
    for row in rows:
        print(to_json(row))


def print_csv(rows: Sequence[Mapping[str, object]], columns: Sequence[str] = ()) -> None:
    """Comma-separated values with a header; values inside a value are JSON, terminal controls are escaped.

    Args:
        rows: may have different names.
        columns: of the header when there are no rows.
    """
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(columns)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_csv_text(row.get(name)) for name in names])


def print_rows(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    output: OutputFormat,
    more: Mapping[str, Any] | None = None,
    *,
    dropped_first: Sequence[str] = (),
    empty: str = "",
) -> None:
    """Rows in the form that was asked for.

    Args:
        name: of the rows in a JSON document.
        rows: values by column; a table shows those in `columns` only.
        columns: of a table.
        output: the form.
        more: what a JSON document has beside the rows.
        dropped_first: see `cli.printing.tables.print_table`.
        empty: what to say on stderr when there are no rows; default: `no NAME`.
    """
    if output is OutputFormat.JSON:
        print_json({name: list(rows), **(more or {})})
    elif output is OutputFormat.JSONL:
        print_jsonl(rows)
    elif output is OutputFormat.CSV:
        print_csv(rows, columns)
    elif rows:
        cells = [[row[column] for column in columns] for row in rows]
        print_table(columns, cells, dropped_first=dropped_first, wide=output is OutputFormat.WIDE)
    if not rows:
        say_empty(empty or f"no {name.replace('_', ' ')}")


def print_messages(
    rows: Sequence[Mapping[str, Any]],
    output: OutputFormat,
    answer: Mapping[str, Any],
    *,
    details: bool,
    with_topic: bool = False,
) -> None:
    """Print messages in the form asked for.

    Args:
        rows: of `cli.queries.rows`.
        output: the form.
        answer: what a JSON document says beside the messages.
        details: a table becomes a block with every field of each message.
        with_topic: a table names the topic.
    """
    from cli.queries.rows import MESSAGE_FIELDS

    if output is OutputFormat.JSON:
        print_json({"messages": rows, **answer})
    elif output is OutputFormat.JSONL:
        print_jsonl(rows)
    elif output is OutputFormat.CSV:
        print_csv(rows, MESSAGE_FIELDS)
    elif rows and details:
        print_message_details(rows)
    elif rows:
        print_message_table(rows, wide=output is OutputFormat.WIDE, with_topic=with_topic)
    if output.is_table or output is OutputFormat.CSV:
        say_deleted(rows)


def say_deleted(rows: Sequence[Mapping[str, Any]]) -> None:
    """Warn how many of the messages were deleted with their topic, and which; nothing without any."""
    ids = [row["offset_msg_id"] for row in rows if row.get("deleted_with_topic")]
    if not ids:
        return
    shown = ", ".join(ids[:DELETED_SHOWN_MAX]) + (
        f" and {len(ids) - DELETED_SHOWN_MAX} more" * (len(ids) > DELETED_SHOWN_MAX)
    )
    warn(f"deleted with the topic, so no group gets them: {len(ids)} of {len(rows)} messages ({shown})")


def print_message_table(rows: Sequence[Mapping[str, object]], *, wide: bool = False, with_topic: bool = False) -> None:
    """Several messages, one line each; those that were found in any topic with their topic."""
    columns = [
        *(["matched_by"] if rows and "matched_by" in rows[0] else []),
        *(["topic"] if with_topic else []),
        "store_time",
        "queue_id",
        "queue_offset",
        "unique_key",
        "offset_msg_id",
        "tags",
        "keys",
    ]
    print_table(
        [*columns, "body", "body_format"],
        [[*[row[column] for column in columns], row["body"], _form(row)] for row in rows],
        dropped_first=MESSAGE_COLUMNS_DROPPED_FIRST,
        may_be_cut="body",
        wide=wide,
    )


def print_message_details(rows: Sequence[Mapping[str, object]]) -> None:
    """Messages one below the other, a line for each field, the body last."""
    for number, row in enumerate(rows):
        if number:
            print()
        labels = [name for name in row if name not in ("body", "body_note", "properties")]
        print_block(labels, [one_line(plain_text(row[name])) for name in labels])
        print("properties")
        properties = row["properties"]
        assert isinstance(properties, Mapping)
        for name, value in properties.items():
            print(f"  {one_line(name)} = {one_line(value)}")
        note = f"; {row['body_note']}" if "body_note" in row else ""
        print(f"body ({row['body_format']}, {row['body_size_bytes']} bytes{note})")
        body = neutralise(str(row["body"]))
        shown = body[:DETAIL_BODY_CHARACTERS_MAX]
        print("\n".join(f"  {line}" for line in shown.split("\n")))
        if len(body) > len(shown):
            print(f"  … {len(body) - len(shown)} more characters; -O json shows all")


def _form(row: Mapping[str, object]) -> str:
    return f"{row['body_format']} ({row['body_note']})" if "body_note" in row else str(row["body_format"])


def _csv_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        value = " ".join(value)
    return neutralise(to_json(value) if isinstance(value, Mapping | list | tuple) else plain_text(value))
