"""gRPC statuses as this library's errors."""

import contextlib
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from reput_client.errors import ERROR_BY_CODE, ERROR_BY_REASON, InternalError, InvalidArgumentError, ReputClientError

DOMAIN = "reput"
DETAILS_KEY = "grpc-status-details-bin"
_CODE_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


def error_of_status(status: status_pb2.Status) -> ReputClientError:
    """The typed error of a `google.rpc.Status`; without the services' ErrorInfo its code decides the class."""
    code = _CODE_BY_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    reason = ""
    metadata: dict[str, str] = {}
    error_class: type[ReputClientError] | None = None
    retry_after_seconds = None
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            # A reason of a newer service that this library does not know gets the class of its code.
            reason = info.reason
            error_class = ERROR_BY_REASON.get(reason)
            metadata = dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after_seconds = max(0.0, retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)
    return (error_class or _class_by_code(code, status.message))(
        status.message or code.name,
        code=code,
        reason=reason,
        metadata=metadata,
        retry_after_seconds=retry_after_seconds,
    )


def error_or_none(message: Any) -> ReputClientError | None:
    """The error in the field `error` of a protobuf message; None when it is absent or OK."""
    return error_of_status(message.error) if message.HasField("error") and message.error.code else None


def error_of_call(rpc_error: grpc.RpcError) -> ReputClientError:
    """The typed error of a failed call, of grpc's or of grpc.aio's."""
    code = rpc_error.code() or grpc.StatusCode.UNKNOWN
    status = status_of_call(rpc_error)
    if status is not None:
        return error_of_status(status)
    text = rpc_error.details() or code.name
    return _class_by_code(code, text)(text, code=code)


def status_of_call(rpc_error: grpc.RpcError) -> status_pb2.Status | None:
    """The `google.rpc.Status` that a failed call carries; None without one."""
    trailers: Any = rpc_error.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            # Details that are damaged or contradict the status are ignored.
            with contextlib.suppress(DecodeError):
                status = status_pb2.Status.FromString(value)
                if _CODE_BY_NUMBER.get(status.code) is (rpc_error.code() or grpc.StatusCode.UNKNOWN):
                    return status
    return None


def _class_by_code(code: grpc.StatusCode, text: str) -> type[ReputClientError]:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return InvalidArgumentError  # gRPC's own size limit: trying again will not help
    return ERROR_BY_CODE.get(code, InternalError)
