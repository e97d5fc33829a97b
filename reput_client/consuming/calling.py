"""Calls of `apache.rocketmq.v2.MessagingService`: stubs and metadata, for both kinds of channels."""

from typing import Any

from apache.rocketmq.v2 import rocketmq_pb2 as v2

SERVICE = "/apache.rocketmq.v2.MessagingService/"
# Which behaviour a server may expect, by the versions of RocketMQ's own clients.
CONTRACT_VERSION = "5.1.0"

Metadata = tuple[tuple[str, str], ...]


def metadata_of(client_id: str) -> Metadata:
    """What each call says about its client."""
    return (
        ("x-mq-client-id", client_id),
        ("x-mq-language", "PYTHON"),
        ("x-mq-client-version", CONTRACT_VERSION),
        ("x-mq-protocol", "GRPC_V2"),
    )


class Stubs:
    """The stubs of one channel, of grpc's or of grpc.aio's; each is made when it is first called.

    Args:
        channel: the channel.
    """

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._stubs: dict[str, Any] = {}

    def unary(self, method: str) -> Any:
        """The stub of an RPC with one response."""
        return self._stubs.get(method) or self._make(method, self.channel.unary_unary, f"{method}Response")

    def stream(self, method: str) -> Any:
        """The stub of an RPC with a stream of responses."""
        return self._stubs.get(method) or self._make(method, self.channel.unary_stream, f"{method}Response")

    def telemetry(self) -> Any:
        """The stub of Telemetry."""
        return self._stubs.get("Telemetry") or self._make(
            "Telemetry", self.channel.stream_stream, v2.TelemetryCommand.__name__
        )

    def _make(self, method: str, factory: Any, response: str) -> Any:
        stub = self._stubs[method] = factory(
            SERVICE + method,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=getattr(v2, response).FromString,
        )
        return stub
