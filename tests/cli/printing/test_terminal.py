"""Stored text cannot steer the terminal that shows it."""

import json

from cli.printing.output import to_json
from cli.printing.terminal import neutralise, one_line


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
