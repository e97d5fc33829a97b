"""The clients of commitlog, consumequeue and index, over gRPC and over the local wire: a caller sees no difference."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as pb_grpc
from reput.consumequeue.v1 import consumequeue_service_pb2 as queue_pb
from reput.consumequeue.v1 import consumequeue_service_pb2_grpc as queue_grpc
from reput.index.v1 import index_service_pb2 as index_pb
from reput.index.v1 import index_service_pb2_grpc as index_grpc
from reput.message.v1 import message_pb2
from services import status
from services.calling.client import ServiceClient
from services.calling.commitlog import CommitLogClient
from services.local import client as local_client
from services.local.server import over_bytes, serve_local
from services.local.wire import LOOKUPS, LocalMethod
from services.rpcs.consumequeue import GET_QUEUE_UNITS
from services.rpcs.index import SEARCH_KEY
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store import errors
from tests.support.waiting import WAIT_SECONDS_MAX

ERRORS = [
    errors.RecordNotFoundError("no record starts at 5", commitLogOffset=5),
    errors.OffsetOutOfRangeError("outside", offset=5, firstOffset=7, lastOffset=9),
    errors.RecordCorruptedError("rotten", file="/x/y", commitLogOffset=5),
    errors.InvalidArgumentError("at most 1000", field="commit_log_offsets", count=1001),
    errors.DiskFullError("no room", freeBytes=7),
    errors.StoreError("something else"),
]


class Answers(
    pb_grpc.CommitLogServiceServicer, queue_grpc.ConsumeQueueServiceServicer, index_grpc.IndexServiceServicer
):
    """All three servicers: each call is answered by one function, and its wire is noted."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.wires: list[str] = []
        self.requests: list[Any] = []
        self._answer = answer

    def _called(self, request: Any, context: Any) -> Any:
        self.wires.append("grpc" if context is not None else "local")  # a local call comes without a context
        self.requests.append(request)
        return self._answer(request)

    GetMessage = BatchGetMessages = GetQueueUnits = SearchKey = _called


@pytest.fixture(params=["local", "grpc"])
def wire(request: pytest.FixtureRequest) -> str:
    return request.param


class Service:
    """What a test asks: all three clients of one process, whose answers are a function."""

    def __init__(self, address: str, answers: Answers) -> None:
        self.answers = answers
        self.commit_log = CommitLogClient(address)
        self.queues = ServiceClient("consumequeue", address)
        self.index = ServiceClient("index", address)


@pytest.fixture
def serve(
    wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Any], Any]], contextlib.AbstractContextManager[Service]]:
    """Serves with a function, by the wire of this run; at the end each call must have come by that one."""

    monkeypatch.setattr(local_client, "CONNECT_SECONDS_MAX", WAIT_SECONDS_MAX)  # the machine may be busy

    @contextlib.contextmanager
    def served(answer: Callable[[Any], Any]) -> Iterator[Service]:
        address = f"unix:{tmp_path}/s.sock"
        answers = Answers(answer)
        server = ServiceServer("test", ServiceSettings(address=address))
        server.add("reput.commitlog.v1.CommitLogService", pb_grpc.add_CommitLogServiceServicer_to_server, answers)
        server.add(
            "reput.consumequeue.v1.ConsumeQueueService", queue_grpc.add_ConsumeQueueServiceServicer_to_server, answers
        )
        server.add("reput.index.v1.IndexService", index_grpc.add_IndexServiceServicer_to_server, answers)
        if wire == "local":
            lookups = {
                LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, answers.GetMessage),
                LocalMethod.BATCH_GET_MESSAGES: over_bytes(pb.BatchGetMessagesRequest, answers.BatchGetMessages),
                LocalMethod.GET_QUEUE_UNITS: over_bytes(queue_pb.GetQueueUnitsRequest, answers.GetQueueUnits),
                LocalMethod.SEARCH_KEY: over_bytes(index_pb.SearchKeyRequest, answers.SearchKey),
            }
            assert serve_local(LOOKUPS, address, lookups, server) is not None
        server.start()
        ended = threading.Thread(target=server.serve_until_stopped)
        ended.start()
        try:
            yield Service(address, answers)
        finally:
            server.stop()
            ended.join()
        assert set(answers.wires) == {wire}

    return served


def message_at(request: pb.GetMessageRequest) -> pb.GetMessageResponse:
    return pb.GetMessageResponse(message={"commit_log_offset": request.commit_log_offset, "body": b"\0\xff" * 9})


def failing(error: Exception) -> Callable[[Any], Any]:
    def answer(_request: Any) -> Any:
        raise error

    return answer


