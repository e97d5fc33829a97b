"""What is no store that can be served is refused by name, before a byte is written."""

from pathlib import Path

import pytest

from store.errors import UnsupportedStoreError
from store.files.file_system import RealFileSystem
from store.files.root_check import refuse_unsupported


@pytest.mark.parametrize("name", ["rdb", "consumerOffsets", "subscriptionGroups", "topics"])
def test_configuration_in_rocksdb_is_refused(tmp_path: Path, name: str) -> None:
    """The names are those of ConfigStorage and of the managers in config/v1 of RocketMQ 5.3.3."""
    for made in ("commitlog", f"config/{name}"):
        (tmp_path / made).mkdir(parents=True)
    with pytest.raises(UnsupportedStoreError, match=f"RocksDB .config/{name}."):
        refuse_unsupported(RealFileSystem(), tmp_path)


def test_messages_in_flight_in_rocksdb_are_refused(tmp_path: Path) -> None:
    for made in ("commitlog", "kvStore"):
        (tmp_path / made).mkdir()
    with pytest.raises(UnsupportedStoreError, match="POP_ROLLBACK"):
        refuse_unsupported(RealFileSystem(), tmp_path)


def test_a_store_with_json_files_is_served(tmp_path: Path) -> None:
    for made in ("commitlog", "config"):
        (tmp_path / made).mkdir()
    (tmp_path / "config" / "topics.json").write_text("{}")
    refuse_unsupported(RealFileSystem(), tmp_path)


def test_an_empty_directory_is_refused_where_no_store_can_begin(tmp_path: Path) -> None:
    refuse_unsupported(RealFileSystem(), tmp_path)
    with pytest.raises(UnsupportedStoreError, match="nothing to serve read-only"):
        refuse_unsupported(RealFileSystem(), tmp_path, may_be_empty=False)
