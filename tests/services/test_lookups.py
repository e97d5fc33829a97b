"""Lookup calls between real clients and servers: the same answers and errors as over gRPC, and gRPC when they fail."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as queue_grpc
from reput.index.v1 import index_service_pb2 as index_pb
from reput.index.v1 import index_service_pb2_grpc as index_grpc
from reput.message.v1 import message_pb2
from services import lookup_server
from services.clients import lookups
from services.clients.commitlog import CommitLogClient
from services.clients.consumequeue import ConsumeQueueClient
from services.clients.index import IndexClient
from services.lookup_calls import GREETING, SOCKET_SUFFIX, Lookup
from services.lookup_server import LookupServer, serve_lookups
from services.retry import ATTEMPT_COUNT_MAX
from services.server import ServiceServer
from services.settings import ServiceSettings
from store import errors
from tests.services.loopback import ScriptedCommitLog, commit_log_server, stub

ERRORS = [
    errors.RecordNotFoundError("no record starts at 5", commitLogOffset=5),
    errors.OffsetOutOfRangeError("outside", offset=5, firstOffset=7, lastOffset=9),
    errors.RecordCorruptedError("rotten", file="/x/y", commitLogOffset=5),
    errors.InvalidArgumentError("at most 1000", field="commit_log_offsets", count=1001),
    errors.StoreError("something else"),
]


class Answers:
    """Handlers that note by which wire they were asked: a lookup comes without a context."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.wires: list[str] = []
        self._answer = answer

    def __call__(self, request: Any, context: Any) -> Any:
        self.wires.append("grpc" if context is not None else "lookup")
        return self._answer(request)


def fail_with(error: Exception) -> Callable[[Any], Any]:
    def answer(_request: Any) -> Any:
        raise error

    return answer


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/s.sock"


@contextmanager
def commit_log(address: str, *, with_lookups: bool = True, **behaviours: Any) -> Iterator[ServiceServer]:
    with commit_log_server(address, **behaviours) as server:
        servicer = ScriptedCommitLog(**behaviours)
        handlers = {
            Lookup.GET_MESSAGE: (pb.GetMessageRequest, servicer.GetMessage),
            Lookup.BATCH_GET_MESSAGES: (pb.BatchGetMessagesRequest, servicer.BatchGetMessages),
        }
        if with_lookups:
            assert serve_lookups(address, handlers, server) is not None
        yield server


def message_at(request: pb.GetMessageRequest) -> pb.GetMessageResponse:
    message = message_pb2.StoredMessage(commit_log_offset=request.commit_log_offset, body=b"\0\xff" * 9)
    return pb.GetMessageResponse(message=message)


