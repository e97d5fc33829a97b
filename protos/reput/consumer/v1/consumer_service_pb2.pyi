import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from reput.gateway.v1 import gateway_service_pb2 as _gateway_service_pb2
from reput.message.v1 import message_pb2 as _message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LiteAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LITE_ACTION_UNSPECIFIED: _ClassVar[LiteAction]
    LITE_ACTION_PARTIAL_ADD: _ClassVar[LiteAction]
    LITE_ACTION_PARTIAL_REMOVE: _ClassVar[LiteAction]
    LITE_ACTION_COMPLETE_ADD: _ClassVar[LiteAction]
    LITE_ACTION_COMPLETE_REMOVE: _ClassVar[LiteAction]

class FigureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIGURE_KIND_UNSPECIFIED: _ClassVar[FigureKind]
    FIGURE_KIND_APPENDED: _ClassVar[FigureKind]
    FIGURE_KIND_DELIVERED: _ClassVar[FigureKind]
    FIGURE_KIND_SENT_BACK: _ClassVar[FigureKind]
LITE_ACTION_UNSPECIFIED: LiteAction
LITE_ACTION_PARTIAL_ADD: LiteAction
LITE_ACTION_PARTIAL_REMOVE: LiteAction
LITE_ACTION_COMPLETE_ADD: LiteAction
LITE_ACTION_COMPLETE_REMOVE: LiteAction
FIGURE_KIND_UNSPECIFIED: FigureKind
FIGURE_KIND_APPENDED: FigureKind
FIGURE_KIND_DELIVERED: FigureKind
FIGURE_KIND_SENT_BACK: FigureKind

class PopMessagesRequest(_message.Message):
    __slots__ = ("consumer_group", "topic", "queue_id", "max_messages", "invisible_duration", "client_id", "attempt_id", "filter", "max_per_message_group", "known_only", "as_check_points", "in_order", "begun_only", "is_lite", "caller")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_DURATION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ONLY_FIELD_NUMBER: _ClassVar[int]
    AS_CHECK_POINTS_FIELD_NUMBER: _ClassVar[int]
    IN_ORDER_FIELD_NUMBER: _ClassVar[int]
    BEGUN_ONLY_FIELD_NUMBER: _ClassVar[int]
    IS_LITE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    queue_id: int
    max_messages: int
    invisible_duration: _duration_pb2.Duration
    client_id: str
    attempt_id: str
    filter: _gateway_service_pb2.MessageFilter
    max_per_message_group: int
    known_only: bool
    as_check_points: bool
    in_order: bool
    begun_only: bool
    is_lite: bool
    caller: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., max_messages: _Optional[int] = ..., invisible_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., client_id: _Optional[str] = ..., attempt_id: _Optional[str] = ..., filter: _Optional[_Union[_gateway_service_pb2.MessageFilter, _Mapping]] = ..., max_per_message_group: _Optional[int] = ..., known_only: _Optional[bool] = ..., as_check_points: _Optional[bool] = ..., in_order: _Optional[bool] = ..., begun_only: _Optional[bool] = ..., is_lite: _Optional[bool] = ..., caller: _Optional[str] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("message", "receipt_handle", "delivery_attempt", "invisible_until")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLE_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.StoredMessage
    receipt_handle: str
    delivery_attempt: int
    invisible_until: _timestamp_pb2.Timestamp
    def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., receipt_handle: _Optional[str] = ..., delivery_attempt: _Optional[int] = ..., invisible_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class PopMessagesResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class AckMessagesRequest(_message.Message):
    __slots__ = ("consumer_group", "receipt_handles")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLES_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    receipt_handles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, consumer_group: _Optional[str] = ..., receipt_handles: _Optional[_Iterable[str]] = ...) -> None: ...

