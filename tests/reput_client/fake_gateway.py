"""A gateway that keeps messages in memory and fails as a test says, on a real gRPC server."""

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2

OK, LOST, BREAK, HANG = "ok", "lost", "break", "hang"


def refusal(
    code: grpc.StatusCode, reason: str, metadata: dict[str, str] | None = None, retry_seconds: float | None = None
) -> status_pb2.Status:
    """A status as the services make them."""
    status = status_pb2.Status(code=code.value[0], message=f"refused: {reason}")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="reput", metadata=metadata or {}))
    if retry_seconds is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(retry_seconds * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


class FakeGateway:
    """What each request meets is the next of `script`, or OK once that is empty.

        OK          stored and answered
        LOST        stored; the stream breaks before the answer
        BREAK       the stream breaks before it is stored
        HANG        no answer until the test ends
        a Status    refused with it
        a function  called with the request; returns one of the above

    Attributes:
        stored: messages in the order of storing.
        requests: every request that came, in order.
        streams: streams begun.
        stream_refusal: a Status for every stream, at its beginning; None: streams are served.
        unary_count: requests that came in calls of their own.
    """

    def __init__(self, *script: Any) -> None:
        self.script = deque(script)
        self.stored: list[message_pb2.NewMessage] = []
        self.requests: list[pb.AppendMessageStreamRequest] = []
        self.streams = 0
        self.stream_refusal: status_pb2.Status | None = None
        self.unary_count = 0
        self.ended_streams = 0
        self.released = threading.Event()
        self.changed = threading.Condition()
        self._results: dict[tuple[str, str], message_pb2.AppendResult] = {}
        self._server: Any = None
        self.address = ""

    def start(self, address: str = "127.0.0.1:0") -> None:
        """Serve."""
        self._server = grpc.server(
            futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", 8 << 20)]
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._append_stream,
            pb.AppendMessageStreamRequest.FromString,
            pb.AppendMessageStreamResponse.SerializeToString,
        )
        unary = grpc.unary_unary_rpc_method_handler(
            self._append, pb.AppendMessageStreamRequest.FromString, pb.AppendMessagesResponse.SerializeToString
        )
        service = grpc.method_handlers_generic_handler(
            "reput.gateway.v1.GatewayService", {"AppendMessageStream": handler, "AppendMessages": unary}
        )
        self._server.add_generic_rpc_handlers((service,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port(address)}"
        self._server.start()

    def stop(self) -> None:
        """End, cutting what is under way."""
        self.released.set()
        self._server.stop(0).wait()

    def bodies(self) -> list[bytes]:
        """Of the stored messages, in order."""
        return [message.body for message in self.stored]

    def wait_for(self, predicate: Any, seconds: float = 30.0) -> None:
        """Wait for a state; fails when it does not come."""
        with self.changed:
            assert self.changed.wait_for(predicate, seconds)

    def _append_stream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        with self.changed:
            self.streams += 1
            self.changed.notify_all()
        if self.stream_refusal is not None:
            context.abort_with_status(rpc_status.to_status(self.stream_refusal))
        try:
            for request in requests:
                with self.changed:
                    self.requests.append(request)
                    action = self.script.popleft() if self.script else OK
                    self.changed.notify_all()
                if callable(action):
                    action = action(request)
                if action == HANG:
                    self.released.wait()
                    return
                if isinstance(action, status_pb2.Status):
                    yield pb.AppendMessageStreamResponse(error=action)
                    continue
                if action == BREAK:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")
                results = self._store(request)
                if action == LOST:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "answer lost by the test")
                yield pb.AppendMessageStreamResponse(results=results)
        finally:
            with self.changed:
                self.ended_streams += 1
                self.changed.notify_all()

    def _append(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self.changed:
            self.unary_count += 1
            self.requests.append(request)
            action = self.script.popleft() if self.script else OK
            self.changed.notify_all()
        if action == HANG:
            self.released.wait()
        if isinstance(action, status_pb2.Status):
            context.abort_with_status(rpc_status.to_status(action))
        if action == BREAK:
            context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the test")
        results = self._store(request)
        if action == LOST:
            context.abort(grpc.StatusCode.UNAVAILABLE, "answer lost by the test")
        return pb.AppendMessagesResponse(results=results)

    def _store(self, request: pb.AppendMessageStreamRequest) -> list[message_pb2.AppendResult]:
        results = []
        with self.changed:
            for message in request.messages:
                name = message.topic, message.unique_key
                if request.deduplicate and name in self._results:
                    known = message_pb2.AppendResult()
                    known.CopyFrom(self._results[name])
                    known.deduplicated = True
                    results.append(known)
                    continue
                offset = len(self.stored)
                result = message_pb2.AppendResult(
                    unique_key=message.unique_key, queue_offset=offset, offset_msg_id=f"{offset:032X}"
                )
                self.stored.append(message)
                self._results[name] = result
                results.append(result)
            self.changed.notify_all()
        return results


@contextlib.contextmanager
def fake_gateway(*script: Any) -> Iterator[FakeGateway]:
    """One that is gone when the block ends."""
    gateway = FakeGateway(*script)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()
