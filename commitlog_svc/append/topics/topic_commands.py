"""TopicCommands: topics that are created, changed and deleted by command (docs/adr/0047-config-files-and-topics.md)."""

from collections.abc import Callable

from commitlog_svc.append.topics.topic_change import TopicChange, check_command_topic
from commitlog_svc.append.topics.topics import TopicTable
from store.format.topic import TopicConfig


class TopicCommands:
    """Each command may be repeated without harm; thread-safe.

    Args:
        topics: the topic table.
        refuse: raises when nothing may be written.
        changed: called after a change of topics that have messages.
        log_range: where the log begins and ends (bytes).
    """

    def __init__(
        self,
        topics: TopicTable,
        refuse: Callable[[], None],
        changed: Callable[[], None],
        log_range: Callable[[], tuple[int, int]],
    ) -> None:
        self._topics = topics
        self._log_range = log_range
        self._refuse = refuse
        self._changed = changed

    def create(self, topic: str, change: TopicChange) -> TopicConfig:
        """Creates a topic.

        Raises:
            InvalidArgumentError: the name or a value is not allowed; metadata has `field`.
            StoreReadOnlyError, StoreRecoveringError, DiskFullError, FlushFailedError: as appends.
            TopicExistsError: see TopicTable.
        """
        self._check(topic, change)
        return self._topics.create(topic, change)

    def update(self, topic: str, change: TopicChange) -> TopicConfig:
        """Changes a topic; TopicNotFoundError when there is none, others as `create`."""
        self._check(topic, change)
        config = self._topics.update(topic, change)
        self._changed()
        return config

    def delete(self, topic: str) -> bool:
        """Takes a topic out of the table, False when it was not there; errors as `create`.

        Its messages stay in the log, and are not delivered any more.
        """
        self._check(topic, TopicChange())
        existed = self._topics.delete(topic, *self._log_range())
        self._changed()
        return existed

    def _check(self, topic: str, change: TopicChange) -> None:
        check_command_topic(topic)
        change.check()
        self._refuse()
