"""Rows 19 and 19b: how late messages are that wait for a time, and how fast very many go whose time comes at once."""

import contextlib
import pathlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks import processes
from benchmarks.figures import OURS, Metric, at_least, at_most, quantile
from benchmarks.load import TOPIC, Load, topic_of
from benchmarks.log_records import read_records
from benchmarks.row import Context, Row
from benchmarks.rows.unary_append import BODY_BYTES as ROW_1_BODY_BYTES
from benchmarks.sides import remoting
from benchmarks.sides.our_side import OurStack
from benchmarks.sides.rocketmq_side import RocketMQ
from benchmarks.sizes import FULL, SAMPLE, Sizes
from benchmarks.stores import wait_until_timers_delivered, wait_until_timers_known
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import NewMessage, Producer
from store.format.properties import TIMER_DELIVER_MS
from tests.clients.servers import ReputServer

P50, P99, GREATEST, EARLY = "p50", "p99", "max", "early, max"
LATE_MILLIS_MAX = 1_000
RATE = 1_000  # messages that are due in a second
DUE_SECONDS_MIN = 1.0
LEAD_SECONDS = 10.0  # all timers are stored before the first one is due
FAR_SECONDS = 6 * 3600.0  # the others wait for so long, and up to twice as long
BODY_BYTES = 128
BATCH = 32
UNDER_WAY_MAX = 64
QUEUE_COUNT = 8
KNOWN_SECONDS_MAX, DELIVERED_SECONDS_MAX, DRAIN_SECONDS_MAX = 900.0, 120.0, 600.0
LOOK_SECONDS = 2.0  # a look reads the log anew, and takes CPU from what is measured
CALL_SECONDS_MAX = 30.0


class TimerLateness(Row):
    """Row 19."""

    number = 19
    title = "Lateness of timers while many others wait"
    what = (
        f"{RATE:,} messages of {BODY_BYTES} B are due each second, beside {FULL.timer_count:,} ({SAMPLE.timer_count:,} in the "
        "sample) that wait for hours. From the delivery time to the store time of the delivered record, as the log has them, "
        "so no client matters. RocketMQ's timers go by whole seconds."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(P50, "ms", lower_is_better=True),
            Metric(P99, "ms", lower_is_better=True, target=at_most(LATE_MILLIS_MAX, "ms")),
            Metric(GREATEST, "ms", lower_is_better=True),
            Metric(EARLY, "ms", lower_is_better=True, target=at_most(0, "ms")),
        )

    @property
    def _due_seconds(self) -> float:
        return max(DUE_SECONDS_MIN, self.sizes.measure_seconds)

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        late = self._ours(context) if side == OURS else self._theirs(context)
        return {P50: quantile(late, 0.5), P99: quantile(late, 0.99), GREATEST: max(late), EARLY: max(0, -min(late))}

    def _ours(self, context: Context) -> list[int]:
        with context.ours() as stack:
            ReputServer(stack).create_topic(TOPIC, QUEUE_COUNT, "DELAY")
            context.say("sends those that wait for hours")
            _send(stack, self.sizes.timer_count, FAR_SECONDS, FAR_SECONDS)
            wait_until_timers_known(stack, self.sizes.timer_count, KNOWN_SECONDS_MAX)
            begin_offset = _log_end(stack)
            context.say("sends those that are due")
            _send(stack, self._count, LEAD_SECONDS, self._due_seconds)
            return self._watch(stack.store, begin_offset)

    def _theirs(self, context: Context) -> list[int]:
        # By default it refuses what a busy machine lets wait for 200 ms.
        with context.theirs(waitTimeMillsInSendQueue=60_000) as rocketmq:
            rocketmq.create_topic(TOPIC, QUEUE_COUNT)
            context.say("sends those that wait for hours")
            driver = ("TimerLoad", rocketmq.namesrv, TOPIC)
            rocketmq.driver(*driver, self.sizes.timer_count, BODY_BYTES, FAR_SECONDS, FAR_SECONDS)
            processes.wait_for(lambda: _has_read_timers(rocketmq), "the broker's timers", KNOWN_SECONDS_MAX, 0.5)
            begin_offset = int(remoting.runtime_info(rocketmq.broker_port)["commitLogMaxOffset"])
            context.say("sends those that are due")
            said = rocketmq.driver(*driver, self._count, BODY_BYTES, LEAD_SECONDS, self._due_seconds)
            if said["left_millis"] < self._due_seconds * 1000:
                raise RuntimeError("those that are due were not all sent before the first of them was due")
            return self._watch(rocketmq.store, begin_offset)

    @property
    def _count(self) -> int:
        return int(RATE * self._due_seconds)

    def _watch(self, root: pathlib.Path, begin_offset: int) -> list[int]:
        """The lateness of each (ms), once all are delivered."""
        time.sleep(LEAD_SECONDS + self._due_seconds)  # nothing reads beside what is measured
        late: list[int] = []

        def are_delivered() -> bool:
            late[:] = lateness(root, begin_offset)
            return len(late) >= self._count

        processes.wait_for(are_delivered, f"{self._count:,} deliveries", DELIVERED_SECONDS_MAX, LOOK_SECONDS)
        if len(late) != self._count:
            raise RuntimeError(f"{len(late):,} messages were delivered, not {self._count:,}")
        return late


DRAIN, ALONE, PART = "drained", "row 1 on the same services", "drained / row 1"
SENT = "sent meanwhile"
DUE_TOPIC = topic_of(1)
PART_MIN = 0.5
SENT_RATE = 1_000  # of the sends that go on
SEND_RATE_MIN = 4_000  # timers are stored faster than that; else the row says so


