"""A whole message as a line of JSON and back, without loss: what `reput export` writes and `reput import` reads.

body, body_format          the stored body, compressed as it is stored (sys_flag says how): `text` where it is UTF-8,
                           else `base64`
born_time, store_time      ISO-8601 with milliseconds; a number, epoch milliseconds, outside the years 1 to 9999
properties                 every stored property, in its order; `__CRC32#` too, made anew when it is read
properties_base64          the stored bytes; only present when `properties` alone would read back as other bytes
tags, keys, unique_key     copies of properties, for readers of the line
offset_msg_id, queue_offset, commit_log_offset, store_size_bytes, broker_name    where it was; not read back
record_version             2 where two bytes hold the topic's length in the record, else 1
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cli.times import TIMESTAMP_MILLIS_MAX, TIMESTAMP_MILLIS_MIN, millis_of, moment_of, parse_time, utc_text
from reput_client import Message
from store.errors import InvalidArgumentError
from store.format.host import Host, decode_host, encode_host
from store.format.java_text import encode_java_utf8
from store.format.message_id import encode_offset_msg_id
from store.format.paths import queue_dir
from store.format.properties import CRC32, KEYS, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, TAGS, UNIQ_KEY
from store.format.record import MAGIC_V1, MAGIC_V2, Record, encode_record
from store.format.record_layout import (
    CRC_MARKER,
    CRC_PROPERTY_SIZE_BYTES,
    TOPIC_SIZE_BYTES_MAX_V1,
    encode_crc_property,
    masked_crc,
)
from store.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6

_CRC_SLOT = encode_crc_property(0)


def line_of(record: Record, broker_name: str = "") -> dict[str, object]:
    """The message's fields by their names in the contract; `broker_name` only where it is known."""
    properties = dict(record.properties)
    row: dict[str, object] = {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "tags": record.tags,
        "keys": list(record.keys),
        "unique_key": record.unique_key,
        "offset_msg_id": encode_offset_msg_id(record.store_host, record.commit_log_offset),
        **({"broker_name": broker_name} if broker_name else {}),
        "commit_log_offset": record.commit_log_offset,
        "store_size_bytes": record.store_size_bytes,
        "record_version": 1 if record.magic == MAGIC_V1 else 2,
        "born_time": _time(record.born_time_millis),
        "born_host": str(record.born_host),
        "store_time": _time(record.store_time_millis),
        "store_host": str(record.store_host),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_crc": record.body_crc & 0xFFFFFFFF,
        "properties": properties,
    }
    if _guarded(properties) != _without_crc(record.properties_bytes):
        row["properties_base64"] = base64.b64encode(record.properties_bytes).decode("ascii")
    try:
        row |= {"body": record.body.decode("utf-8"), "body_format": "text"}
    except UnicodeDecodeError:
        row |= {"body": base64.b64encode(record.body).decode("ascii"), "body_format": "base64"}
    return row


def record_of_stored(message: Message) -> Record:
    """The record of a message that a gateway sent, with its body.

    The order of its properties is not known: KEYS, TAGS and UNIQ_KEY come first, then the others by name, as this store
    writes them; `__CRC32#` comes last.
    """
    first = [name for name in (KEYS, TAGS, UNIQ_KEY) if name in message.properties]
    rest = sorted(name for name in message.properties if name not in first and name != CRC32)
    properties = {name: message.properties[name] for name in [*first, *rest]}
    stored = _guarded(properties)
    if CRC32 in message.properties:
        stored += f"{CRC32}{NAME_VALUE_SEPARATOR}{message.properties[CRC32]}{PROPERTY_SEPARATOR}".encode()
    return Record(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        store_size_bytes=message.store_size_bytes,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time_millis=millis_of(message.born_time),
        born_host=_host(message.born_host),
        store_time_millis=millis_of(message.store_time),
        store_host=_host(message.store_host),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body_crc=_signed(message.body_crc),
        body=message.stored_body,
        properties_bytes=stored,
        magic=_magic(message.topic),
    )


def frame_of(record: Record) -> bytearray:
    """The record's frame, its guard still to be made by `patch_record`; errors as `encode_record`."""
    return bytearray(encode_record(record))


def read_line(text: str) -> dict[str, Any]:
    """The fields of a line; ValueError when it is not a JSON object."""
    row = json.loads(text)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return row


