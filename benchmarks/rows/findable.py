"""Row 5: how long a message takes from its receipt until a query by key finds it."""

import subprocess
import time
from collections.abc import Mapping

from benchmarks import disk, processes
from benchmarks.figures import OURS, Metric, at_most, quantile
from benchmarks.load import TOPIC, Load, environment
from benchmarks.row import Context, Row
from benchmarks.sides.our_side import OurStack
from benchmarks.sizes import Sizes
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

RATE = 10_000.0
PROBE_SECONDS = 0.02  # between two probes, so that they add little load
FIND_SECONDS_MAX = 10.0
LOAD_SECONDS_EXTRA = 60.0
P50, P99, LOADED, DISK = "p50", "p99", "load that went in", "fdatasync of the disk, p99"


class Findable(Row):
    """Row 5."""

    number = 5
    title = "Append to findable by key, under 10,000 messages/s"
    what = (
        "Beside a paced stream of 1 KiB messages, single messages are appended through the gateway and asked for by key "
        "until found; from the receipt to the answer that has it."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(P99, "ms", lower_is_better=True, target=at_most(50, "ms"), sides=(OURS,)),
            Metric(P50, "ms", lower_is_better=True, sides=(OURS,)),
            Metric(LOADED, "messages/s", sides=(OURS,)),
            Metric(DISK, "ms", lower_is_better=True, sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        flush = disk.fdatasync_p99_millis(context.scratch)
        with context.ours() as stack:
            # The probes may take longer than planned: the load runs longer, and is ended after the last probe.
            seconds = self.sizes.probe_count * (PROBE_SECONDS + 0.1) + LOAD_SECONDS_EXTRA
            load = Load(stack.addresses["gateway"], "stream", warm_seconds=0.1, seconds=seconds, rate=RATE)
            command = subprocess.Popen(
                load.command(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment()
            )
            with processes.ended(command):
                processes.wait_for(lambda: _count(stack) > 0, "the load to begin", FIND_SECONDS_MAX)
                time.sleep(self.sizes.warm_seconds)
                first_count, first_time = _count(stack), time.monotonic()
                samples = [_find(stack, number) for number in range(self.sizes.probe_count)]
                loaded = (_count(stack) - first_count) / (time.monotonic() - first_time)
                if command.poll() is not None:
                    raise RuntimeError("the load ended before the probes")
        return {P50: quantile(samples, 0.5), P99: quantile(samples, 0.99), LOADED: loaded, DISK: flush}


def _find(stack: OurStack, number: int) -> float:
    """Milliseconds from the receipt of a message to the first answer that has it."""
    time.sleep(PROBE_SECONDS)
    key = f"probe-{number}"
    message = message_pb2.NewMessage(topic=TOPIC, body=b"x" * 1024, keys=[key])
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=[message]), timeout=FIND_SECONDS_MAX)
    start = time.perf_counter()
    query = pb.QueryMessageByKeyRequest(topic=TOPIC, key=key)
    while not stack.gateway.QueryMessageByKey(query, timeout=FIND_SECONDS_MAX).messages:
        if time.perf_counter() - start > FIND_SECONDS_MAX:
            raise RuntimeError(f"{key} is not found in {FIND_SECONDS_MAX:g} s")
    return (time.perf_counter() - start) * 1000


def _count(stack: OurStack) -> int:
    """Messages of the topic so far, from the offset ranges of its queues."""
    topics = stack.gateway.ListTopics(pb.ListTopicsRequest(), timeout=FIND_SECONDS_MAX).topics
    return sum(queue.max_offset for topic in topics if topic.topic == TOPIC for queue in topic.queues)
