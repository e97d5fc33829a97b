"""Calls that wait for a builder: woken by it, bounded in time and number."""

import threading

import pytest

from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.index.v1 import index_service_pb2 as index_pb
from services.following.follower_progress import FollowerProgress
from services.following.progress_wait import ProgressWait
from store.errors import InvalidArgumentError

REQUESTS = [index_pb.GetStatusRequest, queue_pb.GetStatusRequest]


class NotedProgress(FollowerProgress):
    """Notes who waits, and lets nobody wait long."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = []

    def wait_past(self, offset, timeout_seconds):
        self.waits.append((offset, timeout_seconds))
        return super().wait_past(offset, 0)


@pytest.mark.parametrize("request_class", REQUESTS)
def test_who_asks_for_no_wait_does_not_wait(request_class):
    progress = NotedProgress()
    wait = ProgressWait(progress, 1)
    assert not wait.wait(request_class())
    assert not wait.wait(request_class(past_offset=7))
    assert not wait.wait(request_class(wait_millis=7))
    assert wait.wait(request_class(past_offset=0, wait_millis=70))
    assert wait.wait(request_class(past_offset=8, wait_millis=2_000_000_000))
    assert progress.waits == [(0, 0.07), (8, 1.0)]


@pytest.mark.parametrize("request_class", REQUESTS)
@pytest.mark.parametrize("fields", [{"past_offset": -1, "wait_millis": 5}, {"past_offset": 1, "wait_millis": -5}])
def test_a_negative_number_is_refused(request_class, fields):
    with pytest.raises(InvalidArgumentError):
        ProgressWait(NotedProgress(), 1).wait(request_class(**fields))


def test_a_waiter_is_woken_by_the_record_that_it_waits_for_and_by_none_before():
    progress = FollowerProgress()
    progress.advance(100)
    woken = threading.Event()

    def wait() -> None:
        assert progress.wait_past(200, 60)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    for offset in (150, 200):  # the record that starts at 200 is not built yet
        progress.advance(offset)
        assert not woken.wait(0.05)
    progress.advance(300)
    assert woken.wait(60)
    thread.join()


def test_what_is_built_needs_no_wait_and_what_is_not_ends_with_the_time():
    progress = FollowerProgress()
    assert not progress.wait_past(0, 0)
    progress.advance(1)
    assert progress.wait_past(0, 0)
    assert not progress.wait_past(1, 0.01)


def test_who_finds_no_place_to_wait_is_answered_at_once():
    progress = FollowerProgress()
    begun = threading.Event()

    class OnePlace(NotedProgress):
        def wait_past(self, offset, timeout_seconds):
            begun.set()
            return progress.wait_past(offset, 60)

    wait = ProgressWait(OnePlace(), 1)
    request = index_pb.GetStatusRequest(past_offset=0, wait_millis=1000)
    first = threading.Thread(target=wait.wait, args=[request])
    first.start()
    assert begun.wait(60)
    assert wait.wait(request), "it asked to wait, so the counts are left out all the same"
    assert first.is_alive()
    progress.advance(1)
    first.join()
    assert wait.wait(request), "the place is free again"
