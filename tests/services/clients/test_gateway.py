"""The gateway client over a real socket."""

import threading

import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from services.clients.gateway import GatewayClient
from services.server import ServiceServer
from services.settings import ServiceSettings
from store.errors import ServiceUnavailableError, StoreReadOnlyError, TopicNotFoundError


class Gateway(pb_grpc.GatewayServiceServicer):
    """Knows the topic `orders` and a body of three chunks."""

    def QueryMessageByKey(self, request, context):
        if request.topic != "orders":
            raise TopicNotFoundError("no such topic", topic=request.topic)
        return pb.QueryMessageByKeyResponse(next_page_token=request.key)

    def DownloadBody(self, request, context):
        for chunk in (b"a", b"b", b"c"):
            yield pb.DownloadBodyResponse(chunk=chunk, body_size_bytes=3)

    def AppendMessageStream(self, request_iterator, context):
        yield pb.AppendMessageStreamResponse()
        raise StoreReadOnlyError("the store is served read-only")


@pytest.fixture
def gateway():
    server = ServiceServer("gateway", ServiceSettings())
    server.add("reput.gateway.v1.GatewayService", pb_grpc.add_GatewayServiceServicer_to_server, Gateway())
    server.start()
    ended = threading.Thread(target=server.serve_until_stopped)
    ended.start()
    yield GatewayClient(server.address)
    server.stop()
    ended.join()


def test_a_query_goes_through_as_it_is(gateway):
    assert gateway.query_by_key(pb.QueryMessageByKeyRequest(topic="orders", key="k")).next_page_token == "k"


def test_an_unknown_topic_is_the_typed_error(gateway):
    with pytest.raises(TopicNotFoundError):
        gateway.query_by_key(pb.QueryMessageByKeyRequest(topic="other"))


def test_a_body_comes_whole(gateway):
    assert gateway.download_body(pb.DownloadBodyRequest()) == b"abc"


def test_an_append_stream_that_fails_gives_its_answers_and_then_the_typed_error(gateway):
    responses = gateway.append_stream([pb.AppendMessageStreamRequest()])

    assert next(responses) == pb.AppendMessageStreamResponse()
    with pytest.raises(StoreReadOnlyError):
        next(responses)


def test_a_gateway_that_is_not_there_is_unavailable():
    with pytest.raises(ServiceUnavailableError):
        GatewayClient("127.0.0.1:1", timeout_seconds=5, attempt_count_max=1).get_status()
