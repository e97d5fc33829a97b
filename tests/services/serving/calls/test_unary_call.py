"""A unary call's thread comes late or never, and nobody can tell from outside."""

import contextlib
import threading
from collections import deque
from types import SimpleNamespace

import grpc
import pytest

from services import status
from services.serving.admission import lane as lane_module
from services.serving.admission.lane import Lane
from services.serving.calls.unary_call import AnsweredLater
from services.serving.server import ServiceServer
from services.serving.stall_watch import StallWatch
from services.settings.service_settings import ServiceSettings
from store.errors import InvalidArgumentError, InvalidMessageError, StoreError
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

WORKER_COUNT = 4
SERVICE = "reput.gateway.v1.GatewayService"
METHOD = f"/{SERVICE}/AppendMessages"


class Taken:
    """An `offer` that keeps its calls."""

    def __init__(self):
        self.calls = deque()
        self.count = threading.Semaphore(0)

    def __call__(self, request, call):
        self.calls.append((request, call))
        self.count.release()

    def next(self):
        assert self.count.acquire(timeout=WAIT_SECONDS_MAX)
        return self.calls.popleft()


@contextlib.contextmanager
def serving(offer):
    server = ServiceServer("gateway", ServiceSettings(worker_count=WORKER_COUNT))
    handlers = {"AppendMessages": grpc.unary_unary_rpc_method_handler(AnsweredLater(offer))}

    def add(_servicer, grpc_server):
        grpc_server.add_registered_method_handlers(SERVICE, handlers)

    server.add(SERVICE, add, None)
    server.start()
    server.set_serving(True)
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    with grpc.insecure_channel(server.address) as channel:
        try:
            yield server, channel.unary_unary(METHOD)
        finally:
            server.stop()
            ended.join()


def failure_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call.result()
    return caught.value


def test_answers_come_from_any_thread_in_any_order():
    taken = Taken()
    with serving(taken) as (server, append):
        calls = [append.future(str(number).encode(), timeout=WAIT_SECONDS_MAX) for number in range(WORKER_COUNT)]
        for request, call in sorted((taken.next() for _ in calls), reverse=True):
            call.answer(b"answer " + request)

        assert [call.result() for call in calls] == [f"answer {number}".encode() for number in range(WORKER_COUNT)]
        wait_until_empty(server)


def wait_until_empty(server):
    """Counts go down after the answer went out."""
    wait_until(lambda: server.lanes.calls.call_count == 0, lambda: f"{server.lanes.calls.call_count} are counted")


def test_a_failure_is_a_rich_status():
    error = InvalidMessageError("no", field="topic", index=3)
    with serving(lambda request, call: call.fail(status.to_status(error))) as (server, append):
        caught = failure_of(append.future(b"x", timeout=WAIT_SECONDS_MAX))
        wait_until_empty(server)

    returned = status.from_rpc_error(caught)
    assert (type(returned), returned.metadata) == (InvalidMessageError, {"field": "topic", "index": "3"})


def test_only_the_first_end_counts():
    def offer(request, call):
        call.answer(b"first")
        call.answer(b"second")
        call.fail(status.to_status(StoreError("third")))

    with serving(offer) as (server, append):
        assert append(b"x", timeout=WAIT_SECONDS_MAX) == b"first"
        wait_until_empty(server)


def test_a_bug_is_internal_and_the_server_goes_on():
    def offer(request, call):
        if request == b"bug":
            raise ZeroDivisionError("secret path")
        call.answer(request)

    with serving(offer) as (server, append):
        caught = failure_of(append.future(b"bug", timeout=WAIT_SECONDS_MAX))
        assert append(b"x", timeout=WAIT_SECONDS_MAX) == b"x"
        wait_until_empty(server)

    assert caught.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in caught.details()


def test_a_call_without_a_request_is_refused():
    with serving(Taken()) as (server, _), grpc.insecure_channel(server.address) as channel:
        caught = failure_of(channel.stream_unary(METHOD).future(iter([]), timeout=WAIT_SECONDS_MAX))
        wait_until_empty(server)

    assert type(status.from_rpc_error(caught)) is InvalidArgumentError


def test_a_caller_who_went_away_is_seen_and_his_answer_harms_nobody():
    taken = Taken()
    with serving(taken) as (server, append):
        future = append.future(b"x", timeout=WAIT_SECONDS_MAX)
        _, call = taken.next()
        assert call.is_active()
        # gRPC rounds a deadline up on the wire, by a few percent at most.
        assert 0 < call.time_remaining() <= WAIT_SECONDS_MAX * 1.1

        future.cancel()
        wait_until(lambda: not call.is_active())
        call.answer(b"too late")
        wait_until_empty(server)

        other = append.future(b"y", timeout=WAIT_SECONDS_MAX)
        taken.next()[1].answer(b"in time")
        assert other.result() == b"in time"


def test_more_calls_than_places_wait_for_their_turn_and_their_requests_outside():
    """What waits must not be in memory: a request may have 4 MiB."""
    taken = Taken()
    with serving(taken) as (server, append):
        calls = [append.future(bytes([number]), timeout=WAIT_SECONDS_MAX) for number in range(3 * WORKER_COUNT)]
        held = [taken.next() for _ in range(WORKER_COUNT)]
        while server.lanes.calls.call_count < len(calls):
            threading.Event().wait(0.01)
        assert not taken.count.acquire(timeout=0.1)

        for _ in range(2 * WORKER_COUNT):
            request, call = held.pop()
            call.answer(request)
            held.append(taken.next())
        for request, call in held:
            call.answer(request)
        assert [call.result() for call in calls] == [bytes([number]) for number in range(3 * WORKER_COUNT)]
        wait_until_empty(server)


def test_a_clean_stop_waits_for_the_answer():
    taken = Taken()
    with serving(taken) as (server, append):
        future = append.future(b"x", timeout=WAIT_SECONDS_MAX)
        _, call = taken.next()
        server.stop()
        assert server.stopping.wait(WAIT_SECONDS_MAX)
        call.answer(b"kept")

        assert future.result() == b"kept"


class FakeCall:
    """A call whose caller is gone or not."""

    behaviour = SimpleNamespace(method="", has_one_request=True)
    context = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1")

    def __init__(self, is_active):
        self._is_active = is_active

    def is_active(self):
        return self._is_active


def test_a_call_that_waits_skips_all_who_went_away_while_waiting(monkeypatch):
    """1,024 may wait; passing room on from one to the next by calls within calls would end at Python's limit."""
    received, worked = [], []
    monkeypatch.setattr(Lane, "_receive", lambda self, call: received.append(call))
    monkeypatch.setattr(Lane, "_work", lambda self, call, request: worked.append(call))
    monkeypatch.setattr(lane_module.UnaryCall, "of", classmethod(lambda cls, run, arguments: arguments[0]))
    lane = Lane("calls", 16, 4_000, StallWatch())
    first = [FakeCall(is_active=True) for _ in range(lane_module.ASKED_COUNT_MIN // 2)]
    last = FakeCall(is_active=True)
    for call in (*first, *(FakeCall(is_active=False) for _ in range(1_500)), last):
        lane.submit(None, call)
    assert (received, lane.call_count) == (first, 1_501 + len(first))

    lane._arrived(first[0], b"")
    assert (worked, received) == (first[:1], [*first, last])
    lane._leave(first[0].client)
    assert lane.call_count == len(first)
