"""What a broker says when it registers (REGISTER_BROKER, code 103): its header fields and its body, as bytes and back.

The body, plain; other members are passed over:

    {"filterServerList":[...],
     "topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1000},
                                    "topicConfigTable":{"t":{"topicName":"t","readQueueNums":8,"writeQueueNums":8,"perm":6,
                                                             "topicSysFlag":0,...}}}}

or, with `compressed=true`, deflated by zlib (numbers are big-endian):

    i32 + JSON     dataVersion
    i32            number of topics, then for each: i32 + text, `name readQueueNums writeQueueNums perm filterType attributes`
    i32 + JSON     filterServerList
    i32            number of static topics and their mappings, which are passed over

Sources: `RegisterBrokerBody`, `RegisterBrokerRequestHeader`, `TopicConfig.decode` of RocketMQ 5.3.3.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.rocketmq.command import without_surrogates
from services.rocketmq.fastjson import dump_bytes, dumps, loads
from store.errors import InvalidArgumentError
from store.format.topic import DataVersion, TopicConfig

# A broker with a hundred thousand topics has 20 MB; what inflates to more is no registration.
BODY_BYTES_MAX = 64 << 20
TOPIC_COUNT_MAX = 1_000_000
# RocketMQ's longest topic, and host names.
NAME_CHARACTERS_MAX = 255
FILTER_SERVER_COUNT_MAX = 64
# TopicConfig's values where a row does not say them.
QUEUE_COUNT_DEFAULT, PERM_DEFAULT = 16, 6
_I32_MAX, _I64_MAX = (1 << 31) - 1, (1 << 63) - 1
HEARTBEAT_TIMEOUT_MILLIS = 120_000
# A longer body is deflated: a frame has no room for that of a hundred thousand topics.
PLAIN_BYTES_MAX = 4 << 20
# Of a topic in the plain body; that of many topics is not made to be measured.
ROW_BYTES_MIN = 140
_SIZE = struct.Struct(">i")


def version_of(document: object) -> DataVersion:
    """The version in its JSON object; what is missing is 0.

    Raises:
        InvalidArgumentError: a value is not a number.
    """
    if not isinstance(document, dict):
        raise _unreadable("dataVersion is no JSON object")
    return DataVersion(*(_number(document, name) for name in ("stateVersion", "timestamp", "counter")))


def encode_version_question(fields: Mapping[str, str], version: DataVersion) -> tuple[dict[str, str], bytes]:
    """Fields and body of QUERY_DATA_VERSION: whether a name server has a broker's topics of this version.

    The answer has `changed=false` if it has; the broker then counts as registered anew (`queryBrokerTopicConfig`).
    """
    return {name: value for name, value in fields.items() if name != "haServerAddr"}, encode_version(version)


def decode_version(data: bytes) -> DataVersion:
    """The version in its JSON text; errors as `version_of`."""
    return version_of(_json(data))


def encode_version(version: DataVersion) -> bytes:
    """A version as RocketMQ writes it."""
    return dump_bytes(_version_document(version))


def _version_document(version: DataVersion) -> dict[str, int]:
    return {"counter": version.counter, "stateVersion": version.state_version, "timestamp": version.timestamp}


@dataclass(frozen=True, slots=True)
class QueueData:
    """The queues that a broker has of a topic.

    Attributes:
        read_queue_count, write_queue_count: their numbers.
        perm: 4 may be read, 2 may be written.
        sys_flag: RocketMQ's topicSysFlag.
    """

    read_queue_count: int
    write_queue_count: int
    perm: int
    sys_flag: int


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker says about itself.

    Attributes:
        cluster, name, broker_id: which one of which broker it is; 0 is the master.
        address: where clients find it.
        ha_address: where its slaves find it.
        timeout_millis: after so long without another registration it is gone.
        acts_for_master: a slave of it stands in for a master that is gone; None: it is of before 5.0 and does not say.
        version: of the topics.
        topics: its queues by topic.
        filter_servers: addresses, None when it does not say.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str
    timeout_millis: int
    acts_for_master: bool | None
    version: DataVersion
    topics: Mapping[str, QueueData]
    filter_servers: tuple[str, ...] | None


def decode_registration(fields: Mapping[str, str], body: bytes) -> Registration:
    """A registration of its request.

    Raises:
        InvalidArgumentError: a field is missing, or the body cannot be read; nothing of it counts.
    """
    crc = _field_number(fields, "bodyCrc32", 0)
    if crc and crc != zlib.crc32(body) & 0x7FFF_FFFF:
        raise InvalidArgumentError("crc32 not match", field="bodyCrc32")
    version, filters = DataVersion(), None
    topics: dict[str, QueueData] = {}
    if body and fields.get("compressed") == "true":
        version, topics, filters = _compressed(body)
    elif body:
        version, topics, filters = _plain(body)
    return Registration(
        cluster=_name(required(fields, "clusterName")),
        name=_name(required(fields, "brokerName")),
        broker_id=_field_number(fields, "brokerId", None),
        address=_name(required(fields, "brokerAddr")),
        ha_address=_name(fields.get("haServerAddr", "")),
        timeout_millis=_field_number(fields, "heartbeatTimeoutMillis", 0) or HEARTBEAT_TIMEOUT_MILLIS,
        acts_for_master=fields["enableActingMaster"] == "true" if "enableActingMaster" in fields else None,
        version=version,
        topics=topics,
        filter_servers=filters,
    )


def encode_registration(
    fields: Mapping[str, str], version: DataVersion, topics: Iterable[TopicConfig]
) -> tuple[dict[str, str], bytes]:
    """The fields and the body of a broker's registration.

    Args:
        fields: what the broker says of itself: clusterName, brokerName, brokerId, brokerAddr, haServerAddr.
        version: of the topics.
        topics: all of them, or one that has changed.
    """
    rows = list(topics)
    is_compressed = len(rows) * ROW_BYTES_MIN > PLAIN_BYTES_MAX
    body = b""
    if not is_compressed:
        wrapper = {
            "dataVersion": _version_document(version),
            "topicConfigTable": {row.topic: topic_row(row) for row in rows},
        }
        body = dump_bytes({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
        is_compressed = len(body) > PLAIN_BYTES_MAX
    if is_compressed:
        body = _deflated(version, rows)
    crc = str(zlib.crc32(body) & 0x7FFF_FFFF)
    return {**fields, "bodyCrc32": crc, "compressed": str(is_compressed).lower(), "enableActingMaster": "false"}, body


def topic_row(config: TopicConfig) -> dict[str, object]:
    """A topic as RocketMQ's TopicConfig is written."""
    return {
        "attributes": dict(config.attributes),
        "order": config.order,
        "perm": config.perm,
        "readQueueNums": config.read_queue_count,
        "topicFilterType": config.topic_filter_type,
        "topicName": config.topic,
        "topicSysFlag": config.topic_sys_flag,
        "writeQueueNums": config.write_queue_count,
    }


