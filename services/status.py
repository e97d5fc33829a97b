"""THE table of errors: every `StoreError` class <-> its gRPC status, both ways.

A failure leaves a service as a `google.rpc.Status` with exactly one `google.rpc.ErrorInfo` (domain `reput`, reason
derived from the class, each variable of the message as metadata) and arrives in the next process as the same class
again.

    raise OffsetOutOfRangeError("...", firstOffset=0, lastOffset=99)      # in a domain file
    OUT_OF_RANGE, ErrorInfo(OFFSET_OUT_OF_RANGE, {firstOffset, lastOffset})   # on the wire
    except OffsetOutOfRangeError as error: error.metadata["firstOffset"]  # in the caller, by `from_rpc_error`

A class that is not in the table travels as its nearest base that is, so reasons are a closed set. Texts are clipped, and
say how much was cut off: a status travels in HTTP/2 trailers, of which clients take 8 KiB, and an answer that is dropped
for its size says nothing.
"""

import re
from collections.abc import Iterable
from typing import NoReturn

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from store import errors

DOMAIN = "reput"
DETAILS_KEY = "grpc-status-details-bin"
MESSAGE_BYTES_MAX = 768
METADATA_VALUE_BYTES_MAX = 256

CODE_BY_ERROR: dict[type[errors.StoreError], grpc.StatusCode] = {
    errors.InvalidMessageError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidMessageIdError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidPageTokenError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidFreshnessTokenError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidReceiptHandleError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.ReceiptHandleNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.GroupNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.MemberNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.ScheduledMessageNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.TransactionNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.VerdictTooLateError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.IllegalFilterError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidSettingError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RecordNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.TopicNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.TopicNotReadableError: grpc.StatusCode.PERMISSION_DENIED,
    errors.GroupDisabledError: grpc.StatusCode.PERMISSION_DENIED,
    errors.QueueNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.BrokerNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.FollowerNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.FollowerFencedError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TopicExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.OffsetOutOfRangeError: grpc.StatusCode.OUT_OF_RANGE,
    errors.RecordCorruptedError: grpc.StatusCode.DATA_LOSS,
    errors.StoreCorruptedError: grpc.StatusCode.DATA_LOSS,
    errors.FlushFailedError: grpc.StatusCode.UNAVAILABLE,
    errors.LogFileLostError: grpc.StatusCode.UNAVAILABLE,
    errors.LogChangedError: grpc.StatusCode.UNAVAILABLE,
    errors.DiskFullError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StoreRecoveringError: grpc.StatusCode.UNAVAILABLE,
    errors.StoreReadOnlyError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotLeaderError: grpc.StatusCode.UNAVAILABLE,
    errors.NotEnoughReplicasError: grpc.StatusCode.UNAVAILABLE,
    errors.NotConfirmedError: grpc.StatusCode.UNAVAILABLE,
    errors.StoreLockedError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnsupportedStoreError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RecordConflictError: grpc.StatusCode.ABORTED,
    errors.CoordinatorUnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.ServiceUnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.ResourceBusyError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.QuotaExceededError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.LightQueueLimitError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.LiteSubscriptionQuotaExceededError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
    errors.DeadlineExceededError: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.StoreError: grpc.StatusCode.INTERNAL,
}
RETRY_SECONDS_BY_ERROR: dict[type[errors.StoreError], int] = {
    errors.DiskFullError: 2,
    errors.StoreRecoveringError: 1,
    errors.NotLeaderError: 1,
    errors.NotEnoughReplicasError: 1,
    errors.NotConfirmedError: 1,
    errors.CoordinatorUnavailableError: 1,
    errors.ResourceBusyError: 1,
    errors.QuotaExceededError: 1,
}
# For statuses without an ErrorInfo of ours: made by gRPC itself, or by a proxy on the way.
ERROR_BY_CODE: dict[grpc.StatusCode, type[errors.StoreError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.ServiceUnavailableError,
    # A server cancels the remaining calls after its grace time. A caller that cancels a call itself ignores the error.
    grpc.StatusCode.CANCELLED: errors.ServiceUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceBusyError,
    grpc.StatusCode.UNAUTHENTICATED: errors.UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDeniedError,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgumentError,
}
# Positions in a request, as those of messages that are written.
_NUMBERS = re.compile(r"\d+(,\d+)+", re.ASCII)
_CODE_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


class StatusError(Exception):
    """The status of a failed call, as it came, for callers that pass it on unchanged.

    Args:
        status: a google.rpc.Status.
    """

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status

    @classmethod
    def from_bytes(cls, data: bytes) -> "StatusError":
        """Of a serialized status; DecodeError when the bytes are none."""
        return cls(status_pb2.Status.FromString(data))


def to_status(error: errors.StoreError) -> status_pb2.Status:
    """The rich status of an error: its code, its message and exactly one ErrorInfo."""
    known = _nearest_in_table(type(error))
    message = clip(error.message, MESSAGE_BYTES_MAX)
    status = status_pb2.Status(code=CODE_BY_ERROR[known].value[0], message=message)
    metadata = {key: clip(value, METADATA_VALUE_BYTES_MAX) for key, value in error.metadata.items()}
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason_of(known), domain=DOMAIN, metadata=metadata))
    if known in RETRY_SECONDS_BY_ERROR:
        delay = duration_pb2.Duration(seconds=RETRY_SECONDS_BY_ERROR[known])
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    if CODE_BY_ERROR[known] is grpc.StatusCode.INVALID_ARGUMENT and "field" in metadata:
        violation = error_details_pb2.BadRequest.FieldViolation(field=metadata["field"], description=message)
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return status


