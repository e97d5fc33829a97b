"""Appends through a gateway to a real log, over gRPC and over the socket: what callers see is the same."""

import contextlib
import errno
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.servicer import CommitLogServicer, add_to_server
from gateway.appends.backpressure import UNANSWERED_COUNT_MAX
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.local.server import serve_local
from services.local.wire import APPENDS
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from services.status import error_info, status_of
from store.errors import FlushFailedError
from tests.commitlog_svc.support import make_log
from tests.gateway.appends.test_forwarder import SERVICE_NAME, gateway_to
from tests.support.faulty_file_system import FaultyFileSystem
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

WAYS = ("socket", "grpc")


class Served:
    """A log behind a gateway, by one of the ways."""

    def __init__(self, root: Path, way: str) -> None:
        root.mkdir()
        self.fs = FaultyFileSystem()
        self.log: CommitLog = make_log(root / "store", self.fs, file_size_bytes=1 << 20)
        self.log.recover()
        address = f"unix:{root}/s.sock"
        servicer = CommitLogServicer(self.log, "broker-a", "127.0.0.1:10911")
        self.server = ServiceServer("commitlog", ServiceSettings(address=address))
        self.server.add("reput.commitlog.v1.CommitLogService", add_to_server, servicer)
        self.door = serve_local(APPENDS, address, servicer.local_appends(), self.server) if way == "socket" else None
        self.server.start()
        self._ended = threading.Thread(target=self.server.serve_until_stopped)
        self._ended.start()
        self._stack = contextlib.ExitStack()
        self.gateway_server, self.gateway = self._stack.enter_context(gateway_to(address, address))
        self._channel = self._stack.enter_context(grpc.insecure_channel(self.gateway_server.address))

    def unary(self, request: bytes) -> tuple[bytes | None, object]:
        """The answer's bytes, or what the failure is made of."""
        method = self._channel.unary_unary(f"/{SERVICE_NAME}/AppendMessages")
        try:
            return method(request, timeout=WAIT_SECONDS_MAX), None
        except grpc.RpcError as error:
            return None, failure_of(error)

    def stream(self, *requests: bytes) -> list[bytes]:
        """The answers' bytes."""
        method = self._channel.stream_stream(f"/{SERVICE_NAME}/AppendMessageStream")
        return list(method(iter(requests), timeout=WAIT_SECONDS_MAX))

    def wait_until_stopped(self) -> None:
        self._ended.join(WAIT_SECONDS_MAX)

    def close(self) -> None:
        self._stack.close()
        self.server.stop()
        self._ended.join()
        self.log.close()


def failure_of(error: Any) -> object:
    """Everything of a failed call that a caller can see."""
    return error.code(), error.details(), status_of(error)


@pytest.fixture
def both(tmp_path) -> Iterator[list[Served]]:
    served = [Served(tmp_path / way, way) for way in WAYS]
    yield served
    for one in served:
        one.close()


@pytest.fixture(params=WAYS)
def served(request, tmp_path) -> Iterator[Served]:
    one = Served(tmp_path / "x", request.param)
    yield one
    one.close()


def request_of(*messages: message_pb2.NewMessage, **fields: Any) -> bytes:
    return pb.AppendMessagesRequest(messages=messages, **fields).SerializeToString()


def message(number: int, body_bytes: int = 20, **fields: Any) -> message_pb2.NewMessage:
    """One whose receipt does not depend on chance."""
    fields = {"topic": "orders", "queue_id": number % 3, "unique_key": f"unique-{number}"} | fields
    return message_pb2.NewMessage(body=b"%0*d" % (body_bytes, number), **fields)


GOOD = request_of(*[message(number) for number in range(5)])
REQUESTS = [
    pytest.param(GOOD, id="async"),
    pytest.param(request_of(message(1), message(2), flush=message_pb2.FLUSH_MODE_SYNC), id="sync"),
    pytest.param(request_of(message(1), message(1), message(2), deduplicate=True), id="deduplicated"),
    pytest.param(request_of(*[message(number, 3_000) for number in range(40)]), id="large"),
    pytest.param(request_of(), id="empty"),
    pytest.param(request_of(message(1), message(2, topic="")), id="without a topic"),
    pytest.param(request_of(message(1, topic="t" * 300)), id="long topic"),
    pytest.param(request_of(message(1, 4 << 20)), id="too large a body"),
    pytest.param(request_of(message(1), flush=9), id="unknown flush"),  # type: ignore[arg-type]
    pytest.param(b"\x0a\x02\xff\xff", id="no message"),
    pytest.param(b"\xff" * 40, id="no protobuf"),
]


