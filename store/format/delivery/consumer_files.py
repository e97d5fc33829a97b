"""RocketMQ's files of consumer groups: `config/consumerOffset.json` and `config/subscriptionGroup.json`.

    {"dataVersion": {...}, "offsetTable": {"TOPIC@GROUP": {"0": 12, "1": 7}}}
    {"dataVersion": {...}, "subscriptionGroupTable": {GROUP: {"groupName": GROUP, "consumeEnable": true,
        "consumeBroadcastEnable": true, "consumeMessageOrderly": false, "retryMaxTimes": 16, ...}}}

How the files are written and who wrote them last: config_json.py. Sources: `ConsumerOffsetSerializeWrapper` and
`SubscriptionGroupConfig` of RocketMQ 5.3.3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store.format.config_json import dump_document, load_document, next_document

QUEUE_ID_MAX = 65_535
OffsetTable = dict[tuple[str, str], dict[int, int]]


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What is read and written of a group; its other fields are kept.

    Attributes:
        ordered: `consumeMessageOrderly`.
        retry_count_max: `retryMaxTimes`: deliveries after the first one.
        consume_enabled: `consumeEnable`.
    """

    ordered: bool = False
    retry_count_max: int = 16
    consume_enabled: bool = True


def decode_offsets(data: bytes) -> OffsetTable:
    """The positions by group and topic, then by queue; entries that are none are left out."""
    table = load_document(data).get("offsetTable")
    offsets: OffsetTable = {}
    for key, queues in table.items() if isinstance(table, dict) else ():
        topic, at, group = key.partition("@")
        if not at or not topic or not group or not isinstance(queues, dict):
            continue
        positions = {
            int(queue_id): position
            for queue_id, position in queues.items()
            if queue_id.isdecimal() and int(queue_id) <= QUEUE_ID_MAX and isinstance(position, int) and position >= 0
        }
        offsets[group, topic] = positions
    return offsets


def encode_offsets(
    offsets: Mapping[tuple[str, str], Mapping[int, int]], previous: bytes | None, *, time_millis: int
) -> bytes:
    """A new file with exactly these positions; members that are not known are kept from the file before."""
    document = next_document(previous, time_millis)
    document["offsetTable"] = {
        f"{topic}@{group}": {str(queue_id): position for queue_id, position in sorted(queues.items())}
        for (group, topic), queues in sorted(offsets.items())
    }
    return dump_document(document)


def decode_groups(data: bytes) -> dict[str, GroupConfig]:
    """The groups by name."""
    table = load_document(data).get("subscriptionGroupTable")
    groups: dict[str, GroupConfig] = {}
    for name, config in table.items() if isinstance(table, dict) else ():
        if isinstance(config, dict):
            retries = config.get("retryMaxTimes", 16)
            groups[name] = GroupConfig(
                bool(config.get("consumeMessageOrderly", False)),
                retries if isinstance(retries, int) and retries >= 0 else 16,
                bool(config.get("consumeEnable", True)),
            )
    return groups


def encode_groups(groups: Mapping[str, GroupConfig], previous: bytes | None, *, time_millis: int) -> bytes:
    """A new file with exactly these groups; what else the file before says about them is kept."""
    document = next_document(previous, time_millis)
    before = document.get("subscriptionGroupTable")
    table: dict[str, Any] = {}
    for name, config in sorted(groups.items()):
        known = before.get(name) if isinstance(before, dict) else None
        table[name] = (dict(known) if isinstance(known, dict) else _new_group(name)) | {
            "consumeMessageOrderly": config.ordered,
            "retryMaxTimes": config.retry_count_max,
            "consumeEnable": config.consume_enabled,
        }
    document["subscriptionGroupTable"] = table
    return dump_document(document)


def _new_group(name: str) -> dict[str, Any]:
    """A group with the defaults of RocketMQ 5.3.3."""
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
