"""Reput's client library: send messages to a gateway and find them again.

    Producer, AsyncProducer            send: batches, retries without duplicates, bounded memory
    AppendClient, AsyncAppendClient    append one request of messages
    QueryClient, AsyncQueryClient      find messages, page by page, and ask how they were found

It depends on the generated code of the protos and on no server code. Three small things (the table of errors, the layout
of unique keys, the decompression of bodies) therefore exist here and in the servers.

A name is imported from its module when it is first used: a program that only queries does not load the producers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput_client.encoding import FlushMode
    from reput_client.errors import (
        AccessError,
        BatchDeliveryError,
        BodyCompressionError,
        BodyOmittedError,
        BufferFullError,
        BusyError,
        DataLossError,
        DeliveryError,
        DeliveryTimeoutError,
        DeliveryUnknownError,
        FailedPreconditionError,
        InternalError,
        InvalidMessageError,
        InvalidRequestError,
        NotFoundError,
        OffsetOutOfRangeError,
        PartialAnswerError,
        PermissionDeniedError,
        ProducerClosedError,
        ReputClientError,
        TopicNotFoundError,
        UnauthenticatedError,
        UnavailableError,
    )
    from reput_client.producing.append_client import AppendClient, AsyncAppendClient
    from reput_client.producing.async_producer import AsyncProducer
    from reput_client.producing.batch_delivery import Receipts
    from reput_client.producing.new_message import NewMessage
    from reput_client.producing.producer import Producer
    from reput_client.producing.settings import ProducerSettings
    from reput_client.querying import queries
    from reput_client.querying.answers import (
        Boundary,
        Completeness,
        FoundOffset,
        Installation,
        Match,
        MatchedBy,
        Page,
        Queue,
        QueueRange,
        ServiceStatus,
        ShardOutcome,
        Topic,
    )
    from reput_client.querying.async_query_client import AsyncPages, AsyncQueryClient
    from reput_client.querying.explanation import Explanation
    from reput_client.querying.message import Message, MessageSource
    from reput_client.querying.query_client import Pages, QueryClient
    from reput_client.querying.scan import Scan, ScannedRange, SearchStop
    from reput_client.receipt import SendReceipt
    from reput_client.retry import RetryPolicy
    from reput_client.security import ClientSecurity

_NAMES_BY_MODULE = {
    "encoding": "FlushMode",
    "errors": (
        "AccessError BatchDeliveryError BodyCompressionError BodyOmittedError BufferFullError BusyError "
        "DataLossError DeliveryError DeliveryTimeoutError DeliveryUnknownError FailedPreconditionError "
        "InternalError InvalidMessageError InvalidRequestError NotFoundError OffsetOutOfRangeError "
        "PartialAnswerError PermissionDeniedError ProducerClosedError ReputClientError "
        "TopicNotFoundError UnauthenticatedError UnavailableError "
    ),
    "producing.append_client": "AppendClient AsyncAppendClient",
    "producing.async_producer": "AsyncProducer",
    "producing.batch_delivery": "Receipts",
    "producing.new_message": "NewMessage",
    "producing.producer": "Producer",
    "producing.settings": "ProducerSettings",
    "querying.answers": (
        "Boundary Completeness FoundOffset Installation Match MatchedBy Page Queue QueueRange "
        "ServiceStatus ShardOutcome Topic "
    ),
    "querying.async_query_client": "AsyncPages AsyncQueryClient",
    "querying.explanation": "Explanation",
    "querying.message": "Message MessageSource",
    "querying.query_client": "Pages QueryClient",
    "querying.scan": "Scan ScannedRange SearchStop",
    "receipt": "SendReceipt",
    "retry": "RetryPolicy",
    "security": "ClientSecurity",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "AccessError",
    "AppendClient",
    "AsyncAppendClient",
    "AsyncPages",
    "AsyncProducer",
    "AsyncQueryClient",
    "BatchDeliveryError",
    "BodyCompressionError",
    "BodyOmittedError",
    "Boundary",
    "BufferFullError",
    "BusyError",
    "ClientSecurity",
    "Completeness",
    "DataLossError",
    "DeliveryError",
    "DeliveryTimeoutError",
    "DeliveryUnknownError",
    "Explanation",
    "FailedPreconditionError",
    "FlushMode",
    "FoundOffset",
    "Installation",
    "InternalError",
    "InvalidMessageError",
    "InvalidRequestError",
    "Match",
    "MatchedBy",
    "Message",
    "MessageSource",
    "NewMessage",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "Page",
    "Pages",
    "PartialAnswerError",
    "PermissionDeniedError",
    "Producer",
    "ProducerClosedError",
    "ProducerSettings",
    "QueryClient",
    "Queue",
    "QueueRange",
    "Receipts",
    "ReputClientError",
    "RetryPolicy",
    "Scan",
    "ScannedRange",
    "SearchStop",
    "SendReceipt",
    "ServiceStatus",
    "ShardOutcome",
    "Topic",
    "TopicNotFoundError",
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
