import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from reput.commitlog.v1 import replication_pb2 as _replication_pb2
from reput.message.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendMessagesRequest(_message.Message):
    __slots__ = ("messages", "flush", "deduplicate", "broker_name", "check_only")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATE_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    CHECK_ONLY_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.NewMessage]
    flush: _message_pb2.FlushMode
    deduplicate: bool
    broker_name: str
    check_only: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.NewMessage, _Mapping]]] = ..., flush: _Optional[_Union[_message_pb2.FlushMode, str]] = ..., deduplicate: _Optional[bool] = ..., broker_name: _Optional[str] = ..., check_only: _Optional[bool] = ...) -> None: ...

class AppendMessagesResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_message_pb2.AppendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[_message_pb2.AppendResult, _Mapping]]] = ...) -> None: ...

class AppendMessageStreamRequest(_message.Message):
    __slots__ = ("messages", "flush", "deduplicate", "broker_name", "check_only")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATE_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    CHECK_ONLY_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.NewMessage]
    flush: _message_pb2.FlushMode
    deduplicate: bool
    broker_name: str
    check_only: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.NewMessage, _Mapping]]] = ..., flush: _Optional[_Union[_message_pb2.FlushMode, str]] = ..., deduplicate: _Optional[bool] = ..., broker_name: _Optional[str] = ..., check_only: _Optional[bool] = ...) -> None: ...

class AppendMessageStreamResponse(_message.Message):
    __slots__ = ("results", "error")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_message_pb2.AppendResult]
    error: _status_pb2.Status
    def __init__(self, results: _Optional[_Iterable[_Union[_message_pb2.AppendResult, _Mapping]]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class AppendInternalRequest(_message.Message):
    __slots__ = ("records", "flush", "broker_name", "follower", "follower_epoch", "new_topics")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    FOLLOWER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEW_TOPICS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[InternalRecord]
    flush: _message_pb2.FlushMode
    broker_name: str
    follower: str
    follower_epoch: int
    new_topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, records: _Optional[_Iterable[_Union[InternalRecord, _Mapping]]] = ..., flush: _Optional[_Union[_message_pb2.FlushMode, str]] = ..., broker_name: _Optional[str] = ..., follower: _Optional[str] = ..., follower_epoch: _Optional[int] = ..., new_topics: _Optional[_Iterable[str]] = ...) -> None: ...

class InternalRecord(_message.Message):
    __slots__ = ("topic", "queue_id", "body", "flag", "sys_flag", "properties", "born_time", "born_host", "store_host", "reconsume_times", "prepared_transaction_offset")
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
    FLAG_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BORN_TIME_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    PREPARED_TRANSACTION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    body: bytes
    flag: int
    sys_flag: int
    properties: _containers.ScalarMap[str, str]
    born_time: _timestamp_pb2.Timestamp
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., body: _Optional[bytes] = ..., flag: _Optional[int] = ..., sys_flag: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., born_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., born_host: _Optional[str] = ..., store_host: _Optional[str] = ..., reconsume_times: _Optional[int] = ..., prepared_transaction_offset: _Optional[int] = ...) -> None: ...

class AppendInternalResponse(_message.Message):
    __slots__ = ("results", "readable_offset")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    READABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_message_pb2.AppendResult]
    readable_offset: int
    def __init__(self, results: _Optional[_Iterable[_Union[_message_pb2.AppendResult, _Mapping]]] = ..., readable_offset: _Optional[int] = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("commit_log_offset",)
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    commit_log_offset: int
    def __init__(self, commit_log_offset: _Optional[int] = ...) -> None: ...

class GetMessageResponse(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.StoredMessage
    def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ...) -> None: ...

class BatchGetMessagesRequest(_message.Message):
    __slots__ = ("commit_log_offsets", "body_bytes_max", "omit_bodies")
    COMMIT_LOG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    OMIT_BODIES_FIELD_NUMBER: _ClassVar[int]
    commit_log_offsets: _containers.RepeatedScalarFieldContainer[int]
    body_bytes_max: int
    omit_bodies: bool
    def __init__(self, commit_log_offsets: _Optional[_Iterable[int]] = ..., body_bytes_max: _Optional[int] = ..., omit_bodies: _Optional[bool] = ...) -> None: ...

class BatchGetMessagesResponse(_message.Message):
    __slots__ = ("outcomes",)
    class Outcome(_message.Message):
        __slots__ = ("message", "error")
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        message: _message_pb2.StoredMessage
        error: _status_pb2.Status
        def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[BatchGetMessagesResponse.Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[BatchGetMessagesResponse.Outcome, _Mapping]]] = ...) -> None: ...

