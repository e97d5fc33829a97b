"""The time that a handler may still take: the caller's deadline, which it passes on with its own calls."""

from typing import Protocol

from services.methods import INNER_SECONDS

SECONDS_DEFAULT = INNER_SECONDS
# The share of the caller's time after which a call of a client ends. The rest is for the answer: it says what did not answer,
# which a caller whose own deadline has passed never reads.
ANSWER_SHARE = 0.8


class Timed(Protocol):
    """The part of a `grpc.ServicerContext` that is used here."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline."""


def remaining_seconds(context: Timed, default: float = SECONDS_DEFAULT) -> float:
    """Seconds left for this call.

    Args:
        context: the call being served.
        default: for a caller without a deadline, in seconds (services/methods.py); also for one whose deadline is more
            than a day away, because gRPC reports "never" as centuries.
    """
    remaining = context.time_remaining()
    if remaining is None or remaining > 86_400:
        return default
    return max(0.0, float(remaining))


def answer_seconds(context: Timed, default: float) -> float:
    """Seconds that the services behind may take for the call of a client; its answer has the rest."""
    return remaining_seconds(context, default) * ANSWER_SHARE
