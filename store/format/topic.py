"""Topic names, and the topic table `config/topics.json`.

    {"dataVersion": {"counter": n, "stateVersion": n, "timestamp": ms},
     "topicConfigTable": {NAME: {"topicName": NAME, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, ...}}}

Fields that this module does not know are kept when a table is decoded and encoded. RocketMQ's fastjson writes tabs and no
space after a colon, and reads plain JSON. Sources: `TopicValidator`, `TopicConfig` and `TopicConfigSerializeWrapper` of
RocketMQ 5.5.0 and 5.3.3.

name_matcher: patterns of the names of topics and groups: `*` stands for any characters, everything else for itself.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from store.errors import InvalidMessageError, StoreCorruptedError
from store.format.config_json import load_document

# Where messages wait: by delay levels, by timers, for the verdict of their transaction; and the verdicts.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"
WAITING_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC))
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
# Light queues (`MixAll.LMQ_PREFIX`): a broker with `enableLmq` dispatches records of other topics to them.
LIGHT_QUEUE_PREFIX = "%LMQ%"
# A broker makes a folder with the name of each.
LIGHT_QUEUE_NAME_BYTES_MAX = 255
# The light queues of LITE topics are `%LMQ%$parent$lite` (`LiteUtil`, 5.5.0).
LITE_QUEUE_PREFIX = LIGHT_QUEUE_PREFIX + "$"
# A shard has at most so many unless it is told otherwise; RocketMQ counts them with enableLmqQuota only, then 20,000.
LIGHT_QUEUE_COUNT_MAX = 2_000_000
LITE_TOPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TOPIC_LENGTH_MAX = 127
RETRY_OR_DLQ_TOPIC_LENGTH_MAX = 255
# Where clients with tracing on send their traces, unless they name a topic of their own.
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
# RocketMQ refuses sends to these (`TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET`).
NOT_ALLOWED_SEND_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        # Of transactions in RocksDB (`transRocksDBEnable`), since 5.5.
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    )
)
# Topics that the broker makes for itself (`TopicValidator.SYSTEM_TOPIC_SET`), and the prefix of others.
SYSTEM_TOPICS = NOT_ALLOWED_SEND_TOPICS | {"TBW102", "BenchmarkTest", TRACE_TOPIC, "CHECKPOINT_TOPIC"}
# Those of them whose messages clients may consume, as a broker lets them.
OPEN_SYSTEM_TOPICS = frozenset((TRACE_TOPIC, "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest"))
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
# RocketMQ's `MixAll.CID_RMQ_SYS_PREFIX`.
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
# How many queues the broker gives to those that it writes to (`TopicConfigManager.init`, and
# `AbstractTransactionalMessageCheckListener` for the last).
SYSTEM_TOPIC_QUEUE_COUNTS = {
    SCHEDULE_TOPIC: 18,
    TIMER_TOPIC: 1,
    HALF_TOPIC: 1,
    OP_HALF_TOPIC: 1,
    CHECK_MAX_TIME_TOPIC: 1,
}
# The attribute that says which messages a topic is for, and its values (`TopicAttributes`, `TopicMessageType`). A command of
# RocketMQ writes `+message.type=FIFO`; the stored name has no sign.
MESSAGE_TYPE_ATTRIBUTE = "message.type"
LITE_MESSAGE_TYPE = "LITE"
MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", LITE_MESSAGE_TYPE)
# The attribute that says after how many minutes without a message a lite topic is forgotten; -1 is never. A broker takes at
# most 30 days.
LITE_EXPIRATION_ATTRIBUTE = "lite.topic.expiration"
LITE_EXPIRATION_MINUTES_MAX = 43_200
_MINUTES = re.compile(r"-1|[0-9]{1,5}")

# The most queues of a topic that are counted from a record, given to a new topic, or written to. A number in a foreign file
# may be any of 32 bits; RocketMQ's own default is 8, and a shard with 65,536 queues has as many folders.
TOPIC_QUEUE_COUNT_MAX = 65_536
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1  # a topic that its first message creates may get its values from this one
# Characters of a name in a text about it.
TOPIC_NAME_SHOWN = 64
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def retry_topic_of(consumer_group: str, topic: str) -> str:
    """Where messages of a topic wait that the group gets again (`KeyBuilder.buildPopRetryTopicV1`)."""
    return f"{RETRY_PREFIX}{consumer_group}_{topic}"


def retry_topic_v2_of(consumer_group: str, topic: str) -> str:
    """The same of a broker with `enableRetryTopicV2` (`KeyBuilder.buildPopRetryTopicV2`)."""
    return f"{RETRY_PREFIX}{consumer_group}+{topic}"


def popped_topic_of(consumer_group: str, topic: str) -> str:
    """The topic that a group polls to get messages of a topic, which may be its retry topic."""
    return topic.removeprefix(retry_topic_v2_of(consumer_group, "")).removeprefix(retry_topic_of(consumer_group, ""))


def pull_retry_topic_of(consumer_group: str) -> str:
    """Where messages of all topics wait that consumers which pull have sent back (`MixAll.getRetryTopic`)."""
    return RETRY_PREFIX + consumer_group


def dead_letter_topic_of(consumer_group: str) -> str:
    """Where messages of a group go that had all their attempts (`MixAll.getDLQTopic`)."""
    return DLQ_PREFIX + consumer_group


def namespace_of(name: str) -> str:
    """The namespace of a topic or group, also of a retry or dead-letter topic; empty: it has none (`NamespaceUtil`)."""
    namespace, separator, _ = name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX).partition("%")
    return namespace if separator else ""


def is_light_queue(topic: str) -> bool:
    """Whether this is the name of a light queue of RocketMQ: its messages are records of other topics."""
    return topic.startswith(LIGHT_QUEUE_PREFIX)


def can_be_light_queue(name: str) -> bool:
    """Whether a broker can make a folder for a light queue of this name."""
    size_bytes = len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass"))
    return is_light_queue(name) and size_bytes <= LIGHT_QUEUE_NAME_BYTES_MAX and "/" not in name and "\0" not in name


def lite_queue_name(parent: str, lite_topic: str) -> str:
    """The light queue of a lite topic of a topic of the type LITE."""
    return f"{LITE_QUEUE_PREFIX}{parent}${lite_topic}"


def split_lite_queue(name: str) -> tuple[str, str] | None:
    """The parent topic and the lite topic of a light queue; None: it is that of no lite topic."""
    if not name.startswith(LITE_QUEUE_PREFIX):
        return None
    parent, separator, lite_topic = name.removeprefix(LITE_QUEUE_PREFIX).partition("$")
    return (parent, lite_topic) if parent and separator and lite_topic and "$" not in lite_topic else None


def lite_parent_of(queue: str) -> str:
    """The parent topic of a light queue that is known to be that of a lite topic."""
    return _lite_parts_of(queue)[0]


def lite_topic_of(queue: str) -> str:
    """The lite topic of a light queue that is known to be that of one."""
    return _lite_parts_of(queue)[1]


def lite_expiration_minutes_of(text: str) -> int:
    """The minutes that the attribute of a topic says; 0: never, which RocketMQ writes as -1.

    Raises:
        ValueError: it is no number of minutes.
    """
    minutes = int(text) if _MINUTES.fullmatch(text) else LITE_EXPIRATION_MINUTES_MAX + 1
    if minutes > LITE_EXPIRATION_MINUTES_MAX:
        raise ValueError(
            f"{LITE_EXPIRATION_ATTRIBUTE} is {text[:20]!r}: -1 (never) to {LITE_EXPIRATION_MINUTES_MAX} minutes are possible"
        )
    return max(minutes, 0)


def _lite_parts_of(queue: str) -> tuple[str, str]:
    parts = split_lite_queue(queue)
    assert parts is not None, queue
    return parts


def has_light_units(topic: str) -> bool:
    """Whether records of a topic have units in light queues (`MixAll.topicAllowsLMQ` of RocketMQ 5.5.0).

    Copies of a message, in retry and dead-letter topics, carry the properties of the first one, and no positions of their own.
    A broker dispatches half messages as well, so that consumers see what may be rolled back: here they have none.
    """
    return not topic.startswith((RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX)) and topic not in WAITING_TOPICS


def validate_topic(name: str) -> None:
    """Refuses a name that RocketMQ would refuse: letters, digits, `%|_-`; 1 to 127 (retry and dead-letter: 255).

    Raises:
        InvalidMessageError: field `topic`.
    """
    if not name.strip():
        raise InvalidMessageError("The topic is blank: name one.", field="topic")
    if not _NAME.fullmatch(name):
        raise InvalidMessageError(
            f"Topic {name[:64]!r} has characters other than letters, digits and % | _ -: use only these.",
            field="topic",
            topic=name[:64],
        )
    if is_light_queue(name):
        raise InvalidMessageError(
            f"Topic {name[:64]!r} is the name of a light queue (LMQ) of RocketMQ, which is not supported: name another topic.",
            field="topic",
            topic=name[:64],
        )
    is_internal = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    length_max = RETRY_OR_DLQ_TOPIC_LENGTH_MAX if is_internal else TOPIC_LENGTH_MAX
    if len(name) > length_max:
        raise InvalidMessageError(
            f"Topic {name[:64]!r}... has {len(name)} characters, at most {length_max} are allowed: shorten it.",
            field="topic",
            length=len(name),
            lengthMax=length_max,
        )


def reply_topic_of(cluster: str) -> str:
    """Where replies to requests go (`MixAll.getReplyTopic`)."""
    return cluster + REPLY_TOPIC_SUFFIX


def is_system_group(name: str) -> bool:
    """Whether a consumer group is the broker's own (`MixAll.isSysConsumerGroup`): RocketMQ's proxy serves no client for it."""
    return name.startswith(SYSTEM_GROUP_PREFIX)


def is_system_topic(name: str) -> bool:
    """Whether a topic belongs to the broker: no command creates, changes or deletes it."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic: how many queues are read and written, and `perm` (4 read, 2 write). `other` keeps unknown fields."""

    topic: str
    read_queue_count: int
    write_queue_count: int
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)


