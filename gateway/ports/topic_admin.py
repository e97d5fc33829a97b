"""The commands for topics that a shard takes, and how it has each topic configured."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.ports.deadline import Deadline


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic as a shard has it.

    Attributes:
        topic: its name.
        write_queue_count: queues that a producer may write to.
        read_queue_count: queues that a consumer reads.
        perm: RocketMQ's: bits of 1 inherit, 2 write, 4 read.
        message_type: a number of the contract's MessageType.
    """

    topic: str
    write_queue_count: int
    read_queue_count: int
    perm: int
    message_type: int

    @property
    def queue_count(self) -> int:
        """Queues that are written or read."""
        return max(self.write_queue_count, self.read_queue_count)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """New values of a topic, with the meaning of those of TopicSettings; None: not said."""

    write_queue_count: int | None = None
    read_queue_count: int | None = None
    perm: int | None = None
    message_type: int | None = None


class TopicAdmin(Protocol):
    """Creates, changes and deletes topics. InvalidArgumentError, with `field`, for what is not allowed."""

    def settings(self, deadline: Deadline) -> Mapping[str, TopicSettings]:
        """Every configured topic, by name."""

    def create(self, topic: str, change: TopicChange, deadline: Deadline) -> TopicSettings:
        """Creates a topic; its two queue counts are equal, None is the default. TopicExistsError when it has other values."""

    def update(self, topic: str, change: TopicChange, deadline: Deadline) -> TopicSettings:
        """Changes what is not None. TopicNotFoundError when there is none."""

    def delete(self, topic: str, deadline: Deadline) -> bool:
        """Takes the topic out of the configuration; whether it was there."""
