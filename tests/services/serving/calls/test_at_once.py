"""A call that is tried at once: its answer is the same, and what an attempt cannot answer is answered by a thread."""

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from services import status
from services.observing import tracing
from services.serving.calls.at_once import AtOnce, AttemptContext
from services.serving.calls.unary_call import UnaryCall
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import DeadlineExceededError, InvalidArgumentError, RecordNotFoundError
from tests.support.waiting import wait_until

SERVICE = "reput.gateway.v1.GatewayService"
METHOD = f"/{SERVICE}/QueryMessageById"
CALLER_SECONDS = 50.0


class Queries:
    """Answers with the id that it was asked for, unless `fails` raises; notes in which thread and with how much time."""

    def __init__(self, fails: Callable[[bool], object] = lambda is_attempt: None) -> None:
        self.seen: list[tuple[bool, float, str]] = []
        self._fails = fails

    def __call__(self, request: pb.QueryMessageByIdRequest, context: Any) -> pb.QueryMessageByIdResponse:
        is_attempt = isinstance(context, AttemptContext)
        assert context.peer()
        self.seen.append((is_attempt, context.time_remaining(), threading.current_thread().name))
        self._fails(is_attempt)
        answer = pb.QueryMessageByIdResponse()
        answer.message.offset_msg_id = request.offset_msg_id
        return answer


@contextlib.contextmanager
def serving(queries: Queries) -> Iterator[tuple[ServiceServer, Callable[[bytes], bytes]]]:
    server = ServiceServer("gateway", ServiceSettings(worker_count=4))
    handler = grpc.unary_unary_rpc_method_handler(
        AtOnce(queries), pb.QueryMessageByIdRequest.FromString, pb.QueryMessageByIdResponse.SerializeToString
    )

    def add(_servicer: object, grpc_server: Any) -> None:
        grpc_server.add_registered_method_handlers(SERVICE, {"QueryMessageById": handler})

    server.add(SERVICE, add, None)
    server.start()
    server.set_serving(True)
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(METHOD)
        try:
            yield server, lambda request: call(request, timeout=CALLER_SECONDS)
        finally:
            server.stop()
            ended.join()


def ask(call: Callable[[bytes], bytes], offset_msg_id: str = "id") -> str:
    answer = call(pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id).SerializeToString())
    return pb.QueryMessageByIdResponse.FromString(answer).message.offset_msg_id


def ended(server: ServiceServer) -> dict[str, int]:
    """Calls of the method that have ended, by code."""
    family = next(family for family in server.meters.counters if family.name == "rpc_ended")
    return {
        labels[1]: counter.read()
        for labels, counter in family.items()
        if labels[0] == "GatewayService/QueryMessageById"
    }


def late(is_attempt: bool) -> None:
    if is_attempt:
        raise DeadlineExceededError("not at hand")


def test_an_answer_at_hand_takes_no_thread_of_the_lane_and_gives_all_its_room_back() -> None:
    queries = Queries()
    with serving(queries) as (server, call):
        assert [ask(call, f"id-{number}") for number in range(20)] == [f"id-{number}" for number in range(20)]
        wait_until(lambda: ended(server) == {"OK": 20}, lambda: ended(server))
        wait_until(lambda: server.lanes.calls.call_count == 0, "places")
        wait_until(lambda: server.lanes.untaken.size_bytes == 0, "answers")
    assert {(is_attempt, seconds) for is_attempt, seconds, _ in queries.seen} == {(True, 0.0)}
    assert not [name for _, _, name in queries.seen if name.startswith("rpc-calls")]


def test_what_is_not_at_hand_is_answered_by_a_thread_with_the_time_of_the_caller() -> None:
    queries = Queries(late)
    with serving(queries) as (server, call):
        assert ask(call) == "id"
        wait_until(lambda: ended(server) == {"OK": 1}, lambda: ended(server))
        wait_until(lambda: server.lanes.calls.call_count == 0, "places")
    (is_first_attempt, _, _), (is_attempt, seconds, name) = queries.seen
    assert (is_first_attempt, is_attempt) == (True, False)
    # gRPC rounds a timeout up on the wire, by less than half a second here.
    assert CALLER_SECONDS / 2 < seconds <= CALLER_SECONDS + 0.5
    assert name.startswith("rpc-calls")


