"""RocketMQ's files of consumer groups: `config/consumerOffset.json`, `config/subscriptionGroup.json` and
`config/messageRequestMode.json`.

    {"dataVersion": {...}, "offsetTable": {"TOPIC@GROUP": {"0": 12, "1": 7}}}
    lmqConsumerOffset.json: likewise, with more members; takes the place of the first where a broker has `enableLmq`
    {..., "lmqOffsetTable": {"%LMQ%QUEUE@%LMQ%GROUP": 12}}      of groups that are light, too
    {"dataVersion": {...}, "subscriptionGroupTable": {GROUP: {"groupName": GROUP, "consumeEnable": true,
        "consumeBroadcastEnable": true, "consumeMessageOrderly": false, "retryMaxTimes": 16, ...}}}
    {"messageRequestModeMap": {TOPIC: {GROUP: {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, "topic": TOPIC}}}}

How the files are written and who wrote them last: config_json.py. Sources: `ConsumerOffsetSerializeWrapper` and
`SubscriptionGroupConfig` of RocketMQ 5.3.3.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from store.errors import InvalidArgumentError
from store.format.config_json import dump_document, load_document, next_document
from store.format.topic import is_light_queue

QUEUE_ID_MAX = 65_535
POSITION_MAX = (1 << 63) - 1
RETRY_COUNT_MAX = (1 << 31) - 1
NAME_CHARACTERS_MAX = 255
# Of the attribute, and its default (`SubscriptionGroupAttributes.PRIORITY_FACTOR_ATTRIBUTE`).
PRIORITY_FACTOR_ATTRIBUTE, PRIORITY_FACTOR_MAX = "priority.factor", 100
# Of groups of lite topics (`SubscriptionGroupAttributes`, 5.5.0).
LITE_BIND_TOPIC_ATTRIBUTE, LITE_MODEL_ATTRIBUTE = "lite.bind.topic", "lite.sub.model"
LITE_WILDCARD_ATTRIBUTE, LITE_QUOTA_ATTRIBUTE = "lite.sub.wildcard", "lite.sub.client.quota"
LITE_EVENTS_ATTRIBUTE = "lite.sub.client.max.event.cnt"
LITE_RESET_EXCLUSIVE_ATTRIBUTE = "lite.sub.reset.offset.exclusive"
LITE_RESET_UNSUBSCRIBE_ATTRIBUTE = "lite.sub.reset.offset.unsubscribe"
LITE_ATTRIBUTES = (
    *(LITE_BIND_TOPIC_ATTRIBUTE, LITE_MODEL_ATTRIBUTE, LITE_WILDCARD_ATTRIBUTE, LITE_QUOTA_ATTRIBUTE),
    *(LITE_EVENTS_ATTRIBUTE, LITE_RESET_EXCLUSIVE_ATTRIBUTE, LITE_RESET_UNSUBSCRIBE_ATTRIBUTE),
)
LITE_SHARED, LITE_EXCLUSIVE = "Shared", "Exclusive"
LITE_NUMBER_MAX = (1 << 31) - 1
LITE_EVENTS_MIN = 10
# What a command may set, in words; a broker takes larger numbers, too.
LITE_VALUES = {
    LITE_MODEL_ATTRIBUTE: f"{LITE_SHARED} or {LITE_EXCLUSIVE}",
    LITE_WILDCARD_ATTRIBUTE: "true",
    LITE_QUOTA_ATTRIBUTE: f"1 to {LITE_NUMBER_MAX}, or -1 for no limit,",
    LITE_EVENTS_ATTRIBUTE: f"{LITE_EVENTS_MIN} to {LITE_NUMBER_MAX}",
    LITE_RESET_EXCLUSIVE_ATTRIBUTE: "true or false",
    LITE_RESET_UNSUBSCRIBE_ATTRIBUTE: "true or false",
}
OffsetTable = dict[tuple[str, str], dict[int, int]]
LIGHT_TABLE = "lmqOffsetTable"


@dataclass(frozen=True, slots=True)
class LiteConfig:
    """What a group of lite topics is. `LiteSettings` of the gateway's contract has the same fields.

    Attributes:
        bind_topic: the parent topic of its lite topics.
        is_exclusive: a lite topic belongs to the client that subscribed to it last; else its clients share it.
        is_wildcard: its clients get all lite topics of the parent.
        client_quota: lite topics that a client may subscribe to; 0: the default, negative: no limit of the group.
        client_event_count_max: a broker keeps so many lite topics with news for a client; 0: the default.
        reset_offset_exclusive: a client that takes a lite topic from another begins at its first message.
        reset_offset_unsubscribe: a lite topic begins again when its last client unsubscribes.
    """

    bind_topic: str
    is_exclusive: bool = False
    is_wildcard: bool = False
    client_quota: int = 0
    client_event_count_max: int = 0
    reset_offset_exclusive: bool = False
    reset_offset_unsubscribe: bool = False

    @classmethod
    def like(cls, said: Any) -> "LiteConfig":
        """The same of what has fields of these names."""
        return cls(*(getattr(said, each.name) for each in fields(cls)))


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The fields of a group that are read and written; the others are kept.

    Attributes:
        ordered: `consumeMessageOrderly`.
        retry_count_max: `retryMaxTimes`: deliveries after the first one.
        consume_enabled: `consumeEnable`.
        priority_factor: the attribute `priority.factor` of 5.5: 0 to 100.
        lite: the attributes `lite.*` of 5.5; None: it is no group of lite topics.
    """

    ordered: bool = False
    retry_count_max: int = 16
    consume_enabled: bool = True
    priority_factor: int = PRIORITY_FACTOR_MAX
    lite: LiteConfig | None = None


