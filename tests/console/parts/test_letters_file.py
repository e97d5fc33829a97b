"""Files of dead letters for spreadsheets."""

import csv
import io

import pytest

from console.parts.letters_file import COLUMNS, line_of


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"])
def test_no_cell_begins_as_a_formula_of_a_spreadsheet(begin: str) -> None:
    row = dict.fromkeys(COLUMNS, f"{begin}1+1") | {"keys": [f"{begin}1+1"], "properties": {}}

    cells = next(csv.reader(io.StringIO(line_of(row, "csv").decode(), newline="")))
    assert {cell for cell, name in zip(cells, COLUMNS, strict=True) if name != "properties"} == {f"'{begin}1+1"}
