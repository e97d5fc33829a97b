"""Index files that a builder did not write are kept aside when they must be built again; entries of tags stay in place."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from index_svc.__main__ import IndexPart
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from index_svc.servicer import IndexServicer
from index_svc.settings import IndexSettings
from services.following.follower_process import LogRange
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch import DispatchRequest
from store.derive.dispatch_columns import DispatchColumns
from store.derive.index_keys import index_keys
from store.files.abort import create_abort_marker
from store.files.aside import Aside, builder_folder
from store.files.file_system import RealFileSystem
from store.format.derived.index_layout import index_key, key_hash
from store.readers.index_reader import IndexLayout
from tests.support.builders import LAYOUT
from tests.support.dispatches import feed, file_bytes, make_request

REQUESTS = [make_request(number, unique_key=f"U{number}", keys=[f"k{number}"]) for number in range(70)]


def write_as_rocketmq_5_5(root: Path, requests: Sequence[DispatchRequest], layout: IndexLayout = LAYOUT) -> list[Path]:
    """Index files with the entries of unique key, keys and tags of each record; their paths."""
    files = IndexFileSet(root, RealFileSystem(), layout, lambda: 1_700_000_000_000)
    (root / "index").mkdir(parents=True)
    for request in requests:
        columns = DispatchColumns.of([request])
        tags = key_hash(index_key(request.topic, "T#A"))
        hashes = [*map(key_hash, index_keys(request)), tags]
        files.apply(_with_hashes(columns, hashes))
    files.flush()
    paths = files.paths()
    files.close()
    return paths


def _with_hashes(columns: DispatchColumns, hashes: Sequence[int]) -> DispatchColumns:
    return replace(
        columns, key_hashes=np.array(hashes, dtype=np.int32), key_records=np.zeros(len(hashes), dtype=np.int32)
    )


def open_builder(root: Path, requests: Sequence[DispatchRequest] = REQUESTS, *, is_clean: bool = True) -> IndexBuilder:
    """A recovered builder over a log of these records."""
    fs = RealFileSystem()
    aside = Aside(fs, root, builder_folder(root, "index"))
    files = IndexFileSet(root, fs, LAYOUT, lambda: 1_800_000_000_000, aside=aside)
    builder = IndexBuilder(files, root / "reput/index/checkpoint.json")
    builder.recover(
        is_clean_store=is_clean,
        log_first_offset=0,
        log_end_offset=requests[-1].next_offset,
        first_indexed=lambda offset: next(
            (r.commit_log_offset for r in requests if r.commit_log_offset > offset), None
        ),
    )
    builder.begin()
    return builder


def follow(builder: IndexBuilder, requests: Sequence[DispatchRequest] = REQUESTS) -> None:
    """Feeds the builder from where it begins to the log's end, and stops it."""
    start = builder.start_offset()
    rest = [request for request in requests if request.commit_log_offset >= start]
    feed(builder, rest, log_end_offset=requests[-1].next_offset)
    builder.stop()


def kept(root: Path) -> dict[str, bytes]:
    """Everything that was moved aside, by its path below the numbered folder."""
    found = file_bytes(root / "reput/aside/index")
    return {name.partition("/")[2]: data for name, data in found.items()}


def test_files_with_entries_of_tags_stay_as_they_are_after_a_clean_stop_of_a_broker(tmp_path: Path) -> None:
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    before = [path.read_bytes() for path in paths]
    assert len(before) == 3
    for _ in range(2):
        follow(open_builder(tmp_path))
        assert [path.read_bytes() for path in paths] == before
    assert kept(tmp_path) == {}


def test_the_newest_file_of_a_killed_broker_is_kept_aside_with_its_entries_of_tags_and_built_again(
    tmp_path: Path,
) -> None:
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    newest = paths[-1].read_bytes()
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {f"index/{paths[-1].name}": newest}
    assert all(path.exists() for path in paths[:-1])


@pytest.mark.parametrize("other", [IndexLayout(40, 101), IndexLayout(50, 31)], ids=["slots", "entries"])
def test_a_file_of_another_size_is_kept_aside(tmp_path: Path, other: IndexLayout) -> None:
    (path, *_) = write_as_rocketmq_5_5(tmp_path, REQUESTS[:9], other)
    before = path.read_bytes()
    follow(open_builder(tmp_path))
    assert kept(tmp_path)[f"index/{path.name}"] == before


def test_files_whose_entries_point_behind_the_log_are_kept_aside(tmp_path: Path) -> None:
    paths = write_as_rocketmq_5_5(tmp_path, REQUESTS)
    before = {f"index/{path.name}": path.read_bytes() for path in paths}
    follow(open_builder(tmp_path, REQUESTS[:40]), REQUESTS[:40])
    assert kept(tmp_path) == before


def test_a_file_that_another_program_added_after_a_kill_is_kept_aside(tmp_path: Path) -> None:
    killed = open_builder(tmp_path)
    feed(killed, REQUESTS[:20], log_end_offset=REQUESTS[-1].next_offset)
    killed._prepare_checkpoint(is_clean=False)()
    (other,) = write_as_rocketmq_5_5(tmp_path / "other", REQUESTS[30:40])
    added = tmp_path / "index" / "20991231235959999"
    added.write_bytes(other.read_bytes())
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {f"index/{added.name}": other.read_bytes()}


def test_a_kill_keeps_nothing_aside_of_the_files_that_the_builder_wrote_itself(tmp_path: Path) -> None:
    killed = open_builder(tmp_path)
    feed(killed, REQUESTS[:20], log_end_offset=REQUESTS[-1].next_offset)
    killed._prepare_checkpoint(is_clean=False)()
    feed(killed, REQUESTS[20:], log_end_offset=REQUESTS[-1].next_offset)
    follow(open_builder(tmp_path, is_clean=False))
    assert kept(tmp_path) == {}
    assert len(list((tmp_path / "index").iterdir())) == 2


def test_a_store_that_its_broker_stopped_cleanly_is_clean_although_the_commit_log_has_opened_it(tmp_path: Path) -> None:
    create_abort_marker(RealFileSystem(), tmp_path)  # as the commit log of `reput serve` does, which starts first
    progress, no_client = FollowerProgress(), None
    client: Any = no_client
    part = IndexPart(RealFileSystem(), IndexSettings(store=tmp_path), IndexServicer(progress), progress, client)
    assert part.is_clean_store(LogRange(0, 100, stopped_cleanly=True))
    assert not part.is_clean_store(LogRange(0, 100))
