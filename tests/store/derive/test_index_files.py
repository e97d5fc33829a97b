"""How many index files the entries of a log make."""

import pytest

from store.derive.index_files import entries_per_file, index_file_count, is_followed


@pytest.mark.parametrize(
    ("entry_count", "is_followed", "file_count"),
    [(0, False, 0), (0, True, 1), (1, False, 1), (1, True, 1), (3, False, 1), (3, True, 2), (4, True, 2), (6, True, 3)],
)
def test_a_full_file_is_followed_by_another_only_with_a_record_behind_it(entry_count, is_followed, file_count):
    assert entries_per_file(4) == 3
    assert index_file_count(entry_count, 4, is_followed=is_followed) == file_count


@pytest.mark.parametrize(
    ("last_record", "last_key", "expected"), [(-1, -1, False), (0, -1, True), (0, 0, False), (100, 0, True)]
)
def test_only_a_record_behind_the_last_key_follows(last_record, last_key, expected):
    assert is_followed(last_record, last_key) is expected
