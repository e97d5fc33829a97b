"""Records of messages as they lie in the log, for clients that decode them (`MessageDecoder`).

A pull brings the log's own bytes. Where the consumer service could not give them (its log's files are on another machine, or a
record is not ordinary), the record is made again from the message: the same values, the properties sorted, without `__CRC32#`.
"""

from gateway.ports.delivery import Pulled
from gateway.shards.encoded_messages import EncodedMessages
from reput.message.v1.message_pb2 import StoredMessage
from services.convert import timestamp_to_millis
from store.format.host import Host
from store.format.java_text import encode_java_utf8
from store.format.properties import CRC32, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from store.format.record import Record, encode_record
from store.format.record_layout import MAGIC_V1, MAGIC_V2

# A longer name has a length of two bytes, and another magic number.
TOPIC_SIZE_BYTES_MAX_V1 = 127


def records_of(pulled: Pulled) -> bytes:
    """The records of a pull, one after the other."""
    messages = pulled.messages
    if isinstance(messages, EncodedMessages):
        records = messages.records()
        if records is not None:
            return records
        return b"".join(
            record_of(each) if isinstance(each, StoredMessage) else each for each in messages.records_or_messages()
        )
    return b"".join(map(record_of, messages))


def record_of(message: StoredMessage) -> bytes:
    """The record of a message."""
    # Not `encode_properties`: what is in the log was taken once, and a value may hold a separator.
    properties = "".join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}"
        for name, value in sorted(message.properties.items())
        if name != CRC32
    )
    topic_size_bytes = len(message.topic.encode())
    return encode_record(
        Record(
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            commit_log_offset=message.commit_log_offset,
            store_size_bytes=0,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_time_millis=timestamp_to_millis(message.born_time, "born_time"),
            born_host=Host.parse(message.born_host),
            store_time_millis=timestamp_to_millis(message.store_time, "store_time"),
            store_host=Host.parse(message.store_host),
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            body_crc=message.body_crc,
            body=message.body,
            properties_bytes=encode_java_utf8(properties),
            magic=MAGIC_V1 if topic_size_bytes <= TOPIC_SIZE_BYTES_MAX_V1 else MAGIC_V2,
        )
    )
