import datetime

from google.protobuf import duration_pb2 as _duration_pb2
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

class ReadFrom(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_FROM_UNSPECIFIED: _ClassVar[ReadFrom]
    READ_FROM_LEADER: _ClassVar[ReadFrom]
    READ_FROM_ANY: _ClassVar[ReadFrom]
    READ_FROM_REPLICA: _ClassVar[ReadFrom]

class KeyType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEY_TYPE_UNSPECIFIED: _ClassVar[KeyType]
    KEY_TYPE_TAGS: _ClassVar[KeyType]

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

class PullStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PULL_STATUS_UNSPECIFIED: _ClassVar[PullStatus]
    PULL_STATUS_FOUND: _ClassVar[PullStatus]
    PULL_STATUS_NO_NEW_MSG: _ClassVar[PullStatus]
    PULL_STATUS_NO_MATCHED_MSG: _ClassVar[PullStatus]
    PULL_STATUS_OFFSET_ILLEGAL: _ClassVar[PullStatus]

class SendBackOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEND_BACK_OUTCOME_UNSPECIFIED: _ClassVar[SendBackOutcome]
    SEND_BACK_OUTCOME_OK: _ClassVar[SendBackOutcome]
    SEND_BACK_OUTCOME_DEAD_LETTER: _ClassVar[SendBackOutcome]
    SEND_BACK_OUTCOME_REMOVED: _ClassVar[SendBackOutcome]

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATE_UNSPECIFIED: _ClassVar[MessageState]
    MESSAGE_STATE_STORED: _ClassVar[MessageState]
    MESSAGE_STATE_SCHEDULED: _ClassVar[MessageState]
    MESSAGE_STATE_PENDING_TRANSACTION: _ClassVar[MessageState]
    MESSAGE_STATE_RECALLED: _ClassVar[MessageState]
    MESSAGE_STATE_ROLLED_BACK: _ClassVar[MessageState]
    MESSAGE_STATE_GIVEN_UP: _ClassVar[MessageState]

class TrackState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACK_STATE_UNSPECIFIED: _ClassVar[TrackState]
    TRACK_STATE_CONSUMED: _ClassVar[TrackState]
    TRACK_STATE_NOT_CONSUMED: _ClassVar[TrackState]
    TRACK_STATE_IN_FLIGHT: _ClassVar[TrackState]
    TRACK_STATE_RETRYING: _ClassVar[TrackState]
    TRACK_STATE_DEAD_LETTER: _ClassVar[TrackState]
    TRACK_STATE_FILTERED_OUT: _ClassVar[TrackState]
    TRACK_STATE_SKIPPED: _ClassVar[TrackState]
    TRACK_STATE_UNKNOWN: _ClassVar[TrackState]

class TraceKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACE_KIND_UNSPECIFIED: _ClassVar[TraceKind]
    TRACE_KIND_SEND: _ClassVar[TraceKind]
    TRACE_KIND_END_TRANSACTION: _ClassVar[TraceKind]
    TRACE_KIND_CONSUME: _ClassVar[TraceKind]
    TRACE_KIND_RECALL: _ClassVar[TraceKind]

class TraceOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACE_OUTCOME_UNSPECIFIED: _ClassVar[TraceOutcome]
    TRACE_OUTCOME_SUCCESS: _ClassVar[TraceOutcome]
    TRACE_OUTCOME_FAILED: _ClassVar[TraceOutcome]
    TRACE_OUTCOME_TIMED_OUT: _ClassVar[TraceOutcome]
    TRACE_OUTCOME_EXCEPTION: _ClassVar[TraceOutcome]
    TRACE_OUTCOME_RETURNED_NULL: _ClassVar[TraceOutcome]

class TransactionResolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_RESOLUTION_UNSPECIFIED: _ClassVar[TransactionResolution]
    TRANSACTION_RESOLUTION_COMMIT: _ClassVar[TransactionResolution]
    TRANSACTION_RESOLUTION_ROLLBACK: _ClassVar[TransactionResolution]
READ_FROM_UNSPECIFIED: ReadFrom
READ_FROM_LEADER: ReadFrom
READ_FROM_ANY: ReadFrom
READ_FROM_REPLICA: ReadFrom
KEY_TYPE_UNSPECIFIED: KeyType
KEY_TYPE_TAGS: KeyType
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
PULL_STATUS_UNSPECIFIED: PullStatus
PULL_STATUS_FOUND: PullStatus
PULL_STATUS_NO_NEW_MSG: PullStatus
PULL_STATUS_NO_MATCHED_MSG: PullStatus
PULL_STATUS_OFFSET_ILLEGAL: PullStatus
SEND_BACK_OUTCOME_UNSPECIFIED: SendBackOutcome
SEND_BACK_OUTCOME_OK: SendBackOutcome
SEND_BACK_OUTCOME_DEAD_LETTER: SendBackOutcome
SEND_BACK_OUTCOME_REMOVED: SendBackOutcome
MESSAGE_STATE_UNSPECIFIED: MessageState
MESSAGE_STATE_STORED: MessageState
MESSAGE_STATE_SCHEDULED: MessageState
MESSAGE_STATE_PENDING_TRANSACTION: MessageState
MESSAGE_STATE_RECALLED: MessageState
MESSAGE_STATE_ROLLED_BACK: MessageState
MESSAGE_STATE_GIVEN_UP: MessageState
TRACK_STATE_UNSPECIFIED: TrackState
TRACK_STATE_CONSUMED: TrackState
TRACK_STATE_NOT_CONSUMED: TrackState
TRACK_STATE_IN_FLIGHT: TrackState
TRACK_STATE_RETRYING: TrackState
TRACK_STATE_DEAD_LETTER: TrackState
TRACK_STATE_FILTERED_OUT: TrackState
TRACK_STATE_SKIPPED: TrackState
TRACK_STATE_UNKNOWN: TrackState
TRACE_KIND_UNSPECIFIED: TraceKind
TRACE_KIND_SEND: TraceKind
TRACE_KIND_END_TRANSACTION: TraceKind
TRACE_KIND_CONSUME: TraceKind
TRACE_KIND_RECALL: TraceKind
TRACE_OUTCOME_UNSPECIFIED: TraceOutcome
TRACE_OUTCOME_SUCCESS: TraceOutcome
TRACE_OUTCOME_FAILED: TraceOutcome
TRACE_OUTCOME_TIMED_OUT: TraceOutcome
TRACE_OUTCOME_EXCEPTION: TraceOutcome
TRACE_OUTCOME_RETURNED_NULL: TraceOutcome
TRANSACTION_RESOLUTION_UNSPECIFIED: TransactionResolution
TRANSACTION_RESOLUTION_COMMIT: TransactionResolution
TRANSACTION_RESOLUTION_ROLLBACK: TransactionResolution

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
    __slots__ = ("broker_name", "error", "indexed_up_to_offset", "indexed_up_to_time", "log_end_offset", "catching_up", "replicas", "staleness", "known_lag_bytes")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    INDEXED_UP_TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INDEXED_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    error: _status_pb2.Status
    indexed_up_to_offset: int
    indexed_up_to_time: _timestamp_pb2.Timestamp
    log_end_offset: int
    catching_up: bool
    replicas: _containers.RepeatedScalarFieldContainer[str]
    staleness: _duration_pb2.Duration
    known_lag_bytes: int
    def __init__(self, broker_name: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., indexed_up_to_offset: _Optional[int] = ..., indexed_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., replicas: _Optional[_Iterable[str]] = ..., staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., known_lag_bytes: _Optional[int] = ...) -> None: ...

class ReadChoice(_message.Message):
    __slots__ = ("read_from", "max_staleness")
    READ_FROM_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    read_from: ReadFrom
    max_staleness: _duration_pb2.Duration
    def __init__(self, read_from: _Optional[_Union[ReadFrom, str]] = ..., max_staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class QueryMessageByKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "begin_time", "end_time", "page_size", "page_token", "freshness_tokens", "read", "key_type")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    KEY_TYPE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    read: ReadChoice
    key_type: KeyType
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ..., key_type: _Optional[_Union[KeyType, str]] = ...) -> None: ...

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
    __slots__ = ("text", "topic", "begin_time", "end_time", "page_size", "freshness_tokens", "page_token", "max_millis", "with_tracks", "read")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MAX_MILLIS_FIELD_NUMBER: _ClassVar[int]
    WITH_TRACKS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    text: str
    topic: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    page_token: str
    max_millis: int
    with_tracks: bool
    read: ReadChoice
    def __init__(self, text: _Optional[str] = ..., topic: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., page_token: _Optional[str] = ..., max_millis: _Optional[int] = ..., with_tracks: _Optional[bool] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

class FindMessageResponse(_message.Message):
    __slots__ = ("matches", "completeness", "shards", "topic_count", "begin_time", "end_time", "next_page_token")
    class Match(_message.Message):
        __slots__ = ("message", "matched_by", "state", "due_time", "tracks", "has_more_tracks")
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        MATCHED_BY_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        DUE_TIME_FIELD_NUMBER: _ClassVar[int]
        TRACKS_FIELD_NUMBER: _ClassVar[int]
        HAS_MORE_TRACKS_FIELD_NUMBER: _ClassVar[int]
        message: _message_pb2.StoredMessage
        matched_by: MatchedBy
        state: MessageState
        due_time: _timestamp_pb2.Timestamp
        tracks: _containers.RepeatedCompositeFieldContainer[TrackMessageResponse.Track]
        has_more_tracks: bool
        def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., matched_by: _Optional[_Union[MatchedBy, str]] = ..., state: _Optional[_Union[MessageState, str]] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tracks: _Optional[_Iterable[_Union[TrackMessageResponse.Track, _Mapping]]] = ..., has_more_tracks: _Optional[bool] = ...) -> None: ...
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
    __slots__ = ("topic", "broker_name", "queue_id", "begin_queue_offset", "end_queue_offset", "begin_time", "end_time", "order", "tags", "properties", "body_text", "body_hex", "cel", "page_size", "page_token", "max_records", "max_bytes", "max_millis", "freshness_tokens", "count_total", "read")
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
    READ_FIELD_NUMBER: _ClassVar[int]
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
    read: ReadChoice
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ..., begin_queue_offset: _Optional[int] = ..., end_queue_offset: _Optional[int] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., order: _Optional[_Union[SearchOrder, str]] = ..., tags: _Optional[_Iterable[str]] = ..., properties: _Optional[_Iterable[_Union[SearchMessagesRequest.Property, _Mapping]]] = ..., body_text: _Optional[str] = ..., body_hex: _Optional[str] = ..., cel: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., max_records: _Optional[int] = ..., max_bytes: _Optional[int] = ..., max_millis: _Optional[int] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., count_total: _Optional[bool] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("broker_name", "error", "lookups", "omitted_lookup_count", "steps", "elapsed_micros", "replicas", "staleness", "known_lag_bytes")
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
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    error: _status_pb2.Status
    lookups: _containers.RepeatedCompositeFieldContainer[ShardExplanation.Lookup]
    omitted_lookup_count: int
    steps: _containers.RepeatedCompositeFieldContainer[ShardExplanation.Step]
    elapsed_micros: int
    replicas: _containers.RepeatedScalarFieldContainer[str]
    staleness: _duration_pb2.Duration
    known_lag_bytes: int
    def __init__(self, broker_name: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., lookups: _Optional[_Iterable[_Union[ShardExplanation.Lookup, _Mapping]]] = ..., omitted_lookup_count: _Optional[int] = ..., steps: _Optional[_Iterable[_Union[ShardExplanation.Step, _Mapping]]] = ..., elapsed_micros: _Optional[int] = ..., replicas: _Optional[_Iterable[str]] = ..., staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., known_lag_bytes: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("offset_msg_id", "topic", "broker_name", "read")
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    topic: str
    broker_name: str
    read: ReadChoice
    def __init__(self, offset_msg_id: _Optional[str] = ..., topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

class QueryMessageByIdResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.StoredMessage
    def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ...) -> None: ...

class QueryMessageByUniqueKeyRequest(_message.Message):
    __slots__ = ("topic", "unique_key", "page_size", "page_token", "freshness_tokens", "read")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    topic: str
    unique_key: str
    page_size: int
    page_token: str
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    read: ReadChoice
    def __init__(self, topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("topic", "queue_id", "queue_offset", "broker_name", "max_messages", "freshness_tokens", "page_size", "page_token", "read")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    broker_name: str
    max_messages: int
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    page_size: int
    page_token: str
    read: ReadChoice
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., broker_name: _Optional[str] = ..., max_messages: _Optional[int] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("offset_msg_id", "broker_name", "read")
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    broker_name: str
    read: ReadChoice
    def __init__(self, offset_msg_id: _Optional[str] = ..., broker_name: _Optional[str] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

class DownloadBodyResponse(_message.Message):
    __slots__ = ("chunk", "body_size_bytes")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    BODY_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    chunk: bytes
    body_size_bytes: int
    def __init__(self, chunk: _Optional[bytes] = ..., body_size_bytes: _Optional[int] = ...) -> None: ...

class SearchOffsetRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "time", "boundary", "broker_name", "freshness_tokens", "read")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    time: _timestamp_pb2.Timestamp
    boundary: Boundary
    broker_name: str
    freshness_tokens: _containers.RepeatedScalarFieldContainer[str]
    read: ReadChoice
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., boundary: _Optional[_Union[Boundary, str]] = ..., broker_name: _Optional[str] = ..., freshness_tokens: _Optional[_Iterable[str]] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("page_size", "page_token", "topic", "name_contains", "read")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    topic: str
    name_contains: str
    read: ReadChoice
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., topic: _Optional[str] = ..., name_contains: _Optional[str] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token", "completeness", "shards")
    class Topic(_message.Message):
        __slots__ = ("topic", "queues", "queue_count", "settings")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        QUEUES_FIELD_NUMBER: _ClassVar[int]
        QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
        SETTINGS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        queues: _containers.RepeatedCompositeFieldContainer[ListTopicsResponse.Queue]
        queue_count: int
        settings: _containers.RepeatedCompositeFieldContainer[TopicSettings]
        def __init__(self, topic: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[ListTopicsResponse.Queue, _Mapping]]] = ..., queue_count: _Optional[int] = ..., settings: _Optional[_Iterable[_Union[TopicSettings, _Mapping]]] = ...) -> None: ...
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

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "queue_count", "message_type", "perm", "broker_name", "lite_expiration_minutes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    LITE_EXPIRATION_MINUTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_count: int
    message_type: _message_pb2.MessageType
    perm: int
    broker_name: str
    lite_expiration_minutes: int
    def __init__(self, topic: _Optional[str] = ..., queue_count: _Optional[int] = ..., message_type: _Optional[_Union[_message_pb2.MessageType, str]] = ..., perm: _Optional[int] = ..., broker_name: _Optional[str] = ..., lite_expiration_minutes: _Optional[int] = ...) -> None: ...

