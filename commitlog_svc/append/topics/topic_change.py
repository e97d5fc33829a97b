"""TopicChange: what a command wants of a topic, checked as RocketMQ's `updateTopic` checks it."""

from dataclasses import dataclass, replace

from store.errors import InvalidArgumentError, InvalidMessageError
from store.format.topic import (
    MESSAGE_TYPE_ATTRIBUTE,
    PERM_READ,
    PERM_WRITE,
    TOPIC_QUEUE_COUNT_MAX,
    TopicConfig,
    is_system_topic,
    validate_topic,
)

PERMS = (PERM_WRITE, PERM_READ, PERM_READ | PERM_WRITE)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """New values of a topic; None: this value stays as it is.

    Attributes:
        write_queue_count: queues that a producer may write to.
        read_queue_count: queues that a consumer reads.
        perm: 2 write, 4 read, 6 both.
        message_type: a value of MESSAGE_TYPES; empty: the topic has no such attribute.
    """

    write_queue_count: int | None = None
    read_queue_count: int | None = None
    perm: int | None = None
    message_type: str | None = None

    def check(self) -> None:
        """InvalidArgumentError, with `field`, when RocketMQ's clients cannot work with a value."""
        for field in ("write_queue_count", "read_queue_count"):
            count = getattr(self, field)
            if count is not None and not 1 <= count <= TOPIC_QUEUE_COUNT_MAX:
                raise InvalidArgumentError(
                    f"{field} is {count}: 1 to {TOPIC_QUEUE_COUNT_MAX} are allowed", field=field, value=count
                )
        if self.perm is not None and self.perm not in PERMS:
            raise InvalidArgumentError(
                f"perm is {self.perm}: use 2 (write), 4 (read) or 6 (both)", field="perm", value=self.perm
            )

    def applied_to(self, config: TopicConfig) -> TopicConfig:
        """The configuration with these values; everything else stays."""
        attributes = dict(config.attributes)
        if self.message_type:
            attributes[MESSAGE_TYPE_ATTRIBUTE] = self.message_type
        elif self.message_type is not None:
            attributes.pop(MESSAGE_TYPE_ATTRIBUTE, None)
        return replace(
            config,
            write_queue_count=config.write_queue_count if self.write_queue_count is None else self.write_queue_count,
            read_queue_count=config.read_queue_count if self.read_queue_count is None else self.read_queue_count,
            perm=config.perm if self.perm is None else self.perm,
            attributes=attributes,
        )


def check_command_topic(topic: str) -> None:
    """InvalidArgumentError, with field `topic`, when no command may name this topic."""
    try:
        validate_topic(topic)
    except InvalidMessageError as error:
        refused = InvalidArgumentError(error.message)
        refused.metadata = error.metadata
        raise refused from error
    if is_system_topic(topic):
        raise InvalidArgumentError(f"{topic} belongs to the broker: no command changes it", field="topic", topic=topic)
