import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from reput.gateway.v1 import gateway_service_pb2 as _gateway_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "begin_time", "end_time", "page_size", "page_token", "explain", "summarize", "of_tags")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPLAIN_FIELD_NUMBER: _ClassVar[int]
    SUMMARIZE_FIELD_NUMBER: _ClassVar[int]
    OF_TAGS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    explain: bool
    summarize: bool
    of_tags: bool
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., explain: _Optional[bool] = ..., summarize: _Optional[bool] = ..., of_tags: _Optional[bool] = ...) -> None: ...

class KeyExplanation(_message.Message):
    __slots__ = ("key_hash", "slot", "slot_count", "visits", "elapsed_micros")
    KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SLOT_COUNT_FIELD_NUMBER: _ClassVar[int]
    VISITS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MICROS_FIELD_NUMBER: _ClassVar[int]
    key_hash: int
    slot: int
    slot_count: int
    visits: _containers.RepeatedCompositeFieldContainer[_gateway_service_pb2.ShardExplanation.FileVisit]
    elapsed_micros: int
    def __init__(self, key_hash: _Optional[int] = ..., slot: _Optional[int] = ..., slot_count: _Optional[int] = ..., visits: _Optional[_Iterable[_Union[_gateway_service_pb2.ShardExplanation.FileVisit, _Mapping]]] = ..., elapsed_micros: _Optional[int] = ...) -> None: ...

class IndexSummary(_message.Message):
    __slots__ = ("sealed", "next_offset", "later_times_millis", "has_newest", "newest_begin_time_millis", "newest_end_time_millis")
    class Sealed(_message.Message):
        __slots__ = ("name", "header_crc", "begin_time_millis", "end_time_millis", "block_count")
        NAME_FIELD_NUMBER: _ClassVar[int]
        HEADER_CRC_FIELD_NUMBER: _ClassVar[int]
        BEGIN_TIME_MILLIS_FIELD_NUMBER: _ClassVar[int]
        END_TIME_MILLIS_FIELD_NUMBER: _ClassVar[int]
        BLOCK_COUNT_FIELD_NUMBER: _ClassVar[int]
        name: str
        header_crc: int
        begin_time_millis: int
        end_time_millis: int
        block_count: int
        def __init__(self, name: _Optional[str] = ..., header_crc: _Optional[int] = ..., begin_time_millis: _Optional[int] = ..., end_time_millis: _Optional[int] = ..., block_count: _Optional[int] = ...) -> None: ...
    SEALED_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LATER_TIMES_MILLIS_FIELD_NUMBER: _ClassVar[int]
    HAS_NEWEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_BEGIN_TIME_MILLIS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_END_TIME_MILLIS_FIELD_NUMBER: _ClassVar[int]
    sealed: _containers.RepeatedCompositeFieldContainer[IndexSummary.Sealed]
    next_offset: int
    later_times_millis: int
    has_newest: bool
    newest_begin_time_millis: int
    newest_end_time_millis: int
    def __init__(self, sealed: _Optional[_Iterable[_Union[IndexSummary.Sealed, _Mapping]]] = ..., next_offset: _Optional[int] = ..., later_times_millis: _Optional[int] = ..., has_newest: _Optional[bool] = ..., newest_begin_time_millis: _Optional[int] = ..., newest_end_time_millis: _Optional[int] = ...) -> None: ...

class GetFilterPagesRequest(_message.Message):
    __slots__ = ("name", "header_crc", "first_page")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HEADER_CRC_FIELD_NUMBER: _ClassVar[int]
    FIRST_PAGE_FIELD_NUMBER: _ClassVar[int]
    name: str
    header_crc: int
    first_page: int
    def __init__(self, name: _Optional[str] = ..., header_crc: _Optional[int] = ..., first_page: _Optional[int] = ...) -> None: ...

class GetFilterPagesResponse(_message.Message):
    __slots__ = ("pages",)
    PAGES_FIELD_NUMBER: _ClassVar[int]
    pages: bytes
    def __init__(self, pages: _Optional[bytes] = ...) -> None: ...

class SearchKeyResponse(_message.Message):
    __slots__ = ("commit_log_offsets", "next_page_token", "next_offset", "log_end_offset", "catching_up", "indexed_up_to_time", "damaged_chain_count", "explanation", "summary", "tags_from_offset", "log_first_offset")
    COMMIT_LOG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    INDEXED_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_CHAIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    commit_log_offsets: _containers.RepeatedScalarFieldContainer[int]
    next_page_token: str
    next_offset: int
    log_end_offset: int
    catching_up: bool
    indexed_up_to_time: _timestamp_pb2.Timestamp
    damaged_chain_count: int
    explanation: KeyExplanation
    summary: IndexSummary
    tags_from_offset: int
    log_first_offset: int
    def __init__(self, commit_log_offsets: _Optional[_Iterable[int]] = ..., next_page_token: _Optional[str] = ..., next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., indexed_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., damaged_chain_count: _Optional[int] = ..., explanation: _Optional[_Union[KeyExplanation, _Mapping]] = ..., summary: _Optional[_Union[IndexSummary, _Mapping]] = ..., tags_from_offset: _Optional[int] = ..., log_first_offset: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("past_offset", "wait_millis")
    PAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WAIT_MILLIS_FIELD_NUMBER: _ClassVar[int]
    past_offset: int
    wait_millis: int
    def __init__(self, past_offset: _Optional[int] = ..., wait_millis: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("next_offset", "log_end_offset", "catching_up", "file_count", "key_count", "last_error", "state", "failure_count", "built_up_to_time", "problem")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUILT_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    log_end_offset: int
    catching_up: bool
    file_count: int
    key_count: int
    last_error: str
    state: str
    failure_count: int
    built_up_to_time: _timestamp_pb2.Timestamp
    problem: str
    def __init__(self, next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., file_count: _Optional[int] = ..., key_count: _Optional[int] = ..., last_error: _Optional[str] = ..., state: _Optional[str] = ..., failure_count: _Optional[int] = ..., built_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...
