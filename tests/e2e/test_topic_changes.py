"""A change of a topic (`mqadmin updateTopic`, `reput topic update`) is seen over every door within a second.

Routes are as they are when the command is answered; the copies that doors keep are not older than a second.
"""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterator

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from gateway.remoting import topic_copy
from gateway.rocketmq import topic_types
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads
from tests.gateway.remoting.requests import DoorClient, send_fields
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPIC = "Changed"
NO_PERMISSION = ResponseCode.NO_PERMISSION


class Doors:
    """A topic of 2 queues, seen and changed over each door."""

    def __init__(self, stack: HostedStack, door: DoorClient, names: DoorClient) -> None:
        self._stack, self._door, self._names = stack, door, names
        self._messaging = v2_grpc.MessagingServiceStub(stack.channel)
        stack.gateway.CreateTopic(pb.CreateTopicRequest(topic=TOPIC, queue_count=2), timeout=WAIT_SECONDS_MAX)

    def by_remoting(self, queue_count: int, perm: int) -> None:
        fields = {"topic": TOPIC, "readQueueNums": queue_count, "writeQueueNums": queue_count, "perm": perm}
        answer = self._door.call(RequestCode.UPDATE_AND_CREATE_TOPIC, topicFilterType="SINGLE_TAG", **fields)
        assert answer.code == 0, answer.remark

    def by_grpc(self, queue_count: int, perm: int) -> None:
        request = pb.UpdateTopicRequest(
            topic=TOPIC, write_queue_count=queue_count, read_queue_count=queue_count, perm=perm
        )
        self._stack.gateway.UpdateTopic(request, timeout=WAIT_SECONDS_MAX)

    def route_of_names(self) -> tuple[int, int]:
        """Queues and perm, as a name server tells remoting clients."""
        answer = self._names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC, acceptStandardJsonOnly="true")
        (row,) = json.loads(answer.body)["queueDatas"]
        return row["writeQueueNums"], row["perm"]

    def route_of_grpc(self) -> tuple[int, int]:
        """Queues and perm, as official gRPC clients are told."""
        endpoints = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="127.0.0.1", port=8081)])
        request = v2.QueryRouteRequest(topic=v2.Resource(name=TOPIC), endpoints=endpoints)
        queues = self._messaging.QueryRoute(
            request, timeout=WAIT_SECONDS_MAX, metadata=(("x-mq-client-id", "c"),)
        ).message_queues
        perms = {v2.READ: 4, v2.WRITE: 2, v2.READ_WRITE: 6}
        return len(queues), perms[queues[0].permission]

    def queues_of_door(self) -> int:
        return loads(self._door.call(RequestCode.GET_TOPIC_CONFIG, topic=TOPIC).body)["writeQueueNums"]

    def send_code(self) -> int:
        """Of a send over remoting to the queue 0."""
        return self._door.call(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields(TOPIC, queueId=0)).code


@pytest.fixture
def doors(tmp_path: pathlib.Path) -> Iterator[Doors]:
    with contextlib.ExitStack() as opened:
        stack = opened.enter_context(hosted_stack(tmp_path / "store", nameserver_port=0, remoting_port=0))
        door, names = (
            opened.enter_context(contextlib.closing(DoorClient(stack.addresses[name])))
            for name in ("remoting", "nameserver")
        )
        yield Doors(stack, door, names)


@pytest.mark.parametrize("how", [Doors.by_remoting, Doors.by_grpc])
def test_a_changed_topic_is_seen_over_both_doors_when_the_command_is_answered(
    doors: Doors, how: Callable[[Doors, int, int], None]
) -> None:
    assert topic_copy.LOOK_SECONDS <= 1
    assert topic_types.LOOK_SECONDS <= 1
    for queue_count, perm in ((5, 6), (3, 4), (4, 6)):
        how(doors, queue_count, perm)
        assert doors.route_of_names() == doors.route_of_grpc() == (queue_count, perm)
        wait_until(lambda count=queue_count: doors.queues_of_door() == count, "the door has looked")
        wait_until(lambda code=0 if perm & 2 else NO_PERMISSION: doors.send_code() == code, "sends, too")