@pytest.mark.parametrize("wire", ["lookup", "grpc"])
class TestBothWires:
    """One table for both: what a client sees does not depend on the wire."""

    def test_a_record(self, address, wire):
        get = Answers(message_at)
        with commit_log(address, with_lookups=wire == "lookup", get_message=get):
            found = CommitLogClient(address).get(123)

        assert found == message_at(pb.GetMessageRequest(commit_log_offset=123)).message
        assert get.wires == [wire]

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_an_error_is_the_one_that_was_raised(self, address, wire, error):
        get = Answers(fail_with(error))
        with_lookups = wire == "lookup"
        with (
            commit_log(address, with_lookups=with_lookups, get_message=get),
            pytest.raises(errors.StoreError) as raised,
        ):
            CommitLogClient(address).get(5)

        assert type(raised.value) is type(error)
        assert raised.value.message == error.message
        assert raised.value.metadata == error.metadata
        assert get.wires == [wire]

    def test_records_with_their_outcomes_in_order(self, address, wire):
        def batch(request: pb.BatchGetMessagesRequest) -> pb.BatchGetMessagesResponse:
            response = pb.BatchGetMessagesResponse()
            for offset in request.commit_log_offsets[:2]:  # full after two
                response.outcomes.add().message.CopyFrom(
                    message_pb2.StoredMessage(commit_log_offset=offset, body=b"x" * 700_000)
                )
            return response

        answers = Answers(batch)
        with commit_log(address, with_lookups=wire == "lookup", batch_get_messages=answers):
            found = CommitLogClient(address).get_many([5, 4, 3], body_bytes_max=10_000_000)

        assert [(m.commit_log_offset, len(m.body)) for m in found] == [(5, 700_000), (4, 700_000), (3, 700_000)]
        assert answers.wires == [wire, wire]

    def test_candidates(self, address, wire):
        asked = []

        def search(request):
            asked.append(request)
            return index_pb.SearchKeyResponse(commit_log_offsets=[9, 5], next_page_token="5", next_offset=77)

        answers = Answers(search)

        class Index(index_grpc.IndexServiceServicer):
            def SearchKey(self, request, context):
                return answers(request, context)

        with served(
            "reput.index.v1.IndexService", index_grpc.add_IndexServiceServicer_to_server, Index(), address
        ) as s:
            if wire == "lookup":
                serve_lookups(address, {Lookup.SEARCH_KEY: (index_pb.SearchKeyRequest, Index().SearchKey)}, s)
            page = IndexClient(address).search_key("orders", "k", begin_time_millis=3, page_size=2, page_token="11")

        assert list(page.commit_log_offsets) == [9, 5]
        assert (page.next_page_token, page.next_offset) == ("5", 77)
        assert (asked[0].topic, asked[0].key, asked[0].page_size, asked[0].page_token) == ("orders", "k", 2, "11")
        assert asked[0].begin_time.ToMilliseconds() == 3
        assert not asked[0].HasField("end_time")
        assert answers.wires == [wire]

    def test_queue_units(self, address, wire):
        def units(request):
            if request.topic != "orders":
                raise errors.TopicNotFoundError("no such topic", topic=request.topic)
            return queue_pb.GetQueueUnitsResponse(min_offset=request.queue_offset, max_offset=request.max_units)

        answers = Answers(units)

        class Queues(queue_grpc.ConsumeQueueServiceServicer):
            def GetQueueUnits(self, request, context):
                return answers(request, context)

        add = queue_grpc.add_ConsumeQueueServiceServicer_to_server
        with served("reput.consumequeue.v1.ConsumeQueueService", add, Queues(), address) as server:
            if wire == "lookup":
                handlers = {Lookup.GET_QUEUE_UNITS: (queue_pb.GetQueueUnitsRequest, Queues().GetQueueUnits)}
                serve_lookups(address, handlers, server)
            client = ConsumeQueueClient(address)
            answer = client.get_units("orders", 1, 4, 9)
            with pytest.raises(errors.TopicNotFoundError):
                client.get_units("nothing", 1, 4, 9)

        assert (answer.min_offset, answer.max_offset) == (4, 9)
        assert answers.wires == [wire, wire]


@contextmanager
def served(name: str, add: Any, servicer: Any, address: str) -> Iterator[ServiceServer]:
    server = ServiceServer("test", ServiceSettings(address=address))
    server.add(name, add, servicer)
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    try:
        yield server
    finally:
        server.stop()
        ended.join()


