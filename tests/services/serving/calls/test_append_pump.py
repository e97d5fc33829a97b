"""A stream that the polling thread drives: order, backpressure, ends, and what a clean stop waits for."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from services.serving.admission.shares import Shares
from services.serving.calls.append_pump import Pumped, StreamPump
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from services.status import from_rpc_error
from store.errors import DiskFullError, ResourceBusyError
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

UNANSWERED_COUNT_MAX = 3
SERVICE = "reput.gateway.v1.GatewayService"
METHOD = f"/{SERVICE}/AppendMessageStream"

Drive = Callable[[StreamPump, Any], bool]


def by_thread(requests: Iterator[bytes], context: object) -> Iterator[bytes]:
    """gRPC's own way, with another answer."""
    for request in requests:
        yield b"by thread " + request


def echo(pump: StreamPump, context: Any) -> bool:
    """Answers from the stream's thread, as the gateway does."""
    taken: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    context.add_callback(lambda: taken.put(None))
    pump.start(taken.put, UNANSWERED_COUNT_MAX)
    while (request := taken.get()) is not None:
        pump.send(request)
    pump.wait_until_sent()
    return True


@contextlib.contextmanager
def serving(drive: Drive) -> Iterator[tuple[ServiceServer, Any]]:
    server = ServiceServer("gateway", ServiceSettings(worker_count=4))
    handlers = {"AppendMessageStream": grpc.stream_stream_rpc_method_handler(Pumped(by_thread, drive))}

    def add(_servicer: object, grpc_server: grpc.Server) -> None:
        grpc_server.add_registered_method_handlers(SERVICE, handlers)

    server.add(SERVICE, add, None)
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        with grpc.insecure_channel(server.address) as channel:
            yield server, channel.stream_stream(METHOD)
    finally:
        server.stop()
        ended.join()


@pytest.mark.parametrize("size_bytes", [0, 7, 100_000])
def test_every_request_is_answered_in_order(size_bytes):
    requests = [b"%d" % number + bytes(size_bytes) for number in range(200)]
    with serving(echo) as (_, append):
        assert list(append(iter(requests), timeout=WAIT_SECONDS_MAX)) == requests


def test_a_stream_without_requests_ends():
    with serving(echo) as (_, append):
        assert list(append(iter([]), timeout=WAIT_SECONDS_MAX)) == []


def test_a_handler_whose_pump_declines_serves_by_its_thread():
    with serving(lambda pump, context: False) as (_, append):
        assert list(append(iter([b"a", b"b"]), timeout=WAIT_SECONDS_MAX)) == [b"by thread a", b"by thread b"]


def test_no_request_is_taken_beyond_those_that_may_be_unanswered():
    taken: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    go_on = threading.Semaphore(0)

    def hold(pump: StreamPump, context: Any) -> bool:
        pump.start(taken.put, UNANSWERED_COUNT_MAX)
        for number in range(10):
            assert go_on.acquire(timeout=WAIT_SECONDS_MAX)
            pump.send(b"%d" % number)
        pump.wait_until_sent()
        return True

    with serving(hold) as (_, append):
        answers = append(iter([b"%d" % number for number in range(10)]), timeout=WAIT_SECONDS_MAX)
        first = [taken.get(timeout=WAIT_SECONDS_MAX) for _ in range(UNANSWERED_COUNT_MAX)]
        with pytest.raises(queue.Empty):  # it would come at once: the caller has sent all of them
            taken.get(timeout=0.3)
        go_on.release()
        assert next(answers) == b"0"
        fourth = taken.get(timeout=WAIT_SECONDS_MAX)
        with pytest.raises(queue.Empty):
            taken.get(timeout=0.3)
        go_on.release(9)
        assert list(answers) == [b"%d" % number for number in range(1, 10)]

    assert [*first, fourth] == [b"0", b"1", b"2", b"3"]


def test_an_error_comes_behind_the_answers_that_were_given_before_it():
    def refuse(pump: StreamPump, context: Any) -> bool:
        arrived = threading.Event()
        pump.start(lambda request: arrived.set(), UNANSWERED_COUNT_MAX)
        assert arrived.wait(WAIT_SECONDS_MAX)
        for number in range(5):
            pump.send(b"%d" % number * 100_000)
        pump.wait_until_sent()
        raise DiskFullError("no room")

    with serving(refuse) as (_, append):
        answers = append(iter([b"x"]), timeout=WAIT_SECONDS_MAX)
        assert [next(answers)[:1] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)

    assert isinstance(from_rpc_error(caught.value), DiskFullError)


