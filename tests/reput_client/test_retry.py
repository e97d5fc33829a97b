"""The retry policy of calls: which attempts are made, and the pauses between them."""

from collections.abc import Callable

import grpc
import pytest

from reput_client import BusyError, InvalidRequestError, ReputClientError, RetryPolicy
from reput_client.errors import DeadlineExceededError
from reput_client.retry import call_with_retries
from reput_client.threads_and_loops import run_blocking


class Failure(grpc.RpcError):
    """A failed call, as grpc raises it."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "refused"

    def trailing_metadata(self) -> tuple[()]:
        return ()


class Gateway:
    """Fails as often as it is told, with one code; notes the seconds of each attempt and of each pause."""

    def __init__(self, failure_count: int, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        self._failure_count = failure_count
        self._code = code
        self.attempts: list[float] = []
        self.pauses: list[float] = []

    async def call(self, seconds: float) -> str:
        self.attempts.append(seconds)
        if len(self.attempts) <= self._failure_count:
            raise Failure(self._code)
        return "answer"

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def ask(self, policy: RetryPolicy, timeout_seconds: float = 60.0) -> str:
        return run_blocking(call_with_retries, self.call, self.sleep, timeout_seconds, policy)


def raised(ask: Callable[[], object]) -> ReputClientError:
    with pytest.raises(ReputClientError) as caught:
        ask()
    return caught.value


def test_a_call_that_succeeds_is_made_once_and_never_pauses() -> None:
    gateway = Gateway(0)
    assert gateway.ask(RetryPolicy()) == "answer"
    assert (len(gateway.attempts), gateway.pauses) == (1, [])


def test_pauses_double_up_to_their_limit_and_have_jitter() -> None:
    gateway = Gateway(5)
    policy = RetryPolicy(attempt_count_max=6, pause_seconds_first=0.1, pause_seconds_max=0.5)
    assert gateway.ask(policy) == "answer"
    limits = [0.1, 0.2, 0.4, 0.5, 0.5]
    assert len(gateway.pauses) == len(limits)
    assert all(0.2 * limit <= pause <= limit for pause, limit in zip(gateway.pauses, limits, strict=True))
    assert len({policy.pause_seconds(3) for _ in range(20)}) > 1


def test_what_the_server_asks_for_is_added_to_the_pause() -> None:
    error = BusyError("later", retry_after_seconds=7.0)
    assert 7.02 <= RetryPolicy(pause_seconds_first=0.1).pause_seconds(1, error) <= 7.1


def test_the_error_after_the_last_attempt_has_the_failed_call_as_its_cause() -> None:
    gateway = Gateway(9)
    error = raised(lambda: gateway.ask(RetryPolicy(attempt_count_max=3)))
    assert (len(gateway.attempts), len(gateway.pauses)) == (3, 2)
    assert isinstance(error.__cause__, Failure)


def test_a_refusal_that_does_not_pass_is_not_tried_again() -> None:
    gateway = Gateway(9, grpc.StatusCode.INVALID_ARGUMENT)
    assert isinstance(raised(lambda: gateway.ask(RetryPolicy())), InvalidRequestError)
    assert len(gateway.attempts) == 1


def test_no_pause_begins_that_would_outlast_the_time_of_the_call() -> None:
    gateway = Gateway(9)
    policy = RetryPolicy(pause_seconds_first=1000.0, pause_seconds_max=1000.0)
    raised(lambda: gateway.ask(policy, timeout_seconds=10.0))
    assert (len(gateway.attempts), gateway.pauses) == (1, [])
    assert 9.0 < gateway.attempts[0] <= 10.0


def test_a_call_without_time_is_not_made() -> None:
    gateway = Gateway(0)
    assert isinstance(raised(lambda: gateway.ask(RetryPolicy(), timeout_seconds=0.0)), DeadlineExceededError)
    assert gateway.attempts == []
