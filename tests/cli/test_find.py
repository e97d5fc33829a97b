"""Ids and keys as people type them."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from cli.find import forms_of, held_text, is_offset_msg_id, typed_ids, why_no_key
from reput_client import ReputClientError


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


class Gateway:
    """A client whose store has a log of one shard; a message by id is the log's first one."""

    def __init__(self, first_offset: int = 0, end_offset: int = 100, error: ReputClientError | None = None) -> None:
        self.asked: list[str] = []
        newest = datetime(2026, 1, 2, tzinfo=UTC) if end_offset > first_offset else None
        self._log = SimpleNamespace(
            broker_name="broker-a", service="commitlog", error=None, log_first_offset=first_offset,
            log_end_offset=end_offset, newest_store_time=newest,
        )  # fmt: skip
        self._error = error

    def status(self) -> list[SimpleNamespace]:
        if self._error is not None:
            raise self._error
        return [self._log, SimpleNamespace(service="index")]

    def by_id(self, offset_msg_id: str, *, broker_name: str) -> SimpleNamespace:
        assert broker_name == "broker-a"
        self.asked.append(offset_msg_id)
        return SimpleNamespace(store_time=datetime(2026, 1, 1, tzinfo=UTC))


def test_nothing_found_says_which_times_the_store_holds() -> None:
    whole, cut = Gateway(), Gateway(first_offset=64)
    span = "The store holds messages from 2026-01-01T00:00:00.000Z to 2026-01-02T00:00:00.000Z."

    assert held_text(whole) == span
    assert held_text(cut) == f"{span} Older messages are gone."
    assert (whole.asked[0][-16:], cut.asked[0][-16:]) == (f"{0:016X}", f"{64:016X}")


def test_an_empty_store_and_one_that_does_not_tell_say_nothing_more() -> None:
    assert held_text(Gateway(end_offset=0)) == ""
    assert held_text(Gateway(error=ReputClientError("not now"))) == ""