def decode_offsets(data: bytes, *, with_light: bool = False) -> OffsetTable:
    """The positions by group and topic, then by queue; entries that are none are left out.

    Args:
        data: the file.
        with_light: with those of light queues.
    """
    document = load_document(data)
    table, light_table = document.get("offsetTable"), document.get(LIGHT_TABLE)
    rows = dict(table) if isinstance(table, dict) else {}
    if with_light and isinstance(light_table, dict):
        rows = {key: {"0": position} for key, position in light_table.items()} | rows
    offsets: OffsetTable = {}
    for key, queues in rows.items():
        topic, at, group = key.partition("@")
        if not at or not _is_name(topic) or not _is_name(group) or not isinstance(queues, dict):
            continue
        if is_light_queue(topic) and not with_light:
            continue
        positions = {
            int(queue_id): position
            for queue_id, position in queues.items()
            if _is_queue_id(queue_id) and _is_position(position)
        }
        offsets[group, topic] = positions
    return offsets


def joined_offsets(tables: Iterable[OffsetTable]) -> OffsetTable:
    """The positions of two files of a broker, which wrote one after the other: of each queue the higher one."""
    joined: OffsetTable = {}
    for table in tables:
        for key, queues in table.items():
            known = joined.setdefault(key, {})
            for queue_id, position in queues.items():
                known[queue_id] = max(position, known.get(queue_id, position))
    return joined


def problem_of_positions(key: str, queues: object) -> str:
    """Why a row of positions, or one of them, cannot be read; empty when all can. A negative position is none."""
    topic, at, group = key.partition("@")
    if not at or not _is_name(topic) or not _is_name(group):
        return "it names no topic and group"
    if not isinstance(queues, dict):
        return "it is no object"
    for queue_id, position in queues.items():
        if not _is_queue_id(queue_id):
            return f"{queue_id[:20]!r} is no queue"
        if not _is_position(position) and not (_is_int(position) and position < 0):
            return f"the position of queue {queue_id} is {str(position)[:20]!r}"
    return ""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_position(value: object) -> bool:
    return _is_int(value) and 0 <= value <= POSITION_MAX  # type: ignore[operator]


def _is_queue_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= QUEUE_ID_MAX


def _is_name(text: str) -> bool:
    try:
        text.encode()  # half of a surrogate pair could not be sent
    except UnicodeEncodeError:
        return False
    return 0 < len(text) <= NAME_CHARACTERS_MAX


