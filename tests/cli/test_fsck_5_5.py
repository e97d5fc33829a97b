"""A store of RocketMQ 5.5.0 is sound; a repair and a rebuild give its index back, byte for byte, with entries of tags."""

import shutil
from pathlib import Path

from store.files.file_system import RealFileSystem
from store.readers.index_reader import list_index_files
from tests.cli.test_fsck import CLEAN, REPAIRED, fsck
from tests.pipeline.rebuild.rebuilding import assert_same_store, rebuild_here
from tests.store.audit.support import bad_codes, find


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
