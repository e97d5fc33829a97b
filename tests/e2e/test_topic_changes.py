"""A change of a topic by a tool of RocketMQ is seen by clients of all doors and by the name server's at once."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from apache.rocketmq.v2 import rocketmq_pb2_grpc as v2_grpc
from services.rocketmq.codes import RequestCode, ResponseCode
from services.rocketmq.fastjson import loads
from tests.gateway.remoting.requests import DoorClient, send_fields
from tests.support.stack import HostedStack, hosted_stack
from tests.support.waiting import WAIT_SECONDS_MAX, wait_until

TOPIC = "Changing"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedStack]:
    directory: pathlib.Path = tmp_path_factory.mktemp("store")
    with hosted_stack(directory, nameserver_port=0, remoting_port=0) as running:
        yield running


def change(door: DoorClient, queue_count: int, perm: int = 6, **more: object) -> int:
    """updateTopic of mqadmin; the code of the answer."""
    fields = {"topic": TOPIC, "readQueueNums": queue_count, "writeQueueNums": queue_count, "perm": perm}
    code = door.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC, defaultTopic="TBW102", topicFilterType="SINGLE_TAG", **fields, **more
    ).code
    return int(code)


def test_queues_and_permissions_that_update_topic_sets_are_in_all_routes_when_it_is_answered(
    stack: HostedStack,
) -> None:
    routes = v2_grpc.MessagingServiceStub(stack.channel)
    address = stack.addresses["gateway"].rpartition(":")
    with contextlib.closing(DoorClient(stack.addresses["remoting"])) as door:
        names = DoorClient(stack.addresses["nameserver"])
        registered = RequestCode.GET_ROUTEINFO_BY_TOPIC
        wait_until(lambda: names.call(registered, topic="TBW102").code == 0, "the shard is registered")
        for queue_count, perm in ((4, 6), (9, 6), (2, 6), (2, 4), (3, 6)):
            assert change(door, queue_count, perm) == 0
            # The name server has it before mqadmin has its answer: what asks from now on cannot see the old one.
            (row,) = loads(names.call(registered, topic=TOPIC).body)["queueDatas"]
            assert (row["readQueueNums"], row["writeQueueNums"], row["perm"]) == (queue_count, queue_count, perm)
            endpoints = v2.Endpoints(
                scheme=v2.IPv4,
                addresses=[v2.Address(host=address[0], port=int(address[2]))],
            )
            request = v2.QueryRouteRequest(topic=v2.Resource(name=TOPIC), endpoints=endpoints)

            def queues(request: v2.QueryRouteRequest = request) -> int:
                return len(
                    routes.QueryRoute(
                        request, timeout=WAIT_SECONDS_MAX, metadata=[("x-mq-client-id", "c")]
                    ).message_queues
                )

            wait_until(lambda count=queue_count: queues() == count, "gRPC clients are told the queues")  # type: ignore[misc]
            sent = door.call(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields(TOPIC, queueId=queue_count - 1))
            assert sent.code == (0 if perm & 2 else ResponseCode.NO_PERMISSION)
            beyond = door.call(RequestCode.SEND_MESSAGE_V2, b"x", **send_fields(TOPIC, queueId=queue_count))
            assert beyond.code != 0
        names.close()


@pytest.mark.parametrize(
    ("attributes", "named"),
    [
        ("+cleanup.policy=COMPACTION", "cleanup.policy"),
        ("+queue.type=BatchCQ", "queue.type"),
        ("+message.type=MIXED", "MIXED"),
    ],
)
def test_a_kind_of_topic_that_is_not_served_is_refused_by_name_and_no_topic_is_made(
    stack: HostedStack, attributes: str, named: str
) -> None:
    with contextlib.closing(DoorClient(stack.addresses["remoting"])) as door:
        fields = {"topic": "Refused", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        answer = door.call(
            RequestCode.UPDATE_AND_CREATE_TOPIC, topicFilterType="SINGLE_TAG", attributes=attributes, **fields
        )
        assert answer.code != 0
        assert named in answer.remark
        assert door.call(RequestCode.GET_TOPIC_CONFIG, topic="Refused").code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("code", "named"),
    [(513, "static topics"), (902, "broker containers"), (903, "broker containers"), (200_070, "lite topics")],
)
def test_a_feature_that_is_not_served_is_refused_by_name(stack: HostedStack, code: int, named: str) -> None:
    with contextlib.closing(DoorClient(stack.addresses["remoting"])) as door:
        answer = door.call(code, topic="t")
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {code} not supported: {named}"