class TopicSettings(_message.Message):
    __slots__ = ("broker_name", "topic", "write_queue_count", "read_queue_count", "perm", "message_type", "lite_expiration_minutes")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    LITE_EXPIRATION_MINUTES_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    topic: str
    write_queue_count: int
    read_queue_count: int
    perm: int
    message_type: _message_pb2.MessageType
    lite_expiration_minutes: int
    def __init__(self, broker_name: _Optional[str] = ..., topic: _Optional[str] = ..., write_queue_count: _Optional[int] = ..., read_queue_count: _Optional[int] = ..., perm: _Optional[int] = ..., message_type: _Optional[_Union[_message_pb2.MessageType, str]] = ..., lite_expiration_minutes: _Optional[int] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSettings]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicSettings, _Mapping]]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("topic", "queue_count", "message_type", "perm", "broker_name", "write_queue_count", "read_queue_count", "lite_expiration_minutes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LITE_EXPIRATION_MINUTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_count: int
    message_type: _message_pb2.MessageType
    perm: int
    broker_name: str
    write_queue_count: int
    read_queue_count: int
    lite_expiration_minutes: int
    def __init__(self, topic: _Optional[str] = ..., queue_count: _Optional[int] = ..., message_type: _Optional[_Union[_message_pb2.MessageType, str]] = ..., perm: _Optional[int] = ..., broker_name: _Optional[str] = ..., write_queue_count: _Optional[int] = ..., read_queue_count: _Optional[int] = ..., lite_expiration_minutes: _Optional[int] = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicSettings]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicSettings, _Mapping]]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic", "broker_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_name: str
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("broker_names",)
    BROKER_NAMES_FIELD_NUMBER: _ClassVar[int]
    broker_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, broker_names: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTenantsRequest(_message.Message):
    __slots__ = ("namespace", "page_size", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    page_size: int
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class TenantQuotas(_message.Message):
    __slots__ = ("sent_messages_per_second", "sent_bytes_per_second", "delivered_messages_per_second", "topics", "groups", "stored_bytes", "connections")
    SENT_MESSAGES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_MESSAGES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    sent_messages_per_second: int
    sent_bytes_per_second: int
    delivered_messages_per_second: int
    topics: int
    groups: int
    stored_bytes: int
    connections: int
    def __init__(self, sent_messages_per_second: _Optional[int] = ..., sent_bytes_per_second: _Optional[int] = ..., delivered_messages_per_second: _Optional[int] = ..., topics: _Optional[int] = ..., groups: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., connections: _Optional[int] = ...) -> None: ...

class Tenant(_message.Message):
    __slots__ = ("namespace", "quotas", "topic_count", "group_count", "stored_bytes", "lag_count", "sent_messages_per_second", "sent_bytes_per_second", "refused_count", "connection_count")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_COUNT_FIELD_NUMBER: _ClassVar[int]
    SENT_MESSAGES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    quotas: TenantQuotas
    topic_count: int
    group_count: int
    stored_bytes: int
    lag_count: int
    sent_messages_per_second: float
    sent_bytes_per_second: float
    refused_count: int
    connection_count: int
    def __init__(self, namespace: _Optional[str] = ..., quotas: _Optional[_Union[TenantQuotas, _Mapping]] = ..., topic_count: _Optional[int] = ..., group_count: _Optional[int] = ..., stored_bytes: _Optional[int] = ..., lag_count: _Optional[int] = ..., sent_messages_per_second: _Optional[float] = ..., sent_bytes_per_second: _Optional[float] = ..., refused_count: _Optional[int] = ..., connection_count: _Optional[int] = ...) -> None: ...

class ListTenantsResponse(_message.Message):
    __slots__ = ("tenants", "next_page_token")
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[Tenant]
    next_page_token: str
    def __init__(self, tenants: _Optional[_Iterable[_Union[Tenant, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("services", "version", "sees_everything")
    class ServiceStatus(_message.Message):
        __slots__ = ("broker_name", "service", "address", "error", "log_first_offset", "log_end_offset", "next_offset", "catching_up", "state", "problem", "recovery_begin_offset", "recovery_next_offset", "recovery_end_offset", "file_count", "file_size_bytes", "key_count", "disk_total_bytes", "disk_free_bytes", "disk_level", "newest_store_time", "group_count", "in_flight_count", "client_count", "scheduled_count", "transaction_count", "oldest_due_time", "replica", "role", "epoch", "replicas", "coordinator", "followed_lag_bytes", "followed_lag_age", "features", "nameservers", "broker_address", "delay_levels", "timer_count")
        class NameserversEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: bool
            def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
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
        GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
        IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
        CLIENT_COUNT_FIELD_NUMBER: _ClassVar[int]
        SCHEDULED_COUNT_FIELD_NUMBER: _ClassVar[int]
        TRANSACTION_COUNT_FIELD_NUMBER: _ClassVar[int]
        OLDEST_DUE_TIME_FIELD_NUMBER: _ClassVar[int]
        REPLICA_FIELD_NUMBER: _ClassVar[int]
        ROLE_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        REPLICAS_FIELD_NUMBER: _ClassVar[int]
        COORDINATOR_FIELD_NUMBER: _ClassVar[int]
        FOLLOWED_LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
        FOLLOWED_LAG_AGE_FIELD_NUMBER: _ClassVar[int]
        FEATURES_FIELD_NUMBER: _ClassVar[int]
        NAMESERVERS_FIELD_NUMBER: _ClassVar[int]
        BROKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
        DELAY_LEVELS_FIELD_NUMBER: _ClassVar[int]
        TIMER_COUNT_FIELD_NUMBER: _ClassVar[int]
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
        group_count: int
        in_flight_count: int
        client_count: int
        scheduled_count: int
        transaction_count: int
        oldest_due_time: _timestamp_pb2.Timestamp
        replica: str
        role: str
        epoch: int
        replicas: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.ReplicaStatus]
        coordinator: str
        followed_lag_bytes: int
        followed_lag_age: _duration_pb2.Duration
        features: _containers.RepeatedScalarFieldContainer[str]
        nameservers: _containers.ScalarMap[str, bool]
        broker_address: str
        delay_levels: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.DelayLevelStatus]
        timer_count: int
        def __init__(self, broker_name: _Optional[str] = ..., service: _Optional[str] = ..., address: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., log_first_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., recovery_begin_offset: _Optional[int] = ..., recovery_next_offset: _Optional[int] = ..., recovery_end_offset: _Optional[int] = ..., file_count: _Optional[int] = ..., file_size_bytes: _Optional[int] = ..., key_count: _Optional[int] = ..., disk_total_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., disk_level: _Optional[str] = ..., newest_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., group_count: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., client_count: _Optional[int] = ..., scheduled_count: _Optional[int] = ..., transaction_count: _Optional[int] = ..., oldest_due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., replica: _Optional[str] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[GetStatusResponse.ReplicaStatus, _Mapping]]] = ..., coordinator: _Optional[str] = ..., followed_lag_bytes: _Optional[int] = ..., followed_lag_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., features: _Optional[_Iterable[str]] = ..., nameservers: _Optional[_Mapping[str, bool]] = ..., broker_address: _Optional[str] = ..., delay_levels: _Optional[_Iterable[_Union[GetStatusResponse.DelayLevelStatus, _Mapping]]] = ..., timer_count: _Optional[int] = ...) -> None: ...
    class ReplicaStatus(_message.Message):
        __slots__ = ("replica", "in_sync", "connected", "lag_bytes", "lag_millis", "fetched_bytes", "fetch_total_bytes", "fetched_bytes_per_second")
        REPLICA_FIELD_NUMBER: _ClassVar[int]
        IN_SYNC_FIELD_NUMBER: _ClassVar[int]
        CONNECTED_FIELD_NUMBER: _ClassVar[int]
        LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
        LAG_MILLIS_FIELD_NUMBER: _ClassVar[int]
        FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
        FETCH_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
        FETCHED_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
        replica: str
        in_sync: bool
        connected: bool
        lag_bytes: int
        lag_millis: int
        fetched_bytes: int
        fetch_total_bytes: int
        fetched_bytes_per_second: int
        def __init__(self, replica: _Optional[str] = ..., in_sync: _Optional[bool] = ..., connected: _Optional[bool] = ..., lag_bytes: _Optional[int] = ..., lag_millis: _Optional[int] = ..., fetched_bytes: _Optional[int] = ..., fetch_total_bytes: _Optional[int] = ..., fetched_bytes_per_second: _Optional[int] = ...) -> None: ...
    class DelayLevelStatus(_message.Message):
        __slots__ = ("level", "next_offset", "max_offset")
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
        MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
        level: int
        next_offset: int
        max_offset: int
        def __init__(self, level: _Optional[int] = ..., next_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEES_EVERYTHING_FIELD_NUMBER: _ClassVar[int]
    services: _containers.RepeatedCompositeFieldContainer[GetStatusResponse.ServiceStatus]
    version: str
    sees_everything: bool
    def __init__(self, services: _Optional[_Iterable[_Union[GetStatusResponse.ServiceStatus, _Mapping]]] = ..., version: _Optional[str] = ..., sees_everything: _Optional[bool] = ...) -> None: ...

class MessageFilter(_message.Message):
    __slots__ = ("tags", "sql")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    tags: str
    sql: str
    def __init__(self, tags: _Optional[str] = ..., sql: _Optional[str] = ...) -> None: ...

class PullMessagesRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "broker_name", "queue_offset", "max_messages", "max_bytes", "wait", "filter", "consumer_group", "read", "as_records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    AS_RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    broker_name: str
    queue_offset: int
    max_messages: int
    max_bytes: int
    wait: _duration_pb2.Duration
    filter: MessageFilter
    consumer_group: str
    read: ReadChoice
    as_records: bool
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., broker_name: _Optional[str] = ..., queue_offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., filter: _Optional[_Union[MessageFilter, _Mapping]] = ..., consumer_group: _Optional[str] = ..., read: _Optional[_Union[ReadChoice, _Mapping]] = ..., as_records: _Optional[bool] = ...) -> None: ...

class PullMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_offset", "min_offset", "max_offset", "status", "is_whole", "records")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    status: PullStatus
    is_whole: bool
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.StoredMessage, _Mapping]]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., status: _Optional[_Union[PullStatus, str]] = ..., is_whole: _Optional[bool] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...

