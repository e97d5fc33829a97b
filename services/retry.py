"""The retry policy: an idempotent call is made again when the service was not reached or not ready.

Only code UNAVAILABLE is retried: four attempts in all, with jitter, never past the caller's deadline. Appends are not
idempotent and are never retried.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import grpc
import tenacity

from services import status
from store.errors import DeadlineExceededError, StoreError

ATTEMPT_COUNT_MAX = 4
WAIT_SECONDS_FIRST = 0.05
WAIT_SECONDS_MAX = 1.0

Answer = TypeVar("Answer")


def call_idempotent(
    call: Callable[[float], Answer], timeout_seconds: float, service: str, *, attempt_count_max: int = ATTEMPT_COUNT_MAX
) -> Answer:
    """The answer of an idempotent call.

    Args:
        call: makes the call, given the seconds that it may take: `lambda seconds: stub.Get(request, timeout=seconds)`.
        timeout_seconds: for all attempts together.
        service: the name of the called service, for error texts.
        attempt_count_max: 1 = no retry.

    Raises:
        StoreError: the typed error of the last attempt.
    """
    deadline = time.monotonic() + timeout_seconds
    if timeout_seconds <= 0:
        raise DeadlineExceededError(f"no time was left to call {service}: allow more time", service=service)
    try:
        # Nearly every call succeeds at once, without the cost of tenacity.
        return call_once(call, timeout_seconds, service)
    except StoreError as error:
        if attempt_count_max <= 1 or not is_worth_retrying(error):
            raise
        first_failure = error
    return _try_again(call, deadline, service, first_failure, attempt_count_max)


def _try_again(
    call: Callable[[float], Answer], deadline: float, service: str, first_failure: StoreError, attempt_count_max: int
) -> Answer:
    """The attempts after the first one, which failed."""
    failures = [first_failure]
    made = [first_failure]  # tenacity counts this attempt; it was made before

    def attempt() -> Answer:
        if made:
            raise made.pop()
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise failures[-1]  # the pause took longer than asked for: report the failure before it
        try:
            return call_once(call, remaining, service)
        except StoreError as error:
            failures[:] = [error]
            raise

    def is_over(state: tenacity.RetryCallState) -> bool:
        return state.attempt_number >= attempt_count_max or time.monotonic() + state.upcoming_sleep >= deadline

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_worth_retrying),
        stop=is_over,
        wait=tenacity.wait_random_exponential(multiplier=WAIT_SECONDS_FIRST, max=WAIT_SECONDS_MAX),
        reraise=True,
    )
    return retrying(attempt)


def call_once(call: Callable[[float], Answer], timeout_seconds: float, service: str) -> Answer:
    """The answer of one attempt; a failure is raised as the typed error."""
    try:
        return call(timeout_seconds)
    except grpc.RpcError as rpc_error:
        raise status.from_rpc_error(rpc_error, service) from rpc_error


def is_worth_retrying(error: BaseException) -> bool:
    """True when another attempt may succeed: the service was not reached or not ready."""
    return isinstance(error, StoreError) and status.code_of(error) is grpc.StatusCode.UNAVAILABLE
