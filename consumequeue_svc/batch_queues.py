"""BatchQueues: which ranges the queues of topics in batch queues have.

Their positions are not served, and none of their files is written.

A broker's own files say it. They may lack the newest records, or all: RocketMQ builds them from the log at its start. So the
first and the last batch of each queue are noted as the log is followed; the last one says itself how many positions it takes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from store.files.file_system import FileSystem
from store.readers.batch_queue_reader import list_batch_queue_ids, read_batch_range

if TYPE_CHECKING:
    from store.derive.queue_runs import Batch

QueueId = tuple[str, int]
# The number of messages of the batch at a commit-log offset (bytes); None when the record does not say it or cannot be read.
CountAt = Callable[[int], int | None]


class ServedInPart(NamedTuple):
    """The range of a queue; not exact: at least the messages between are there, and there may be more before or behind."""

    min_offset: int
    max_offset: int
    is_exact: bool


@dataclass(slots=True)
class _Noted:
    """Where the first and the last batch of a queue lie in the log (bytes), and their first positions."""

    first_at: int
    first_position: int
    last_at: int
    last_position: int
    last_count: int | None = None  # of the last one, once it was read


def _none_known(commit_log_offset: int) -> int | None:
    return None


def batch_topics(state: Mapping[str, Any], log_first_offset: int) -> frozenset[str]:
    """The topics of a checkpoint of which the log still has a batch: the last one lies not before its first byte.

    KeyError, TypeError, ValueError or AttributeError when it is no checkpoint.
    """
    return frozenset(topic for (topic, _), noted in _noted_of(state).items() if noted.last_at >= log_first_offset)


def _noted_of(state: Mapping[str, Any]) -> dict[QueueId, _Noted]:
    return {
        (str(topic), int(queue_id)): _Noted(*map(int, places))
        for topic, queues in state.items()
        for queue_id, *places in queues
    }


class BatchQueues:
    """See the top of this file. One thread notes and cuts, any may ask.

    Args:
        fs: the disk port.
        root: the store root that a broker wrote.
        count_at: reads the log.
    """

    def __init__(self, fs: FileSystem, root: Path, count_at: CountAt = _none_known) -> None:
        self._fs = fs
        self._root = root
        self._count_at = count_at
        self._lock = Lock()
        self._noted: dict[QueueId, _Noted] = {}

    def note(self, batches: "Iterable[Batch]") -> None:
        """Records that are inner batches, in log order; a replay may bring them again."""
        with self._lock:
            for batch in batches:
                at, position = batch.commit_log_offset, batch.queue_offset
                noted = self._noted.setdefault((batch.topic, batch.queue_id), _Noted(at, position, at, position))
                if at < noted.first_at:
                    noted.first_at, noted.first_position = at, position
                if at > noted.last_at:
                    noted.last_at, noted.last_position, noted.last_count = at, position, None

    def cut(self, log_end_offset: int) -> None:
        """Forgets queues whose last batch lies behind the log's end (bytes): the log is followed again from its begin."""
        with self._lock:
            for queue_id in [each for each, noted in self._noted.items() if noted.last_at >= log_end_offset]:
                del self._noted[queue_id]

    def state(self) -> dict[str, list[list[int]]]:
        """The ranges that were noted, for a checkpoint."""
        rows: dict[str, list[list[int]]] = {}
        with self._lock:
            for (topic, queue_id), noted in self._noted.items():
                places = [noted.first_at, noted.first_position, noted.last_at, noted.last_position]
                rows.setdefault(topic, []).append([queue_id, *places])
        return rows

    def restore(self, state: Mapping[str, Any]) -> None:
        """Notes what a checkpoint has, and nothing else; errors as `batch_topics`."""
        noted = _noted_of(state)
        with self._lock:
            self._noted = noted

    def queue_ids(self, topics: Collection[str]) -> set[QueueId]:
        """The queues of these topics that have a batch, or a folder of a broker."""
        with self._lock:
            noted = list(self._noted)
        return {queue_id for queue_id in (*noted, *list_batch_queue_ids(self._fs, self._root)) if queue_id[0] in topics}

    def range(self, queue_id: QueueId, log_first_offset: int, log_end_offset: int) -> ServedInPart:
        """The range of a queue.

        Args:
            queue_id: topic and number.
            log_first_offset: where the log begins for the topic (bytes).
            log_end_offset: where it ends (bytes).
        """
        files = read_batch_range(self._fs, self._root, *queue_id, log_first_offset, log_end_offset)
        with self._lock:
            noted = self._noted.get(queue_id)
        if noted is None:
            return ServedInPart(files.min_offset, files.max_offset, True) if files else ServedInPart(0, 0, True)
        is_exact, max_offset = True, files.max_offset if files else 0
        if files is None or noted.last_at > files.last.commit_log_offset:
            count = self._last_count(noted)
            is_exact, max_offset = count is not None, noted.last_position + (count or 1)
        firsts = [files.min_offset] if files and files.last.commit_log_offset >= log_first_offset else []
        if noted.first_at >= log_first_offset:
            firsts.append(noted.first_position)
        elif not firsts and noted.last_at >= log_first_offset:
            firsts.append(noted.last_position)
            is_exact = is_exact and noted.first_at == noted.last_at
        return ServedInPart(min(firsts, default=max_offset), max_offset, is_exact)

    def _last_count(self, noted: _Noted) -> int | None:
        at, count = noted.last_at, noted.last_count
        if count is None:
            count = self._count_at(at)
            with self._lock:
                if noted.last_at == at:
                    noted.last_count = count
        return count
