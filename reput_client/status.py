"""From what gRPC says to this library's errors."""

from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from reput_client.errors import ERROR_BY_CODE, ERROR_BY_REASON, InternalError, InvalidArgumentError, ReputClientError

DOMAIN = "reput"
DETAILS_KEY = "grpc-status-details-bin"
_CODE_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


def error_of_status(status: status_pb2.Status) -> ReputClientError:
    """The typed error of a `google.rpc.Status`; one without the services' ErrorInfo is judged by its code."""
    code = _CODE_BY_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    metadata: dict[str, str] = {}
    error_class: type[ReputClientError] | None = None
    retry_after_seconds = None
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            # A reason that a newer service knows and this library does not is judged by its code as well.
            error_class = ERROR_BY_REASON.get(info.reason)
            metadata = dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after_seconds = max(0.0, retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)
    return (error_class or _class_by_code(code, status.message))(
        status.message or code.name, code=code, metadata=metadata, retry_after_seconds=retry_after_seconds
    )


def error_of_call(rpc_error: grpc.RpcError) -> ReputClientError:
    """The typed error of a failed call, of grpc's or of grpc.aio's."""
    code = rpc_error.code() or grpc.StatusCode.UNKNOWN
    trailers: Any = rpc_error.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            return error_of_status(status_pb2.Status.FromString(value))
    text = rpc_error.details() or code.name
    return _class_by_code(code, text)(text, code=code)


def _class_by_code(code: grpc.StatusCode, text: str) -> type[ReputClientError]:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return InvalidArgumentError  # gRPC's own size limit: trying again will not help
    return ERROR_BY_CODE.get(code, InternalError)
