"""Appends to one commitlog, and the meaning of its failures.

They go over a local socket if the commitlog runs on this machine and accepts us, otherwise over gRPC. The caller gets the
commitlog's status unchanged. Nothing is sent again here, because an append is not idempotent.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import structlog

from gateway.appends.coalescer import SENDER_COUNT, AppendCoalescer, AppendFailedError, PendingAppend
from gateway.appends.request_bytes import FLUSH_MODE_COUNT, read_small_append, split_results
from services.local.appends import AppendClient
from services.serving.unary_call import Answerable
from services.status import StatusError, error_info, from_rpc_error, status_of, to_status
from store.errors import DeadlineExceededError, ResourceBusyError, ServiceUnavailableError, StoreError

COMMITLOG_SERVICE = "/reput.commitlog.v1.CommitLogService/"
ALONE_COUNT_DEFAULT = 16
NOT_SENT = "notSent"
# The begin of gRPC's details when it had no connection to send on. Any other text counts as "may have been sent", which is
# always safe; a test fails when a release changes these texts.
NOT_SENT_DETAILS = ("failed to connect to all addresses", "errors resolving ", "empty address list")
# Reasons that a commitlog gives before it writes anything, and that may not hold for another shard.
NOT_HERE_REASONS = frozenset(
    {"STORE_RECOVERING", "DISK_FULL", "STORE_READ_ONLY", "RESOURCE_BUSY", "TOPIC_NOT_FOUND", "BROKER_NOT_FOUND"}
)
# The reason, beside INVALID_ARGUMENT, that names a single message by its `index`.
TOPIC_NOT_FOUND_REASON = "TOPIC_NOT_FOUND"

_log = structlog.get_logger("reput.gateway")


class Commitlog:
    """Sends requests to one commitlog. It has its own threads, so a commitlog that hangs blocks no other.

    Args:
        channel: the gRPC channel to it.
        target: its address; empty: requests go over the channel only.
        alone_count: requests sent alone at the same time: large ones, or with options of their own.
        broker_name: its shard's name.

    Attributes:
        local: the client over local sockets.
    """

    def __init__(
        self, channel: grpc.Channel, target: str, alone_count: int = ALONE_COUNT_DEFAULT, broker_name: str = ""
    ) -> None:
        self.broker_name = broker_name
        self.local = AppendClient(target)
        self._append: Any = channel.unary_unary(COMMITLOG_SERVICE + "AppendMessages")
        self._two_way: Any = channel.stream_stream(COMMITLOG_SERVICE + "AppendMessageStream")
        self._alone = ThreadPoolExecutor(alone_count, thread_name_prefix="append-alone")
        self._senders = ThreadPoolExecutor(SENDER_COUNT * FLUSH_MODE_COUNT, thread_name_prefix="append-sender")
        self._coalescer = AppendCoalescer(
            self._send, split_results, self._senders, clock=time.monotonic, expired=_expired, broken=broken
        )

    def send(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """Send a request, in a batch with others if it is small. Returns at once; the caller is answered later.

        Args:
            request: the bytes of an AppendMessagesRequest.
            deadline_seconds: on the monotonic clock.
            caller: gets the response.
        """
        small = read_small_append(request)
        if small is None:
            self.send_alone(request, deadline_seconds, caller)
        else:
            self._coalescer.offer(PendingAppend(request, small.message_count, small.flush, deadline_seconds, caller))

    def send_alone(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        """Send a request in a call of its own; arguments as `send`."""
        self._alone.submit(self._send_alone, request, deadline_seconds, caller)

    def open_stream(self, requests: Iterator[bytes], timeout_seconds: float | None) -> Any:
        """A stream over gRPC: an iterator over its responses, with `cancel`."""
        return self._two_way(requests, timeout=timeout_seconds)

    def close(self) -> None:
        """Send no more requests; waiting callers get no response."""
        self._alone.shutdown(wait=False, cancel_futures=True)
        self._senders.shutdown(wait=False, cancel_futures=True)
        self.local.close()

    def _send_alone(self, request: bytes, deadline_seconds: float, caller: Answerable) -> None:
        try:
            caller.answer(self._send(request, deadline_seconds - time.monotonic()))
        except AppendFailedError as error:
            caller.fail(error.status)
        except Exception:
            _log.exception("append.failed", count=1)
            caller.fail(broken())

    def _send(self, request: bytes, seconds: float) -> bytes:
        deadline_seconds = time.monotonic() + seconds
        try:
            response = self.local.append(request, seconds)
            if response is None:
                response = self._append(request, timeout=deadline_seconds - time.monotonic())
        except StatusError as error:
            raise _failure(error.status) from error
        except StoreError as error:
            raise AppendFailedError(to_status(error)) from error
        except grpc.RpcError as rpc_error:
            raise failure_of(rpc_error) from rpc_error
        return response


def failure_of(rpc_error: Any) -> AppendFailedError:
    """The commitlog's status, unchanged; or gRPC's status. Of gRPC's, only NOT_SENT_DETAILS mean that nothing was sent."""
    status = status_of(rpc_error)
    is_exhausted = rpc_error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    if status is not None and (error_info(status) is not None or not is_exhausted):
        return _failure(status)
    error = from_rpc_error(rpc_error, "commitlog")
    if isinstance(error, ResourceBusyError):
        # From gRPC or a proxy, perhaps after it had sent the request. RESOURCE_BUSY would mean that the commitlog refused it.
        error = ServiceUnavailableError(error.message, **{"service": "commitlog", **error.metadata})
    if rpc_error.code() is grpc.StatusCode.UNAVAILABLE and (rpc_error.details() or "").startswith(NOT_SENT_DETAILS):
        error.metadata[NOT_SENT] = "true"
    return AppendFailedError(to_status(error))


def was_not_written(status: Any) -> bool:
    """Whether nothing was written, for a reason that may not hold for another shard."""
    info = error_info(status)
    return info is not None and (info.reason in NOT_HERE_REASONS or info.metadata.get(NOT_SENT) == "true")


def was_refused(status: Any) -> bool:
    """Whether nothing was written because of the request itself; a commitlog checks all of it before it writes any."""
    info = error_info(status)
    return info is not None and (
        status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0] or info.reason == TOPIC_NOT_FOUND_REASON
    )


def may_be_written(status: Any) -> bool:
    """Whether it is unknown what was written."""
    return not (was_not_written(status) or was_refused(status))


def broken() -> Any:
    """The status for callers whose response cannot be split."""
    return to_status(
        StoreError("the append's receipts are lost, its messages may be stored; the gateway's log has the cause")
    )


def _failure(status: Any) -> AppendFailedError:
    info = error_info(status)
    index = info.metadata.get("index", "") if info is not None else ""
    return AppendFailedError(status, is_refused=was_refused(status), index=int(index) if index.isdecimal() else None)


def _expired() -> Any:
    return to_status(DeadlineExceededError("the deadline passed before the append was sent", service="commitlog"))
