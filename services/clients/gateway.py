"""Typed client of the gateway, for the command and for tests: requests and responses are the protos themselves.

client = GatewayClient("127.0.0.1:8081")
page = client.query_by_key(pb.QueryMessageByKeyRequest(topic="orders", key="o-1"))
"""

from collections.abc import Iterable, Iterator

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2_grpc as pb_grpc
from services import retry, status
from services.channel import open_channel
from services.deadline import SECONDS_DEFAULT

SERVICE = "gateway"


class GatewayClient:
    """Calls one gateway.

    Every method raises the typed StoreError with which the call failed. Queries are retried while the gateway cannot be
    reached, appends never.

    Args:
        target: `HOST:PORT` or `unix:/path`.
        channel: a channel to use instead of an own one.
        timeout_seconds: for each call.
        attempt_count_max: of a query; 1 = no retry.
    """

    def __init__(
        self,
        target: str,
        channel: grpc.Channel | None = None,
        *,
        timeout_seconds: float = SECONDS_DEFAULT,
        attempt_count_max: int = retry.ATTEMPT_COUNT_MAX,
    ) -> None:
        self.target = target
        self.channel = channel or open_channel(target)
        self.timeout_seconds = timeout_seconds
        self.attempt_count_max = attempt_count_max
        self._stub = pb_grpc.GatewayServiceStub(self.channel)

    def append(self, request: pb.AppendMessagesRequest) -> pb.AppendMessagesResponse:
        """Append messages in one piece."""
        return retry.call_once(
            lambda seconds: self._stub.AppendMessages(request, timeout=seconds), self.timeout_seconds, SERVICE
        )

    def append_stream(
        self, requests: Iterable[pb.AppendMessageStreamRequest]
    ) -> Iterator[pb.AppendMessageStreamResponse]:
        """Append pipelined: one response for each request, in order; a refused request has `error` set. No deadline."""
        try:
            yield from self._stub.AppendMessageStream(iter(requests))
        except grpc.RpcError as rpc_error:
            raise status.from_rpc_error(rpc_error, SERVICE) from rpc_error

    def query_by_key(self, request: pb.QueryMessageByKeyRequest) -> pb.QueryMessageByKeyResponse:
        """One page of messages with a business key, newest first."""
        return self._query(self._stub.QueryMessageByKey, request)

    def query_by_id(self, request: pb.QueryMessageByIdRequest) -> pb.QueryMessageByIdResponse:
        """The message that an offsetMsgId names."""
        return self._query(self._stub.QueryMessageById, request)

    def query_by_unique_key(self, request: pb.QueryMessageByUniqueKeyRequest) -> pb.QueryMessageByUniqueKeyResponse:
        """One page of the copies with a unique key, newest first."""
        return self._query(self._stub.QueryMessageByUniqueKey, request)

    def query_by_offset(self, request: pb.QueryMessageByOffsetRequest) -> pb.QueryMessageByOffsetResponse:
        """Messages from a position of a queue on."""
        return self._query(self._stub.QueryMessageByOffset, request)

    def download_body(self, request: pb.DownloadBodyRequest) -> bytes:
        """The whole stored body of a message."""

        def download(seconds: float) -> bytes:
            return b"".join(part.chunk for part in self._stub.DownloadBody(request, timeout=seconds))

        return retry.call_idempotent(download, self.timeout_seconds, SERVICE, attempt_count_max=self.attempt_count_max)

    def search_offset(self, request: pb.SearchOffsetRequest) -> pb.SearchOffsetResponse:
        """The position of a queue for a store time."""
        return self._query(self._stub.SearchOffset, request)

    def list_topics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        """One page of topics with their queues."""
        return self._query(self._stub.ListTopics, request)

    def get_status(self) -> pb.GetStatusResponse:
        """The state of every shard and service."""
        return self._query(self._stub.GetStatus, pb.GetStatusRequest())

    def close(self) -> None:
        """Close the channel."""
        self.channel.close()

    def _query(self, method, request):  # type: ignore[no-untyped-def]  # each caller states the pair of types
        return retry.call_idempotent(
            lambda seconds: method(request, timeout=seconds),
            self.timeout_seconds,
            SERVICE,
            attempt_count_max=self.attempt_count_max,
        )