class TestTheOtherWay:
    """Whatever goes wrong with lookups, gRPC is asked."""

    def test_a_service_that_is_not_ready_is_asked_again_by_the_one_retry_policy(self, address):
        get = Answers(fail_with(errors.StoreRecoveringError("still walking")))
        with commit_log(address, get_message=get), pytest.raises(errors.StoreRecoveringError):
            CommitLogClient(address).get(0)

        assert get.wires == ["lookup"] + ["grpc"] * ATTEMPT_COUNT_MAX

    def test_a_bug_behind_a_lookup_is_told_over_grpc(self, address):
        get = Answers(fail_with(ZeroDivisionError("a bug")))
        with commit_log(address, get_message=get), pytest.raises(errors.StoreError, match="failed unexpectedly"):
            CommitLogClient(address).get(0)

        assert get.wires == ["lookup", "grpc"]

    def test_lookups_that_close_are_done_without_and_found_again(self, address, monkeypatch):
        monkeypatch.setattr(lookups, "CLOSED_SECONDS", 0.0)
        get = Answers(message_at)
        with commit_log(address, with_lookups=False, get_message=get) as server:
            handlers = {Lookup.GET_MESSAGE: (pb.GetMessageRequest, get)}
            client = CommitLogClient(address)
            client.get(1)
            first = serve_lookups(address, handlers, server)
            client.get(2)
            first.close()
            client.get(3)
            client.get(4)
            serve_lookups(address, handlers, server)
            client.get(5)

        assert get.wires == ["grpc", "lookup", "grpc", "grpc", "lookup"]

    def test_a_door_that_was_shut_is_not_tried_each_time(self, address, monkeypatch):
        tries = []
        connect = socket.socket.connect
        monkeypatch.setattr(socket.socket, "connect", lambda self, path: (tries.append(path), connect(self, path))[1])
        with commit_log(address, with_lookups=False, get_message=Answers(message_at)):
            client = CommitLogClient(address)
            for offset in range(5):
                client.get(offset)

        assert len(tries) == 1

    @pytest.mark.parametrize("greeting", [b"", b"reput-lookups-2\n", GREETING[:3]])
    def test_who_greets_otherwise_is_not_asked(self, address, greeting):
        get = Answers(message_at)
        with commit_log(address, with_lookups=False, get_message=get), ExitStack() as stack:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(address.removeprefix("unix:") + SOCKET_SUFFIX)
            listener.listen()

            def greet():
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(greeting)

            greeting_thread = threading.Thread(target=greet)
            greeting_thread.start()
            CommitLogClient(address).get(1)
            greeting_thread.join()

        assert get.wires == ["grpc"]

    def test_more_connections_than_are_served_go_over_grpc(self, address, monkeypatch):
        monkeypatch.setattr(lookup_server, "CONNECTION_COUNT_MAX", 1)
        inside, leave = threading.Event(), threading.Event()

        def slow(request):
            if request.commit_log_offset == 1:
                inside.set()
                assert leave.wait(30)
            return message_at(request)

        get = Answers(slow)
        with commit_log(address, with_lookups=False, get_message=get) as server, ThreadPoolExecutor(1) as pool:
            path = address.removeprefix("unix:") + SOCKET_SUFFIX
            handlers = {Lookup.GET_MESSAGE: (pb.GetMessageRequest, get)}
            only_one = LookupServer(path, handlers, server.stopping, connection_count_max=1)
            only_one.start()
            client = lookups.LookupClient(address, "commitlog")

            def ask(offset):
                request = pb.GetMessageRequest(commit_log_offset=offset)
                return client.call(Lookup.GET_MESSAGE, request, pb.GetMessageResponse, stub(server).GetMessage, 30)

            first = pool.submit(ask, 1)
            assert inside.wait(30)
            ask(2)
            leave.set()
            first.result(30)
            ask(3)
            only_one.close()

        assert get.wires == ["lookup", "grpc", "grpc"]  # the door that was shut is left alone for a second

    def test_a_client_with_a_channel_of_its_own_uses_only_that(self, address):
        import grpc

        get = Answers(message_at)
        with commit_log(address, get_message=get), grpc.insecure_channel(address) as channel:
            CommitLogClient(address, channel).get(1)

        assert get.wires == ["grpc"]

    def test_after_close_nothing_is_kept(self, address):
        get = Answers(message_at)
        with commit_log(address, get_message=get):
            client = CommitLogClient(address)
            client.get(1)
            client.close()
            with pytest.raises((errors.StoreError, ValueError)):  # a closed channel raises ValueError
                client.get(2)

        assert get.wires == ["lookup"]


