"""Messages and receipts as plain values, for JSON and for tables."""

from cli.printing.bodies import inflate, show_body
from cli.printing.times import iso_text
from reput_client import Message, SendReceipt

# What a row of a message has, for the header of a table without rows.
MESSAGE_FIELDS = (
    *("topic", "queue_id", "queue_offset", "tags", "keys", "unique_key", "offset_msg_id", "broker_name"),
    *(
        "commit_log_offset",
        "store_size_bytes",
        "born_time",
        "born_host",
        "store_time",
        "store_host",
        "flag",
        "sys_flag",
    ),
    *("reconsume_times", "prepared_transaction_offset", "body_crc", "properties", "body", "body_format"),
    *("body_size_bytes", "body_compression"),
)


def message_row(message: Message, body_format: str, binary_form: str, charset: str = "utf-8") -> dict[str, object]:
    """The message's fields by their names in the contract; the body inflated, and in which form it is shown."""
    body = inflate(message.stored_body, message.sys_flag)
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
        "born_time": iso_text(message.born_time),
        "born_host": message.born_host,
        "store_time": iso_text(message.store_time),
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
    if message.source is not None:
        row["source"] = message.source.name.lower()
    if message.deleted_with_topic:
        row["deleted_with_topic"] = True
    return row


def receipt_row(receipt: SendReceipt) -> dict[str, object]:
    """The receipt's fields by their names in the contract; the handles of a message that waits when it has them."""
    row: dict[str, object] = {
        "queue_id": receipt.queue_id,
        "queue_offset": receipt.queue_offset,
        "unique_key": receipt.unique_key,
        "offset_msg_id": receipt.offset_msg_id,
        "broker_name": receipt.broker_name,
        "commit_log_offset": receipt.commit_log_offset,
        "store_time": iso_text(receipt.store_time),
        "freshness_token": receipt.freshness_token,
    }
    if receipt.recall_handle:
        row["recall_handle"] = receipt.recall_handle
    if receipt.transaction_id:
        row["transaction_id"] = receipt.transaction_id
    return row
