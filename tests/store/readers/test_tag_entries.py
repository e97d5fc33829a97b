"""Which index files have entries of tags: sampled from stores that RocketMQ 5.3.3 and 5.5.0 wrote, and from made ones."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from index_svc.index_file_set import IndexFileSet
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from store.readers import tag_entries
from store.readers.index_reader import IndexLayout
from store.readers.tag_entries import TagEntries, find_tag_entries, has_tag_entries, log_on_disk
from tests.index_svc.test_unexplained_files import log_of_requests
from tests.support.dispatches import make_request

FIXTURE_LAYOUT = IndexLayout(500, 200)
LAYOUT = IndexLayout(10, 41)  # 40 entries a file
REQUESTS = [make_request(n, unique_key=f"U{n}", keys=[f"k{n}"])._replace(tags="A" if n % 5 else "") for n in range(60)]


def write(root: Path, requests: Sequence[DispatchRequest], tagged: Sequence[bool]) -> None:
    """Index files with entries of tags of the records that are `tagged`."""
    files = IndexFileSet(root, RealFileSystem(), LAYOUT, lambda: 1_700_000_000_000)
    (root / "index").mkdir(parents=True)
    for request, has_tags in zip(requests, tagged, strict=True):
        columns = DispatchColumns.of([request])
        files.apply(columns.with_tags() if has_tags else columns)
    files.flush()
    files.close()


def found(root: Path, requests: Sequence[DispatchRequest], log_first_offset: int = 0) -> TagEntries:
    return find_tag_entries(RealFileSystem(), root, LAYOUT, log_of_requests(requests), log_first_offset)


def test_a_store_of_rocketmq_5_5_has_entries_of_tags_from_its_begin_on(rocketmq_5_5_store: Path) -> None:
    fs = RealFileSystem()
    log = log_on_disk(fs, rocketmq_5_5_store)
    assert find_tag_entries(fs, rocketmq_5_5_store, FIXTURE_LAYOUT, log, 0) == (True, 0)
    assert has_tag_entries(fs, rocketmq_5_5_store, FIXTURE_LAYOUT)


def test_a_store_of_rocketmq_5_3_has_no_entries_of_tags(broker_store: Path) -> None:
    fs, layout = RealFileSystem(), IndexLayout(500, 1000)
    assert find_tag_entries(fs, broker_store, layout, log_on_disk(fs, broker_store), 0) == (False, None)


def test_a_store_without_an_index_tells_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, REQUESTS) == (None, None)
    assert not has_tag_entries(RealFileSystem(), tmp_path, LAYOUT)


def test_records_without_tags_tell_nothing(tmp_path: Path) -> None:
    requests = [request._replace(tags="") for request in REQUESTS]
    write(tmp_path, requests, [True] * 60)
    assert found(tmp_path, requests) == (None, None)


@pytest.mark.parametrize("first", [2, 23, 24, 59])
def test_entries_that_a_newer_broker_began_to_write_are_complete_from_a_file_behind_there_on(
    tmp_path: Path, first: int
) -> None:
    write(tmp_path, REQUESTS, [n >= first for n in range(60)])
    seen = found(tmp_path, REQUESTS)
    assert seen.are_written
    assert seen.complete_from is None or seen.complete_from >= first * 100


def test_entries_that_an_older_broker_ceased_to_write_are_not_complete(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [n < 55 for n in range(60)])
    assert found(tmp_path, REQUESTS) == (True, None)


def test_one_record_with_its_entry_is_enough(tmp_path: Path) -> None:
    write(tmp_path / "a", REQUESTS[1:2], [True])
    assert found(tmp_path / "a", REQUESTS) == (True, 0)
    write(tmp_path / "b", REQUESTS[1:2], [False])
    assert found(tmp_path / "b", REQUESTS) == (None, None)


def test_records_that_retention_removed_are_not_asked_for(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [True] * 60)
    assert found(tmp_path, REQUESTS[30:], 3000) == (True, 2800)
    assert found(tmp_path, [replace_offset(REQUESTS[0], 1 << 40)], 1 << 40) == (None, None)


def replace_offset(request: DispatchRequest, offset: int) -> DispatchRequest:
    return request._replace(commit_log_offset=offset)


def test_entries_of_another_log_tell_nothing(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [True] * 60)
    assert found(tmp_path, [replace_offset(REQUESTS[0], 7)]) == (None, None)


def test_a_sample_ends_after_some_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, REQUESTS, [n < 3 or n > 50 for n in range(60)])
    monkeypatch.setattr(tag_entries, "SAMPLED_ENTRY_COUNT", 6)
    assert found(tmp_path, REQUESTS).are_written
