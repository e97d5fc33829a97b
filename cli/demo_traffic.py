"""What goes on in the sample store of `reput demo`: a process that fills the pages which the sample messages leave empty.

    python -m cli.demo_traffic HOST:PORT [STORE REPORTS]

First, if REPORTS has none: the report of an audit of the store, to which nothing is appended yet. Once, in a store that has
just got the samples: the group `invoicing`, which is behind; the group `shipping`, with retries and a dead letter; messages
that wait; a trace. Then, as long as the process that started it lives: messages on `SampleVisits` in waves, a consumer of the
group `sample-visit-counter` that is behind when they are high, a reminder for later, and an open transaction.

The store grows by some 0.2 MB a minute, and not without end: after `MESSAGE_COUNT_MAX` messages nothing more is sent.
"""

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import StoreError
from store.format.message_trace import ENTRY_END, FIELD_END
from store.format.topic import TRACE_TOPIC

if TYPE_CHECKING:
    from reput_client import Consumer, HalfMessage, NewMessage, QueryClient, TransactionProducer

VISITS = "SampleVisits"
REMINDERS = "SampleReminders"
ORDERS = "Orders"
TRACED_KEY = "order-1001"
VISIT_GROUP = "sample-visit-counter"
BEHIND_GROUP, RETRYING_GROUP = "invoicing", "shipping"
# Some 9 hours; with the records of their delivery about 100 MB.
MESSAGE_COUNT_MAX = 100_000
STEP_SECONDS = 0.5
# Visits come and go in waves: the consumer takes a fixed number in a step, so that its lag rises and falls.
WAVE_SECONDS = 60.0
VISITS_MEAN, VISITS_SWING = 1.5, 1.5
CONSUMED_A_STEP = 2
TAKE_SECONDS_MAX = 0.1
REMINDER_SECONDS, REMINDER_AFTER_SECONDS = 60.0, 600.0
REMINDERS_AT_FIRST = 3
TRANSACTION_SECONDS = 600.0
RETRY_COUNT = 2
# The shortest of RocketMQ's delay levels (1 s), and what makes a dead letter at once.
RETRY_SOON, DEAD_LETTER = 1, -1
CALL_SECONDS_MAX = 10.0
PAUSE_SECONDS_AFTER_FAILURE = 2.0
PAGES = ("/", "/tea", "/cups", "/books", "/basket")
REPORT_NAME = "audit.json"


def audit_once(store: Path, reports: Path) -> bool:
    """Write what `reput pipeline audit` prints of a store, without Spark; False: it is there, or its libraries are not.

    The services have the store open, which an audit refuses: the caller says that none appends to it now.
    """
    path = reports / REPORT_NAME
    if path.exists():
        return False
    try:
        from pipeline.audit.audit import Audit
        from pipeline.audit.scratch import Scratch
        from pipeline.job import JobReport, run_here
        from store.audit.findings import Severity
    except ImportError:
        return False
    report = JobReport.begin("audit")
    scratch = Scratch.of_run(None)
    try:
        Audit(store, scratch, run_here(), report).run()
    finally:
        scratch.remove()
    # Of a store that is served: `abort` is there, `checkpoint` may not be, and an index file is not flushed.
    report.findings = [each for each in report.findings if each["severity"] != Severity.INFO]
    report.notes.append("The sample as it was when `make run` began. What says only that it was served is left out.")
    written = path.with_suffix(".part")
    written.write_text(report.end().to_json(), encoding="utf-8")
    written.rename(path)
    return True


def prepare(client: "QueryClient", producer: "TransactionProducer") -> None:
    """Make the groups and the messages that wait; a group that exists is left as it is."""
    from reput_client import MessageQueue, QueuePosition

    known = {group.consumer_group for group in client.consumer_groups().groups}
    queues = [queue for topic in client.topics(topic=ORDERS) for queue in topic.queues if queue.max_offset > 0]
    if BEHIND_GROUP not in known:
        positions = [QueuePosition(ORDERS, each.queue_id, each.min_offset, each.broker_name) for each in queues]
        client.commit_offsets(BEHIND_GROUP, positions)
    if RETRYING_GROUP not in known and queues:
        positions = [QueuePosition(ORDERS, each.queue_id, each.max_offset, each.broker_name) for each in queues]
        client.commit_offsets(RETRYING_GROUP, positions)
        for number, each in enumerate(queues[: 1 + RETRY_COUNT]):
            queue = MessageQueue(ORDERS, each.broker_name, each.queue_id)
            client.send_back(RETRYING_GROUP, queue, [each.max_offset - 1], RETRY_SOON if number else DEAD_LETTER)
        _trace(client, producer)
    for number in range(1, REMINDERS_AT_FIRST + 1):
        _remind(producer, timedelta(seconds=REMINDER_AFTER_SECONDS * number))


