"""`AdminClient`: what it sends for each argument, and what it makes of the answer."""

from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client import AdminClient, MessageType, RetryPolicy, TopicExistsError, TopicSettings
from tests.reput_client.fake_gateway import refusal
from tests.reput_client.querying.conftest import FakeQueries

Asked = Callable[[Any, Callable[[AdminClient], Any]], tuple[bytes, Any]]
ROW = pb.TopicSettings(
    broker_name="a",
    topic="T",
    write_queue_count=2,
    read_queue_count=4,
    perm=6,
    message_type=message_pb2.MESSAGE_TYPE_FIFO,
)


@pytest.fixture
def asked() -> Iterator[Asked]:
    """The bytes of the last request of a call, and what the call returned."""
    servers = []

    def run(script: Any, call: Callable[[AdminClient], Any]) -> tuple[bytes, Any]:
        fake = FakeQueries(script)
        server = grpc.server(futures.ThreadPoolExecutor(2))
        servers.append(server)
        server.add_generic_rpc_handlers((fake,))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with AdminClient(address, retry=RetryPolicy(attempt_count_max=2, pause_seconds_first=0.001)) as client:
            answer = call(client)
        return fake.requests[-1], answer

    yield run
    for server in servers:
        server.stop(None)


def test_the_numbers_of_message_types_are_those_of_the_contract() -> None:
    assert {f"MESSAGE_TYPE_{each.name}": each.value for each in MessageType} == dict(message_pb2.MessageType.items())


def test_a_creation_sends_what_is_given_and_returns_a_row_for_each_shard(asked: Asked) -> None:
    request, rows = asked(
        [pb.CreateTopicResponse(topics=[ROW])],
        lambda client: client.create_topic("T", queue_count=4, message_type=MessageType.FIFO, perm=6, broker_name="a"),
    )

    assert pb.CreateTopicRequest.FromString(request) == pb.CreateTopicRequest(
        topic="T", queue_count=4, message_type=message_pb2.MESSAGE_TYPE_FIFO, perm=6, broker_name="a"
    )
    assert rows == [TopicSettings("a", "T", 2, 4, 6, MessageType.FIFO)]


def test_an_update_sends_only_what_is_not_none(asked: Asked) -> None:
    request, _ = asked([pb.UpdateTopicResponse(topics=[ROW])], lambda client: client.update_topic("T", perm=4))
    assert pb.UpdateTopicRequest.FromString(request) == pb.UpdateTopicRequest(topic="T", perm=4)

    request, _ = asked(
        [pb.UpdateTopicResponse(topics=[ROW])],
        lambda client: client.update_topic("T", message_type=MessageType.UNSPECIFIED, write_queue_count=1),
    )
    sent = pb.UpdateTopicRequest.FromString(request)
    assert sent.HasField("message_type")
    assert (sent.write_queue_count, sent.HasField("read_queue_count"), sent.HasField("queue_count")) == (
        1,
        False,
        False,
    )


def test_a_deletion_says_which_shards_had_the_topic_also_after_a_lost_answer(asked: Asked) -> None:
    gone = refusal(grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE")
    request, names = asked(
        [gone, pb.DeleteTopicResponse(broker_names=["a", "b"])], lambda client: client.delete_topic("T")
    )

    assert pb.DeleteTopicRequest.FromString(request).topic == "T"
    assert names == ["a", "b"]


def test_a_topic_with_other_values_is_an_error_of_its_own(asked: Asked) -> None:
    exists = refusal(grpc.StatusCode.ALREADY_EXISTS, "TOPIC_EXISTS", {"topic": "T"})
    with pytest.raises(TopicExistsError) as refused:
        asked([exists], lambda client: client.create_topic("T"))
    assert refused.value.metadata == {"topic": "T"}
