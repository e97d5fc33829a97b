"""Reput's client library: send messages to a gateway and find them again.

    Producer, AsyncProducer          send; batching, retries without doubles, bounded memory
    QueryClient, AsyncQueryClient    find; page after page, and how it was found

It needs nothing of the servers but the generated code of the protos: some small things (the table of errors, the layout
of unique keys, the inflating of bodies) stand here a second time, so that a client that people install does not bring
the servers with it.
"""

from reput_client import queries
from reput_client.answers import (
    Boundary,
    Completeness,
    FoundOffset,
    Match,
    MatchedBy,
    Page,
    Queue,
    ServiceStatus,
    ShardOutcome,
    Topic,
)
from reput_client.async_producer import AsyncProducer
from reput_client.async_query_client import AsyncPages, AsyncQueryClient
from reput_client.batch_delivery import Receipts
from reput_client.encoding import FlushMode
from reput_client.errors import (
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
    PartialAnswerError,
    PermissionDeniedError,
    ProducerClosedError,
    ReputClientError,
    TopicNotFoundError,
    UnauthenticatedError,
    UnavailableError,
)
from reput_client.explanation import Explanation
from reput_client.message import Message
from reput_client.new_message import NewMessage
from reput_client.producer import Producer
from reput_client.query_client import Pages, QueryClient
from reput_client.receipt import SendReceipt
from reput_client.retry import RetryPolicy
from reput_client.scan import Scan, ScannedRange, SearchStop
from reput_client.security import ClientSecurity
from reput_client.settings import ProducerSettings

__all__ = [
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
    "InternalError",
    "InvalidMessageError",
    "InvalidRequestError",
    "Match",
    "MatchedBy",
    "Message",
    "NewMessage",
    "NotFoundError",
    "Page",
    "Pages",
    "PartialAnswerError",
    "PermissionDeniedError",
    "Producer",
    "ProducerClosedError",
    "ProducerSettings",
    "QueryClient",
    "Queue",
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
