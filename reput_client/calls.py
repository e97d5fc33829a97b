"""Calls to a gateway: one channel, and a time limit and a retry policy for each call. Every client class builds on it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.channel import SERVICE, open_async_channel, open_channel
from reput_client.errors import error_of_call
from reput_client.retry import RetryPolicy, call_with_retries
from reput_client.security import ClientSecurity
from reput_client.threads_and_loops import run_blocking

ADDRESS_DEFAULT = "127.0.0.1:8081"
TIMEOUT_SECONDS_DEFAULT = 30.0
_ONE_ATTEMPT = RetryPolicy(attempt_count_max=1)


class Stubs:
    """The stubs of a service on one channel, of grpc's or of grpc.aio's; each is made when it is first called.

    Args:
        channel: the channel.
        service: its path, such as `/reput.gateway.v1.GatewayService/`.
        messages: the generated module; the response of the RPC `X` is its message `XResponse`.
    """

    def __init__(self, channel: Any, service: str = SERVICE, messages: Any = pb) -> None:
        self.channel = channel
        self._service = service
        self._messages = messages
        self._stubs: dict[str, Any] = {}

    def unary(self, method: str) -> Any:
        """The stub of an RPC with one response."""
        return self._stubs.get(method) or self._make(method, self.channel.unary_unary, f"{method}Response")

    def stream(self, method: str) -> Any:
        """The stub of an RPC with a stream of responses."""
        return self._stubs.get(method) or self._make(method, self.channel.unary_stream, f"{method}Response")

    def both_ways(self, method: str, response: str) -> Any:
        """The stub of an RPC with a stream of requests and a stream of responses, which are messages of that name."""
        return self._stubs.get(method) or self._make(method, self.channel.stream_stream, response)

    def _make(self, method: str, factory: Any, response: str) -> Any:
        stub = self._stubs[method] = factory(
            self._service + method,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=getattr(self._messages, response).FromString,
        )
        return stub


class CallCore:
    """The calls of `GatewayCalls` and `AsyncGatewayCalls`, as coroutines (see `threads_and_loops.py`).

    Args:
        target: the gateway, `HOST:PORT`.
        channel: to it.
        owns_channel: `close` closes it.
        timeout_seconds: limit of one call with all its attempts.
        retry: how often and how fast a failed call is tried again.
    """

    def __init__(
        self, target: str, channel: Any, timeout_seconds: float, retry: RetryPolicy | None, *, owns_channel: bool
    ) -> None:
        self.target = target
        self._channel = channel
        self._owns_channel = owns_channel
        self._stubs = Stubs(channel)
        self._timeout_seconds = timeout_seconds
        self._retry = retry or RetryPolicy()

    async def _call(self, method: str, request: Any, *, is_repeatable: bool) -> Any:
        stub = self._stubs.unary(method)
        policy = self._retry if is_repeatable else _ONE_ATTEMPT
        return await call_with_retries(
            lambda seconds: self._response(stub, request, seconds), self._sleep, self._timeout_seconds, policy
        )

    async def _download(self, request: pb.DownloadBodyRequest) -> bytes:
        stub = self._stubs.stream("DownloadBody")
        responses = await call_with_retries(
            lambda seconds: self._responses(stub, request, seconds), self._sleep, self._timeout_seconds, self._retry
        )
        return b"".join(response.chunk for response in responses)

    # The calls that wait. `_ask` and `_fetch_body` go by the public methods, which subclasses override.

    async def _ask(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """The response of a call; see `GatewayCalls.call`."""
        raise NotImplementedError

    async def _fetch_body(self, request: pb.DownloadBodyRequest) -> bytes:
        """The stored body of a message; see `GatewayCalls.download`."""
        raise NotImplementedError

    async def _response(self, stub: Any, request: Any, seconds: float) -> Any:
        raise NotImplementedError

    async def _responses(self, stub: Any, request: Any, seconds: float) -> Sequence[Any]:
        raise NotImplementedError

    async def _sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r})"


class GatewayCalls(CallCore):
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
        opened = channel or open_channel(target, security)
        super().__init__(target, opened, timeout_seconds, retry, owns_channel=channel is None)

    def call(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """The response of one unary RPC of `reput.gateway.v1.GatewayService`, as a protobuf message.

        Args:
            method: the RPC's name, such as `GetStatus`.
            request: its request message.
            is_repeatable: the RPC may be sent again after a failure; otherwise there is one attempt.

        Raises:
            ReputClientError: the last attempt's typed error.
        """
        return run_blocking(self._call, method, request, is_repeatable=is_repeatable)

    def download(self, request: pb.DownloadBodyRequest) -> bytes:
        """The stored body that the chunks of DownloadBody make; errors as `call`."""
        return run_blocking(self._download, request)

    def stream(self, method: str, request: Any, timeout_seconds: float | None = None) -> Iterator[Any]:
        """The responses of an RPC with a stream of them, which is sent once; errors as `call`.

        Closing the iterator ends the call. `timeout_seconds` limits the whole stream; None: no limit.
        """
        responses = self._stubs.stream(method)(request, timeout=timeout_seconds)
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

    async def _ask(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """See `CallCore._ask`."""
        return self.call(method, request, is_repeatable=is_repeatable)

    async def _fetch_body(self, request: pb.DownloadBodyRequest) -> bytes:
        """See `CallCore._fetch_body`."""
        return self.download(request)

    async def _response(self, stub: Any, request: Any, seconds: float) -> Any:
        return stub(request, timeout=seconds)

    async def _responses(self, stub: Any, request: Any, seconds: float) -> Sequence[Any]:
        return list(stub(request, timeout=seconds))

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncGatewayCalls(CallCore):
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
        opened = channel or open_async_channel(target, security)
        super().__init__(target, opened, timeout_seconds, retry, owns_channel=channel is None)

    async def call(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """See `GatewayCalls.call`."""
        return await self._call(method, request, is_repeatable=is_repeatable)

    async def download(self, request: pb.DownloadBodyRequest) -> bytes:
        """See `GatewayCalls.download`."""
        return await self._download(request)

    async def stream(self, method: str, request: Any) -> AsyncIterator[Any]:
        """See `GatewayCalls.stream`."""
        responses = self._stubs.stream(method)(request)
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

    async def _ask(self, method: str, request: Any, *, is_repeatable: bool = True) -> Any:
        """See `CallCore._ask`."""
        return await self.call(method, request, is_repeatable=is_repeatable)

    async def _fetch_body(self, request: pb.DownloadBodyRequest) -> bytes:
        """See `CallCore._fetch_body`."""
        return await self.download(request)

    async def _response(self, stub: Any, request: Any, seconds: float) -> Any:
        return await stub(request, timeout=seconds)

    async def _responses(self, stub: Any, request: Any, seconds: float) -> Sequence[Any]:
        return [response async for response in stub(request, timeout=seconds)]

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
