"""Groups, queues and tracks as plain values, for JSON and for tables."""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cli.exits import warn
from cli.printing.times import iso_text
from store.format.topic import RETRY_PREFIX

if TYPE_CHECKING:
    from reput_client import ConsumerGroup, GroupMember, GroupQueue, ShardOutcome, Track


def group_row(group: "ConsumerGroup") -> dict[str, Any]:
    """The settings of a group by the names of the contract's fields."""
    return {
        "consumer_group": group.consumer_group,
        "ordered": group.ordered,
        "delivery_attempts_max": group.delivery_attempts_max,
        "consume_disabled": group.consume_disabled,
        "broadcast": group.broadcast,
    }


def lag_row(consumer_group: str, queue: "GroupQueue") -> dict[str, Any]:
    """A queue as a group has it."""
    return {
        "consumer_group": consumer_group,
        "topic": queue.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "consumer_offset": queue.consumer_offset,
        "max_offset": queue.max_offset,
        "lag": queue.lag_count,
        "lag_seconds": seconds_of(queue.lag_age),
        "in_flight": queue.in_flight_count,
        "removed": queue.removed_count,
    }


def clients_of(members: "Iterable[GroupMember]", topic: str) -> list[str]:
    """The members that may get messages of a topic, with their addresses: queues are not divided among members."""
    return [
        f"{member.client_id}@{member.address}"
        for member in members
        if topic.startswith(RETRY_PREFIX) or any(topic == subscribed for subscribed, _ in member.subscriptions)
    ]


def track_row(track: "Track") -> dict[str, Any]:
    """How a message stands with a group."""
    return {
        "consumer_group": track.consumer_group,
        "state": track.state.name,
        "delivery_attempts": track.delivery_attempts,
        "next_time": iso_text(track.next_time) if track.next_time else None,
        "client_id": track.client_id,
        "is_online": track.is_online,
        "copies": list(track.copy_offset_msg_ids),
        "reason": track.reason,
    }


def seconds_of(age: timedelta | None) -> float | None:
    """An age in seconds, to the millisecond."""
    return None if age is None else round(age.total_seconds(), 3)


def warn_missing(shards: "Iterable[ShardOutcome]") -> bool:
    """Warn of shards that did not answer; whether there are any."""
    missing = [shard for shard in shards if shard.error is not None]
    for shard in missing:
        warn(f"partial: shard {shard.broker_name}: {shard.error}")
    return bool(missing)
