"""Ids and keys as people type them."""

import pytest

from cli.find import forms_of, is_offset_msg_id, typed_ids, why_no_key


@pytest.mark.parametrize(
    ("typed", "forms"),
    [
        ("order-1", ["order-1"]),
        (" order-1\n", ["order-1"]),
        ("'order-1'", ["'order-1'", "order-1"]),
        ("“order-1”", ["“order-1”", "order-1"]),
        ("ab" * 16, ["ab" * 16, "AB" * 16]),
        (f' "{"ab" * 16}" ', [f'"{"ab" * 16}"', "ab" * 16, "AB" * 16]),
        ("AB" * 16, ["AB" * 16]),
        ("12" * 16, ["12" * 16]),
    ],
)
def test_ids_come_with_blanks_quotes_and_in_lower_case(typed: str, forms: list[str]) -> None:
    assert forms_of(typed) == forms


def test_a_list_of_ids_has_commas_and_blanks() -> None:
    assert typed_ids(" A, 'B' ,,A ") == ["A", "B"]
    assert typed_ids(' "A,B" ') == ["A", "B"]
    assert typed_ids(" , ") == []


def test_only_hex_of_the_right_length_may_be_an_offset_msg_id() -> None:
    assert is_offset_msg_id("7f" * 16)
    assert is_offset_msg_id("7F" * 28)
    assert not is_offset_msg_id("7F" * 15)
    assert not is_offset_msg_id("xy" * 16)


def test_a_key_with_a_space_is_told_why_it_matches_nothing() -> None:
    assert why_no_key("one") == ""
    assert "one of ['one', 'two']" in why_no_key("one two")
