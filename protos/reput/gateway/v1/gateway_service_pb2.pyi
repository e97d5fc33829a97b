import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from reput.message.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MatchedBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MATCHED_BY_UNSPECIFIED: _ClassVar[MatchedBy]
    MATCHED_BY_OFFSET_MSG_ID: _ClassVar[MatchedBy]
    MATCHED_BY_UNIQUE_KEY: _ClassVar[MatchedBy]
    MATCHED_BY_KEY: _ClassVar[MatchedBy]

class SearchOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_ORDER_UNSPECIFIED: _ClassVar[SearchOrder]
    SEARCH_ORDER_OLDEST_FIRST: _ClassVar[SearchOrder]
    SEARCH_ORDER_NEWEST_FIRST: _ClassVar[SearchOrder]

class SearchStop(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_STOP_UNSPECIFIED: _ClassVar[SearchStop]
    SEARCH_STOP_END: _ClassVar[SearchStop]
    SEARCH_STOP_PAGE: _ClassVar[SearchStop]
    SEARCH_STOP_RECORDS: _ClassVar[SearchStop]
    SEARCH_STOP_BYTES: _ClassVar[SearchStop]
    SEARCH_STOP_TIME: _ClassVar[SearchStop]

class PassedOver(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PASSED_OVER_UNSPECIFIED: _ClassVar[PassedOver]
    PASSED_OVER_CURSOR: _ClassVar[PassedOver]
    PASSED_OVER_TIME: _ClassVar[PassedOver]
    PASSED_OVER_FILTER: _ClassVar[PassedOver]

class Rejection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REJECTION_UNSPECIFIED: _ClassVar[Rejection]
    REJECTION_OTHER_TOPIC: _ClassVar[Rejection]
    REJECTION_OTHER_KEY: _ClassVar[Rejection]
    REJECTION_OUT_OF_WINDOW: _ClassVar[Rejection]
    REJECTION_DROPPED: _ClassVar[Rejection]
    REJECTION_UNREADABLE: _ClassVar[Rejection]

class Boundary(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BOUNDARY_UNSPECIFIED: _ClassVar[Boundary]
    BOUNDARY_LOWER: _ClassVar[Boundary]
    BOUNDARY_UPPER: _ClassVar[Boundary]
MATCHED_BY_UNSPECIFIED: MatchedBy
MATCHED_BY_OFFSET_MSG_ID: MatchedBy
MATCHED_BY_UNIQUE_KEY: MatchedBy
MATCHED_BY_KEY: MatchedBy
SEARCH_ORDER_UNSPECIFIED: SearchOrder
SEARCH_ORDER_OLDEST_FIRST: SearchOrder
SEARCH_ORDER_NEWEST_FIRST: SearchOrder
SEARCH_STOP_UNSPECIFIED: SearchStop
SEARCH_STOP_END: SearchStop
SEARCH_STOP_PAGE: SearchStop
SEARCH_STOP_RECORDS: SearchStop
SEARCH_STOP_BYTES: SearchStop
SEARCH_STOP_TIME: SearchStop
PASSED_OVER_UNSPECIFIED: PassedOver
PASSED_OVER_CURSOR: PassedOver
PASSED_OVER_TIME: PassedOver
PASSED_OVER_FILTER: PassedOver
REJECTION_UNSPECIFIED: Rejection
REJECTION_OTHER_TOPIC: Rejection
REJECTION_OTHER_KEY: Rejection
REJECTION_OUT_OF_WINDOW: Rejection
REJECTION_DROPPED: Rejection
REJECTION_UNREADABLE: Rejection
BOUNDARY_UNSPECIFIED: Boundary
BOUNDARY_LOWER: Boundary
BOUNDARY_UPPER: Boundary

class AppendMessagesRequest(_message.Message):
    __slots__ = ("messages", "flush", "deduplicate", "broker_name")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATE_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.NewMessage]
    flush: _message_pb2.FlushMode
    deduplicate: bool
    broker_name: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.NewMessage, _Mapping]]] = ..., flush: _Optional[_Union[_message_pb2.FlushMode, str]] = ..., deduplicate: _Optional[bool] = ..., broker_name: _Optional[str] = ...) -> None: ...

class AppendMessagesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_message_pb2.AppendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[_message_pb2.AppendResult, _Mapping]]] = ...) -> None: ...

class AppendMessageStreamRequest(_message.Message):
    __slots__ = ("messages", "flush", "deduplicate", "broker_name")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATE_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.NewMessage]
    flush: _message_pb2.FlushMode
    deduplicate: bool
    broker_name: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.NewMessage, _Mapping]]] = ..., flush: _Optional[_Union[_message_pb2.FlushMode, str]] = ..., deduplicate: _Optional[bool] = ..., broker_name: _Optional[str] = ...) -> None: ...

