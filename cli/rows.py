"""A stored message as plain values, ready for JSON and for tables."""

from google.protobuf.timestamp_pb2 import Timestamp

from cli.bodies import inflate, show_body
from cli.times import iso_millis
from reput.message.v1 import message_pb2


def time_text(moment: Timestamp) -> str:
    """ISO-8601 UTC with milliseconds."""
    return iso_millis(moment.seconds, moment.nanos)


def message_row(
    message: message_pb2.StoredMessage, body_format: str, binary_form: str, charset: str = "utf-8"
) -> dict[str, object]:
    """The message's fields by their names in the contract; the body inflated and shown, saying how."""
    body = inflate(message.body, message.sys_flag)
    shown = show_body(body.content, body_format, binary_form, charset)
    row: dict[str, object] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "tags": message.tags,
        "keys": list(message.keys),
        "unique_key": message.unique_key,
        "offset_msg_id": message.offset_msg_id,
        "broker_name": message.broker_name,
        "commit_log_offset": message.commit_log_offset,
        "store_size_bytes": message.store_size_bytes,
        "born_time": time_text(message.born_time),
        "born_host": message.born_host,
        "store_time": time_text(message.store_time),
        "store_host": message.store_host,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_crc": message.body_crc,
        "properties": dict(sorted(message.properties.items())),
        "body": shown.characters,
        "body_format": shown.form,
        "body_size_bytes": len(body.content),
        "body_compression": body.compression,
    }
    if body.note:
        row["body_note"] = body.note
    if message.source:
        row["source"] = message_pb2.MessageSource.Name(message.source).removeprefix("MESSAGE_SOURCE_").lower()
    return row


def append_row(result: message_pb2.AppendResult) -> dict[str, object]:
    """The receipt's fields by their names in the contract."""
    return {
        "queue_id": result.queue_id,
        "queue_offset": result.queue_offset,
        "unique_key": result.unique_key,
        "offset_msg_id": result.offset_msg_id,
        "broker_name": result.broker_name,
        "commit_log_offset": result.commit_log_offset,
        "store_time": time_text(result.store_time),
        "freshness_token": result.freshness_token,
    }