class AckMessagesResponse(_message.Message):
    __slots__ = ("outcomes",)
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[AckMessagesResponse.Outcome]
        OUTCOME_OK: _ClassVar[AckMessagesResponse.Outcome]
        OUTCOME_TOO_LATE: _ClassVar[AckMessagesResponse.Outcome]
        OUTCOME_INVALID: _ClassVar[AckMessagesResponse.Outcome]
    OUTCOME_UNSPECIFIED: AckMessagesResponse.Outcome
    OUTCOME_OK: AckMessagesResponse.Outcome
    OUTCOME_TOO_LATE: AckMessagesResponse.Outcome
    OUTCOME_INVALID: AckMessagesResponse.Outcome
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[AckMessagesResponse.Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[AckMessagesResponse.Outcome, str]]] = ...) -> None: ...

class ChangeInvisibleDurationRequest(_message.Message):
    __slots__ = ("consumer_group", "receipt_handle", "invisible_duration", "give_back", "suspend")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLE_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_DURATION_FIELD_NUMBER: _ClassVar[int]
    GIVE_BACK_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    receipt_handle: str
    invisible_duration: _duration_pb2.Duration
    give_back: bool
    suspend: bool
    def __init__(self, consumer_group: _Optional[str] = ..., receipt_handle: _Optional[str] = ..., invisible_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., give_back: _Optional[bool] = ..., suspend: _Optional[bool] = ...) -> None: ...

class ChangeInvisibleDurationResponse(_message.Message):
    __slots__ = ("receipt_handle",)
    RECEIPT_HANDLE_FIELD_NUMBER: _ClassVar[int]
    receipt_handle: str
    def __init__(self, receipt_handle: _Optional[str] = ...) -> None: ...

class ForwardToDeadLetterTopicRequest(_message.Message):
    __slots__ = ("consumer_group", "receipt_handle")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_HANDLE_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    receipt_handle: str
    def __init__(self, consumer_group: _Optional[str] = ..., receipt_handle: _Optional[str] = ...) -> None: ...

class ForwardToDeadLetterTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PullMessagesRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset", "max_messages", "max_bytes", "filter", "consumer_group", "shown_as", "ignore_perm", "as_records", "follows_resets", "member", "caller")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    SHOWN_AS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_PERM_FIELD_NUMBER: _ClassVar[int]
    AS_RECORDS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_RESETS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    max_bytes: int
    filter: _gateway_service_pb2.MessageFilter
    consumer_group: str
    shown_as: str
    ignore_perm: bool
    as_records: bool
    follows_resets: bool
    member: str
    caller: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., filter: _Optional[_Union[_gateway_service_pb2.MessageFilter, _Mapping]] = ..., consumer_group: _Optional[str] = ..., shown_as: _Optional[str] = ..., ignore_perm: _Optional[bool] = ..., as_records: _Optional[bool] = ..., follows_resets: _Optional[bool] = ..., member: _Optional[str] = ..., caller: _Optional[str] = ...) -> None: ...

class PullMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_offset", "min_offset", "max_offset", "status", "shown_as", "is_whole", "records", "seen_offset")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SHOWN_AS_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SEEN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[_message_pb2.StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    status: _gateway_service_pb2.PullStatus
    shown_as: str
    is_whole: bool
    records: _containers.RepeatedScalarFieldContainer[bytes]
    seen_offset: int
    def __init__(self, messages: _Optional[_Iterable[_Union[_message_pb2.StoredMessage, _Mapping]]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., status: _Optional[_Union[_gateway_service_pb2.PullStatus, str]] = ..., shown_as: _Optional[str] = ..., is_whole: _Optional[bool] = ..., records: _Optional[_Iterable[bytes]] = ..., seen_offset: _Optional[int] = ...) -> None: ...

class SendBackMessagesRequest(_message.Message):
    __slots__ = ("consumer_group", "topic", "queue_id", "queue_offsets", "delay_level", "known_only", "delivery_attempts_max", "for_pullers", "caller")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ONLY_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    FOR_PULLERS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    queue_id: int
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    delay_level: int
    known_only: bool
    delivery_attempts_max: int
    for_pullers: bool
    caller: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offsets: _Optional[_Iterable[int]] = ..., delay_level: _Optional[int] = ..., known_only: _Optional[bool] = ..., delivery_attempts_max: _Optional[int] = ..., for_pullers: _Optional[bool] = ..., caller: _Optional[str] = ...) -> None: ...

class SendBackMessagesResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[_gateway_service_pb2.SendBackOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[_gateway_service_pb2.SendBackOutcome, str]]] = ...) -> None: ...

class LockQueuesRequest(_message.Message):
    __slots__ = ("consumer_group", "client_id", "queues", "unlock", "renew", "caller")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    UNLOCK_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    client_id: str
    queues: _containers.RepeatedCompositeFieldContainer[_gateway_service_pb2.TopicQueue]
    unlock: bool
    renew: bool
    caller: str
    def __init__(self, consumer_group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[_gateway_service_pb2.TopicQueue, _Mapping]]] = ..., unlock: _Optional[bool] = ..., renew: _Optional[bool] = ..., caller: _Optional[str] = ...) -> None: ...

class LockQueuesResponse(_message.Message):
    __slots__ = ("queues", "unknown_queues")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[_gateway_service_pb2.TopicQueue]
    unknown_queues: _containers.RepeatedCompositeFieldContainer[_gateway_service_pb2.TopicQueue]
    def __init__(self, queues: _Optional[_Iterable[_Union[_gateway_service_pb2.TopicQueue, _Mapping]]] = ..., unknown_queues: _Optional[_Iterable[_Union[_gateway_service_pb2.TopicQueue, _Mapping]]] = ...) -> None: ...

class QueueOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "queue_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    queue_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ...) -> None: ...

class Beginning(_message.Message):
    __slots__ = ("topic", "queue_offsets")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., queue_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "offsets", "begins", "known_only", "member", "beginning", "caller")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ONLY_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    BEGINNING_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    begins: bool
    known_only: bool
    member: str
    beginning: Beginning
    caller: str
    def __init__(self, consumer_group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ..., begins: _Optional[bool] = ..., known_only: _Optional[bool] = ..., member: _Optional[str] = ..., beginning: _Optional[_Union[Beginning, _Mapping]] = ..., caller: _Optional[str] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "topic")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class GetOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("consumer_group", "topic", "earliest", "latest", "time", "queue_offset", "queue_id", "dry_run", "known_only", "caller")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ONLY_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    earliest: bool
    latest: bool
    time: _timestamp_pb2.Timestamp
    queue_offset: int
    queue_id: int
    dry_run: bool
    known_only: bool
    caller: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queue_offset: _Optional[int] = ..., queue_id: _Optional[int] = ..., dry_run: _Optional[bool] = ..., known_only: _Optional[bool] = ..., caller: _Optional[str] = ...) -> None: ...

class ResetOffsetsResponse(_message.Message):
    __slots__ = ("resets",)
    class Reset(_message.Message):
        __slots__ = ("queue_id", "before", "after")
        QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
        BEFORE_FIELD_NUMBER: _ClassVar[int]
        AFTER_FIELD_NUMBER: _ClassVar[int]
        queue_id: int
        before: int
        after: int
        def __init__(self, queue_id: _Optional[int] = ..., before: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...
    RESETS_FIELD_NUMBER: _ClassVar[int]
    resets: _containers.RepeatedCompositeFieldContainer[ResetOffsetsResponse.Reset]
    def __init__(self, resets: _Optional[_Iterable[_Union[ResetOffsetsResponse.Reset, _Mapping]]] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("client_id", "consumer_group", "subscriptions", "language", "address", "version", "kind", "caller")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    consumer_group: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[_gateway_service_pb2.TopicSubscription]
    language: str
    address: str
    version: str
    kind: str
    caller: str
    def __init__(self, client_id: _Optional[str] = ..., consumer_group: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[_gateway_service_pb2.TopicSubscription, _Mapping]]] = ..., language: _Optional[str] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., kind: _Optional[str] = ..., caller: _Optional[str] = ...) -> None: ...

