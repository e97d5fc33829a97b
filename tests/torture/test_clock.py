"""Clocks that are wrong or jump: real services start and serve, in the order of offsets, lose and expire nothing.

Every file would have expired by the fake clock; by what really passed none has.
"""

import datetime
import itertools
import pathlib
import random
import time
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf import timestamp_pb2

from reput.commitlog.v1 import commitlog_service_pb2 as commitlog_pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as commitlog_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.stack import Stack, new_message
from tests.torture.amount import amount
from tests.torture.seeds import pick_seed
from tests.torture.tools import faketime

pytestmark = pytest.mark.skipif(bool(faketime.why_missing()), reason=faketime.why_missing() or "libfaketime is there")

HOUR = 3600
MIDNIGHT_SECONDS = 0.3
KEPT_IN_ORDER_MILLIS = 60_000  # a larger step back of the clock shows in the store times
CHECKED_COUNT = 15  # messages whose times are searched for in each check; one is two dozen calls
YEARS_10 = 10 * 365 * 86_400
TOPIC = "Clocks"
QUEUE_COUNT = 2
SETTINGS = {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": "8192",
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": "400",
    "REPUT_INDEX_HASH_SLOT_COUNT": "50",
    "REPUT_INDEX_ENTRY_COUNT_MAX": "40",
    "REPUT_COMMITLOG_FILE_RESERVED_SECONDS": "1800",
    "REPUT_COMMITLOG_DELETE_WHEN_HOURS": ";".join(str(hour) for hour in range(24)),
}


