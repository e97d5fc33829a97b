"""Store dataclass <-> proto message, one pair of functions per type; times in milliseconds <-> `Timestamp`.

Record           -> StoredMessage     `stored_message`
DispatchRequest <-> DispatchRequest   `dispatch_to_proto`, `dispatch_from_proto`; whole batches: `reput_columns.py`
milliseconds    <-> Timestamp         `millis_to_timestamp`, `timestamp_to_millis`
GetStatusResponse -> confirm offset   `confirm_offset`
"""

from google.protobuf import timestamp_pb2
from google.protobuf.message import Message

from reput.commitlog.v1 import commitlog_service_pb2
from reput.message.v1 import message_pb2
from store.derive.dispatch import DispatchRequest
from store.errors import InvalidArgumentError
from store.format.message_id import encode_offset_msg_id
from store.format.properties import LightPlace
from store.format.record import Record

# What a Timestamp may hold: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z, in seconds since 1970.
TIMESTAMP_SECONDS_MIN = -62_135_596_800
TIMESTAMP_SECONDS_MAX = 253_402_300_799
INT32_MAX = (1 << 31) - 1


def millis_to_timestamp(time_millis: int) -> timestamp_pb2.Timestamp:
    """The Timestamp of a time in milliseconds since 1970.

    A record may hold any 64 bits as its time; what lies outside the years 1 to 9999 becomes the nearest time inside,
    because tools refuse to print a whole answer for one Timestamp outside.
    """
    seconds, millis = divmod(time_millis, 1000)
    if seconds < TIMESTAMP_SECONDS_MIN:
        return timestamp_pb2.Timestamp(seconds=TIMESTAMP_SECONDS_MIN)
    if seconds > TIMESTAMP_SECONDS_MAX:
        return timestamp_pb2.Timestamp(seconds=TIMESTAMP_SECONDS_MAX, nanos=999_000_000)
    return timestamp_pb2.Timestamp(seconds=seconds, nanos=millis * 1_000_000)


def confirm_offset(status: commitlog_service_pb2.GetStatusResponse) -> int:
    """Up to where a log may be shown (bytes); an older server says only what is flushed."""
    return status.confirm_offset if status.HasField("confirm_offset") else status.log_flushed_offset


def timestamp_to_millis(timestamp: timestamp_pb2.Timestamp, field: str) -> int:
    """The time in milliseconds since 1970, parts of a millisecond dropped.

    Raises:
        InvalidArgumentError: the Timestamp is outside the years 1 to 9999 or its nanos outside a second.
    """
    if not TIMESTAMP_SECONDS_MIN <= timestamp.seconds <= TIMESTAMP_SECONDS_MAX:
        raise InvalidArgumentError(
            f"{field} is {timestamp.seconds} s since 1970, outside the years 1 to 9999",
            field=field,
            value=timestamp.seconds,
        )
    if not 0 <= timestamp.nanos < 1_000_000_000:
        raise InvalidArgumentError(
            f"{field} has {timestamp.nanos} nanos; 0 to 999,999,999 are possible", field=field, value=timestamp.nanos
        )
    return timestamp.seconds * 1000 + timestamp.nanos // 1_000_000


def optional_time_millis(request: Message, field: str) -> int | None:
    """The Timestamp field of a request in milliseconds since 1970, None when it is absent.

    Raises:
        InvalidArgumentError: as `timestamp_to_millis`.
    """
    return timestamp_to_millis(getattr(request, field), field) if request.HasField(field) else None


def stored_message(record: Record, broker_name: str, *, omit_body: bool = False) -> message_pb2.StoredMessage:
    """The public form of a stored record.

    Args:
        record: the record as decoded.
        broker_name: the shard that holds it.
        omit_body: leave the body out and say so in `body_omitted`; a record without a body has nothing to omit.
    """
    omitted = omit_body and bool(record.body)
    message = message_pb2.StoredMessage(
        topic=_text(record.topic),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.commit_log_offset,
        store_size_bytes=record.store_size_bytes,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_time=millis_to_timestamp(record.born_time_millis),
        born_host=str(record.born_host),
        store_time=millis_to_timestamp(record.store_time_millis),
        store_host=str(record.store_host),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body_crc=record.body_crc & 0xFFFFFFFF,
        body=b"" if omitted else bytes(record.body),
        tags=_text(record.tags or ""),
        keys=[_text(key) for key in record.keys],
        unique_key=_text(record.unique_key or ""),
        offset_msg_id=encode_offset_msg_id(record.store_host, record.commit_log_offset),
        broker_name=broker_name,
        body_omitted=omitted,
    )
    properties = message.properties  # one by one: protobuf takes a whole dict through slow code of Python's
    for name, value in record.properties.items():
        properties[_text(name)] = _text(value)
    return message


def delivery_count(message: message_pb2.StoredMessage, counted: int) -> int:
    """How often a message was delivered, with so many deliveries from where it lies now, as a field of 32 bits holds it.

    A producer may say any number as `reconsume_times`.
    """
    return min(message.reconsume_times + counted, INT32_MAX)


def dispatch_to_proto(request: DispatchRequest) -> commitlog_service_pb2.DispatchRequest:
    """What a builder needs of one record, for the wire."""
    return commitlog_service_pb2.DispatchRequest(
        topic=request.topic,
        queue_id=request.queue_id,
        queue_offset=request.queue_offset,
        commit_log_offset=request.commit_log_offset,
        record_size_bytes=request.record_size_bytes,
        tags_code=request.tags_code,
        store_time_millis=request.store_time_millis,
        keys=request.keys,
        unique_key=request.unique_key,
        sys_flag=request.sys_flag,
        prepared_transaction_offset=request.prepared_transaction_offset,
        tags=request.tags,
        light_places=[
            commitlog_service_pb2.LightPlace(queue=place.queue, queue_offset=place.queue_offset)
            for place in request.light_places
        ],
    )


def dispatch_from_proto(request: commitlog_service_pb2.DispatchRequest) -> DispatchRequest:
    """What a builder needs of one record, from the wire."""
    return DispatchRequest(
        topic=request.topic,
        queue_id=request.queue_id,
        queue_offset=request.queue_offset,
        commit_log_offset=request.commit_log_offset,
        record_size_bytes=request.record_size_bytes,
        tags_code=request.tags_code,
        store_time_millis=request.store_time_millis,
        keys=tuple(request.keys),
        unique_key=request.unique_key,
        sys_flag=request.sys_flag,
        prepared_transaction_offset=request.prepared_transaction_offset,
        tags=request.tags,
        light_places=tuple(LightPlace(place.queue, place.queue_offset) for place in request.light_places),
    )


def _text(text: str) -> str:
    """Text that protobuf takes: a lone surrogate, which UTF-8 cannot hold, becomes a question mark as in Java."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