def test_a_record_arrives_as_it_was_sent(serve):
    with serve(message_at) as service:
        found = service.commit_log.get(123)

    assert found == message_at(pb.GetMessageRequest(commit_log_offset=123)).message


@pytest.mark.parametrize("size_bytes", [0, 1, 65_536, 4_100_000])
def test_a_body_of_any_size_arrives_whole(serve, size_bytes):
    body = bytes(number % 251 for number in range(size_bytes))
    with serve(lambda _request: pb.GetMessageResponse(message={"body": body})) as service:
        assert service.commit_log.get(1).body == body


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_one_that_was_raised(serve, error):
    raised = []
    with serve(failing(error)) as service:
        for call in (
            lambda: service.commit_log.get(5),
            lambda: service.commit_log.get_many([5]),
            lambda: service.queues.call(GET_QUEUE_UNITS, queue_pb.GetQueueUnitsRequest(topic="orders", max_units=1)),
            lambda: service.index.call(SEARCH_KEY, index_pb.SearchKeyRequest(topic="orders", key="k")),
        ):
            with pytest.raises(errors.StoreError) as caught:
                call()
            raised.append(caught.value)

    assert {type(one) for one in raised} == {type(error)}
    assert {one.message for one in raised} == {error.message}
    assert [one.metadata for one in raised] == [error.metadata] * 4
    assert len(service.answers.requests) == 4  # nothing was asked twice


def test_a_bug_is_told_as_one_without_its_text(serve):
    with serve(failing(ZeroDivisionError("a secret"))) as service, pytest.raises(errors.StoreError) as raised:
        service.commit_log.get(0)

    assert type(raised.value) is errors.StoreError
    assert raised.value.message == (
        "/reput.commitlog.v1.CommitLogService/GetMessage failed unexpectedly; see the log of the service for the cause"
    )


def test_records_come_with_their_outcomes_in_order(serve):
    def batch(request: pb.BatchGetMessagesRequest) -> pb.BatchGetMessagesResponse:
        response = pb.BatchGetMessagesResponse()
        for offset in request.commit_log_offsets[:2]:  # full after two
            outcome = response.outcomes.add()
            if offset % 2:
                outcome.message.CopyFrom(message_pb2.StoredMessage(commit_log_offset=offset, body=b"x" * 700_000))
            else:
                outcome.error.CopyFrom(status.to_status(errors.RecordNotFoundError("none", commitLogOffset=offset)))
        return response

    with serve(batch) as service:
        first, second, third = service.commit_log.get_many([5, 4, 3], body_bytes_max=10_000_000)

    assert [(one.commit_log_offset, len(one.body)) for one in (first, third)] == [(5, 700_000), (3, 700_000)]
    assert type(second) is errors.RecordNotFoundError
    assert second.metadata == {"commitLogOffset": "4"}
    assert len(service.answers.requests) == 2


def test_a_request_and_its_answer_arrive_as_they_are(serve):
    answer = index_pb.SearchKeyResponse(commit_log_offsets=[9, 5], next_page_token="5", next_offset=77)
    asked = index_pb.SearchKeyRequest(topic="orders", key="k", page_size=2, page_token="11")
    with serve(lambda _request: answer) as service:
        page = service.index.call(SEARCH_KEY, asked)

    assert (page, service.answers.requests) == (answer, [asked])


def test_a_service_that_hangs_costs_no_more_than_the_deadline_and_its_late_answer_is_dropped(serve):
    leave = threading.Event()

    def hang(request: pb.GetMessageRequest) -> pb.GetMessageResponse:
        assert leave.wait(WAIT_SECONDS_MAX)
        return message_at(request)

    with serve(hang) as service:
        with pytest.raises(errors.DeadlineExceededError) as raised:
            service.commit_log.get(1, timeout_seconds=0.3)
        leave.set()

        assert raised.value.metadata == {"code": "DEADLINE_EXCEEDED", "service": "commitlog"}
        assert service.commit_log.get(2).commit_log_offset == 2


def test_many_callers_get_their_own_answers(serve):
    offsets = list(range(300))
    with serve(message_at) as service, ThreadPoolExecutor(16) as pool:
        found = [message.commit_log_offset for message in pool.map(service.commit_log.get, offsets)]

    assert found == offsets


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_without_time_nothing_is_asked(serve, seconds):
    with serve(message_at) as service:
        with pytest.raises(errors.DeadlineExceededError):
            service.commit_log.get(1, timeout_seconds=seconds)
        assert service.answers.requests == []
        service.commit_log.get(2)
