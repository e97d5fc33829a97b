"""RunCheck: as `checks.FullCheck`, with runs of plainly good records taken by the kernel `log_walk_kernel`.

The kernel takes 0.4 us for a record, the plain check 13 us. What the kernel does not take, the plain check judges: so the
outcome of a walk is the same with the kernel and without it.
"""

from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from store.compiled import loading
from store.derive.queue_placement import NO_UNIT_BIT, NO_UNIT_BITS, is_batch, light_position_max
from store.format.properties import MULTI_DISPATCH, MULTI_QUEUE_OFFSET, LightPlace, light_places
from store.format.record import Buffer, Record, decode_record
from store.format.record_layout import SIZE_AND_MAGIC
from store.format.topic import has_light_units
from store.walk.checks import FullCheck

KERNEL = "store.walk.log_walk_kernel"

# Where the kernel takes nothing record after record it is asked again behind ever more of them.
PLAIN_RECORD_COUNT_MAX = 1024
# A run shorter than both did not pay.
RUN_COUNT_MIN = 8
RUN_BYTES_MIN = 1 << 16
_POSITIONS = MULTI_QUEUE_OFFSET.encode() + b"\x01"


class RecordRun(NamedTuple):
    """Good records one behind the other; valid until the walk goes on.

    Attributes:
        piece: the bytes of the log that hold them.
        at: index in `piece` of the first one.
        next_at: the first index behind the last one.
        commit_log_offset: of the first one.
        queue_offsets: the queue offset of the last record of each queue (topic, queue id), without prepared and rolled-back
            messages, which stand in no queue.
        batch_topics: the topics that have a record which is an inner batch, each with the commit-log offset of the last one.
    """

    piece: Buffer
    at: int
    next_at: int
    commit_log_offset: int
    queue_offsets: Mapping[tuple[str, int], int]
    batch_topics: Mapping[str, int] = MappingProxyType({})


def note_next_offsets(taken: Record | RecordRun, next_offsets: MutableMapping[tuple[str, int], int]) -> None:
    """Note the next offset of the queue of a record, or of each queue of a run; records without a unit stand in none."""
    if isinstance(taken, RecordRun):
        for queue, queue_offset in taken.queue_offsets.items():
            next_offsets[queue] = queue_offset + 1
    elif not taken.sys_flag & NO_UNIT_BIT:
        next_offsets[taken.topic, taken.queue_id] = taken.queue_offset + 1


def light_places_of(record: Record) -> tuple[LightPlace, ...]:
    """The light queues that a record has a unit in."""
    if record.sys_flag & NO_UNIT_BITS or not has_light_units(record.topic):
        return ()
    properties = record.properties
    return light_places(properties.get(MULTI_DISPATCH, ""), properties.get(MULTI_QUEUE_OFFSET, ""), record.topic)


def note_light_places(taken: Record | RecordRun, note: Callable[[str, int, int], None]) -> None:
    """Tell `note` the queue, the next position and the record's offset (bytes) of each unit in a light queue.

    Without positions that the log has no room for; they have no unit.
    """
    if isinstance(taken, RecordRun):
        # Few records have some; a search through all bytes costs a quarter of the check.
        data = bytes(taken.piece[taken.at : taken.next_at])
        at = end = 0
        found = data.find(_POSITIONS)
        while found >= 0:
            while end <= found:
                at, end = end, end + SIZE_AND_MAGIC.unpack_from(data, end)[0]
            _note_light_places(decode_record(data[at:end], commit_log_offset=taken.commit_log_offset + at), note)
            found = data.find(_POSITIONS, end)
    else:
        _note_light_places(taken, note)


def _note_light_places(record: Record, note: Callable[[str, int, int], None]) -> None:
    for place in light_places_of(record):
        if place.queue_offset <= light_position_max(record.commit_log_offset):
            note(place.queue, place.queue_offset + 1, record.commit_log_offset)


def note_batch_topics(taken: Record | RecordRun, topics: MutableMapping[str, int]) -> None:
    """Note the topics that have an inner batch, which only topics in batch queues can have, and where the last one lies."""
    if isinstance(taken, RecordRun):
        topics.update(taken.batch_topics)
    elif is_batch(taken.sys_flag):
        topics[taken.topic] = taken.commit_log_offset


class RunCheck:
    """Takes runs of records with the kernel, and single records with the plain check.

    Args:
        full: the plain check; it counts all records.
    """

    def __init__(self, full: FullCheck) -> None:
        self._full = full
        self._plain_left = 0
        self._plain_count = 1
        self._stopped: tuple[Buffer, int] | None = None  # where the kernel stopped in a piece
        self._queues: np.ndarray[tuple[int, int], np.dtype[np.int64]] | None = None
        self._slots = np.empty(0, dtype=np.int32)

    def begin(self, offset: int) -> None:
        """See `cursor.Check`."""
        self._full.begin(offset)

    def take(self, piece: Buffer, at: int, offset: int) -> tuple[Record | RecordRun, int]:
        """See `cursor.Check`."""
        run = self._take_run(piece, at, offset)
        return (run, run.next_at) if run is not None else self._full.take(piece, at, offset)

    def _take_run(self, piece: Buffer, at: int, offset: int) -> RecordRun | None:
        """The run that starts at piece[at]; None when the plain check is to judge the record there."""
        if self._plain_left:
            self._plain_left -= 1
            return None
        kernel = loading.load(KERNEL)
        if kernel is None or at >= len(piece) or self._has_stopped(piece, at):
            return None
        if self._queues is None:
            self._queues = np.empty((kernel.ROW_COUNT, kernel.QUEUE_COUNT_MAX), dtype=np.int64)
            self._slots = np.empty(kernel.SLOT_COUNT, dtype=np.int32)
        data = np.frombuffer(piece, dtype=np.uint8)
        record_count, last_at, next_at, is_guarded, store_time_millis, queue_count = kernel.check_run(
            data, at, offset, self._full.is_guarded, self._queues, self._slots
        )
        if record_count >= RUN_COUNT_MIN or next_at - at >= RUN_BYTES_MIN:
            self._plain_count = 1
        else:
            self._plain_left = self._plain_count
            self._plain_count = min(2 * self._plain_count, PLAIN_RECORD_COUNT_MAX)
        if not record_count:
            return None
        self._stopped = (piece, next_at)
        last_record = (offset + last_at - at, next_at - last_at)
        self._full.count(record_count, last_record, store_time_millis, is_guarded=bool(is_guarded))
        queue_offsets: dict[tuple[str, int], int] = {}
        batch_topics: dict[str, int] = {}
        for topic_at, topic_size, queue_id, queue_offset, batch_at in self._queues[:, :queue_count].T.tolist():
            topic = str(piece[topic_at : topic_at + topic_size], "ascii")
            queue_offsets[topic, queue_id] = queue_offset
            if batch_at >= 0:
                batch_topics[topic] = max(batch_topics.get(topic, -1), offset + batch_at - at)
        return RecordRun(piece, at, next_at, offset, queue_offsets, batch_topics)

    def _has_stopped(self, piece: Buffer, at: int) -> bool:
        return self._stopped is not None and self._stopped[0] is piece and self._stopped[1] == at
