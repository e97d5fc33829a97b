import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListBrokersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListBrokersResponse(_message.Message):
    __slots__ = ("brokers", "next_page_token")
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    next_page_token: str
    def __init__(self, brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Broker(_message.Message):
    __slots__ = ("broker_name", "cluster_name", "addresses")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    cluster_name: str
    addresses: _containers.RepeatedCompositeFieldContainer[BrokerAddress]
    def __init__(self, broker_name: _Optional[str] = ..., cluster_name: _Optional[str] = ..., addresses: _Optional[_Iterable[_Union[BrokerAddress, _Mapping]]] = ...) -> None: ...

class BrokerAddress(_message.Message):
    __slots__ = ("broker_id", "address", "seen_time")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SEEN_TIME_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    address: str
    seen_time: _timestamp_pb2.Timestamp
    def __init__(self, broker_id: _Optional[int] = ..., address: _Optional[str] = ..., seen_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("cluster_name", "page_size", "page_token")
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    cluster_name: str
    page_size: int
    page_token: str
    def __init__(self, cluster_name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetRouteRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetRouteResponse(_message.Message):
    __slots__ = ("queues", "brokers")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[BrokerQueues]
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    def __init__(self, queues: _Optional[_Iterable[_Union[BrokerQueues, _Mapping]]] = ..., brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ...) -> None: ...

class BrokerQueues(_message.Message):
    __slots__ = ("broker_name", "read_queue_count", "write_queue_count", "perm")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    def __init__(self, broker_name: _Optional[str] = ..., read_queue_count: _Optional[int] = ..., write_queue_count: _Optional[int] = ..., perm: _Optional[int] = ...) -> None: ...

class SetWritePermRequest(_message.Message):
    __slots__ = ("broker_name", "writable")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    writable: bool
    def __init__(self, broker_name: _Optional[str] = ..., writable: _Optional[bool] = ...) -> None: ...

class SetWritePermResponse(_message.Message):
    __slots__ = ("topic_count",)
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic_count: int
    def __init__(self, topic_count: _Optional[int] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic", "cluster_name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    cluster_name: str
    def __init__(self, topic: _Optional[str] = ..., cluster_name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListKvConfigRequest(_message.Message):
    __slots__ = ("namespace", "page_size", "page_token")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    page_size: int
    page_token: str
    def __init__(self, namespace: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListKvConfigResponse(_message.Message):
    __slots__ = ("values", "next_page_token")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[KvConfig]
    next_page_token: str
    def __init__(self, values: _Optional[_Iterable[_Union[KvConfig, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class KvConfig(_message.Message):
    __slots__ = ("namespace", "key", "value")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: str
    value: str
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PutKvConfigRequest(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: KvConfig
    def __init__(self, value: _Optional[_Union[KvConfig, _Mapping]] = ...) -> None: ...

class PutKvConfigResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteKvConfigRequest(_message.Message):
    __slots__ = ("namespace", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: str
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class DeleteKvConfigResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
