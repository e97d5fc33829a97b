"""Calls over a local socket that are answered in a callback."""

import pathlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reput.consumer.v1 import consumer_service_pb2 as pb
from services.calling.client import CALL_COUNT_MAX, ServiceClient
from services.local.client import LocalClient
from services.local.server import Answer, Handler, LocalServer, RevocableAnswer
from services.local.wire import DELIVERIES, LocalMethod
from services.rpcs import Rpc
from services.rpcs.consumer import ACK_MESSAGES, POP_MESSAGES
from services.serving.calls.open_work import OpenWork
from store.errors import InvalidReceiptHandleError, ServiceUnavailableError
from tests.support.waiting import WAIT_SECONDS_MAX

REQUEST = pb.AckMessagesRequest(consumer_group="g", receipt_handles=["h"])
ANSWER = pb.AckMessagesResponse(outcomes=[pb.AckMessagesResponse.OUTCOME_OK])


class Service:
    """A service on a local socket whose one method the test sets."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.address = f"unix:{directory / 's'}"
        self.handle: Handler = lambda _: ANSWER.SerializeToString()
        methods = (LocalMethod.ACK_MESSAGES, LocalMethod.POP_MESSAGES)
        path = DELIVERIES.path(self.address)
        assert path is not None
        self.server = LocalServer(DELIVERIES, path, dict.fromkeys(methods, self._handle), OpenWork())
        self.server.start()

    def _handle(self, request: bytes) -> Answer:
        return self.handle(request)


@pytest.fixture
def service(tmp_path: pathlib.Path) -> Iterator[Service]:
    service = Service(tmp_path)
    yield service
    service.server.close()


class Caller(ServiceClient):
    """Calls, and keeps the outcomes and the calls that would be made over gRPC."""

    def __init__(self, address: str) -> None:
        super().__init__("consumer", address)
        self.outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.over_grpc: queue.SimpleQueue[float] = queue.SimpleQueue()

    def ask(self, rpc: Rpc[Any, Any] = ACK_MESSAGES) -> None:
        self.later(rpc, REQUEST, WAIT_SECONDS_MAX, self.outcomes.put)

    def _later_over_grpc(self, rpc: Rpc[Any, Any], request: Any, timeout_seconds: float, done: Any) -> None:
        self.over_grpc.put(timeout_seconds)


def test_the_answer_comes_in_the_callback(service: Service) -> None:
    caller = Caller(service.address)

    caller.ask()

    assert caller.outcomes.get(timeout=WAIT_SECONDS_MAX) == ANSWER
    assert caller.over_grpc.empty()


def test_an_error_comes_as_the_class_that_the_service_raised(service: Service) -> None:
    def refuse(_: bytes) -> bytes:
        raise InvalidReceiptHandleError("no", field="receipt_handle")

    service.handle = refuse
    caller = Caller(service.address)

    caller.ask()

    assert isinstance(caller.outcomes.get(timeout=WAIT_SECONDS_MAX), InvalidReceiptHandleError)


def test_calls_that_find_no_room_go_over_grpc(service: Service) -> None:
    entered, go_on = threading.Semaphore(0), threading.Event()

    def hold(_: bytes) -> bytes:
        entered.release()
        assert go_on.wait(WAIT_SECONDS_MAX)
        return ANSWER.SerializeToString()

    service.handle = hold
    caller = Caller(service.address)
    for _ in range(CALL_COUNT_MAX):
        caller.ask()
        assert entered.acquire(timeout=WAIT_SECONDS_MAX)

    caller.ask()

    assert caller.over_grpc.get(timeout=WAIT_SECONDS_MAX) <= WAIT_SECONDS_MAX
    go_on.set()
    assert [caller.outcomes.get(timeout=WAIT_SECONDS_MAX) for _ in range(CALL_COUNT_MAX)] == [ANSWER] * CALL_COUNT_MAX


def test_a_service_on_a_port_or_without_a_socket_is_called_over_grpc(tmp_path: pathlib.Path) -> None:
    for address in ("127.0.0.1:1", f"unix:{tmp_path / 'nobody'}"):
        caller = Caller(address)

        caller.ask()

        assert caller.over_grpc.get(timeout=WAIT_SECONDS_MAX) > 0
        assert caller.outcomes.empty()


def test_a_pop_whose_connection_breaks_is_not_made_again(service: Service) -> None:
    def end(_: bytes) -> bytes:
        service.server.close()
        return ANSWER.SerializeToString()

    service.handle = end
    caller = Caller(service.address)

    caller.ask(POP_MESSAGES)

    assert isinstance(caller.outcomes.get(timeout=WAIT_SECONDS_MAX), ServiceUnavailableError)
    assert caller.over_grpc.empty()


def test_a_callback_that_fails_leaves_room_for_later_calls(service: Service) -> None:
    caller = Caller(service.address)
    failed = threading.Event()

    def fail(_: object) -> None:
        failed.set()
        raise RuntimeError("a bug of the callback")

    caller.later(ACK_MESSAGES, REQUEST, WAIT_SECONDS_MAX, fail)
    assert failed.wait(WAIT_SECONDS_MAX)

    while caller.outcomes.empty():  # until there is room again, calls go over gRPC
        caller.ask()
    assert caller.outcomes.get() == ANSWER


def test_after_close_calls_go_over_grpc(service: Service) -> None:
    caller = Caller(service.address)
    caller.close()

    caller.ask()

    assert caller.over_grpc.get(timeout=WAIT_SECONDS_MAX) > 0


def test_an_answer_for_a_caller_that_has_gone_is_revoked(service: Service) -> None:
    revoked = threading.Event()
    entered, gone = threading.Event(), threading.Event()

    def pop(_: bytes) -> RevocableAnswer:
        entered.set()
        assert gone.wait(WAIT_SECONDS_MAX)
        return RevocableAnswer(b"", revoked.set)

    service.handle = pop
    client = LocalClient(DELIVERIES, service.address, "consumer")
    connection = client.connect()
    assert connection is not None
    calling = threading.Thread(target=_call_ignoring_errors, args=(connection,))
    calling.start()
    assert entered.wait(WAIT_SECONDS_MAX)
    connection.plain.shutdown(2)  # as the end of the caller's process
    calling.join()
    connection.close()

    gone.set()

    assert revoked.wait(WAIT_SECONDS_MAX)


def test_an_answer_that_was_sent_is_not_revoked(service: Service) -> None:
    revoked = threading.Event()
    service.handle = lambda _: RevocableAnswer(ANSWER.SerializeToString(), revoked.set)
    caller = Caller(service.address)

    caller.ask()

    assert caller.outcomes.get(timeout=WAIT_SECONDS_MAX) == ANSWER
    assert not revoked.is_set()


def _call_ignoring_errors(connection: Any) -> None:
    with pytest.raises(Exception, match=r".*"):
        connection.call(LocalMethod.POP_MESSAGES, b"", time.monotonic() + WAIT_SECONDS_MAX)
