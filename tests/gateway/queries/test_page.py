"""A page ends by count and by bytes."""

import pytest

from gateway.ports.shard import body_size_bytes, head_size_bytes
from gateway.queries.page import Page
from reput.message.v1.message_pb2 import StoredMessage


def sized(topic: str, body_bytes: int) -> StoredMessage:
    return StoredMessage(topic=topic, body=b"b" * body_bytes)


@pytest.fixture
def small() -> StoredMessage:
    return sized("t", 20)


def room_for(message: StoredMessage, more_bytes: int) -> int:
    """The bytes of the message and some more."""
    return head_size_bytes(message) + body_size_bytes(message) + more_bytes


def test_a_full_page_takes_nothing(small) -> None:
    page = Page(1)
    assert page.add("a", small)
    assert not page.add("a", small)


def test_a_body_that_does_not_fit_begins_the_next_page(small) -> None:
    page = Page(9, bytes_max=room_for(small, head_size_bytes(small)))
    assert page.add("a", small)
    assert not page.add("a", small)
    assert (len(page.entries), page.size_bytes) == (1, room_for(small, 0))


def test_a_body_too_large_for_any_page_is_omitted_where_its_head_fits(small) -> None:
    large = sized("t", 1_000)
    page = Page(9, bytes_max=room_for(small, head_size_bytes(large)))
    assert page.add("a", small)
    assert page.add("a", large)
    assert [entry.body_omitted for entry in page.entries] == [False, True]
    narrow = Page(9, bytes_max=room_for(small, head_size_bytes(large)))
    assert narrow.add("a", small)
    assert not narrow.add("a", sized("longer", 1_000)), "its head does not fit"


def test_an_empty_page_takes_any_message(small) -> None:
    page = Page(9, bytes_max=5)
    assert page.add("a", small)
    assert page.entries[0].body_omitted