def _deflated(version: DataVersion, rows: Sequence[TopicConfig]) -> bytes:
    texts = [
        " ".join(
            (
                row.topic,
                *map(str, (row.read_queue_count, row.write_queue_count, row.perm)),
                row.topic_filter_type,
                dumps(dict(row.attributes)),
            )
        )
        for row in rows
    ]
    pieces = [_sized(encode_version(version)), _SIZE.pack(len(rows))]
    pieces += [_sized(text.encode("utf-8", "replace")) for text in texts]
    pieces += [_sized(b"[]"), _SIZE.pack(0)]
    return zlib.compress(b"".join(pieces))


def _sized(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def required(fields: Mapping[str, str], name: str) -> str:
    """A field of a request; InvalidArgumentError when it is missing or empty."""
    value = fields.get(name, "")
    if not value:
        raise InvalidArgumentError(f"the field {name} is missing", field=name)
    return value


def _field_number(fields: Mapping[str, str], name: str, default: int | None) -> int:
    value = fields.get(name, "")
    if not value and default is not None:
        return default
    required(fields, name)
    try:
        number = int(value)
    except ValueError as error:
        raise InvalidArgumentError(f"the field {name} is no number: {value[:40]!r}", field=name) from error
    if not 0 <= number <= _I64_MAX:
        raise InvalidArgumentError(f"the field {name} is out of range: 0 to {_I64_MAX}", field=name)
    return number


def _name(text: str) -> str:
    if len(text) > NAME_CHARACTERS_MAX:
        raise InvalidArgumentError(
            f"a name or address of {len(text)} characters: at most {NAME_CHARACTERS_MAX} are taken", field="body"
        )
    return without_surrogates(text)


def _plain(body: bytes) -> tuple[DataVersion, dict[str, QueueData], tuple[str, ...] | None]:
    document = _json(body)
    wrapper = document.get("topicConfigSerializeWrapper") if isinstance(document, dict) else None
    wrapper = {} if wrapper is None and isinstance(document, dict) else wrapper
    table = (wrapper.get("topicConfigTable") or {}) if isinstance(wrapper, dict) else None
    if not isinstance(wrapper, dict) or not isinstance(table, dict):
        raise _unreadable("topicConfigSerializeWrapper has no table of topics")
    _check_count(len(table))
    topics = {_name(str(name)): _queues(row) for name, row in table.items() if row is not None}
    return version_of(wrapper.get("dataVersion") or {}), topics, _filters(document.get("filterServerList"))


def _queues(row: object) -> QueueData:
    if not isinstance(row, dict):
        raise _unreadable("a topic is no JSON object")
    return _checked(
        QueueData(
            _number(row, "readQueueNums", QUEUE_COUNT_DEFAULT),
            _number(row, "writeQueueNums", QUEUE_COUNT_DEFAULT),
            _number(row, "perm", PERM_DEFAULT),
            _number(row, "topicSysFlag"),
        )
    )


def _checked(queues: QueueData) -> QueueData:
    numbers = (queues.read_queue_count, queues.write_queue_count, queues.perm, queues.sys_flag)
    if not all(0 <= number <= _I32_MAX for number in numbers):
        raise _unreadable(f"a topic has a number that is out of range: 0 to {_I32_MAX}")
    return queues


def _compressed(body: bytes) -> tuple[DataVersion, dict[str, QueueData], tuple[str, ...] | None]:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, BODY_BYTES_MAX)
    except zlib.error as error:
        raise _unreadable(f"it cannot be inflated: {error}") from error
    if not inflater.eof:
        raise _unreadable(f"it is cut, or longer than {BODY_BYTES_MAX} bytes")
    pieces = _Pieces(data)
    version = decode_version(pieces.text().encode())
    topics: dict[str, QueueData] = {}
    count = pieces.number()
    _check_count(count)
    for _ in range(count):
        words = pieces.text().split(" ")
        try:
            name, numbers = words[0], [int(word) for word in words[1:4]]
            topics[_name(name)] = _checked(QueueData(numbers[0], numbers[1], numbers[2], 0))
        except (ValueError, IndexError) as error:
            raise _unreadable(f"a topic cannot be read: {' '.join(words)[:80]!r}") from error
    return version, topics, _filters(_json(pieces.text().encode()))


