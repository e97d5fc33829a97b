"""Lookups of a hosted service by another one in its process: as over the socket, in the caller's thread."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.calling.commitlog import CommitLogClient
from services.local.server import over_bytes, serve_local
from services.local.wire import LOOKUPS, LocalMethod
from services.retry import ATTEMPT_COUNT_MAX
from services.serving.server import ServiceServer
from store import errors
from tests.services.loopback import ScriptedCommitLog, commit_log_server


class Asked:
    """A handler that notes which thread asked it; "grpc" where a call has a context."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.by: list[object] = []
        self._answer = answer

    def __call__(self, request: Any, context: Any) -> Any:
        self.by.append("grpc" if context is not None else threading.current_thread())
        return self._answer(request)


def message_at(request: pb.GetMessageRequest) -> pb.GetMessageResponse:
    return pb.GetMessageResponse(message=message_pb2.StoredMessage(commit_log_offset=request.commit_log_offset))


def fail_with(error: Exception) -> Callable[[Any], Any]:
    def answer(_request: Any) -> Any:
        raise error

    return answer


@contextmanager
def commit_log(address: str, get: Asked, *, is_hosted: bool) -> Iterator[ServiceServer]:
    with commit_log_server(address, get_message=get) as server:
        server.is_hosted = is_hosted
        handlers = {
            LocalMethod.GET_MESSAGE: over_bytes(pb.GetMessageRequest, ScriptedCommitLog(get_message=get).GetMessage)
        }
        assert serve_local(LOOKUPS, address, handlers, server) is not None
        yield server


@pytest.mark.parametrize("is_hosted", [True, False])
def test_only_lookups_of_a_hosted_service_run_in_the_thread_of_their_caller(address: str, is_hosted: bool) -> None:
    get = Asked(message_at)
    with commit_log(address, get, is_hosted=is_hosted):
        assert CommitLogClient(address).get(7).commit_log_offset == 7
    (by,) = get.by
    assert (by is threading.current_thread()) == is_hosted
    assert by != "grpc"


@pytest.mark.parametrize("is_hosted", [True, False])
def test_an_error_is_the_same_with_and_without_the_socket(address: str, is_hosted: bool) -> None:
    get = Asked(fail_with(errors.OffsetOutOfRangeError("none there", firstOffset=0, lastOffset=9)))
    with commit_log(address, get, is_hosted=is_hosted), pytest.raises(errors.OffsetOutOfRangeError) as raised:
        CommitLogClient(address).get(99)
    assert (raised.value.message, raised.value.metadata) == ("none there", {"firstOffset": "0", "lastOffset": "9"})
    assert len(get.by) == 1


@pytest.mark.parametrize("is_hosted", [True, False])
def test_a_bug_is_told_and_logged_in_the_same_words(address: str, is_hosted: bool) -> None:
    get = Asked(fail_with(ZeroDivisionError()))
    words = "failed unexpectedly; see the log of the service for the cause"
    with commit_log(address, get, is_hosted=is_hosted), pytest.raises(errors.StoreError, match=words):
        CommitLogClient(address).get(0)


def test_a_service_that_is_not_ready_is_asked_again_over_grpc(address: str) -> None:
    get = Asked(fail_with(errors.StoreRecoveringError("still walking")))
    with commit_log(address, get, is_hosted=True), pytest.raises(errors.StoreRecoveringError):
        CommitLogClient(address).get(0)
    assert get.by == [threading.current_thread()] + ["grpc"] * ATTEMPT_COUNT_MAX


def test_a_service_that_has_stopped_is_not_asked_any_more(address: str) -> None:
    get = Asked(message_at)
    with commit_log(address, get, is_hosted=True):
        client = CommitLogClient(address)
    with pytest.raises(errors.ServiceUnavailableError):
        client.get(0)
    assert get.by == []
