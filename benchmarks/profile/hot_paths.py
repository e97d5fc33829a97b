"""The hot paths, each with the load under which it is recorded."""

import contextlib
import itertools
import pathlib
import shutil
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from benchmarks import processes
from benchmarks.load import TOPIC, Load, environment
from benchmarks.row import QUIET
from benchmarks.rows.replicated_append import SETTINGS
from benchmarks.sides.our_side import running_stack
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from tests.support.cluster import running_cluster

MESSAGING_SERVICE = "/apache.rocketmq.v2.MessagingService/"
QUEUE_COUNT = 8
PULL_COUNT, PULL_BYTES, ANSWER_BYTES_MAX = 256, 1 << 20, 16 << 20
RECEIVE_COUNT = 32  # the most that one ReceiveMessage gives
RECEIVES_OF_A_GROUP = 100  # then the next group begins at the first message: a load never waits for messages
INVISIBLE_SECONDS = 3_600  # longer than a recording: nothing comes again
POLL_SECONDS = 5
CALLERS = 4
ACKS_OF_A_CALLER_MAX = 12_000  # more than a caller can send in a recording; they are received before it
APPENDERS = 32  # of row 3
CALL_SECONDS_MAX = 30.0
LOAD_SECONDS_MAX = 3_600.0  # a load is ended, not waited for

IsOver = Callable[[], bool]


class ToolMissingError(Exception):
    """A path cannot be recorded here; the message says what is missing."""


@dataclass(frozen=True)
class Scene:
    """Services under load.

    Args:
        pid: their supervisor.
        check: raises when the load has ended or failed.
    """

    pid: int
    check: Callable[[], None]


class HotPath(ABC):
    """One hot path.

    Attributes:
        name: of its file.
        title: above its graph.
        handlers: the functions that must be in its graph: where the request arrives, or where it is worked on.
        load: a sentence on how it is driven.
    """

    def __init__(self, name: str, title: str, handlers: Sequence[str], load: str) -> None:
        self.name, self.title, self.handlers, self.load = name, title, tuple(handlers), load

    @abstractmethod
    def under_load(self, scratch: pathlib.Path, fill_seconds: float) -> contextlib.AbstractContextManager[Scene]:
        """Services on an empty directory, that work on this path until the block ends.

        Args:
            scratch: an empty directory.
            fill_seconds: for how long messages are appended before, where the path reads messages.

        Raises:
            ToolMissingError: see there.
        """


class Appending(HotPath):
    """Appends by a load of `benchmarks.load`."""

    def __init__(self, name: str, title: str, handlers: Sequence[str], load: str, client: str, batch: int) -> None:
        super().__init__(name, title, handlers, load)
        self._client, self._batch = client, batch

    @contextlib.contextmanager
    def under_load(self, scratch: pathlib.Path, fill_seconds: float) -> Iterator[Scene]:
        with running_stack(scratch / "store", QUIET) as stack:
            load = Load(
                stack.addresses["gateway"], self._client, batch_count=self._batch, callers=APPENDERS,
                seconds=LOAD_SECONDS_MAX,
            )  # fmt: skip
            with _running(load) as check:
                yield Scene(stack.process.pid, check)


class Replicating(HotPath):
    """Appends that wait for a second replica."""

    @contextlib.contextmanager
    def under_load(self, scratch: pathlib.Path, fill_seconds: float) -> Iterator[Scene]:
        if shutil.which("etcd") is None:
            raise ToolMissingError("etcd is not installed (Debian: etcd-server)")
        with running_cluster(scratch / "cluster", 2, SETTINGS) as cluster:
            cluster.wait_until_whole()
            load = Load(cluster.status()["gateway"], "producer", replicated=True, seconds=LOAD_SECONDS_MAX)
            with _running(load) as check:
                yield Scene(cluster.process.pid, check)


class Reading(HotPath):
    """Calls over messages that are there: `prepare` gets channel and message count, and returns one caller's work."""

    def __init__(
        self,
        name: str,
        title: str,
        handlers: Sequence[str],
        load: str,
        prepare: Callable[[grpc.Channel, int], Callable[[int, IsOver], None]],
    ) -> None:
        super().__init__(name, title, handlers, load)
        self._prepare = prepare

    @contextlib.contextmanager
    def under_load(self, scratch: pathlib.Path, fill_seconds: float) -> Iterator[Scene]:
        options = [("grpc.max_receive_message_length", ANSWER_BYTES_MAX)]
        with running_stack(scratch / "store", QUIET) as stack:
            request = pb.CreateTopicRequest(topic=TOPIC, queue_count=QUEUE_COUNT)
            stack.gateway.CreateTopic(request, timeout=CALL_SECONDS_MAX)
            address = stack.addresses["gateway"]
            count = int(Load(address, warm_seconds=0, seconds=fill_seconds).run()["count"])
            stack.wait_until_built()
            over = threading.Event()
            with grpc.insecure_channel(address, options=options) as channel, ThreadPoolExecutor(CALLERS) as pool:
                work = self._prepare(channel, count)
                callers = [pool.submit(work, number, over.is_set) for number in range(CALLERS)]

                def check() -> None:
                    for caller in callers:
                        if caller.done():
                            caller.result()
                            raise RuntimeError("the load ended before the recording")

                try:
                    yield Scene(stack.process.pid, check)
                finally:
                    over.set()


