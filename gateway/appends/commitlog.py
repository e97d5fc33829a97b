"""Appends to one commitlog, and the meaning of its failures.

They go over a local socket if the commitlog runs on this machine and accepts us, otherwise over gRPC. The caller gets the
commitlog's status unchanged. Nothing is sent again here, because an append is not idempotent.

One refusal is different: a replica that does not lead has written nothing, and another one will take the request. So it waits
for HOLD_SECONDS_MAX until the shard has a leader, and is sent there: a planned hand-over fails no append. After that, and when
the leader is gone, the caller gets UNAVAILABLE with a RetryInfo.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import grpc
import structlog
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

from gateway.appends.coalescer import (
    FLUSH_MODE_COUNT,
    SENDER_COUNT,
    AppendCoalescer,
    AppendFailedError,
    Outcome,
    PendingAppend,
    read_small_append,
    split_results,
)
from services.local.appends import AppendClient
from services.serving.calls.unary_call import Answerable
from services.status import StatusError, error_info, from_rpc_error, status_of, to_status
from store.errors import DeadlineExceededError, ResourceBusyError, ServiceUnavailableError, StoreError

COMMITLOG_SERVICE = "/reput.commitlog.v1.CommitLogService/"
ALONE_COUNT_DEFAULT = 16
NOT_SENT = "notSent"
# The begin of gRPC's details when it had no connection to send on. Any other text counts as "may have been sent", which is
# always safe; a test fails when a release changes these texts.
NOT_SENT_DETAILS = ("failed to connect to all addresses", "errors resolving ", "empty address list")
# Reasons that a commitlog gives before it writes anything, and that may not hold for another shard.
NOT_LEADER = "NOT_LEADER"
NOT_HERE_REASONS = frozenset(
    {
        "STORE_RECOVERING",
        "DISK_FULL",
        "STORE_READ_ONLY",
        "RESOURCE_BUSY",
        "TOPIC_NOT_FOUND",
        "BROKER_NOT_FOUND",
        NOT_LEADER,
        "NOT_ENOUGH_REPLICAS",
    }
)
# The reason, beside INVALID_ARGUMENT, that names a single message by its `index`.
TOPIC_NOT_FOUND_REASON = "TOPIC_NOT_FOUND"

# A planned hand-over takes less; a thread waits meanwhile.
HOLD_SECONDS_MAX = 5.0
# What a caller is told when a shard has no leader: an election takes seconds.
RETRY_SECONDS = 1

_log = structlog.get_logger("reput.gateway")


class LeaderWaits(Protocol):
    """Which replica of a shard leads; `gateway/shards/leaders.py`."""

    def is_replicated(self, broker_name: str) -> bool:
        """Whether the shard has replicas."""

    def note_not_leading(self, broker_name: str, commitlog: str) -> None:
        """The commit log at that address does not lead."""

    def wait_until_led(self, broker_name: str, seconds: float) -> bool:
        """Wait until the shard has a leader, and appends go there."""


class Commitlog:
    """Sends requests to one commitlog. It has its own threads, so a commitlog that hangs blocks no other.

    Args:
        channel: the gRPC channel to it.
        target: its address; empty: requests go over the channel only.
        alone_count: requests sent alone at the same time: large ones, or with options of their own.
        broker_name: its shard's name.
        group: the commitlogs of all shards; None when no shard has replicas.

    Attributes:
        local: the client over local sockets.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        target: str,
        alone_count: int = ALONE_COUNT_DEFAULT,
        broker_name: str = "",
        group: "CommitlogGroup | None" = None,
    ) -> None:
        self.broker_name = broker_name
        self._target = target
        self._group = group
        self.local = AppendClient(target)
        self._append: Any = channel.unary_unary(COMMITLOG_SERVICE + "AppendMessages")
        self._two_way: Any = channel.stream_stream(COMMITLOG_SERVICE + "AppendMessageStream")
        self._alone = ThreadPoolExecutor(alone_count, thread_name_prefix="append-alone")
        self._senders = ThreadPoolExecutor(SENDER_COUNT * FLUSH_MODE_COUNT, thread_name_prefix="append-sender")
        self._coalescer = AppendCoalescer(
            self._send,
            split_results,
            self._senders,
            clock=time.monotonic,
            expired=_expired,
            broken=broken,
            closed=_closed,
            begin=self._begin,
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
        sending = self._alone.submit(self._send_alone, request, deadline_seconds, caller)
        sending.add_done_callback(lambda done: caller.fail(_closed()) if done.cancelled() else None)

    def open_stream(self, requests: Iterator[bytes], timeout_seconds: float | None) -> Any:
        """A stream over gRPC: an iterator over its responses, with `cancel`."""
        return self._two_way(requests, timeout=timeout_seconds)

    def close(self) -> None:
        """Send no more requests; callers that wait get a failure."""
        self._coalescer.close()
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

    def _begin(self, request: bytes, seconds: float, ended: Callable[[Outcome], object]) -> bool:
        """Over the socket, where nothing has to wait for another leader; see coalescer.Begin."""
        if self._group is not None and self._group.leaders.is_replicated(self.broker_name):
            return False

        def known(outcome: bytes | StatusError | StoreError | None) -> None:
            if isinstance(outcome, StatusError):
                ended(_failure(outcome.status))
            elif isinstance(outcome, StoreError):
                ended(AppendFailedError(to_status(outcome)))
            else:
                ended(outcome)

        return self.local.append_later(request, seconds, known)

    def _send(self, request: bytes, seconds: float) -> bytes:
        if self._group is None or not self._group.leaders.is_replicated(self.broker_name):
            return self.send_once(request, seconds)
        deadline_seconds = time.monotonic() + seconds
        hold_until_seconds = time.monotonic() + min(seconds, HOLD_SECONDS_MAX)
        commitlog = self
        while True:
            try:
                return commitlog.send_once(request, deadline_seconds - time.monotonic())
            except AppendFailedError as error:
                successor = commitlog.successor(error.status, hold_until_seconds - time.monotonic())
                if successor is None:
                    raise AppendFailedError(
                        with_retry_info(error.status), is_refused=error.is_refused, index=error.index
                    ) from error
                commitlog = successor

    def successor(self, status: Any, seconds: float) -> "Commitlog | None":
        """The commitlog that leads after this one has failed; None when the request must not be sent again, or in time."""
        info = error_info(status)
        is_unsent = info is not None and info.metadata.get(NOT_SENT) == "true"
        does_not_lead = info is not None and info.reason == NOT_LEADER
        assert self._group is not None
        if status.code == grpc.StatusCode.UNAVAILABLE.value[0]:
            self._group.leaders.note_not_leading(self.broker_name, self._target)
        if not (does_not_lead or is_unsent) or seconds <= 0:
            return None
        if not self._group.leaders.wait_until_led(self.broker_name, seconds):
            return None
        return self._group.of_shard(self.broker_name)

    def send_once(self, request: bytes, seconds: float) -> bytes:
        """The response to a request; AppendFailedError."""
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


class CommitlogGroup:
    """The commitlogs of all shards, for a request that must go to another replica; thread-safe.

    Args:
        leaders: which replica leads.
    """

    def __init__(self, leaders: LeaderWaits) -> None:
        self.leaders = leaders
        self._commitlogs: Mapping[str, Commitlog] = {}

    def keep(self, commitlogs: Mapping[str, Commitlog]) -> None:
        """Set them, by name of the shard."""
        self._commitlogs = commitlogs

    def of_shard(self, broker_name: str) -> Commitlog | None:
        """The commitlog that a shard has now."""
        return self._commitlogs.get(broker_name)


def with_retry_info(status: Any) -> Any:
    """The status, with a RetryInfo if it is UNAVAILABLE and has none."""
    if status.code != grpc.StatusCode.UNAVAILABLE.value[0]:
        return status
    if any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details):
        return status
    told = type(status)()
    told.CopyFrom(status)
    told.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=RETRY_SECONDS)))
    return told


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


def _closed() -> Any:
    error = ServiceUnavailableError("the shard has moved before the append was sent", **{NOT_SENT: "true"})
    return with_retry_info(to_status(error))


def _expired() -> Any:
    return to_status(DeadlineExceededError("the deadline passed before the append was sent", service="commitlog"))
