import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "begin_time", "end_time", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class SearchKeyResponse(_message.Message):
    __slots__ = ("commit_log_offsets", "next_page_token", "next_offset", "log_end_offset", "catching_up", "indexed_up_to_time", "damaged_chain_count")
    COMMIT_LOG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    INDEXED_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_CHAIN_COUNT_FIELD_NUMBER: _ClassVar[int]
    commit_log_offsets: _containers.RepeatedScalarFieldContainer[int]
    next_page_token: str
    next_offset: int
    log_end_offset: int
    catching_up: bool
    indexed_up_to_time: _timestamp_pb2.Timestamp
    damaged_chain_count: int
    def __init__(self, commit_log_offsets: _Optional[_Iterable[int]] = ..., next_page_token: _Optional[str] = ..., next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., indexed_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., damaged_chain_count: _Optional[int] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("next_offset", "log_end_offset", "catching_up", "file_count", "key_count", "last_error", "state", "failure_count")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEY_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    log_end_offset: int
    catching_up: bool
    file_count: int
    key_count: int
    last_error: str
    state: str
    failure_count: int
    def __init__(self, next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., file_count: _Optional[int] = ..., key_count: _Optional[int] = ..., last_error: _Optional[str] = ..., state: _Optional[str] = ..., failure_count: _Optional[int] = ...) -> None: ...