class AppendMessageStreamResponse(_message.Message):
    __slots__ = ("results", "error")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_message_pb2.AppendResult]
    error: _status_pb2.Status
    def __init__(self, results: _Optional[_Iterable[_Union[_message_pb2.AppendResult, _Mapping]]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class ShardOutcome(_message.Message):
    __slots__ = ("broker_name", "error", "indexed_up_to_offset", "indexed_up_to_time", "log_end_offset", "catching_up")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    INDEXED_UP_TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INDEXED_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    error: _status_pb2.Status
    indexed_up_to_offset: int
    indexed_up_to_time: _timestamp_pb2.Timestamp
    log_end_offset: int
    catching_up: bool
    def __init__(self, broker_name: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., indexed_up_to_offset: _Optional[int] = ..., indexed_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ...) -> None: ...

class QueryMessageByKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "begin_time", "end_time", "page_size", "page_token", "freshness_tokens")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., freshness_tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryMessageByKeyResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "completeness", "shards", "begin_time", "end_time")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.StoredMessage]
    next_page_token: str
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.StoredMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FindMessageRequest(_message.Message):
    __slots__ = ("text", "topic", "begin_time", "end_time", "page_size", "freshness_tokens", "page_token", "max_millis")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MAX_MILLIS_FIELD_NUMBER: _ClassVar[int]
    text: str
    topic: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    page_token: str
    max_millis: int
    def __init__(self, text: _Optional[str] = ..., topic: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., page_token: _Optional[str] = ..., max_millis: _Optional[int] = ...) -> None: ...

class FindMessageResponse(_message.Message):
    __slots__ = ("matches", "completeness", "shards", "topic_count", "begin_time", "end_time", "next_page_token")
    class Match(_message.Message):
        __slots__ = ("message", "matched_by")
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        MATCHED_BY_FIELD_NUMBER: _ClassVar[int]
        message: _message_pb2.StoredMessage
        matched_by: MatchedBy
        def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., matched_by: _Optional[_Union[MatchedBy, str]] = ...) -> None: ...
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[FindMessageResponse.Match]
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    topic_count: int
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    next_page_token: str
    def __init__(self, matches: _Optional[_Iterable[_Union[FindMessageResponse.Match, _Mapping]]] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., topic_count: _Optional[int] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SearchMessagesRequest(_message.Message):
    __slots__ = ("topic", "broker_name", "queue_id", "begin_queue_offset", "end_queue_offset", "begin_time", "end_time", "order", "tags", "properties", "body_text", "body_hex", "cel", "page_size", "page_token", "max_records", "max_bytes", "max_millis", "freshness_tokens", "count_total")
    class Property(_message.Message):
        __slots__ = ("name", "value")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        name: str
        value: str
        def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BODY_TEXT_FIELD_NUMBER: _ClassVar[int]
    BODY_HEX_FIELD_NUMBER: _ClassVar[int]
    CEL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MILLIS_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COUNT_TOTAL_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_name: str
    queue_id: int
    begin_queue_offset: int
    end_queue_offset: int
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    order: SearchOrder
    tags: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.RepeatedCompositeFieldContainer[SearchMessagesRequest.Property]
    body_text: str
    body_hex: str
    cel: str
    page_size: int
    page_token: str
    max_records: int
    max_bytes: int
    max_millis: int
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    count_total: bool
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ..., begin_queue_offset: _Optional[int] = ..., end_queue_offset: _Optional[int] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., order: _Optional[_Union[SearchOrder, str]] = ..., tags: _Optional[_Iterable[str]] = ..., properties: _Optional[_Iterable[_Union[SearchMessagesRequest.Property, _Mapping]]] = ..., body_text: _Optional[str] = ..., body_hex: _Optional[str] = ..., cel: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., max_records: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_millis: _Optional[int] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., count_total: _Optional[bool] = ...) -> None: ...

class SearchMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "completeness", "shards", "scanned_ranges", "stop", "scanned_record_count", "scanned_bytes", "unreadable_count", "cel_error_count", "cel_error", "begin_time", "end_time", "total_record_count", "passed_record_count")
    class ScannedRange(_message.Message):
        __slots__ = ("broker_name", "queue_id", "begin_offset", "end_offset")
        BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
        QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
        BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
        END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        broker_name: str
        queue_id: int
        begin_offset: int
        end_offset: int
        def __init__(self, broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ..., begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    SCANNED_RANGES_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SCANNED_RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCANNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CEL_ERROR_COUNT_FIELD_NUMBER: _ClassVar[int]
    CEL_ERROR_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    PASSED_RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.StoredMessage]
    next_page_token: str
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    scanned_ranges: _containers.RepeatedCompositeFieldContainer[SearchMessagesResponse.ScannedRange]
    stop: SearchStop
    scanned_record_count: int
    scanned_bytes: int
    unreadable_count: int
    cel_error_count: int
    cel_error: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    total_record_count: int
    passed_record_count: int
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.StoredMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., scanned_ranges: _Optional[_Iterable[_Union[SearchMessagesResponse.ScannedRange, _Mapping]]] = ..., stop: _Optional[_Union[SearchStop, str]] = ..., scanned_record_count: _Optional[int] = ..., scanned_bytes: _Optional[int] = ..., unreadable_count: _Optional[int] = ..., cel_error_count: _Optional[int] = ..., cel_error: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., total_record_count: _Optional[int] = ..., passed_record_count: _Optional[int] = ...) -> None: ...

class ExplainQueryRequest(_message.Message):
    __slots__ = ("by_key", "by_unique_key", "by_id", "by_offset", "find")
    BY_KEY_FIELD_NUMBER: _ClassVar[int]
    BY_UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    BY_ID_FIELD_NUMBER: _ClassVar[int]
    BY_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIND_FIELD_NUMBER: _ClassVar[int]
    by_key: QueryMessageByKeyRequest
    by_unique_key: QueryMessageByUniqueKeyRequest
    by_id: QueryMessageByIdRequest
    by_offset: QueryMessageByOffsetRequest
    find: FindMessageRequest
    def __init__(self, by_key: _Optional[_Union[QueryMessageByKeyRequest, _Mapping]] = ..., by_unique_key: _Optional[_Union[QueryMessageByUniqueKeyRequest, _Mapping]] = ..., by_id: _Optional[_Union[QueryMessageByIdRequest, _Mapping]] = ..., by_offset: _Optional[_Union[QueryMessageByOffsetRequest, _Mapping]] = ..., find: _Optional[_Union[FindMessageRequest, _Mapping]] = ...) -> None: ...