class Clocked:
    """A store that is served by one stack after the other, and what was appended to it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.clock = faketime.FakeClock(directory / "clock")
        self.receipts: list[message_pb2.AppendResult] = []
        self._store = directory / "store"
        self._stack: Stack | None = None

    @property
    def stack(self) -> Stack:
        assert self._stack is not None
        return self._stack

    def start(self) -> None:
        self._stack = Stack(self._store, settings=SETTINGS | self.clock.environment)

    def stop(self) -> None:
        stack, self._stack = self._stack, None
        if stack is not None:
            try:
                assert 0 == stack.stop()
            finally:
                stack.kill()
                faketime.clear(stack.process.pid)

    def append(self, count: int) -> None:
        for _ in range(count):
            number = len(self.receipts)
            message = new_message(TOPIC, b"%04d" % number * 60, keys=[f"k-{number}"], queue_id=number % QUEUE_COUNT)
            request = pb.AppendMessagesRequest(messages=[message])
            self.receipts.append(self.stack.gateway.AppendMessages(request, timeout=30).results[0])

    def check(self) -> None:
        self.stack.wait_until_built()
        receipts = self.receipts
        assert all(a.commit_log_offset < b.commit_log_offset for a, b in itertools.pairwise(receipts))
        times = [millis(receipt.store_time) for receipt in receipts]
        falls = [before - after for before, after in itertools.pairwise(times) if after < before]
        assert all(fall > KEPT_IN_ORDER_MILLIS for fall in falls), "a step back of a minute keeps the order (ADR 0103)"
        for queue_id in range(QUEUE_COUNT):
            mine = [receipt for receipt in receipts if receipt.queue_id == queue_id]
            assert list(range(len(mine))) == [receipt.queue_offset for receipt in mine]
            found = self._read_queue(queue_id)
            assert [(r.commit_log_offset, r.store_time) for r in mine] == [
                (message.commit_log_offset, message.store_time) for message in found
            ]
            self._check_search(queue_id, [millis(receipt.store_time) for receipt in mine])
        for number, receipt in list(enumerate(receipts))[:: self._step]:
            for begin, end in ((receipt.store_time, receipt.store_time), (None, None)):
                request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"k-{number}", begin_time=begin, end_time=end)
                answer = self.stack.gateway.QueryMessageByKey(request, timeout=30)
                assert [receipt.commit_log_offset] == [message.commit_log_offset for message in answer.messages]
        status = self._log_status()
        assert 0 == status.log_first_offset
        assert not status.retention_events
        assert "serving" == status.state
        assert status.file_count > 2

    @property
    def _step(self) -> int:
        return 1 + len(self.receipts) // CHECKED_COUNT

    def _log_status(self) -> commitlog_pb.GetStatusResponse:
        with grpc.insecure_channel(self.stack.addresses["commitlog"]) as channel:
            return commitlog_grpc.CommitLogServiceStub(channel).GetStatus(commitlog_pb.GetStatusRequest(), timeout=30)

    def _read_queue(self, queue_id: int) -> list[message_pb2.StoredMessage]:
        found: list[message_pb2.StoredMessage] = []
        while True:
            request = pb.QueryMessageByOffsetRequest(
                topic=TOPIC, queue_id=queue_id, queue_offset=len(found), max_messages=1000
            )
            answer = self.stack.gateway.QueryMessageByOffset(request, timeout=30)
            assert 0 == answer.min_offset
            found += answer.messages
            if not answer.messages:
                return found

    def _check_search(self, queue_id: int, times: list[int]) -> None:
        """SearchOffset against a look at each message, at store times and a millisecond beside."""
        looked_for = [*times[:: self._step], times[-1]]
        for at in sorted({time_millis + beside for time_millis in looked_for for beside in (-1, 0, 1)}):
            request = pb.SearchOffsetRequest(topic=TOPIC, queue_id=queue_id, time=timestamp(at), boundary=1)
            later = [number for number, time_millis in enumerate(times) if time_millis >= at]
            assert min(later, default=len(times)) == self._search(request)
            request.boundary = 2
            earlier = [number for number, time_millis in enumerate(times) if time_millis <= at]
            assert max(earlier, default=0) == self._search(request)

    def _search(self, request: pb.SearchOffsetRequest) -> int:
        return self.stack.gateway.SearchOffset(request, timeout=30).queue_offset


def millis(stamp: timestamp_pb2.Timestamp) -> int:
    return stamp.seconds * 1000 + stamp.nanos // 1_000_000


def timestamp(time_millis: int) -> timestamp_pb2.Timestamp:
    return timestamp_pb2.Timestamp(seconds=time_millis // 1000, nanos=time_millis % 1000 * 1_000_000)


@pytest.fixture
def clocked(tmp_path: pathlib.Path) -> Iterator[Clocked]:
    store = Clocked(tmp_path)
    try:
        yield store
    finally:
        store.stop()


def seconds_to_midnight() -> float:
    now = datetime.datetime.now().astimezone()
    midnight = (now + datetime.timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - now).total_seconds()


def test_rmq_9455_wrong_and_jumping_clocks_stop_nothing_lose_nothing_and_expire_nothing(clocked: Clocked) -> None:
    seed = pick_seed("clock jumps")
    clocked.start()
    clocked.append(15)
    clocked.clock.set_seconds(-HOUR)
    clocked.append(15)
    clocked.clock.set_seconds(seconds_to_midnight() - MIDNIGHT_SECONDS)
    midnight = time.monotonic() + MIDNIGHT_SECONDS
    while time.monotonic() < midnight + MIDNIGHT_SECONDS:  # before, through and after it
        clocked.append(1)
    clocked.check()
    clocked.stop()

    for ahead_seconds in (-2 * HOUR, YEARS_10):
        clocked.clock.set_seconds(ahead_seconds)
        clocked.start()
        clocked.append(10)
        clocked.clock.set_seconds(0)
        clocked.append(5)
        if ahead_seconds < 0:
            clocked.stop()

    jump_at_random(clocked, random.Random(seed), amount(sample=2, change=20, full=200))
    clocked.append(5)
    clocked.check()


def jump_at_random(clocked: Clocked, rng: random.Random, count: int) -> None:
    for _ in range(count):
        jump = rng.choice((0, -HOUR, -2 * HOUR, YEARS_10, -YEARS_10, 86_400, -86_400, rng.uniform(-1e6, 1e6)))
        clocked.clock.set_seconds(jump)
        if rng.random() < 0.1:
            clocked.stop()
            clocked.start()
        clocked.append(rng.randrange(1, 10))
