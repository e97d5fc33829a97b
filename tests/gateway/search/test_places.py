"""Places for searches: a short wait for a turn, in the order of asking, and not all of them for consoles."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from console import calls as console_calls
from console.calls import CallContext, Calls
from gateway.reput.search import SEARCH_COUNT_MAX
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.serving.calls.cancellation import Cancellation
from services.serving.places import Places
from store.errors import ResourceBusyError
from tests.gateway.reput.test_servicer import refusal, serving
from tests.gateway.search.test_search_rpc import TOPIC, HeldShard
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until


@pytest.fixture
def threads():
    with ThreadPoolExecutor(16) as pool:
        yield pool


def waiting(pool: ThreadPoolExecutor, places: Places, cancellation: Cancellation | None = None) -> "Future[bool]":
    """One more that waits."""
    count = places.waiting_count
    taking = pool.submit(places.take, cancellation or Cancellation(), 60)
    wait_until(lambda: places.waiting_count == count + 1)
    return taking


def test_who_comes_first_has_the_next_place(threads) -> None:
    places = Places(2, 4)
    assert [places.take(Cancellation(), 0) for _ in range(3)] == [True, True, False]
    turns = [waiting(threads, places) for _ in range(4)]
    assert not threads.submit(places.take, Cancellation(), 60).result(WAIT_SECONDS_MAX), "enough wait"
    for turn in turns:
        assert not turn.done()
        places.give_back()
        assert turn.result(WAIT_SECONDS_MAX)
    assert not places.take(Cancellation(), 0)


def test_who_asks_again_at_once_stands_behind_who_waits(threads) -> None:
    places = Places(1, 4)
    assert places.take(Cancellation(), 0)
    first = waiting(threads, places)
    with places._condition:  # so that the one who waits has not moved when the other asks again
        places.give_back()
        assert not places.take(Cancellation(), 0)
    assert first.result(WAIT_SECONDS_MAX)


def test_a_caller_that_goes_waits_no_more_and_leaves_its_turn(threads) -> None:
    places = Places(1, 4)
    assert places.take(Cancellation(), 0)
    cancellation = Cancellation()
    first, second = waiting(threads, places, cancellation), waiting(threads, places)
    cancellation.cancel()
    assert not first.result(WAIT_SECONDS_MAX)
    places.give_back()
    assert second.result(WAIT_SECONDS_MAX)
    places.give_back()
    gone = Cancellation()
    gone.cancel()
    assert not places.take(gone, 60)
    assert places.take(Cancellation(), 0)


def test_who_waited_in_vain_left_its_turn_behind() -> None:
    places = Places(1, 4)
    assert places.take(Cancellation(), 0)
    for _ in range(10):
        assert not places.take(Cancellation(), 0)
    assert places._waiting.count == 0


def test_a_search_was_refused_while_a_step_of_another_was_about_to_end(records, monkeypatch) -> None:
    held = HeldShard(records)
    asking = threading.Semaphore(0)
    take = Places.take

    def noted(self, cancellation, seconds_max, client):
        asking.release()
        return take(self, cancellation, seconds_max, client)

    monkeypatch.setattr(Places, "take", noted)
    monkeypatch.setattr("gateway.reput.search.PLACE_SECONDS_MAX", 15.0)
    monkeypatch.setattr("gateway.reput.search.WAITING_COUNT_MAX", 1)
    request = pb.SearchMessagesRequest(topic=TOPIC, page_size=1)
    with serving(held, "127.0.0.1:1") as stub:
        running = [stub.SearchMessages.future(request, timeout=60) for _ in range(SEARCH_COUNT_MAX)]
        for _ in running:
            assert held.reading.acquire(timeout=WAIT_SECONDS_MAX)
            assert asking.acquire(timeout=WAIT_SECONDS_MAX)
        one_more = stub.SearchMessages.future(request, timeout=60)
        assert asking.acquire(timeout=WAIT_SECONDS_MAX)
        # Each who waits holds a thread of those that answer all calls: a further one is told while that one still waits.
        assert isinstance(refusal(lambda: stub.SearchMessages(request, timeout=60)), ResourceBusyError)
        held.release.set()
        assert len(one_more.result().messages) == 1
        assert [len(call.result().messages) for call in running] == [1] * SEARCH_COUNT_MAX


class HeldAnswers:
    """A servicer whose searches wait until they are let go."""

    def __init__(self) -> None:
        self.searching = threading.Semaphore(0)
        self.release = threading.Event()

    def SearchMessages(self, request, context):
        self.searching.release()
        assert self.release.wait(60)
        return pb.SearchMessagesResponse()

    def ListTopics(self, request, context):
        return pb.ListTopicsResponse()


def test_four_windows_of_the_console_left_no_place_for_a_client(threads, monkeypatch) -> None:
    """Also of several pages and windows: all share what consoles may have."""
    monkeypatch.setattr(console_calls, "PLACE_SECONDS_MAX", 15.0)
    answers = HeldAnswers()
    places = console_calls._SEARCH_PLACES
    count = console_calls.SEARCH_COUNT_MAX
    assert count < SEARCH_COUNT_MAX

    def search(context: CallContext):
        return Calls(answers, context).search(pb.SearchMessagesRequest())

    steps = [threads.submit(search, CallContext(60)) for _ in range(4)]
    for _ in range(count):
        assert answers.searching.acquire(timeout=WAIT_SECONDS_MAX)
    wait_until(lambda: places.waiting_count == 4 - count)
    assert not answers.searching.acquire(blocking=False)
    # Whatever is no search needs no place, and a browser that goes away waits no more.
    assert Calls(answers, CallContext(60)).ask(answers.ListTopics, pb.ListTopicsRequest()) == pb.ListTopicsResponse()
    leaving = CallContext(60)
    gone = threads.submit(search, leaving)
    wait_until(lambda: places.waiting_count == 5 - count)
    leaving.cancel()
    assert isinstance(gone.exception(WAIT_SECONDS_MAX), ResourceBusyError)
    with pytest.raises(ResourceBusyError):
        search(CallContext(0.02))
    answers.release.set()
    assert [step.result(WAIT_SECONDS_MAX) for step in steps] == [pb.SearchMessagesResponse()] * 4
    assert places.take(Cancellation(), 0)
    assert places.take(Cancellation(), 0)
    places.give_back()
    places.give_back()