class QueuePosition(_message.Message):
    __slots__ = ("topic", "queue_id", "broker_name", "consumer_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    broker_name: str
    consumer_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., broker_name: _Optional[str] = ..., consumer_offset: _Optional[int] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "positions", "begins")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    positions: _containers.RepeatedCompositeFieldContainer[QueuePosition]
    begins: bool
    def __init__(self, consumer_group: _Optional[str] = ..., positions: _Optional[_Iterable[_Union[QueuePosition, _Mapping]]] = ..., begins: _Optional[bool] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SendBackMessagesRequest(_message.Message):
    __slots__ = ("consumer_group", "topic", "queue_id", "broker_name", "queue_offsets", "delay_level")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    queue_id: int
    broker_name: str
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    delay_level: int
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., broker_name: _Optional[str] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., delay_level: _Optional[int] = ...) -> None: ...

class SendBackMessagesResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[SendBackOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[SendBackOutcome, str]]] = ...) -> None: ...

class TopicQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "broker_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    broker_name: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., broker_name: _Optional[str] = ...) -> None: ...

class LockQueuesRequest(_message.Message):
    __slots__ = ("consumer_group", "client_id", "queues", "unlock", "renew")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    UNLOCK_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    client_id: str
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    unlock: bool
    renew: bool
    def __init__(self, consumer_group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ..., unlock: _Optional[bool] = ..., renew: _Optional[bool] = ...) -> None: ...