class KeepClientsRequest(_message.Message):
    __slots__ = ("clients", "delivered_receipt_handles")
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_RECEIPT_HANDLES_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedCompositeFieldContainer[Client]
    delivered_receipt_handles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, clients: _Optional[_Iterable[_Union[Client, _Mapping]]] = ..., delivered_receipt_handles: _Optional[_Iterable[str]] = ...) -> None: ...

class KeepClientsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSettings]
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSettings, _Mapping]]] = ...) -> None: ...

class EndClientRequest(_message.Message):
    __slots__ = ("client_id", "consumer_group", "keep_locks", "address")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    KEEP_LOCKS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    consumer_group: str
    keep_locks: bool
    address: str
    def __init__(self, client_id: _Optional[str] = ..., consumer_group: _Optional[str] = ..., keep_locks: _Optional[bool] = ..., address: _Optional[str] = ...) -> None: ...

class EndClientResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LiteOffset(_message.Message):
    __slots__ = ("earliest", "latest", "queue_offset", "last_count", "time")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_COUNT_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    earliest: bool
    latest: bool
    queue_offset: int
    last_count: int
    time: _timestamp_pb2.Timestamp
    def __init__(self, earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., queue_offset: _Optional[int] = ..., last_count: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SyncLiteSubscriptionRequest(_message.Message):
    __slots__ = ("consumer_group", "topic", "client_id", "action", "lite_topics", "version", "begins", "caller")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    client_id: str
    action: LiteAction
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    version: int
    begins: LiteOffset
    caller: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., client_id: _Optional[str] = ..., action: _Optional[_Union[LiteAction, str]] = ..., lite_topics: _Optional[_Iterable[str]] = ..., version: _Optional[int] = ..., begins: _Optional[_Union[LiteOffset, _Mapping]] = ..., caller: _Optional[str] = ...) -> None: ...

class SyncLiteSubscriptionResponse(_message.Message):
    __slots__ = ("lite_topic_count", "lost_lite_topics")
    LITE_TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOST_LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    lite_topic_count: int
    lost_lite_topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lite_topic_count: _Optional[int] = ..., lost_lite_topics: _Optional[_Iterable[str]] = ...) -> None: ...

