"""Stores in which a broker of RocketMQ 5.5.0 put content into RocksDB, by its settings (tests/fixtures/README.md)."""

from pathlib import Path

import pytest

from store.errors import UnsupportedStoreError
from store.features.signs import read_signs
from store.features.table import Support, found_features, refuse_unsupported
from store.files.file_system import RealFileSystem
from tests.support.fixture_stores import unpack_store

# By the folder of the fixture: the features that are refused, and where each was found.
STORES = {
    "timers": {"rocksdb-messages": ("rocksdbstore/000013.sst",)},
    "transactions": {"rocksdb-messages": ("rocksdbstore/000013.sst",)},
    "index": {"rocksdb-messages": ("rocksdbstore/000013.sst",)},
    "queues": {"rocksdb-queues": ("consumequeue",)},
    "queues_apart": {"rocksdb-queues": ("consumequeue_rocksdb",)},
    "all": {
        "rocksdb-queues": ("consumequeue",),
        "rocksdb-config": ("config/topics", "config/subscriptionGroups", "config/consumerOffsets"),
    },
    "all_single": {"rocksdb-queues": ("consumequeue",), "rocksdb-config": ("config/metadata",)},
    "config_v2": {"rocksdb-config": ("config/rdb",)},
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_store("rocksdb", tmp_path_factory.mktemp("rocksdb"))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_fixture_has_no_other_stores(stores: Path) -> None:
    assert {path.name for path in stores.iterdir()} == STORES.keys()


@pytest.mark.parametrize("name", STORES)
def test_a_store_that_5_5_0_wrote_into_rocksdb_is_refused_by_name_and_untouched(stores: Path, name: str) -> None:
    root = stores / name
    found = found_features(read_signs(RealFileSystem(), root))
    refused = {each.feature.name: each.evidence for each in found if each.feature.support is Support.REFUSED}
    assert refused == STORES[name]
    before = contents(root)
    for writes in (True, False):
        with pytest.raises(UnsupportedStoreError) as caught:
            refuse_unsupported(RealFileSystem(), root, writes=writes)
        first = next(each.feature for each in found if each.feature.name in refused)
        assert caught.value.metadata["feature"] == first.name
        assert first.to_do in caught.value.message
    assert contents(root) == before