class LockQueuesResponse(_message.Message):
    __slots__ = ("queues", "unknown_queues")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    unknown_queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    def __init__(self, queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ..., unknown_queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ...) -> None: ...

class GetOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "topic")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class GetOffsetsResponse(_message.Message):
    __slots__ = ("positions",)
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedCompositeFieldContainer[QueuePosition]
    def __init__(self, positions: _Optional[_Iterable[_Union[QueuePosition, _Mapping]]] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "topic", "earliest", "latest", "time", "queue_offset", "queue_id", "broker_name", "dry_run")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    earliest: bool
    latest: bool
    time: _timestamp_pb2.Timestamp
    queue_offset: int
    queue_id: int
    broker_name: str
    dry_run: bool
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queue_offset: _Optional[int] = ..., queue_id: _Optional[int] = ..., broker_name: _Optional[str] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ResetOffsetsResponse(_message.Message):
    __slots__ = ("resets",)
    class Reset(_message.Message):
        __slots__ = ("broker_name", "queue_id", "before", "after")
        BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
        QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
        BEFORE_FIELD_NUMBER: _ClassVar[int]
        AFTER_FIELD_NUMBER: _ClassVar[int]
        broker_name: str
        queue_id: int
        before: int
        after: int
        def __init__(self, broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ..., before: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...
    RESETS_FIELD_NUMBER: _ClassVar[int]
    resets: _containers.RepeatedCompositeFieldContainer[ResetOffsetsResponse.Reset]
    def __init__(self, resets: _Optional[_Iterable[_Union[ResetOffsetsResponse.Reset, _Mapping]]] = ...) -> None: ...

class LiteSettings(_message.Message):
    __slots__ = ("bind_topic", "is_exclusive", "is_wildcard", "client_quota", "client_event_count_max", "reset_offset_exclusive", "reset_offset_unsubscribe")
    BIND_TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    IS_WILDCARD_FIELD_NUMBER: _ClassVar[int]
    CLIENT_QUOTA_FIELD_NUMBER: _ClassVar[int]
    CLIENT_EVENT_COUNT_MAX_FIELD_NUMBER: _ClassVar[int]
    RESET_OFFSET_EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    RESET_OFFSET_UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    bind_topic: str
    is_exclusive: bool
    is_wildcard: bool
    client_quota: int
    client_event_count_max: int
    reset_offset_exclusive: bool
    reset_offset_unsubscribe: bool
    def __init__(self, bind_topic: _Optional[str] = ..., is_exclusive: _Optional[bool] = ..., is_wildcard: _Optional[bool] = ..., client_quota: _Optional[int] = ..., client_event_count_max: _Optional[int] = ..., reset_offset_exclusive: _Optional[bool] = ..., reset_offset_unsubscribe: _Optional[bool] = ...) -> None: ...

class ConsumerGroupSettings(_message.Message):
    __slots__ = ("consumer_group", "ordered", "delivery_attempts_max", "consume_disabled", "broadcast", "priority_factor", "lite")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONSUME_DISABLED_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FACTOR_FIELD_NUMBER: _ClassVar[int]
    LITE_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    ordered: bool
    delivery_attempts_max: int
    consume_disabled: bool
    broadcast: bool
    priority_factor: int
    lite: LiteSettings
    def __init__(self, consumer_group: _Optional[str] = ..., ordered: _Optional[bool] = ..., delivery_attempts_max: _Optional[int] = ..., consume_disabled: _Optional[bool] = ..., broadcast: _Optional[bool] = ..., priority_factor: _Optional[int] = ..., lite: _Optional[_Union[LiteSettings, _Mapping]] = ...) -> None: ...

class ListLiteTopicsRequest(_message.Message):
    __slots__ = ("topic", "consumer_group", "name_contains", "client_id", "page_size", "page_token", "lite_topic")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    consumer_group: str
    name_contains: str
    client_id: str
    page_size: int
    page_token: str
    lite_topic: str
    def __init__(self, topic: _Optional[str] = ..., consumer_group: _Optional[str] = ..., name_contains: _Optional[str] = ..., client_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., lite_topic: _Optional[str] = ...) -> None: ...

class LiteTopicGroup(_message.Message):
    __slots__ = ("consumer_group", "consumer_offset", "in_flight_count", "lag_count", "client_ids")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAG_COUNT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_IDS_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    consumer_offset: int
    in_flight_count: int
    lag_count: int
    client_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, consumer_group: _Optional[str] = ..., consumer_offset: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., lag_count: _Optional[int] = ..., client_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class LiteTopic(_message.Message):
    __slots__ = ("lite_topic", "broker_name", "min_offset", "max_offset", "last_store_time", "groups")
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    lite_topic: str
    broker_name: str
    min_offset: int
    max_offset: int
    last_store_time: _timestamp_pb2.Timestamp
    groups: _containers.RepeatedCompositeFieldContainer[LiteTopicGroup]
    def __init__(self, lite_topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., last_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[LiteTopicGroup, _Mapping]]] = ...) -> None: ...

