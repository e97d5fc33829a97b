"""Index files behind the log's front go, a few a second, never the newest, and no start is the slower for it."""

import pytest

from index_svc.index_file_set import search_key
from index_svc.servicer import IndexServicer
from reput.index.v1 import index_service_pb2 as pb
from store.errors import StoreRecoveringError
from store.files.file_system import RealFileSystem
from store.readers.index_reader import list_index_files
from tests.support.builders import Clock, follow, open_index
from tests.support.dispatches import make_request

REQUESTS = [make_request(n, keys=["same", f"k{n}"]) for n in range(330)]  # 50 records a file, 7 files
END = REQUESTS[-1].next_offset


def file_names(root):
    return [path.name for path in list_index_files(RealFileSystem(), root)]


def tick(builder, clock, first, end=END):
    clock.seconds += 1
    builder.apply([], end, first, end)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def builder(tmp_path, clock):
    builder = open_index(tmp_path, REQUESTS, clock=clock)
    follow(builder, REQUESTS)
    return builder


# The first file holds the records 0 to 49: it ends at byte 4,900.
@pytest.mark.parametrize(
    ("first", "left"), [(0, 7), (4_900, 7), (4_901, 6), (5_000, 6), (9_900, 6), (9_901, 5), (END, 1)]
)
def test_files_that_end_before_the_log_go_but_never_the_newest(tmp_path, builder, clock, first, left):
    names = file_names(tmp_path)

    tick(builder, clock, first)

    assert file_names(tmp_path) == names[-left:]
    found = search_key(builder._files, "orders", "same", page_size=1000).commit_log_offsets
    assert found == [n * 100 for n in range(329, 50 * (7 - left) - 1, -1)]
    assert builder._files.key_count == len(found) * 2


def test_a_search_from_which_a_file_is_taken_asks_to_come_again(tmp_path, builder, clock):
    servicer = IndexServicer(builder.progress)
    servicer.open(builder._files)
    views = builder._files.views()
    tick(builder, clock, 15_000)
    builder._files.views = lambda: views

    with pytest.raises(StoreRecoveringError):
        servicer.SearchKey(pb.SearchKeyRequest(topic="orders", key="same", page_size=1000), None)
