"""The page for operators has the rows of the table."""

import re
from pathlib import Path

from store.features.table import FEATURES

PAGE = Path(__file__).parents[3] / "docs" / "features.md"


def test_the_page_has_the_rows_of_the_table_of_features() -> None:
    rows = re.findall(r"^\| (.+ \(`[a-z0-9-]+`\) \| .+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [
        f"{row.title} (`{row.name}`) | {row.versions} | {row.sign} | {row.support} | {row.here} | {row.to_do}"
        for row in FEATURES
    ]


def test_each_row_that_is_not_supported_says_what_to_do() -> None:
    assert not [row.name for row in FEATURES if row.support != "supported" and not row.to_do]