def test_a_service_that_hangs_costs_no_more_than_the_deadline(address):
    leave = threading.Event()

    def hang(request):
        assert leave.wait(30)
        return message_at(request)

    get = Answers(hang)
    with commit_log(address, get_message=get):
        client = CommitLogClient(address)
        with pytest.raises(errors.DeadlineExceededError):
            client.get(1, timeout_seconds=0.05)
        leave.set()
        # The late answer went to a connection that is gone: the next call gets its own.
        assert client.get(2).commit_log_offset == 2


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_without_time_nothing_is_asked(address, seconds):
    get = Answers(message_at)
    with commit_log(address, get_message=get), pytest.raises(errors.DeadlineExceededError):
        CommitLogClient(address).get(1, timeout_seconds=seconds)

    assert get.wires == []


def test_many_callers_get_their_own_answers(address):
    get = Answers(message_at)
    with commit_log(address, get_message=get), ThreadPoolExecutor(16) as pool:
        client = CommitLogClient(address)
        offsets = list(range(2_000))
        found = [message.commit_log_offset for message in pool.map(client.get, offsets)]

    assert found == offsets
    assert set(get.wires) == {"lookup"}


class TestTheSocket:
    """Where lookups are answered."""

    def test_goes_with_the_service(self, address):
        path = Path(address.removeprefix("unix:") + SOCKET_SUFFIX)
        with commit_log(address, get_message=Answers(message_at)):
            assert path.is_socket()

        assert not path.exists()

    def test_takes_the_place_of_one_that_a_dead_process_left(self, address):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(address.removeprefix("unix:") + SOCKET_SUFFIX)
        get = Answers(message_at)
        with commit_log(address, get_message=get):
            CommitLogClient(address).get(1)

        assert get.wires == ["lookup"]

    def test_never_takes_the_place_of_a_file(self, address):
        path = Path(address.removeprefix("unix:") + SOCKET_SUFFIX)
        path.write_text("mine")
        get = Answers(message_at)
        with commit_log(address, with_lookups=False, get_message=get) as server:
            assert serve_lookups(address, {}, server) is None
            CommitLogClient(address).get(1)

        assert path.read_text() == "mine"
        assert get.wires == ["grpc"]

    def test_there_is_none_for_a_service_on_a_port(self):
        with commit_log_server(get_message=Answers(message_at)) as server:
            assert serve_lookups(server.address, {}, server) is None

    @pytest.mark.parametrize(
        "junk",
        [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0\0", b"\xff" * 64, b"\0\0\0\x04\x01\xff\xff\xff"],
    )
    def test_junk_ends_its_own_connection_only(self, address, junk):
        get = Answers(message_at)
        with commit_log(address, get_message=get), socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(10)
            stranger.connect(address.removeprefix("unix:") + SOCKET_SUFFIX)
            assert stranger.recv(64) == GREETING
            stranger.sendall(junk)
            assert stranger.recv(64) == b""
            CommitLogClient(address).get(1)

        assert get.wires == ["lookup"]

    def test_a_caller_that_takes_no_answer_gives_its_thread_back(self, address, monkeypatch):
        monkeypatch.setattr(lookup_server, "SEND_SECONDS_MAX", 1)
        big = pb.GetMessageResponse(message=message_pb2.StoredMessage(body=b"x" * 4_000_000))
        with commit_log(address, with_lookups=False) as server:
            handlers = {Lookup.GET_MESSAGE: (pb.GetMessageRequest, lambda request, context: big)}
            served_here = serve_lookups(address, handlers, server)
            connection = lookups.LookupClient(address, "commitlog").connect(10)
            connection.sendall(b"\0\0\0\x01\x01")
            deadline = time.monotonic() + 30
            while served_here._connections and time.monotonic() < deadline:
                threading.Event().wait(0.01)
            assert not served_here._connections
            connection.close()


def test_descriptors_come_back(address):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        get = Answers(message_at)
        with commit_log(address, get_message=get):
            client = CommitLogClient(address)
            client.get(1)
            client._lookups.close()
            client.channel.close()
    deadline = time.monotonic() + 30
    while len(os.listdir("/proc/self/fd")) > before + 8 and time.monotonic() < deadline:
        threading.Event().wait(0.01)  # gRPC closes its own in the background

    assert len(os.listdir("/proc/self/fd")) <= before + 8
