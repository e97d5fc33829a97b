"""The one retry policy: pauses that double, with jitter; a server's RetryInfo is added; attempts and time are limited."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from reput_client.errors import DeadlineExceededError, ReputClientError, is_worth_retrying
from reput_client.status import error_of_call

if TYPE_CHECKING:
    import tenacity

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how fast.

    Attributes:
        attempt_count_max: tries of one thing, the first included; 1 = no retry.
        pause_seconds_first: upper end of the first pause; each next one may be twice as long.
        pause_seconds_max: no pause is longer, unless the server asks for it.
    """

    attempt_count_max: int = 5
    pause_seconds_first: float = 0.05
    pause_seconds_max: float = 1.0

    def __post_init__(self) -> None:
        if self.attempt_count_max < 1 or not 0 < self.pause_seconds_first <= self.pause_seconds_max:
            raise ValueError(f"{self}: at least one attempt, and 0 < pause_seconds_first <= pause_seconds_max")

    def wait(self) -> "Callable[[tenacity.RetryCallState], float]":
        """Seconds to pause after an attempt: random up to a doubling limit, and at least what the server asked for."""
        import tenacity  # takes 30 ms to import: calls that are not tried again do without it

        jittered = tenacity.wait_random_exponential(multiplier=self.pause_seconds_first, max=self.pause_seconds_max)

        def seconds(state: "tenacity.RetryCallState") -> float:
            error = state.outcome.exception() if state.outcome is not None else None
            asked = getattr(error, "retry_after_seconds", None) or 0.0
            # The jitter is added: clients that were refused together must not come back together.
            return float(asked) + jittered(state)

        return seconds


def call_with_retries(call: Callable[[float], Answer], timeout_seconds: float, policy: RetryPolicy) -> Answer:
    """The answer of an idempotent call.

    Args:
        call: makes the call with the seconds that it may take.
        timeout_seconds: for all attempts together.
        policy: how often.

    Raises:
        ReputClientError: the last attempt's typed error.
    """
    clock = _Clock(timeout_seconds)
    try:
        return call(clock.remaining_seconds())
    except grpc.RpcError as rpc_error:
        first = rpc_error
        if policy.attempt_count_max == 1 or not is_worth_retrying(clock.failed(first)):
            raise clock.failed(first) from first
    import tenacity  # its bookkeeping costs a quarter of a small call: only calls that have failed pay it

    for attempt in tenacity.Retrying(**clock.options(policy)):
        with attempt:
            if attempt.retry_state.attempt_number == 1:
                raise clock.failed(first) from first
            try:
                return call(clock.remaining_seconds())
            except grpc.RpcError as rpc_error:
                raise clock.failed(rpc_error) from rpc_error
    raise AssertionError("tenacity ends with an answer or an error")


async def acall_with_retries(
    call: Callable[[float], Awaitable[Answer]], timeout_seconds: float, policy: RetryPolicy
) -> Answer:
    """As `call_with_retries`, for asyncio."""
    clock = _Clock(timeout_seconds)
    try:
        return await call(clock.remaining_seconds())
    except grpc.RpcError as rpc_error:
        first = rpc_error
        if policy.attempt_count_max == 1 or not is_worth_retrying(clock.failed(first)):
            raise clock.failed(first) from first
    import tenacity

    async for attempt in tenacity.AsyncRetrying(**clock.options(policy)):
        with attempt:
            if attempt.retry_state.attempt_number == 1:
                raise clock.failed(first) from first
            try:
                return await call(clock.remaining_seconds())
            except grpc.RpcError as rpc_error:
                raise clock.failed(rpc_error) from rpc_error
    raise AssertionError("tenacity ends with an answer or an error")


class _Clock:
    """The time of one call with all its attempts."""

    def __init__(self, timeout_seconds: float) -> None:
        self._deadline = time.monotonic() + timeout_seconds
        self._failure: ReputClientError | None = None

    def options(self, policy: RetryPolicy) -> dict[str, Any]:
        import tenacity

        return {
            "retry": tenacity.retry_if_exception(is_worth_retrying),
            "stop": lambda state: (
                state.attempt_number >= policy.attempt_count_max
                or time.monotonic() + state.upcoming_sleep >= self._deadline
            ),
            "wait": policy.wait(),
            "reraise": True,
        }

    def remaining_seconds(self) -> float:
        remaining = self._deadline - time.monotonic()
        if remaining > 0:
            return remaining
        # The pause took longer than planned: report the failure that led to it.
        raise self._failure or DeadlineExceededError("no time was left to make the call")

    def failed(self, rpc_error: grpc.RpcError) -> ReputClientError:
        self._failure = error_of_call(rpc_error)
        return self._failure