class TimerDrain(Row):
    """Row 19b."""

    number = "19b"
    title = "Timers that are due in one second, while sends go on"
    what = (
        f"{FULL.due_count:,} messages of 1 KiB ({SAMPLE.due_count:,} in the sample) have their times within one second. From "
        "the first of these times to the store time of the last delivered record, as the log has them; a producer sends "
        f"{SENT_RATE:,} other messages a second meanwhile. Beside it row 1's load through the gateway of the same services."
    )

    def __init__(self, sizes: Sizes) -> None:
        super().__init__(sizes)
        self.metrics = (
            Metric(PART, "times", sides=(OURS,), target=at_least(PART_MIN, "times")),
            Metric(DRAIN, "messages/s", sides=(OURS,)),
            Metric(ALONE, "messages/s", sides=(OURS,)),
            Metric(SENT, "messages/s", sides=(OURS,)),
        )

    def measure(self, side: str, context: Context) -> Mapping[str, float]:
        """One round."""
        count = self.sizes.due_count
        with context.ours() as stack:
            ReputServer(stack).create_topic(DUE_TOPIC, QUEUE_COUNT, "DELAY")
            gateway = stack.addresses["gateway"]
            load = Load(
                gateway, body_bytes=ROW_1_BODY_BYTES, batch_count=BATCH,
                warm_seconds=self.sizes.warm_seconds, seconds=self.sizes.measure_seconds,
            )  # fmt: skip
            alone = load.run()["rate"]
            begin_offset = _log_end(stack)
            lead_seconds = LEAD_SECONDS + count / SEND_RATE_MIN
            context.say("sends those that are due")
            first = _send(stack, count, lead_seconds, 1.0, DUE_TOPIC, ROW_1_BODY_BYTES)
            wait_until_timers_known(stack, count, lead_seconds)
            with _sending(gateway) as sent:
                time.sleep(max(0.0, (first - datetime.now(UTC)).total_seconds()))
                sent_before, began = sent[0], time.monotonic()
                wait_until_timers_delivered(stack, count, DRAIN_SECONDS_MAX)
                sent_rate = (sent[0] - sent_before) / (time.monotonic() - began)
            seconds = drain_seconds(stack.store, begin_offset, count, int(first.timestamp() * 1000))
        return {PART: count / seconds / alone, DRAIN: count / seconds, ALONE: alone, SENT: sent_rate}


def drain_seconds(root: pathlib.Path, begin_offset: int, count: int, first_millis: int) -> float:
    """From the first delivery time to the store time of the last delivered message (s).

    Args:
        root: the store root.
        begin_offset: of the log, where to begin (bytes).
        count: of the messages.
        first_millis: the first delivery time (ms since 1970).

    Raises:
        RuntimeError: other than so many were delivered.
    """
    stored = [record.stored_millis for record in read_records(root, begin_offset) if record.topic == DUE_TOPIC]
    if len(stored) != count:
        raise RuntimeError(f"{len(stored):,} messages were delivered, not {count:,}")
    return max(1, max(stored) - first_millis) / 1000


@contextlib.contextmanager
def _sending(gateway: str) -> Iterator[list[int]]:
    """Other messages are sent inside the block; their number so far. What fails there fails the row."""
    is_over, sent = threading.Event(), [0]
    failures: list[Exception] = []

    def send() -> None:
        try:
            with Producer(gateway) as producer:
                while not is_over.wait(BATCH / SENT_RATE):
                    producer.send_batch([NewMessage(TOPIC, bytes(BODY_BYTES)) for _ in range(BATCH)]).result()
                    sent[0] += BATCH
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]


def lateness(root: pathlib.Path, begin_offset: int) -> list[int]:
    """How long after its delivery time each delivered message was stored (ms).

    Args:
        root: the store root.
        begin_offset: of the log, where to begin (bytes).
    """
    return [
        record.stored_millis - int(record.properties[TIMER_DELIVER_MS])
        for record in read_records(root, begin_offset)
        if record.topic == TOPIC
    ]


def _log_end(stack: OurStack) -> int:
    rows = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=CALL_SECONDS_MAX).services
    return next(int(row.log_end_offset) for row in rows if row.service == "commitlog")


def _has_read_timers(rocketmq: RocketMQ) -> bool:
    try:
        return remoting.runtime_info(rocketmq.broker_port).get("timerOffsetBehind") == "0"
    except remoting.RefusedError:  # before StoreStatsService has taken its first sample, a second after the start
        return False


def _send(
    stack: OurStack,
    count: int,
    first_seconds: float,
    spread_seconds: float,
    topic: str = TOPIC,
    body_bytes: int = BODY_BYTES,
) -> datetime:
    """Sends messages whose times are evenly spread, as TimerLoad.java does; the first of these times."""
    first = datetime.now(UTC) + timedelta(seconds=first_seconds)
    body = bytes(body_bytes)
    with Producer(stack.addresses["gateway"]) as producer:
        under_way: deque[Any] = deque()
        for begin in range(0, count, BATCH):
            times = (
                first + timedelta(seconds=spread_seconds * at / count) for at in range(begin, min(begin + BATCH, count))
            )
            under_way.append(producer.send_batch([NewMessage(topic, body, delivery_time=due) for due in times]))
            if len(under_way) > UNDER_WAY_MAX:
                under_way.popleft().result()
        for sent in under_way:
            sent.result()
    if datetime.now(UTC) > first:
        raise RuntimeError("those that are due were not all sent before the first of them was due")
    return first
