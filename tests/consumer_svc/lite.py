"""Lite topics as short as tests want them: a group bound to the parent `p`, its clients, and what they get."""

from typing import Any

from consumer_svc.state.group_states import GroupSettings
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import MESSAGE_TYPE_UNSPECIFIED
from store.format.delivery.consumer_files import LiteConfig
from tests.consumer_svc.asking import pop_of
from tests.consumer_svc.memory_log import LogLife, MemoryLog

PARENT = "p"
ADD, REMOVE = pb.LITE_ACTION_PARTIAL_ADD, pb.LITE_ACTION_PARTIAL_REMOVE
ALL, NONE = pb.LITE_ACTION_COMPLETE_ADD, pb.LITE_ACTION_COMPLETE_REMOVE


def send(log: MemoryLog, lite_topic: str, body: str) -> None:
    """A message to a lite topic."""
    log.send(PARENT, body.encode(), 0, lite_topic=lite_topic)


def bind(log: MemoryLog, life: LogLife, name: str = "g", minutes: int = 0, **lite: Any) -> None:
    """Make a group of lite topics."""
    log.lite_minutes[PARENT] = minutes
    log.configure(PARENT, message_type=MESSAGE_TYPE_UNSPECIFIED)
    life.life.topics.load()
    life.groups.update(GroupSettings(name, lite=LiteConfig(PARENT, **lite)))


def sync(
    life: LogLife, client_id: str, action: "pb.LiteAction", *lite_topics: str, name: str = "g", **fields: Any
) -> int:
    """What a client subscribes to."""
    request = pb.SyncLiteSubscriptionRequest(
        consumer_group=name, topic=PARENT, client_id=client_id, action=action, lite_topics=lite_topics, **fields
    )
    return life.lite.sync(request).lite_topic_count


def poll(
    client_id: str = "c", *, name: str = "g", invisible_millis: int = 10_000, **fields: Any
) -> pb.PopMessagesRequest:
    """A poll of lite topics."""
    return pop_of(name, PARENT, invisible_millis=invisible_millis, client_id=client_id, is_lite=True, **fields)


def get(life: LogLife, client_id: str = "c", **fields: Any) -> list[str]:
    """The bodies that a client gets, and keeps in flight."""
    return [one.message.body.decode() for one in life.pop(poll(client_id, **fields))]


def consume(life: LogLife, client_id: str = "c", *, name: str = "g", **fields: Any) -> list[str]:
    """The bodies that a client gets and acknowledges, until there is nothing more."""
    bodies: list[str] = []
    while delivered := life.pop(poll(client_id, name=name, **fields)):
        life.acks.ack(name, [one.receipt_handle for one in delivered])
        bodies += [one.message.body.decode() for one in delivered]
    return bodies
