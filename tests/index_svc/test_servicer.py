"""The index RPCs, called as gRPC calls them."""

import pytest

from index_svc.index_file_set import IndexFileSet
from index_svc.servicer import IndexServicer
from reput.index.v1 import index_service_pb2 as pb
from services.following.follower_process import FollowerState
from services.following.follower_progress import FollowerProgress
from store.derive.dispatch_columns import DispatchColumns
from store.errors import StoreRecoveringError
from store.files.file_system import RealFileSystem
from store.readers.index_reader import IndexLayout
from tests.support.dispatches import make_request


def test_candidates_come_with_how_far_the_index_is(tmp_path):
    progress, files = FollowerProgress(), IndexFileSet(tmp_path, RealFileSystem(), IndexLayout(7, 9), lambda: 0)
    files.apply(DispatchColumns.of([make_request(n, keys=["k"]) for n in range(20)]))
    progress.see_log(0, 2500)
    progress.advance(2000, 1_700_000_000_123)
    servicer = IndexServicer(progress)
    servicer.open(files)

    response = servicer.SearchKey(pb.SearchKeyRequest(topic="orders", key="k", page_size=3), None)

    assert list(response.commit_log_offsets) == [1900, 1800, 1700]
    assert (response.next_page_token, response.next_offset, response.log_end_offset) == ("1700", 2000, 2500)
    assert response.catching_up
    assert response.indexed_up_to_time.ToMilliseconds() == 1_700_000_000_123
    status = servicer.GetStatus(pb.GetStatusRequest(), None)
    assert (status.key_count, status.built_up_to_time.ToMilliseconds()) == (20, 1_700_000_000_123)


def test_a_status_for_which_one_may_wait_says_how_far_the_index_is_without_counting():
    progress = FollowerProgress()
    progress.advance(100)
    servicer = IndexServicer(progress, 1)

    for past_offset in (99, 100):  # built, and not built
        request = pb.GetStatusRequest(past_offset=past_offset, wait_millis=5)
        assert servicer.GetStatus(request, None) == pb.GetStatusResponse(
            next_offset=100, catching_up=True, state="waiting"
        )


def test_before_the_index_is_open_searches_are_asked_to_come_again():
    servicer = IndexServicer(FollowerProgress())

    with pytest.raises(StoreRecoveringError):
        servicer.SearchKey(pb.SearchKeyRequest(topic="t", key="k"), None)
    servicer.state = lambda: FollowerState("retrying", 3, "no space left")
    status = servicer.GetStatus(pb.GetStatusRequest(), None)
    assert (status.state, status.failure_count, status.last_error) == ("retrying", 3, "no space left")
