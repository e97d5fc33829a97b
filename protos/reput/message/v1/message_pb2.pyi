import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_SOURCE_UNSPECIFIED: _ClassVar[MessageSource]
    MESSAGE_SOURCE_LIVE: _ClassVar[MessageSource]
    MESSAGE_SOURCE_ARCHIVE: _ClassVar[MessageSource]

class Completeness(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPLETENESS_UNSPECIFIED: _ClassVar[Completeness]
    COMPLETENESS_COMPLETE: _ClassVar[Completeness]
    COMPLETENESS_TRUNCATED: _ClassVar[Completeness]
    COMPLETENESS_PARTIAL: _ClassVar[Completeness]

class FlushMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FLUSH_MODE_UNSPECIFIED: _ClassVar[FlushMode]
    FLUSH_MODE_ASYNC: _ClassVar[FlushMode]
    FLUSH_MODE_SYNC: _ClassVar[FlushMode]
    FLUSH_MODE_REPLICATED: _ClassVar[FlushMode]

class MessageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_TYPE_UNSPECIFIED: _ClassVar[MessageType]
    MESSAGE_TYPE_NORMAL: _ClassVar[MessageType]
    MESSAGE_TYPE_FIFO: _ClassVar[MessageType]
    MESSAGE_TYPE_DELAY: _ClassVar[MessageType]
    MESSAGE_TYPE_TRANSACTION: _ClassVar[MessageType]
    MESSAGE_TYPE_MIXED: _ClassVar[MessageType]
    MESSAGE_TYPE_PRIORITY: _ClassVar[MessageType]
    MESSAGE_TYPE_LITE: _ClassVar[MessageType]
MESSAGE_SOURCE_UNSPECIFIED: MessageSource
MESSAGE_SOURCE_LIVE: MessageSource
MESSAGE_SOURCE_ARCHIVE: MessageSource
COMPLETENESS_UNSPECIFIED: Completeness
COMPLETENESS_COMPLETE: Completeness
COMPLETENESS_TRUNCATED: Completeness
COMPLETENESS_PARTIAL: Completeness
FLUSH_MODE_UNSPECIFIED: FlushMode
FLUSH_MODE_ASYNC: FlushMode
FLUSH_MODE_SYNC: FlushMode
FLUSH_MODE_REPLICATED: FlushMode
MESSAGE_TYPE_UNSPECIFIED: MessageType
MESSAGE_TYPE_NORMAL: MessageType
MESSAGE_TYPE_FIFO: MessageType
MESSAGE_TYPE_DELAY: MessageType
MESSAGE_TYPE_TRANSACTION: MessageType
MESSAGE_TYPE_MIXED: MessageType
MESSAGE_TYPE_PRIORITY: MessageType
MESSAGE_TYPE_LITE: MessageType

class NewMessage(_message.Message):
    __slots__ = ("topic", "queue_id", "body", "tags", "keys", "properties", "flag", "unique_key", "born_time", "delivery_time", "delay_level", "reconsume_times", "sys_flag", "born_host", "wire_properties")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    BORN_TIME_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_TIME_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    WIRE_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    body: bytes
    tags: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    flag: int
    unique_key: str
    born_time: _timestamp_pb2.Timestamp
    delivery_time: _timestamp_pb2.Timestamp
    delay_level: int
    reconsume_times: int
    sys_flag: int
    born_host: str
    wire_properties: bytes
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., body: _Optional[bytes] = ..., tags: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., flag: _Optional[int] = ..., unique_key: _Optional[str] = ..., born_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delivery_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay_level: _Optional[int] = ..., reconsume_times: _Optional[int] = ..., sys_flag: _Optional[int] = ..., born_host: _Optional[str] = ..., wire_properties: _Optional[bytes] = ...) -> None: ...

class StoredMessage(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "commit_log_offset", "store_size_bytes", "flag", "sys_flag", "born_time", "born_host", "store_time", "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc", "body", "properties", "tags", "keys", "unique_key", "offset_msg_id", "broker_name", "body_omitted", "source", "deleted_with_topic")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    BORN_TIME_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    PREPARED_TRANSACTION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BODY_CRC_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BODY_OMITTED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DELETED_WITH_TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size_bytes: int
    flag: int
    sys_flag: int
    born_time: _timestamp_pb2.Timestamp
    born_host: str
    store_time: _timestamp_pb2.Timestamp
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    properties: _containers.ScalarMap[str, str]
    tags: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    unique_key: str
    offset_msg_id: str
    broker_name: str
    body_omitted: bool
    source: MessageSource
    deleted_with_topic: bool
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., commit_log_offset: _Optional[int] = ..., store_size_bytes: _Optional[int] = ..., flag: _Optional[int] = ..., sys_flag: _Optional[int] = ..., born_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., born_host: _Optional[str] = ..., store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., store_host: _Optional[str] = ..., reconsume_times: _Optional[int] = ..., prepared_transaction_offset: _Optional[int] = ..., body_crc: _Optional[int] = ..., body: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ..., tags: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., unique_key: _Optional[str] = ..., offset_msg_id: _Optional[str] = ..., broker_name: _Optional[str] = ..., body_omitted: _Optional[bool] = ..., source: _Optional[_Union[MessageSource, str]] = ..., deleted_with_topic: _Optional[bool] = ...) -> None: ...

class AppendResult(_message.Message):
    __slots__ = ("offset_msg_id", "unique_key", "queue_id", "queue_offset", "commit_log_offset", "store_time", "broker_name", "deduplicated", "freshness_token", "recall_handle", "transaction_id")
    OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATED_FIELD_NUMBER: _ClassVar[int]
    FRESHNESS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    offset_msg_id: str
    unique_key: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_time: _timestamp_pb2.Timestamp
    broker_name: str
    deduplicated: bool
    freshness_token: str
    recall_handle: str
    transaction_id: str
    def __init__(self, offset_msg_id: _Optional[str] = ..., unique_key: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., commit_log_offset: _Optional[int] = ..., store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., broker_name: _Optional[str] = ..., deduplicated: _Optional[bool] = ..., freshness_token: _Optional[str] = ..., recall_handle: _Optional[str] = ..., transaction_id: _Optional[str] = ...) -> None: ...
