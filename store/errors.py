"""The typed errors of the store: every refusal and every failure.

Each error says what happened, where (offset, file, field) and what to do. Its `reason` is derived from the class name
(`OffsetOutOfRangeError` is `OFFSET_OUT_OF_RANGE`), its `metadata` holds each variable of the message under a lowerCamelCase
key. `services/status.py` maps these errors to gRPC statuses.

failure_fields: an error as the fields of a log line. The metadata of an error may have any key, also one that the line has
itself, or one that logging uses. So each log line of an error goes through this function, and a rule of the house forbids to
spread metadata into a log call directly.
"""

import re
from typing import Any


class StoreError(Exception):
    """Base of all errors of the store.

    Args:
        message: what happened, where, and what to do, in one or two sentences.
        metadata: the variables of the message; keys lowerCamelCase, values turned into text.
    """

    def __init__(self, message: str, /, **metadata: object) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}

    @classmethod
    def reason(cls) -> str:
        """The class name as an UPPER_SNAKE reason without `Error`."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix("Error"))
        return words.upper()


class InvalidMessageError(StoreError):
    """A message cannot be stored as it is; metadata has `field`, and `index` in a batch."""


class InvalidArgumentError(StoreError):
    """A field of a request has a value that is not allowed; metadata has `field`."""


class InvalidMessageIdError(StoreError):
    """A text is not an offsetMsgId."""


class InvalidPageTokenError(StoreError):
    """A page token was not made by this service for this query."""


class InvalidFreshnessTokenError(StoreError):
    """A freshness token was changed, or no shard here made it; metadata has `field`."""


class IllegalFilterError(StoreError):
    """A filter expression cannot be used; metadata has `expression` and, where known, `column`, counted from 1."""


class InvalidSettingError(StoreError):
    """A setting is unknown, or its value cannot be used; metadata has `name` and `source`."""


class InvalidReceiptHandleError(StoreError):
    """A text is no receipt handle of this service and consumer group; metadata has `field`."""


class ReceiptHandleNotFoundError(StoreError):
    """The delivery that a receipt handle names is over: the message was delivered again, or moved."""


class GroupNotFoundError(StoreError):
    """The shard has no such consumer group."""


class MemberNotFoundError(StoreError):
    """The consumer group has no member of this id; metadata has `consumerGroup` and `clientId`."""


class GroupDisabledError(StoreError):
    """The consumer group is configured so that it gets no messages; metadata has `consumerGroup`."""


class RecordNotFoundError(StoreError):
    """No record starts at the offset."""


class TopicNotFoundError(StoreError):
    """The store has no such topic."""


class TopicNotReadableError(StoreError):
    """The topic is configured without the right to read; metadata has `topic` and `perm`."""


class QueueNotFoundError(StoreError):
    """The topic has no such queue."""


class BrokerNotFoundError(StoreError):
    """No shard has that name, or a name is needed to choose one."""


class ScheduledMessageNotFoundError(StoreError):
    """No message waits for its time under these names: none ever did, or it was delivered or recalled."""


class TransactionNotFoundError(StoreError):
    """No half message waits for a verdict under these names: none ever did, or it has had one; metadata has `outcome`."""


class VerdictTooLateError(StoreError):
    """The immunity time that a half message sets itself is over: only the answer to a check ends its transaction."""


class FollowerNotFoundError(StoreError):
    """The commit log has no follower with that name."""


class FollowerFencedError(StoreError):
    """A later life of this follower appends; metadata has `follower`, `followerEpoch` and `currentEpoch`."""


class TopicExistsError(StoreError):
    """There is a topic of that name with other values; metadata has `topic`."""


class OffsetOutOfRangeError(StoreError):
    """An offset lies outside the log; metadata has `firstOffset` and `lastOffset`."""


class RecordCorruptedError(StoreError):
    """Stored bytes contradict themselves; metadata has `commitLogOffset`, and `file` where known."""


class StoreCorruptedError(StoreError):
    """A store file is damaged so that serving from it could be wrong; metadata has `file` and `offset`."""


class LogChangedError(StoreError):
    """The owner of a log that is only followed cut it or replaced it; metadata has `file` and `commitLogOffset`."""


class FlushFailedError(StoreError):
    """The disk refused a flush: the outcome of waiting appends is unknown and the store is fenced."""


class LogFileLostError(FlushFailedError):
    """A file of the log was removed or moved while the log was open, and the store is fenced; metadata has `file`."""


class DiskFullError(StoreError):
    """No space is left; try again after some is freed."""


class StoreRecoveringError(StoreError):
    """The store is not ready yet; try again soon."""


class StoreReadOnlyError(StoreError):
    """The store is served read-only."""


class NotLeaderError(StoreError):
    """This replica does not lead its shard, so nothing was written; metadata has `leader` and `epoch`, as far as known."""


class NotEnoughReplicasError(StoreError):
    """The shard has too few in-sync replicas for what was asked; nothing was written; metadata has `inSync`, `minInSync`."""


class NotConfirmedError(StoreError):
    """A write is on the leader's log, but not known on the other replicas: it may stay or be cut; metadata has `endOffset`."""


