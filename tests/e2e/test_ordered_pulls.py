"""Ordered members of one group over a real stack: each queue has one member at a time, and its messages stay in order."""

import collections
import contextlib
import threading
from collections.abc import Iterator

import pytest

from reput_client import AdminClient, MessageQueue, Producer, PullConsumer, PullConsumerSettings, QueryClient
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

QUEUE_COUNT = 4
QUICK = PullConsumerSettings(members_seconds=0.2, commit_seconds=0.2, rebalance_seconds=0.5)


class Watch:
    """What members process, and whether two ever had one queue.

    Attributes:
        processed: positions by queue, in the order in which they were processed.
        wrong: what must not happen.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working: dict[int, str] = {}
        self.processed: dict[int, list[int]] = collections.defaultdict(list)
        self.wrong: list[str] = []

    def begin(self, name: str, queue_ids: set[int]) -> None:
        with self._lock:
            for queue_id in queue_ids:
                if self._working.setdefault(queue_id, name) != name:
                    self.wrong.append(f"queue {queue_id} is with {self._working[queue_id]} and with {name}")

    def end(self, name: str, messages: list[tuple[int, int]], queue_ids: set[int]) -> None:
        with self._lock:
            for queue_id, queue_offset in messages:
                self.processed[queue_id].append(queue_offset)
            for queue_id in queue_ids:
                if self._working.get(queue_id) == name:
                    del self._working[queue_id]

    def count(self) -> int:
        with self._lock:
            return sum(map(len, self.processed.values()))


class Worker:
    """A member with a thread that polls and processes until it is stopped."""

    def __init__(self, stack: HostedStack, topic: str, name: str, watch: Watch) -> None:
        self.consumer = PullConsumer(stack.addresses["gateway"], "ordered", {topic: "*"}, ordered=True, settings=QUICK)
        self._name = name
        self._watch = watch
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        working: set[int] = set()
        done: list[tuple[int, int]] = []
        with contextlib.closing(self.consumer):
            while not self._stop.is_set():
                # Until this call, what was polled before is being processed.
                self._watch.end(self._name, done, working)
                messages = self.consumer.poll(max_messages=5, timeout_seconds=0.1)
                working = {message.queue_id for message in messages}
                done = [(message.queue_id, message.queue_offset) for message in messages]
                self._watch.begin(self._name, working)
            self._watch.end(self._name, done, working)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    with hosted_stack(tmp_path_factory.mktemp("ordered") / "store") as running:
        yield running


def test_two_members_never_have_one_queue_and_order_is_kept_over_joins_and_leaves(stack: HostedStack) -> None:
    topic, watch, sent = "Ordered", Watch(), 0
    with AdminClient(stack.addresses["gateway"]) as client:
        client.create_topic(topic, queue_count=QUEUE_COUNT)

    def send(count: int) -> int:
        with Producer(stack.addresses["gateway"]) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, queue_id=number % QUEUE_COUNT)
        return count

    def queues_of(worker: Worker) -> list[MessageQueue]:
        return [
            queue for queue in worker.consumer.assignment if queue.topic == topic
        ]  # one has that of the retries, too

    def is_shared(first: Worker, second: Worker) -> bool:
        queues = queues_of(first) + queues_of(second)
        return len(queues) == len(set(queues)) == QUEUE_COUNT and len(queues_of(first)) == QUEUE_COUNT // 2

    first = Worker(stack, topic, "first", watch)
    sent += send(200)
    wait_until(lambda: watch.count() >= 100, watch.count)
    second = Worker(stack, topic, "second", watch)
    sent += send(200)
    wait_until(lambda: is_shared(first, second), lambda: (queues_of(first), queues_of(second)))
    sent += send(200)
    first.stop()
    sent += send(200)
    wait_until(lambda: watch.count() >= sent, lambda: (watch.count(), sent))
    second.stop()

    assert watch.wrong == []
    assert {queue_id: sorted(offsets) for queue_id, offsets in watch.processed.items()} == watch.processed
    assert {queue_id: len(set(offsets)) for queue_id, offsets in watch.processed.items()} == dict.fromkeys(
        range(QUEUE_COUNT), sent // QUEUE_COUNT
    )


def test_a_queue_is_locked_by_one_member_until_it_unlocks_it(stack: HostedStack) -> None:
    with AdminClient(stack.addresses["gateway"]) as admin:
        admin.create_topic("Locked", queue_count=2)
    with QueryClient(stack.addresses["gateway"]) as client:
        (broker_name,) = {queue.broker_name for queue in next(iter(client.topics())).queues}
        first, second = (MessageQueue("Locked", broker_name, queue_id) for queue_id in range(2))
        assert client.lock_queues("locking", "a", [first, second]) == (first, second)
        assert client.lock_queues("locking", "b", [first, second]) == ()
        assert client.lock_queues("locking", "a", [second], unlock=True) == ()
        assert client.lock_queues("locking", "b", [first, second]) == (second,)
        assert client.lock_queues("another", "b", [first]) == (first,)
