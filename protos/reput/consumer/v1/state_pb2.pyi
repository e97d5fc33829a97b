from reput.consumer.v1 import consumer_service_pb2 as _consumer_service_pb2
from reput.gateway.v1 import gateway_service_pb2 as _gateway_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StateRecord(_message.Message):
    __slots__ = ("epoch", "changes", "groups", "file_digests", "lite_expired", "level")
    class FileDigestsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    FILE_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    LITE_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    groups: _containers.RepeatedCompositeFieldContainer[GroupState]
    file_digests: _containers.ScalarMap[str, bytes]
    lite_expired: _containers.RepeatedCompositeFieldContainer[LiteExpired]
    level: int
    def __init__(self, epoch: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupState, _Mapping]]] = ..., file_digests: _Optional[_Mapping[str, bytes]] = ..., lite_expired: _Optional[_Iterable[_Union[LiteExpired, _Mapping]]] = ..., level: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("handed_out", "ended", "hidden", "returned", "moved", "group_set", "group_deleted", "delivered", "released", "began", "lite_subscribed", "lite_expired")
    HANDED_OUT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    GROUP_SET_FIELD_NUMBER: _ClassVar[int]
    GROUP_DELETED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    LITE_SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    LITE_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    handed_out: HandedOut
    ended: Ended
    hidden: Hidden
    returned: Returned
    moved: Moved
    group_set: GroupSet
    group_deleted: GroupDeleted
    delivered: Delivered
    released: Released
    began: Began
    lite_subscribed: LiteSubscribed
    lite_expired: LiteExpired
    def __init__(self, handed_out: _Optional[_Union[HandedOut, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., hidden: _Optional[_Union[Hidden, _Mapping]] = ..., returned: _Optional[_Union[Returned, _Mapping]] = ..., moved: _Optional[_Union[Moved, _Mapping]] = ..., group_set: _Optional[_Union[GroupSet, _Mapping]] = ..., group_deleted: _Optional[_Union[GroupDeleted, _Mapping]] = ..., delivered: _Optional[_Union[Delivered, _Mapping]] = ..., released: _Optional[_Union[Released, _Mapping]] = ..., began: _Optional[_Union[Began, _Mapping]] = ..., lite_subscribed: _Optional[_Union[LiteSubscribed, _Mapping]] = ..., lite_expired: _Optional[_Union[LiteExpired, _Mapping]] = ...) -> None: ...

class LiteSubscribed(_message.Message):
    __slots__ = ("consumer_group", "topic", "client_id", "added", "removed", "is_complete", "is_wildcard", "is_ended")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    IS_WILDCARD_FIELD_NUMBER: _ClassVar[int]
    IS_ENDED_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    client_id: str
    added: _containers.RepeatedScalarFieldContainer[str]
    removed: _containers.RepeatedScalarFieldContainer[str]
    is_complete: bool
    is_wildcard: bool
    is_ended: bool
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., client_id: _Optional[str] = ..., added: _Optional[_Iterable[str]] = ..., removed: _Optional[_Iterable[str]] = ..., is_complete: _Optional[bool] = ..., is_wildcard: _Optional[bool] = ..., is_ended: _Optional[bool] = ...) -> None: ...

class LiteExpired(_message.Message):
    __slots__ = ("topic", "lite_topics", "queue_offsets", "commit_log_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    commit_log_offset: int
    def __init__(self, topic: _Optional[str] = ..., lite_topics: _Optional[_Iterable[str]] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., commit_log_offset: _Optional[int] = ...) -> None: ...

class Began(_message.Message):
    __slots__ = ("consumer_group", "beginning")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    BEGINNING_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    beginning: _consumer_service_pb2.Beginning
    def __init__(self, consumer_group: _Optional[str] = ..., beginning: _Optional[_Union[_consumer_service_pb2.Beginning, _Mapping]] = ...) -> None: ...

class QueueRef(_message.Message):
    __slots__ = ("consumer_group", "topic", "queue_id")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    queue_id: int
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("queue_offset", "delivery_number", "uncounted", "invisible_until_millis", "renew_until_millis", "client_id", "attempt_id", "message_group", "is_delivered", "serial", "is_released")
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_NUMBER_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_UNTIL_MILLIS_FIELD_NUMBER: _ClassVar[int]
    RENEW_UNTIL_MILLIS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    IS_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    IS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    delivery_number: int
    uncounted: int
    invisible_until_millis: int
    renew_until_millis: int
    client_id: str
    attempt_id: str
    message_group: str
    is_delivered: bool
    serial: int
    is_released: bool
    def __init__(self, queue_offset: _Optional[int] = ..., delivery_number: _Optional[int] = ..., uncounted: _Optional[int] = ..., invisible_until_millis: _Optional[int] = ..., renew_until_millis: _Optional[int] = ..., client_id: _Optional[str] = ..., attempt_id: _Optional[str] = ..., message_group: _Optional[str] = ..., is_delivered: _Optional[bool] = ..., serial: _Optional[int] = ..., is_released: _Optional[bool] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("queue_offset", "delivery_number", "uncounted", "message_group", "visible_millis")
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_NUMBER_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_MILLIS_FIELD_NUMBER: _ClassVar[int]
    queue_offset: int
    delivery_number: int
    uncounted: int
    message_group: str
    visible_millis: int
    def __init__(self, queue_offset: _Optional[int] = ..., delivery_number: _Optional[int] = ..., uncounted: _Optional[int] = ..., message_group: _Optional[str] = ..., visible_millis: _Optional[int] = ...) -> None: ...

class HandedOut(_message.Message):
    __slots__ = ("queue", "next_offset", "leases", "passed")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    next_offset: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    passed: _containers.RepeatedCompositeFieldContainer[Waiting]
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., next_offset: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., passed: _Optional[_Iterable[_Union[Waiting, _Mapping]]] = ...) -> None: ...

class Delivered(_message.Message):
    __slots__ = ("queue", "queue_offsets")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., queue_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("queue", "queue_offsets", "moved")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    moved: bool
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., moved: _Optional[bool] = ...) -> None: ...

class Hidden(_message.Message):
    __slots__ = ("queue", "queue_offset", "invisible_until_millis", "is_released")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_UNTIL_MILLIS_FIELD_NUMBER: _ClassVar[int]
    IS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    queue_offset: int
    invisible_until_millis: int
    is_released: bool
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., queue_offset: _Optional[int] = ..., invisible_until_millis: _Optional[int] = ..., is_released: _Optional[bool] = ...) -> None: ...

