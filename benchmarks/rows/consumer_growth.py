"""Row 17: what consumers get as groups and queues grow in number."""

import itertools
import time
from collections.abc import Mapping, Sequence

from benchmarks.figures import OURS, Metric, RowResult, at_most, medians
from benchmarks.load import Load
from benchmarks.row import Context, Row
from benchmarks.sides.our_side import OurStack
from benchmarks.sizes import Sizes
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput_client import NewMessage, Producer
from services.calling.client import ServiceClient
from services.rpcs import consumer as rpc

GROUP_COUNTS, QUEUE_COUNTS = (1, 100, 1_000), (1, 1_000)
SLOWER_MAX = 1.2
BATCH = 32
INVISIBLE_SECONDS = 60
SLOWER_GROUPS, SLOWER_QUEUES = "times slower with most groups", "times slower with most queues"
MESSAGES_OF_A_QUEUE = 64
CALL_SECONDS_MAX = 30.0


def at(what: str, count: int) -> str:
    """The name of the metric for so many of something."""
    return f"rate with {count:,} {what}{'' if count == 1 else 's'}"


class ConsumerGrowth(Row):
    """Row 17."""

    number = 17
    title = "Consumers as groups and queues grow in number"
    cause = "Queues that are popped for the first time are opened one by one (ADR 0163)."
    what = (
        "Pop 32 messages and acknowledge them in one call, one after the other, at the consumer service; groups take turns. "
        "Each group has positions and messages in flight. Ours only."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        limit = at_most(SLOWER_MAX, "x")
        self.metrics = (
            Metric(SLOWER_GROUPS, "x", lower_is_better=True, target=limit, sides=(OURS,)),
            Metric(SLOWER_QUEUES, "x", lower_is_better=True, target=limit, sides=(OURS,)),
            *(Metric(at("group", count), "messages/s", sides=(OURS,)) for count in GROUP_COUNTS),
            *(Metric(at("queue", count), "messages/s", sides=(OURS,)) for count in QUEUE_COUNTS),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round over all counts."""
        values: dict[str, float] = {}
        with context.ours() as stack:
            client = ServiceClient("consumer", stack.addresses["consumer"])
            try:
                address = stack.addresses["gateway"]
                Load(address, warm_seconds=0, seconds=max(1.0, self.sizes.measure_seconds)).run()
                for count in QUEUE_COUNTS:
                    _fill_queues(stack, count)
                stack.wait_until_built()
                known = 0
                for count in GROUP_COUNTS:
                    groups = [f"g{number}" for number in range(count)]
                    for group in groups[known:]:  # each has one message in flight
                        _pop(client, group, "Bench", 1)
                    known = count
                    values[at("group", count)] = self._rate(client, groups, "Bench")
                for count in QUEUE_COUNTS:
                    values[at("queue", count)] = self._rate(client, ["queues"], _queue_topic(count))
            finally:
                client.close()
        return values

    def finish(self, context: Context, result: RowResult) -> None:
        """Compares the largest counts with the smallest."""
        for name, what, counts in ((SLOWER_GROUPS, "group", GROUP_COUNTS), (SLOWER_QUEUES, "queue", QUEUE_COUNTS)):
            few = medians(result.rounds[at(what, counts[0])])[OURS]
            many = medians(result.rounds[at(what, counts[-1])])[OURS]
            result.rounds[name] = {OURS: [few / many]}

    def _rate(self, client: ServiceClient, groups: Sequence[str], topic: str) -> float:
        """Messages a second that are popped and acknowledged; until the time is over or a group has them all."""
        begin = time.monotonic()
        count = 0
        for group in itertools.cycle(groups):
            handles = _pop(client, group, topic, BATCH)
            if not handles or time.monotonic() - begin > self.sizes.measure_seconds:
                break
            client.call(rpc.ACK_MESSAGES, pb.AckMessagesRequest(consumer_group=group, receipt_handles=handles))
            count += len(handles)
        return count / (time.monotonic() - begin)


def _pop(client: ServiceClient, group: str, topic: str, count: int) -> Sequence[str]:
    request = pb.PopMessagesRequest(
        consumer_group=group, topic=topic, max_messages=count, invisible_duration={"seconds": INVISIBLE_SECONDS}
    )
    return [one.receipt_handle for one in client.call(rpc.POP_MESSAGES, request).deliveries]


def _queue_topic(queue_count: int) -> str:
    return f"Queues-{queue_count}"


def _fill_queues(stack: OurStack, queue_count: int) -> None:
    """A topic with so many queues; both topics have as many messages."""
    topic = _queue_topic(queue_count)
    stack.gateway.CreateTopic(
        gateway_pb.CreateTopicRequest(topic=topic, queue_count=queue_count), timeout=CALL_SECONDS_MAX
    )
    message_count = MESSAGES_OF_A_QUEUE * max(QUEUE_COUNTS)
    body = bytes(1024)
    with Producer(stack.addresses["gateway"]) as producer:
        sent = [
            producer.send_batch([NewMessage(topic, body, queue_id=at % queue_count)] * BATCH)
            for at in range(message_count // BATCH)
        ]
        for one in sent:
            one.result()
