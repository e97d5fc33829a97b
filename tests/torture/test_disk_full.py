"""A full disk under the log, the queues or the index: nothing dies, reads go on, writes resume alone, nothing is lost.

The disk is a small tmpfs; a file `ballast` takes the room on it and gives it back.
"""

import itertools
import random
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput.commitlog.v1 import commitlog_service_pb2 as log_pb
from reput.commitlog.v1 import commitlog_service_pb2_grpc as log_grpc
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.index.v1 import index_service_pb2 as index_pb
from reput.index.v1 import index_service_pb2_grpc as index_grpc
from reput.message.v1 import message_pb2
from services.status import error_info, status_of
from store.walk.log_reader import LogReader
from tests.gateway.rocketmq.consumers import Consumer
from tests.support.service import Service
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until
from tests.torture.amount import amount, level
from tests.torture.seeds import pick_seed
from tests.torture.tools import why_missing
from tests.torture.tools.lives import LAYOUT, QUEUE_COUNT, QUEUE_FILE_BYTES, difference_from_rebuild
from tests.torture.tools.tmpfs import Ballast, tmpfs

REASON = why_missing()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(3600 if level() == "full" else 600),
]

LOG_FILE_BYTES = 65536
DISK_BYTES = 32 << 20
# Both end after the disk is known to be full, on a busy machine too.
LEASE_SECONDS, DUE_SECONDS = 30, 20
# Files must not go because the disk is full, and the disk itself is to say that it is.
KEEP_EVERYTHING = {
    "REPUT_COMMITLOG_CLEAN_FILE_FORCIBLY_ENABLED": "false",
    "REPUT_COMMITLOG_DISK_CLEAN_FREE_BYTES": "0",
    "REPUT_COMMITLOG_DISK_CLEAN_FORCIBLY_FREE_BYTES": "0",
    "REPUT_COMMITLOG_DISK_FULL_FREE_BYTES": "0",
}
SETTINGS = KEEP_EVERYTHING | {
    "REPUT_COMMITLOG_FILE_SIZE_BYTES": str(LOG_FILE_BYTES),
    "REPUT_COMMITLOG_FLUSH_MODE": "sync",
    "REPUT_COMMITLOG_DEFAULT_TOPIC_QUEUE_COUNT": str(QUEUE_COUNT),
    "REPUT_CONSUMEQUEUE_FILE_SIZE_BYTES": str(QUEUE_FILE_BYTES),
    "REPUT_INDEX_HASH_SLOT_COUNT": str(LAYOUT.slot_count),
    "REPUT_INDEX_ENTRY_COUNT_MAX": str(LAYOUT.entry_count_max),
}


class Producer:
    """Appends numbered messages through a gateway, one after the other, and knows which were acknowledged."""

    def __init__(self, stack: Stack, topic: str = "orders", first_number: int = 0) -> None:
        self._stack = stack
        self._topic = topic
        self._number = first_number
        self.acked: dict[int, message_pb2.AppendResult] = {}

    def append(self, body_bytes: int = 500) -> grpc.RpcError | None:
        """Appends one; the error when it was refused."""
        number, self._number = self._number, self._number + 1
        message = message_pb2.NewMessage(
            topic=self._topic,
            queue_id=number % QUEUE_COUNT,
            body=(b"%d:" % number).ljust(body_bytes, b"x"),
            keys=[f"key-{number}"],
        )
        request = pb.AppendMessagesRequest(messages=[message])
        try:
            self.acked[number] = self._stack.gateway.AppendMessages(request, timeout=WAIT_SECONDS_MAX).results[0]
        except grpc.RpcError as error:
            return error
        return None

    def append_many(self, count: int) -> None:
        """Appends so many; none may be refused."""
        for _ in range(count):
            assert self.append() is None

    def append_until_refused(self, body_bytes: int = 500) -> grpc.RpcError:
        """Appends until one is refused; its error."""
        return next(error for _ in itertools.count() if (error := self.append(body_bytes)) is not None)

    def seconds_until_accepted(self) -> float:
        """Appends until one is accepted; how long that took."""
        return wait_until(lambda: self.append() is None, "an append is taken after there was room")

    def read_back(self, dice: random.Random, count: int = 20) -> None:
        """Some acknowledged messages, and the newest, are found by id."""
        numbers = [*dice.sample(sorted(self.acked), min(count, len(self.acked))), max(self.acked)]
        for number in numbers:
            request = pb.QueryMessageByIdRequest(offset_msg_id=self.acked[number].offset_msg_id)
            message = self._stack.gateway.QueryMessageById(request, timeout=WAIT_SECONDS_MAX).message
            assert message.body.startswith(b"%d:" % number)


