"""Calls to a gateway: one channel, and a time limit and a retry policy for each call. Every client class builds on it."""

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.channel import SERVICE, open_async_channel, open_channel
from reput_client.retry import RetryPolicy, acall_with_retries, call_with_retries
from reput_client.security import ClientSecurity
from reput_client.status import error_of_call

ADDRESS_DEFAULT = "127.0.0.1:8081"
TIMEOUT_SECONDS_DEFAULT = 30.0
_ONE_ATTEMPT = RetryPolicy(attempt_count_max=1)


class _Methods:
    """Stubs of the gateway's RPCs on a channel, of grpc's or of grpc.aio's; each is made when it is first called."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._stubs: dict[str, Any] = {}

    def unary(self, method: str) -> Any:
        """The stub of an RPC with one response."""
        return self._stubs.get(method) or self._make(method, self._channel.unary_unary)

    def stream(self, method: str) -> Any:
        """The stub of an RPC with a stream of responses."""
        return self._stubs.get(method) or self._make(method, self._channel.unary_stream)

    def _make(self, method: str, factory: Any) -> Any:
        # The response of the RPC `X` is the message `XResponse`, throughout the contract.
        response_class = getattr(pb, f"{method}Response")
        stub = self._stubs[method] = factory(
            SERVICE + method,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=response_class.FromString,
        )
        return stub


class GatewayCalls:
    """The calls that `QueryClient` and `AppendClient` make; for any number of threads.

    Args:
        target: the gateway, `HOST:PORT`.
        channel: used instead of one of its own; `close` leaves it open.
        security: TLS and credentials of its own channel.
        timeout_seconds: limit of one call with all its attempts.
        retry: how often and how fast a failed call is tried again.

    Raises:
        OSError: a file of `security` cannot be read.
        ValueError: `security` does not fit the target.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        *,
        channel: grpc.Channel | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.target = target
        self._owns_channel = channel is None
        self._channel = channel or open_channel(target, security)
        self._methods = _Methods(self._channel)
        self._timeout_seconds = timeout_seconds
        self._retry = retry or RetryPolicy()

    def call(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """The response of one unary RPC of `reput.gateway.v1.GatewayService`, as a protobuf message.

        Args:
            method: the RPC's name, such as `GetStatus`.
            request: its request message.
            is_repeatable: the RPC may be sent again after a failure; otherwise there is one attempt.

        Raises:
            ReputClientError: the last attempt's typed error.
        """
        stub = self._methods.unary(method)
        policy = self._retry if is_repeatable else _ONE_ATTEMPT
        return call_with_retries(lambda seconds: stub(request, timeout=seconds), self._timeout_seconds, policy)

    def download(self, request: pb.DownloadBodyRequest) -> bytes:
        """The stored body that the chunks of DownloadBody make; errors as `call`."""
        stub = self._methods.stream("DownloadBody")

        def join(seconds: float) -> bytes:
            return b"".join(response.chunk for response in stub(request, timeout=seconds))

        return call_with_retries(join, self._timeout_seconds, self._retry)

    def stream(self, method: str, request: Any, timeout_seconds: float | None = None) -> Iterator[Any]:
        """The responses of an RPC with a stream of them, which is sent once; errors as `call`.

        Closing the iterator ends the call. `timeout_seconds` limits the whole stream; None: no limit.
        """
        responses = self._methods.stream(method)(request, timeout=timeout_seconds)
        try:
            yield from responses
        except grpc.RpcError as rpc_error:
            raise error_of_call(rpc_error) from rpc_error
        finally:
            responses.cancel()

    def close(self) -> None:
        """Close the channel, unless it was given."""
        if self._owns_channel:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r})"


class AsyncGatewayCalls:
    """The same for asyncio: the calls that `AsyncQueryClient` and `AsyncAppendClient` make; for tasks of one event loop.

    Arguments and errors are those of `GatewayCalls`.
    """

    def __init__(
        self,
        target: str = ADDRESS_DEFAULT,
        *,
        channel: grpc.aio.Channel | None = None,
        security: ClientSecurity | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.target = target
        self._owns_channel = channel is None
        self._channel = channel or open_async_channel(target, security)
        self._methods = _Methods(self._channel)
        self._timeout_seconds = timeout_seconds
        self._retry = retry or RetryPolicy()

    async def call(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """See `GatewayCalls.call`."""
        stub = self._methods.unary(method)
        policy = self._retry if is_repeatable else _ONE_ATTEMPT
        return await acall_with_retries(lambda seconds: stub(request, timeout=seconds), self._timeout_seconds, policy)

    async def download(self, request: pb.DownloadBodyRequest) -> bytes:
        """See `GatewayCalls.download`."""
        stub = self._methods.stream("DownloadBody")

        async def join(seconds: float) -> bytes:
            return b"".join([response.chunk async for response in stub(request, timeout=seconds)])

        return await acall_with_retries(join, self._timeout_seconds, self._retry)

    async def stream(self, method: str, request: Any) -> AsyncIterator[Any]:
        """See `GatewayCalls.stream`."""
        responses = self._methods.stream(method)(request)
        try:
            async for response in responses:
                yield response
        except grpc.RpcError as rpc_error:
            raise error_of_call(rpc_error) from rpc_error
        finally:
            responses.cancel()

    async def close(self) -> None:
        """Close the channel, unless it was given."""
        if self._owns_channel:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r})"