def encode_offsets(
    offsets: Mapping[tuple[str, str], Mapping[int, int]],
    previous: bytes | None,
    *,
    time_millis: int,
    with_light: bool = False,
) -> bytes:
    """A new file with exactly these positions; members that are not known are kept from the file before.

    So are its rows that cannot be read, if there are no positions in their place; without `with_light` those of light queues,
    which are not written then.
    """
    document = next_document(previous, time_millis)
    before, light_before = document.get("offsetTable"), document.get(LIGHT_TABLE)
    kept = before.items() if isinstance(before, dict) else ()
    rows = {
        f"{topic}@{group}": {str(queue_id): position for queue_id, position in sorted(queues.items())}
        for (group, topic), queues in sorted(offsets.items())
        if with_light or not is_light_queue(topic)
    }
    if with_light and isinstance(light_before, dict):  # where a broker had a position it looks for it
        document[LIGHT_TABLE] = {key: rows.pop(key, {}).get("0", position) for key, position in light_before.items()}
    document["offsetTable"] = {
        key: value
        for key, value in kept
        if (is_light_queue(key) and not with_light) or problem_of_positions(key, value)
    } | rows
    return dump_document(document)


def decode_groups(data: bytes) -> dict[str, GroupConfig]:
    """The groups by name; a row that is no group is left out, and a field that cannot be read has RocketMQ's default."""
    table = load_document(data).get("subscriptionGroupTable")
    groups: dict[str, GroupConfig] = {}
    for name, config in table.items() if isinstance(table, dict) else ():
        if isinstance(config, dict) and _is_name(name):
            retries = config.get("retryMaxTimes", 16)
            enabled = config.get("consumeEnable", True)
            groups[name] = GroupConfig(
                config.get("consumeMessageOrderly", False) is True,
                retries if _is_int(retries) and 0 <= retries <= RETRY_COUNT_MAX else 16,
                enabled if isinstance(enabled, bool) else True,
                priority_factor_of(config.get("attributes")),
                lite_config_of(config.get("attributes")),
            )
    return groups


def priority_factor_of(attributes: object) -> int:
    """The attribute's value; its default for one that is absent or no number of its range."""
    value = attributes.get(PRIORITY_FACTOR_ATTRIBUTE) if isinstance(attributes, dict) else None
    factor = _factor_in(value) if isinstance(value, str) else None
    return PRIORITY_FACTOR_MAX if factor is None else factor


def altered_priority_factor(attributes: Mapping[str, object]) -> int | None:
    """What a command's change of attributes makes of a group's factor, by the names of `AttributeUtil`.

    `+priority.factor` sets it, `-priority.factor` takes it away: it is the default then. None: the change does not name it.

    Raises:
        InvalidArgumentError: the name without its sign, or a value other than 0 to 100.
    """
    factor: int | None = None
    for name, value in attributes.items():
        if not name.endswith(PRIORITY_FACTOR_ATTRIBUTE):
            continue
        sign = name.removesuffix(PRIORITY_FACTOR_ATTRIBUTE)
        if sign not in ("+", "-"):
            raise InvalidArgumentError(
                f"{name}: use +{PRIORITY_FACTOR_ATTRIBUTE} to set it, or -{PRIORITY_FACTOR_ATTRIBUTE}",
                field="attributes",
            )
        factor = _factor_in(value) if sign == "+" else PRIORITY_FACTOR_MAX
        if factor is None:
            raise InvalidArgumentError(
                f"{PRIORITY_FACTOR_ATTRIBUTE} is {value!r}: 0 to {PRIORITY_FACTOR_MAX} are possible",
                field="priority_factor",
            )
    return factor


def _factor_in(value: object) -> int | None:
    """The number that a value of the attribute says; None for one that is none of its range."""
    text = str(value)
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(PRIORITY_FACTOR_MAX))
    return int(text) if is_number and int(text) <= PRIORITY_FACTOR_MAX else None


def lite_config_of(attributes: object) -> LiteConfig | None:
    """What the attributes of a group say of lite topics; None when they bind it to none. A broken number is the default."""
    said = attributes if isinstance(attributes, dict) else {}
    bind_topic = said.get(LITE_BIND_TOPIC_ATTRIBUTE)
    if not isinstance(bind_topic, str) or not _is_name(bind_topic):
        return None
    return LiteConfig(
        bind_topic,
        str(said.get(LITE_MODEL_ATTRIBUTE)).lower() == LITE_EXCLUSIVE.lower(),
        LITE_WILDCARD_ATTRIBUTE in said,  # a broker does not look at the value
        _lite_number(said.get(LITE_QUOTA_ATTRIBUTE)),
        _lite_number(said.get(LITE_EVENTS_ATTRIBUTE)),
        str(said.get(LITE_RESET_EXCLUSIVE_ATTRIBUTE)).lower() == "true",
        str(said.get(LITE_RESET_UNSUBSCRIBE_ATTRIBUTE)).lower() == "true",
    )


