"""The settings of consumers with their limits, and what a gateway answers to them: how a group consumes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client.consuming.cache import AHEAD_COUNT_MAX
from reput_client.producing.settings import TRACE_TOPIC
from reput_client.retry import RetryPolicy

# RocketMQ's pullThresholdForQueue, pullThresholdSizeForQueue (MiB) and consumeConcurrentlyMaxSpan.
CACHE_COUNT_MAX = 1_000
CACHE_BYTES_MAX = 100 << 20
CACHE_SPAN_MAX = 2_000
# Handlers at once: RocketMQ's consumeThreadMin.
CONCURRENCY_DEFAULT = 20
# What one ReceiveMessage gives.
BATCH_COUNT_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The limits and times of a consumer.

    Attributes:
        cache_count_max: messages received and not settled, those that handlers hold included. No poll can exceed it.
        cache_bytes_max: their bodies. No poll begins while they have more, so an answer of each poll under way (4 MiB) can come
            on top.
        batch_count_max: messages of a poll, at most 32.
        ahead_count_max: messages that are fetched before a quick program asks for them; none if it takes longer than 50 ms
            over a message. When the process dies, what it had fetched counts as an attempt.
        invisible_seconds: for how long a message is hidden from the rest of the group, 10 s to 12 h; afterwards it comes again.
            None: as long as this consumer lives and has not settled it, for 3 h at most.
        backoff_seconds: pauses before a failed message comes again, by delivery attempt; None: those of the group.
        request_seconds_max: of a call other than a poll.
        heartbeat_seconds: between two signs of life. The messages of a client that gave none for 30 s come again.
        assignment_seconds: how often shards and queues are asked for.
        settings_seconds: how often the settings are sent again.
        retry: pauses between attempts. Only the pauses count: polls are tried until the consumer is closed, acknowledgements
            until the message's time is over.
        close_seconds_max: how long `close` waits for handlers and acknowledgements.
        trace: tell of each message that the program gets, and of what it says of it, in RocketMQ's format. Traces never delay a
            message; what there is no room for is dropped.
        trace_topic: where traces go.
    """

    cache_count_max: int = CACHE_COUNT_MAX
    cache_bytes_max: int = CACHE_BYTES_MAX
    batch_count_max: int = BATCH_COUNT_MAX
    ahead_count_max: int = AHEAD_COUNT_MAX
    invisible_seconds: float | None = None
    backoff_seconds: Sequence[float] | None = None
    request_seconds_max: float = 5.0
    heartbeat_seconds: float = 10.0
    assignment_seconds: float = 5.0
    settings_seconds: float = 300.0
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(pause_seconds_first=0.1, pause_seconds_max=5.0))
    close_seconds_max: float = 30.0
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        check(
            self,
            ("cache_count_max", 1, 1 << 20),
            ("cache_bytes_max", 1, 1 << 40),
            ("batch_count_max", 1, BATCH_COUNT_MAX),
            ("ahead_count_max", 0, 1 << 20),
            ("request_seconds_max", 0.1, 3600),
            ("heartbeat_seconds", 0.1, 25),
            ("assignment_seconds", 0.1, 3600),
            ("settings_seconds", 1, 3600),
            ("close_seconds_max", 0, float("inf")),
        )
        if self.invisible_seconds is not None and not 10 <= self.invisible_seconds <= 12 * 3600:
            raise ValueError(f"invisible_seconds is {self.invisible_seconds}: None, or 10 to 43,200 is possible")
        if self.backoff_seconds is not None and (not self.backoff_seconds or min(self.backoff_seconds) < 0):
            raise ValueError("backoff_seconds is empty or has a negative pause: give pauses, or None")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerSettings:
    """The limits and times of a pull consumer.

    Attributes:
        cache_count_max, cache_bytes_max, cache_span_max: of each queue: messages fetched and not polled, their bodies, and the
            distance between the first and the last of them in the queue. No batch is fetched that could exceed the first two.
        batch_count_max: messages of a fetched batch, at most 1,024.
        batch_bytes_max: bodies of a fetched batch, at most 4 MiB.
        wait_seconds: how long one call waits for messages, at most 60 s.
        commit_seconds: how often positions are committed; 0: only by `commit`.
        members_seconds: how often the members of the group are asked for.
        rebalance_seconds: how often the queues of the topics are asked for.
        heartbeat_seconds: between two signs of life.
        request_seconds_max: of a call other than a fetch.
        settings_seconds: how often the settings are sent again.
        retry: pauses between attempts; fetches are tried until the consumer is closed.
        trace: tell of each polled message, and how it ended, in RocketMQ's format. Traces never fail or delay anything.
        trace_topic: where traces go.
    """

    cache_count_max: int = CACHE_COUNT_MAX
    cache_bytes_max: int = CACHE_BYTES_MAX
    cache_span_max: int = CACHE_SPAN_MAX
    batch_count_max: int = 256
    batch_bytes_max: int = 1 << 20
    wait_seconds: float = 20.0
    commit_seconds: float = 5.0
    members_seconds: float = 2.0
    rebalance_seconds: float = 20.0
    heartbeat_seconds: float = 10.0
    request_seconds_max: float = 10.0
    settings_seconds: float = 300.0
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(pause_seconds_first=0.1, pause_seconds_max=5.0))
    trace: bool = False
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        check(
            self,
            ("cache_count_max", 1, 1 << 20),
            ("cache_bytes_max", 1, 1 << 40),
            ("cache_span_max", 1, 1 << 40),
            ("batch_count_max", 1, 1024),
            ("batch_bytes_max", 1, 4 << 20),
            ("wait_seconds", 0.1, 60),
            ("commit_seconds", 0, 3600),
            ("members_seconds", 0.1, 3600),
            ("rebalance_seconds", 0.1, 3600),
            ("heartbeat_seconds", 0.1, 60),
            ("request_seconds_max", 0.1, 3600),
            ("settings_seconds", 1, 3600),
        )


def check(settings: Any, *limits: tuple[str, float, float]) -> None:
    """Raise a ValueError for a field that is outside its least and greatest value."""
    for name, minimum, maximum in limits:
        value = getattr(settings, name)
        if not minimum <= value <= maximum:
            raise ValueError(f"{name} is {value}: {minimum} to {maximum} is possible")


POLL_SECONDS_DEFAULT = 20.0
BATCH_COUNT_DEFAULT = 32
BACKOFF_SECONDS_DEFAULT = 1.0


@dataclass(frozen=True, slots=True)
class AgreedSettings:
    """The settings of a group, as its gateway has answered them.

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
        """The pause before a message that failed at its n-th delivery, from 1 on, comes again."""
        return self.backoff_seconds[min(max(delivery_attempt, 1), len(self.backoff_seconds)) - 1]


def agreed_settings_of(settings: v2.Settings, backoff_seconds: Sequence[float] | None = None) -> AgreedSettings:
    """The settings of a gateway's answer.

    Args:
        settings: the answer.
        backoff_seconds: used instead of its pauses.
    """
    subscription, policy = settings.subscription, settings.backoff_policy
    return AgreedSettings(
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
