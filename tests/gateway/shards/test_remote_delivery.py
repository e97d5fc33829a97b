"""Pulls of a consumer service on another machine, new or older: the gateway shows the same messages."""

import queue
import threading

import grpc
import pytest

from gateway.ports.delivery import Pulled
from gateway.reput.pulling import responses_of
from gateway.shards.encoded_messages import EncodedMessages
from gateway.shards.remote_delivery import RemoteDelivering
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1.message_pb2 import MESSAGE_SOURCE_LIVE, StoredMessage
from services.calling.client import ServiceClient
from services.methods import CONSUMER_SERVICE
from services.serving.calls.raw_handlers import add_with_raw
from services.serving.server import ServiceServer
from services.settings.service_settings import ServiceSettings
from store.errors import StoreError
from tests.support.waiting import WAIT_SECONDS_MAX

SHOWN_AS = "broker-a"
QUESTION = pb.PullMessagesRequest(topic="orders", queue_id=3, queue_offset=40, max_messages=100)
MESSAGES = [StoredMessage(topic="orders", queue_id=3, queue_offset=40 + n, body=b"%d" % n) for n in range(3)]
HEAD = {"next_offset": 43, "min_offset": 7, "max_offset": 99, "status": gateway_pb.PULL_STATUS_FOUND}


def answer_of(request: pb.PullMessagesRequest) -> bytes:
    """As a service that knows `shown_as`."""
    head = pb.PullMessagesResponse(shown_as=request.shown_as, **HEAD)
    shown = pb.PullMessagesResponse(messages=MESSAGES)
    for message in shown.messages:
        message.broker_name, message.source = request.shown_as, MESSAGE_SOURCE_LIVE
    return head.SerializeToString() + shown.SerializeToString()


def older_answer_of(_request: pb.PullMessagesRequest) -> bytes:
    """As a service of an earlier release."""
    answer = pb.PullMessagesResponse(messages=MESSAGES, **HEAD)
    for message in answer.messages:
        message.broker_name = "its own name"
    return answer.SerializeToString()


@pytest.fixture
def pull(request):
    """Pulls from a service that makes its answers with the function that is the parameter."""
    method = grpc.unary_unary_rpc_method_handler(
        lambda asked, _: request.param(asked), request_deserializer=pb.PullMessagesRequest.FromString
    )
    server = ServiceServer("consumer", ServiceSettings())
    handlers = {"PullMessages": method}

    def add(_servicer, to):
        name = CONSUMER_SERVICE.strip("/")
        add_with_raw(lambda _, generated: generated.add_registered_method_handlers(name, {}), None, handlers, to)

    server.add(CONSUMER_SERVICE.strip("/"), add, None)
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    client = ServiceClient("consumer", server.address)

    def ask(shown_as=SHOWN_AS):
        question = pb.PullMessagesRequest()
        question.CopyFrom(QUESTION)
        question.shown_as = shown_as
        outcomes = queue.SimpleQueue()
        RemoteDelivering(SHOWN_AS, client).pull(question, WAIT_SECONDS_MAX, outcomes.put)
        return outcomes.get(timeout=WAIT_SECONDS_MAX)

    yield ask
    client.close()
    server.stop()
    ended.join()


@pytest.mark.parametrize("pull", [answer_of, older_answer_of], indirect=True)
def test_the_gateway_shows_the_messages_of_a_new_and_of_an_older_service_alike(pull):
    pulled = pull()

    answer = pulled.answer
    assert (answer.next_offset, answer.min_offset, answer.max_offset) == (43, 7, 99)
    assert answer.status == gateway_pb.PULL_STATUS_FOUND
    (shown,) = map(gateway_pb.PullMessagesResponse.FromString, responses_of(pulled, SHOWN_AS))
    assert [message.body for message in shown.messages] == [b"0", b"1", b"2"]
    assert {(message.broker_name, message.source) for message in shown.messages} == {(SHOWN_AS, MESSAGE_SOURCE_LIVE)}
    assert shown.next_offset == 43


@pytest.mark.parametrize("pull", [answer_of], indirect=True)
def test_messages_that_came_as_bytes_can_be_looked_at(pull):
    messages = pull().messages

    assert isinstance(messages, EncodedMessages)
    assert (len(messages), bool(messages)) == (3, True)
    assert messages[-1].queue_offset == 42
    assert [message.body for message in messages[1:]] == [b"1", b"2"]
    assert not EncodedMessages(memoryview(b""), "broker-a")


@pytest.mark.parametrize("pull", [answer_of], indirect=True)
def test_only_callers_that_want_bytes_get_them(pull):
    pulled = pull(shown_as="")

    assert isinstance(pulled, Pulled)
    assert [message.body for message in pulled.messages] == [b"0", b"1", b"2"]
    assert not isinstance(pulled.messages, EncodedMessages)


@pytest.mark.parametrize("pull", [lambda _: b"\x07 no answer"], indirect=True)
def test_bytes_that_are_no_answer_are_an_error_of_the_service(pull):
    assert isinstance(pull(), StoreError)