class ListLiteTopicsResponse(_message.Message):
    __slots__ = ("lite_topics", "outcomes", "next_page_token")
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    lite_topics: _containers.RepeatedCompositeFieldContainer[LiteTopic]
    outcomes: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    next_page_token: str
    def __init__(self, lite_topics: _Optional[_Iterable[_Union[LiteTopic, _Mapping]]] = ..., outcomes: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class LiteTopicsSummary(_message.Message):
    __slots__ = ("topic", "lite_topic_count", "lag_count", "in_flight_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAG_COUNT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lite_topic_count: int
    lag_count: int
    in_flight_count: int
    def __init__(self, topic: _Optional[str] = ..., lite_topic_count: _Optional[int] = ..., lag_count: _Optional[int] = ..., in_flight_count: _Optional[int] = ...) -> None: ...

class ListConsumerGroupsRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token", "name_contains")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    name_contains: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., name_contains: _Optional[str] = ...) -> None: ...

class ListConsumerGroupsResponse(_message.Message):
    __slots__ = ("groups", "outcomes", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[ConsumerGroupSettings]
    outcomes: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[_Union[ConsumerGroupSettings, _Mapping]]] = ..., outcomes: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetConsumerGroupRequest(_message.Message):
    __slots__ = ("consumer_group",)
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    def __init__(self, consumer_group: _Optional[str] = ...) -> None: ...

class ConsumerGroupMember(_message.Message):
    __slots__ = ("client_id", "language", "version", "address", "subscriptions", "kind")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    language: str
    version: str
    address: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[TopicSubscription]
    kind: str
    def __init__(self, client_id: _Optional[str] = ..., language: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[TopicSubscription, _Mapping]]] = ..., kind: _Optional[str] = ...) -> None: ...

