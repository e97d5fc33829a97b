"""What the end of an append means: was it written, may it be sent to another shard, and what its caller is told.

A commitlog's own status is passed on unchanged. Of gRPC's failures, only those without a connection mean that nothing was sent.
"""

from typing import Any

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

from gateway.appends.coalescer import AppendFailedError
from services.status import error_info, from_rpc_error, status_of, to_status
from store.errors import DeadlineExceededError, ResourceBusyError, ServiceUnavailableError, StoreError

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
# What a caller is told when a shard has no leader: an election takes seconds.
RETRY_SECONDS = 1


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
        return failed_with(status)
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


def failed_with(status: Any) -> AppendFailedError:
    """The failure of an append with this status."""
    info = error_info(status)
    index = info.metadata.get("index", "") if info is not None else ""
    return AppendFailedError(status, is_refused=was_refused(status), index=int(index) if index.isdecimal() else None)


def closed() -> Any:
    """The status for callers whose shard has moved before their append was sent."""
    error = ServiceUnavailableError("the shard has moved before the append was sent", **{NOT_SENT: "true"})
    return with_retry_info(to_status(error))


def expired() -> Any:
    """The status for callers whose time was over before their append was sent."""
    return to_status(DeadlineExceededError("the deadline passed before the append was sent", service="commitlog"))
