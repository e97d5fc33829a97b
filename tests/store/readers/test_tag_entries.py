"""Which index files have entries of tags: sampled from stores that RocketMQ 5.3.3 and 5.5.0 wrote, and from made ones."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from index_svc.index_file_set import IndexFileSet
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from store.format.checkpoint import StoreCheckpoint, encode_checkpoint
from store.format.derived.index_layout import HEADER_SIZE, entry_position
from store.readers import tag_entries
from store.readers.index_reader import IndexLayout, list_index_files
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


def found(
    root: Path, requests: Sequence[DispatchRequest], log_first_offset: int = 0, compared_bytes_max: int = 1 << 30
) -> TagEntries:
    log = log_of_requests(requests)
    return find_tag_entries(RealFileSystem(), root, LAYOUT, log, log_first_offset, 1 << 50, compared_bytes_max)


def test_a_store_of_rocketmq_5_5_has_entries_of_tags_from_its_begin_on(rocketmq_5_5_store: Path) -> None:
    fs = RealFileSystem()
    log = log_on_disk(fs, rocketmq_5_5_store)
    assert find_tag_entries(fs, rocketmq_5_5_store, FIXTURE_LAYOUT, log, 0, sys.maxsize) == (True, 0)
    assert has_tag_entries(fs, rocketmq_5_5_store, FIXTURE_LAYOUT)


def test_a_store_of_rocketmq_5_3_has_no_entries_of_tags(broker_store: Path) -> None:
    fs, layout = RealFileSystem(), IndexLayout(500, 1000)
    seen = find_tag_entries(fs, broker_store, layout, log_on_disk(fs, broker_store), 0, sys.maxsize)
    assert seen.are_written is False


def test_a_store_without_an_index_tells_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, REQUESTS) == (None, None)
    assert not has_tag_entries(RealFileSystem(), tmp_path, LAYOUT)


def test_records_without_tags_lack_no_entry(tmp_path: Path) -> None:
    requests = [request._replace(tags="") for request in REQUESTS]
    write(tmp_path, requests, [True] * 60)
    assert found(tmp_path, requests) == (None, 0)


@pytest.mark.parametrize("flushed_offset", [0, 5900])
@pytest.mark.parametrize("count", [0, 60])
def test_a_store_of_rocketmq_5_5_without_records_with_tags_is_known_by_its_checkpoint(
    tmp_path: Path, count: int, flushed_offset: int
) -> None:
    requests = [request._replace(tags="") for request in REQUESTS]
    write(tmp_path, requests[:count], [True] * count)
    page = encode_checkpoint(StoreCheckpoint(1, 2, 3, rest=flushed_offset.to_bytes(8, "big")))
    (tmp_path / "checkpoint").write_bytes(page)
    assert found(tmp_path, requests) == (True if flushed_offset else None, 0 if count else None)
    (tmp_path / "checkpoint").write_bytes(page[:30])
    assert found(tmp_path, requests).are_written is None


def test_what_the_records_tell_counts_more_than_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [False] * 60)
    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(StoreCheckpoint(rest=(5900).to_bytes(8, "big"))))
    assert found(tmp_path, REQUESTS).are_written is False


def lacking(tagged: Sequence[bool]) -> list[int]:
    """The offsets of records with tags that got no entry of them."""
    pairs = zip(REQUESTS, tagged, strict=True)
    return [request.commit_log_offset for request, has_tags in pairs if request.tags and not has_tags]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 65_536])
@pytest.mark.parametrize("seed", range(8))
def test_entries_are_complete_from_behind_the_last_record_that_lacks_its_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, piece: int
) -> None:
    monkeypatch.setattr(tag_entries, "COMPARED_ENTRY_COUNT", piece)
    draw = random.Random(seed)
    borders = sorted(draw.choices(range(60), k=draw.randrange(5)))
    tagged = [sum(border <= n for border in borders) % 2 == seed % 2 for n in range(60)]
    write(tmp_path, REQUESTS, tagged)
    seen = found(tmp_path, REQUESTS)
    assert seen.complete_from == max((offset + 1 for offset in lacking(tagged)), default=0)
    assert seen.are_written == any(
        has_tags and request.tags for request, has_tags in zip(REQUESTS, tagged, strict=True)
    )


def test_entries_that_nothing_has_compared_are_not_called_complete(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [True] * 60)
    assert found(tmp_path, REQUESTS, compared_bytes_max=1000) == (True, 5000)
    assert found(tmp_path, REQUESTS, compared_bytes_max=0) == (True, 5901)


@pytest.mark.parametrize("first", [0, 20, 40])
def test_both_ends_of_files_that_are_not_compared_tell_whether_entries_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    write(tmp_path, REQUESTS, [first <= n < first + 5 for n in range(60)])
    monkeypatch.setattr(tag_entries, "SAMPLED_ENTRY_COUNT", 16)
    assert found(tmp_path, REQUESTS, compared_bytes_max=100) == (True, 5901)


def test_records_without_keys_before_the_first_entry_lack_theirs(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS[5:], [True] * 55)
    assert found(tmp_path, REQUESTS) == (True, 401)


def test_one_record_with_its_entry_is_enough(tmp_path: Path) -> None:
    write(tmp_path / "a", REQUESTS[1:2], [True])
    assert found(tmp_path / "a", REQUESTS[1:], 100) == (True, 100)
    write(tmp_path / "b", REQUESTS[1:2], [False])
    assert found(tmp_path / "b", REQUESTS[1:], 100) == (False, 101)


def test_records_that_retention_removed_are_not_asked_for(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [n > 29 for n in range(60)])
    assert found(tmp_path, REQUESTS[30:], 3000) == (True, 3000)
    assert found(tmp_path, [replace_offset(REQUESTS[0], 1 << 40)], 1 << 40) == (None, 1 << 40)


def test_entries_behind_the_end_of_the_log_are_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [True] * 60)
    fs, log = RealFileSystem(), log_of_requests(REQUESTS[:50])
    assert find_tag_entries(fs, tmp_path, LAYOUT, log, 0, 5000) == (True, 0)
    assert found(tmp_path, REQUESTS[:50]) == (True, 5901)  # here the log ends without saying so


def replace_offset(request: DispatchRequest, offset: int) -> DispatchRequest:
    return request._replace(commit_log_offset=offset)


def test_entries_of_another_log_tell_nothing(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [True] * 60)
    assert found(tmp_path, [replace_offset(REQUESTS[0], 7)]) == (None, 5901)


def test_entries_that_a_crash_left_empty_are_not_called_complete(tmp_path: Path) -> None:
    """The header counts them, and their bytes are zeros."""
    write(tmp_path, REQUESTS, [False] * 60)
    path = list_index_files(RealFileSystem(), tmp_path)[-1]
    data = bytearray(path.read_bytes())
    first = entry_position(1, LAYOUT.slot_count)
    data[first:] = bytes(len(data) - first)
    path.write_bytes(data)
    seen = found(tmp_path, REQUESTS)
    assert seen.complete_from is not None
    assert seen.complete_from > 5800


def test_a_header_that_counts_more_than_a_file_holds_is_not_believed(tmp_path: Path) -> None:
    write(tmp_path, REQUESTS, [True] * 60)
    path = list_index_files(RealFileSystem(), tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE - 4 : HEADER_SIZE] = (1 << 30).to_bytes(4, "big")
    path.write_bytes(data)
    assert found(tmp_path, REQUESTS) == (True, 0)
