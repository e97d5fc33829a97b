"""The records of an AppendInternal request: checked as a whole, encoded, and tied together by their request mark.

Services write these records, so almost all fields are stored as given: any topic, any queue, any property, system flag bits
and hosts. A topic that does not exist is created, also with `auto_create_topic` off. The commit log itself writes two
properties, and ignores them in the request: the request mark (`store/format/request_mark.py`), which makes the request
atomic across a power cut, and `__CRC32#`, without which a torn record could lose its mark undetected. So each record of a
request of several has both, also with `properties_crc` off.

A record that names light queues (INNER_MULTI_DISPATCH) gets its positions there when it is written, as those of clients do.

Prepared and rolled-back messages stand in no queue, as in RocketMQ 5.3.3 (`AppendMessageCallback.doAppend`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from commitlog_svc.append.message_check import (
    REQUEST_BODY_BYTES_MAX,
    Timestamp,
    check_body_bytes,
    check_count,
    check_host,
    check_time,
)
from commitlog_svc.append.records import PreparedRecord
from store.derive.queue_placement import NO_UNIT_BIT
from store.errors import InvalidMessageError
from store.format.host import Host
from store.format.java_text import encode_java_utf8
from store.format.properties import (
    CRC32,
    KEYS,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    TAGS,
    UNIQ_KEY,
    light_queue_names,
)
from store.format.record import PreparedMessage, prepare_record
from store.format.record_layout import CRC_PROPERTY_SIZE_BYTES
from store.format.request_mark import REQUEST_MARK, TAIL_SIZE_BYTES, RequestMark, encode_request_mark
from store.format.sys_flag import INNER_BATCH
from store.format.topic import has_light_units, validate_topic

QUEUE_ID_MAX = 65_535  # as many queues as a topic can be configured with
SYS_FLAG_MAX = 0x7FF  # all bits that have a meaning
STATE_BODY_BYTES_MAX = 64 << 10
FIRST_PROPERTIES = (KEYS, TAGS, UNIQ_KEY)
OWN_PROPERTIES = frozenset((CRC32, REQUEST_MARK))
LIGHT_PROPERTIES = frozenset((MULTI_DISPATCH, MULTI_QUEUE_OFFSET))
_NO_MARK = encode_request_mark(RequestMark(0, 0))  # to be replaced when the sizes of all records are known


class InternalRecord(Protocol):
    """A record as a service gives it; the generated `reput.commitlog.v1.InternalRecord` is one."""

    topic: str
    queue_id: int
    body: bytes
    flag: int
    sys_flag: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, KEYS, TAGS and UNIQ_KEY included."""

    @property
    def born_time(self) -> Timestamp:
        """When the message was made."""

    def HasField(self, field_name: Any) -> bool:  # noqa: N802  # protobuf's name
        """Whether an optional field is set."""


