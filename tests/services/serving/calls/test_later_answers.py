"""The answers of a stream whose requests begin while earlier ones wait."""

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from services.serving.calls.later_answers import BEGUN_COUNT_MAX, AnswersInOrder, LaterAnswer
from tests.support.waiting import WAIT_SECONDS_MAX


class Call:
    """The part of gRPC's context that is used."""

    def __init__(self) -> None:
        self.is_active = True
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return self.is_active

    def end(self) -> None:
        self.is_active = False
        for callback in self._callbacks:
            callback()


class Stream:
    """Requests by hand; each is answered with itself, the ones that begin with `w` when they are released."""

    def __init__(self) -> None:
        self.call = Call()
        self.begun: list[bytes] = []
        self.changed = threading.Condition()
        self.release = threading.Event()
        self._requests: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        self.answers = AnswersInOrder(self._taken(), self._begin, self.call)  # type: ignore[arg-type]

    def give(self, *requests: bytes | Exception | None) -> None:
        for request in requests:
            self._requests.put(request)

    def await_begun(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, WAIT_SECONDS_MAX)

    def _taken(self) -> Iterator[bytes]:
        while (request := self._requests.get()) is not None:
            if isinstance(request, Exception):
                raise request
            yield request

    def _begin(self, request: bytes) -> bytes | LaterAnswer:
        with self.changed:
            self.begun.append(request)
            self.changed.notify_all()
        if request == b"bug":
            raise ZeroDivisionError
        if not request.startswith(b"w"):
            return request
        return LaterAnswer(lambda: request if self.release.wait(WAIT_SECONDS_MAX) else b"waited in vain")


def threads() -> int:
    return sum(thread.name == "begun-requests" for thread in threading.enumerate())


def await_no_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "begun-requests":
            thread.join(WAIT_SECONDS_MAX)
    assert threads() == 0


def test_requests_that_wait_for_nothing_need_no_thread() -> None:
    stream = Stream()
    stream.give(b"a", b"b", None)

    assert [next(stream.answers), next(stream.answers)] == [b"a", b"b"]
    assert threads() == 0
    assert list(stream.answers) == []


def test_requests_begin_while_the_first_one_waits_and_answers_keep_their_order() -> None:
    stream = Stream()
    stream.give(b"w1", b"a2", b"w3", b"a4", None)
    taken: list[bytes] = []
    reader = threading.Thread(target=lambda: taken.extend(stream.answers))
    reader.start()
    stream.await_begun(4)
    assert taken == []
    stream.release.set()
    reader.join(WAIT_SECONDS_MAX)

    assert taken == [b"w1", b"a2", b"w3", b"a4"]
    await_no_threads()


def test_only_so_many_requests_begin_ahead_of_their_answers() -> None:
    stream = Stream()
    stream.give(*[b"w%d" % number for number in range(BEGUN_COUNT_MAX + 5)], None)
    reader = threading.Thread(target=lambda: next(stream.answers))
    reader.start()
    # The first one is answered by the reading thread, beside those ahead.
    stream.await_begun(BEGUN_COUNT_MAX + 1)
    stream.release.set()
    reader.join(WAIT_SECONDS_MAX)

    assert len(stream.begun) == BEGUN_COUNT_MAX + 1
    assert len(list(stream.answers)) == BEGUN_COUNT_MAX + 4
    await_no_threads()


@pytest.mark.parametrize("failing", [b"bug", OSError("the call has broken")])
def test_a_failure_comes_behind_the_answers_before_it(failing: bytes | Exception) -> None:
    stream = Stream()
    stream.release.set()
    stream.give(b"w1", b"a2", failing)

    assert [next(stream.answers), next(stream.answers)] == [b"w1", b"a2"]
    with pytest.raises((ZeroDivisionError, OSError)):
        next(stream.answers)
    await_no_threads()


def test_the_end_of_the_call_ends_the_thread_that_waits_for_room() -> None:
    stream = Stream()
    stream.give(*[b"w%d" % number for number in range(BEGUN_COUNT_MAX + 5)])
    reader = threading.Thread(target=lambda: next(stream.answers))
    reader.start()
    stream.await_begun(BEGUN_COUNT_MAX + 1)
    stream.call.end()
    stream.release.set()
    reader.join(WAIT_SECONDS_MAX)

    await_no_threads()