class _Pieces:
    """Reads numbers and texts one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        try:
            (value,) = _SIZE.unpack_from(self._data, self._at)
        except struct.error as error:
            raise _unreadable("it is cut") from error
        self._at += _SIZE.size
        return int(value)

    def text(self) -> str:
        size = self.number()
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise _unreadable("it is cut")
        data, self._at = self._data[self._at : end], end
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise _unreadable("it is no UTF-8") from error


def _json(data: bytes) -> Any:
    try:
        return loads(data)
    except ValueError as error:
        raise _unreadable(str(error)) from error


def _filters(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    if len(value) > FILTER_SERVER_COUNT_MAX:
        raise _unreadable(f"it has {len(value)} filter servers, at most {FILTER_SERVER_COUNT_MAX} are taken")
    return tuple(_name(str(each)) for each in value)


def _number(document: Mapping[str, object], name: str, default: int = 0) -> int:
    value = document.get(name)
    if value is None:
        return default
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise _unreadable(f"{name} is no number of 64 bits")
    return value


def _check_count(count: int) -> None:
    if not 0 <= count <= TOPIC_COUNT_MAX:
        raise _unreadable(f"it has {count} topics, at most {TOPIC_COUNT_MAX} are taken")


def _unreadable(why: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the body of a registration cannot be read: {why}", field="body")
