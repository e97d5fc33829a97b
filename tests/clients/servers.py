"""The servers that official clients talk to, behind one port: the real RocketMQ and Reput."""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from benchmarks.sides import rocketmq_side
from benchmarks.sides.remoting import create_group, create_topic
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from tests.support.stack import Stack, running_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

NO_ATTRIBUTES: Mapping[str, str] = {}


class Server(Protocol):
    """What a case needs of a server besides its address."""

    endpoint: str

    def create_topic(self, topic: str, queue_count: int, message_type: str) -> None:
        """Create a topic of `NORMAL`, `FIFO`, `DELAY`, `TRANSACTION`, `PRIORITY` or `LITE` messages."""

    def create_group(
        self, group: str, *, ordered: bool, delivery_attempts_max: int, attributes: Mapping[str, str] = NO_ATTRIBUTES
    ) -> None:
        """Create a consumer group; the maximum counts the first delivery, the attributes are RocketMQ's `lite.*`."""


class RealServer:
    """A broker of RocketMQ behind its proxy."""

    def __init__(self, rocketmq: rocketmq_side.RocketMQ) -> None:
        self._broker_port = rocketmq.broker_port
        self.endpoint = f"127.0.0.1:{rocketmq.proxy_port}"

    def create_topic(self, topic: str, queue_count: int, message_type: str) -> None:
        create_topic(self._broker_port, topic, queue_count, message_type)

    def create_group(
        self, group: str, *, ordered: bool, delivery_attempts_max: int, attributes: Mapping[str, str] = NO_ATTRIBUTES
    ) -> None:
        create_group(
            self._broker_port,
            group,
            ordered=ordered,
            delivery_attempts_max=delivery_attempts_max,
            attributes=attributes,
        )


class ReputServer:
    """`reput serve`."""

    def __init__(self, stack: Stack) -> None:
        self._gateway: Any = stack.gateway
        self.endpoint = stack.addresses["gateway"]

    def create_topic(self, topic: str, queue_count: int, message_type: str) -> None:
        kind = getattr(message_pb2, f"MESSAGE_TYPE_{message_type}")
        request = pb.CreateTopicRequest(topic=topic, queue_count=queue_count, message_type=kind)
        self._gateway.CreateTopic(request, timeout=WAIT_SECONDS_MAX)

    def create_group(
        self, group: str, *, ordered: bool, delivery_attempts_max: int, attributes: Mapping[str, str] = NO_ATTRIBUTES
    ) -> None:
        request = pb.UpdateConsumerGroupRequest(
            consumer_group=group,
            ordered=ordered,
            delivery_attempts_max=delivery_attempts_max,
            lite_attributes=attributes,
        )
        self._gateway.UpdateConsumerGroup(request, timeout=WAIT_SECONDS_MAX)


@contextlib.contextmanager
def real_server(work: pathlib.Path) -> Iterator[Server]:
    """The real one, in a directory of its own."""
    with rocketmq_side.running_rocketmq(
        work / "store",
        work / "rocketmq",
        rocketmq_side.ShortLivedRocketMQ,
        proxy=True,
        enablePropertyFilter="true",  # SQL
        recallMessageEnable="true",
        waitTimeMillsInSendQueue=10_000,  # by default it refuses what a busy machine lets wait for 200 ms
        mappedFileSizeCommitLog=64 << 20,
        enableLmq="true",  # lite topics
        enableMultiDispatch="true",
    ) as rocketmq:
        yield RealServer(rocketmq)


@contextlib.contextmanager
def reput_server(work: pathlib.Path, *flags: str) -> Iterator[Server]:
    """Ours, likewise, with flags of `reput serve`."""
    with running_stack(work / "store", *flags) as stack:
        yield ReputServer(stack)


def wait_until_routed(server: Server, topic: str) -> None:
    """Return once a client is given the queues of a topic."""
    with grpc.insecure_channel(server.endpoint) as channel:
        stub: Any = v2_grpc.MessagingServiceStub(channel)
        host, port = server.endpoint.split(":")
        address = v2.Address(host=host, port=int(port))
        endpoints = v2.Endpoints(scheme=v2.IPv4, addresses=[address])
        request = v2.QueryRouteRequest(topic=v2.Resource(name=topic), endpoints=endpoints)
        metadata = (("x-mq-client-id", f"wait-for-{topic}"), ("x-mq-protocol", "GRPC_V2"))

        status = v2.Status()

        def is_routed() -> bool:
            answer = stub.QueryRoute(request, timeout=WAIT_SECONDS_MAX, metadata=metadata)
            status.CopyFrom(answer.status)
            return bool(status.code == v2.OK)

        wait_until(is_routed, lambda: f"{topic} is routed, not {status}", poll_seconds=0.5)
