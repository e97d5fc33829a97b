"""A page ends by count and by bytes."""

from dataclasses import replace

import pytest

from gateway.queries.page import Page
from tests.gateway.memory_shard import found_record


@pytest.fixture
def small(records):
    return replace(found_record(records[0]), head_size_bytes=10, body_size_bytes=20)


def test_a_full_page_takes_nothing(small) -> None:
    page = Page(1)
    assert page.add("a", small)
    assert not page.add("a", small)


def test_a_body_that_does_not_fit_begins_the_next_page(small) -> None:
    page = Page(9, bytes_max=50)
    assert page.add("a", small)
    assert not page.add("a", small)
    assert (len(page.entries), page.size_bytes) == (1, 30)


def test_a_body_too_large_for_any_page_is_omitted_where_its_head_fits(small) -> None:
    large = replace(small, body_size_bytes=1_000)
    page = Page(9, bytes_max=50)
    assert page.add("a", small)
    assert page.add("a", large)
    assert [entry.body_omitted for entry in page.entries] == [False, True]
    assert not page.add("a", replace(large, head_size_bytes=11)), "10 bytes are left"


def test_an_empty_page_takes_any_message(small) -> None:
    page = Page(9, bytes_max=5)
    assert page.add("a", small)
    assert page.entries[0].body_omitted