class ReputRequest(_message.Message):
    __slots__ = ("start_offset", "batch_bytes_max", "columns", "while_recovering", "gather_millis")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    WHILE_RECOVERING_FIELD_NUMBER: _ClassVar[int]
    GATHER_MILLIS_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    batch_bytes_max: int
    columns: bool
    while_recovering: bool
    gather_millis: int
    def __init__(self, start_offset: _Optional[int] = ..., batch_bytes_max: _Optional[int] = ..., columns: _Optional[bool] = ..., while_recovering: _Optional[bool] = ..., gather_millis: _Optional[int] = ...) -> None: ...

class DispatchRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "commit_log_offset", "record_size_bytes", "tags_code", "store_time_millis", "keys", "unique_key", "sys_flag", "prepared_transaction_offset", "tags", "light_places")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODE_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_MILLIS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    PREPARED_TRANSACTION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    LIGHT_PLACES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int
    tags_code: int
    store_time_millis: int
    keys: _containers.RepeatedScalarFieldContainer[str]
    unique_key: str
    sys_flag: int
    prepared_transaction_offset: int
    tags: str
    light_places: _containers.RepeatedCompositeFieldContainer[LightPlace]
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., commit_log_offset: _Optional[int] = ..., record_size_bytes: _Optional[int] = ..., tags_code: _Optional[int] = ..., store_time_millis: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ..., unique_key: _Optional[str] = ..., sys_flag: _Optional[int] = ..., prepared_transaction_offset: _Optional[int] = ..., tags: _Optional[str] = ..., light_places: _Optional[_Iterable[_Union[LightPlace, _Mapping]]] = ...) -> None: ...

class LightPlace(_message.Message):
    __slots__ = ("queue", "queue_offset")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue: str
    queue_offset: int
    def __init__(self, queue: _Optional[str] = ..., queue_offset: _Optional[int] = ...) -> None: ...

class LightUnit(_message.Message):
    __slots__ = ("queue", "queue_offset", "commit_log_offset", "record_size_bytes", "tags_code")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    queue_offset: int
    commit_log_offset: int
    record_size_bytes: int
    tags_code: int
    def __init__(self, queue: _Optional[str] = ..., queue_offset: _Optional[int] = ..., commit_log_offset: _Optional[int] = ..., record_size_bytes: _Optional[int] = ..., tags_code: _Optional[int] = ...) -> None: ...

class ReputColumns(_message.Message):
    __slots__ = ("topics", "topic_numbers", "queue_ids", "queue_offsets", "commit_log_offsets", "record_sizes_bytes", "tags_codes", "store_times_millis", "sys_flags", "key_records", "key_hashes", "first", "last", "tags_hashes", "light_units")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAGS_CODES_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMES_MILLIS_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAGS_FIELD_NUMBER: _ClassVar[int]
    KEY_RECORDS_FIELD_NUMBER: _ClassVar[int]
    KEY_HASHES_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TAGS_HASHES_FIELD_NUMBER: _ClassVar[int]
    LIGHT_UNITS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_numbers: bytes
    queue_ids: bytes
    queue_offsets: bytes
    commit_log_offsets: bytes
    record_sizes_bytes: bytes
    tags_codes: bytes
    store_times_millis: bytes
    sys_flags: bytes
    key_records: bytes
    key_hashes: bytes
    first: DispatchRequest
    last: DispatchRequest
    tags_hashes: bytes
    light_units: _containers.RepeatedCompositeFieldContainer[LightUnit]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic_numbers: _Optional[bytes] = ..., queue_ids: _Optional[bytes] = ..., queue_offsets: _Optional[bytes] = ..., commit_log_offsets: _Optional[bytes] = ..., record_sizes_bytes: _Optional[bytes] = ..., tags_codes: _Optional[bytes] = ..., store_times_millis: _Optional[bytes] = ..., sys_flags: _Optional[bytes] = ..., key_records: _Optional[bytes] = ..., key_hashes: _Optional[bytes] = ..., first: _Optional[_Union[DispatchRequest, _Mapping]] = ..., last: _Optional[_Union[DispatchRequest, _Mapping]] = ..., tags_hashes: _Optional[bytes] = ..., light_units: _Optional[_Iterable[_Union[LightUnit, _Mapping]]] = ...) -> None: ...