class StoreLockedError(StoreError):
    """Another process owns this part of the store; metadata has `file`."""


class UnsupportedStoreError(StoreError):
    """The directory is not a store, or one of an unsupported kind, or it uses what is not read; metadata has `directory`,
    or `feature` and `topic`."""


class RecordConflictError(StoreError):
    """The record of a shard at its coordinator has another version than the writer knows."""


class CoordinatorUnavailableError(StoreError):
    """The coordinator did not answer, or not so that the outcome is known; metadata has `coordinator`."""


class ServiceUnavailableError(StoreError):
    """A service behind this one did not answer; metadata has `service`."""


class ResourceBusyError(StoreError):
    """A limit on concurrent work is reached; try again soon."""


class QuotaExceededError(StoreError):
    """A namespace has used up a quota of the tenants file; metadata has `namespace`, `quota` and `quotaMax`."""


class LightQueueLimitError(StoreError):
    """The shard has as many light queues (LMQ, lite topics) as it may have; metadata has `count` and `countMax`."""


class LiteSubscriptionQuotaExceededError(StoreError):
    """A client, or all clients of a shard, would subscribe to more lite topics than they may; metadata has `countMax`."""


class UnauthenticatedError(StoreError):
    """A caller sends no credentials, or credentials that are not known."""


class PermissionDeniedError(StoreError):
    """A caller is known but may not call this method; metadata has `method`."""


class DeadlineExceededError(StoreError):
    """The caller's deadline passed before the answer was ready."""


# Parameters of the loggers' methods, and what the processors of `services/observing/telemetry.py` and structlog write or read.
RESERVED = frozenset(
    {
        *("self", "method_name", "event", "level", "logger", "time", "timestamp", "service", "trace_id", "span_id"),
        *("exc_info", "exception", "stack_info", "stack", "stacklevel", "extra", "positional_args"),
        *("_record", "_from_structlog", "_logger", "_name"),
    }
)


def failure_fields(error: Exception, **own: Any) -> dict[str, Any]:
    """The fields of a log line about an error: `error` (its words), `reason`, its metadata, and the line's own fields.

    A field of the line keeps its name. A key of the metadata that is taken, or reserved, gets the prefix `error_`.

    Args:
        error: what is reported; of an OSError the file is named.
        own: further fields of the line; `exc_info` as well.
    """
    fields: dict[str, Any] = {"error": f"{type(error).__name__}: {error}"}
    metadata: dict[str, str] = {}
    if isinstance(error, StoreError):
        fields = {"error": error.message, "reason": error.reason()}
        metadata = error.metadata
    elif isinstance(error, OSError) and error.filename is not None:
        metadata = {"file": str(error.filename)}
    fields |= own
    for key, value in metadata.items():
        name = key
        while name in fields or name in RESERVED:
            name = f"error_{name}"
        fields[name] = value
    return fields
