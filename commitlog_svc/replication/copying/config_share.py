"""The files of `config/` that go with the log: the leader sends each one that has changed, followers write it.

The topic table is on the leader's disk before a message of a new topic is; a follower gets it before that message, too.
`timerlog` is not sent: the next leader's schedule service writes it anew.
"""

import threading
from collections.abc import Callable, Iterator

from commitlog_svc.append.topics.topics import TopicTable
from commitlog_svc.config_files import NAMES, ConfigFiles

TOPICS_NAME = "topics.json"


class ConfigShare:
    """Versions of the files; thread-safe.

    Args:
        topics: the topic table.
        config_files: the other files.
        forget_topics: must be called after the topic table has changed.
    """

    def __init__(self, topics: TopicTable, config_files: ConfigFiles, forget_topics: Callable[[], None]) -> None:
        self._topics = topics
        self._config_files = config_files
        self._forget_topics = forget_topics
        self._lock = threading.Lock()
        # Each file that there is has changed once: before the first follower came.
        self._versions = dict.fromkeys((TOPICS_NAME, *sorted(NAMES)), 1)
        self.version = 1
        topics.on_written = lambda: self._note(TOPICS_NAME)
        config_files.on_written = self._note

    def changed_since(self, version: int) -> Iterator[tuple[str, bytes, int]]:
        """Name, content and version of each file that changed behind a version, the oldest change first."""
        with self._lock:
            changed = sorted((at, name) for name, at in self._versions.items() if at > version)
        for at, name in changed:
            content = self._topics.read() if name == TOPICS_NAME else self._config_files.read(name).content
            if content:
                yield name, content, at

    def take(self, name: str, content: bytes) -> None:
        """Writes a file that the leader sent; it is on the disk when this returns.

        Raises:
            StoreCorruptedError, InvalidArgumentError: the content or the name is not one that a leader sends.
        """
        if name == TOPICS_NAME:
            self._topics.copy(content)
            self._forget_topics()
        else:
            self._config_files.copy(name, content)

    def _note(self, name: str) -> None:
        with self._lock:
            self.version += 1
            self._versions[name] = self.version
