"""Row 25: what a mirror costs the broker that it mirrors."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping

from benchmarks.figures import OURS, Metric, times_theirs
from benchmarks.load import TOPIC
from benchmarks.row import QUIET, Context, Row, SkippedError
from benchmarks.rows.batched_append import JAVA_THREADS
from benchmarks.sides.our_side import OurStack
from benchmarks.sides.rocketmq_side import RocketMQ
from benchmarks.sizes import Sizes

BESIDE, SLAVE = "beside it (--follow)", "as its slave (--mirror)"
BODY_BYTES, BATCH_COUNT = 1024, 32


class Mirrored(Row):
    """Row 25."""

    number = 25
    title = "A broker's appends while Reput mirrors it"
    cause = "The mirror of a broker takes its share of the same two cores for the copy and its queues (ADR 0063, 0064)."
    what = (
        "The Java producer of row 1 against RocketMQ, with Reput attached on the same machine in one way (ours), and alone "
        "(RocketMQ): ours / RocketMQ is what is left of the broker's throughput. Reput runs as it comes, at nice 19."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        target = times_theirs(0.95)
        self.metrics = (
            Metric(BESIDE, "messages/s", target=target),
            Metric(SLAVE, "messages/s", target=target),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        if context.rocketmq_missing:
            raise SkippedError(context.rocketmq_missing)
        return {name: self._rate(context, name if side == OURS else "") for name in (BESIDE, SLAVE)}

    def _rate(self, context: Context, how: str) -> float:
        sizes = self.sizes
        with context.theirs() as rocketmq, context.directory() as path, _attached(rocketmq, how, path):
            rocketmq.create_topic(TOPIC)
            outcome = rocketmq.driver(
                "AppendLoad", rocketmq.namesrv, TOPIC, JAVA_THREADS, BODY_BYTES, BATCH_COUNT, sizes.warm_seconds,
                sizes.measure_seconds,
            )  # fmt: skip
            return float(outcome["rate"])


@contextlib.contextmanager
def _attached(rocketmq: RocketMQ, how: str, path: pathlib.Path) -> Iterator[None]:
    """Reput, attached in a way; nothing for ``."""
    port = rocketmq.broker_port
    if how == BESIDE:
        stack = OurStack(rocketmq.store, "--follow", "--derived", str(path / "derived"), settings=QUIET)
    elif how == SLAVE:
        mirror, broker = f"rocketmq://127.0.0.1:{port + 1}", f"127.0.0.1:{port}"
        stack = OurStack(path / "mirror", "--mirror", mirror, "--mirror-broker", broker, settings=QUIET)
    else:
        yield
        return
    try:
        yield
    finally:
        stack.end()
