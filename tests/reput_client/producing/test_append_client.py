"""One request of messages: what is sent, what comes back, and when it is sent again."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from reput.message.v1 import message_pb2
from reput_client import (
    AppendClient,
    AsyncAppendClient,
    FlushMode,
    InvalidMessageError,
    NewMessage,
    RetryPolicy,
    UnavailableError,
)
from services.status import DETAILS_KEY
from tests.reput_client.fake_gateway import refusal

QUICK = RetryPolicy(attempt_count_max=4, pause_seconds_first=0.001, pause_seconds_max=0.002)
GONE = refusal(grpc.StatusCode.UNAVAILABLE, "SERVICE_UNAVAILABLE")


class Appends(pb_grpc.GatewayServiceServicer):
    """Answers each request with the next failure of `script`, then with receipts."""

    def __init__(self) -> None:
        self.script: deque[Any] = deque()
        self.requests: list[pb.AppendMessagesRequest] = []

    def AppendMessages(
        self, request: pb.AppendMessagesRequest, context: grpc.ServicerContext
    ) -> pb.AppendMessagesResponse:
        self.requests.append(request)
        if self.script:
            status = self.script.popleft()
            context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
            context.abort(next(code for code in grpc.StatusCode if code.value[0] == status.code), status.message)
        results = [message_pb2.AppendResult(queue_offset=place) for place in range(len(request.messages))]
        return pb.AppendMessagesResponse(results=results)


Append = Callable[..., Any]


@pytest.fixture
def appends() -> Appends:
    return Appends()


@pytest.fixture(params=[AppendClient, AsyncAppendClient], ids=lambda each: each.__name__)
def append(request: pytest.FixtureRequest, appends: Appends) -> Iterator[Append]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    pb_grpc.add_GatewayServiceServicer_to_server(appends, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()

    def run(*args: Any, **named: Any) -> Any:
        if request.param is AppendClient:
            with AppendClient(address, retry=QUICK) as client:
                return client.append(*args, **named)

        async def main() -> Any:
            async with AsyncAppendClient(address, retry=QUICK) as client:
                return await client.append(*args, **named)

        return asyncio.run(main())

    yield run
    server.stop(0).wait()


def test_values_and_messages_of_the_contract_are_sent_and_each_has_its_receipt(
    append: Append, appends: Appends
) -> None:
    contract = message_pb2.NewMessage(topic="T", body=b"two", unique_key="U")
    receipts = append([NewMessage("T", b"one", keys=["k"], queue_id=3), contract], flush_mode=FlushMode.SYNC)

    assert [receipt.queue_offset for receipt in receipts] == [0, 1]
    (request,) = appends.requests
    assert request == pb.AppendMessagesRequest(
        messages=[message_pb2.NewMessage(topic="T", body=b"one", keys=["k"], queue_id=3), contract],
        flush=message_pb2.FLUSH_MODE_SYNC,
    )
    assert not request.messages[0].HasField("unique_key"), "the store makes it"


def test_only_a_request_that_is_stored_once_is_sent_again(append: Append, appends: Appends) -> None:
    message = NewMessage("T", b"x", unique_key="U")
    appends.script.append(GONE)
    with pytest.raises(UnavailableError):
        append([message])
    assert len(appends.requests) == 1

    appends.script.append(GONE)
    append([message], deduplicate=True)
    assert [request.deduplicate for request in appends.requests] == [False, True, True]


def test_a_refusal_has_its_reason(append: Append, appends: Appends) -> None:
    appends.script.append(refusal(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE", {"field": "body"}))
    with pytest.raises(InvalidMessageError) as caught:
        append([NewMessage("T", b"")])

    assert (caught.value.reason, caught.value.metadata) == ("INVALID_MESSAGE", {"field": "body"})