@pytest.mark.parametrize("request_bytes", REQUESTS)
def test_a_unary_append_is_answered_with_the_same_bytes_and_errors(both, request_bytes):
    socket, over_grpc = [
        [(without_time(answer) if answer is not None else None, failure) for answer, failure in answers]
        for answers in ([one.unary(request_bytes), one.unary(GOOD)] for one in both)
    ]

    assert socket == over_grpc
    assert both[0].log.status.end_offset == both[1].log.status.end_offset
    assert both[0].door is not None
    assert both[0].door.connection_count > 0


def test_a_stream_is_answered_with_the_same_bytes_and_goes_on_after_what_it_refuses(both):
    requests = [parameter.values[0] for parameter in REQUESTS if parameter.id != "no protobuf"] * 3
    requests += [request_of(message(100 + number)) for number in range(50)]
    socket, over_grpc = [[without_time(answer) for answer in one.stream(*requests)] for one in both]

    assert len(socket) == len(requests)
    assert socket == over_grpc
    assert any(pb.AppendMessageStreamResponse.FromString(answer).HasField("error") for answer in socket)
    assert both[0].log.status.end_offset == both[1].log.status.end_offset


def without_time(answer: bytes) -> bytes:
    """The answer with the times set to one, everything else as it came."""
    response = pb.AppendMessageStreamResponse.FromString(answer)  # the fields of the unary one, and `error`
    for result in response.results:
        assert result.store_time.seconds > 0
        result.ClearField("store_time")
    return response.SerializeToString()


def test_records_are_born_at_the_same_host(both):
    hosts = []
    for one in both:
        assert one.unary(GOOD)[1] is None
        assert len(one.stream(GOOD)) == 1
        offset = one.log.status.first_offset
        while offset < one.log.status.end_offset:
            record = one.log.opened.reads.get(offset)
            hosts.append(record.born_host)
            offset = record.next_offset
    assert len(hosts) == 20
    assert len(set(hosts)) == 1


def test_a_fenced_log_says_so_by_both_ways(both):
    request = request_of(message(1), flush=message_pb2.FLUSH_MODE_SYNC)
    seen = []
    for one in both:
        one.fs.fail("fdatasync", errno.EIO, lasting=True)
        statuses = [failure[2] for _, failure in (one.unary(request), one.unary(GOOD))]
        statuses += [pb.AppendMessageStreamResponse.FromString(answer).error for answer in one.stream(GOOD)]
        seen.append([(status.code, error_info(status).reason) for status in statuses])
        one.fs.clear()

    assert seen[0] == seen[1]
    assert seen[0] == [(grpc.StatusCode.UNAVAILABLE.value[0], "FLUSH_FAILED")] * 3


def test_a_clean_stop_answers_what_is_under_way_and_refuses_what_comes_later(served, monkeypatch):
    arrived, release = threading.Event(), threading.Event()
    write_request = served.log.opened.appends.write_request

    def hold(*args: Any, **kwargs: Any) -> Any:
        arrived.set()
        assert release.wait(WAIT_SECONDS_MAX)
        return write_request(*args, **kwargs)

    monkeypatch.setattr(served.log.opened.appends, "write_request", hold)
    requests: queue.SimpleQueue[pb.AppendMessageStreamRequest | None] = queue.SimpleQueue()
    requests.put(pb.AppendMessageStreamRequest(messages=[message(1)]))
    answers = served.gateway.AppendMessageStream(iter(requests.get, None), timeout=WAIT_SECONDS_MAX)
    assert arrived.wait(WAIT_SECONDS_MAX)
    served.server.stop()
    assert served.server.stopping.wait(WAIT_SECONDS_MAX)
    release.set()

    assert [result.unique_key for result in next(answers).results] == ["unique-1"]
    served.wait_until_stopped()
    requests.put(pb.AppendMessageStreamRequest(messages=[message(2)]))
    with pytest.raises(grpc.RpcError) as raised:
        next(answers)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    requests.put(None)
    assert served.unary(GOOD)[1][0] is grpc.StatusCode.UNAVAILABLE


BEGUN = 7


class HeldFlushes:
    """The flushes of a log's files from now on: they wait until they are released, and then go through, or fail.

    Flushes of the service's other files (the state of retention, which is written by the clock) go through.
    """

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch, count: int = BEGUN) -> None:
        self.count = 0
        self.fails = False
        self._begun, self._release = threading.Event(), threading.Event()
        # The topic's creation flushes, too.
        assert len(served.stream(request_of(message(100), flush=message_pb2.FLUSH_MODE_SYNC))) == 1
        flush = served.fs.fdatasync
        written_bytes = served.log.status.end_offset

        def held(fd: int) -> None:
            name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
            if not name.isdecimal():  # log files are named by their first offset
                flush(fd)
                return
            self.count += 1
            self._begun.set()
            assert self._release.wait(WAIT_SECONDS_MAX)
            if self.fails:
                raise FlushFailedError("the disk is gone")
            flush(fd)

        monkeypatch.setattr(served.fs, "fdatasync", held)
        self._requests: queue.SimpleQueue[pb.AppendMessageStreamRequest | None] = queue.SimpleQueue()
        self.answers = served.gateway.AppendMessageStream(iter(self._requests.get, None), timeout=WAIT_SECONDS_MAX)
        self._requests.put(self._request(0))
        assert self._begun.wait(WAIT_SECONDS_MAX)
        one_bytes = served.log.status.end_offset - written_bytes
        for number in range(1, count):
            self._requests.put(self._request(number))
        # All are in the log, and none is on the disk.
        wait_until(lambda: served.log.status.end_offset == written_bytes + count * one_bytes)
        assert self.count == 1

    def release(self) -> None:
        self._release.set()

    def end(self) -> list[pb.AppendMessageStreamResponse]:
        self._requests.put(None)
        return list(self.answers)

    def _request(self, number: int) -> pb.AppendMessageStreamRequest:
        sync = message_pb2.FLUSH_MODE_SYNC
        return pb.AppendMessageStreamRequest(messages=[message(number, queue_id=0)], flush=sync)


