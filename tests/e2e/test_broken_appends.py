"""Appends through a gateway while the commitlog is killed or hangs, over gRPC and over its socket: nothing twice."""

import collections
import itertools
import pathlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.local.wire import APPENDS
from tests.support.halting import halt, resume
from tests.support.service import Service
from tests.support.stack import new_message
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

pytestmark = pytest.mark.life

CALLER_COUNT = 8


class Shard:
    """A commitlog on a unix socket, and a gateway; by one of the ways."""

    def __init__(self, root: pathlib.Path, way: str) -> None:
        self._store = root / "store"
        self._socket = root / "c.sock"
        self._way = way
        if way == "grpc":
            pathlib.Path(APPENDS.path(f"unix:{root}/c.sock")).write_text("in the way of the socket")
        self.commitlog = self._start()
        target = f"unix:{self._socket}"
        self._gateway = Service("gateway", self._store, {"REPUT_COMMITLOG_TARGET": target})
        self.gateway = self._gateway.stub

    def _start(self) -> Service:
        return Service("commitlog", self._store, {"REPUT_COMMITLOG_ADDRESS": f"unix:{self._socket}"})

    def kill(self) -> None:
        self.commitlog.kill()

    def restart(self) -> None:
        self.commitlog = self._start()

    def append_count_by_body(self) -> collections.Counter[bytes]:
        """How often each body stands in the log."""
        stub = self.commitlog.stub
        status = stub.GetStatus(commitlog_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
        offset, bodies = status.log_first_offset, collections.Counter()
        while offset < status.log_end_offset:
            request = commitlog_pb.GetMessageRequest(commit_log_offset=offset)
            found = stub.GetMessage(request, timeout=WAIT_SECONDS_MAX).message
            bodies[found.body] += 1
            offset += found.store_size_bytes
        return bodies

    def has_socket(self) -> bool:
        return pathlib.Path(APPENDS.path(f"unix:{self._socket}")).is_socket()

    def close(self) -> None:
        self._gateway.kill()
        self.commitlog.kill()


@pytest.fixture(params=["socket", "grpc"])
def shard(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Shard]:
    made = Shard(tmp_path, request.param)
    assert made.has_socket() == (request.param == "socket")
    yield made
    made.close()


def request_of(number: int) -> pb.AppendMessagesRequest:
    return pb.AppendMessagesRequest(messages=[new_message("orders", b"%d" % number)])


def stream_request_of(number: int) -> pb.AppendMessageStreamRequest:
    return pb.AppendMessageStreamRequest(messages=[new_message("orders", b"%d" % number)])


def append_when_it_is_back(shard: Shard, number: int) -> None:
    """The gateway finds a restarted commitlog by itself."""

    def is_appended() -> bool:
        try:
            shard.gateway.AppendMessages(request_of(number), timeout=WAIT_SECONDS_MAX)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return True

    wait_until(is_appended, "the commitlog is found again")


def test_a_kill_in_the_middle_of_a_stream_fails_it_and_no_request_is_appended_twice(shard):
    numbers = itertools.count()
    answered = 0
    with pytest.raises(grpc.RpcError) as raised:
        for _ in shard.gateway.AppendMessageStream(map(stream_request_of, numbers), timeout=WAIT_SECONDS_MAX):
            answered += 1
            if answered == 200:
                shard.kill()
    sent = next(numbers)
    shard.restart()
    append_when_it_is_back(shard, 1_000_000)
    counts = shard.append_count_by_body()

    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert set(counts.values()) == {1}
    assert counts.pop(b"1000000") == 1
    assert answered <= len(counts) <= sent
    assert set(counts) == {b"%d" % number for number in range(len(counts))}  # in order, without a gap


def test_a_kill_under_unary_calls_fails_those_under_way_and_none_is_appended_twice(shard):
    numbers = itertools.count()
    arrived = threading.Semaphore(0)
    answered: list[int] = []
    codes: list[grpc.StatusCode] = []

    def call_until_it_fails() -> None:
        while True:
            number = next(numbers)
            try:
                shard.gateway.AppendMessages(request_of(number), timeout=WAIT_SECONDS_MAX)
            except grpc.RpcError as error:
                codes.append(error.code())
                return
            answered.append(number)
            arrived.release()

    with ThreadPoolExecutor(CALLER_COUNT) as pool:
        callers = [pool.submit(call_until_it_fails) for _ in range(CALLER_COUNT)]
        for _ in range(200):
            assert arrived.acquire(timeout=WAIT_SECONDS_MAX)
        shard.kill()
        for caller in callers:
            caller.result(WAIT_SECONDS_MAX)
    shard.restart()
    append_when_it_is_back(shard, 1_000_000)
    counts = shard.append_count_by_body()

    assert codes == [grpc.StatusCode.UNAVAILABLE] * CALLER_COUNT
    assert set(counts.values()) == {1}
    assert {b"%d" % number for number in answered} <= set(counts)
    assert len(counts) <= len(answered) + CALLER_COUNT + 1


def test_a_commitlog_that_hangs_costs_no_more_than_the_deadline_and_appends_once(shard):
    shard.gateway.AppendMessages(request_of(0), timeout=WAIT_SECONDS_MAX)
    requests: list[pb.AppendMessageStreamRequest] = [stream_request_of(number) for number in (1, 2)]
    hung = threading.Event()

    def stream() -> Iterator[pb.AppendMessageStreamRequest]:
        yield requests[0]
        assert hung.wait(WAIT_SECONDS_MAX)
        yield requests[1]

    answers = shard.gateway.AppendMessageStream(stream(), timeout=10)
    assert len(next(answers).results) == 1
    try:
        halt(shard.commitlog.pid)
        hung.set()
        with pytest.raises(grpc.RpcError) as of_unary:
            shard.gateway.AppendMessages(request_of(3), timeout=0.5)
        with pytest.raises(grpc.RpcError) as of_stream:
            next(answers)
    finally:
        resume(shard.commitlog.pid)
    shard.gateway.AppendMessages(request_of(4), timeout=WAIT_SECONDS_MAX)
    counts = shard.append_count_by_body()

    assert of_unary.value.code() is of_stream.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert set(counts.values()) == {1}
    assert {b"0", b"1", b"4"} <= set(counts)
