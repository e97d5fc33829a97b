"""Queues and indexes built from the logs of real stores are RocketMQ's own files, byte for byte.

Names of index files are wall-clock times, so these are compared in their order. `crashed` was killed: its files are
whole all the same, because a killed process leaves its mapped pages to the kernel.
"""

import pytest

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from index_svc.index_file_set import IndexFileSet
from store.derive.dispatch_columns import DispatchColumns
from store.files.file_system import RealFileSystem
from store.readers.index_reader import IndexLayout, detect_index_layout, list_index_files
from store.readers.queue_reader import detect_queue_file_size
from tests.support.dispatches import file_bytes, requests_of

STORES = ("broker_store", "engine_store", "engine_crc_store", "crashed_store")
DEFAULT_LAYOUT = IndexLayout(5_000_000, 20_000_000)


@pytest.mark.parametrize("batch", [1, 100, 100_000])
@pytest.mark.parametrize("store", STORES)
def test_queue_files_equal_rocketmqs_byte_for_byte(store, batch, request, tmp_path):
    root, fs = request.getfixturevalue(store), RealFileSystem()
    requests = requests_of(root)
    table = ConsumeQueueTable(tmp_path, fs, detect_queue_file_size(fs, root))

    for at in range(0, len(requests), batch):
        table.apply(DispatchColumns.of(requests[at : at + batch]))

    assert file_bytes(root / "consumequeue") == file_bytes(tmp_path / "consumequeue")


@pytest.mark.parametrize("batch", [1, 100, 100_000])
@pytest.mark.parametrize("store", STORES)
def test_rmq_1987_1807_index_files_equal_rocketmqs_slot_for_slot(store, batch, request, tmp_path):
    root, fs = request.getfixturevalue(store), RealFileSystem()
    requests = requests_of(root)
    files = IndexFileSet(tmp_path, fs, detect_index_layout(fs, root, DEFAULT_LAYOUT), lambda: 1_795_256_952_255)

    for at in range(0, len(requests), batch):
        files.apply(DispatchColumns.of(requests[at : at + batch]))
    files.flush()

    expected = [path.read_bytes() for path in list_index_files(fs, root)]
    assert [path.read_bytes() for path in list_index_files(fs, tmp_path)] == expected


def test_the_crashed_stores_index_has_each_key_once(crashed_store, tmp_path):
    """The real broker's own recovery ends with 6,250 keys: its re-dispatch writes one twice."""
    fs = RealFileSystem()
    files = IndexFileSet(tmp_path, fs, detect_index_layout(fs, crashed_store, DEFAULT_LAYOUT), lambda: 0)

    files.apply(DispatchColumns.of(requests_of(crashed_store)))

    assert files.key_count == 6249
