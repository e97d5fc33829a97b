"""Decodes the DispatchRequest of one record for Reput, as fast as Python can.

It reads the fixed fields, the topic, and the properties that builders need; no body, no CRC. The records were checked when
they were appended or recovered; lengths and offset are checked here again.
"""

from re import compile as compile_pattern
from struct import error as struct_error

from store.derive.dispatch import DispatchRequest
from store.format.derived.queue_unit import tags_code
from store.format.properties import (
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    PROPERTIES_SIZE_BYTES_MAX,
    light_places,
    split_keys,
)
from store.format.record import Buffer, corrupted, decode_header, incomplete, locate_topic
from store.format.record_layout import HEADS, MAGIC_V1, SYS_FLAG_LOW_BYTE_AT, TOPIC_SIZE_BYTES_MAX_V1
from store.format.topic import SCHEDULE_TOPIC, has_light_units

# One property that the builders need. The last one of a name counts, an empty one does not.
_DISPATCH_PROPERTIES = compile_pattern(
    f"\x02(TAGS|KEYS|UNIQ_KEY|DELAY|{MULTI_DISPATCH}|{MULTI_QUEUE_OFFSET})\x01([^\x02]+)"
)
_new_tuple = tuple.__new__  # faster than the constructor of the named tuple


def decode_dispatch(buf: Buffer, at: int, commit_log_offset: int) -> DispatchRequest:
    """The dispatch request of the record at byte `at`, which is byte `commit_log_offset` of the log.

    Raises:
        IncompleteRecordError: `buf` ends before the record does.
        RecordCorruptedError: the record contradicts itself, or is a blank.
    """
    # A sound V1 record is decoded here; any other goes to `_locate_carefully`, which knows V2 and says what is wrong.
    properties_at = 0
    try:
        head = HEADS[(buf[at + SYS_FLAG_LOW_BYTE_AT] >> 4) & 3]
        (
            size, magic, _, queue_id, _, queue_offset, stated_offset, sys_flag, _, _, store_time_millis, _, _,
            prepared_transaction_offset, body_size,
        ) = head.unpack_from(buf, at)  # fmt: skip
    except (struct_error, IndexError):
        _locate_carefully(buf, at, commit_log_offset)
        raise  # pragma: no cover - the line before raises for bytes that do not hold a record
    end = at + size
    topic_at = at + head.size + body_size + 1
    if magic == MAGIC_V1 and body_size >= 0 and topic_at + 2 <= end <= len(buf) and stated_offset == commit_log_offset:
        topic_length = buf[topic_at - 1]
        properties_at = topic_at + topic_length + 2
        properties_length = end - properties_at
        if (
            topic_length > TOPIC_SIZE_BYTES_MAX_V1
            or not 0 <= properties_length <= PROPERTIES_SIZE_BYTES_MAX
            or buf[properties_at - 2] << 8 | buf[properties_at - 1] != properties_length
        ):
            properties_at = 0
    if not properties_at:
        topic_at, properties_at = _locate_carefully(buf, at, commit_log_offset)
    topic = str(buf[topic_at : properties_at - 2], "utf-8", "java_replace")
    properties = dict(_DISPATCH_PROPERTIES.findall("\x02" + str(buf[properties_at:end], "utf-8", "java_replace")))
    keys = properties.get("KEYS")
    return _new_tuple(DispatchRequest, (
        topic,
        queue_id,
        queue_offset,
        commit_log_offset,
        size,
        tags_code(topic, properties, store_time_millis) if "TAGS" in properties or topic == SCHEDULE_TOPIC else 0,
        store_time_millis,
        () if keys is None else split_keys(keys) if " " in keys else (keys,),
        properties.get("UNIQ_KEY", ""),
        sys_flag,
        prepared_transaction_offset,
        properties.get("TAGS", ""),
        light_places(properties[MULTI_DISPATCH], properties.get(MULTI_QUEUE_OFFSET, ""), topic)
        if MULTI_DISPATCH in properties and has_light_units(topic)
        else (),
    ))  # fmt: skip


def _locate_carefully(buf: Buffer, at: int, commit_log_offset: int) -> tuple[int, int]:
    """Where in `buf` the topic and the properties of the record start; raises as `decode_dispatch`."""
    header = decode_header(buf, at, commit_log_offset)
    if header.is_blank:
        raise corrupted(commit_log_offset, "a blank closes the file here, no record")
    if len(buf) - at < header.size_bytes:
        raise incomplete(commit_log_offset, len(buf) - at, header.size_bytes)
    with memoryview(buf)[at : at + header.size_bytes] as frame:
        topic_length_at = HEADS[(header.sys_flag >> 4) & 3].size + header.body_size_bytes
        topic_at, properties_at, why = locate_topic(frame, header.magic, topic_length_at)
    if why:
        raise corrupted(commit_log_offset, why)
    return at + topic_at, at + properties_at