class TopicSubscription(_message.Message):
    __slots__ = ("topic", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: MessageFilter
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[MessageFilter, _Mapping]] = ...) -> None: ...

class ConsumerGroupQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "broker_name", "consumer_offset", "min_offset", "max_offset", "lag_count", "lag_age", "in_flight_count", "removed_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAG_AGE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    broker_name: str
    consumer_offset: int
    min_offset: int
    max_offset: int
    lag_count: int
    lag_age: _duration_pb2.Duration
    in_flight_count: int
    removed_count: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., broker_name: _Optional[str] = ..., consumer_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., lag_count: _Optional[int] = ..., lag_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., in_flight_count: _Optional[int] = ..., removed_count: _Optional[int] = ...) -> None: ...

class GetConsumerGroupResponse(_message.Message):
    __slots__ = ("settings", "members", "queues", "retry_count", "dead_letter_count", "problems", "lite_topics", "outcomes")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    settings: ConsumerGroupSettings
    members: _containers.RepeatedCompositeFieldContainer[ConsumerGroupMember]
    queues: _containers.RepeatedCompositeFieldContainer[ConsumerGroupQueue]
    retry_count: int
    dead_letter_count: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    lite_topics: _containers.RepeatedCompositeFieldContainer[LiteTopicsSummary]
    outcomes: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    def __init__(self, settings: _Optional[_Union[ConsumerGroupSettings, _Mapping]] = ..., members: _Optional[_Iterable[_Union[ConsumerGroupMember, _Mapping]]] = ..., queues: _Optional[_Iterable[_Union[ConsumerGroupQueue, _Mapping]]] = ..., retry_count: _Optional[int] = ..., dead_letter_count: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., lite_topics: _Optional[_Iterable[_Union[LiteTopicsSummary, _Mapping]]] = ..., outcomes: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ...) -> None: ...

class GetConsumerRunningInfoRequest(_message.Message):
    __slots__ = ("consumer_group", "client_id", "with_stack_trace")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_STACK_TRACE_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    client_id: str
    with_stack_trace: bool
    def __init__(self, consumer_group: _Optional[str] = ..., client_id: _Optional[str] = ..., with_stack_trace: _Optional[bool] = ...) -> None: ...

class ConsumerRunningQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "broker_name", "consumer_offset", "cached_message_count", "cached_mebibytes", "cached_min_offset", "cached_max_offset", "locked", "dropped", "last_pull_time", "last_consume_time")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CACHED_MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CACHED_MEBIBYTES_FIELD_NUMBER: _ClassVar[int]
    CACHED_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CACHED_MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    LAST_PULL_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_CONSUME_TIME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    broker_name: str
    consumer_offset: int
    cached_message_count: int
    cached_mebibytes: int
    cached_min_offset: int
    cached_max_offset: int
    locked: bool
    dropped: bool
    last_pull_time: _timestamp_pb2.Timestamp
    last_consume_time: _timestamp_pb2.Timestamp
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., broker_name: _Optional[str] = ..., consumer_offset: _Optional[int] = ..., cached_message_count: _Optional[int] = ..., cached_mebibytes: _Optional[int] = ..., cached_min_offset: _Optional[int] = ..., cached_max_offset: _Optional[int] = ..., locked: _Optional[bool] = ..., dropped: _Optional[bool] = ..., last_pull_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_consume_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ConsumerRunningTopic(_message.Message):
    __slots__ = ("topic", "pull_millis", "pulled_per_second", "consume_millis", "consumed_per_second", "failed_per_second", "failed_count_in_hour")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PULL_MILLIS_FIELD_NUMBER: _ClassVar[int]
    PULLED_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    CONSUME_MILLIS_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    FAILED_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    FAILED_COUNT_IN_HOUR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    pull_millis: float
    pulled_per_second: float
    consume_millis: float
    consumed_per_second: float
    failed_per_second: float
    failed_count_in_hour: int
    def __init__(self, topic: _Optional[str] = ..., pull_millis: _Optional[float] = ..., pulled_per_second: _Optional[float] = ..., consume_millis: _Optional[float] = ..., consumed_per_second: _Optional[float] = ..., failed_per_second: _Optional[float] = ..., failed_count_in_hour: _Optional[int] = ...) -> None: ...