class Released(_message.Message):
    __slots__ = ("queue", "queue_offsets")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., queue_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class Returned(_message.Message):
    __slots__ = ("queue", "waiting")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    waiting: _containers.RepeatedCompositeFieldContainer[Waiting]
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., waiting: _Optional[_Iterable[_Union[Waiting, _Mapping]]] = ...) -> None: ...

class Moved(_message.Message):
    __slots__ = ("queue", "next_offset", "is_reset")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_RESET_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    next_offset: int
    is_reset: bool
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., next_offset: _Optional[int] = ..., is_reset: _Optional[bool] = ...) -> None: ...

class GroupSet(_message.Message):
    __slots__ = ("consumer_group", "ordered", "delivery_attempts_max", "consume_enabled", "broadcast", "request_modes", "priority_factor", "lite", "made_by")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    REQUEST_MODES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FACTOR_FIELD_NUMBER: _ClassVar[int]
    LITE_FIELD_NUMBER: _ClassVar[int]
    MADE_BY_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    ordered: bool
    delivery_attempts_max: int
    consume_enabled: bool
    broadcast: bool
    request_modes: _containers.RepeatedCompositeFieldContainer[_consumer_service_pb2.RequestMode]
    priority_factor: int
    lite: _gateway_service_pb2.LiteSettings
    made_by: str
    def __init__(self, consumer_group: _Optional[str] = ..., ordered: _Optional[bool] = ..., delivery_attempts_max: _Optional[int] = ..., consume_enabled: _Optional[bool] = ..., broadcast: _Optional[bool] = ..., request_modes: _Optional[_Iterable[_Union[_consumer_service_pb2.RequestMode, _Mapping]]] = ..., priority_factor: _Optional[int] = ..., lite: _Optional[_Union[_gateway_service_pb2.LiteSettings, _Mapping]] = ..., made_by: _Optional[str] = ...) -> None: ...

class GroupDeleted(_message.Message):
    __slots__ = ("consumer_group",)
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    def __init__(self, consumer_group: _Optional[str] = ...) -> None: ...

class GroupState(_message.Message):
    __slots__ = ("settings", "queues", "lite_subscriptions", "light_positions")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    LITE_SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    LIGHT_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSet
    queues: _containers.RepeatedCompositeFieldContainer[QueueState]
    lite_subscriptions: _containers.RepeatedCompositeFieldContainer[LiteSubscribed]
    light_positions: _containers.RepeatedCompositeFieldContainer[LightPositions]
    def __init__(self, settings: _Optional[_Union[GroupSet, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueState, _Mapping]]] = ..., lite_subscriptions: _Optional[_Iterable[_Union[LiteSubscribed, _Mapping]]] = ..., light_positions: _Optional[_Iterable[_Union[LightPositions, _Mapping]]] = ...) -> None: ...

class LightPositions(_message.Message):
    __slots__ = ("queues", "next_offsets")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    next_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queues: _Optional[_Iterable[str]] = ..., next_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class QueueState(_message.Message):
    __slots__ = ("queue", "next_offset", "leases", "waiting", "reset_offsets", "moved_offsets", "popped_from")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RESET_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MOVED_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    POPPED_FROM_FIELD_NUMBER: _ClassVar[int]
    queue: QueueRef
    next_offset: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    waiting: _containers.RepeatedCompositeFieldContainer[Waiting]
    reset_offsets: _containers.RepeatedScalarFieldContainer[int]
    moved_offsets: _containers.RepeatedScalarFieldContainer[int]
    popped_from: int
    def __init__(self, queue: _Optional[_Union[QueueRef, _Mapping]] = ..., next_offset: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[Waiting, _Mapping]]] = ..., reset_offsets: _Optional[_Iterable[int]] = ..., moved_offsets: _Optional[_Iterable[int]] = ..., popped_from: _Optional[int] = ...) -> None: ...
