"""Appends on their way to the shards' commitlogs, in turn, as the bytes that came: their messages are the same on the wire.

They go over a plain socket where the commitlog is of this machine and lets us in (services/append_calls.py), otherwise over
gRPC. What a commitlog refuses arrives unchanged, trailers included. Nothing is tried again: an append is not idempotent.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import structlog
from grpc_status import rpc_status

from gateway.answer_gate import UNANSWERED_COUNT_MAX, AnswerGate
from gateway.append_coalescer import SENDER_COUNT, AppendCoalescer, AppendFailedError, PendingAppend
from services.append_pump import Pumped, StreamPump
from services.append_wire import FLUSH_MODE_COUNT, read_small_append, split_results
from services.clients.appends import AppendClient, AppendStatusError
from services.deadline import remaining_seconds
from services.status import error_info, from_rpc_error, status_of, to_status
from services.unary_call import Answerable, AnsweredLater
from store.errors import DeadlineExceededError, StoreError

APPEND_SECONDS_DEFAULT = 60.0
# Deadlines further away than this are gRPC's "never".
STREAM_SECONDS_MAX = 86_400.0
COMMITLOG_SERVICE = "/reput.commitlog.v1.CommitLogService/"
ALONE_COUNT_DEFAULT = 16

_log = structlog.get_logger("reput.gateway")


class AppendForwarder:
    """Hands on unary appends, small ones together, and append streams, each as it is.

    Args:
        channels: to the commitlogs.
        alone_count: requests under way at the same time that are sent alone: large ones, or with a wish of their own.
        targets: the commitlogs' addresses; without them, everything goes over the channels.
    """

    def __init__(
        self,
        channels: Sequence[grpc.Channel],
        alone_count: int = ALONE_COUNT_DEFAULT,
        targets: Sequence[str] = (),
    ) -> None:
        self._alone = ThreadPoolExecutor(alone_count, thread_name_prefix="append-alone")
        self._senders = ThreadPoolExecutor(
            SENDER_COUNT * FLUSH_MODE_COUNT * len(channels), thread_name_prefix="append-sender"
        )
        self._all = [
            _Commitlog(channel, AppendClient(targets[i] if targets else ""), self._senders)
            for i, channel in enumerate(channels)
        ]
        self._commitlogs = itertools.cycle(self._all)
        self._stream_count = 0

    def handlers(self) -> dict[str, Any]:
        """The handlers, without serializers: requests and responses stay bytes."""
        return {
            "AppendMessages": grpc.unary_unary_rpc_method_handler(AnsweredLater(self.append_messages)),
            "AppendMessageStream": grpc.stream_stream_rpc_method_handler(
                Pumped(self.append_message_stream, self.pump_message_stream)
            ),
        }

    def append_messages(self, request: bytes, caller: Answerable) -> None:
        """One request, one response; returns at once."""
        commitlog = next(self._commitlogs)
        deadline_seconds = time.monotonic() + remaining_seconds(caller, APPEND_SECONDS_DEFAULT)
        small = read_small_append(request)
        if small is None:
            self._alone.submit(commitlog.send_alone, request, deadline_seconds, caller)
        else:
            commitlog.coalescer.offer(
                PendingAppend(request, small.message_count, small.flush, deadline_seconds, caller)
            )

    def append_message_stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """A stream for a stream, over gRPC.

        gRPC takes a request from the caller only when the one before was sent on, and a response only when the one
        before was taken; and no request is taken while many of its forerunners' responses were not. So for a caller who
        does not read, no request is held here. The end of the requests is passed on; when either side gives up, so does
        the other.
        """
        gate = AnswerGate(requests)
        remaining = context.time_remaining()
        timeout = remaining if remaining is not None and remaining < STREAM_SECONDS_MAX else None
        call = self._next_of_streams().open_stream(gate, timeout)
        self._stream_count += 1

        def end() -> None:
            gate.close()
            call.cancel()

        if not context.add_callback(end):
            end()
        try:
            for response in call:
                yield response
                gate.answered()
        except grpc.RpcError as rpc_error:
            context.abort_with_status(rpc_status.to_status(_failure_of(rpc_error).status))
        except AppendStatusError as error:
            context.abort_with_status(rpc_status.to_status(error.status))
        finally:
            end()

    def pump_message_stream(self, pump: StreamPump, context: grpc.ServicerContext) -> bool:
        """The same over the commitlog's socket, to which gRPC's polling thread gives the requests; False without one.

        Its caller's deadline ends it like a caller who goes away.
        """
        stream = self._next_of_streams().local.open_stream()
        if stream is None:
            return False
        self._stream_count += 1
        if not context.add_callback(stream.cancel):
            stream.cancel()
        pump.start(stream.give, UNANSWERED_COUNT_MAX)
        try:
            for response in stream:
                pump.send(response)
        except AppendStatusError as error:
            context.abort_with_status(rpc_status.to_status(error.status))
        finally:
            pump.wait_until_sent()  # an end that overtook answers would take them away
        return True

    def close(self) -> None:
        """Send nothing more; who still waits is not answered."""
        self._alone.shutdown(wait=False, cancel_futures=True)
        self._senders.shutdown(wait=False, cancel_futures=True)
        for commitlog in self._all:
            commitlog.local.close()

    def _next_of_streams(self) -> "_Commitlog":
        """Whose turn it is; who finds no socket there asks again."""
        return self._all[self._stream_count % len(self._all)]


class _Commitlog:
    """Sends requests to one commitlog."""

    def __init__(self, channel: grpc.Channel, local: AppendClient, senders: ThreadPoolExecutor) -> None:
        self._append: Any = channel.unary_unary(COMMITLOG_SERVICE + "AppendMessages")
        self._two_way: Any = channel.stream_stream(COMMITLOG_SERVICE + "AppendMessageStream")
        self.local = local
        self.coalescer = AppendCoalescer(
            self._send, split_results, senders, clock=time.monotonic, expired=_expired, broken=_broken
        )

    def open_stream(self, requests: Iterator[bytes], timeout_seconds: float | None) -> Any:
        """A stream under way, over gRPC: its answers, and `cancel`."""
        return self._two_way(requests, timeout=timeout_seconds)

    def send_alone(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        try:
            caller.answer(self._send(request, deadline_seconds - time.monotonic()))
        except AppendFailedError as error:
            caller.fail(error.status)
        except Exception:
            _log.exception("append.failed", count=1)
            caller.fail(_broken())

    def _send(self, request: bytes, seconds: float) -> bytes:
        deadline_seconds = time.monotonic() + seconds
        try:
            response = self.local.append(request, seconds)
            if response is None:
                response = self._append(request, timeout=deadline_seconds - time.monotonic())
        except AppendStatusError as error:
            raise _failure(error.status) from error
        except StoreError as error:
            raise AppendFailedError(to_status(error)) from error
        except grpc.RpcError as rpc_error:
            raise _failure_of(rpc_error) from rpc_error
        return response


def _failure_of(rpc_error: Any) -> AppendFailedError:
    """What the commitlog said, as it said it; or what gRPC said, which never means that nothing was written."""
    status = status_of(rpc_error)
    return AppendFailedError(to_status(from_rpc_error(rpc_error, "commitlog"))) if status is None else _failure(status)


def _failure(status: Any) -> AppendFailedError:
    info = error_info(status)
    # Ours, and of its kind: the whole request was checked before any of it was written.
    is_refused = info is not None and status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    index = info.metadata.get("index", "") if info is not None else ""
    return AppendFailedError(status, is_refused=is_refused, index=int(index) if index.isdecimal() else None)


def _expired() -> Any:
    return to_status(DeadlineExceededError("the deadline passed before the append was sent", service="commitlog"))


def _broken() -> Any:
    return to_status(StoreError("the append's receipts cannot be told; the gateway's log has the cause"))
