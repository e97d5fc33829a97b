"""Answers on stdout: tables for people, JSON and JSON lines for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from cli.terminal import json_safe, neutralise, one_line

PIPE_WIDTH = 10_000  # a table in a file or a pipe is not folded
CELL_CHARACTERS_MAX = 72
DETAIL_BODY_CHARACTERS_MAX = 4096


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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table with a header; each cell is one line, cut if it is long."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    if not sys.stdout.isatty():
        console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False, width=PIPE_WIDTH)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="left")
    for row in rows:
        cells = [one_line(_cell_text(cell), CELL_CHARACTERS_MAX) for cell in row]
        table.add_row(*[Text(cell) for cell in cells])
    console.print(table)


def print_message_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Several messages, one line each."""
    columns = [
        *(["matched_by", "topic"] if rows and "matched_by" in rows[0] else []),
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
    )


def print_message_details(rows: Sequence[Mapping[str, object]]) -> None:
    """Messages one below the other, a line for each field, the body last."""
    for number, row in enumerate(rows):
        if number:
            print()
        labels = [name for name in row if name not in ("body", "body_note", "properties")]
        width = max(map(len, labels))
        for name in labels:
            print(f"{name:<{width}}  {one_line(_cell_text(row[name]))}")
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


def _cell_text(cell: object) -> str:
    if isinstance(cell, list | tuple):
        return " ".join(map(str, cell))
    return "" if cell is None else str(cell)
