"""Answers on stdout: tables for people; JSON, JSON lines, CSV and lines by a pattern for programs.

Tables fit the terminal: an id is never folded and never cut. A table that is too wide loses columns, in the order that its
caller gives, and says so on stderr. One that is still too wide becomes a block of lines for each row. In a pipe and in a file a
table without free text has every column, because `awk` takes it apart by its blanks. One with free text (bodies) can only be
read by people there: it is as on a terminal of 120 columns, or of COLUMNS. `-o wide` has every column and folds no line.

Work of known size has a progress bar on stderr.
"""

import contextlib
import csv
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.exits import say_empty, warn
from cli.options import OutputFormat
from cli.terminal import json_safe, neutralise, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DETAIL_BODY_CHARACTERS_MAX = 4096
DELETED_SHOWN_MAX = 4
# What a row of a message has, for the header of a table without rows.
MESSAGE_FIELDS = (
    *("topic", "queue_id", "queue_offset", "tags", "keys", "unique_key", "offset_msg_id", "broker_name"),
    *(
        "commit_log_offset",
        "store_size_bytes",
        "born_time",
        "born_host",
        "store_time",
        "store_host",
        "flag",
        "sys_flag",
    ),
    *("reconsume_times", "prepared_transaction_offset", "body_crc", "properties", "body", "body_format"),
    *("body_size_bytes", "body_compression"),
)
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
        dropped_first: see `cli.printing.print_table`.
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
        rows: of `cli.messages`.
        output: the form.
        answer: what a JSON document says beside the messages.
        details: a table becomes a block with every field of each message.
        with_topic: a table names the topic.
    """
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


CELL_CHARACTERS_MAX = 72
# What logs and pagers show on one line.
WIDTH_WITHOUT_TERMINAL = 120
# Names of columns that are copied: a part of such a value is worth nothing.
WHOLE_SUFFIXES = ("_id", "_key", "_handle", "_token")
# Least characters of a column that may be cut: the first while other columns can be left out, the second when none can.
CUT_CHARACTERS_ENOUGH, CUT_CHARACTERS_MIN = 24, 8
GAP = 2


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    dropped_first: Sequence[str] = (),
    may_be_cut: str = "",
    wide: bool = False,
) -> None:
    """A table with a header; each cell is one line.

    Args:
        columns: their names.
        rows: a cell for each column.
        dropped_first: columns that a narrow terminal does not show, the first one dropped first.
        may_be_cut: the column with free text, of which a narrow table shows only the beginning.
        wide: every column whole, however long the lines are.
    """
    cells = [[_cell_text(name, cell, wide=wide) for name, cell in zip(columns, row, strict=True)] for row in rows]
    shown = list(columns)
    is_narrowed = not wide and (sys.stdout.isatty() or may_be_cut in columns)
    size = shutil.get_terminal_size() if sys.stdout.isatty() else shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 0))
    available = size.columns if is_narrowed else _width(shown, columns, cells)
    left_out = [name for name in dropped_first if name in columns]
    dropped: list[str] = []
    while (over := _width(shown, columns, cells) - available) > 0:
        least = CUT_CHARACTERS_ENOUGH if left_out else CUT_CHARACTERS_MIN
        if may_be_cut in shown and over <= _width([may_be_cut], columns, cells) - max(least, len(may_be_cut)):
            cells = _cut(may_be_cut, columns, cells, over)
        elif left_out:
            dropped.append(left_out.pop(0))
            shown.remove(dropped[-1])
        else:
            room = max(available - max(map(len, columns)) - GAP, CUT_CHARACTERS_MIN)
            if may_be_cut in columns and (over := _width([may_be_cut], columns, cells) - room) > 0:
                cells = _cut(may_be_cut, columns, cells, over)
            _print_blocks(columns, cells)
            return
    console = _console(_width(shown, columns, cells) + GAP)
    console.print(_table(shown, columns, cells), soft_wrap=True)
    if dropped:
        # Also where stderr is no terminal: a reader of a log cannot know the columns.
        warn(f"not shown: {', '.join(dropped)}; -o wide shows all")


def print_block(names: Sequence[str], values: Sequence[str]) -> None:
    """A line for each value, behind its name."""
    width = max(map(len, names), default=0)
    for name, value in zip(names, values, strict=True):
        print(f"{name:<{width}}  {value}")


def _print_blocks(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    for number, row in enumerate(cells):
        if number:
            print()
        print_block(columns, row)


def _console(width: int) -> "Console":
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, emoji=False, markup=False, width=width)


def _table(shown: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in shown:
        table.add_column(column, no_wrap=True, justify="left")
    places = [columns.index(column) for column in shown]
    for row in cells:
        table.add_row(*[Text(row[place]) for place in places])
    return table


def _width(shown: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    from rich.cells import cell_len

    places = [columns.index(column) for column in shown]
    widths = [max([cell_len(columns[place]), *(cell_len(row[place]) for row in cells)]) for place in places]
    return sum(widths) + GAP * (len(widths) - 1)


def _cut(column: str, columns: Sequence[str], cells: Sequence[Sequence[str]], over: int) -> list[list[str]]:
    from rich.cells import cell_len, set_cell_size

    place = columns.index(column)
    width = _width([column], columns, cells) - over

    def cut(text: str) -> str:
        return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"

    return [[*row[:place], cut(row[place]), *row[place + 1 :]] for row in cells]


def _cell_text(column: str, cell: object, *, wide: bool) -> str:
    is_whole = wide or column.endswith(WHOLE_SUFFIXES)
    return one_line(plain_text(cell), 0 if is_whole else CELL_CHARACTERS_MAX)


def plain_text(cell: object) -> str:
    """A value in a cell: a list by its values, nothing as an empty text."""
    if isinstance(cell, list | tuple):
        return " ".join(map(str, cell))
    return "" if cell is None else str(cell)


@contextlib.contextmanager
def progress_bar(what: str, *, in_bytes: bool = True) -> Iterator[tuple[Callable[[int, int], None], Any]]:
    """A function that moves the bar (done, total), and the bar, which is None when stderr is not a terminal.

    Args:
        what: text before the bar.
        in_bytes: done and total are bytes.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None, None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn(what), BarColumn(), *counts, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total), bar
