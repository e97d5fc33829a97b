"""A session whose only thread waits for its client: another thread has it say something."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from services.serving.calls.woken_requests import wake_here
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from tests.support.waiting import WAIT_SECONDS_MAX

SERVICE = "apache.rocketmq.v2.MessagingService"
METHOD = f"/{SERVICE}/Telemetry"


class Session:
    """What one stream of the server has seen."""

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.seen: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()
        self.may_go_on = threading.Semaphore(0)

    def serve(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answers each request with itself; after `slow` it waits for the test."""
        self.begun.put(wake_here())
        try:
            for request in requests:
                self.seen.put(request)
                if request == b"slow":
                    self.may_go_on.acquire()
                yield b"answer to " + request
            self.seen.put(None)
        except BaseException as error:  # also where gRPC closes the session
            self.seen.put(error)
            raise


@contextlib.contextmanager
def serving() -> Iterator[tuple[Session, Any]]:
    session = Session()
    server = ServiceServer("gateway", ServiceSettings(worker_count=4))
    handlers = {"Telemetry": grpc.stream_stream_rpc_method_handler(session.serve)}

    def add(_servicer: object, grpc_server: grpc.Server) -> None:
        grpc_server.add_registered_method_handlers(SERVICE, handlers)

    server.add(SERVICE, add, None)
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        with grpc.insecure_channel(server.address) as channel:
            yield session, channel.stream_stream(METHOD)
    finally:
        server.stop()
        ended.join()


@pytest.fixture
def stream() -> Iterator[tuple[Session, queue.SimpleQueue, Any, Callable[[], None]]]:
    """An open stream: the session, what its client says, the answers, and what wakes it."""
    with serving() as (session, telemetry):
        says: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        answers = telemetry(iter(says.get, None), timeout=WAIT_SECONDS_MAX)
        wake = session.begun.get(timeout=WAIT_SECONDS_MAX)
        yield session, says, answers, wake
        says.put(None)


def test_an_empty_request_comes_while_the_client_says_nothing_and_none_of_its_own_is_lost(stream):
    _, says, answers, wake = stream
    for number in range(100):
        wake()
        assert next(answers) == b"answer to "
        says.put(b"%d" % number)
        assert next(answers) == b"answer to %d" % number
    says.put(None)
    assert list(answers) == []


def test_many_wakes_are_one_and_one_while_a_request_is_answered_is_not_lost(stream):
    session, says, answers, wake = stream
    says.put(b"slow")
    assert session.seen.get(timeout=WAIT_SECONDS_MAX) == b"slow"
    for _ in range(3):
        wake()
    says.put(b"next")
    session.may_go_on.release()
    assert next(answers) == b"answer to slow"
    assert {next(answers), next(answers)} == {b"answer to ", b"answer to next"}
    says.put(b"last")
    assert next(answers) == b"answer to last", "one wake was left"


def test_requests_that_come_while_one_is_answered_after_a_wake_are_not_lost(stream):
    session, says, answers, wake = stream
    wake()
    assert next(answers) == b"answer to "
    for said in (b"slow", b"1", b"2", b"3"):
        says.put(said)
    session.may_go_on.release()
    assert [next(answers) for _ in range(4)] == [b"answer to slow", b"answer to 1", b"answer to 2", b"answer to 3"]


def test_the_end_of_a_client_after_a_wake_ends_its_requests(stream):
    session, says, answers, wake = stream
    wake()
    assert next(answers) == b"answer to "
    says.put(None)
    assert list(answers) == []
    assert [session.seen.get(timeout=WAIT_SECONDS_MAX) for _ in range(2)] == [b"", None]
    wake()  # its session has ended


def test_a_client_that_goes_after_a_wake_is_noticed(stream):
    session, _, answers, wake = stream
    wake()
    assert next(answers) == b"answer to "
    answers.cancel()
    assert session.seen.get(timeout=WAIT_SECONDS_MAX) == b""
    # gRPC ends the requests, fails, or closes the session, after where the session is then.
    assert not isinstance(session.seen.get(timeout=WAIT_SECONDS_MAX), bytes)


def test_a_thread_that_serves_no_session_wakes_nobody():
    wake_here()()
