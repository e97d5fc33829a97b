"""A store of RocketMQ 5.5.0 is sound; a repair and a rebuild give its index back, byte for byte, with entries of tags."""

import shutil
from pathlib import Path

import pytest

from pipeline.rebuild.out import StoreLayout, find_layout
from store.files.file_system import RealFileSystem
from store.readers.index_reader import list_index_files
from tests.cli.test_fsck import CLEAN, REPAIRED, fsck
from tests.index_svc.test_tag_entries import follow, open_builder, saved_tags_from
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.store.audit.support import audit, bad_codes, find
from tests.support.dispatches import requests_of


def index_bytes(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in list_index_files(RealFileSystem(), root)]


def writable_copy(store: Path, root: Path) -> Path:
    shutil.copytree(store, root)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return root


def test_a_store_of_rocketmq_5_5_is_sound_and_its_entries_of_tags_are_counted(rocketmq_5_5_store: Path) -> None:
    assert bad_codes(rocketmq_5_5_store) == set()
    assert find(rocketmq_5_5_store, "INDEX_ENTRIES_OF_TAGS").count > 200


def test_a_repair_of_a_damaged_index_gives_the_entries_of_tags_back(rocketmq_5_5_store: Path, tmp_path: Path) -> None:
    root = writable_copy(rocketmq_5_5_store, tmp_path / "store")
    index = sorted((root / "index").iterdir())[2]
    index.write_bytes(index.read_bytes()[:3000] + b"\xff" * 40 + index.read_bytes()[3040:])
    assert fsck(root, "--repair") == REPAIRED
    assert fsck(root) == CLEAN
    assert index_bytes(root) == index_bytes(rocketmq_5_5_store)


def test_a_rebuild_of_a_store_of_rocketmq_5_5_has_its_bytes(rocketmq_5_5_store: Path, tmp_path: Path) -> None:
    report = rebuild_here(rocketmq_5_5_store, tmp_path / "out", split_bytes=50_000)
    assert index_bytes(tmp_path / "out") == index_bytes(rocketmq_5_5_store)
    assert_same_store(tmp_path / "out", rocketmq_5_5_store)
    assert any("RocketMQ 5.5" in note for note in report.notes)


def with_tags_from_the_middle_on(store: Path, root: Path) -> Path:
    """A copy whose index a service wrote: without entries of tags, then `on`."""
    writable_copy(store, root)
    shutil.rmtree(root / "index")
    requests = requests_of(store)
    some = requests[: len(requests) // 2]
    follow(open_builder(root, store, tags="off", end=some[-1].next_offset), some)
    follow(open_builder(root, store, tags="on"), requests)
    return root


def test_a_repair_makes_the_older_entries_of_tags_as_the_refusal_of_a_query_says(
    rocketmq_5_5_store: Path, tmp_path: Path
) -> None:
    root = with_tags_from_the_middle_on(rocketmq_5_5_store, tmp_path / "store")
    assert find(root, "INDEX_TAGS_FROM").commit_log_offset == saved_tags_from(root) != 0
    assert bad_codes(root) == set()
    assert fsck(root) == CLEAN
    assert fsck(root, "--repair") == REPAIRED
    assert saved_tags_from(root) == 0
    assert index_bytes(root) == index_bytes(rocketmq_5_5_store)
    assert fsck(root, "--repair") == CLEAN


def test_a_repair_makes_the_entries_of_tags_that_the_setting_asks_for_before_a_service_ran_with_it(
    rocketmq_5_5_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = writable_copy(rocketmq_5_5_store, tmp_path / "store")
    shutil.rmtree(root / "index")
    follow(open_builder(root, rocketmq_5_5_store, tags="off"), requests_of(rocketmq_5_5_store))
    assert fsck(root, "--repair") == CLEAN
    monkeypatch.setenv("REPUT_INDEX_TAGS", "on")
    assert fsck(root, "--repair") == REPAIRED
    assert saved_tags_from(root) == 0
    assert index_bytes(root) == index_bytes(rocketmq_5_5_store)
    assert fsck(root, "--repair") == CLEAN


def test_a_repair_makes_no_entries_of_tags_where_they_are_switched_off(
    rocketmq_5_5_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPUT_INDEX_TAGS", "off")
    root = with_tags_from_the_middle_on(rocketmq_5_5_store, tmp_path / "store")
    assert fsck(root, "--repair") == CLEAN
    newest = sorted((root / "index").iterdir())[-1]
    newest.unlink()
    assert fsck(root, "--repair") == REPAIRED
    assert saved_tags_from(root) is None
    assert not audit(root).findings.has(["INDEX_ENTRIES_OF_TAGS"])


@pytest.mark.parametrize("has_tags", [None, True, False])
def test_a_rebuild_gives_the_index_the_entries_of_tags_that_its_setting_asks_for(
    rocketmq_5_5_store: Path, broker_store: Path, has_tags: bool | None
) -> None:
    wanted = StoreLayout(has_tags=has_tags)
    found = [find_layout(RealFileSystem(), store, wanted)[0].has_tags for store in (rocketmq_5_5_store, broker_store)]
    assert found == ([True, False] if has_tags is None else [has_tags, has_tags])