def record_of_line(row: Mapping[str, Any]) -> Record:
    """The record of a line, without a place in a log.

    Raises:
        KeyError: a field is missing.
        ValueError, TypeError: a value does not fit its field.
        CliError: a time cannot be read.
        StoreError: it cannot be stored.
    """
    topic = str(row["topic"])
    queue_id = _number(row, "queue_id", 31)
    queue_dir("", topic, queue_id)  # refuses a topic or queue id that cannot have a queue
    body = body_of_line(row)
    body_crc = _signed(_number(row, "body_crc", 32)) if "body_crc" in row else masked_crc(body)
    if body and body_crc != masked_crc(body):
        raise ValueError(f"the body's CRC is {masked_crc(body)}, body_crc says {body_crc}; without body_crc it is made")
    born_host, store_host = _host(row["born_host"]), _host(row["store_host"])
    hosts = BORN_HOST_V6 * born_host.is_ipv6 | STORE_HOST_V6 * store_host.is_ipv6
    if "properties_base64" in row:
        properties_bytes = base64.b64decode(row["properties_base64"], validate=True)
    else:
        properties_bytes = _guarded(properties_of_line(row))
    return Record(
        topic=topic,
        queue_id=queue_id,
        queue_offset=_number(row, "queue_offset", 63),
        commit_log_offset=0,
        store_size_bytes=0,
        flag=_number(row, "flag", 31),
        sys_flag=_number(row, "sys_flag", 31) & ~(BORN_HOST_V6 | STORE_HOST_V6) | hosts,
        born_time_millis=time_of_line(row["born_time"]),
        born_host=born_host,
        store_time_millis=time_of_line(row["store_time"]),
        store_host=store_host,
        reconsume_times=_number(row, "reconsume_times", 31),
        prepared_transaction_offset=_number(row, "prepared_transaction_offset", 63),
        body_crc=body_crc,
        body=body,
        properties_bytes=properties_bytes,
        magic=MAGIC_V2 if row.get("record_version") == 2 else _magic(topic),
    )


def body_of_line(row: Mapping[str, Any]) -> bytes:
    """The stored body; errors as `record_of_line`."""
    from cli.bodies import read_body

    return read_body(row["body"], row.get("body_format", "text"))


def properties_of_line(row: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a line; errors as `record_of_line`."""
    properties = row.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise ValueError("properties is not an object of texts")
    return properties


def time_of_line(value: object) -> int:
    """Epoch milliseconds of a time in a line; CliError when it is not a time, ValueError when no record can hold it."""
    millis = parse_time(str(value), 0)
    if not -(1 << 63) <= millis < 1 << 63:
        raise ValueError(f"the time {value!r} is not a signed 64-bit number of milliseconds since 1970")
    return millis


def _guarded(properties: Mapping[str, str]) -> bytes:
    """The stored bytes of properties, with a slot for the guard at the end where there is one.

    Unlike a new message's, a value may hold U+0001: RocketMQ's reader leaves it there.
    """
    parts = []
    for name, value in properties.items():
        if not name or not value or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name + value:
            raise ValueError(f"the property {name!r} would read back with another name or value")
        if name != CRC32:
            parts.append(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}")
    return encode_java_utf8("".join(parts)) + (_CRC_SLOT if CRC32 in properties else b"")


def _without_crc(stored: bytes) -> bytes:
    if stored[-CRC_PROPERTY_SIZE_BYTES:].startswith(CRC_MARKER):
        return stored[:-CRC_PROPERTY_SIZE_BYTES] + _CRC_SLOT
    return stored


def _time(millis: int) -> object:
    if not TIMESTAMP_MILLIS_MIN <= millis <= TIMESTAMP_MILLIS_MAX:
        return millis
    return utc_text(moment_of(millis))


def _host(text: str) -> Host:
    ip, _, port = str(text).rpartition(":")
    try:
        return decode_host(encode_host(Host(ip.strip("[]"), int(port))))
    except ValueError as error:
        raise InvalidArgumentError(f"{text!r} is not an IP:port (or [IPv6]:port).", field="host", value=text) from error


def _number(row: Mapping[str, Any], name: str, bits: int) -> int:
    value = row.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << bits) <= value < 1 << bits:
        raise ValueError(f"{name} {value!r} is not a number of {bits + 1} bits")
    return value


def _signed(crc: int) -> int:
    return crc - (1 << 32) if crc >= 1 << 31 else crc


def _magic(topic: str) -> int:
    return MAGIC_V1 if len(encode_java_utf8(topic)) <= TOPIC_SIZE_BYTES_MAX_V1 else MAGIC_V2