def _trace(client: "QueryClient", producer: "TransactionProducer") -> None:
    """What a producer and a consumer with tracing on would have told of the order that the demonstration shows."""
    from reput_client import NewMessage

    for message in client.by_key(ORDERS, TRACED_KEY):
        sent_millis = round(message.store_time.timestamp() * 1000) - 4
        keys = [message.unique_key, TRACED_KEY]
        place = ("127.0.0.1:10911", len(message.stored_body), 4, 0, message.offset_msg_id, "true")
        entries = [
            ("Pub", sent_millis, "", "checkout", ORDERS, message.unique_key, message.tags, TRACED_KEY, *place),
            ("SubBefore", sent_millis + 9, "", RETRYING_GROUP, "R1", message.unique_key, 0, TRACED_KEY),
            ("SubAfter", "R1", message.unique_key, 31, "true", TRACED_KEY, 0, sent_millis + 40, RETRYING_GROUP),
        ]
        body = b"".join(FIELD_END.join(str(field).encode() for field in entry) + ENTRY_END for entry in entries)
        producer.append([NewMessage(TRACE_TOPIC, body, keys)])


def _remind(producer: "TransactionProducer", after: timedelta) -> None:
    from reput_client import NewMessage

    body = json.dumps({"remind": "the basket is still full"}).encode()
    message = NewMessage(REMINDERS, body, ["basket-7"], "remind", delivery_time=datetime.now(UTC) + after)
    producer.append([message])


class Traffic:
    """What happens in a step.

    Args:
        producer: sends.
        consumer: of `VISIT_GROUP`.
        seconds: when it begins, of the clock that `step` is told.
    """

    def __init__(self, producer: "TransactionProducer", consumer: "Consumer", seconds: float) -> None:
        self._producer = producer
        self._consumer = consumer
        self._begin_seconds = seconds
        self._reminded_seconds = seconds
        self._opened_seconds = -math.inf
        self._half: HalfMessage | None = None
        self.sent_count = 0

    def step(self, seconds: float) -> bool:
        """Send and consume; False once MESSAGE_COUNT_MAX is reached."""
        from reput_client import NewMessage

        if self.sent_count >= MESSAGE_COUNT_MAX:
            return False
        count = visits_at(seconds - self._begin_seconds)
        visits = [self._visit(self.sent_count + number) for number in range(count)]
        if visits:
            self._producer.append(visits)
            self.sent_count += count
        for _ in range(CONSUMED_A_STEP):
            delivery = self._consumer.take(TAKE_SECONDS_MAX)
            if delivery is None:
                break
            delivery.ack()
        if seconds - self._reminded_seconds >= REMINDER_SECONDS:
            self._reminded_seconds = seconds
            _remind(self._producer, timedelta(seconds=REMINDER_AFTER_SECONDS))
        if seconds - self._opened_seconds >= TRANSACTION_SECONDS:
            half, self._half = self._half, None
            if half is not None:
                half.rollback()  # fails when somebody ended it in the console; the next step opens another one
            body = b'{"payment": "PAY-6001", "state": "waits for the bank"}'
            self._half = self._producer.send_half(NewMessage("Payments", body, ["PAY-6001"], "authorized"))
            self._opened_seconds = seconds
        return True

    def _visit(self, number: int) -> "NewMessage":
        from reput_client import NewMessage

        page = PAGES[number % len(PAGES)]
        body = json.dumps({"visit": number, "page": page, "millis": 20 + number * 7 % 180}).encode()
        return NewMessage(VISITS, body, [f"visit-{number}"], page.strip("/") or "home")


def visits_at(seconds: float) -> int:
    """How many visits a step sends that begins so long after the first one."""
    return round(VISITS_MEAN + VISITS_SWING * math.sin(2 * math.pi * seconds / WAVE_SECONDS))


def run(
    address: str, *, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> None:
    """Go on until the process that started this one has ended, or all is sent; after a failure after a pause."""
    from reput_client import Consumer, QueryClient, ReputClientError, TransactionProducer

    parent = os.getppid()
    with (
        QueryClient(address, timeout_seconds=CALL_SECONDS_MAX) as client,
        TransactionProducer(address, timeout_seconds=CALL_SECONDS_MAX) as producer,
        Consumer(address, VISIT_GROUP, {VISITS: "*"}) as consumer,
    ):
        traffic: Traffic | None = None
        while os.getppid() == parent:
            try:
                if traffic is None:
                    prepare(client, producer)
                    traffic = Traffic(producer, consumer, clock())
                if not traffic.step(clock()):
                    return
            except ReputClientError:
                sleep(PAUSE_SECONDS_AFTER_FAILURE)
            sleep(STEP_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Run until the process that started this one has ended."""
    address, *places = arguments
    with contextlib.suppress(KeyboardInterrupt):
        try:
            if places:
                audit_once(*map(Path, places))
        except (OSError, StoreError) as error:
            print(f"The page of reports stays empty: {error}", file=sys.stderr)
        run(address)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
