"""The consumer groups of a shard, as its consumer service keeps them; the values are its messages (reput.consumer.v1).

They are asked through the chain of the shard (chain.py); a shard without consumer service serves none of these methods. With
`known_only` a method raises GroupNotFoundError instead of making a group; gateway/groups/joining.py says what then follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

from gateway.ports.chain import ShardMethod
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from store.errors import InvalidArgumentError
from store.format.delivery.consumer_files import (
    LITE_BIND_TOPIC_ATTRIBUTE,
    PRIORITY_FACTOR_MAX,
    LiteConfig,
    lite_attributes_of,
    lite_config_of,
)

# The lite topics of a topic of the type LITE, by name: a page. GroupNotFoundError.
LIST_LITE_TOPICS: ShardMethod[pb.ListLiteTopicsRequest, pb.ListLiteTopicsResponse] = ShardMethod(
    "consumer.list-lite-topics", "consumer"
)
# The settings of groups, by name: a page.
LIST_GROUPS: ShardMethod[pb.ListGroupsRequest, pb.ListGroupsResponse] = ShardMethod("consumer.list-groups", "consumer")
# A group: its settings, members that live, queues, and what is wrong, in words. GroupNotFoundError.
GET_GROUP: ShardMethod[pb.GetGroupRequest, pb.GetGroupResponse] = ShardMethod("consumer.get-group", "consumer")
# The positions of a group, in one topic or all. GroupNotFoundError.
GET_OFFSETS: ShardMethod[pb.GetOffsetsRequest, pb.GetOffsetsResponse] = ShardMethod("consumer.get-offsets", "consumer")
# Sets positions, 1 to 1,024. With `begins` those that the group has are kept.
COMMIT_OFFSETS: ShardMethod[pb.CommitOffsetsRequest, pb.CommitOffsetsResponse] = ShardMethod(
    "consumer.commit-offsets", "consumer"
)
# Takes the groups past what was deleted of topics.
SEE_TOPICS: ShardMethod[pb.SeeTopicsRequest, pb.SeeTopicsResponse] = ShardMethod("consumer.see-topics", "consumer")
# How many messages came and went lately. The caller has checked the client's rights.
GET_FIGURES: ShardMethod[pb.GetFiguresRequest, pb.GetFiguresResponse] = ShardMethod("consumer.get-figures", "consumer")
# Gives messages to a group again, 1 to 32. TopicNotFoundError, OffsetOutOfRangeError.
SEND_BACK: ShardMethod[pb.SendBackMessagesRequest, pb.SendBackMessagesResponse] = ShardMethod(
    "consumer.send-back", "consumer"
)
# Locks or unlocks queues, 1 to 1,024.
LOCK_QUEUES: ShardMethod[pb.LockQueuesRequest, pb.LockQueuesResponse] = ShardMethod("consumer.lock-queues", "consumer")
# Moves a group to other positions of a topic. TopicNotFoundError.
RESET_OFFSETS: ShardMethod[pb.ResetOffsetsRequest, pb.ResetOffsetsResponse] = ShardMethod(
    "consumer.reset-offsets", "consumer"
)
# Sets the settings of a group; makes it if it is absent.
UPDATE_GROUP: ShardMethod[pb.UpdateGroupRequest, pb.UpdateGroupResponse] = ShardMethod(
    "consumer.update-group", "consumer"
)
# The same with `if_unset`: makes a group if it is absent, and keeps settings that somebody has set.
MAKE_GROUP: ShardMethod[pb.UpdateGroupRequest, pb.UpdateGroupResponse] = ShardMethod("consumer.make-group", "consumer")
# Forgets a group; without effect when it is absent.
DELETE_GROUP: ShardMethod[pb.DeleteGroupRequest, pb.DeleteGroupResponse] = ShardMethod(
    "consumer.delete-group", "consumer"
)
# How a message of the shard stands with groups, by name: a page.
TRACK: ShardMethod[pb.TrackMessageRequest, pb.TrackMessageResponse] = ShardMethod("consumer.track", "consumer")

# A question for a page of groups.
GroupsRequest: TypeAlias = pb.ListGroupsRequest | pb.TrackMessageRequest
# Deliveries of a message that is not renewed, when the group has no setting of its own: RocketMQ's 16 retries and the first.
DELIVERY_ATTEMPTS_DEFAULT = 17


def is_asked_for(request: GroupsRequest, consumer_group: str) -> bool:
    """Whether a page may have the group, as far as its name tells."""
    return (
        consumer_group > request.after
        and request.consumer_group in ("", consumer_group)
        and (not request.name_contains or request.name_contains.lower() in consumer_group.lower())
    )


def default_settings(consumer_group: str) -> pb.GroupSettings:
    """The settings of a group before somebody sets some."""
    return pb.GroupSettings(
        consumer_group=consumer_group, delivery_attempts_max=DELIVERY_ATTEMPTS_DEFAULT, consume_enabled=True
    )


def attempts_max_of(settings: pb.GroupSettings) -> int:
    """Deliveries of a message, the first included; a service of an older release says 0 for the default."""
    return settings.delivery_attempts_max or DELIVERY_ATTEMPTS_DEFAULT


def priority_factor_of(settings: pb.GroupSettings) -> int:
    """Of 100 pops of a topic of the type PRIORITY, so many are by priority."""
    return settings.priority_factor if settings.HasField("priority_factor") else PRIORITY_FACTOR_MAX


def lite_attributes_in(settings: pb.GroupSettings) -> dict[str, str]:
    """RocketMQ's attributes `lite.*` of a group."""
    return lite_attributes_of(LiteConfig.like(settings.lite)) if is_of_lite_topics(settings) else {}


