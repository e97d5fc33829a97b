"""Tables that fit the terminal: an id is never folded and never cut.

A table that is too wide loses columns, in the order that its caller gives, and says so on stderr. One that is still too wide
becomes a block of lines for each row. In a pipe, in a file and with `-o wide` every column is there and no line is folded.
"""

import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cli.exits import note
from cli.printing.terminal import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

CELL_CHARACTERS_MAX = 72
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
        may_be_cut: the column with free text, of which a narrow terminal shows only the beginning.
        wide: every column whole, however long the lines are.
    """
    cells = [[_cell_text(name, cell, wide=wide) for name, cell in zip(columns, row, strict=True)] for row in rows]
    shown = list(columns)
    is_narrowed = not wide and sys.stdout.isatty()
    available = shutil.get_terminal_size().columns if is_narrowed else _width(shown, columns, cells)
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
        note(f"not shown: {', '.join(dropped)}; -o wide shows all")


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
