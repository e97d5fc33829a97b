"""Every way in which a call of this library fails, as a typed error.

    ReputClientError
    ├── InvalidRequestError        InvalidMessageError, InvalidArgumentError, InvalidMessageIdError, InvalidPageTokenError,
    │                              InvalidFreshnessTokenError, IllegalFilterError
    ├── NotFoundError              RecordNotFoundError, TopicNotFoundError, QueueNotFoundError, BrokerNotFoundError,
    │                              FollowerNotFoundError, GroupNotFoundError, MemberNotFoundError, TransactionNotFoundError,
    │                              ScheduledMessageNotFoundError, ReceiptHandleNotFoundError
    ├── OffsetOutOfRangeError
    ├── DataLossError              RecordCorruptedError, StoreCorruptedError
    ├── UnavailableError           ServiceUnavailableError, StoreRecoveringError, FlushFailedError (LogFileLostError),
    │                              DeadlineExceededError, NotLeaderError, NotEnoughReplicasError, NotConfirmedError,
    │                              LogChangedError, CoordinatorUnavailableError
    ├── BusyError                  DiskFullError, ResourceBusyError, QuotaExceededError, LightQueueLimitError,
    │                              LiteSubscriptionQuotaExceededError
    ├── FailedPreconditionError    StoreReadOnlyError, StoreLockedError, UnsupportedStoreError, InvalidSettingError,
    │                              VerdictTooLateError, RecordConflictError
    ├── AccessError                UnauthenticatedError, PermissionDeniedError (TopicNotReadableError, GroupDisabledError)
    ├── InternalError              a failure inside the services that has no name
    ├── DeliveryError              DeliveryTimeoutError (not written), DeliveryUnknownError (may be written)
    ├── BatchDeliveryError         some messages of a `send_batch` failed
    ├── BufferFullError, ProducerClosedError, ConsumerClosedError
    └── PartialAnswerError, BodyOmittedError, BodyCompressionError

The names below the second level are the services' reasons: `TOPIC_NOT_FOUND` is `TopicNotFoundError`. The services have their
own table; a test compares the two. `error_of_call` makes the error of a failed call of grpc.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import message as protobuf
from google.rpc import error_details_pb2, status_pb2


class ReputClientError(Exception):
    """Base of all errors of this library.

    Args:
        message: what happened and what to do, in a sentence or two.
        code: gRPC code of the failed call; None when the error comes from this library.
        reason: the services' name of the failure (`ErrorInfo.reason`), such as TOPIC_NOT_FOUND; empty when there is none.
        metadata: the variables of the message, as text under lowerCamelCase keys.
        retry_after_seconds: the pause that the server asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        reason: str = "",
        metadata: dict[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after_seconds = retry_after_seconds


class InvalidRequestError(ReputClientError):
    """The request cannot be served as it is; trying again does not help. Metadata has `field`."""


class InvalidMessageError(InvalidRequestError):
    """A message cannot be stored as it is; metadata has `field`."""


class InvalidArgumentError(InvalidRequestError):
    """A field of a request is outside what it may be."""


class InvalidMessageIdError(InvalidRequestError):
    """A text is no offsetMsgId."""


class InvalidPageTokenError(InvalidRequestError):
    """A page token was not made by the service for this query."""


class InvalidFreshnessTokenError(InvalidRequestError):
    """A freshness token (`after`) is not of this store, or its message was lost in a crash before it was flushed."""


class IllegalFilterError(InvalidRequestError):
    """A filter expression cannot be used; metadata has `expression` and, where known, `column`."""


class InvalidReceiptHandleError(InvalidRequestError):
    """A text is no receipt handle of the consumer group."""


class NotFoundError(ReputClientError):
    """There is no such thing."""


class RecordNotFoundError(NotFoundError):
    """No message lies where the id points."""


class TopicNotFoundError(NotFoundError):
    """There is no such topic."""


class QueueNotFoundError(NotFoundError):
    """The topic has no such queue."""


class BrokerNotFoundError(NotFoundError):
    """No shard has that name, or a name is needed to choose one."""


class FollowerNotFoundError(NotFoundError):
    """The commit log has no follower of that name; a gateway never says so."""


class GroupNotFoundError(NotFoundError):
    """There is no such consumer group."""


class MemberNotFoundError(NotFoundError):
    """The consumer group has no such member."""


class TransactionNotFoundError(NotFoundError):
    """The transaction has ended, or there never was one."""


class ScheduledMessageNotFoundError(NotFoundError):
    """The message does not wait any more: it was delivered or recalled."""


class ReceiptHandleNotFoundError(NotFoundError):
    """The delivery is over: the message was acknowledged, delivered again or moved."""


class OffsetOutOfRangeError(ReputClientError):
    """An offset lies outside the log; metadata has `firstOffset` and `lastOffset`."""


class DataLossError(ReputClientError):
    """Stored bytes are damaged."""


class RecordCorruptedError(DataLossError):
    """The message's stored bytes contradict themselves; metadata has `commitLogOffset`."""


class StoreCorruptedError(DataLossError):
    """A file of the store is damaged; metadata has `file` and `offset`."""


class UnavailableError(ReputClientError):
    """The service was not reached or did not answer in time."""


class ServiceUnavailableError(UnavailableError):
    """A service did not answer."""


class StoreRecoveringError(UnavailableError):
    """The store is not ready yet."""


class FlushFailedError(UnavailableError):
    """The disk refused a flush: whether the messages are stored is unknown until the store has restarted."""


class LogFileLostError(FlushFailedError):
    """A file of the log was removed or moved while the store was open; it takes no message until it has restarted."""


class NotLeaderError(UnavailableError):
    """No replica led the shard, or another one: nothing was written."""


class NotEnoughReplicasError(UnavailableError):
    """The shard has too few in-sync replicas for what was asked: nothing was written."""


class NotConfirmedError(UnavailableError):
    """It was written on the leader, and is not known on the other replicas: it may stay or be cut."""


class LogChangedError(UnavailableError):
    """The broker whose log is followed cut it or replaced it; the service starts again."""


class CoordinatorUnavailableError(UnavailableError):
    """The coordinator of the replicas did not answer, or not so that the outcome is known."""


class DeadlineExceededError(UnavailableError):
    """No answer came in time."""


class BusyError(ReputClientError):
    """A limit is reached; a later attempt may succeed."""


class DiskFullError(BusyError):
    """The store's disk is full."""


class ResourceBusyError(BusyError):
    """The service has reached its limit of concurrent work."""


class QuotaExceededError(BusyError):
    """A namespace has used up a quota; metadata has `namespace`, `quota` and `quotaMax`."""


class LightQueueLimitError(BusyError):
    """The shard has as many light queues, those of lite topics too, as it may have; metadata has `count` and `countMax`."""


class LiteSubscriptionQuotaExceededError(BusyError):
    """A client, or all clients of a shard, would subscribe to more lite topics than they may; metadata has `countMax`."""


class FailedPreconditionError(ReputClientError):
    """The store is not in a state for this; trying again does not help."""


class VerdictTooLateError(FailedPreconditionError):
    """The time that the half message set for its first check is over: the checker gives the verdict."""


class RecordConflictError(FailedPreconditionError):
    """The record of a shard at its coordinator was changed by another one meanwhile."""


class StoreReadOnlyError(FailedPreconditionError):
    """The store is served read-only."""


class TopicExistsError(FailedPreconditionError):
    """There is a topic of that name with other values."""


class FollowerFencedError(FailedPreconditionError):
    """A later life of this follower has appended."""


class StoreLockedError(FailedPreconditionError):
    """Another process owns the store."""


class UnsupportedStoreError(FailedPreconditionError):
    """The service has no store that it can read."""


class InvalidSettingError(FailedPreconditionError):
    """The service has an unusable setting."""


class AccessError(ReputClientError):
    """The gateway does not let this caller do this; trying again does not help."""


class UnauthenticatedError(AccessError):
    """The call has no credentials, or the gateway does not accept them: see `ClientSecurity`."""


class PermissionDeniedError(AccessError):
    """The gateway knows the caller, which may not do this; metadata has `method`, `client`, `role` and `topic`."""


class TopicNotReadableError(PermissionDeniedError):
    """The topic is configured without the right to read, for every caller; metadata has `topic` and `perm`."""


class GroupDisabledError(PermissionDeniedError):
    """The consumer group is configured so that it gets no messages, for every caller; metadata has `consumerGroup`."""


class InternalError(ReputClientError):
    """A failure inside the services that has no name; their log has the cause."""


class DeliveryError(ReputClientError):
    """A message could not be delivered in the time and the attempts allowed; `__cause__` is the last failure."""


class DeliveryTimeoutError(DeliveryError):
    """The time was over before the message was sent: it is not stored."""


class DeliveryUnknownError(DeliveryError):
    """The message was sent and no answer came: it may be stored or not. Metadata has `uniqueKey` to ask by.

    Sent again under the same unique key, it is stored once.
    """


class BatchDeliveryError(ReputClientError):
    """Messages of one `send_batch` failed; the others are stored.

    Attributes:
        errors: why, by the message's place in the batch.
    """

    errors: Mapping[int, ReputClientError]

    @classmethod
    def of(cls, errors: Mapping[int, ReputClientError], message_count: int) -> "BatchDeliveryError":
        """The error of a batch of so many messages; its cause is the first message's error."""
        first = min(errors)
        error = cls(
            f"{len(errors)} of {message_count} messages failed, the first at place {first}: {errors[first].message}; "
            "`errors` has each",
            code=errors[first].code,
            metadata={"index": str(first), "failedCount": str(len(errors))},
        )
        error.errors = dict(errors)
        error.__cause__ = errors[first]
        return error


class BufferFullError(ReputClientError):
    """The messages waiting fill `buffer_bytes_max`, and no room came free in `block_seconds_max`."""


class ProducerClosedError(ReputClientError):
    """The producer was closed, or belongs to the process that this one was forked from."""


class ConsumerClosedError(ReputClientError):
    """The consumer was closed. What it had not acknowledged comes again."""


class PartialAnswerError(ReputClientError):
    """Part of the store could not be asked, and the caller wanted all of it.

    Args:
        message: what is missing.
        missing: the error of each shard that did not answer, as text, by broker name.
    """

    def __init__(self, message: str, missing: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message, metadata=dict(missing))
        self.missing = tuple(missing)


class BodyOmittedError(ReputClientError):
    """The page had no room for the body: `download_body` has it."""


class BodyCompressionError(ReputClientError):
    """The body is compressed in a way that cannot be undone here; `stored_body` has the bytes."""


_REASONED: tuple[type[ReputClientError], ...] = (
    InvalidMessageError,
    InvalidArgumentError,
    InvalidMessageIdError,
    InvalidPageTokenError,
    InvalidFreshnessTokenError,
    IllegalFilterError,
    InvalidReceiptHandleError,
    InvalidSettingError,
    RecordNotFoundError,
    TopicNotFoundError,
    QueueNotFoundError,
    BrokerNotFoundError,
    GroupNotFoundError,
    MemberNotFoundError,
    TransactionNotFoundError,
    ScheduledMessageNotFoundError,
    ReceiptHandleNotFoundError,
    FollowerNotFoundError,
    FollowerFencedError,
    TopicExistsError,
    OffsetOutOfRangeError,
    RecordCorruptedError,
    StoreCorruptedError,
    FlushFailedError,
    LogFileLostError,
    DiskFullError,
    StoreRecoveringError,
    StoreReadOnlyError,
    VerdictTooLateError,
    StoreLockedError,
    UnsupportedStoreError,
    ServiceUnavailableError,
    NotLeaderError,
    NotEnoughReplicasError,
    NotConfirmedError,
    LogChangedError,
    RecordConflictError,
    CoordinatorUnavailableError,
    ResourceBusyError,
    QuotaExceededError,
    LightQueueLimitError,
    LiteSubscriptionQuotaExceededError,
    UnauthenticatedError,
    PermissionDeniedError,
    TopicNotReadableError,
    GroupDisabledError,
    DeadlineExceededError,
)


def _reason_of(error_class: type[ReputClientError]) -> str:
    name = error_class.__name__.removesuffix("Error")
    return "".join(f"_{letter}" if letter.isupper() else letter for letter in name).upper().lstrip("_")


ERROR_BY_REASON: dict[str, type[ReputClientError]] = {_reason_of(each): each for each in _REASONED}
ERROR_BY_REASON["STORE_ERROR"] = InternalError

# For statuses that gRPC or a proxy made.
ERROR_BY_CODE: dict[grpc.StatusCode, type[ReputClientError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.OUT_OF_RANGE: OffsetOutOfRangeError,
    grpc.StatusCode.DATA_LOSS: DataLossError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.ALREADY_EXISTS: FailedPreconditionError,
    grpc.StatusCode.UNIMPLEMENTED: FailedPreconditionError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceBusyError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    # A stopping server cancels its calls; for a reset stream gRPC reports UNKNOWN or INTERNAL.
    grpc.StatusCode.UNAVAILABLE: ServiceUnavailableError,
    grpc.StatusCode.CANCELLED: ServiceUnavailableError,
    grpc.StatusCode.ABORTED: ServiceUnavailableError,
    grpc.StatusCode.UNKNOWN: ServiceUnavailableError,
    grpc.StatusCode.INTERNAL: ServiceUnavailableError,
}


def is_worth_retrying(error: BaseException) -> bool:
    """True if another attempt may succeed: the service was not reached, not ready, or too busy."""
    return isinstance(error, UnavailableError | BusyError)


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
            with contextlib.suppress(protobuf.DecodeError):
                status = status_pb2.Status.FromString(value)
                if _CODE_BY_NUMBER.get(status.code) is (rpc_error.code() or grpc.StatusCode.UNKNOWN):
                    return status
    return None


def _class_by_code(code: grpc.StatusCode, text: str) -> type[ReputClientError]:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return InvalidArgumentError  # gRPC's own size limit: trying again will not help
    return ERROR_BY_CODE.get(code, InternalError)
