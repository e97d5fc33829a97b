"""A broker under load: messages of all kinds, verdicts, retries, dead letters; and all that was ever in its log."""

import contextlib
import itertools
import os
import pathlib
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.sides import remoting
from tests.rocketmq import broker_calls, real_broker
from tests.rocketmq.broker_calls import Receipt
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPIC, QUEUE_COUNT, GROUP = "Orders", 4, "readers"
PAUSE_SECONDS = 0.04  # between two messages: almost 25 a second, so that brute force stays short
LINK_SECONDS = 0.5
RETRIED_EACH, DEAD_EACH = 11, 37  # messages of those that the group consumes
NEVER_CONSUMED_COUNT = 20  # the last messages of each queue, so that both answers are there
QUIET_SECONDS = 4.0  # transactionOpBatchInterval is 3 s


class Broker(real_broker.RealRocketMQ):
    """A broker that may be killed, and says where its log ends."""

    def kill(self) -> None:
        """End the broker with SIGKILL; the name server goes on."""
        process = self._processes.pop()
        process.kill()
        process.wait()

    def log_end(self) -> int:
        """Where its log ends (bytes)."""
        return int(remoting.runtime_info(self.broker_port)["commitLogMaxOffset"])


@dataclass
class Consumed:
    """What the consumer group did with a queue, as the broker answered."""

    waiting: deque[Receipt] = field(default_factory=deque)
    offset: int = 0


class BrokerLoad:
    """Sends and consumes until it is stopped; the broker may be away meanwhile.

    Args:
        broker: that has the topic and the group (`prepare`).
        kept: a directory on the disk of the broker's store: each log file gets a second name there, so that what retention
            removes is still known.

    Attributes:
        queues: what the group has consumed, by queue.
        sent_count: messages that the broker has answered.
        failed_count: calls that it has not.
    """

    def __init__(self, broker: Broker, kept: pathlib.Path) -> None:
        self._broker = broker
        self._kept = kept / "commitlog"
        self._kept.mkdir(parents=True)
        self._stopping = threading.Event()
        self._random = random.Random(18)
        self._numbers = itertools.count()
        self.queues = {queue_id: Consumed() for queue_id in range(QUEUE_COUNT)}
        self.sent_count = self.failed_count = 0
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._repeat, args=(step, pause), daemon=True)
            for step, pause in ((self._send_one, PAUSE_SECONDS), (self.keep_files, LINK_SECONDS))
        ]

    def prepare(self) -> None:
        """Make the topic and the group."""
        remoting.create_topic(self._broker.broker_port, TOPIC, QUEUE_COUNT)
        remoting.create_group(self._broker.broker_port, GROUP, ordered=False, delivery_attempts_max=17)

    def __enter__(self) -> "BrokerLoad":
        self.prepare()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS_MAX)
            assert not thread.is_alive()
        self.keep_files()
        assert not self._errors, self._errors

    def wait_for(self, seconds: float) -> None:
        """Return after some time of load; the error of a thread ends it."""
        self._stopping.wait(seconds)
        assert not self._errors, self._errors

    def wait_until_quiet(self) -> int:
        """Return once the broker writes nothing any more (what waited is due); where its log ends then."""
        seen: list[int] = []

        def is_quiet() -> bool:
            # A broker that has just started has no figures yet (StoreStatsService), and refuses.
            with contextlib.suppress(remoting.RefusedError):
                seen.append(self._broker.log_end())
            return len(seen) > 4 and len(set(seen[-5:])) == 1

        wait_until(is_quiet, lambda: f"the log still grows: {seen[-5:]}", poll_seconds=QUIET_SECONDS / 4)
        self.keep_files()
        return seen[-1]

    def keep_files(self) -> None:
        """Give each log file its second name; a broker that starts makes the file anew that it had made ahead."""
        for file in (self._broker.store / "commitlog").iterdir():
            second = self._kept / file.name
            with contextlib.suppress(FileNotFoundError):  # it was removed now
                if second.exists() and not second.samefile(file):
                    second.unlink()
                if not second.exists():
                    os.link(file, second)

    def _repeat(self, step: Callable[[], None], pause: float) -> None:
        while not self._stopping.wait(pause):
            try:
                step()
            except (OSError, remoting.RefusedError):
                self.failed_count += 1  # it restarts
            except BaseException as error:
                self._errors.append(error)
                return

    def _send_one(self) -> None:
        port, number = self._broker.broker_port, next(self._numbers)
        body = f"{number} " * self._random.randrange(1, 400)
        named = {"KEYS": f"order-{number} customer-{number % 97}", "TAGS": "TagA" if number % 2 else "TagB"}
        queue_id = number % QUEUE_COUNT
        kind = number % 20
        if kind == 3:
            broker_calls.send_to(port, TOPIC, queue_id, body, DELAY="1", **named)
        elif kind == 7:
            deliver_millis = broker_calls.now_millis() + 2_000
            broker_calls.send_to(port, TOPIC, queue_id, body, TIMER_DELIVER_MS=str(deliver_millis), **named)
        elif kind in (11, 13):
            half = broker_calls.send_to(
                port, TOPIC, queue_id, body, sys_flag=broker_calls.PREPARED, TRAN_MSG="true", PGROUP="tests", **named
            )
            broker_calls.end_transaction(port, half, broker_calls.COMMIT if kind == 11 else broker_calls.ROLLBACK)
        else:
            self.queues[queue_id].waiting.append(broker_calls.send_to(port, TOPIC, queue_id, body, **named))
            self._consume(queue_id)
        self.sent_count += 1

    def _consume(self, queue_id: int) -> None:
        """The group consumes the oldest message of a queue that it has not, when enough others are behind it."""
        port, queue = self._broker.broker_port, self.queues[queue_id]
        if len(queue.waiting) <= NEVER_CONSUMED_COUNT:
            return
        message = queue.waiting.popleft()
        if message.queue_offset % DEAD_EACH == 0:
            broker_calls.send_back(port, GROUP, message, broker_calls.TO_DEAD_LETTERS)
        elif message.queue_offset % RETRIED_EACH == 0:
            broker_calls.send_back(port, GROUP, message, delay_level=1)
        broker_calls.update_consumer_offset(port, GROUP, TOPIC, queue_id, message.queue_offset + 1)
        queue.offset = message.queue_offset + 1