# What a file has of this project, as config_json.py's.
OWN_MEMBER, DELETED_MEMBER = "reput", "deletedTopics"

# JSON name, attribute, type; RocketMQ's defaults are the class's except for queue counts, which are 16.
_FIELDS: tuple[tuple[str, str, type], ...] = (
    ("topicName", "topic", str),
    ("readQueueNums", "read_queue_count", int),
    ("writeQueueNums", "write_queue_count", int),
    ("perm", "perm", int),
    ("topicFilterType", "topic_filter_type", str),
    ("topicSysFlag", "topic_sys_flag", int),
    ("order", "order", bool),
    ("attributes", "attributes", dict),
)
_QUEUE_COUNT_DEFAULT = 16
_NO_NAME = '"topicName":""'  # it is in no text: there its quotes are escaped
_encode_text = json.JSONEncoder(ensure_ascii=False).encode


class DataVersion(NamedTuple):
    """The version of a broker's topics; two that are equal name the same topics.

    Attributes:
        state_version: rises when the broker becomes the master of another epoch.
        timestamp: when it was made (ms since 1970).
        counter: changes since the broker's first start.
    """

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A row of a topic table that is none: its value, and what is wrong with it."""

    value: object
    problem: str


class TopicRows(NamedTuple):
    """The rows of a topic table, by name, in its order."""

    topics: dict[str, TopicConfig]
    unreadable: dict[str, UnreadableRow]


def decode_topic_rows(data: bytes | str) -> TopicRows:
    """The rows of a `topics.json`; one that is malformed does not keep the others back.

    Raises:
        StoreCorruptedError: not JSON, or without rows; the caller adds the path of the file.
    """
    table = decode_topic_members(data).get("topicConfigTable", {})
    rows = TopicRows({}, {})
    for name, value in table.items():
        try:
            rows.topics[name] = _decode_config(name, value)
        except ValueError as error:
            rows.unreadable[name] = UnreadableRow(value, str(error))
    return rows


def decode_data_version(data: bytes | str) -> DataVersion:
    """The version of a `topics.json`; what it does not say as a number is 0. StoreCorruptedError as `decode_topic_rows`."""
    return version_of_members(decode_topic_members(data))


def version_of_members(members: Mapping[str, Any]) -> DataVersion:
    """The version in the members of a `topics.json`; what they do not say as a number is 0."""
    version = members.get("dataVersion")
    found = version if isinstance(version, dict) else {}
    numbers = (found.get(name) for name in ("stateVersion", "timestamp", "counter"))
    return DataVersion(*(number if type(number) is int else 0 for number in numbers))


def decode_deleted_topics(data: bytes | str) -> dict[str, int]:
    """Of topics that were deleted: the byte of the log where each ended, by name; messages before it are not delivered.

    They stand in a member of `topics.json` that a broker ignores, and drops when it writes the file:

        "reput": {"deletedTopics": {"Orders": 4711}}

    Raises:
        StoreCorruptedError: as `decode_topic_rows`.
    """
    own = decode_topic_members(data).get(OWN_MEMBER)
    deleted = own.get(DELETED_MEMBER) if isinstance(own, dict) else None
    if not isinstance(deleted, dict):
        return {}
    return {name: at for name, at in deleted.items() if isinstance(at, int) and at > 0}


def decode_topic_table(data: bytes | str) -> dict[str, TopicConfig]:
    """The topics of a `topics.json`, in its order; StoreCorruptedError as `decode_topic_rows`, and for a malformed row."""
    topics, unreadable = decode_topic_rows(data)
    for name, row in unreadable.items():
        raise _malformed(f"topic {name[:TOPIC_NAME_SHOWN]!r}: {row.problem}")
    return topics


def encode_topic_table(
    topics: Mapping[str, TopicConfig],
    previous: bytes | str | None,
    unreadable: Mapping[str, UnreadableRow] = MappingProxyType({}),
    *,
    time_millis: int,
    deleted: Mapping[str, int] | None = None,
) -> bytes:
    """A new `topics.json` with exactly these topics: `dump_topic_table` of `next_topic_members`.

    Args:
        topics: by name.
        previous: the file as it was; its unknown fields stay and its dataVersion is increased. None: there is no file yet.
        unreadable: rows that are kept as they were found.
        time_millis: now, for dataVersion.
        deleted: see `decode_deleted_topics`; None: as they were.

    Raises:
        StoreCorruptedError: `previous` is not a topic table.
    """
    members = decode_topic_members(previous) if previous is not None else {}
    return dump_topic_table(next_topic_members(members, time_millis, deleted), topics, unreadable)


def next_topic_members(
    members: Mapping[str, Any], time_millis: int, deleted: Mapping[str, int] | None
) -> dict[str, Any]:
    """The members of the next file, with no row; `version_of_members` tells its version.

    Args:
        members: of the file as it was.
        time_millis, deleted: as `encode_topic_table`.
    """
    document = {**members, "topicConfigTable": {}} if "topicConfigTable" in members else dict(members)
    if deleted:
        document[OWN_MEMBER] = {DELETED_MEMBER: dict(deleted)}
    elif deleted is not None:
        document.pop(OWN_MEMBER, None)
    version = document.get("dataVersion")
    version = dict(version) if isinstance(version, dict) else {"counter": 0, "stateVersion": 0}
    counter = version.get("counter")
    version["counter"] = (counter if isinstance(counter, int) else 0) + 1
    version["timestamp"] = time_millis
    document["dataVersion"] = version
    document.setdefault("topicConfigTable", {})
    return document


def dump_topic_table(
    members: Mapping[str, Any], topics: Mapping[str, TopicConfig], unreadable: Mapping[str, UnreadableRow]
) -> bytes:
    """The bytes of a `topics.json` with these rows; `members` are those of `next_topic_members`."""
    rows = _rows_of(topics)
    rows += [f"{_encode_text(name)}:{_dump(row.value, 2)}" for name, row in unreadable.items() if name not in topics]
    text = _dump(members, 0)
    if rows:
        table = '\n\t"topicConfigTable":{'  # a member of a member stands behind two tabs
        text = text.replace(table + "}", table + "\n\t\t" + ",\n\t\t".join(rows) + "\n\t}")
    # Half of a surrogate pair has no UTF-8; it is written as JSON's escape.
    return text.encode(errors="backslashreplace")


def _rows_of(topics: Mapping[str, TopicConfig]) -> list[str]:
    """The rows as JSON. Most topics differ in their names only, and `json` takes 40 us to indent a row."""
    rows: list[str] = []
    forms: dict[tuple[object, ...], tuple[str, str]] = {}
    for name, config in topics.items():
        form = (
            config.read_queue_count, config.write_queue_count, config.perm, config.topic_filter_type,
            config.topic_sys_flag, config.order, *config.attributes.items(),
        )  # fmt: skip
        key = _encode_text(name)
        if config.other or config.topic != name:
            rows.append(f"{key}:{_dump(_encode_config(config), 2)}")
            continue
        parts = forms.get(form)
        if parts is None:
            before, _, behind = _dump(_encode_config(replace(config, topic="")), 2).partition(_NO_NAME)
            parts = forms[form] = f":{before}{_NO_NAME[:-2]}", behind
        rows.append(f"{key}{parts[0]}{key}{parts[1]}")
    return rows


def _dump(value: object, tab_count: int) -> str:
    """A value as RocketMQ's files have it, behind so many tabs: no text has a line feed that is not escaped."""
    text = json.dumps(value, indent="\t", separators=(",", ":"), ensure_ascii=False)
    return text.replace("\n", "\n" + "\t" * tab_count)