class ShardExplanation(_message.Message):
    __slots__ = ("broker_name", "error", "lookups", "omitted_lookup_count", "steps", "elapsed_micros")
    class FileVisit(_message.Message):
        __slots__ = ("name", "passed_over", "entry_count", "chain_entry_count", "same_hash_count", "outside_count", "candidate_count", "damaged", "read_bytes")
        NAME_FIELD_NUMBER: _ClassVar[int]
        PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
        ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
        CHAIN_ENTRY_COUNT_FIELD_NUMBER: _ClassVar[int]
        SAME_HASH_COUNT_FIELD_NUMBER: _ClassVar[int]
        OUTSIDE_COUNT_FIELD_NUMBER: _ClassVar[int]
        CANDIDATE_COUNT_FIELD_NUMBER: _ClassVar[int]
        DAMAGED_FIELD_NUMBER: _ClassVar[int]
        READ_BYTES_FIELD_NUMBER: _ClassVar[int]
        name: str
        passed_over: PassedOver
        entry_count: int
        chain_entry_count: int
        same_hash_count: int
        outside_count: int
        candidate_count: int
        damaged: bool
        read_bytes: int
        def __init__(self, name: _Optional[str] = ..., passed_over: _Optional[_Union[PassedOver, str]] = ..., entry_count: _Optional[int] = ..., chain_entry_count: _Optional[int] = ..., same_hash_count: _Optional[int] = ..., outside_count: _Optional[int] = ..., candidate_count: _Optional[int] = ..., damaged: _Optional[bool] = ..., read_bytes: _Optional[int] = ...) -> None: ...
    class Rejected(_message.Message):
        __slots__ = ("commit_log_offset", "reason", "detail")
        COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        DETAIL_FIELD_NUMBER: _ClassVar[int]
        commit_log_offset: int
        reason: Rejection
        detail: str
        def __init__(self, commit_log_offset: _Optional[int] = ..., reason: _Optional[_Union[Rejection, str]] = ..., detail: _Optional[str] = ...) -> None: ...
    class Lookup(_message.Message):
        __slots__ = ("topic", "key", "key_hash", "slot", "slot_count", "passed_over", "visits", "round_count", "candidate_count", "match_count", "rejected_count", "rejected", "unread_count", "read_bytes", "search_micros")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        KEY_FIELD_NUMBER: _ClassVar[int]
        KEY_HASH_FIELD_NUMBER: _ClassVar[int]
        SLOT_FIELD_NUMBER: _ClassVar[int]
        SLOT_COUNT_FIELD_NUMBER: _ClassVar[int]
        PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
        VISITS_FIELD_NUMBER: _ClassVar[int]
        ROUND_COUNT_FIELD_NUMBER: _ClassVar[int]
        CANDIDATE_COUNT_FIELD_NUMBER: _ClassVar[int]
        MATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
        REJECTED_COUNT_FIELD_NUMBER: _ClassVar[int]
        REJECTED_FIELD_NUMBER: _ClassVar[int]
        UNREAD_COUNT_FIELD_NUMBER: _ClassVar[int]
        READ_BYTES_FIELD_NUMBER: _ClassVar[int]
        SEARCH_MICROS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        key: str
        key_hash: int
        slot: int
        slot_count: int
        passed_over: PassedOver
        visits: _containers.RepeatedCompositeFieldContainer[ShardExplanation.FileVisit]
        round_count: int
        candidate_count: int
        match_count: int
        rejected_count: int
        rejected: _containers.RepeatedCompositeFieldContainer[ShardExplanation.Rejected]
        unread_count: int
        read_bytes: int
        search_micros: int
        def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., key_hash: _Optional[int] = ..., slot: _Optional[int] = ..., slot_count: _Optional[int] = ..., passed_over: _Optional[_Union[PassedOver, str]] = ..., visits: _Optional[_Iterable[_Union[ShardExplanation.FileVisit, _Mapping]]] = ..., round_count: _Optional[int] = ..., candidate_count: _Optional[int] = ..., match_count: _Optional[int] = ..., rejected_count: _Optional[int] = ..., rejected: _Optional[_Iterable[_Union[ShardExplanation.Rejected, _Mapping]]] = ..., unread_count: _Optional[int] = ..., read_bytes: _Optional[int] = ..., search_micros: _Optional[int] = ...) -> None: ...
    class Step(_message.Message):
        __slots__ = ("name", "call_count", "item_count", "message_bytes", "elapsed_micros")
        NAME_FIELD_NUMBER: _ClassVar[int]
        CALL_COUNT_FIELD_NUMBER: _ClassVar[int]
        ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
        ELAPSED_MICROS_FIELD_NUMBER: _ClassVar[int]
        name: str
        call_count: int
        item_count: int
        message_bytes: int
        elapsed_micros: int
        def __init__(self, name: _Optional[str] = ..., call_count: _Optional[int] = ..., item_count: _Optional[int] = ..., message_bytes: _Optional[int] = ..., elapsed_micros: _Optional[int] = ...) -> None: ...
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOOKUPS_FIELD_NUMBER: _ClassVar[int]
    OMITTED_LOOKUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MICROS_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    error: _status_pb2.Status
    lookups: _containers.RepeatedCompositeFieldContainer[ShardExplanation.Lookup]
    omitted_lookup_count: int
    steps: _containers.RepeatedCompositeFieldContainer[ShardExplanation.Step]
    elapsed_micros: int
    def __init__(self, broker_name: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., lookups: _Optional[_Iterable[_Union[ShardExplanation.Lookup, _Mapping]]] = ..., omitted_lookup_count: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[ShardExplanation.Step, _Mapping]]] = ..., elapsed_micros: _Optional[int] = ...) -> None: ...

class ExplainQueryResponse(_message.Message):
    __slots__ = ("shards", "error", "message_count", "completeness", "next_page_token", "elapsed_micros")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MICROS_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[ShardExplanation]
    error: _status_pb2.Status
    message_count: int
    completeness: _message_pb2.Completeness
    next_page_token: str
    elapsed_micros: int
    def __init__(self, shards: _Optional[_Iterable[_Union[ShardExplanation, _Mapping]]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., message_count: _Optional[int] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., next_page_token: _Optional[str] = ..., elapsed_micros: _Optional[int] = ...) -> None: ...

class QueryMessageByIdRequest(_message.Message):
    __slots__ = ("offset_msg_id", "topic", "broker_name")
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    topic: str
    broker_name: str
    def __init__(self, offset_msg_id: _Optional[str] = ..., topic: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class QueryMessageByIdResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.StoredMessage
    def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ...) -> None: ...

class QueryMessageByUniqueKeyRequest(_message.Message):
    __slots__ = ("topic", "unique_key", "page_size", "page_token", "freshness_tokens")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    unique_key: str
    page_size: int
    page_token: str
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., freshness_tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryMessageByUniqueKeyResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "completeness", "shards")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.StoredMessage]
    next_page_token: str
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.StoredMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ...) -> None: ...

class QueryMessageByOffsetRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "broker_name", "max_messages", "freshness_tokens", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    broker_name: str
    max_messages: int
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., broker_name: _Optional[str] = ..., max_messages: _Optional[int] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class QueryMessageByOffsetResponse(_message.Message):
    __slots__ = ("messages", "min_offset", "max_offset", "next_queue_offset", "completeness", "shards", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.StoredMessage]
    min_offset: int
    max_offset: int
    next_queue_offset: int
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.StoredMessage, _Mapping]]] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., next_queue_offset: _Optional[int] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DownloadBodyRequest(_message.Message):
    __slots__ = ("offset_msg_id", "broker_name")
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    broker_name: str
    def __init__(self, offset_msg_id: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class DownloadBodyResponse(_message.Message):
    __slots__ = ("chunk", "body_size_bytes")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    body_size_bytes: int
    def __init__(self, chunk: _Optional[bytes] = ..., body_size_bytes: _Optional[int] = ...) -> None: ...

class SearchOffsetRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "time", "boundary", "broker_name", "freshness_tokens")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    time: _timestamp_pb2.Timestamp
    boundary: Boundary
    broker_name: str
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., boundary: _Optional[_Union[Boundary, str]] = ..., broker_name: _Optional[str] = ..., freshness_tokens: _Optional[_Iterable[str]] = ...) -> None: ...

class SearchOffsetResponse(_message.Message):
    __slots__ = ("queue_offset", "min_offset", "max_offset", "completeness", "shards", "first_store_time", "last_store_time")
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    min_offset: int
    max_offset: int
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    first_store_time: _timestamp_pb2.Timestamp
    last_store_time: _timestamp_pb2.Timestamp
    def __init__(self, queue_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., first_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "topic", "name_contains")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    topic: str
    name_contains: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., topic: _Optional[str] = ..., name_contains: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token", "completeness", "shards")
    class Topic(_message.Message):
        __slots__ = ("topic", "queues", "queue_count")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        QUEUES_FIELD_NUMBER: _ClassVar[int]
        QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
        topic: str
        queues: _containers.RepeatedCompositeFieldContainer[ListTopicsResponse.Queue]
        queue_count: int
        def __init__(self, topic: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[ListTopicsResponse.Queue, _Mapping]]] = ..., queue_count: _Optional[int] = ...) -> None: ...
    class Queue(_message.Message):
        __slots__ = ("broker_name", "queue_id", "min_offset", "max_offset")
        BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
        QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
        MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
        MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
        broker_name: str
        queue_id: int
        min_offset: int
        max_offset: int
        def __init__(self, broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[ListTopicsResponse.Topic]
    next_page_token: str
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    def __init__(self, topics: _Optional[_Iterable[_Union[ListTopicsResponse.Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("services", "version")
    class ServiceStatus(_message.Message):
        __slots__ = ("broker_name", "service", "address", "error", "log_first_offset", "log_end_offset", "next_offset", "catching_up", "state", "problem", "recovery_begin_offset", "recovery_next_offset", "recovery_end_offset", "file_count", "file_size_bytes", "key_count", "disk_total_bytes", "disk_free_bytes", "disk_level", "newest_store_time")
        BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
        SERVICE_FIELD_NUMBER: _ClassVar[int]
        ADDRESS_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        LOG_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
        LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
        CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        PROBLEM_FIELD_NUMBER: _ClassVar[int]
        RECOVERY_BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
        RECOVERY_NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
        RECOVERY_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
        FILE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
        KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
        DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
        DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
        DISK_LEVEL_FIELD_NUMBER: _ClassVar[int]
        NEWEST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
        broker_name: str
        service: str
        address: str
        error: _status_pb2.Status
        log_first_offset: int
        log_end_offset: int
        next_offset: int
        catching_up: bool
        state: str
        problem: str
        recovery_begin_offset: int
        recovery_next_offset: int
        recovery_end_offset: int
        file_count: int
        file_size_bytes: int
        key_count: int
        disk_total_bytes: int
        disk_free_bytes: int
        disk_level: str
        newest_store_time: _timestamp_pb2.Timestamp
        def __init__(self, broker_name: _Optional[str] = ..., service: _Optional[str] = ..., address: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., log_first_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., recovery_begin_offset: _Optional[int] = ..., recovery_next_offset: _Optional[int] = ..., recovery_end_offset: _Optional[int] = ..., file_count: _Optional[int] = ..., file_size_bytes: _Optional[int] = ..., key_count: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., disk_level: _Optional[str] = ..., newest_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.ServiceStatus]
    version: str
    def __init__(self, services: _Optional[_Iterable[_Union[GetStatusResponse.ServiceStatus, _Mapping]]] = ..., version: _Optional[str] = ...) -> None: ...
