"""Refusals of RocketMQ's contract as this library's errors. Its calls end with gRPC's OK; the body has the status.

A program may start before the topics are made that it consumes. It asks for an absent topic again and again, with one warning.
"""

import logging

import grpc

from apache.rocketmq.v2 import rocketmq_pb2 as v2
from reput_client import errors
from reput_client.errors import ReputClientError, TopicNotFoundError

SUCCESSES = frozenset({v2.OK, v2.MULTIPLE_RESULTS})

_BY_CODE: dict[int, tuple[type[errors.ReputClientError], grpc.StatusCode]] = {
    v2.ILLEGAL_FILTER_EXPRESSION: (errors.IllegalFilterError, grpc.StatusCode.INVALID_ARGUMENT),
    # Of a handle that cannot be read, too: the contract has one code for both, and both are final.
    v2.INVALID_RECEIPT_HANDLE: (errors.ReceiptHandleNotFoundError, grpc.StatusCode.NOT_FOUND),
    # The gateway has forgotten the client: its settings are sent again.
    v2.UNRECOGNIZED_CLIENT_TYPE: (errors.ServiceUnavailableError, grpc.StatusCode.UNAVAILABLE),
    v2.ILLEGAL_OFFSET: (errors.OffsetOutOfRangeError, grpc.StatusCode.OUT_OF_RANGE),
    v2.UNAUTHORIZED: (errors.UnauthenticatedError, grpc.StatusCode.UNAUTHENTICATED),
    v2.FORBIDDEN: (errors.PermissionDeniedError, grpc.StatusCode.PERMISSION_DENIED),
    v2.NOT_FOUND: (errors.NotFoundError, grpc.StatusCode.NOT_FOUND),
    v2.MESSAGE_NOT_FOUND: (errors.NotFoundError, grpc.StatusCode.NOT_FOUND),
    v2.TOPIC_NOT_FOUND: (errors.TopicNotFoundError, grpc.StatusCode.NOT_FOUND),
    v2.CONSUMER_GROUP_NOT_FOUND: (errors.GroupNotFoundError, grpc.StatusCode.NOT_FOUND),
    v2.OFFSET_NOT_FOUND: (errors.NotFoundError, grpc.StatusCode.NOT_FOUND),
    v2.REQUEST_TIMEOUT: (errors.DeadlineExceededError, grpc.StatusCode.DEADLINE_EXCEEDED),
    v2.PRECONDITION_FAILED: (errors.FailedPreconditionError, grpc.StatusCode.FAILED_PRECONDITION),
    v2.TOO_MANY_REQUESTS: (errors.ResourceBusyError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    v2.LITE_TOPIC_QUOTA_EXCEEDED: (errors.LightQueueLimitError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    v2.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: (
        errors.LiteSubscriptionQuotaExceededError,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ),
    v2.NOT_IMPLEMENTED: (errors.FailedPreconditionError, grpc.StatusCode.UNIMPLEMENTED),
    v2.UNSUPPORTED: (errors.FailedPreconditionError, grpc.StatusCode.UNIMPLEMENTED),
}
_ILLEGAL = errors.InvalidArgumentError, grpc.StatusCode.INVALID_ARGUMENT
_FAILED = errors.ServiceUnavailableError, grpc.StatusCode.UNAVAILABLE
# Codes from here on are failures of the server, which may pass.
SERVER_CODES_BEGIN = 50_000


def error_of(status: v2.Status) -> errors.ReputClientError | None:
    """The error that a status says; None for success. `is_worth_retrying` tells whether it may pass."""
    code = int(status.code)
    if code in SUCCESSES:
        return None
    known = code in v2.Code.values()
    error_class, grpc_code = _BY_CODE.get(code) or (_FAILED if code >= SERVER_CODES_BEGIN or code == 0 else _ILLEGAL)
    name = v2.Code.Name(status.code) if known else str(code)
    return error_class(status.message or name, code=grpc_code, reason=name)


# RocketMQ's RETRY_GROUP_TOPIC_PREFIX: such a topic is made when the first message is sent back.
RETRY_PREFIX = "%RETRY%"

_log = logging.getLogger("reput_client")


class AbsentTopics:
    """The topics of a consumer that do not exist.

    Args:
        consumer_group: the group of the consumer.
    """

    def __init__(self, consumer_group: str) -> None:
        self._consumer_group = consumer_group
        self._warned: set[str] = set()

    def is_absent_by(self, topic: str, error: ReputClientError) -> bool:
        """Whether an error says that the topic does not exist. Its first error is a warning, which Python writes to stderr."""
        if not isinstance(error, TopicNotFoundError):
            return False
        if topic not in self._warned and not topic.startswith(RETRY_PREFIX):
            self._warned.add(topic)
            _log.warning(
                "the group %s consumes the topic %s, which does not exist: it is asked for again until it is made (%s)",
                self._consumer_group,
                topic,
                error.message,
            )
        return True

    def found(self, topic: str) -> None:
        """The topic exists: the next error is a warning again."""
        self._warned.discard(topic)