class InternalChecker:
    """Checks the records of internal requests and encodes them; thread-safe.

    Args:
        clock_millis: milliseconds since 1970; the born time of records without one.
        store_host: written into records without one.
        message_size_bytes_max: largest body of an ordinary message. All bodies of a request together may take as much, and
            64 KiB more: a moved message of the largest size goes with the record that says so.
        properties_crc: close single records with `__CRC32#`.
    """

    def __init__(
        self,
        clock_millis: Callable[[], int],
        *,
        store_host: Host,
        message_size_bytes_max: int,
        properties_crc: bool,
    ) -> None:
        self._clock_millis = clock_millis
        self._store_host = store_host
        self._body_bytes_max = max(REQUEST_BODY_BYTES_MAX, message_size_bytes_max) + STATE_BODY_BYTES_MAX
        self._properties_crc = properties_crc

    def check(self, records: Sequence[InternalRecord], born_host: Host) -> list[PreparedRecord]:
        """The encoded records, with request marks when there are several.

        Args:
            records: 1 to 1,024.
            born_host: of records without one.

        Raises:
            InvalidArgumentError: no record, too many, or too many bytes together; field `records`.
            InvalidMessageError: with `field` and `index`.
        """
        check_count(len(records), "records")
        check_body_bytes(sum(len(record.body) for record in records), self._body_bytes_max, "records")
        is_marked = len(records) > 1
        now_millis = self._clock_millis()
        prepared: list[PreparedRecord] = []
        index = 0
        try:
            for index, record in enumerate(records):  # noqa: B007  # the handler below names it
                prepared.append(self._check_one(record, born_host, now_millis, is_marked))
        except InvalidMessageError as error:
            error.metadata["index"] = str(index)
            raise
        if is_marked:
            mark_request(prepared)
        return prepared

    def _check_one(self, record: InternalRecord, born_host: Host, now_millis: int, is_marked: bool) -> PreparedRecord:
        topic, queue_id = record.topic, record.queue_id
        validate_topic(topic)
        _check_number("queue_id", queue_id, QUEUE_ID_MAX)
        _check_number("sys_flag", record.sys_flag, SYS_FLAG_MAX)
        if record.sys_flag & INNER_BATCH:
            raise InvalidMessageError(
                f"sys_flag {record.sys_flag:#x} marks an inner batch, which takes several queue offsets: send its "
                "messages one by one",
                field="sys_flag",
            )
        _check_number("reconsume_times", record.reconsume_times, (1 << 31) - 1)
        _check_number("prepared_transaction_offset", record.prepared_transaction_offset, (1 << 63) - 1)
        properties = record.properties
        light_queues: tuple[str, ...] = ()
        takes_queue_offset = not record.sys_flag & NO_UNIT_BIT
        if takes_queue_offset and MULTI_DISPATCH in properties and has_light_units(topic):
            # A message that has waited: its places are those that it gets now, in the queues that there can be.
            light_queues = light_queue_names(properties[MULTI_DISPATCH], topic)
            others = {name: value for name, value in properties.items() if name not in LIGHT_PROPERTIES}
            properties = {**others, MULTI_DISPATCH: ",".join(light_queues)} if light_queues else others
        message = PreparedMessage(
            topic,
            queue_id,
            record.body,
            _encode_properties(properties) + (_NO_MARK if is_marked else b""),
            check_time(record.born_time, "born_time") if record.HasField("born_time") else now_millis,
            check_host("born_host", record.born_host) or born_host,
            check_host("store_host", record.store_host) or self._store_host,
            record.flag,
            record.sys_flag,
            record.reconsume_times,
            record.prepared_transaction_offset,
            is_marked or self._properties_crc,
        )
        unique_key = properties.get(UNIQ_KEY, "")
        data = prepare_record(message)
        return PreparedRecord((topic, queue_id), unique_key, data, takes_queue_offset, light_queues=light_queues)


def mark_request(records: Sequence[PreparedRecord]) -> None:
    """Writes each record's request mark."""
    before_bytes, behind_bytes = 0, sum(len(record.data) for record in records)
    for record in records:
        behind_bytes -= len(record.data)
        record.data[-TAIL_SIZE_BYTES:-CRC_PROPERTY_SIZE_BYTES] = encode_request_mark(
            RequestMark(before_bytes, behind_bytes)
        )
        before_bytes += len(record.data)


def _check_number(field: str, value: int, value_max: int) -> None:
    if not 0 <= value <= value_max:
        raise InvalidMessageError(f"{field} is {value}: 0 to {value_max} are allowed", field=field, value=value)


def _encode_properties(properties: Mapping[str, str]) -> bytes:
    """KEYS, TAGS and UNIQ_KEY, then the others by name. A value may hold U+0001, as RocketMQ reads it."""
    # Not by differences of sets: the map of a proto makes them in Python.
    names = [name for name in FIRST_PROPERTIES if name in properties]
    names += sorted(name for name in properties if name not in FIRST_PROPERTIES and name not in OWN_PROPERTIES)
    parts: list[str] = []
    for name in names:
        value = properties[name]
        if not name or not value or "\x01" in name or "\x02" in name or "\x02" in value:
            raise InvalidMessageError(
                f"the property {name!r} would not be read back: its name or value is empty, its name holds U+0001, or "
                "one of them holds U+0002",
                field="properties",
                property=name,
            )
        parts.append(f"{name}\x01{value}\x02")
    return encode_java_utf8("".join(parts))