class GetConsumerRunningInfoResponse(_message.Message):
    __slots__ = ("properties", "subscriptions", "queues", "topics", "stack_trace", "told_by_gateway")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    STACK_TRACE_FIELD_NUMBER: _ClassVar[int]
    TOLD_BY_GATEWAY_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.ScalarMap[str, str]
    subscriptions: _containers.RepeatedCompositeFieldContainer[TopicSubscription]
    queues: _containers.RepeatedCompositeFieldContainer[ConsumerRunningQueue]
    topics: _containers.RepeatedCompositeFieldContainer[ConsumerRunningTopic]
    stack_trace: str
    told_by_gateway: bool
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ..., subscriptions: _Optional[_Iterable[_Union[TopicSubscription, _Mapping]]] = ..., queues: _Optional[_Iterable[_Union[ConsumerRunningQueue, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[ConsumerRunningTopic, _Mapping]]] = ..., stack_trace: _Optional[str] = ..., told_by_gateway: _Optional[bool] = ...) -> None: ...

class UpdateConsumerGroupRequest(_message.Message):
    __slots__ = ("consumer_group", "ordered", "delivery_attempts_max", "consume_disabled", "broadcast", "priority_factor", "lite_attributes")
    class LiteAttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONSUME_DISABLED_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FACTOR_FIELD_NUMBER: _ClassVar[int]
    LITE_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    ordered: bool
    delivery_attempts_max: int
    consume_disabled: bool
    broadcast: bool
    priority_factor: int
    lite_attributes: _containers.ScalarMap[str, str]
    def __init__(self, consumer_group: _Optional[str] = ..., ordered: _Optional[bool] = ..., delivery_attempts_max: _Optional[int] = ..., consume_disabled: _Optional[bool] = ..., broadcast: _Optional[bool] = ..., priority_factor: _Optional[int] = ..., lite_attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateConsumerGroupResponse(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: ConsumerGroupSettings
    def __init__(self, settings: _Optional[_Union[ConsumerGroupSettings, _Mapping]] = ...) -> None: ...

class DeleteConsumerGroupRequest(_message.Message):
    __slots__ = ("consumer_group",)
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    def __init__(self, consumer_group: _Optional[str] = ...) -> None: ...

class DeleteConsumerGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrackMessageRequest(_message.Message):
    __slots__ = ("offset_msg_id", "topic", "unique_key", "page_size", "page_token", "group_contains", "consumer_group", "with_traces", "trace_topic")
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    GROUP_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    WITH_TRACES_FIELD_NUMBER: _ClassVar[int]
    TRACE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    topic: str
    unique_key: str
    page_size: int
    page_token: str
    group_contains: str
    consumer_group: str
    with_traces: bool
    trace_topic: str
    def __init__(self, offset_msg_id: _Optional[str] = ..., topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., group_contains: _Optional[str] = ..., consumer_group: _Optional[str] = ..., with_traces: _Optional[bool] = ..., trace_topic: _Optional[str] = ...) -> None: ...

class TrackMessageResponse(_message.Message):
    __slots__ = ("message", "state", "due_time", "tracks", "next_page_token", "traces")
    class Track(_message.Message):
        __slots__ = ("consumer_group", "state", "delivery_attempts", "next_time", "copy_offset_msg_ids", "is_online", "client_id", "reason")
        CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        DELIVERY_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
        NEXT_TIME_FIELD_NUMBER: _ClassVar[int]
        COPY_OFFSET_MSG_IDS_FIELD_NUMBER: _ClassVar[int]
        IS_ONLINE_FIELD_NUMBER: _ClassVar[int]
        CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        consumer_group: str
        state: TrackState
        delivery_attempts: int
        next_time: _timestamp_pb2.Timestamp
        copy_offset_msg_ids: _containers.RepeatedScalarFieldContainer[str]
        is_online: bool
        client_id: str
        reason: str
        def __init__(self, consumer_group: _Optional[str] = ..., state: _Optional[_Union[TrackState, str]] = ..., delivery_attempts: _Optional[int] = ..., next_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., copy_offset_msg_ids: _Optional[_Iterable[str]] = ..., is_online: _Optional[bool] = ..., client_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    TRACKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TRACES_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.StoredMessage
    state: MessageState
    due_time: _timestamp_pb2.Timestamp
    tracks: _containers.RepeatedCompositeFieldContainer[TrackMessageResponse.Track]
    next_page_token: str
    traces: MessageTraces
    def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., state: _Optional[_Union[MessageState, str]] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tracks: _Optional[_Iterable[_Union[TrackMessageResponse.Track, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., traces: _Optional[_Union[MessageTraces, _Mapping]] = ...) -> None: ...

class MessageTraces(_message.Message):
    __slots__ = ("events", "damaged_count", "has_more", "problem", "topic")
    class Event(_message.Message):
        __slots__ = ("kind", "begin_time", "end_time", "cost", "outcome", "group", "client_host", "store_host", "offset_msg_id", "retry_count", "verdict", "from_check")
        KIND_FIELD_NUMBER: _ClassVar[int]
        BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
        END_TIME_FIELD_NUMBER: _ClassVar[int]
        COST_FIELD_NUMBER: _ClassVar[int]
        OUTCOME_FIELD_NUMBER: _ClassVar[int]
        GROUP_FIELD_NUMBER: _ClassVar[int]
        CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
        STORE_HOST_FIELD_NUMBER: _ClassVar[int]
        OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
        RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
        VERDICT_FIELD_NUMBER: _ClassVar[int]
        FROM_CHECK_FIELD_NUMBER: _ClassVar[int]
        kind: TraceKind
        begin_time: _timestamp_pb2.Timestamp
        end_time: _timestamp_pb2.Timestamp
        cost: _duration_pb2.Duration
        outcome: TraceOutcome
        group: str
        client_host: str
        store_host: str
        offset_msg_id: str
        retry_count: int
        verdict: str
        from_check: bool
        def __init__(self, kind: _Optional[_Union[TraceKind, str]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cost: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., outcome: _Optional[_Union[TraceOutcome, str]] = ..., group: _Optional[str] = ..., client_host: _Optional[str] = ..., store_host: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., retry_count: _Optional[int] = ..., verdict: _Optional[str] = ..., from_check: _Optional[bool] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[MessageTraces.Event]
    damaged_count: int
    has_more: bool
    problem: str
    topic: str
    def __init__(self, events: _Optional[_Iterable[_Union[MessageTraces.Event, _Mapping]]] = ..., damaged_count: _Optional[int] = ..., has_more: _Optional[bool] = ..., problem: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class ResendDeadLettersRequest(_message.Message):
    __slots__ = ("consumer_group", "filter", "begin_time", "end_time", "max_messages", "dry_run", "page_token")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    filter: MessageFilter
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    max_messages: int
    dry_run: bool
    page_token: str
    def __init__(self, consumer_group: _Optional[str] = ..., filter: _Optional[_Union[MessageFilter, _Mapping]] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., max_messages: _Optional[int] = ..., dry_run: _Optional[bool] = ..., page_token: _Optional[str] = ...) -> None: ...

class ResendDeadLettersResponse(_message.Message):
    __slots__ = ("resent", "next_page_token")
    class Resent(_message.Message):
        __slots__ = ("offset_msg_id", "topic", "new_offset_msg_id")
        OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        NEW_OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
        offset_msg_id: str
        topic: str
        new_offset_msg_id: str
        def __init__(self, offset_msg_id: _Optional[str] = ..., topic: _Optional[str] = ..., new_offset_msg_id: _Optional[str] = ...) -> None: ...
    RESENT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resent: _containers.RepeatedCompositeFieldContainer[ResendDeadLettersResponse.Resent]
    next_page_token: str
    def __init__(self, resent: _Optional[_Iterable[_Union[ResendDeadLettersResponse.Resent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RecallMessageRequest(_message.Message):
    __slots__ = ("topic", "recall_handle")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recall_handle: str
    def __init__(self, topic: _Optional[str] = ..., recall_handle: _Optional[str] = ...) -> None: ...

class RecallMessageResponse(_message.Message):
    __slots__ = ("offset_msg_id", "unique_key")
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    unique_key: str
    def __init__(self, offset_msg_id: _Optional[str] = ..., unique_key: _Optional[str] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("topic", "transaction_id", "resolution", "is_from_check")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    IS_FROM_CHECK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    transaction_id: str
    resolution: TransactionResolution
    is_from_check: bool
    def __init__(self, topic: _Optional[str] = ..., transaction_id: _Optional[str] = ..., resolution: _Optional[_Union[TransactionResolution, str]] = ..., is_from_check: _Optional[bool] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: _message_pb2.AppendResult
    def __init__(self, result: _Optional[_Union[_message_pb2.AppendResult, _Mapping]] = ...) -> None: ...

class ListPendingTransactionsRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class PendingTransaction(_message.Message):
    __slots__ = ("broker_name", "topic", "unique_key", "transaction_id", "producer_group", "offset_msg_id", "born_time", "check_count", "next_check_time")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    BORN_TIME_FIELD_NUMBER: _ClassVar[int]
    CHECK_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEXT_CHECK_TIME_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    topic: str
    unique_key: str
    transaction_id: str
    producer_group: str
    offset_msg_id: str
    born_time: _timestamp_pb2.Timestamp
    check_count: int
    next_check_time: _timestamp_pb2.Timestamp
    def __init__(self, broker_name: _Optional[str] = ..., topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., transaction_id: _Optional[str] = ..., producer_group: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., born_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., check_count: _Optional[int] = ..., next_check_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListPendingTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "next_page_token", "completeness", "shards", "pending_count")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[PendingTransaction]
    next_page_token: str
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    pending_count: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[PendingTransaction, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., pending_count: _Optional[int] = ...) -> None: ...

class ListScheduledMessagesRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ScheduledMessage(_message.Message):
    __slots__ = ("broker_name", "topic", "unique_key", "offset_msg_id", "delivery_time", "delay_level", "recall_handle")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TIME_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    topic: str
    unique_key: str
    offset_msg_id: str
    delivery_time: _timestamp_pb2.Timestamp
    delay_level: int
    recall_handle: str
    def __init__(self, broker_name: _Optional[str] = ..., topic: _Optional[str] = ..., unique_key: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., delivery_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay_level: _Optional[int] = ..., recall_handle: _Optional[str] = ...) -> None: ...

class ListScheduledMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_page_token", "completeness", "shards", "pending_count")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETENESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    PENDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ScheduledMessage]
    next_page_token: str
    completeness: _message_pb2.Completeness
    shards: _containers.RepeatedCompositeFieldContainer[ShardOutcome]
    pending_count: int
    def __init__(self, messages: _Optional[_Iterable[_Union[ScheduledMessage, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., completeness: _Optional[_Union[_message_pb2.Completeness, str]] = ..., shards: _Optional[_Iterable[_Union[ShardOutcome, _Mapping]]] = ..., pending_count: _Optional[int] = ...) -> None: ...

class SendRequestRequest(_message.Message):
    __slots__ = ("message", "timeout")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.NewMessage
    timeout: _duration_pb2.Duration
    def __init__(self, message: _Optional[_Union[_message_pb2.NewMessage, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SendRequestResponse(_message.Message):
    __slots__ = ("reply", "request")
    REPLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    reply: _message_pb2.StoredMessage
    request: _message_pb2.AppendResult
    def __init__(self, reply: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., request: _Optional[_Union[_message_pb2.AppendResult, _Mapping]] = ...) -> None: ...
