"""Rows 26 and 27: RocketMQ's own client sends over its remoting protocol."""

from collections.abc import Mapping

from benchmarks.figures import ECHO, OURS, THEIRS, Medians, Metric, Target, times_theirs
from benchmarks.row import Context, Row
from benchmarks.sides import remoting_side
from benchmarks.sizes import Sizes

CALLER_COUNTS = (1, 64)
ECHO_PART = 0.7
BATCHES = ((1024, 32), (128, 128))  # bytes of a body, messages of a batch
BATCH_CALLER_COUNT = 4


def _as_fast_or_near_the_echo(medians: Medians) -> float:
    """RocketMQ's rate, or a part of the bare echo's where that is slower than RocketMQ."""
    return medians[THEIRS] if medians[ECHO] >= medians[THEIRS] else ECHO_PART * medians[ECHO]


AS_FAST = Target(
    f">= 1 x RocketMQ, or >= {ECHO_PART:g} x the bare echo where that is below RocketMQ", _as_fast_or_near_the_echo
)


def _name(caller_count: int, flush: str) -> str:
    return f"{caller_count} caller{'s' if caller_count > 1 else ''}, {flush} flush"


class RemotingSends(Row):
    """Row 26."""

    number = 26
    title = "Synchronous send over remoting, 1 KiB"
    cause = "One caller waits for two hops between our processes and for Python behind each flush (ADR 0128, 0129)."
    what = (
        "DefaultMQProducer of RocketMQ, unmodified, the same on all sides: to our remoting door, to "
        "RocketMQ, and to a bare echo in Python that answers each frame with the same words and keeps nothing. One "
        "producer, so one connection; each thread sends one message after the other."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        every = (OURS, THEIRS, ECHO)
        self.metrics = (
            *(
                Metric(_name(callers, "async"), "calls/s", target=AS_FAST, sides=every)
                for callers in CALLER_COUNTS
            ),
            *(Metric(_name(callers, "sync"), "calls/s", target=times_theirs(0.9)) for callers in CALLER_COUNTS),
            *(
                Metric(f"p99, {_name(callers, flush)}", "ms", lower_is_better=True)
                for flush in ("async", "sync")
                for callers in CALLER_COUNTS
            ),
        )  # fmt: skip

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        values: dict[str, float] = {}
        for flush in ("async",) if side == ECHO else ("async", "sync"):
            with remoting_side.serving(side, context, sync=flush == "sync") as served:
                for callers in CALLER_COUNTS:
                    said = served.append(context, callers, remoting_side.BODY_BYTES, 1)
                    values[_name(callers, flush)] = said["rate"]
                    if side != ECHO:
                        values[f"p99, {_name(callers, flush)}"] = said["p99_millis"]
        return values


class RemotingBatches(Row):
    """Row 27."""

    number = 27
    title = "Batches over remoting"
    cause = "Each batch is taken apart and dispatched in a second process (ADR 0129, 0132)."
    what = f"The same producer sends lists of messages, {BATCH_CALLER_COUNT} threads; flush asynchronous."

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = tuple(
            Metric(self._batch_name(*batch), "messages/s", target=times_theirs(1.0)) for batch in BATCHES
        )

    @staticmethod
    def _batch_name(body_bytes: int, message_count: int) -> str:
        return f"{'1 KiB' if body_bytes == 1024 else f'{body_bytes} B'} x {message_count}"

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        with remoting_side.serving(side, context) as served:
            return {
                self._batch_name(*batch): served.append(context, BATCH_CALLER_COUNT, *batch)["rate"]
                for batch in BATCHES
            }
