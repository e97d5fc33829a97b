"""Answers without end over a local socket, as a follower gets them: `ServiceClient.follow`."""

import socket
import threading
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.calling.client import ServiceClient
from services.local import server as local_server
from services.local.server import LocalServer, over_bytes
from services.local.wire import TAILS, LocalMethod, LocalSocket, pieces_of
from services.rpcs.commitlog import REPUT
from services.serving.calls.call_end import CODE_NAMES
from services.serving.calls.open_work import OpenWork
from services.serving.lanes import Lanes
from store.errors import OffsetOutOfRangeError, ServiceUnavailableError, StoreError
from tests.support.waiting import wait_until

HEARTBEAT_SECONDS = 0.05


class Followed:
    """A log with a batch of 10 bytes each, up to `end`; it counts its followers."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.end = 0
        self.removed = 101  # the log has no batch from there on
        self.asked = []
        self.followers = 0
        self.failure = None
        self.texts = ()  # in each batch

    def append(self, count):
        with self.changed:
            self.end += 10 * count
            self.changed.notify_all()

    def reput(self, request, context):
        self.asked.append(request.start_offset)
        if request.start_offset >= self.removed:
            raise OffsetOutOfRangeError("the log ends before", offset=request.start_offset)
        return self._batches(request.start_offset)

    def _has(self, offset):
        return offset < self.end

    def _batches(self, offset):
        self.followers += 1
        try:
            while offset < self.removed:
                with self.changed:
                    has_more = self.changed.wait_for(partial(self._has, offset), HEARTBEAT_SECONDS)
                if self.failure is not None:
                    raise self.failure
                offset += 10 if has_more else 0
                yield pb.ReputResponse(next_offset=offset, columns=pb.ReputColumns(topics=self.texts))
            raise OffsetOutOfRangeError("retention removed it", offset=offset)
        finally:
            self.followers -= 1


def beyond(answers, offset):
    """The next answer that is no heartbeat."""
    return next(answer.next_offset for answer in answers if answer.next_offset > offset)


@pytest.fixture
def log():
    return Followed()


@pytest.fixture
def work():
    return OpenWork()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path / 'commitlog.sock'}"


def serving(address, log, work, kind=TAILS, lane=None):
    methods = {LocalMethod.REPUT: over_bytes(pb.ReputRequest, log.reput)}
    server = LocalServer(kind, TAILS.path(address), methods, work, lane)
    server.start()
    return server


@pytest.fixture
def lanes():
    return Lanes(worker_count=4)


@pytest.fixture
def ended(lanes):
    """The codes of the calls that have ended, as the page of metrics counts them."""
    codes = []
    lanes.tails.note_failed = lambda method, code: codes.append((method, CODE_NAMES[code]))
    return codes


@pytest.fixture
def server(address, log, work, lanes):
    server = serving(address, log, work, lane=lanes.tails)
    yield server
    server.close()


@pytest.fixture
def client(address, server):
    client = ServiceClient("commitlog", address)
    yield client
    client.close()


def test_answers_come_one_after_the_other_to_one_request(client, log):
    log.append(5)
    answers = iter(client.follow(REPUT, pb.ReputRequest(start_offset=30)))
    assert [next(answers).next_offset, next(answers).next_offset] == [40, 50]
    log.append(1)
    assert beyond(answers, 50) == 60
    assert log.asked == [30]


@pytest.mark.parametrize("start_offset", [101, 90])
def test_an_error_is_the_one_that_was_raised_at_the_begin_or_later(client, log, start_offset):
    log.append(11)
    log.removed = 100
    with pytest.raises(OffsetOutOfRangeError) as error:
        list(client.follow(REPUT, pb.ReputRequest(start_offset=start_offset)))
    assert int(error.value.metadata["offset"]) == max(start_offset, 100)


def test_a_follower_that_has_gone_leaves_nothing_behind(client, log, server, lanes, ended):
    log.append(1)
    streams = [client.follow(REPUT, pb.ReputRequest()) for _ in range(3)]
    running = [iter(stream) for stream in streams]
    assert [beyond(answers, 0) for answers in running] == [10, 10, 10]
    assert (log.followers, server.connection_count, lanes.tails.call_count) == (3, 3, 3)
    for stream in streams:
        stream.cancel()
    wait_until(lambda: (log.followers, server.connection_count) == (0, 0), "followers to end")
    assert lanes.tails.call_count == 0
    assert ended == [(REPUT.path, "CANCELLED")] * 3


def test_a_follower_that_has_gone_is_no_failure_of_the_service(client, log, server):
    stream = client.follow(REPUT, pb.ReputRequest())
    next(iter(stream))
    with capture_logs() as logs:
        stream.cancel()
        wait_until(lambda: not server.connection_count, "the follower to end")
    assert not [line for line in logs if line["event"] == "rpc.failed"]


def test_a_disk_that_fails_is_told_to_the_follower_logged_and_counted(client, log, ended):
    log.append(1)
    answers = iter(client.follow(REPUT, pb.ReputRequest()))
    assert beyond(answers, 0) == 10
    with capture_logs() as logs:
        log.failure = OSError(5, "Input/output error")
        with pytest.raises(StoreError, match="failed unexpectedly"):
            list(answers)
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["rpc.failed"]
    assert ended == [(REPUT.path, "INTERNAL")]


def test_a_follower_that_does_not_read_is_ended_and_holds_up_no_other(client, log, server, lanes, ended, monkeypatch):
    monkeypatch.setattr(local_server, "ANSWER_SECONDS_MAX", 1)
    log.texts = ["t" * 65_536]
    log.append(10)
    deaf = socket.socket(socket.AF_UNIX)
    deaf.connect(server._path)
    deaf.sendall(b"".join(pieces_of(LocalMethod.REPUT.number, pb.ReputRequest().SerializeToString())))
    wait_until(lambda: log.followers == 1, "the deaf one to be served")
    answers = iter(client.follow(REPUT, pb.ReputRequest()))
    log.removed = 1 << 40
    with capture_logs() as logs:
        wait_until(lambda: next(answers) and log.followers == 1, "the deaf one to be ended")
    assert [line["event"] for line in logs] == ["rpc.stalled"]
    assert (ended, lanes.watch.ended_count) == ([(REPUT.path, "CANCELLED")], {"tails": 1})
    assert next(answers).columns.topics == log.texts
    deaf.close()


def test_a_follower_without_a_place_uses_gRPC(address, log, work):
    server = serving(address, log, work, LocalSocket("tails", TAILS.request_bytes_max, connection_count_max=1))
    client = ServiceClient("commitlog", address)
    first = iter(client.follow(REPUT, pb.ReputRequest()))
    assert next(first).next_offset == 0
    with pytest.raises(ServiceUnavailableError, match="connect"):  # nothing serves gRPC here
        next(iter(client.follow(REPUT, pb.ReputRequest())))
    assert next(first).next_offset == 0
    client.close()
    server.close()


def test_a_service_that_came_back_is_followed_on_its_socket_at_once(address, client, log, work, server):
    """For a second after a connection that failed, other calls use gRPC; a tail would stay there for as long as it lasts."""
    first = iter(client.follow(REPUT, pb.ReputRequest()))
    next(first)
    server.close()
    for _ in range(2):
        with pytest.raises(ServiceUnavailableError):
            list(first)
        first = iter(client.follow(REPUT, pb.ReputRequest()))
    again = serving(address, log, work)
    assert next(iter(client.follow(REPUT, pb.ReputRequest()))).next_offset == 0
    assert log.asked == [0, 0]
    again.close()


def test_cancelled_in_another_thread_it_ends_at_once(client, log):
    stream = client.follow(REPUT, pb.ReputRequest())
    answers = iter(stream)
    assert next(answers).next_offset == 0
    threading.Timer(0.05, stream.cancel).start()
    with pytest.raises(ServiceUnavailableError):
        list(answers)


def test_it_ends_when_the_service_stops_and_when_it_goes(client, log, work, server):
    first, second = (iter(client.follow(REPUT, pb.ReputRequest())) for _ in range(2))
    assert [next(first).next_offset, next(second).next_offset] == [0, 0]
    server.close()
    with pytest.raises(ServiceUnavailableError, match="broke before it answered"):
        list(first)
    work.stopping.set()
    with pytest.raises(ServiceUnavailableError):
        list(second)


def test_a_service_that_stops_says_so_to_its_followers(client, log, work, server):
    answers = iter(client.follow(REPUT, pb.ReputRequest()))
    assert next(answers).next_offset == 0
    work.stopping.set()
    with pytest.raises(ServiceUnavailableError, match="the service is stopping"):
        list(answers)


def test_without_a_socket_gRPC_is_asked(address):
    client = ServiceClient("commitlog", address)
    with pytest.raises(ServiceUnavailableError, match="connect"):
        next(iter(client.follow(REPUT, pb.ReputRequest())))
    client.close()
