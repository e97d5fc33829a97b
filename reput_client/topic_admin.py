"""`AdminClient`: creates, changes and deletes topics."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.calls import GatewayCalls


class MessageType(enum.IntEnum):
    """Which messages a topic is for; the numbers are those of the contract."""

    UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    MIXED = 5
    PRIORITY = 6
    LITE = 7


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic as one shard has it.

    Attributes:
        broker_name: the shard.
        topic: its name.
        write_queue_count: queues that a producer may write to.
        read_queue_count: queues that a consumer reads.
        perm: RocketMQ's: bits of 1 inherit, 2 write, 4 read.
        message_type: UNSPECIFIED when the topic says none.
        lite_expiration_minutes: a lite topic without a new message for so long is forgotten; 0: never.
    """

    broker_name: str
    topic: str
    write_queue_count: int
    read_queue_count: int
    perm: int
    message_type: MessageType
    lite_expiration_minutes: int = 0


class AdminClient(GatewayCalls):
    """Commands to a gateway, which its role `admin` may call; for any number of threads.

        with AdminClient("127.0.0.1:8081") as client:
            client.create_topic("Orders", queue_count=8, message_type=MessageType.FIFO)

    Each command may be repeated without harm. Arguments of the class are those of `GatewayCalls`.
    """

    def create_topic(
        self,
        topic: str,
        *,
        queue_count: int = 0,
        message_type: MessageType = MessageType.UNSPECIFIED,
        perm: int = 0,
        broker_name: str = "",
        lite_expiration_minutes: int = 0,
    ) -> list[TopicSettings]:
        """Create a topic; a row for each shard.

        Args:
            topic: its name.
            queue_count: on each shard; 0: as many as a topic gets that its first message creates.
            message_type: UNSPECIFIED: the topic says none.
            perm: 2 write, 4 read, 6 both; 0: both.
            broker_name: the only shard; empty: all.
            lite_expiration_minutes: of a topic of the type LITE: a lite topic without a new message for so long is forgotten,
                with the positions of its groups; 15 at least count. 0: never.

        Raises:
            TopicExistsError: there is one with other values.
            InvalidRequestError: the name or a value is not allowed.
        """
        request = pb.CreateTopicRequest(
            topic=topic,
            queue_count=queue_count,
            perm=perm,
            broker_name=broker_name,
            lite_expiration_minutes=lite_expiration_minutes,
        )
        request.message_type = message_type.value  # type: ignore[assignment]  # numbers are enum values here
        return list(settings_of(self.call("CreateTopic", request).topics))

    def update_topic(
        self,
        topic: str,
        *,
        queue_count: int | None = None,
        write_queue_count: int | None = None,
        read_queue_count: int | None = None,
        message_type: MessageType | None = None,
        perm: int | None = None,
        broker_name: str = "",
        lite_expiration_minutes: int | None = None,
    ) -> list[TopicSettings]:
        """Change a topic; a row for each shard that has it. What is None stays as it is.

        Args:
            topic: its name.
            queue_count: queues to write and to read.
            write_queue_count, read_queue_count: the same one by one, instead of `queue_count`.
            message_type: UNSPECIFIED: the topic says none from now on.
            perm: 2 write, 4 read, 6 both.
            broker_name: the only shard; empty: all that have the topic.
            lite_expiration_minutes: see `create_topic`.

        Raises:
            TopicNotFoundError: no shard has the topic.
            InvalidRequestError: the name or a value is not allowed.
        """
        request = pb.UpdateTopicRequest(
            topic=topic,
            queue_count=queue_count,
            write_queue_count=write_queue_count,
            read_queue_count=read_queue_count,
            perm=perm,
            broker_name=broker_name,
            lite_expiration_minutes=lite_expiration_minutes,
        )
        if message_type is not None:
            request.message_type = message_type.value  # type: ignore[assignment]  # numbers are enum values here
        return list(settings_of(self.call("UpdateTopic", request).topics))

    def delete_topic(self, topic: str, *, broker_name: str = "") -> list[str]:
        """Take a topic out of the configuration; the shards that had it. Its messages stay until retention removes them.

        Raises:
            InvalidRequestError: the name is not allowed.
        """
        request = pb.DeleteTopicRequest(topic=topic, broker_name=broker_name)
        return list(self.call("DeleteTopic", request).broker_names)


def settings_of(rows: Iterable[pb.TopicSettings]) -> tuple[TopicSettings, ...]:
    """A topic on each of its shards."""
    return tuple(
        TopicSettings(
            row.broker_name,
            row.topic,
            row.write_queue_count,
            row.read_queue_count,
            row.perm,
            MessageType(row.message_type),
            row.lite_expiration_minutes,
        )
        for row in rows
    )
