"""Calls whose callers wait in no thread: one thread takes the answers to all of them."""

import os
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from services.local import client as local_client
from services.local import client as under_way
from services.local.client import CallsUnderWay, LocalClient
from services.local.wire import APPENDS, GREETING, HEAD, LocalMethod
from services.status import StatusError
from store.errors import DeadlineExceededError, DiskFullError, ServiceUnavailableError
from tests.services.local.support import WAIT_SECONDS_MAX, listening, serving
from tests.support.waiting import wait_until

NEVER, SAFE = LocalMethod.APPEND, LocalMethod.SEARCH_KEY


class Caller:
    """Calls, and keeps the outcomes."""

    def __init__(self, address: str, call_count_max: int = 2) -> None:
        self.local = LocalClient(APPENDS, address, "commitlog")
        self.calls = CallsUnderWay(self.local, call_count_max)
        self.outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def begin(self, request: bytes, method: LocalMethod = NEVER, seconds: float = WAIT_SECONDS_MAX) -> bool:
        return self.calls.begin(method, request, seconds, self.outcomes.put)

    def call(self, request: bytes, method: LocalMethod = NEVER) -> Any:
        assert self.begin(request, method)
        return self.outcome()

    def outcome(self) -> Any:
        return self.outcomes.get(timeout=WAIT_SECONDS_MAX)


@pytest.fixture
def caller(address: str) -> Iterator[Caller]:
    made = Caller(address)
    yield made
    made.calls.close()


@pytest.mark.parametrize("size_bytes", [0, 40_000, APPENDS.request_bytes_max])
def test_a_request_arrives_whole_also_when_the_connection_does_not_take_it_at_once(caller, server, log, size_bytes):
    requests = [b"first", os.urandom(size_bytes)]

    assert [caller.call(request) for request in requests] == [b"unary " + request[:100] for request in requests]
    assert log.requests == requests


def test_calls_one_after_the_other_use_one_connection_and_the_callers_thread_writes(caller, server, log):
    caller.call(b"first")
    threads = threading.active_count()
    for number in range(20):
        assert caller.call(b"%d" % number) == b"unary %d" % number

    # The thread that has opened the connection may have ended meanwhile.
    assert threading.active_count() <= threads
    assert server.connection_count == 1


def test_a_call_may_begin_where_the_answer_to_the_one_before_arrives(caller, server):
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def go_on(_outcome: object) -> None:
        assert caller.calls.begin(NEVER, b"second", WAIT_SECONDS_MAX, ended.put)

    assert caller.calls.begin(NEVER, b"first", WAIT_SECONDS_MAX, go_on)

    assert ended.get(timeout=WAIT_SECONDS_MAX) == b"unary second"
    assert server.connection_count == 1


def test_without_room_nothing_is_done(caller, server, log):
    log.release.clear()
    for number in range(2):
        assert caller.begin(b"%d" % number)
        log.wait_for_one()

    assert not caller.begin(b"more")
    log.release.set()
    assert {caller.outcome(), caller.outcome()} == {b"unary 0", b"unary 1"}
    assert log.requests == [b"0", b"1"]


def test_a_status_comes_as_it_was_made_and_the_connection_goes_on(caller, server, log):
    log.error = DiskFullError("no room", freeBytes=7)
    refused = caller.call(b"a")
    log.error = None

    assert isinstance(refused, StatusError)
    assert refused.status.message == "no room"
    assert caller.call(b"b") == b"unary b"
    assert server.connection_count == 1


@pytest.mark.parametrize("method", [NEVER, SAFE])
@pytest.mark.parametrize("is_asleep", [False, True])
def test_a_deadline_ends_the_call_and_the_late_answer_reaches_no_other(
    caller, server, log, monkeypatch, method, is_asleep
):
    if is_asleep:
        monkeypatch.setattr(under_way, "QUIET_LOOK_COUNT", 0)
    caller.call(b"first")
    if is_asleep:
        wait_until(lambda: caller.calls._is_asleep, "the thread of the answers to sleep")
    log.release.clear()
    assert caller.begin(b"slow", method, 0.05)

    late = caller.outcome()
    log.release.set()
    assert isinstance(late, DeadlineExceededError)
    assert late.metadata == {"code": "DEADLINE_EXCEEDED", "service": "commitlog"}
    assert caller.call(b"next") == b"unary next"


@pytest.mark.parametrize("method", [NEVER, SAFE])
def test_a_service_that_hangs_is_detected(caller, path, monkeypatch, method):
    """It greets and does nothing more, as a stopped process; then its listener is silent, too."""
    monkeypatch.setattr(under_way, "KEEPALIVE_SECONDS", 0.05)
    monkeypatch.setattr(local_client.Peer, "lives", lambda _self: False)
    with listening(path) as listener, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(lambda: (one := listener.accept()[0], one.sendall(GREETING))[0])
        outcome = caller.call(b"x", method)
        with accepted.result(WAIT_SECONDS_MAX):
            assert outcome is None if method is SAFE else isinstance(outcome, ServiceUnavailableError)