def bug(is_attempt: bool) -> None:
    raise ZeroDivisionError


def absent(is_attempt: bool) -> None:
    raise RecordNotFoundError("none")


@pytest.mark.parametrize(("fails", "code"), [(bug, "INTERNAL"), (absent, "NOT_FOUND")])
def test_an_error_is_told_once_by_the_thread_that_makes_the_call(fails: Callable[[bool], object], code: str) -> None:
    with serving(Queries(fails)) as (server, call):
        with pytest.raises(grpc.RpcError) as caught:
            ask(call)
        assert caught.value.code().name == code
        wait_until(lambda: ended(server) == {code: 1}, lambda: ended(server))


def test_a_request_that_cannot_be_read_is_refused_as_ever() -> None:
    queries = Queries()
    with serving(queries) as (_, call), pytest.raises(grpc.RpcError) as caught:
        call(b"\xff")
    assert type(status.from_rpc_error(caught.value)) is InvalidArgumentError
    assert queries.seen == []


def test_nothing_is_tried_while_calls_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = Queries()
    monkeypatch.setattr(tracing, "is_on", lambda: True)
    with serving(queries) as (_, call):
        assert ask(call) == "id"
    assert [is_attempt for is_attempt, _, _ in queries.seen] == [False]


def test_many_callers_get_their_own_answers_while_every_other_attempt_fails() -> None:
    turns = itertools.count()

    def sometimes(is_attempt: bool) -> None:
        if next(turns) % 2:
            late(is_attempt)

    with serving(Queries(sometimes)) as (server, call), ThreadPoolExecutor(8) as pool:
        asked = [f"id-{number}" for number in range(200)]
        assert list(pool.map(functools.partial(ask, call), asked)) == asked
        wait_until(lambda: ended(server) == {"OK": 200}, lambda: ended(server))
        wait_until(lambda: server.lanes.calls.call_count == 0, "places")


def test_a_call_whose_end_failed_after_its_attempt_was_made_again_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had left its lane, and left it a second time after the thread."""
    queries = Queries()
    end = UnaryCall.answer

    def fails_behind_the_answer(call: UnaryCall, response: bytes) -> None:
        end(call, response)
        raise RuntimeError("a bug behind the answer")

    with serving(queries) as (server, call):
        assert ask(call) == "id"
        wait_until(lambda: server.lanes.calls.call_count == 0, "places")
        monkeypatch.setattr(UnaryCall, "answer", fails_behind_the_answer)
        with contextlib.suppress(grpc.RpcError):
            ask(call)
        monkeypatch.undo()
        assert ask(call) == "id"
        wait_until(lambda: server.lanes.calls.call_count == 0, "places")
    assert [is_attempt for is_attempt, _, _ in queries.seen] == [True] * 3


def test_calls_that_had_to_wait_were_tried_in_the_thread_that_made_room_for_them() -> None:
    """It made the answers of all that waited, one after the other, while others waited for it: it may be one of appends."""
    gate = threading.Event()

    def hold(is_attempt: bool) -> None:
        if not gate.is_set():
            if is_attempt:
                late(is_attempt)
            gate.wait(CALLER_SECONDS)

    queries = Queries(hold)
    with serving(queries) as (server, call), ThreadPoolExecutor(12) as pool:
        running = [pool.submit(ask, call, f"id-{number}") for number in range(12)]
        wait_until(lambda: server.lanes.calls.call_count == 12, lambda: server.lanes.calls.call_count)
        gate.set()
        assert [each.result() for each in running] == [f"id-{number}" for number in range(12)]
    assert not [name for is_attempt, _, name in queries.seen if is_attempt and name.startswith("rpc-calls")]