def lite_attributes_of(config: LiteConfig) -> dict[str, str]:
    """The attributes of a group of lite topics; those that are absent have the defaults."""
    attributes = {
        LITE_BIND_TOPIC_ATTRIBUTE: config.bind_topic,
        LITE_MODEL_ATTRIBUTE: LITE_EXCLUSIVE if config.is_exclusive else "",
        LITE_WILDCARD_ATTRIBUTE: "true" if config.is_wildcard else "",
        LITE_QUOTA_ATTRIBUTE: str(config.client_quota or ""),
        LITE_EVENTS_ATTRIBUTE: str(config.client_event_count_max or ""),
        LITE_RESET_EXCLUSIVE_ATTRIBUTE: "true" if config.reset_offset_exclusive else "",
        LITE_RESET_UNSUBSCRIBE_ATTRIBUTE: "true" if config.reset_offset_unsubscribe else "",
    }
    return {name: value for name, value in attributes.items() if value}


def _lite_number(text: object) -> int:
    is_number = isinstance(text, str) and re.fullmatch(r"-?[0-9]{1,10}", text, re.ASCII) is not None
    number = int(str(text)) if is_number else 0
    return number if -LITE_NUMBER_MAX <= number <= LITE_NUMBER_MAX else 0


def altered_lite_attributes(attributes: Mapping[str, object]) -> dict[str, str]:
    """What a command's change of attributes makes of a group's `lite.*`, by name; empty values for those that it takes away.

    Raises:
        InvalidArgumentError: a name without its sign, or without a value where it is set.
    """
    altered: dict[str, str] = {}
    for signed, value in attributes.items():
        sign, name = signed[:1], signed[1:]
        if signed in LITE_ATTRIBUTES:
            raise InvalidArgumentError(f"{signed}: use +{signed} to set it, or -{signed}", field="attributes")
        if name in LITE_ATTRIBUTES and sign == "-":
            altered[name] = ""
        elif name in LITE_ATTRIBUTES and sign == "+":
            # A broker does not look at the value of the one for wildcards.
            altered[name] = "true" if name == LITE_WILDCARD_ATTRIBUTE else str(value)
            if not altered[name]:
                raise InvalidArgumentError(f"{signed} has no value: give one, or use -{name}", field="attributes")
    return altered


def check_lite_attributes(attributes: Mapping[str, str]) -> None:
    """InvalidArgumentError for attributes, or values of them, that a broker would refuse; an empty value takes one away."""
    for name, value in attributes.items():
        if name not in LITE_ATTRIBUTES:
            raise InvalidArgumentError(
                f"{name[:40]!r} is no attribute of a group of lite topics: use one of {', '.join(LITE_ATTRIBUTES)}",
                field="lite_attributes",
            )
        if value and not _is_lite_value(name, value):
            raise InvalidArgumentError(
                f"{name} is {value[:40]!r}: {LITE_VALUES.get(name, 'the name of a topic')} is possible",
                field="lite_attributes",
            )


def _is_lite_value(name: str, value: str) -> bool:
    if name == LITE_BIND_TOPIC_ATTRIBUTE:
        return _is_name(value)
    if name == LITE_MODEL_ATTRIBUTE:
        return value in (LITE_SHARED, LITE_EXCLUSIVE)
    if name in (LITE_QUOTA_ATTRIBUTE, LITE_EVENTS_ATTRIBUTE):
        number = _lite_number(value)
        return bool(number) and (number >= -1 if name == LITE_QUOTA_ATTRIBUTE else number >= LITE_EVENTS_MIN)
    return value == "true" or (value == "false" and name != LITE_WILDCARD_ATTRIBUTE)


def check_priority_factor(factor: int) -> None:
    """InvalidArgumentError for a factor outside of 0 to 100."""
    if not 0 <= factor <= PRIORITY_FACTOR_MAX:
        raise InvalidArgumentError(
            f"priority_factor is {factor}: 0 to {PRIORITY_FACTOR_MAX} are possible", field="priority_factor"
        )


