"""The retry policy: only UNAVAILABLE, four attempts, never past the deadline."""

import time

import pytest

from reput.commitlog.v1 import commitlog_service_pb2 as pb
from reput.commitlog.v1.commitlog_service_pb2 import AppendMessagesRequest
from services.calling.commitlog import CommitLogClient
from services.retry import ATTEMPT_COUNT_MAX, call_idempotent
from services.rpcs.commitlog import APPEND_MESSAGES
from store.errors import DeadlineExceededError, RecordNotFoundError, ServiceUnavailableError, StoreRecoveringError
from tests.services.loopback import commit_log_server


def failing(times: int, error: Exception):
    """A behaviour that fails so many times and then answers, and the list of its calls."""
    calls = []

    def get(request, context):
        calls.append(request)
        if len(calls) <= times:
            raise error
        return pb.GetMessageResponse()

    return get, calls


def test_a_service_that_is_not_ready_is_asked_again():
    get, calls = failing(2, StoreRecoveringError("still walking"))
    with commit_log_server(get_message=get) as server:
        CommitLogClient(server.address).get(0)

    assert len(calls) == 3


def test_after_four_attempts_the_last_error_comes_through():
    get, calls = failing(99, StoreRecoveringError("still walking"))
    with commit_log_server(get_message=get) as server, pytest.raises(StoreRecoveringError):
        CommitLogClient(server.address).get(0)

    assert len(calls) == ATTEMPT_COUNT_MAX


def test_an_answer_that_is_an_error_is_not_asked_for_again():
    get, calls = failing(1, RecordNotFoundError("no record starts at 5"))
    with commit_log_server(get_message=get) as server, pytest.raises(RecordNotFoundError):
        CommitLogClient(server.address).get(5)

    assert len(calls) == 1


def test_an_append_is_never_repeated():
    calls = []

    def append(request, context):
        calls.append(request)
        raise StoreRecoveringError("still walking")

    with commit_log_server(append_messages=append) as server, pytest.raises(StoreRecoveringError):
        CommitLogClient(server.address).call(APPEND_MESSAGES, AppendMessagesRequest())

    assert len(calls) == 1


def test_retries_end_with_the_callers_deadline():
    def unavailable(seconds):
        raise ServiceUnavailableError("not there")

    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError):
        call_idempotent(unavailable, 0.05, "commitlog", attempt_count_max=1_000)

    assert time.monotonic() - started < 30, "a thousand attempts take minutes"


def test_a_pause_that_outlasts_the_deadline_does_not_hide_why_the_call_failed(monkeypatch):
    def unavailable(seconds):
        raise ServiceUnavailableError("not there")

    sleep = time.sleep
    # A pause that takes longer than it was asked to, as on a busy machine.
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds + 2.0))
    with pytest.raises(ServiceUnavailableError, match="not there"):
        call_idempotent(unavailable, 1.5, "commitlog")


def test_no_call_is_made_when_no_time_is_left():
    with pytest.raises(DeadlineExceededError):
        call_idempotent(lambda seconds: pytest.fail("called"), 0.0, "commitlog")


def test_each_attempt_is_told_what_is_left_of_the_time():
    given = []

    def call(seconds):
        given.append(seconds)
        if len(given) < 3:
            raise ServiceUnavailableError("not there")
        return "answer"

    assert call_idempotent(call, 10.0, "commitlog") == "answer"
    assert 10.0 >= given[0] > given[1] > given[2] > 0