def assert_says_no_room(error: grpc.RpcError) -> None:
    """RESOURCE_EXHAUSTED, DISK_FULL, and when to try again."""
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error.details()
    status = status_of(error)
    assert status is not None
    info = error_info(status)
    assert info is not None
    assert info.reason == "DISK_FULL"
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.ToSeconds() > 0


def service_status(stack: Stack, name: str) -> pb.GetStatusResponse.ServiceStatus:
    """What a service says of itself."""
    rows = stack.gateway.GetStatus(pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).services
    return next(row for row in rows if row.service == name)


class SmallDisks:
    """The services on small disks: the queues and the index have one each, everything else shares one.

    Attributes:
        store: the store root.
        stack: the services.
        producers: of all tests; what they were acknowledged must be there at the end.
    """

    def __init__(self, store: Path, stack: Stack) -> None:
        self.store = store
        self.stack = stack
        self.producers: list[Producer] = []

    def producer(self, topic: str = "orders") -> Producer:
        """A producer with numbers of its own."""
        self.producers.append(Producer(self.stack, topic, first_number=len(self.producers) * 1_000_000))
        return self.producers[-1]

    def ballast(self, name: str) -> Ballast:
        """For the disk of `commitlog`, `consumequeue` or `index`; an earlier test that failed may have left some."""
        ballast = Ballast(self.store / {"commitlog": "reput"}.get(name, name))
        ballast.give_back()
        return ballast


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisks]:
    """One stack for all tests; at its end every message that any of them was acknowledged is looked for."""
    work = tmp_path_factory.mktemp("disk-full")
    store = work / "store"
    with (
        tmpfs(store, DISK_BYTES),
        tmpfs(store / "consumequeue", DISK_BYTES),
        tmpfs(store / "index", DISK_BYTES),
        running_stack(store, settings=SETTINGS) as stack,
    ):
        disks = SmallDisks(store, stack)
        yield disks
        stack.wait_until_built()
        assert stack.stop() == 0
        requests = list(LogReader(store).dispatch_requests())
        offsets = [request.commit_log_offset for request in requests]
        for producer in disks.producers:
            assert {result.commit_log_offset for result in producer.acked.values()} <= set(offsets)
        for name in ("commitlog", "consumequeue", "index"):
            disks.ballast(name).give_back()
        assert difference_from_rebuild(store, requests, work / "rebuilt") == ""


@pytest.fixture
def dice() -> random.Random:
    return random.Random(pick_seed("disk full"))


