"""The one retry policy: pauses that double, with jitter; a server's RetryInfo is added; attempts and time are limited."""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc

from reput_client.errors import DeadlineExceededError, ReputClientError, error_of_call, is_worth_retrying

Answer = TypeVar("Answer")

# Of the longest pause: a pause is at least this part of it, so that attempts never follow one another at once.
PAUSE_PART_MIN = 0.2
# A pause doubles at most so often; `pause_seconds_max` ends it sooner.
DOUBLING_COUNT_MAX = 30


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts, and the pauses between them.

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

    def pause_seconds(self, failure_count: int, error: ReputClientError | None = None) -> float:
        """The pause after so many failures in a row, from 1 on: random up to a limit that doubles with each failure.

        Args:
            failure_count: failures in a row.
            error: the last one; its `retry_after_seconds` is added.
        """
        doubled = self.pause_seconds_first * float(1 << min(failure_count - 1, DOUBLING_COUNT_MAX))
        jittered = random.uniform(PAUSE_PART_MIN, 1.0) * min(self.pause_seconds_max, doubled)  # noqa: S311  # no secret
        # Clients that were refused together must not come back together, so the jitter is added to what the server asks for.
        return jittered + ((error.retry_after_seconds or 0.0) if error is not None else 0.0)


async def call_with_retries(
    call: Callable[[float], Awaitable[Answer]],
    sleep: Callable[[float], Awaitable[None]],
    timeout_seconds: float,
    policy: RetryPolicy,
) -> Answer:
    """The answer of an idempotent call.

    Args:
        call: makes the call with the seconds that it may take.
        sleep: waits between two attempts.
        timeout_seconds: for all attempts together.
        policy: how often.

    Raises:
        ReputClientError: the last attempt's typed error.
    """
    deadline = time.monotonic() + timeout_seconds
    failure: ReputClientError | None = None
    attempt_count = 0
    while True:
        attempt_count += 1
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0:
            # The pause took longer than planned: report the failure that led to it.
            raise failure or DeadlineExceededError("no time was left to make the call")
        try:
            return await call(remaining_seconds)
        except grpc.RpcError as rpc_error:
            failure = error_of_call(rpc_error)
            failure.__cause__ = rpc_error
        if attempt_count >= policy.attempt_count_max or not is_worth_retrying(failure):
            raise failure
        pause = policy.pause_seconds(attempt_count, failure)
        if time.monotonic() + pause >= deadline:
            raise failure
        await sleep(pause)
