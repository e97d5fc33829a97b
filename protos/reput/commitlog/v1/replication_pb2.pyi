import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Epoch(_message.Message):
    __slots__ = ("epoch", "begin_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    begin_offset: int
    def __init__(self, epoch: _Optional[int] = ..., begin_offset: _Optional[int] = ...) -> None: ...

class ReplicateRequest(_message.Message):
    __slots__ = ("hello", "report")
    class Hello(_message.Message):
        __slots__ = ("replica", "broker_name", "leader_epoch", "epochs", "first_offset", "end_offset", "file_size_bytes", "store_id", "can_fetch")
        REPLICA_FIELD_NUMBER: _ClassVar[int]
        BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
        LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        EPOCHS_FIELD_NUMBER: _ClassVar[int]
        FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
        END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        FILE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
        STORE_ID_FIELD_NUMBER: _ClassVar[int]
        CAN_FETCH_FIELD_NUMBER: _ClassVar[int]
        replica: str
        broker_name: str
        leader_epoch: int
        epochs: _containers.RepeatedCompositeFieldContainer[Epoch]
        first_offset: int
        end_offset: int
        file_size_bytes: int
        store_id: str
        can_fetch: bool
        def __init__(self, replica: _Optional[str] = ..., broker_name: _Optional[str] = ..., leader_epoch: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[Epoch, _Mapping]]] = ..., first_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., file_size_bytes: _Optional[int] = ..., store_id: _Optional[str] = ..., can_fetch: _Optional[bool] = ...) -> None: ...
    class Report(_message.Message):
        __slots__ = ("durable_offset", "answered_heartbeat", "config_version", "number")
        DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
        ANSWERED_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
        CONFIG_VERSION_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        durable_offset: int
        answered_heartbeat: int
        config_version: int
        number: int
        def __init__(self, durable_offset: _Optional[int] = ..., answered_heartbeat: _Optional[int] = ..., config_version: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    hello: ReplicateRequest.Hello
    report: ReplicateRequest.Report
    def __init__(self, hello: _Optional[_Union[ReplicateRequest.Hello, _Mapping]] = ..., report: _Optional[_Union[ReplicateRequest.Report, _Mapping]] = ...) -> None: ...

class ReplicateResponse(_message.Message):
    __slots__ = ("start", "log_bytes", "config_files", "confirm_offset", "heartbeat", "heard_report", "fetch_end_offset")
    class Start(_message.Message):
        __slots__ = ("epoch", "agreed_offset", "begin_offset", "file_size_bytes", "epochs", "check_crc", "check_size_bytes", "end_offset")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        AGREED_OFFSET_FIELD_NUMBER: _ClassVar[int]
        BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
        FILE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
        EPOCHS_FIELD_NUMBER: _ClassVar[int]
        CHECK_CRC_FIELD_NUMBER: _ClassVar[int]
        CHECK_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
        END_OFFSET_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        agreed_offset: int
        begin_offset: int
        file_size_bytes: int
        epochs: _containers.RepeatedCompositeFieldContainer[Epoch]
        check_crc: int
        check_size_bytes: int
        end_offset: int
        def __init__(self, epoch: _Optional[int] = ..., agreed_offset: _Optional[int] = ..., begin_offset: _Optional[int] = ..., file_size_bytes: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[Epoch, _Mapping]]] = ..., check_crc: _Optional[int] = ..., check_size_bytes: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...
    class LogBytes(_message.Message):
        __slots__ = ("offset", "data", "settle_offset")
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        SETTLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
        offset: int
        data: bytes
        settle_offset: int
        def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., settle_offset: _Optional[int] = ...) -> None: ...
    class ConfigFile(_message.Message):
        __slots__ = ("name", "content", "version", "is_last")
        NAME_FIELD_NUMBER: _ClassVar[int]
        CONTENT_FIELD_NUMBER: _ClassVar[int]
        VERSION_FIELD_NUMBER: _ClassVar[int]
        IS_LAST_FIELD_NUMBER: _ClassVar[int]
        name: str
        content: bytes
        version: int
        is_last: bool
        def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ..., version: _Optional[int] = ..., is_last: _Optional[bool] = ...) -> None: ...
    START_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FILES_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    HEARD_REPORT_FIELD_NUMBER: _ClassVar[int]
    FETCH_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    start: ReplicateResponse.Start
    log_bytes: ReplicateResponse.LogBytes
    config_files: _containers.RepeatedCompositeFieldContainer[ReplicateResponse.ConfigFile]
    confirm_offset: int
    heartbeat: int
    heard_report: int
    fetch_end_offset: int
    def __init__(self, start: _Optional[_Union[ReplicateResponse.Start, _Mapping]] = ..., log_bytes: _Optional[_Union[ReplicateResponse.LogBytes, _Mapping]] = ..., config_files: _Optional[_Iterable[_Union[ReplicateResponse.ConfigFile, _Mapping]]] = ..., confirm_offset: _Optional[int] = ..., heartbeat: _Optional[int] = ..., heard_report: _Optional[int] = ..., fetch_end_offset: _Optional[int] = ...) -> None: ...

class FetchLogRequest(_message.Message):
    __slots__ = ("replica", "leader_epoch", "offset", "end_offset")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    replica: str
    leader_epoch: int
    offset: int
    end_offset: int
    def __init__(self, replica: _Optional[str] = ..., leader_epoch: _Optional[int] = ..., offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class FetchLogResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class CatchUp(_message.Message):
    __slots__ = ("begin_offset", "end_offset", "fetched_bytes", "total_bytes", "bytes_per_second")
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    begin_offset: int
    end_offset: int
    fetched_bytes: int
    total_bytes: int
    bytes_per_second: int
    def __init__(self, begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., fetched_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., bytes_per_second: _Optional[int] = ...) -> None: ...

class FollowerReach(_message.Message):
    __slots__ = ("leader_confirm_offset", "staleness")
    LEADER_CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    leader_confirm_offset: int
    staleness: _duration_pb2.Duration
    def __init__(self, leader_confirm_offset: _Optional[int] = ..., staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Replica(_message.Message):
    __slots__ = ("name", "in_sync", "connected", "durable_offset", "lag_bytes", "lag_millis", "catch_up")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    DURABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MILLIS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    name: str
    in_sync: bool
    connected: bool
    durable_offset: int
    lag_bytes: int
    lag_millis: int
    catch_up: CatchUp
    def __init__(self, name: _Optional[str] = ..., in_sync: _Optional[bool] = ..., connected: _Optional[bool] = ..., durable_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_millis: _Optional[int] = ..., catch_up: _Optional[_Union[CatchUp, _Mapping]] = ...) -> None: ...
