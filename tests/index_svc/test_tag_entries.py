"""An index with entries of tags, as RocketMQ 5.5.0 writes it, stays one: built, built again, taken over and switched."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from index_svc import recovery
from index_svc.builder import IndexBuilder
from index_svc.index_file_set import IndexFileSet
from index_svc.recovery import TagsWanted
from services.following.following_builder import FollowingBuilder
from store.derive.dispatch import DispatchRequest
from store.files.file_system import RealFileSystem
from store.readers.index_reader import IndexLayout, list_index_files
from store.readers.tag_entries import find_tag_entries, log_on_disk
from tests.support.dispatches import feed, requests_of

LAYOUT = IndexLayout(500, 200)


def open_builder(root: Path, log: Path, *, tags: TagsWanted = "auto", end: int | None = None) -> IndexBuilder:
    """A builder of the index of `root` over the log of another root."""
    fs, requests = RealFileSystem(), requests_of(log)
    files = IndexFileSet(root, fs, LAYOUT, lambda: 1_800_000_000_000)
    builder = IndexBuilder(files, root / "reput/index/checkpoint.json")

    def first_indexed(offset: int) -> int | None:
        return next((r.commit_log_offset for r in requests if r.commit_log_offset > offset and r.unique_key), None)

    builder.recover(
        is_clean_store=True,
        log_first_offset=0,
        log_end_offset=requests[-1].next_offset if end is None else end,
        first_indexed=first_indexed,
        find_tags=lambda: find_tag_entries(fs, root, LAYOUT, log_on_disk(fs, log), 0, sys.maxsize),
        tags=tags,
    )
    builder.begin()
    return builder


def follow(builder: FollowingBuilder, requests: list[DispatchRequest]) -> None:
    start = builder.start_offset()
    rest = [request for request in requests if request.commit_log_offset >= start]
    feed(builder, rest, log_end_offset=requests[-1].next_offset)
    builder.stop()


def index_bytes(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in list_index_files(RealFileSystem(), root)]


def saved_tags_from(root: Path) -> object:
    return json.loads((root / "reput/index/checkpoint.json").read_text())["tags_from"]


def copy_of_index(store: Path, root: Path) -> Path:
    (root / "index").mkdir(parents=True)
    for path in list_index_files(RealFileSystem(), store):
        shutil.copyfile(path, root / "index" / path.name)
    return root


def test_an_index_built_from_the_log_of_rocketmq_5_5_has_its_bytes(rocketmq_5_5_store: Path, tmp_path: Path) -> None:
    follow(open_builder(tmp_path, rocketmq_5_5_store, tags="on"), requests_of(rocketmq_5_5_store))
    assert index_bytes(tmp_path) == index_bytes(rocketmq_5_5_store)
    assert saved_tags_from(tmp_path) == 0


def test_the_index_of_rocketmq_5_5_is_taken_over_and_goes_on_with_entries_of_tags(
    rocketmq_5_5_store: Path, tmp_path: Path
) -> None:
    requests = requests_of(rocketmq_5_5_store)
    cut = requests[len(requests) // 2].commit_log_offset
    follow(
        open_builder(tmp_path, rocketmq_5_5_store, tags="on", end=cut), [r for r in requests if r.next_offset <= cut]
    )
    (tmp_path / "reput/index/checkpoint.json").unlink()  # as a broker leaves it
    follow(open_builder(tmp_path, rocketmq_5_5_store), requests)
    assert index_bytes(tmp_path) == index_bytes(rocketmq_5_5_store)
    assert saved_tags_from(tmp_path) == 0
    follow(open_builder(tmp_path, rocketmq_5_5_store), requests)
    assert saved_tags_from(tmp_path) == 0


def test_the_index_of_rocketmq_5_5_is_built_again_with_entries_of_tags(
    rocketmq_5_5_store: Path, tmp_path: Path
) -> None:
    root = copy_of_index(rocketmq_5_5_store, tmp_path)
    requests = requests_of(rocketmq_5_5_store)
    builder = open_builder(root, rocketmq_5_5_store)
    builder.rebuild()
    assert saved_tags_from(root) == 0  # killed here, the next life knows it still
    follow(open_builder(root, rocketmq_5_5_store), requests)
    assert index_bytes(root) == index_bytes(rocketmq_5_5_store)


@pytest.mark.parametrize(("tags", "saved"), [("auto", None), ("off", None), ("on", "end")])
def test_an_index_of_rocketmq_5_3_gets_entries_of_tags_only_when_they_are_switched_on(
    rocketmq_5_5_store: Path, tmp_path: Path, tags: TagsWanted, saved: str | None
) -> None:
    requests = requests_of(rocketmq_5_5_store)
    first = requests[: len(requests) // 2]
    end = first[-1].next_offset
    follow(open_builder(tmp_path, rocketmq_5_5_store, tags="off", end=end), first)
    (tmp_path / "reput/index/checkpoint.json").unlink()
    follow(open_builder(tmp_path, rocketmq_5_5_store, tags=tags), requests)
    # The place from which the log was followed: the newest record that had entries.
    assert saved_tags_from(tmp_path) == (None if saved is None else first[-1].commit_log_offset)
    fs = RealFileSystem()
    found = find_tag_entries(fs, tmp_path, LAYOUT, log_on_disk(fs, rocketmq_5_5_store), 0, sys.maxsize)
    assert found.are_written == (tags == "on")


def test_entries_of_tags_are_no_longer_written_when_they_are_switched_off(
    rocketmq_5_5_store: Path, tmp_path: Path
) -> None:
    requests = requests_of(rocketmq_5_5_store)
    first = requests[: len(requests) // 2]
    follow(open_builder(tmp_path, rocketmq_5_5_store, tags="on", end=first[-1].next_offset), first)
    follow(open_builder(tmp_path, rocketmq_5_5_store, tags="off"), requests)
    assert saved_tags_from(tmp_path) is None
    follow(open_builder(tmp_path, rocketmq_5_5_store), requests)
    assert saved_tags_from(tmp_path) is None


def test_a_new_index_is_as_the_default_says(
    rocketmq_5_5_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = requests_of(rocketmq_5_5_store)
    for default, saved in ((True, 0), (False, None)):
        monkeypatch.setattr(recovery, "NEW_STORES_HAVE_TAGS", default)
        root = tmp_path / str(default)
        follow(open_builder(root, rocketmq_5_5_store), requests)
        assert saved_tags_from(root) == saved


@pytest.mark.parametrize("modes", [("on", "off"), ("on", "off", "on")])
def test_an_index_whose_end_or_middle_has_no_entries_of_tags_is_not_taken_for_complete(
    rocketmq_5_5_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modes: tuple[TagsWanted, ...]
) -> None:
    """All in one file, which both versions of RocketMQ filled in turn."""
    monkeypatch.setattr(sys.modules[__name__], "LAYOUT", IndexLayout(5000, 20_000))
    requests = requests_of(rocketmq_5_5_store)
    last_without = 0
    for number, mode in enumerate(modes, 1):
        some = requests[: len(requests) * number // len(modes)]
        follow(open_builder(tmp_path, rocketmq_5_5_store, tags=mode, end=some[-1].next_offset), some)
        (tmp_path / "reput/index/checkpoint.json").unlink()  # a broker leaves none
        if mode == "off":
            # The next one completes the newest record.
            last_without = max(request.commit_log_offset for request in some[:-1] if request.tags)
    follow(open_builder(tmp_path, rocketmq_5_5_store), requests)
    tags_from = saved_tags_from(tmp_path)
    assert isinstance(tags_from, int)
    assert last_without < tags_from <= requests[-1].commit_log_offset
