"""A gateway that answers queries from a script, asked by the sync and by the asyncio client."""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from google.rpc import status_pb2

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client import AsyncQueryClient, QueryClient, RetryPolicy
from services.status import DETAILS_KEY

QUICK = RetryPolicy(attempt_count_max=4, pause_seconds_first=0.001, pause_seconds_max=0.002)


class FakeQueries(grpc.GenericRpcHandler):
    """Answers each call with the next of `script`: a response, or a Status; the chunks of a body in a list."""

    def __init__(self, script: Any) -> None:
        self.script = deque(script)
        self.methods: list[str] = []
        self.requests: list[bytes] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        if details.method.endswith("/DownloadBody"):
            return grpc.unary_stream_rpc_method_handler(self._download)
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.methods.append("call")
        self.requests.append(request)
        answer = self.script.popleft()
        if isinstance(answer, status_pb2.Status):
            _abort(context, answer)
        return answer.SerializeToString()

    def _download(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self.methods.append("download")
        for chunk in self.script.popleft():
            if isinstance(chunk, status_pb2.Status):
                _abort(context, chunk)
            yield pb.DownloadBodyResponse(chunk=chunk).SerializeToString()


def _abort(context: grpc.ServicerContext, status: status_pb2.Status) -> None:
    context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    context.abort(code, status.message)


Ask = Callable[..., Any]


@pytest.fixture(params=[QueryClient, AsyncQueryClient], ids=lambda each: each.__name__)
def ask(request: Any) -> Iterator[Ask]:
    """`ask(script, question, **options)`: the fake and what `question(client)` came to, a list for what is iterated."""
    servers = []

    def run(script: Any, question: Callable[[Any], Any], **options: Any) -> tuple[FakeQueries, Any]:
        fake = FakeQueries(script)
        server = grpc.server(futures.ThreadPoolExecutor(4))
        servers.append(server)
        server.add_generic_rpc_handlers((fake,))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        options = {"retry": QUICK, **options}
        if request.param is QueryClient:
            with QueryClient(address, **options) as client:
                found = question(client)
                return fake, list(found) if hasattr(found, "__next__") else found

        async def main() -> Any:
            async with AsyncQueryClient(address, **options) as client:
                found = question(client)
                if isinstance(found, AsyncIterator):
                    return [item async for item in found]
                return await found if inspect.isawaitable(found) else found

        return fake, asyncio.run(main())

    yield run
    for server in servers:
        server.stop(0).wait()
