"""Unary calls in the place of an append stream, while the gateway has no place for one.

A gateway whose places for streams are in use refuses a stream, or ends one that was idle, with RESOURCE_BUSY. The producer then
sends each request in a call of its own, one after the other, which keeps their order, and tries a stream again after some
seconds. Both classes look like grpc's handle of a stream to the producer that uses them: requests are bytes of the same form,
and a refusal of one request is an answer with `error`, as on a stream.
"""

import asyncio
import random
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.channel import SERVICE
from reput_client.errors import DeadlineExceededError, InternalError, ServiceUnavailableError
from reput_client.status import error_of_status, status_of_call

# Between two attempts to open a stream. Unary calls cost the gateway about twice as much; a place may be free by then.
UNARY_SECONDS = 5.0
# They leave open whether anything was written, so they end the stream: its requests are sent again with `deduplicate`.
UNKNOWN_OUTCOMES = (ServiceUnavailableError, DeadlineExceededError, InternalError)


def unary_seconds() -> float:
    """How long to send with unary calls; random, so that clients that were refused together do not come back together."""
    return UNARY_SECONDS * random.uniform(0.5, 1.5)  # noqa: S311  # no secret


def open_append(channel: Any) -> Any:
    """The unary append of a channel; its answer is read as a stream's, which has the same first field."""
    return channel.unary_unary(
        SERVICE + "AppendMessages", response_deserializer=pb.AppendMessageStreamResponse.FromString
    )


def _refusal(rpc_error: Any) -> pb.AppendMessageStreamResponse:
    """The refusal of a request as a stream's answer; raises the RpcError when it does not say that nothing was written."""
    status = status_of_call(rpc_error)
    error = None if status is None else error_of_status(status)
    if error is None or not error.reason or isinstance(error, UNKNOWN_OUTCOMES):
        raise rpc_error
    return pb.AppendMessageStreamResponse(error=status)


class UnaryStream:
    """For the producer of threads: iterates over the answers.

    Args:
        append: as `open_append` gives it.
        requests: the requests; waits for each.
        seconds_max: the time of one call.
    """

    def __init__(self, append: Any, requests: Iterator[bytes], seconds_max: float) -> None:
        self._append = append
        self._requests = requests
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self._call: Any = None
        self._is_cancelled = False

    def __iter__(self) -> Iterator[pb.AppendMessageStreamResponse]:
        for request in self._requests:
            with self._lock:
                if self._is_cancelled:
                    return
                self._call = self._append.future(request, timeout=self._seconds_max)
            try:
                answer = self._call.result()
            except grpc.FutureCancelledError:
                return
            except grpc.RpcError as rpc_error:
                answer = _refusal(rpc_error)
            yield answer

    def cancel(self) -> None:
        """End it now, from any thread; what was sent may still be appended."""
        with self._lock:
            self._is_cancelled = True
            if self._call is not None:
                self._call.cancel()


class AsyncUnaryStream:
    """For the producer of asyncio: one task writes, another one reads.

    Args:
        append: as `open_append` gives it.
        seconds_max: the time of one call.
    """

    def __init__(self, append: Any, seconds_max: float) -> None:
        self._append = append
        self._seconds_max = seconds_max
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._call: Any = None
        self._is_over = False
        self._is_read = False  # an answer was given to the reader, which is not back yet

    async def write(self, request: bytes) -> None:
        """Send a request and wait until its answer has been read and looked at: a refusal may want no request after it."""
        if self._is_over:
            raise asyncio.InvalidStateError("the calls have ended")
        self._call = self._append(request, timeout=self._seconds_max)
        try:
            answer = await self._call
        except grpc.RpcError as rpc_error:
            try:
                answer = _refusal(rpc_error)
            except grpc.RpcError:
                self._is_over = True
                answer = rpc_error
        except asyncio.CancelledError:
            if not self._is_over:  # this task was cancelled, not the call
                self._call.cancel()
                raise
            return
        self._answers.put_nowait(answer)
        await self._answers.join()

    async def done_writing(self) -> None:
        """No request follows."""
        self._answers.put_nowait(grpc.aio.EOF)

    async def read(self) -> Any:
        """The next answer, or grpc's EOF; the RpcError that ended it."""
        if self._is_read:
            self._answers.task_done()
            self._is_read = False
        answer = await self._answers.get()
        self._is_read = True
        if isinstance(answer, grpc.RpcError):
            raise answer
        return answer

    def cancel(self) -> None:
        """End it now; what was sent may still be appended."""
        self._is_over = True
        if self._call is not None:
            self._call.cancel()
        self._answers.put_nowait(grpc.aio.EOF)