def decode_topic_members(data: bytes | str) -> dict[str, Any]:
    """The members of a `topics.json` as they stand there; StoreCorruptedError as `decode_topic_rows`."""
    return load_document(data.encode(errors="surrogatepass") if isinstance(data, str) else data, "topics.json")


def _decode_config(name: str, value: object) -> TopicConfig:
    """The topic of a row; ValueError: what is wrong with it."""
    if not name or len(name) > RETRY_OR_DLQ_TOPIC_LENGTH_MAX:
        raise ValueError(f"its name has {len(name)} characters, and 1 to {RETRY_OR_DLQ_TOPIC_LENGTH_MAX} are possible")
    name.encode()  # half of a surrogate pair has no UTF-8, and a list that names it could not be sent
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    known: dict[str, Any] = {
        "topic": name,
        "read_queue_count": _QUEUE_COUNT_DEFAULT,
        "write_queue_count": _QUEUE_COUNT_DEFAULT,
    }
    other = dict(value)
    for json_name, attribute, kind in _FIELDS:
        found = other.pop(json_name, None)
        if found is None:
            continue
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise ValueError(f"{json_name} is {str(found)[:TOPIC_NAME_SHOWN]!r}")
        known[attribute] = found
    if known["topic"] != name:  # it would stand in for another topic
        raise ValueError(f"topicName is {known['topic'][:TOPIC_NAME_SHOWN]!r}")
    if not all(isinstance(text, str) for text in known.get("attributes", {}).values()):
        raise ValueError("an attribute is not a text")
    return TopicConfig(**known, other=other)


def _encode_config(config: TopicConfig) -> dict[str, Any]:
    value: dict[str, Any] = {json_name: getattr(config, attribute) for json_name, attribute, _ in _FIELDS}
    value["attributes"] = dict(config.attributes)
    return dict(sorted({**config.other, **value}.items()))


def _malformed(why: str) -> StoreCorruptedError:
    return StoreCorruptedError(f"The topic table is malformed: {why}.", file="config/topics.json", offset=0)


def name_matcher(patterns: Iterable[str]) -> re.Pattern[str]:
    """Its `fullmatch` takes the names that fit one of the patterns; none when there are no patterns.

    It takes time by the length of a name, with any number of stars: what stands between two stars is looked for once, and where
    it comes first is as good as where it comes later.
    """
    parts = [_expression_of(pattern) for pattern in sorted(patterns)]
    return re.compile("|".join(parts) if parts else r"(?!)", re.DOTALL)


def _expression_of(pattern: str) -> str:
    first, *others = map(re.escape, pattern.split("*"))
    if not others:
        return first
    return f"{first}{''.join(f'(?>.*?{each})' for each in others[:-1] if each)}.*{others[-1]}"