def test_appends_of_a_stream_that_wait_for_the_disk_share_flushes(served, monkeypatch):
    """Named after its defect: a stream flushed once for each request, 0.2 times as fast as RocketMQ's producers."""
    held = HeldFlushes(served, monkeypatch)
    held.release()
    answers = held.end()

    assert [answer.results[0].unique_key for answer in answers] == [f"unique-{number}" for number in range(BEGUN)]
    first = answers[0].results[0].queue_offset
    assert [answer.results[0].queue_offset for answer in answers] == list(range(first, first + BEGUN))
    assert held.count < BEGUN


def test_a_flush_that_fails_refuses_every_append_that_waits_for_it(served, monkeypatch):
    held = HeldFlushes(served, monkeypatch)
    held.fails = True
    held.release()

    assert [error_info(answer.error).reason for answer in held.end()] == ["FLUSH_FAILED"] * BEGUN


@pytest.mark.parametrize("count", [BEGUN, UNANSWERED_COUNT_MAX], ids=["room for more", "no room for more"])
def test_a_caller_who_goes_away_while_appends_wait_leaves_nothing_behind(served, monkeypatch, count):
    held = HeldFlushes(served, monkeypatch, count)
    held.answers.cancel()
    held.release()

    wait_for_no_streams(served)
    wait_until(lambda: not any(thread.name == "begun-requests" for thread in threading.enumerate()))
    assert served.server.work.wait_until_done(WAIT_SECONDS_MAX)


def test_a_clean_stop_answers_all_appends_that_wait_for_the_disk(served, monkeypatch):
    held = HeldFlushes(served, monkeypatch)
    served.server.stop()
    assert served.server.stopping.wait(WAIT_SECONDS_MAX)
    held.release()

    assert [next(held.answers).results[0].unique_key for _ in range(BEGUN)] == [f"unique-{n}" for n in range(BEGUN)]
    served.wait_until_stopped()


def test_a_callers_deadline_ends_his_stream_while_the_log_hangs(served, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(
        served.log.opened.appends, "write_request", lambda *args, **kwargs: release.wait(2 * WAIT_SECONDS_MAX)
    )
    requests = [pb.AppendMessageStreamRequest(messages=[message(1)])]
    with pytest.raises(grpc.RpcError) as raised:
        list(served.gateway.AppendMessageStream(iter(requests), timeout=0.2))

    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: served.gateway_server.lanes.streams.call_count == 0)
    release.set()
    wait_for_no_streams(served)


def test_a_caller_who_goes_away_leaves_nothing_behind(served):
    answers = served.gateway.AppendMessageStream(iter(queue.SimpleQueue().get, None), timeout=WAIT_SECONDS_MAX)
    wait_until(lambda: served.gateway_server.lanes.streams.call_count == 1)
    if served.door is not None:
        door = served.door
        wait_until(lambda: door.connection_count == 1)
    answers.cancel()

    wait_for_no_streams(served)


def test_a_caller_who_does_not_read_has_few_requests_taken(served):
    """As many as may be under way, and what transports hold: never all that he would send."""
    taken = threading.Semaphore(0)
    request = pb.AppendMessageStreamRequest(messages=[message(number) for number in range(1_000)])
    count = 0

    def requests() -> Iterator[pb.AppendMessageStreamRequest]:
        nonlocal count
        while count < 300:
            count += 1
            taken.release()
            yield request

    answers = served.gateway.AppendMessageStream(requests(), timeout=WAIT_SECONDS_MAX)
    next(answers)
    while taken.acquire(timeout=1):
        pass
    assert count < 100
    answers.cancel()
    wait_for_no_streams(served)


def wait_for_no_streams(served: Served) -> None:
    wait_until(lambda: served.gateway_server.lanes.streams.call_count == 0)
    if served.door is not None:
        door = served.door
        wait_until(lambda: door.connection_count == 0)