def problem_of_group(name: str, config: object) -> str:
    """Why a row of a group, or a field of it, cannot be read; empty when it can. Negative retries are none."""
    if not _is_name(name):
        return "its name is empty, too long or no text"
    if not isinstance(config, dict):
        return "it is no object"
    for field in ("consumeMessageOrderly", "consumeEnable"):
        if not isinstance(config.get(field, True), bool):
            return f"{field} is {str(config[field])[:20]!r}"
    retries = config.get("retryMaxTimes", 16)
    if not _is_int(retries) or retries > RETRY_COUNT_MAX:
        return f"retryMaxTimes is {str(retries)[:20]!r}"
    return ""


def encode_groups(groups: Mapping[str, GroupConfig], previous: bytes | None, *, time_millis: int) -> bytes:
    """A new file with exactly these groups; what else the file before says about them is kept, and so are its rows that
    cannot be read."""
    document = next_document(previous, time_millis)
    before = document.get("subscriptionGroupTable")
    rows = before.items() if isinstance(before, dict) else ()
    table: dict[str, Any] = {name: row for name, row in rows if problem_of_group(name, row)}
    for name, config in sorted(groups.items()):
        known = before.get(name) if isinstance(before, dict) else None
        table[name] = (dict(known) if isinstance(known, dict) else new_group_row(name)) | {
            "consumeMessageOrderly": config.ordered,
            "retryMaxTimes": config.retry_count_max,
            "consumeEnable": config.consume_enabled,
        }
        attributes = table[name].get("attributes")
        if config.priority_factor != priority_factor_of(attributes):
            others = attributes if isinstance(attributes, dict) else {}
            attributes = table[name]["attributes"] = {
                **others,
                PRIORITY_FACTOR_ATTRIBUTE: str(config.priority_factor),
            }
        if config.lite != lite_config_of(attributes):
            others = attributes if isinstance(attributes, dict) else {}
            others = {key: value for key, value in others.items() if key not in LITE_ATTRIBUTES}
            table[name]["attributes"] = others | (lite_attributes_of(config.lite) if config.lite is not None else {})
    document["subscriptionGroupTable"] = table
    return dump_document(document)


def new_group_row(name: str) -> dict[str, Any]:
    """The row of a group with the defaults of RocketMQ 5.3.3."""
    return {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": name,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


POP, PULL = "POP", "PULL"
MODES_TABLE = "messageRequestModeMap"
# By group and topic: whether the group pops the topic, and the number of shared queues.
ModeTable = dict[tuple[str, str], tuple[bool, int]]


def decode_modes(data: bytes) -> ModeTable:
    """How groups get the messages of topics; rows that cannot be read are left out."""
    table = load_document(data).get(MODES_TABLE)
    modes: ModeTable = {}
    for topic, groups in table.items() if isinstance(table, dict) else ():
        for group, row in groups.items() if isinstance(groups, dict) else ():
            mode = _mode_of(row)
            if mode is not None and _is_name(topic) and _is_name(group):
                modes[group, topic] = mode
    return modes


def encode_modes(modes: ModeTable, previous: bytes | None, *, time_millis: int) -> bytes:
    """A new file with exactly these modes, and the rows of the file before that cannot be read."""
    document = next_document(previous, time_millis)
    before = document.get(MODES_TABLE)
    table: dict[str, Any] = {}
    for topic, groups in before.items() if isinstance(before, dict) else ():
        kept = groups
        if isinstance(groups, dict):
            kept = {group: row for group, row in groups.items() if _mode_of(row) is None}
        if kept or not isinstance(kept, dict):
            table[topic] = kept
    for (group, topic), (is_pop, share) in sorted(modes.items()):
        row = {"consumerGroup": group, "mode": POP if is_pop else PULL, "popShareQueueNum": share, "topic": topic}
        groups = table.get(topic)
        table[topic] = {**(groups if isinstance(groups, dict) else {}), group: row}
    document[MODES_TABLE] = table
    return dump_document(document)


def _mode_of(row: object) -> tuple[bool, int] | None:
    if not isinstance(row, dict):
        return None
    mode, share = row.get("mode", PULL), row.get("popShareQueueNum", 0)
    if mode not in (POP, PULL) or not _is_int(share) or not -(1 << 31) <= share < 1 << 31:
        return None
    return mode == POP, share
