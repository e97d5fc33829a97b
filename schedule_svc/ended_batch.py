"""EndedBatch: the messages that one request ends. Each is appended, or skipped.

They are counted, and those that are skipped are named, when the request is in the log. What a kill loses before that is ended
again by the next life, and counted there. A power cut may take back what was counted, where the request was answered before a
flush (`may_lose`): then it is ended again, too.
"""

from collections.abc import Callable, Sequence

from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.skipped import UNUSABLE, log_removed, log_skipped, real_topic_of
from services.reading.queue_reader import Outcome
from store.errors import StoreError


class EndedBatch:
    """See the top of this file; filled by one thread before the request is submitted.

    Args:
        kind: of waiting messages, as events name it.
        count: told how many messages were appended, and how many are skipped; by the writer's thread.

    Attributes:
        records: what is appended.
    """

    def __init__(self, kind: str, count: Callable[[int, int], None]) -> None:
        self.records: list[InternalRecord] = []
        self._kind = kind
        self._count = count
        self._sources: list[StoredMessage] = []
        self._skipped: list[tuple[int, int, str | None, StoreError | str]] = []
        self._removed = (0, 0)

    def append(self, message: StoredMessage, record: InternalRecord) -> None:
        """A message ends by a record."""
        self.records.append(record)
        self._sources.append(message)

    def skip(self, queue_offset: int, commit_log_offset: int, outcome: Outcome) -> None:
        """The message at a position of the system topic is skipped: it cannot be read, or its record cannot be used."""
        if isinstance(outcome, StoreError):
            self._skipped.append((queue_offset, commit_log_offset, None, outcome))
        else:
            self._skipped.append((queue_offset, commit_log_offset, real_topic_of(outcome), UNUSABLE))

    def skip_removed(self, queue_offset: int, message_count: int) -> None:
        """So many messages from a position on are skipped: retention removed them."""
        self._removed = (queue_offset, message_count)

    def on_written(self, refused: Sequence[tuple[int, StoreError]]) -> None:
        """The request is in the log; see StateWriter.submit."""
        for at, error in refused:
            message = self._sources[at]
            self._skipped.append((message.queue_offset, message.commit_log_offset, real_topic_of(message), error))
        self._count(len(self.records) - len(refused), len(self._skipped) + self._removed[1])
        if self._removed[1]:
            log_removed(self._kind, *self._removed)
        for skipped in self._skipped:
            log_skipped(self._kind, *skipped)