class ReputResponse(_message.Message):
    __slots__ = ("requests", "next_offset", "log_first_offset", "log_end_offset", "columns")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[DispatchRequest]
    next_offset: int
    log_first_offset: int
    log_end_offset: int
    columns: ReputColumns
    def __init__(self, requests: _Optional[_Iterable[_Union[DispatchRequest, _Mapping]]] = ..., next_offset: _Optional[int] = ..., log_first_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., columns: _Optional[_Union[ReputColumns, _Mapping]] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("builder", "next_offset", "store_time")
    BUILDER_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    builder: str
    next_offset: int
    store_time: _timestamp_pb2.Timestamp
    def __init__(self, builder: _Optional[str] = ..., next_offset: _Optional[int] = ..., store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveFollowerRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveFollowerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadConfigFileRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ReadConfigFileResponse(_message.Message):
    __slots__ = ("content", "exists", "problem", "is_backup")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    IS_BACKUP_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    exists: bool
    problem: str
    is_backup: bool
    def __init__(self, content: _Optional[bytes] = ..., exists: _Optional[bool] = ..., problem: _Optional[str] = ..., is_backup: _Optional[bool] = ...) -> None: ...

class WriteConfigFileRequest(_message.Message):
    __slots__ = ("name", "content", "is_last")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: bytes
    is_last: bool
    def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ..., is_last: _Optional[bool] = ...) -> None: ...

class WriteConfigFileResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "queue_count", "message_type", "perm", "lite_expiration_minutes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    LITE_EXPIRATION_MINUTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_count: int
    message_type: _message_pb2.MessageType
    perm: int
    lite_expiration_minutes: int
    def __init__(self, topic: _Optional[str] = ..., queue_count: _Optional[int] = ..., message_type: _Optional[_Union[_message_pb2.MessageType, str]] = ..., perm: _Optional[int] = ..., lite_expiration_minutes: _Optional[int] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: ListTopicsResponse.Topic
    def __init__(self, topic: _Optional[_Union[ListTopicsResponse.Topic, _Mapping]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("topic", "write_queue_count", "read_queue_count", "perm", "message_type", "lite_expiration_minutes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    LITE_EXPIRATION_MINUTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    write_queue_count: int
    read_queue_count: int
    perm: int
    message_type: _message_pb2.MessageType
    lite_expiration_minutes: int
    def __init__(self, topic: _Optional[str] = ..., write_queue_count: _Optional[int] = ..., read_queue_count: _Optional[int] = ..., perm: _Optional[int] = ..., message_type: _Optional[_Union[_message_pb2.MessageType, str]] = ..., lite_expiration_minutes: _Optional[int] = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: ListTopicsResponse.Topic
    def __init__(self, topic: _Optional[_Union[ListTopicsResponse.Topic, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("existed",)
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    existed: bool
    def __init__(self, existed: _Optional[bool] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("known_version", "without_topics")
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_TOPICS_FIELD_NUMBER: _ClassVar[int]
    known_version: int
    without_topics: bool
    def __init__(self, known_version: _Optional[int] = ..., without_topics: _Optional[bool] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "new_topic_queue_count", "version", "deleted_before", "held_elsewhere")
    class Topic(_message.Message):
        __slots__ = ("topic", "write_queue_count", "read_queue_count", "message_type", "perm", "lite_expiration_minutes")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        WRITE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
        READ_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
        PERM_FIELD_NUMBER: _ClassVar[int]
        LITE_EXPIRATION_MINUTES_FIELD_NUMBER: _ClassVar[int]
        topic: str
        write_queue_count: int
        read_queue_count: int
        message_type: _message_pb2.MessageType
        perm: int
        lite_expiration_minutes: int
        def __init__(self, topic: _Optional[str] = ..., write_queue_count: _Optional[int] = ..., read_queue_count: _Optional[int] = ..., message_type: _Optional[_Union[_message_pb2.MessageType, str]] = ..., perm: _Optional[int] = ..., lite_expiration_minutes: _Optional[int] = ...) -> None: ...
    class DeletedBeforeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class HeldElsewhere(_message.Message):
        __slots__ = ("feature", "text")
        FEATURE_FIELD_NUMBER: _ClassVar[int]
        TEXT_FIELD_NUMBER: _ClassVar[int]
        feature: str
        text: str
        def __init__(self, feature: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
    class HeldElsewhereEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ListTopicsResponse.HeldElsewhere
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ListTopicsResponse.HeldElsewhere, _Mapping]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEW_TOPIC_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DELETED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    HELD_ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[ListTopicsResponse.Topic]
    new_topic_queue_count: int
    version: int
    deleted_before: _containers.ScalarMap[str, int]
    held_elsewhere: _containers.MessageMap[str, ListTopicsResponse.HeldElsewhere]
    def __init__(self, topics: _Optional[_Iterable[_Union[ListTopicsResponse.Topic, _Mapping]]] = ..., new_topic_queue_count: _Optional[int] = ..., version: _Optional[int] = ..., deleted_before: _Optional[_Mapping[str, int]] = ..., held_elsewhere: _Optional[_Mapping[str, ListTopicsResponse.HeldElsewhere]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("flush_soon",)
    FLUSH_SOON_FIELD_NUMBER: _ClassVar[int]
    flush_soon: bool
    def __init__(self, flush_soon: _Optional[bool] = ...) -> None: ...

class StoreFeature(_message.Message):
    __slots__ = ("name", "verdict", "where", "text", "hides_queues")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    HIDES_QUEUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    verdict: str
    where: _containers.RepeatedScalarFieldContainer[str]
    text: str
    hides_queues: bool
    def __init__(self, name: _Optional[str] = ..., verdict: _Optional[str] = ..., where: _Optional[_Iterable[str]] = ..., text: _Optional[str] = ..., hides_queues: _Optional[bool] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("broker_name", "log_first_offset", "log_end_offset", "log_flushed_offset", "file_size_bytes", "file_count", "read_only", "last_store_time", "state", "builder_next_offsets", "version", "recovery", "problem", "disk", "retention_events", "confirm_offset", "followers", "readable_offset", "role", "epoch", "leader", "replica", "in_sync", "replicas", "coordinator", "epochs", "catch_up", "followed", "reach", "features", "in_memory_size_bytes", "stopped_cleanly", "nameservers", "broker_address")
    class BuilderNextOffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class NameserversEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bool
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bool] = ...) -> None: ...
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    LOG_FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BUILDER_NEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    RETENTION_EVENTS_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    READABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    FOLLOWED_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    IN_MEMORY_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STOPPED_CLEANLY_FIELD_NUMBER: _ClassVar[int]
    NAMESERVERS_FIELD_NUMBER: _ClassVar[int]
    BROKER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    log_first_offset: int
    log_end_offset: int
    log_flushed_offset: int
    file_size_bytes: int
    file_count: int
    read_only: bool
    last_store_time: _timestamp_pb2.Timestamp
    state: str
    builder_next_offsets: _containers.ScalarMap[str, int]
    version: str
    recovery: RecoveryProgress
    problem: str
    disk: DiskUsage
    retention_events: _containers.RepeatedCompositeFieldContainer[RetentionEvent]
    confirm_offset: int
    followers: _containers.RepeatedCompositeFieldContainer[Follower]
    readable_offset: int
    role: str
    epoch: int
    leader: str
    replica: str
    in_sync: _containers.RepeatedScalarFieldContainer[str]
    replicas: _containers.RepeatedCompositeFieldContainer[_replication_pb2.Replica]
    coordinator: str
    epochs: _containers.RepeatedCompositeFieldContainer[_replication_pb2.Epoch]
    catch_up: _replication_pb2.CatchUp
    followed: FollowedLog
    reach: _replication_pb2.FollowerReach
    features: _containers.RepeatedCompositeFieldContainer[StoreFeature]
    in_memory_size_bytes: int
    stopped_cleanly: bool
    nameservers: _containers.ScalarMap[str, bool]
    broker_address: str
    def __init__(self, broker_name: _Optional[str] = ..., log_first_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., log_flushed_offset: _Optional[int] = ..., file_size_bytes: _Optional[int] = ..., file_count: _Optional[int] = ..., read_only: _Optional[bool] = ..., last_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[str] = ..., builder_next_offsets: _Optional[_Mapping[str, int]] = ..., version: _Optional[str] = ..., recovery: _Optional[_Union[RecoveryProgress, _Mapping]] = ..., problem: _Optional[str] = ..., disk: _Optional[_Union[DiskUsage, _Mapping]] = ..., retention_events: _Optional[_Iterable[_Union[RetentionEvent, _Mapping]]] = ..., confirm_offset: _Optional[int] = ..., followers: _Optional[_Iterable[_Union[Follower, _Mapping]]] = ..., readable_offset: _Optional[int] = ..., role: _Optional[str] = ..., epoch: _Optional[int] = ..., leader: _Optional[str] = ..., replica: _Optional[str] = ..., in_sync: _Optional[_Iterable[str]] = ..., replicas: _Optional[_Iterable[_Union[_replication_pb2.Replica, _Mapping]]] = ..., coordinator: _Optional[str] = ..., epochs: _Optional[_Iterable[_Union[_replication_pb2.Epoch, _Mapping]]] = ..., catch_up: _Optional[_Union[_replication_pb2.CatchUp, _Mapping]] = ..., followed: _Optional[_Union[FollowedLog, _Mapping]] = ..., reach: _Optional[_Union[_replication_pb2.FollowerReach, _Mapping]] = ..., features: _Optional[_Iterable[_Union[StoreFeature, _Mapping]]] = ..., in_memory_size_bytes: _Optional[int] = ..., stopped_cleanly: _Optional[bool] = ..., nameservers: _Optional[_Mapping[str, bool]] = ..., broker_address: _Optional[str] = ...) -> None: ...

class FollowedLog(_message.Message):
    __slots__ = ("lag_bytes", "lag_age", "source", "state")
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_AGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    lag_bytes: int
    lag_age: _duration_pb2.Duration
    source: str
    state: str
    def __init__(self, lag_bytes: _Optional[int] = ..., lag_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., source: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class Follower(_message.Message):
    __slots__ = ("name", "expected", "next_offset", "store_time")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected: bool
    next_offset: int
    store_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., expected: _Optional[bool] = ..., next_offset: _Optional[int] = ..., store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RecoveryProgress(_message.Message):
    __slots__ = ("begin_offset", "next_offset", "end_offset", "record_count", "is_followable")
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_FOLLOWABLE_FIELD_NUMBER: _ClassVar[int]
    begin_offset: int
    next_offset: int
    end_offset: int
    record_count: int
    is_followable: bool
    def __init__(self, begin_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., record_count: _Optional[int] = ..., is_followable: _Optional[bool] = ...) -> None: ...

class DiskUsage(_message.Message):
    __slots__ = ("total_bytes", "free_bytes", "level")
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    total_bytes: int
    free_bytes: int
    level: str
    def __init__(self, total_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., level: _Optional[str] = ...) -> None: ...

class RetentionEvent(_message.Message):
    __slots__ = ("time", "begin_offset", "end_offset", "file_count", "reason", "lost_builder_next_offsets")
    class LostBuilderNextOffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TIME_FIELD_NUMBER: _ClassVar[int]
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LOST_BUILDER_NEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    begin_offset: int
    end_offset: int
    file_count: int
    reason: str
    lost_builder_next_offsets: _containers.ScalarMap[str, int]
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., file_count: _Optional[int] = ..., reason: _Optional[str] = ..., lost_builder_next_offsets: _Optional[_Mapping[str, int]] = ...) -> None: ...
