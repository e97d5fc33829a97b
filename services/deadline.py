"""How long a handler may still take: the caller's deadline, passed on to whoever is called next."""

from typing import Protocol

SECONDS_DEFAULT = 10.0


class Timed(Protocol):
    """What is needed of a `grpc.ServicerContext`."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline."""


def remaining_seconds(context: Timed, default: float = SECONDS_DEFAULT) -> float:
    """Seconds left for this call.

    Args:
        context: the call being served.
        default: what a caller without a deadline gets, in seconds; also the most that any caller gets when its own
            deadline is further away than a day (gRPC reports "never" as centuries).
    """
    remaining = context.time_remaining()
    if remaining is None or remaining > 86_400:
        return default
    return max(0.0, float(remaining))
