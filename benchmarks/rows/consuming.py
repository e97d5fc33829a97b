"""Rows 13, 14 and 16: the official Java client consumes."""

from collections.abc import Mapping

from benchmarks.figures import Metric, part_of_theirs, times_theirs
from benchmarks.row import Context, Row
from benchmarks.sides import official_side
from benchmarks.sizes import Sizes

PUSH = "PushConsumer"
ONE_BY_ONE, TOGETHER = "acknowledged one after the other", "acknowledged together"
P50, P99, DELIVERED = "p50", "p99", "delivered"
LATENCY_RATE = 1_000
# As many messages as a consumer takes while it warms and is measured; both sides take them faster than they are consumed.
FILL_PART = 0.5


def fill_seconds(sizes: Sizes) -> float:
    """How long a topic is filled before a consumer starts."""
    return max(1.0, (sizes.warm_seconds + sizes.measure_seconds) * FILL_PART)


class PushThroughput(Row):
    """Row 13."""

    number = 13
    title = "PushConsumer, 1 KiB"
    what = (
        "RocketMQ's official Java client with its defaults takes what was sent before, through our gateway and "
        "through RocketMQ's proxy; its listener returns at once."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (Metric(PUSH, "messages/s", target=times_theirs(1.2)),)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with official_side.filled(side, context, fill_seconds(self.sizes)) as endpoint:
            return {PUSH: official_side.consume(endpoint, "push", context)["rate"]}


class SimpleThroughput(Row):
    """Row 14."""

    number = 14
    title = "SimpleConsumer, receive and acknowledge, batches of 32"
    what = (
        "The same client and messages: one thread receives 32 and acknowledges them, one after the other (`ack`) or together "
        "(`ackAsync`), before it receives again."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target = times_theirs(1.2)
        self.metrics = (
            Metric(ONE_BY_ONE, "messages/s", target=target),
            Metric(TOGETHER, "messages/s", target=target),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with official_side.filled(side, context, 2 * fill_seconds(self.sizes)) as endpoint:
            return {
                ONE_BY_ONE: official_side.consume(endpoint, "simple", context)["rate"],
                TOGETHER: official_side.consume(endpoint, "simple-async", context)["rate"],
            }


class PushLatency(Row):
    """Row 16."""

    number = 16
    title = f"From send to push consumer at {LATENCY_RATE:,} messages/s"
    what = (
        "One process sends and consumes with the official Java client, 16 threads send. A message counts from when it was due, "
        "until its listener is called."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target = part_of_theirs(1.0)
        self.metrics = (
            Metric(P50, "ms", lower_is_better=True, target=target),
            Metric(P99, "ms", lower_is_better=True, target=target),
            Metric(DELIVERED, "messages/s"),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with official_side.filled(side, context, 0) as endpoint:
            said = official_side.consume(endpoint, "latency", context, LATENCY_RATE)
        return {P50: said["p50_millis"], P99: said["p99_millis"], DELIVERED: said["rate"]}
