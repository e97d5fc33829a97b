import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from reput.gateway.v1 import gateway_service_pb2 as _gateway_service_pb2
from reput.message.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EndTransactionRequest(_message.Message):
    __slots__ = ("topic", "unique_key", "transaction_id", "resolution", "is_from_check")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    IS_FROM_CHECK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    unique_key: str
    transaction_id: str
    resolution: _gateway_service_pb2.TransactionResolution
    is_from_check: bool
    def __init__(self, topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., transaction_id: _Optional[str] = ..., resolution: _Optional[_Union[_gateway_service_pb2.TransactionResolution, str]] = ..., is_from_check: _Optional[bool] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _message_pb2.AppendResult
    def __init__(self, result: _Optional[_Union[_message_pb2.AppendResult, _Mapping]] = ...) -> None: ...

class EndTransactionsRequest(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[EndTransactionRequest]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[EndTransactionRequest, _Mapping]]] = ...) -> None: ...

class EndTransactionsResponse(_message.Message):
    __slots__ = ("outcomes",)
    class Outcome(_message.Message):
        __slots__ = ("ended", "error")
        ENDED_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        ended: EndTransactionResponse
        error: _status_pb2.Status
        def __init__(self, ended: _Optional[_Union[EndTransactionResponse, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[EndTransactionsResponse.Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[EndTransactionsResponse.Outcome, _Mapping]]] = ...) -> None: ...

class RecallMessageRequest(_message.Message):
    __slots__ = ("topic", "unique_key", "delivery_time")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TIME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    unique_key: str
    delivery_time: _timestamp_pb2.Timestamp
    def __init__(self, topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., delivery_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RecallMessageResponse(_message.Message):
    __slots__ = ("offset_msg_id",)
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    def __init__(self, offset_msg_id: _Optional[str] = ...) -> None: ...

class ListPendingTransactionsRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token", "topic_patterns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERNS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    topic_patterns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., topic_patterns: _Optional[_Iterable[str]] = ...) -> None: ...

class PendingTransaction(_message.Message):
    __slots__ = ("topic", "unique_key", "transaction_id", "producer_group", "offset_msg_id", "born_time", "check_count", "next_check_time")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    BORN_TIME_FIELD_NUMBER: _ClassVar[int]
    CHECK_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_CHECK_TIME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    unique_key: str
    transaction_id: str
    producer_group: str
    offset_msg_id: str
    born_time: _timestamp_pb2.Timestamp
    check_count: int
    next_check_time: _timestamp_pb2.Timestamp
    def __init__(self, topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., transaction_id: _Optional[str] = ..., producer_group: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., born_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., check_count: _Optional[int] = ..., next_check_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListPendingTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_page_token", "pending_count")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[PendingTransaction]
    next_page_token: str
    pending_count: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[PendingTransaction, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., pending_count: _Optional[int] = ...) -> None: ...

class ListScheduledMessagesRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token", "topic_patterns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_PATTERNS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    topic_patterns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., topic_patterns: _Optional[_Iterable[str]] = ...) -> None: ...

class ScheduledMessage(_message.Message):
    __slots__ = ("topic", "unique_key", "offset_msg_id", "delivery_time", "delay_level", "recall_handle")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TIME_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    unique_key: str
    offset_msg_id: str
    delivery_time: _timestamp_pb2.Timestamp
    delay_level: int
    recall_handle: str
    def __init__(self, topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., delivery_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay_level: _Optional[int] = ..., recall_handle: _Optional[str] = ...) -> None: ...

class ListScheduledMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "pending_count")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ScheduledMessage]
    next_page_token: str
    pending_count: int
    def __init__(self, messages: _Optional[_Iterable[_Union[ScheduledMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., pending_count: _Optional[int] = ...) -> None: ...

class KeepProducersRequest(_message.Message):
    __slots__ = ("gateway_id", "topics", "producer_groups", "unasked_transaction_ids")
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    UNASKED_TRANSACTION_IDS_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    producer_groups: _containers.RepeatedScalarFieldContainer[str]
    unasked_transaction_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, gateway_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., producer_groups: _Optional[_Iterable[str]] = ..., unasked_transaction_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class KeepProducersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchChecksRequest(_message.Message):
    __slots__ = ("gateway_id",)
    GATEWAY_ID_FIELD_NUMBER: _ClassVar[int]
    gateway_id: str
    def __init__(self, gateway_id: _Optional[str] = ...) -> None: ...

class WatchChecksResponse(_message.Message):
    __slots__ = ("checks",)
    class Check(_message.Message):
        __slots__ = ("message", "transaction_id")
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
        message: _message_pb2.StoredMessage
        transaction_id: str
        def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., transaction_id: _Optional[str] = ...) -> None: ...
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedCompositeFieldContainer[WatchChecksResponse.Check]
    def __init__(self, checks: _Optional[_Iterable[_Union[WatchChecksResponse.Check, _Mapping]]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("next_offset", "log_end_offset", "catching_up", "state", "last_error", "failure_count", "delayed_count", "timer_count", "transaction_count", "oldest_due_time", "delivered_count", "check_count", "recalled_count", "committed_count", "rolled_back_count", "skipped_count", "delay_levels_millis", "removed_transaction_count", "delay_levels")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TIMER_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECK_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECALLED_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_COUNT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_MILLIS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TRANSACTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    log_end_offset: int
    catching_up: bool
    state: str
    last_error: str
    failure_count: int
    delayed_count: int
    timer_count: int
    transaction_count: int
    oldest_due_time: _timestamp_pb2.Timestamp
    delivered_count: int
    check_count: int
    recalled_count: int
    committed_count: int
    rolled_back_count: int
    skipped_count: int
    delay_levels_millis: _containers.RepeatedScalarFieldContainer[int]
    removed_transaction_count: int
    delay_levels: _containers.RepeatedCompositeFieldContainer[_gateway_service_pb2.GetStatusResponse.DelayLevelStatus]
    def __init__(self, next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., state: _Optional[str] = ..., last_error: _Optional[str] = ..., failure_count: _Optional[int] = ..., delayed_count: _Optional[int] = ..., timer_count: _Optional[int] = ..., transaction_count: _Optional[int] = ..., oldest_due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delivered_count: _Optional[int] = ..., check_count: _Optional[int] = ..., recalled_count: _Optional[int] = ..., committed_count: _Optional[int] = ..., rolled_back_count: _Optional[int] = ..., skipped_count: _Optional[int] = ..., delay_levels_millis: _Optional[_Iterable[int]] = ..., removed_transaction_count: _Optional[int] = ..., delay_levels: _Optional[_Iterable[_Union[_gateway_service_pb2.GetStatusResponse.DelayLevelStatus, _Mapping]]] = ...) -> None: ...
