"""Tables on terminals of several widths: no id is folded, and what is left out is said.

Stored text cannot steer the terminal that shows it.
"""

import csv
import io
import json
import sys

import pytest
from rich.cells import cell_len
from rich.text import Text

from cli.options import OutputFormat
from cli.printing import print_csv, print_message_table, print_rows, print_table, to_json
from cli.terminal import neutralise, one_line

OFFSET_ID = "7F00000100002A9F0000000000A3B2C1"
UNIQUE_KEY = "AC11000100DE4AA3259C0B5D5B0A0001"
WIDTHS = [20, 40, 60, 80, 100, 120, 160, 200]
ROW = {
    "topic": "Orders",
    "store_time": "2026-11-21T10:29:12.345Z",
    "queue_id": 3,
    "queue_offset": 1234567,
    "unique_key": UNIQUE_KEY,
    "offset_msg_id": OFFSET_ID,
    "tags": "paid",
    "keys": ["order-1001"],
    "body": "订单 " * 40,
    "body_format": "text",
}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    """Makes stdout a terminal of this many columns."""

    def make(columns: int) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(columns))

    return make


def plain(shown: str) -> str:
    """Without the bold type of a terminal."""
    return Text.from_ansi(shown).plain


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_table_of_messages_fits_the_terminal_and_folds_no_id(columns, terminal, capsys):
    terminal(columns)
    print_message_table([ROW, {**ROW, "queue_offset": 1234568}])
    shown, said = map(plain, capsys.readouterr())

    assert shown.count(OFFSET_ID) == 2
    if columns >= 80:
        assert all(cell_len(line.rstrip()) <= columns for line in shown.splitlines())
        assert "order-1001" in shown
        assert "订单" in shown
    assert (UNIQUE_KEY in shown) or "unique_key" in said


def test_a_table_that_cannot_fit_becomes_a_block_for_each_row(terminal, capsys):
    terminal(30)
    print_table(["topic", "offset_msg_id"], [["Orders", OFFSET_ID], ["Logs", OFFSET_ID]])

    assert capsys.readouterr().out.splitlines() == [
        "topic          Orders",
        f"offset_msg_id  {OFFSET_ID}",
        "",
        "topic          Logs",
        f"offset_msg_id  {OFFSET_ID}",
    ]


def test_free_text_in_a_block_was_longer_than_the_line(terminal, capsys):
    terminal(45)
    print_table(["topic", "offset_msg_id", "body"], [["Orders", OFFSET_ID * 2, "梅雪 " * 20]], may_be_cut="body")

    *_, identity, body = capsys.readouterr().out.splitlines()
    assert identity == f"offset_msg_id  {OFFSET_ID * 2}"  # an id is never cut
    assert body == f"body           {'梅雪 ' * 5}梅雪…"  # a Chinese character takes two places


def test_columns_go_in_the_order_that_is_given_and_are_named(terminal, capsys):
    terminal(20)
    print_table(["a", "b", "c"], [["x" * 10, "y" * 10, "z" * 10]], dropped_first=["c", "a"])
    shown, said = map(plain, capsys.readouterr())

    assert shown.split()[-1] == "y" * 10
    assert shown.split()[0] == "b"
    assert "not shown: c, a" in said


def test_wide_shows_every_column_whole_on_any_terminal(terminal, capsys):
    terminal(20)
    print_message_table([ROW], wide=True)
    shown = plain(capsys.readouterr().out)

    header, _, row = shown.splitlines()
    assert header.split()[-1] == "body_format"
    assert ROW["body"].rstrip() in row


def test_a_pipe_gets_every_column_on_one_line_and_ids_whole(capsys):
    handle = "h" * 200
    print_table(["recall_handle", "body"], [[handle, "b" * 200]])
    shown = capsys.readouterr().out

    assert handle in shown
    assert "b" * 71 + "…" in shown
    assert len(shown.splitlines()) == 3


def test_a_table_of_messages_was_230_columns_wide_in_a_pipe(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_message_table([ROW | {"body": "b" * 200}] * 2, with_topic=True)
    shown, said = map(plain, capsys.readouterr())

    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 120
    assert OFFSET_ID in shown
    assert "not shown: " in said
    monkeypatch.setenv("COLUMNS", "300")
    print_message_table([ROW], with_topic=True)
    assert plain(capsys.readouterr().out).split()[-1] != "…"


def test_a_table_without_free_text_keeps_every_column_in_a_pipe(capsys):
    columns = [f"column_{number:02}" for number in range(20)]
    print_table(columns, [range(20)], dropped_first=columns[1:])
    header, _, row = plain(capsys.readouterr().out).splitlines()

    assert header.split() == columns
    assert row.split() == [str(number) for number in range(20)]


def test_an_empty_answer_says_so_and_leaves_stdout_empty(capsys):
    for output in (OutputFormat.TABLE, OutputFormat.WIDE, OutputFormat.JSONL):
        print_rows("dead_letters", [], ["a"], output)
        assert capsys.readouterr() == ("", "no dead letters\n")
    print_rows("topics", [], ["topic"], OutputFormat.CSV, empty="no topic")
    assert capsys.readouterr() == ("topic\n", "no topic\n")


def test_csv_is_read_back_by_a_csv_reader(capsys):
    rows = [
        {"topic": "a,b", "keys": ["k1", "k2"], "properties": {"x": "1"}, "body": 'two\nlines, "quoted"', "n": None},
        {"topic": "t", "keys": [], "properties": {}, "body": "\x1b[2J", "n": 7, "more": True},
    ]
    print_csv(rows)
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))

    assert (first["topic"], first["keys"], first["body"]) == ("a,b", "k1 k2", 'two\nlines, "quoted"')
    assert json.loads(first["properties"]) == {"x": "1"}
    assert (first["n"], first["more"]) == ("", "")
    assert (second["body"], second["n"], second["more"]) == ("\\x1b[2J", "7", "true")


def test_escapes_controls_and_direction_marks_are_spelt_out() -> None:
    assert neutralise("\x1b]0;title\x07\x9b2J\u202eabc\x7f") == "\\x1b]0;title\\x07\\x9b2J\\u202eabc\\x7f"


def test_newlines_stay_in_a_body_and_not_in_a_cell() -> None:
    assert neutralise("a\n\tb\r") == "a\n\tb\\r"
    assert one_line("a\n\tb\r") == "a\\n\\tb\\r"


def test_a_long_cell_is_cut_with_an_ellipsis() -> None:
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcd", 4) == "abcd"


def test_json_carries_no_control_and_stays_the_same_document() -> None:
    value = {"body": "\x1b[2J \x9b \u202e 订单 \x7f \u2028"}
    document = to_json(value)

    assert document.isprintable()
    assert "订单" in document
    assert value == json.loads(document)
