"""Our errors as the in-body Status of RocketMQ's contract, whose calls always end with gRPC status OK."""

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from services.status import MESSAGE_BYTES_MAX, clip
from store import errors

CODE_BY_ERROR: dict[type[errors.StoreError], "v2.Code"] = {
    errors.InvalidMessageError: v2.BAD_REQUEST,
    errors.InvalidArgumentError: v2.BAD_REQUEST,
    errors.InvalidMessageIdError: v2.ILLEGAL_MESSAGE_ID,
    errors.InvalidPageTokenError: v2.BAD_REQUEST,
    errors.InvalidReceiptHandleError: v2.INVALID_RECEIPT_HANDLE,
    errors.ReceiptHandleNotFoundError: v2.INVALID_RECEIPT_HANDLE,
    errors.GroupNotFoundError: v2.CONSUMER_GROUP_NOT_FOUND,
    errors.IllegalFilterError: v2.ILLEGAL_FILTER_EXPRESSION,
    errors.InvalidReceiptHandleError: v2.INVALID_RECEIPT_HANDLE,
    errors.ReceiptHandleNotFoundError: v2.INVALID_RECEIPT_HANDLE,
    errors.GroupNotFoundError: v2.CONSUMER_GROUP_NOT_FOUND,
    errors.RecordNotFoundError: v2.MESSAGE_NOT_FOUND,
    errors.ScheduledMessageNotFoundError: v2.MESSAGE_NOT_FOUND,
    errors.TransactionNotFoundError: v2.INTERNAL_SERVER_ERROR,  # as RocketMQ's proxy
    errors.VerdictTooLateError: v2.PRECONDITION_FAILED,
    errors.TopicNotFoundError: v2.TOPIC_NOT_FOUND,
    errors.TopicNotReadableError: v2.FORBIDDEN,  # as RocketMQ's proxy: "no readable queue"
    errors.GroupDisabledError: v2.FORBIDDEN,  # RocketMQ's broker: NO_PERMISSION
    errors.QueueNotFoundError: v2.NOT_FOUND,
    errors.BrokerNotFoundError: v2.NOT_FOUND,
    errors.OffsetOutOfRangeError: v2.MESSAGE_NOT_FOUND,
    errors.FlushFailedError: v2.MASTER_PERSISTENCE_TIMEOUT,
    errors.DiskFullError: v2.TOO_MANY_REQUESTS,
    errors.StoreRecoveringError: v2.HA_NOT_AVAILABLE,
    errors.StoreReadOnlyError: v2.PRECONDITION_FAILED,
    errors.ServiceUnavailableError: v2.HA_NOT_AVAILABLE,
    errors.ResourceBusyError: v2.TOO_MANY_REQUESTS,
    errors.QuotaExceededError: v2.TOO_MANY_REQUESTS,
    errors.LightQueueLimitError: v2.LITE_TOPIC_QUOTA_EXCEEDED,
    errors.LiteSubscriptionQuotaExceededError: v2.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    errors.UnauthenticatedError: v2.UNAUTHORIZED,
    errors.PermissionDeniedError: v2.FORBIDDEN,
    errors.DeadlineExceededError: v2.PROXY_TIMEOUT,
    errors.StoreError: v2.INTERNAL_SERVER_ERROR,
}
# The code of a request that is refused because of a field.
CODE_BY_FIELD = {
    "consumer_group": v2.ILLEGAL_CONSUMER_GROUP,
    "filter": v2.ILLEGAL_FILTER_EXPRESSION,
    "invisible_duration": v2.ILLEGAL_INVISIBLE_TIME,
    "receipt_handle": v2.INVALID_RECEIPT_HANDLE,
    "topic": v2.ILLEGAL_TOPIC,
    "keys": v2.ILLEGAL_MESSAGE_KEY,
    "tags": v2.ILLEGAL_MESSAGE_TAG,
    "properties": v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
    "delivery_time": v2.ILLEGAL_DELIVERY_TIME,
    "unique_key": v2.ILLEGAL_MESSAGE_ID,
    "messages": v2.PAYLOAD_TOO_LARGE,
}


class RefusedError(Exception):
    """A request of RocketMQ's contract that is not served.

    Args:
        code: the reason.
        message: what happened and what to do.
    """

    def __init__(self, code: "v2.Code", message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def ok(message: str = "OK") -> v2.Status:
    """The Status of success."""
    return v2.Status(code=v2.OK, message=message)


def status_of(error: "RefusedError | errors.StoreError") -> v2.Status:
    """The Status of a failure."""
    code = error.code if isinstance(error, RefusedError) else _code_of(error)
    return v2.Status(code=code, message=clip(error.message, MESSAGE_BYTES_MAX))


def _code_of(error: errors.StoreError) -> "v2.Code":
    field = error.metadata.get("field", "")
    if isinstance(error, errors.InvalidMessageError) and field == "body":
        return v2.MESSAGE_BODY_EMPTY if error.metadata.get("sizeBytes") == "0" else v2.MESSAGE_BODY_TOO_LARGE
    if isinstance(error, errors.InvalidMessageError) and field == "properties" and "sizeBytesMax" in error.metadata:
        return v2.MESSAGE_PROPERTIES_TOO_LARGE
    if isinstance(error, errors.InvalidMessageError) and "perm" in error.metadata:
        return v2.FORBIDDEN  # as RocketMQ's proxy: "no writable queue"
    if isinstance(error, errors.InvalidMessageError | errors.InvalidArgumentError) and field in CODE_BY_FIELD:
        return CODE_BY_FIELD[field]
    return next(CODE_BY_ERROR[base] for base in type(error).__mro__ if base in CODE_BY_ERROR)