def test_a_bug_where_requests_are_taken_ends_its_own_stream_only():
    def bug(pump: StreamPump, context: Any) -> bool:
        def take(request: bytes | None) -> None:
            if request == b"bug":
                raise ZeroDivisionError
            taken.put(request)

        taken: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        context.add_callback(lambda: taken.put(None))
        pump.start(take, UNANSWERED_COUNT_MAX)
        while (request := taken.get()) is not None:
            pump.send(request)
        pump.wait_until_sent()
        return True

    with serving(bug) as (_, append):
        with pytest.raises(grpc.RpcError):
            list(append(iter([b"bug"]), timeout=WAIT_SECONDS_MAX))
        assert list(append(iter([b"fine"]), timeout=WAIT_SECONDS_MAX)) == [b"fine"]


def test_who_goes_away_leaves_nothing_behind():
    with serving(echo) as (server, append):
        for _ in range(10):
            requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            answers = append(iter(requests.get, None))
            requests.put(b"a")
            assert next(answers) == b"a"
            answers.cancel()
            requests.put(None)
        wait_until(lambda: server.lanes.streams.call_count == 0)
        assert server.work.wait_until_done(WAIT_SECONDS_MAX)


def test_a_request_is_open_work_until_its_answer_went():
    arrived, go_on = threading.Event(), threading.Event()

    def hold(pump: StreamPump, context: Any) -> bool:
        pump.start(lambda request: arrived.set(), UNANSWERED_COUNT_MAX)
        assert go_on.wait(WAIT_SECONDS_MAX)
        pump.send(b"late")
        pump.wait_until_sent()
        return True

    with serving(hold) as (server, append):
        answers = append(iter([b"x"]), timeout=WAIT_SECONDS_MAX)
        assert arrived.wait(WAIT_SECONDS_MAX)
        assert not server.work.wait_until_done(0)
        go_on.set()
        assert list(answers) == [b"late"]
        assert server.work.wait_until_done(WAIT_SECONDS_MAX)


def test_an_idle_stream_that_is_ended_keeps_its_answers_and_says_why():
    with serving(echo) as (server, append):
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        answers = append(iter(requests.get, None), timeout=WAIT_SECONDS_MAX)
        requests.put(b"a")
        assert next(answers) == b"a"
        waits = list(server.lanes.watch._waits)
        wait_until(lambda: waits[0].idle_seconds() > 0, "the stream is idle")
        waits[0].end_idle(ResourceBusyError("its place was needed"))
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        requests.put(None)

    assert isinstance(from_rpc_error(caught.value), ResourceBusyError)


def test_a_stream_with_an_unanswered_request_is_not_idle():
    arrived, go_on = threading.Event(), threading.Event()

    def hold(pump: StreamPump, context: Any) -> bool:
        pump.start(lambda request: arrived.set(), UNANSWERED_COUNT_MAX)
        assert go_on.wait(WAIT_SECONDS_MAX)
        pump.send(b"late")
        pump.wait_until_sent()
        return True

    with serving(hold) as (server, append):
        answers = append(iter([b"x"]), timeout=WAIT_SECONDS_MAX)
        assert arrived.wait(WAIT_SECONDS_MAX)
        refusal = ResourceBusyError("no")
        (wait,) = server.lanes.watch._waits
        assert not server.lanes.watch.end_idle("streams", 0.0, wait.client, Shares(1), refusal)
        go_on.set()
        assert list(answers) == [b"late"]


@pytest.mark.parametrize("is_driven", [True, False])
def test_a_stream_that_was_ended_before_its_pump_began_waited_for_ever(is_driven):
    def late(pump: StreamPump, context: Any) -> bool:
        pump.end(ResourceBusyError("its place was needed"))
        return echo(pump, context) if is_driven else False

    with serving(late) as (_, append):
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        answers = append(iter(requests.get, None), timeout=WAIT_SECONDS_MAX)
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        requests.put(None)

    assert isinstance(from_rpc_error(caught.value), ResourceBusyError)