class ListLiteTopicsRequest(_message.Message):
    __slots__ = ("topic", "consumer_group", "lite_topic_contains", "after", "page_size", "lite_topic", "client_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    consumer_group: str
    lite_topic_contains: str
    after: str
    page_size: int
    lite_topic: str
    client_id: str
    def __init__(self, topic: _Optional[str] = ..., consumer_group: _Optional[str] = ..., lite_topic_contains: _Optional[str] = ..., after: _Optional[str] = ..., page_size: _Optional[int] = ..., lite_topic: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class LiteTopic(_message.Message):
    __slots__ = ("lite_topic", "min_offset", "max_offset", "last_store_time", "groups")
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    lite_topic: str
    min_offset: int
    max_offset: int
    last_store_time: _timestamp_pb2.Timestamp
    groups: _containers.RepeatedCompositeFieldContainer[_gateway_service_pb2.LiteTopicGroup]
    def __init__(self, lite_topic: _Optional[str] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., last_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., groups: _Optional[_Iterable[_Union[_gateway_service_pb2.LiteTopicGroup, _Mapping]]] = ...) -> None: ...

class ListLiteTopicsResponse(_message.Message):
    __slots__ = ("lite_topics", "has_more")
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    lite_topics: _containers.RepeatedCompositeFieldContainer[LiteTopic]
    has_more: bool
    def __init__(self, lite_topics: _Optional[_Iterable[_Union[LiteTopic, _Mapping]]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class WatchArrivalsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchArrivalsResponse(_message.Message):
    __slots__ = ("topics", "group_topics", "all", "member_groups", "queues", "lite_clients", "lost_lite_topics", "all_lite_clients")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUP_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    MEMBER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    LITE_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    LOST_LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ALL_LITE_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    group_topics: _containers.RepeatedCompositeFieldContainer[GroupTopic]
    all: bool
    member_groups: _containers.RepeatedScalarFieldContainer[str]
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueues]
    lite_clients: _containers.RepeatedCompositeFieldContainer[LiteClient]
    lost_lite_topics: _containers.RepeatedCompositeFieldContainer[LostLiteTopic]
    all_lite_clients: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., group_topics: _Optional[_Iterable[_Union[GroupTopic, _Mapping]]] = ..., all: _Optional[bool] = ..., member_groups: _Optional[_Iterable[str]] = ..., queues: _Optional[_Iterable[_Union[TopicQueues, _Mapping]]] = ..., lite_clients: _Optional[_Iterable[_Union[LiteClient, _Mapping]]] = ..., lost_lite_topics: _Optional[_Iterable[_Union[LostLiteTopic, _Mapping]]] = ..., all_lite_clients: _Optional[bool] = ...) -> None: ...

class LiteClient(_message.Message):
    __slots__ = ("consumer_group", "topic", "client_id")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    client_id: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class LostLiteTopic(_message.Message):
    __slots__ = ("consumer_group", "topic", "client_id", "lite_topic")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    client_id: str
    lite_topic: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ..., client_id: _Optional[str] = ..., lite_topic: _Optional[str] = ...) -> None: ...

class TopicQueues(_message.Message):
    __slots__ = ("topic", "queue_ids")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupTopic(_message.Message):
    __slots__ = ("consumer_group", "topic")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    topic: str
    def __init__(self, consumer_group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class GroupSettings(_message.Message):
    __slots__ = ("consumer_group", "ordered", "delivery_attempts_max", "consume_enabled", "broadcast", "is_set", "request_modes", "priority_factor", "lite")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    IS_SET_FIELD_NUMBER: _ClassVar[int]
    REQUEST_MODES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FACTOR_FIELD_NUMBER: _ClassVar[int]
    LITE_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    ordered: bool
    delivery_attempts_max: int
    consume_enabled: bool
    broadcast: bool
    is_set: bool
    request_modes: _containers.RepeatedCompositeFieldContainer[RequestMode]
    priority_factor: int
    lite: _gateway_service_pb2.LiteSettings
    def __init__(self, consumer_group: _Optional[str] = ..., ordered: _Optional[bool] = ..., delivery_attempts_max: _Optional[int] = ..., consume_enabled: _Optional[bool] = ..., broadcast: _Optional[bool] = ..., is_set: _Optional[bool] = ..., request_modes: _Optional[_Iterable[_Union[RequestMode, _Mapping]]] = ..., priority_factor: _Optional[int] = ..., lite: _Optional[_Union[_gateway_service_pb2.LiteSettings, _Mapping]] = ...) -> None: ...

class RequestMode(_message.Message):
    __slots__ = ("topic", "is_pop", "pop_share_queue_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_POP_FIELD_NUMBER: _ClassVar[int]
    POP_SHARE_QUEUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    is_pop: bool
    pop_share_queue_count: int
    def __init__(self, topic: _Optional[str] = ..., is_pop: _Optional[bool] = ..., pop_share_queue_count: _Optional[int] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("topic", "page_size", "after", "name_contains", "consumer_group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NAME_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    page_size: int
    after: str
    name_contains: str
    consumer_group: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., after: _Optional[str] = ..., name_contains: _Optional[str] = ..., consumer_group: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "has_more")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[GroupSettings]
    has_more: bool
    def __init__(self, groups: _Optional[_Iterable[_Union[GroupSettings, _Mapping]]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class GetGroupRequest(_message.Message):
    __slots__ = ("consumer_group", "without_queues")
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_QUEUES_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    without_queues: bool
    def __init__(self, consumer_group: _Optional[str] = ..., without_queues: _Optional[bool] = ...) -> None: ...

class GroupQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "consumer_offset", "next_offset", "min_offset", "max_offset", "in_flight_count", "waiting_count", "oldest_store_time", "removed_count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITING_COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_STORE_TIME_FIELD_NUMBER: _ClassVar[int]
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    consumer_offset: int
    next_offset: int
    min_offset: int
    max_offset: int
    in_flight_count: int
    waiting_count: int
    oldest_store_time: _timestamp_pb2.Timestamp
    removed_count: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., consumer_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., waiting_count: _Optional[int] = ..., oldest_store_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., removed_count: _Optional[int] = ...) -> None: ...

class GetGroupResponse(_message.Message):
    __slots__ = ("settings", "clients", "queues", "problems", "has_locks", "lite_topics")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    HAS_LOCKS_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    clients: _containers.RepeatedCompositeFieldContainer[Client]
    queues: _containers.RepeatedCompositeFieldContainer[GroupQueue]
    problems: _containers.RepeatedScalarFieldContainer[str]
    has_locks: bool
    lite_topics: _containers.RepeatedCompositeFieldContainer[LiteSummary]
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ..., clients: _Optional[_Iterable[_Union[Client, _Mapping]]] = ..., queues: _Optional[_Iterable[_Union[GroupQueue, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ..., has_locks: _Optional[bool] = ..., lite_topics: _Optional[_Iterable[_Union[LiteSummary, _Mapping]]] = ...) -> None: ...

class LiteSummary(_message.Message):
    __slots__ = ("topic", "lite_topic_count", "lag_count", "in_flight_count", "subscribers")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAG_COUNT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lite_topic_count: int
    lag_count: int
    in_flight_count: int
    subscribers: _containers.RepeatedCompositeFieldContainer[LiteSubscriber]
    def __init__(self, topic: _Optional[str] = ..., lite_topic_count: _Optional[int] = ..., lag_count: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., subscribers: _Optional[_Iterable[_Union[LiteSubscriber, _Mapping]]] = ...) -> None: ...

class LiteSubscriber(_message.Message):
    __slots__ = ("client_id", "lite_topic_count", "is_wildcard")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_WILDCARD_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    lite_topic_count: int
    is_wildcard: bool
    def __init__(self, client_id: _Optional[str] = ..., lite_topic_count: _Optional[int] = ..., is_wildcard: _Optional[bool] = ...) -> None: ...

class UpdateGroupRequest(_message.Message):
    __slots__ = ("settings", "if_unset", "request_mode", "caller")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    IF_UNSET_FIELD_NUMBER: _ClassVar[int]
    REQUEST_MODE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    if_unset: bool
    request_mode: RequestMode
    caller: str
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ..., if_unset: _Optional[bool] = ..., request_mode: _Optional[_Union[RequestMode, _Mapping]] = ..., caller: _Optional[str] = ...) -> None: ...

class UpdateGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("consumer_group",)
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    consumer_group: str
    def __init__(self, consumer_group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SeeTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SeeTopicsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FigureKey(_message.Message):
    __slots__ = ("kind", "topic", "consumer_group", "without_system_topics")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SYSTEM_TOPICS_FIELD_NUMBER: _ClassVar[int]
    kind: FigureKind
    topic: str
    consumer_group: str
    without_system_topics: bool
    def __init__(self, kind: _Optional[_Union[FigureKind, str]] = ..., topic: _Optional[str] = ..., consumer_group: _Optional[str] = ..., without_system_topics: _Optional[bool] = ...) -> None: ...

class GetFiguresRequest(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[FigureKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[FigureKey, _Mapping]]] = ...) -> None: ...

class FigureSpan(_message.Message):
    __slots__ = ("duration_millis", "message_count", "size_bytes", "call_count")
    DURATION_MILLIS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CALL_COUNT_FIELD_NUMBER: _ClassVar[int]
    duration_millis: int
    message_count: int
    size_bytes: int
    call_count: int
    def __init__(self, duration_millis: _Optional[int] = ..., message_count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., call_count: _Optional[int] = ...) -> None: ...

class Figure(_message.Message):
    __slots__ = ("is_known", "ten_seconds", "minute", "ten_minutes", "hour", "day", "total", "message_count_today", "message_count_yesterday")
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    TEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MINUTE_FIELD_NUMBER: _ClassVar[int]
    TEN_MINUTES_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    DAY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_TODAY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_YESTERDAY_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    ten_seconds: FigureSpan
    minute: FigureSpan
    ten_minutes: FigureSpan
    hour: FigureSpan
    day: FigureSpan
    total: FigureSpan
    message_count_today: int
    message_count_yesterday: int
    def __init__(self, is_known: _Optional[bool] = ..., ten_seconds: _Optional[_Union[FigureSpan, _Mapping]] = ..., minute: _Optional[_Union[FigureSpan, _Mapping]] = ..., ten_minutes: _Optional[_Union[FigureSpan, _Mapping]] = ..., hour: _Optional[_Union[FigureSpan, _Mapping]] = ..., day: _Optional[_Union[FigureSpan, _Mapping]] = ..., total: _Optional[_Union[FigureSpan, _Mapping]] = ..., message_count_today: _Optional[int] = ..., message_count_yesterday: _Optional[int] = ...) -> None: ...

class GetFiguresResponse(_message.Message):
    __slots__ = ("figures",)
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    figures: _containers.RepeatedCompositeFieldContainer[Figure]
    def __init__(self, figures: _Optional[_Iterable[_Union[Figure, _Mapping]]] = ...) -> None: ...

class TrackMessageRequest(_message.Message):
    __slots__ = ("message", "page_size", "after", "name_contains", "consumer_group")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    NAME_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
    message: _message_pb2.StoredMessage
    page_size: int
    after: str
    name_contains: str
    consumer_group: str
    def __init__(self, message: _Optional[_Union[_message_pb2.StoredMessage, _Mapping]] = ..., page_size: _Optional[int] = ..., after: _Optional[str] = ..., name_contains: _Optional[str] = ..., consumer_group: _Optional[str] = ...) -> None: ...

class TrackMessageResponse(_message.Message):
    __slots__ = ("tracks", "has_more")
    class Track(_message.Message):
        __slots__ = ("consumer_group", "state", "delivery_attempts", "visible_time", "copy_offset_msg_id", "is_online", "client_id", "reason")
        CONSUMER_GROUP_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        DELIVERY_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
        VISIBLE_TIME_FIELD_NUMBER: _ClassVar[int]
        COPY_OFFSET_MSG_ID_FIELD_NUMBER: _ClassVar[int]
        IS_ONLINE_FIELD_NUMBER: _ClassVar[int]
        CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
        REASON_FIELD_NUMBER: _ClassVar[int]
        consumer_group: str
        state: _gateway_service_pb2.TrackState
        delivery_attempts: int
        visible_time: _timestamp_pb2.Timestamp
        copy_offset_msg_id: str
        is_online: bool
        client_id: str
        reason: str
        def __init__(self, consumer_group: _Optional[str] = ..., state: _Optional[_Union[_gateway_service_pb2.TrackState, str]] = ..., delivery_attempts: _Optional[int] = ..., visible_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., copy_offset_msg_id: _Optional[str] = ..., is_online: _Optional[bool] = ..., client_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
    TRACKS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    tracks: _containers.RepeatedCompositeFieldContainer[TrackMessageResponse.Track]
    has_more: bool
    def __init__(self, tracks: _Optional[_Iterable[_Union[TrackMessageResponse.Track, _Mapping]]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("next_offset", "log_end_offset", "catching_up", "state", "last_error", "failure_count", "group_count", "in_flight_count", "client_count")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CATCHING_UP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    GROUP_COUNT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_COUNT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    log_end_offset: int
    catching_up: bool
    state: str
    last_error: str
    failure_count: int
    group_count: int
    in_flight_count: int
    client_count: int
    def __init__(self, next_offset: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., catching_up: _Optional[bool] = ..., state: _Optional[str] = ..., last_error: _Optional[str] = ..., failure_count: _Optional[int] = ..., group_count: _Optional[int] = ..., in_flight_count: _Optional[int] = ..., client_count: _Optional[int] = ...) -> None: ...