def from_status(status: status_pb2.Status) -> errors.StoreError:
    """The error that `to_status` was given, of the same class; a status of another origin becomes the nearest class."""
    info = error_info(status)
    if info is not None and info.reason in _ERROR_BY_REASON:
        error = _ERROR_BY_REASON[info.reason](status.message)
        error.metadata = dict(info.metadata)
        return error
    return _from_code(_CODE_BY_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN), status.message)


def from_rpc_error(rpc_error: grpc.RpcError, service: str = "") -> errors.StoreError:
    """The typed error behind a failed call.

    Args:
        rpc_error: what the stub raised.
        service: the called service; it stands in the metadata of `ServiceUnavailableError`.
    """
    call: grpc.Call = rpc_error  # type: ignore[assignment]  # stubs raise RpcError objects that are Calls too
    status = status_of(call)
    if status is not None and error_info(status) is not None:
        return from_status(status)
    error = _from_code(call.code(), call.details() or call.code().name, service)
    if isinstance(error, errors.ServiceUnavailableError | errors.DeadlineExceededError) and service:
        error.metadata.setdefault("service", service)
    return error


def status_of(call: grpc.Call) -> status_pb2.Status | None:
    """The rich status in a finished call's trailers, None when there is none."""
    trailers: Iterable[tuple[str, str | bytes]] = call.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY and isinstance(value, bytes):
            return status_pb2.Status.FromString(value)
    return None


def error_info(status: status_pb2.Status) -> error_details_pb2.ErrorInfo | None:
    """The ErrorInfo of our domain in a status, None when there is none."""
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return info
    return None


def reason_of(error_class: type[errors.StoreError]) -> str:
    """The reason under which a class travels; `STORE_ERROR` for the base class."""
    known = _nearest_in_table(error_class)
    return "STORE_ERROR" if known is errors.StoreError else known.reason()


def code_of(error: errors.StoreError) -> grpc.StatusCode:
    """The canonical code of an error."""
    return CODE_BY_ERROR[_nearest_in_table(type(error))]


def raise_status(context: grpc.ServicerContext, error: errors.StoreError) -> NoReturn:
    """End the call with the error's rich status; never returns, as `context.abort`."""
    context.abort_with_status(rpc_status.to_status(to_status(error)))
    raise AssertionError("abort_with_status returned")


def _nearest_in_table(error_class: type[errors.StoreError]) -> type[errors.StoreError]:
    return next(base for base in error_class.__mro__ if base in CODE_BY_ERROR)


def _from_code(code: grpc.StatusCode, details: str, service: str = "") -> errors.StoreError:
    prefix = f"{service}: " if service else ""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        # gRPC's own size limit: another attempt would fail, too.
        return errors.InvalidArgumentError(f"{prefix}{details}", field="request")
    return ERROR_BY_CODE.get(code, errors.StoreError)(f"{prefix}{details}", code=code.name)


def clip(text: str, size_bytes_max: int) -> str:
    """The text, at most so many bytes of UTF-8, with how much was cut off behind it: `... 312 bytes more`.

    Cut between characters, and a list of numbers between numbers: `0,2,3... 312 more`. File names may hold undecodable
    bytes.
    """
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= size_bytes_max:
        return encoded.decode()
    room = size_bytes_max - len(f"... {len(encoded)} bytes more")
    end = text.rfind(",", 0, room + 1)  # a number that ends at `room` is whole when a comma follows it
    if end > 0 and _NUMBERS.fullmatch(text):
        return f"{text[:end]}... {text.count(',', end)} more"
    kept = encoded[:room].decode("utf-8", "ignore")
    return f"{kept}... {len(encoded) - len(kept.encode())} bytes more"


_ERROR_BY_REASON = {reason_of(error_class): error_class for error_class in CODE_BY_ERROR}