def changed_lite_settings(settings: pb.GroupSettings, attributes: Mapping[str, str]) -> gateway_pb.LiteSettings | None:
    """What a group is of lite topics when its attributes have changed, those with empty values being taken away.

    None: it consumes ordinary topics.

    Raises:
        InvalidArgumentError: the group would be bound to another topic than before, or to none and have other attributes.
    """
    changed = {**lite_attributes_in(settings), **attributes}
    bound, bind_topic = settings.lite.bind_topic, changed.get(LITE_BIND_TOPIC_ATTRIBUTE, "")
    if bound and bind_topic != bound:
        raise InvalidArgumentError(
            f"the group is bound to {bound}: its positions and subscriptions are there, so make another group for "
            f"{bind_topic or 'ordinary topics'}",
            field="lite_attributes",
        )
    if not bind_topic and any(attributes.values()):
        raise InvalidArgumentError(
            f"the group is bound to no topic: set {LITE_BIND_TOPIC_ATTRIBUTE} to a topic of the type LITE, too",
            field="lite_attributes",
        )
    config = lite_config_of({name: value for name, value in changed.items() if value})
    return None if config is None else gateway_pb.LiteSettings(**asdict(config))


def is_of_lite_topics(settings: pb.GroupSettings) -> bool:
    """Whether a group consumes lite topics, instead of ordinary topics."""
    return bool(settings.lite.bind_topic)


def are_same(one: pb.GroupSettings, other: pb.GroupSettings) -> bool:
    """Whether a group consumes alike by both; the origin of the settings is not compared."""
    return (
        one.consumer_group == other.consumer_group
        and one.ordered == other.ordered
        and attempts_max_of(one) == attempts_max_of(other)
        and one.consume_enabled == other.consume_enabled
        and one.broadcast == other.broadcast
        and priority_factor_of(one) == priority_factor_of(other)
        and lite_attributes_in(one) == lite_attributes_in(other)
    )


def settings_that_count(of_shards: Sequence[pb.GroupSettings]) -> pb.GroupSettings:
    """Of what shards say of one group, that of the first one in which somebody has set some; else of the first one."""
    return next((each for each in of_shards if each.is_set), of_shards[0])


def lag_count(queue: pb.GroupQueue) -> int:
    """Messages that are not consumed: never handed out, in flight, or waiting to be handed out again.

    Negative for a position behind the queue's end, as RocketMQ's consumerProgress has it: so many will not be delivered.
    """
    max_offset = queue.max_offset
    if queue.consumer_offset > max_offset:
        return max_offset - queue.consumer_offset
    unseen_count = max(max_offset - max(queue.next_offset, queue.min_offset), 0)
    return unseen_count + queue.in_flight_count + queue.waiting_count
