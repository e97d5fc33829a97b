"""Topics that a consumer asks for and that there are not: it goes on asking, and says so once for each."""

import logging

from reput_client.errors import ReputClientError, TopicNotFoundError

# RocketMQ's RETRY_GROUP_TOPIC_PREFIX: such a topic is made when the first message is sent back.
RETRY_PREFIX = "%RETRY%"

_log = logging.getLogger("reput_client")


class AbsentTopics:
    """See the top of this file. A program may start before the topics are made that it consumes.

    Args:
        consumer_group: the group of the consumer.
    """

    def __init__(self, consumer_group: str) -> None:
        self._consumer_group = consumer_group
        self._told: set[str] = set()

    def is_told_by(self, topic: str, error: ReputClientError) -> bool:
        """Whether an error says that there is no such topic. The first one is a warning, which Python writes to stderr."""
        if not isinstance(error, TopicNotFoundError):
            return False
        if topic not in self._told and not topic.startswith(RETRY_PREFIX):
            self._told.add(topic)
            _log.warning(
                "the group %s consumes the topic %s, which does not exist: it is asked for again until it is made (%s)",
                self._consumer_group,
                topic,
                error.message,
            )
        return True

    def found(self, topic: str) -> None:
        """The topic is there: the next error is a warning again."""
        self._told.discard(topic)