def test_a_slow_call_is_waited_for_while_the_service_lives(caller, server, log, monkeypatch):
    monkeypatch.setattr(under_way, "KEEPALIVE_SECONDS", 0.01)
    asked = threading.Semaphore(0)
    monkeypatch.setattr(local_client.Peer, "lives", lambda _self: (asked.release(), True)[1])
    log.release.clear()
    assert caller.begin(b"slow")
    for _ in range(3):
        assert asked.acquire(timeout=WAIT_SECONDS_MAX)
    log.release.set()

    assert caller.outcome() == b"unary slow"


@pytest.mark.parametrize("method", [NEVER, SAFE])
@pytest.mark.parametrize("answer", [b"", HEAD.pack(5, 0, 0) + b"ab", HEAD.pack(1, 1, 0) + b"\xff"])
def test_a_connection_that_breaks_under_a_call(caller, path, method, answer):
    def answer_so(listener: Any) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(GREETING)
            connection.recv(64)
            connection.sendall(answer)

    with listening(path) as listener, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer_so, listener)
        outcome = caller.call(b"x", method)
        answering.result(WAIT_SECONDS_MAX)

    assert outcome is None if method is SAFE else isinstance(outcome, ServiceUnavailableError)


def test_an_answer_in_pieces_holds_up_no_other(caller, path):
    whole = os.urandom(100_000)
    go_on = threading.Event()

    def answer(listener: Any) -> None:
        slow, quick = (listener.accept()[0] for _ in range(2))
        with slow, quick:
            for connection in (slow, quick):
                connection.sendall(GREETING)
            for connection in (slow, quick):
                connection.recv(64)
            slow.sendall(HEAD.pack(len(whole), 0, 0) + whole[:7])
            quick.sendall(HEAD.pack(1, 0, 0) + b"q")
            assert go_on.wait(WAIT_SECONDS_MAX)
            slow.sendall(whole[7:])

    with listening(path) as listener, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer, listener)
        for _ in range(2):
            assert caller.begin(b"x")
        first = caller.outcome()
        go_on.set()
        answering_outcome = caller.outcome()
        answering.result(WAIT_SECONDS_MAX)

    assert (first, answering_outcome) == (b"q", whole)


def test_bytes_behind_an_answer_are_not_the_next_calls_answer(caller, path):
    def answer_twice(listener: Any) -> None:
        with listener.accept()[0] as first:
            first.sendall(GREETING)
            first.recv(64)
            first.sendall(HEAD.pack(1, 0, 0) + b"y" + HEAD.pack(5, 0, 0) + b"STALE")
            with listener.accept()[0] as second:
                second.sendall(GREETING)
                second.recv(64)
                second.sendall(HEAD.pack(1, 0, 0) + b"z")

    with listening(path) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(WAIT_SECONDS_MAX)
        answering = pool.submit(answer_twice, listener)

        assert [caller.call(b"x"), caller.call(b"x")] == [b"y", b"z"]
        answering.result(WAIT_SECONDS_MAX)


def test_a_restarted_service_gets_the_next_call_which_the_closed_connection_does_not_fail(caller, path, log, work):
    with serving(path, log, work):
        assert caller.call(b"a") == b"unary a"
    with serving(path, log, work):
        outcome = caller.call(b"b")  # None: gRPC is used, for nothing was sent
        assert outcome in (None, b"unary b")
        assert caller.call(b"c") == b"unary c"


def test_a_callback_that_fails_takes_no_others_with_it(caller, server):
    def fail(_outcome: object) -> None:
        raise RuntimeError("a bug of the callback")

    assert caller.calls.begin(NEVER, b"a", WAIT_SECONDS_MAX, fail)

    wait_until(lambda: caller.calls._call_count == 0, "the call to end")
    assert caller.call(b"b") == b"unary b"


def test_the_thread_ends_with_the_last_call_after_close(caller, server, log):
    log.release.clear()
    assert caller.begin(b"last")
    log.wait_for_one()
    caller.calls.close()

    assert not caller.begin(b"more")
    log.release.set()
    assert caller.outcome() == b"unary last"
    wait_until(lambda: caller.calls._ready is None, "the thread of the answers to end")
    wait_until(lambda: server.connection_count == 0, "the connection to end")


def test_without_a_socket_and_for_a_request_that_is_too_large_nothing_is_done(address, server, tmp_path):
    elsewhere = Caller(f"unix:{tmp_path}/nobody")
    assert elsewhere.call(b"x") is None
    assert not elsewhere.begin(b"x"), "not tried again at once"
    assert not Caller("127.0.0.1:1").begin(b"x")
    assert not Caller(address).begin(bytes(APPENDS.request_bytes_max + 1))
    assert not Caller(address).begin(b"x", seconds=0.0)
