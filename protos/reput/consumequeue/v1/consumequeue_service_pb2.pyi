import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from reput.gateway.v1 import gateway_service_pb2 as _gateway_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListQueuesRequest(_message.Message):
    __slots__ = ("topic", "page_size", "page_token", "of_namespaces")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OF_NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    page_token: str
    of_namespaces: bool
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., of_namespaces: _Optional[bool] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("topic", "queue_id", "min_offset", "max_offset", "problem", "stored_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    problem: str
    stored_bytes: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., problem: _Optional[str] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_page_token")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListLightQueuesRequest(_message.Message):
    __slots__ = ("prefix", "page_token", "page_size")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    page_token: int
    page_size: int
    def __init__(self, prefix: _Optional[str] = ..., page_token: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListLightQueuesResponse(_message.Message):
    __slots__ = ("names", "max_offsets", "next_page_token", "next_offset")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    max_offsets: _containers.RepeatedScalarFieldContainer[int]
    next_page_token: int
    next_offset: int
    def __init__(self, names: _Optional[_Iterable[str]] = ..., max_offsets: _Optional[_Iterable[int]] = ..., next_page_token: _Optional[int] = ..., next_offset: _Optional[int] = ...) -> None: ...

class GetQueueUnitsRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "max_units", "packed", "log_first_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_UNITS_FIELD_NUMBER: _ClassVar[int]
    PACKED_FIELD_NUMBER: _ClassVar[int]
    LOG_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    max_units: int
    packed: bool
    log_first_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., max_units: _Optional[int] = ..., packed: _Optional[bool] = ..., log_first_offset: _Optional[int] = ...) -> None: ...

class QueueUnit(_message.Message):
    __slots__ = ("queue_offset", "commit_log_offset", "record_size_bytes", "tags_code")
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODE_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int
    tags_code: int
    def __init__(self, queue_offset: _Optional[int] = ..., commit_log_offset: _Optional[int] = ..., record_size_bytes: _Optional[int] = ..., tags_code: _Optional[int] = ...) -> None: ...

class GetQueueUnitsResponse(_message.Message):
    __slots__ = ("units", "min_offset", "max_offset", "next_offset", "log_end_offset", "catching_up", "built_up_to_time", "damaged", "packed_units")
    UNITS_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    BUILT_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    PACKED_UNITS_FIELD_NUMBER: _ClassVar[int]
    units: _containers.RepeatedCompositeFieldContainer[QueueUnit]
    min_offset: int
    max_offset: int
    next_offset: int
    log_end_offset: int
    catching_up: bool
    built_up_to_time: _timestamp_pb2.Timestamp
    damaged: bool
    packed_units: bytes
    def __init__(self, units: _Optional[_Iterable[_Union[QueueUnit, _Mapping]]] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., built_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., damaged: _Optional[bool] = ..., packed_units: _Optional[bytes] = ...) -> None: ...

class SearchOffsetRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "time", "boundary")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    time: _timestamp_pb2.Timestamp
    boundary: _gateway_service_pb2.Boundary
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., boundary: _Optional[_Union[_gateway_service_pb2.Boundary, str]] = ...) -> None: ...

class SearchOffsetResponse(_message.Message):
    __slots__ = ("queue_offset", "min_offset", "max_offset", "catching_up", "next_offset", "log_end_offset", "built_up_to_time", "first_store_time", "last_store_time", "damaged", "unproven")
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BUILT_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    FIRST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    UNPROVEN_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    min_offset: int
    max_offset: int
    catching_up: bool
    next_offset: int
    log_end_offset: int
    built_up_to_time: _timestamp_pb2.Timestamp
    first_store_time: _timestamp_pb2.Timestamp
    last_store_time: _timestamp_pb2.Timestamp
    damaged: bool
    unproven: bool
    def __init__(self, queue_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., built_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., first_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., damaged: _Optional[bool] = ..., unproven: _Optional[bool] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("past_offset", "wait_millis")
    PAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    WAIT_MILLIS_FIELD_NUMBER: _ClassVar[int]
    past_offset: int
    wait_millis: int
    def __init__(self, past_offset: _Optional[int] = ..., wait_millis: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("next_offset", "log_end_offset", "catching_up", "queue_count", "topic_count", "last_error", "state", "failure_count", "built_up_to_time", "problem")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUILT_UP_TO_TIME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    log_end_offset: int
    catching_up: bool
    queue_count: int
    topic_count: int
    last_error: str
    state: str
    failure_count: int
    built_up_to_time: _timestamp_pb2.Timestamp
    problem: str
    def __init__(self, next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., queue_count: _Optional[int] = ..., topic_count: _Optional[int] = ..., last_error: _Optional[str] = ..., state: _Optional[str] = ..., failure_count: _Optional[int] = ..., built_up_to_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...
