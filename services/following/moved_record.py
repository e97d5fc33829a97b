"""The record of a message that a service stores again, in another queue or later."""

from collections.abc import Mapping, Sequence

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from store.format.java_text import encode_java_utf8
from store.format.properties import MOVED_FROM, PROPERTIES_SIZE_BYTES_MAX
from store.format.request_mark import TAIL_SIZE_BYTES

# Properties of a record, less what the commit log adds to it (request mark and CRC).
PROPERTIES_BYTES_MAX = PROPERTIES_SIZE_BYTES_MAX - TAIL_SIZE_BYTES
CHARACTER_BYTES_MAX = 3  # of Java's UTF-8
# Set from `born_host` and `store_host` by the commit log.
HOST_BITS = 0x30


def copy_of(
    message: StoredMessage, topic: str, queue_id: int = 0, properties: dict[str, str] | None = None
) -> InternalRecord:
    """The record that stores a message again, and names its source.

    Args:
        message: as it is stored.
        topic: of the record.
        queue_id: of the record.
        properties: instead of those of the message; it is changed.
    """
    copied = dict(message.properties) if properties is None else properties
    copied[MOVED_FROM] = f"{message.queue_id} {message.queue_offset} {message.topic}"
    record = InternalRecord(
        topic=topic,
        queue_id=queue_id,
        body=message.body,
        flag=message.flag,
        sys_flag=message.sys_flag & ~HOST_BITS,
        properties=copied,
        born_time=message.born_time,
        born_host=message.born_host,
        reconsume_times=max(message.reconsume_times, 0),
    )
    if record.born_time.seconds < 0:  # a broker stores any time; the log refuses one before 1970
        record.born_time.Clear()
    return record


def shorten(record: InternalRecord, added: Sequence[str], kept: Sequence[str]) -> None:
    """Leave properties out until the record can be stored: first those that were added, then the longest others.

    Only when that is not enough, the longest of those that are `kept`: a record that the log refuses would stop all others.
    """
    if surely_fit(record.properties):
        return
    sizes = {name: _size_bytes(name) + _size_bytes(value) + 2 for name, value in record.properties.items()}
    too_many = sum(sizes.values()) - PROPERTIES_BYTES_MAX
    if too_many <= 0:
        return
    others = sorted((name for name in sizes if name not in added), key=lambda name: (name in kept, -sizes[name]))
    for name in (*added, *others):
        if too_many <= 0:
            return
        if name in sizes:
            del record.properties[name]
            too_many -= sizes[name]


def surely_fit(properties: Mapping[str, str]) -> bool:
    """Whether properties are so small that nothing has to be counted in bytes."""
    characters = sum(map(len, properties)) + sum(map(len, properties.values())) + 2 * len(properties)
    return characters * CHARACTER_BYTES_MAX <= PROPERTIES_BYTES_MAX


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(encode_java_utf8(text))