@pytest.mark.parametrize("but_bytes", [0, LOG_FILE_BYTES // 2], ids=["no room", "room for half a segment"])
def test_a_full_log_disk_refuses_writes_serves_reads_and_resumes_alone(
    but_bytes: int, disks: SmallDisks, dice: random.Random
) -> None:
    """The next segment cannot be made, wholly or half-way. Also #4826, #1790, alibaba#331: read-only for ever."""
    producer, ballast, stack = disks.producer(), disks.ballast("commitlog"), disks.stack
    slowest = 0.0
    producer.append_many(20)
    for _ in range(amount(sample=1, change=3, full=20)):
        ballast.take_all(but_bytes)

        assert_says_no_room(producer.append_until_refused())
        new_topic = Producer(stack, topic=f"topic-{dice.getrandbits(32)}")
        for again in (producer, producer, new_topic):
            refused = again.append()
            assert refused is not None
            assert_says_no_room(refused)
        producer.read_back(dice)
        assert service_status(stack, "commitlog").state == "disk-full"
        assert stack.process.poll() is None
        half_made = [path for path in (disks.store / "reput" / "commitlog").iterdir() if path.name.isdigit()]
        assert len(half_made) <= 1

        ballast.give_back()
        slowest = max(slowest, producer.seconds_until_accepted())
        producer.append_many(2 * LOG_FILE_BYTES // 600)
        wait_until(lambda: service_status(stack, "commitlog").state == "serving", "serving again")
    print(f"log disk full: writes resumed after at most {slowest:.2f} s; {len(producer.acked)} acknowledged")


def test_a_disk_without_room_for_the_first_segment_lives_and_takes_messages_later(tmp_path: Path) -> None:
    store = tmp_path / "store"
    request = log_pb.AppendMessagesRequest(messages=[message_pb2.NewMessage(topic="orders", body=b"first")])
    with tmpfs(store, DISK_BYTES), Service("commitlog", store, SETTINGS) as service:
        ballast = Ballast(store / "reput")
        ballast.take_all()
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as refused:
                service.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
            assert_says_no_room(refused.value)

        ballast.give_back()

        def is_accepted() -> bool:
            try:
                service.stub.AppendMessages(request, timeout=WAIT_SECONDS_MAX)
            except grpc.RpcError as error:
                assert_says_no_room(error)
                return False
            return True

        seconds = wait_until(is_accepted, "writes resume")
        assert service.stop() == 0
        assert len(list(LogReader(store).dispatch_requests())) == 1
    print(f"no room for the first segment: writes resumed after {seconds:.2f} s")


@pytest.mark.parametrize("builder", ["consumequeue", "index"])
def test_a_full_disk_under_a_builder_stops_neither_writes_nor_reads_and_it_resumes_alone(
    builder: str, disks: SmallDisks, dice: random.Random
) -> None:
    """Also #7902, #2081, #2398: a dispatcher that dies of one error, or gives up, or never comes back."""
    producer, ballast, stack = disks.producer(), disks.ballast(builder), disks.stack
    slowest = 0.0
    producer.append_many(50)
    for _ in range(amount(sample=1, change=3, full=20)):
        wait_until_saved(stack, builder)
        ballast.take_all()
        built = dict(producer.acked)
        append_what_needs_room(stack, dice)
        wait_until(lambda: service_status(stack, builder).problem != "", "the builder says that it has no room")
        assert "no space" in service_status(stack, builder).problem
        producer.append_many(5)
        producer.read_back(dice)
        for number, result in dice.sample(sorted(built.items()), 5):
            wait_until(partial(is_found, stack, builder, number, result), f"message {number} is found")
        assert stack.process.poll() is None

        ballast.give_back()
        began = time.monotonic()
        stack.wait_until_built()
        slowest = max(slowest, time.monotonic() - began)
        wait_until(lambda: service_status(stack, builder).problem == "", lambda: service_status(stack, builder).problem)
    print(f"disk full under the {builder} service: caught up {slowest:.2f} s after there was room")


def append_what_needs_room(stack: Stack, dice: random.Random) -> None:
    """Appends messages for which every builder needs new blocks: new queues, and more keys than a file has left."""
    name = f"wide-{dice.getrandbits(64)}"
    messages = [
        message_pb2.NewMessage(topic=f"{name}-{i}", body=b"0:y", keys=[f"{i}-{k}" for k in range(40)])
        for i in range(40)
    ]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)


def wait_until_saved(stack: Stack, builder: str) -> None:
    """Waits until a builder has all that the log has on its disk: what it need not build again after a failure."""
    with grpc.insecure_channel(stack.addresses["commitlog"]) as channel:
        log = log_grpc.CommitLogServiceStub(channel)
        end_offset = log.GetStatus(log_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX).log_end_offset

        def is_saved() -> bool:
            status = log.GetStatus(log_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
            return bool(status.builder_next_offsets.get(builder, -1) >= end_offset)

        wait_until(is_saved, "the builder has flushed")


def is_found(stack: Stack, builder: str, number: int, result: message_pb2.AppendResult) -> bool:
    """Whether a query of that builder's files finds a message; if not, the answer must not look complete.

    While the builder opens its files again after a failure an answer is partial.
    """
    if builder == "index":
        query = pb.QueryMessageByKeyRequest(topic="orders", key=f"key-{number}")
        answer = stack.gateway.QueryMessageByKey(query, timeout=WAIT_SECONDS_MAX)
    else:
        place = pb.QueryMessageByOffsetRequest(
            topic="orders", queue_id=result.queue_id, queue_offset=result.queue_offset, max_messages=1
        )
        answer = stack.gateway.QueryMessageByOffset(place, timeout=WAIT_SECONDS_MAX)
    found = [int(message.body.split(b":")[0]) for message in answer.messages]
    assert found == [number] or answer.completeness == message_pb2.COMPLETENESS_PARTIAL, (found, answer.completeness)
    return found == [number]


def index_failures(stack: Stack) -> int:
    """How often the index service has failed since it last got on."""
    with grpc.insecure_channel(stack.addresses["index"]) as channel:
        status = index_grpc.IndexServiceStub(channel).GetStatus(index_pb.GetStatusRequest(), timeout=WAIT_SECONDS_MAX)
    return int(status.failure_count)


def test_rmq_7539_a_full_disk_leaves_at_most_one_half_made_index_file(disks: SmallDisks, dice: random.Random) -> None:
    """Each try left a half-made file: the disk was filled by them, and nothing could be built any more."""
    directory = disks.store / "index"

    def count() -> int:
        return len([path for path in directory.iterdir() if path.name != "ballast"])

    disks.stack.wait_until_built()
    before, ballast = count(), disks.ballast("index")
    ballast.take_all()
    append_what_needs_room(disks.stack, dice)
    wait_until(lambda: service_status(disks.stack, "index").problem != "", "the index says that it has no room")
    counts: list[int] = []

    def has_tried_again() -> bool:
        counts.append(count())
        return index_failures(disks.stack) >= 3

    wait_until(has_tried_again, "it goes on trying")
    ballast.give_back()
    disks.stack.wait_until_built()
    assert max(counts) <= before + 1


def test_under_load_a_disk_that_fills_and_empties_loses_nothing(disks: SmallDisks, dice: random.Random) -> None:
    """Four producers that never stop."""
    ballast, done = disks.ballast("commitlog"), threading.Event()
    producers = [disks.producer() for _ in range(4)]
    errors: list[grpc.RpcError] = []

    def produce(producer: Producer) -> None:
        while not done.is_set():
            error = producer.append(300)
            if error is not None:
                errors.append(error)
                done.wait(0.02)

    def acked_count() -> int:
        return sum(len(producer.acked) for producer in producers)

    threads = [threading.Thread(target=produce, args=(producer,)) for producer in producers]
    for thread in threads:
        thread.start()
    try:
        for _ in range(amount(sample=1, change=3, full=20)):
            refused_before = len(errors)
            ballast.take_all()
            wait_until(lambda count=refused_before: len(errors) > count, "an append is refused")
            ballast.give_back()
            goal = acked_count() + 20
            wait_until(lambda goal=goal: acked_count() > goal, "appends are accepted again")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    for error in errors:
        assert_says_no_room(error)
    for producer in producers:
        producer.read_back(dice, 5)


def append_timers(stack: Stack, topic: str, count: int, seconds: float) -> None:
    """Appends messages that are due in so many seconds, numbered in their bodies; the receipts have come."""
    due = Timestamp()
    due.FromMilliseconds(int((time.time() + seconds) * 1000))
    messages = [message_pb2.NewMessage(topic=topic, body=b"%d" % number, delivery_time=due) for number in range(count)]
    stack.gateway.AppendMessages(pb.AppendMessagesRequest(messages=messages), timeout=WAIT_SECONDS_MAX)


def bodies_in_topic(stack: Stack, topic: str) -> list[bytes]:
    """The bodies of a topic, as the log of the running stack has them."""
    log = LogReader(stack.store)
    found = [request for request in log.dispatch_requests() if request.topic == topic]
    return [log.record(request.commit_log_offset, request.record_size_bytes).body for request in found]


def test_a_full_disk_under_deliveries_and_timers_is_told_to_callers_and_both_resume_alone(disks: SmallDisks) -> None:
    """No acknowledgement is answered as done that is not; each timer comes once, and no service stays `retrying`.

    The last file of the log may still have room for a record of a service where it has none for the smallest message: an
    acknowledgement that is answered with OK then is in the log, and must be kept.
    """
    producer, ballast, stack = disks.producer("delivered"), disks.ballast("commitlog"), disks.stack
    consumer = Consumer(stack.addresses["gateway"], group="full-disk", topic="delivered")
    consumer.tell(consumer.settings())
    producer.append_many(8)
    received: list[v2.Message] = []
    while len(received) < 8:
        received += consumer.receive(seconds=1, batch_size=16, invisible=LEASE_SECONDS)[1]
    append_timers(stack, "due-while-full", 20, seconds=DUE_SECONDS)
    ballast.take_all()
    for body_bytes in (LOG_FILE_BYTES // 8, 500, 8):
        assert_says_no_room(producer.append_until_refused(body_bytes))
    entries = consumer.ack(*(message.system_properties.receipt_handle for message in received)).entries
    refused = [entry for entry in entries if entry.status.code != v2.OK]
    assert {entry.status.code for entry in refused} <= {v2.HA_NOT_AVAILABLE}
    assert all(is_no_room(entry.status.message) for entry in refused)
    kept = {number_of(one) for one, entry in zip(received, entries, strict=True) if entry.status.code == v2.OK}
    for name in ("consumer", "schedule"):
        wait_until(lambda name=name: is_no_room(service_status(stack, name).problem), f"{name} says why")
    code, leased = consumer.receive(seconds=1, invisible=10)
    assert (code, leased) == (v2.HA_NOT_AVAILABLE, []) or leased, "no room for a lease is never told as emptiness"
    assert stack.process.poll() is None

    ballast.give_back()
    producer.seconds_until_accepted()
    for name in ("consumer", "schedule"):
        wait_until(lambda name=name: is_well(stack, name), f"{name} is well again")
    consumed: set[int] = set()

    def is_all_consumed() -> bool:
        messages = consumer.receive(seconds=1, batch_size=16, invisible=10)[1]
        if messages:
            consumer.ack(*(message.system_properties.receipt_handle for message in messages))
        consumed.update(map(number_of, messages))
        return consumed | kept >= set(producer.acked)

    wait_until(is_all_consumed, "what was refused comes again")
    assert not consumed & kept, "what was acknowledged does not"
    wait_until(lambda: len(bodies_in_topic(stack, "due-while-full")) >= 20, "each timer is delivered")
    assert sorted(map(int, bodies_in_topic(stack, "due-while-full"))) == list(range(20))


def is_no_room(text: str) -> bool:
    """Whether a text says that the disk is full: a file could not be made, or the log has looked at its disk."""
    return "no space left" in text or "bytes left" in text


def number_of(message: v2.Message) -> int:
    """The number of a message of a Producer."""
    return int(message.body.split(b":")[0])


def is_well(stack: Stack, name: str) -> bool:
    """Whether a service says that it serves and nothing is wrong."""
    status = service_status(stack, name)
    return (status.state, status.problem) == ("serving", "")
