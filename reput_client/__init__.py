"""Reput's client library: send messages to a gateway, consume them, and find them again.

    Producer, AsyncProducer            send: batches, retries without duplicates, bounded memory
    TransactionProducer, AsyncTransactionProducer    send messages that count when they are committed
    AppendClient, AsyncAppendClient    append one request of messages
    Consumer, AsyncConsumer            get the messages of a consumer group, each to be acknowledged
    PullConsumer                       read queues by position, shared among the members of a group
    QueryClient, AsyncQueryClient      find messages, page by page, and ask how they were found
    AdminClient                        create, change and delete topics

It depends on the generated code of the protos and on no server code. Three small things (the table of errors, the layout
of unique keys, the decompression of bodies) therefore exist here and in the servers.

A name is imported from its module when it is first used: a program that only queries does not load the producers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput_client.commands import TransactionResolution
    from reput_client.consuming.consumer import AsyncConsumer, Consumer, Delivery
    from reput_client.consuming.pulling.allocation import MessageQueue
    from reput_client.consuming.pulling.membership import StartFrom
    from reput_client.consuming.pulling.pull_consumer import PullConsumer
    from reput_client.consuming.received_message import ReceivedMessage
    from reput_client.consuming.settings import ConsumerSettings, PullConsumerSettings
    from reput_client.consuming.subscription import Sql
    from reput_client.encoding import FlushMode
    from reput_client.errors import (
        AccessError,
        BatchDeliveryError,
        BodyCompressionError,
        BodyOmittedError,
        BufferFullError,
        BusyError,
        ConsumerClosedError,
        DataLossError,
        DeliveryError,
        DeliveryTimeoutError,
        DeliveryUnknownError,
        FailedPreconditionError,
        GroupDisabledError,
        GroupNotFoundError,
        IllegalFilterError,
        InternalError,
        InvalidMessageError,
        InvalidRequestError,
        NotFoundError,
        OffsetOutOfRangeError,
        PartialAnswerError,
        PermissionDeniedError,
        ProducerClosedError,
        ReceiptHandleNotFoundError,
        ReputClientError,
        ScheduledMessageNotFoundError,
        TopicExistsError,
        TopicNotFoundError,
        TopicNotReadableError,
        TransactionNotFoundError,
        UnauthenticatedError,
        UnavailableError,
    )
    from reput_client.producing.append_client import AppendClient, AsyncAppendClient
    from reput_client.producing.futures import Receipts
    from reput_client.producing.messages import NewMessage
    from reput_client.producing.producer import AsyncProducer, Producer
    from reput_client.producing.settings import ProducerSettings
    from reput_client.producing.transactions import (
        AsyncHalfMessage,
        AsyncTransactionProducer,
        HalfMessage,
        TransactionProducer,
    )
    from reput_client.querying import queries
    from reput_client.querying.answers import (
        Boundary,
        Completeness,
        FoundOffset,
        Installation,
        Match,
        MatchedBy,
        MessageState,
        MessageTraces,
        MessageTracks,
        Page,
        Queue,
        QueueRange,
        ReplicaStatus,
        Scan,
        ScannedRange,
        SearchStop,
        ServiceStatus,
        ShardOutcome,
        Topic,
        TraceEvent,
        TraceKind,
        TraceOutcome,
        Track,
        TrackState,
    )
    from reput_client.querying.explanation import Explanation
    from reput_client.querying.groups import (
        ConsumerGroup,
        ConsumerGroupDetails,
        ConsumerGroups,
        ConsumerRunningInfo,
        GroupMember,
        GroupQueue,
        LiteGroup,
        LiteTopic,
        LiteTopicGroup,
        LiteTopics,
        LiteTopicsLag,
        PulledMessages,
        PullStatus,
        QueuePosition,
        QueueReset,
        ResentDeadLetter,
        ResentDeadLetters,
        RunningQueue,
        RunningTopic,
        SendBackOutcome,
    )
    from reput_client.querying.message import Message, MessageSource
    from reput_client.querying.query_client import AsyncPages, AsyncQueryClient, Pages, QueryClient
    from reput_client.querying.question import ReadChoice, ReadFrom
    from reput_client.querying.tenants import Tenant
    from reput_client.querying.waiting import PendingTransaction, ScheduledMessage
    from reput_client.receipt import SendReceipt
    from reput_client.retry import RetryPolicy
    from reput_client.security import ClientSecurity
    from reput_client.topic_admin import AdminClient, MessageType, TopicSettings

_NAMES_BY_MODULE = {
    "commands": "TransactionResolution",
    "consuming.consumer": "AsyncConsumer Consumer Delivery",
    "consuming.pulling.allocation": "MessageQueue",
    "consuming.pulling.membership": "StartFrom",
    "consuming.pulling.pull_consumer": "PullConsumer",
    "consuming.received_message": "ReceivedMessage",
    "consuming.settings": "ConsumerSettings PullConsumerSettings",
    "consuming.subscription": "Sql",
    "encoding": "FlushMode",
    "errors": (
        "AccessError BatchDeliveryError BodyCompressionError BodyOmittedError BufferFullError BusyError "
        "ConsumerClosedError DataLossError DeliveryError DeliveryTimeoutError DeliveryUnknownError "
        "FailedPreconditionError GroupDisabledError GroupNotFoundError IllegalFilterError InternalError "
        "InvalidMessageError InvalidRequestError NotFoundError OffsetOutOfRangeError PartialAnswerError "
        "PermissionDeniedError ProducerClosedError ReceiptHandleNotFoundError ReputClientError "
        "ScheduledMessageNotFoundError TopicExistsError TopicNotFoundError TopicNotReadableError "
        "TransactionNotFoundError UnauthenticatedError UnavailableError "
    ),
    "producing.append_client": "AppendClient AsyncAppendClient",
    "producing.futures": "Receipts",
    "producing.messages": "NewMessage",
    "producing.producer": "AsyncProducer Producer",
    "producing.settings": "ProducerSettings",
    "producing.transactions": ("AsyncHalfMessage AsyncTransactionProducer HalfMessage TransactionProducer "),
    "querying.answers": (
        "Boundary Completeness FoundOffset Installation Match MatchedBy MessageState MessageTraces MessageTracks Page Queue "
        "QueueRange ReplicaStatus Scan ScannedRange SearchStop ServiceStatus ShardOutcome Topic Track "
        "TraceEvent TraceKind TraceOutcome TrackState "
    ),
    "querying.explanation": "Explanation",
    "querying.groups": (
        "ConsumerGroup ConsumerGroupDetails ConsumerGroups ConsumerRunningInfo GroupMember GroupQueue LiteGroup LiteTopic "
        "LiteTopicGroup LiteTopics LiteTopicsLag PullStatus "
        "PulledMessages QueuePosition QueueReset ResentDeadLetter ResentDeadLetters RunningQueue RunningTopic "
        "SendBackOutcome "
    ),
    "querying.message": "Message MessageSource",
    "querying.query_client": "AsyncPages AsyncQueryClient Pages QueryClient",
    "querying.question": "ReadChoice ReadFrom",
    "querying.tenants": "Tenant",
    "querying.waiting": "PendingTransaction ScheduledMessage",
    "receipt": "SendReceipt",
    "retry": "RetryPolicy",
    "security": "ClientSecurity",
    "topic_admin": "AdminClient MessageType TopicSettings",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "AccessError",
    "AdminClient",
    "AppendClient",
    "AsyncAppendClient",
    "AsyncConsumer",
    "AsyncHalfMessage",
    "AsyncPages",
    "AsyncProducer",
    "AsyncQueryClient",
    "AsyncTransactionProducer",
    "BatchDeliveryError",
    "BodyCompressionError",
    "BodyOmittedError",
    "Boundary",
    "BufferFullError",
    "BusyError",
    "ClientSecurity",
    "Completeness",
    "Consumer",
    "ConsumerClosedError",
    "ConsumerGroup",
    "ConsumerGroupDetails",
    "ConsumerGroups",
    "ConsumerRunningInfo",
    "ConsumerSettings",
    "DataLossError",
    "Delivery",
    "DeliveryError",
    "DeliveryTimeoutError",
    "DeliveryUnknownError",
    "Explanation",
    "FailedPreconditionError",
    "FlushMode",
    "FoundOffset",
    "GroupDisabledError",
    "GroupMember",
    "GroupNotFoundError",
    "GroupQueue",
    "HalfMessage",
    "IllegalFilterError",
    "Installation",
    "InternalError",
    "InvalidMessageError",
    "InvalidRequestError",
    "LiteGroup",
    "LiteTopic",
    "LiteTopicGroup",
    "LiteTopics",
    "LiteTopicsLag",
    "Match",
    "MatchedBy",
    "Message",
    "MessageQueue",
    "MessageSource",
    "MessageState",
    "MessageTraces",
    "MessageTracks",
    "MessageType",
    "NewMessage",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "Page",
    "Pages",
    "PartialAnswerError",
    "PendingTransaction",
    "PermissionDeniedError",
    "Producer",
    "ProducerClosedError",
    "ProducerSettings",
    "PullConsumer",
    "PullConsumerSettings",
    "PullStatus",
    "PulledMessages",
    "QueryClient",
    "Queue",
    "QueuePosition",
    "QueueRange",
    "QueueReset",
    "ReadChoice",
    "ReadFrom",
    "ReceiptHandleNotFoundError",
    "Receipts",
    "ReceivedMessage",
    "ReplicaStatus",
    "ReputClientError",
    "ResentDeadLetter",
    "ResentDeadLetters",
    "RetryPolicy",
    "RunningQueue",
    "RunningTopic",
    "Scan",
    "ScannedRange",
    "ScheduledMessage",
    "ScheduledMessageNotFoundError",
    "SearchStop",
    "SendBackOutcome",
    "SendReceipt",
    "ServiceStatus",
    "ShardOutcome",
    "Sql",
    "StartFrom",
    "Tenant",
    "Topic",
    "TopicExistsError",
    "TopicNotFoundError",
    "TopicNotReadableError",
    "TopicSettings",
    "TraceEvent",
    "TraceKind",
    "TraceOutcome",
    "Track",
    "TrackState",
    "TransactionNotFoundError",
    "TransactionProducer",
    "TransactionResolution",
    "UnauthenticatedError",
    "UnavailableError",
    "queries",
]


def __getattr__(name: str) -> Any:
    if name == "queries":
        value: Any = import_module("reput_client.querying.queries")
    elif name in _MODULE_BY_NAME:
        value = getattr(import_module(f"reput_client.{_MODULE_BY_NAME[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
