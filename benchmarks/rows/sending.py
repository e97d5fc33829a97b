"""Row 3c: the official Java client sends message by message."""

from collections.abc import Mapping

from benchmarks.figures import Metric, times_theirs
from benchmarks.row import Context, Row
from benchmarks.sides import official_side
from benchmarks.sizes import Sizes

RATE, P99 = "SendMessage", "p99 of SendMessage"
CALLER_COUNT = 32


class OfficialSend(Row):
    """Row 3c."""

    number = "3c"
    title = f"Official Java client, 1 KiB, {CALLER_COUNT} callers"
    what = (
        f"One producer of RocketMQ's official Java client, {CALLER_COUNT} threads send one message after the other, through "
        "our gateway and through RocketMQ's proxy; flush asynchronous."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(RATE, "calls/s", target=times_theirs(1.5)),
            Metric(P99, "ms", lower_is_better=True),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with official_side.serving(side, context) as served:
            said = official_side.send(served.endpoint, "plain", context, CALLER_COUNT)
        return {RATE: said["rate"], P99: said["p99_millis"]}
