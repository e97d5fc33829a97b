"""What a gateway answers to a consumer's settings: how its group consumes."""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2

POLL_SECONDS_DEFAULT = 20.0
BATCH_COUNT_DEFAULT = 32
BACKOFF_SECONDS_DEFAULT = 1.0


@dataclass(frozen=True, slots=True)
class Agreed:
    """The settings that hold.

    Attributes:
        fifo: messages of one message group are consumed one after the other.
        delivery_attempts_max: deliveries of a message, the first included, before it becomes a dead letter.
        backoff_seconds: pauses before a failed message comes again; the last one holds for all further attempts.
        batch_count: messages of a poll.
        poll_seconds: how long a poll waits.
    """

    fifo: bool = False
    delivery_attempts_max: int = 17
    backoff_seconds: Sequence[float] = (BACKOFF_SECONDS_DEFAULT,)
    batch_count: int = BATCH_COUNT_DEFAULT
    poll_seconds: float = POLL_SECONDS_DEFAULT

    def pause_seconds(self, delivery_attempt: int) -> float:
        """How long a message waits that failed at its n-th delivery, from 1 on."""
        return self.backoff_seconds[min(max(delivery_attempt, 1), len(self.backoff_seconds)) - 1]


def agreed_of(settings: v2.Settings, backoff_seconds: Sequence[float] | None = None) -> Agreed:
    """The settings of a gateway's answer.

    Args:
        settings: the answer.
        backoff_seconds: used instead of its pauses.
    """
    subscription, policy = settings.subscription, settings.backoff_policy
    return Agreed(
        fifo=subscription.fifo,
        delivery_attempts_max=max(1, policy.max_attempts),
        backoff_seconds=tuple(backoff_seconds or _pauses(policy)),
        batch_count=subscription.receive_batch_size or BATCH_COUNT_DEFAULT,
        poll_seconds=_seconds(subscription.long_polling_timeout) or POLL_SECONDS_DEFAULT,
    )


def _pauses(policy: v2.RetryPolicy) -> Sequence[float]:
    if policy.HasField("customized_backoff") and policy.customized_backoff.next:
        return [_seconds(pause) for pause in policy.customized_backoff.next]
    if not policy.HasField("exponential_backoff"):
        return (BACKOFF_SECONDS_DEFAULT,)
    backoff = policy.exponential_backoff
    longest = _seconds(backoff.max)
    pauses = [_seconds(backoff.initial)]
    while pauses[-1] < longest and backoff.multiplier > 1 and pauses[-1] > 0:
        pauses.append(min(longest, pauses[-1] * backoff.multiplier))
    return pauses


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