@contextlib.contextmanager
def _running(load: Load) -> Iterator[Callable[[], None]]:
    """A load in a process of its own, ended with the block; yields the check of `Scene`."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with processes.ended(subprocess.Popen(load.command(), env=environment(), **quiet)) as process:

        def check() -> None:
            if process.poll() is not None:
                raise RuntimeError(f"the load ended with {process.returncode}")

        yield check


def _query(channel: grpc.Channel, count: int) -> Callable[[int, IsOver], None]:
    stub = pb_grpc.GatewayServiceStub(channel)

    def work(number: int, is_over: IsOver) -> None:
        for key in itertools.count(number, 7919):  # a prime: neighbours of a key are not asked for one after the other
            if is_over():
                return
            request = pb.QueryMessageByKeyRequest(topic=TOPIC, key=f"key-{1 + key % count}")
            if len(stub.QueryMessageByKey(request, timeout=CALL_SECONDS_MAX).messages) != 1:
                raise RuntimeError(f"{request.key} was not found once")

    return work


def _pull(channel: grpc.Channel, count: int) -> Callable[[int, IsOver], None]:
    stub = pb_grpc.GatewayServiceStub(channel)

    def work(number: int, is_over: IsOver) -> None:
        for queue_id in itertools.cycle(range(number, QUEUE_COUNT, CALLERS)):
            request = pb.PullMessagesRequest(
                topic=TOPIC, queue_id=queue_id, max_messages=PULL_COUNT, max_bytes=PULL_BYTES
            )
            answers = stub.PullMessages(request, timeout=LOAD_SECONDS_MAX)
            for _ in answers:
                if is_over():
                    answers.cancel()
                    return

    return work


def _pop(channel: grpc.Channel, count: int) -> Callable[[int, IsOver], None]:
    def work(number: int, is_over: IsOver) -> None:
        for turn in itertools.count():
            group = f"pop-{number}-{turn // min(RECEIVES_OF_A_GROUP, max(1, count // RECEIVE_COUNT // 2))}"
            if is_over():
                return
            _receive(channel, group)

    return work


def _ack(channel: grpc.Channel, count: int) -> Callable[[int, IsOver], None]:
    handles = [_handles(channel, f"ack-{number}", count // 2) for number in range(CALLERS)]
    ack = channel.unary_unary(
        MESSAGING_SERVICE + "AckMessage",
        request_serializer=v2.AckMessageRequest.SerializeToString,
        response_deserializer=v2.AckMessageResponse.FromString,
    )

    def work(number: int, is_over: IsOver) -> None:
        for entry in handles[number]:
            if is_over():
                return
            request = v2.AckMessageRequest(
                group=v2.Resource(name=f"ack-{number}"), topic=v2.Resource(name=TOPIC), entries=[entry]
            )
            status = ack(request, metadata=_metadata(f"ack-{number}"), timeout=CALL_SECONDS_MAX).status
            if status.code != v2.OK:
                raise RuntimeError(f"an acknowledgement was refused: {status.message}")

    return work


def _handles(channel: grpc.Channel, group: str, count: int) -> list[v2.AckMessageEntry]:
    entries: list[v2.AckMessageEntry] = []
    while len(entries) < min(count, ACKS_OF_A_CALLER_MAX):
        entries += [
            v2.AckMessageEntry(
                message_id=one.system_properties.message_id, receipt_handle=one.system_properties.receipt_handle
            )
            for one in _receive(channel, group)
        ]
    return entries


def _receive(channel: grpc.Channel, group: str) -> list[v2.Message]:
    """At least one message of a group."""
    receive = channel.unary_stream(
        MESSAGING_SERVICE + "ReceiveMessage",
        request_serializer=v2.ReceiveMessageRequest.SerializeToString,
        response_deserializer=v2.ReceiveMessageResponse.FromString,
    )
    request = v2.ReceiveMessageRequest(
        group=v2.Resource(name=group),
        message_queue=v2.MessageQueue(topic=v2.Resource(name=TOPIC), id=-1),
        filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
        batch_size=RECEIVE_COUNT,
        invisible_duration={"seconds": INVISIBLE_SECONDS},
        long_polling_timeout={"seconds": POLL_SECONDS},
    )
    answers = list(receive(request, metadata=_metadata(group), timeout=CALL_SECONDS_MAX))
    messages = [answer.message for answer in answers if answer.HasField("message")]
    if not messages:
        raise RuntimeError(f"nothing was received: {answers}")
    return messages


def _metadata(client_id: str) -> tuple[tuple[str, str], ...]:
    return ("x-mq-client-id", client_id), ("x-mq-language", "PYTHON"), ("x-mq-client-version", "5.1.0")


HOT_PATHS: dict[str, HotPath] = {
    path.name: path
    for path in (
        Appending(
            "append_stream", "Append stream, 1 KiB x 32", ("pump_message_stream", "write_request"),
            "one stream through the gateway, 16 requests under way", "stream", 32,
        ),
        Appending(
            "unary_append", "Unary append, 1 KiB", ("append_messages",),
            f"{APPENDERS} callers, one message a call", "unary", 1,
        ),
        Reading(
            "query_by_key", "Query by key", ("QueryMessageByKey",),
            f"{CALLERS} callers, keys spread over the store", _query,
        ),
        Reading(
            "pull", "Pull of whole queues, 1 KiB x 256", ("PullMessages",), f"{CALLERS} streams, queue after queue", _pull
        ),
        Reading(
            "pop", "Pop, 1 KiB x 32", ("receive_message", "pop"),
            f"{CALLERS} callers of ReceiveMessage, which acknowledge nothing", _pop,
        ),
        Reading(
            "ack", "Acknowledge, a message a call", ("ack_message",),
            f"{CALLERS} callers of AckMessage, for messages received before", _ack,
        ),
        Replicating(
            "replicate", "Replicated append, 1 KiB x 32", ("_take_all",),
            "one producer with FLUSH_MODE_REPLICATED, a leader and one replica, all services of both",
        ),
    )
}  # fmt: skip
