"""Decides at start from which offset the builder follows the log.

- The builder's own checkpoint fits the files: each queue is cut back to the end that the checkpoint states (everything
  before was flushed), and the log is followed from the checkpoint's offset. The checkpoint fits if no file before these
  ends is missing or of a wrong length, and if the last units of each queue have the CRC that it states.
- Otherwise (a foreign store, files are missing, short or changed, ConsumeQueueExt was switched on or off, a topic that was
  hidden at the checkpoint is not hidden now, so its records were left out, the files of light queues are not those of the
  checkpoint): the log is replayed from its first record over the
  files (see `consume_queue.py`). A store without a checkpoint that was stopped cleanly and whose log is larger than
  ADOPTED_LOG_BYTES_MIN is taken as it is, because to read such a log takes many minutes. One whose checkpoint says nothing
  (`{}`) is replayed.

Behind a checkpoint of a release that builds no light queues, and in a store that was taken as it is, they begin at the log's
first record: beside the following, the log is read for them (`light_catch_up.py`).

A replay first writes a checkpoint that fits nothing, because an older checkpoint must not fit the files of a replay that
was killed. Later checkpoints say how far each queue is confirmed, so a kill costs only the work since the last one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from consumequeue_svc.batch_queues import batch_topics
from consumequeue_svc.consume_queue import ConsumeQueue, SavedQueue
from consumequeue_svc.consume_queue_table import ConsumeQueueTable, QueueId
from consumequeue_svc.time_search import UNSEEN, RisingRun, runs_of_state
from store.derive.dispatch import LastRecord
from store.errors import StoreRecoveringError
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state, write_json_state
from store.format.derived.queue_ext import bare_unit_count
from store.format.derived.queue_unit import UNIT_SIZE_BYTES
from store.format.topic import is_light_queue

ADOPTED_LOG_BYTES_MIN = 8 << 30
VERSION = 2
UNKNOWN = "our checkpoint does not know the queue, and the log does not explain its units"
OLDER = "units that the checkpoint does not have, of records before it"


@dataclass(frozen=True, slots=True)
class Resume:
    """From which offset to follow the log (bytes; -1 = its first record), and how.

    Attributes:
        next_offset: everything before it is applied.
        store_time_millis: of the newest record applied; 0 if there is none.
        is_replay: compare with what the files hold.
        is_marked: the checkpoint already says that the files may be ahead of it.
        last_record: the newest record applied; None if unknown.
        runs: in which the store times of what is applied rise.
        is_ours: all units were written by Reput, or compared with the log.
        batch_queues: where the batches of what is applied lie (`BatchQueues.state`).
        hidden: the topics of those of them that the log still has.
        has_light: the checkpoint has light queues, and they fit it.
    """

    next_offset: int
    store_time_millis: int
    is_replay: bool
    is_marked: bool = False
    last_record: LastRecord | None = None
    runs: tuple[RisingRun, ...] = (UNSEEN,)
    is_ours: bool = False
    batch_queues: Mapping[str, Any] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    has_light: bool = False


def saved_file_size_bytes(fs: FileSystem, checkpoint: Path) -> int | None:
    """The size of queue files at the last checkpoint; None if there is no checkpoint."""
    size = (read_json_state(fs, checkpoint) or {}).get("file_size_bytes")
    return size if isinstance(size, int) else None


def saved_queues(fs: FileSystem, checkpoint: Path) -> dict[QueueId, SavedQueue]:
    """What the last checkpoint says of each queue; nothing when there is none, or it is damaged: `resume` judges it."""
    state = read_json_state(fs, checkpoint) or {"next_offset": 0, "queues": {}}
    try:
        next_offset = int(state["next_offset"])
        return {
            (str(topic), int(queue_id)): SavedQueue(int(first), int(end), int(crc), next_offset)
            for topic, queues in state["queues"].items()
            for queue_id, first, end, crc in queues
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def saved_ext_file_size_bytes(fs: FileSystem, checkpoint: Path) -> int:
    """The size of files of ConsumeQueueExt at the last checkpoint; 0 if there were none, or no checkpoint."""
    return _ext_size_of(read_json_state(fs, checkpoint) or {})


def _ext_size_of(state: Mapping[str, Any]) -> int:
    """The same, of a checkpoint that may be damaged: a file that holds no unit was none."""
    size = state.get("ext_file_size_bytes")
    return size if isinstance(size, int) and bare_unit_count(size) > 0 else 0


def checkpoint_state(
    table: ConsumeQueueTable,
    next_offset: int,
    store_time_millis: int,
    *,
    last_record: LastRecord | None,
    is_clean: bool,
) -> Callable[[], dict[str, Any]]:
    """A checkpoint: everything before an offset is applied. It is as of this call.

    Returns:
        a function that gives it. Call it, on any thread, when everything that waits now is written, and all is flushed.
    """
    noted = [
        (
            key,
            queue,
            None if queue.units.is_waiting else (queue.units.end, queue.tail_crc(), queue.written_now),
            queue.first_file_offset,
            queue.ext_first_byte,
        )
        for key, queue in table.all()
    ]
    rest = _state(table, next_offset, store_time_millis, last_record) | {"clean": is_clean, "ours": table.is_ours}

    def state() -> dict[str, Any]:
        rows = []
        written_crcs: dict[
            str, list[list[int]]
        ] = {}  # of the files that are being filled; versions before do not read it
        for key, queue, known, first, ext_first in noted:
            end, tail_crc, (first_byte, end_byte, crc) = known or queue.noted
            rows.append((key, ext_first, end, tail_crc, first if known else queue.first_file_offset))
            if first_byte >= 0 and first_byte + end_byte == end * UNIT_SIZE_BYTES:
                written_crcs.setdefault(key[0], []).append([key[1], first_byte, crc])
        return rest | _rows(rows) | {"written_crcs": written_crcs}

    return state


def save_replay_mark(fs: FileSystem, path: Path, table: ConsumeQueueTable) -> None:
    """Writes the checkpoint of a replay that has confirmed nothing yet."""
    write_json_state(fs, path, replay_state(table, -1, 0, None))


def replay_state(
    table: ConsumeQueueTable, next_offset: int, store_time_millis: int, last_record: LastRecord | None
) -> dict[str, Any]:
    """The checkpoint of a running replay: how far each queue is confirmed. Write it when that is flushed."""
    rows = [
        (key, queue.ext_first_byte, queue.replayed, queue.tail_crc_before(queue.replayed), queue.first_file_offset)
        for key, queue in table.items()
        if queue.replayed is not None
    ]
    own: dict[str, list[list[int]]] = {}  # what the replay has not come to, and is certainly ours
    for (topic, queue_id), queue in table.items():
        if queue.own_end > (queue.replayed or 0):
            own.setdefault(topic, []).append([queue_id, queue.first_file_offset, queue.own_end, queue.own_crc])
    state = _state(table, next_offset, store_time_millis, last_record) | _rows(rows)
    return state | {"clean": False, "replay": True, "own": own}


def _rows(rows: Sequence[tuple[QueueId, int, int, int, int]]) -> dict[str, Any]:
    """The queues of a checkpoint.

    Args:
        rows: for each the first byte of its ConsumeQueueExt (-1: none), its end, the CRC of its last units, and its first byte.
    """
    queues: dict[str, list[list[int]]] = {}
    ext_firsts: dict[str, list[list[int]]] = {}
    for (topic, queue_id), ext_first, end, crc, first in sorted(rows):
        queues.setdefault(topic, []).append([queue_id, first, end, crc])
        if ext_first >= 0:
            ext_firsts.setdefault(topic, []).append([queue_id, ext_first])
    return {"queues": queues, "ext_firsts": ext_firsts}


def _state(
    table: ConsumeQueueTable,
    next_offset: int,
    store_time_millis: int,
    last_record: LastRecord | None,
) -> dict[str, Any]:
    """What both checkpoints have beside their queues."""
    return {
        "version": VERSION,
        "next_offset": next_offset,
        "store_time_millis": store_time_millis,
        "last_record": [last_record.commit_log_offset, last_record.fingerprint] if last_record else None,
        "file_size_bytes": table.file_size_bytes,
        "ext_file_size_bytes": table.ext_file_size_bytes,
        # Light queues tell themselves by their names.
        "left_alone": sorted([topic, queue_id] for topic, queue_id in table.left_alone if not is_light_queue(topic)),
        "hidden": sorted(table.hidden),
        "batch_queues": table.batches.state(),
        "light": table.light.state(),
    }


def resume(
    fs: FileSystem,
    checkpoint: Path,
    table: ConsumeQueueTable,
    *,
    is_clean_store: bool,
    log_first_offset: int,
    log_size_bytes: int,
) -> Resume:
    """Brings a loaded table to the state at an offset from which the log can be followed.

    Args:
        fs: the file system.
        checkpoint: the builder's checkpoint file.
        table: all queues, loaded.
        is_clean_store: there is no abort marker.
        log_first_offset: the log's first record (bytes).
        log_size_bytes: from the log's first record to its end.
    """
    state = read_json_state(fs, checkpoint)
    found = _resume_own(state, table, log_first_offset) if state is not None else None
    table.as_saved.clear()
    if state is not None and (found is None or found.is_replay):
        _note_own(state, table)
    if found is not None:
        return found
    queues = [queue for _, queue in table.items()]
    is_whole = all(
        queue.is_whole(queue.first_file_offset, queue.units.end, queue.ext_first_byte) and queue.has_own_layout()
        for queue in queues
    )
    if state is None and is_clean_store and is_whole and log_size_bytes > ADOPTED_LOG_BYTES_MIN and queues:
        for queue in queues:
            queue.mark_all_dirty()
        return Resume(table.next_log_offset(), 0, is_replay=False)
    # Without queues there is nothing to compare with, and ordinary checkpoints can be written on the way.
    return Resume(-1, 0, is_replay=bool(queues), is_ours=not queues)


def _note_own(state: dict[str, Any], table: ConsumeQueueTable) -> None:
    """Notes what is certainly ours by a checkpoint that does not fit as a whole: all that it says of a queue that fits it.

    A broker that ran since has added units behind those. What a checkpoint says of a store that was taken as it is proves
    nothing, nor does one of a version that did not note it.
    """
    present = dict(table.items())
    try:
        if state["version"] != VERSION or state["file_size_bytes"] != table.file_size_bytes:
            return
        ext_size = _ext_size_of(state)
        ext_firsts = {
            (str(topic), int(queue_id)): int(first_byte)
            for topic, queues in state.get("ext_firsts", {}).items()
            for queue_id, first_byte in queues
        }
        whole = state["queues"] if state.get("ours") is True or state.get("replay") is True else {}
        for rows, size in ((whole, ext_size), (state.get("own", {}), 0)):
            for topic, queues in rows.items():
                for queue_id, first, end, crc in queues:
                    queue = present.get((str(topic), int(queue_id)))
                    if queue is not None:
                        ext_first = ext_firsts.get((str(topic), int(queue_id)), -1)
                        queue.note_own_row(int(first), int(end), int(crc), size, ext_first)
    except (KeyError, TypeError, ValueError, AttributeError):
        return


def _resume_own(state: dict[str, Any], table: ConsumeQueueTable, log_first_offset: int) -> Resume | None:
    """Cuts the files back to a checkpoint; None if it does not fit them."""
    try:
        saved = {
            (str(topic), int(queue_id)): (int(first), int(end), int(crc))
            for topic, queues in state["queues"].items()
            for queue_id, first, end, crc in queues
        }
        last_record = LastRecord(*map(int, state["last_record"])) if state["last_record"] else None
        is_clean = bool(state["clean"])
        found = Resume(
            int(state["next_offset"]),
            int(state["store_time_millis"]),
            is_replay=False,
            is_marked=not is_clean,
            last_record=last_record,
            runs=runs_of_state(state.get("time_runs")),
            is_ours=state.get("ours") is True,
        )
        written = {
            (str(topic), int(queue_id)): (int(first_byte), int(crc))
            for topic, queues in state.get("written_crcs", {}).items()
            for queue_id, first_byte, crc in queues
        }
        ext_firsts = {
            (str(topic), int(queue_id)): int(first_byte)
            for topic, queues in state.get("ext_firsts", {}).items()
            for queue_id, first_byte in queues
        }
        left_alone = [(str(topic), int(queue_id)) for topic, queue_id in state.get("left_alone", ())]
        if state["version"] != VERSION or state["file_size_bytes"] != table.file_size_bytes or found.next_offset < 0:
            return None
        if state.get("ext_file_size_bytes", 0) != table.ext_file_size_bytes:
            return None  # all units get other tags codes
        if state.get("hidden") and "batch_queues" not in state:
            return None  # of an older version: the ranges of these topics are not known
        batches = state.get("batch_queues", {})
        found = replace(found, batch_queues=batches, hidden=batch_topics(batches, log_first_offset))
        if "light" in state:
            if not table.light.resume(state["light"]):
                return None
            found = replace(found, has_light=True)
        if set(map(str, state.get("hidden", ()))) - found.hidden - table.hidden.keys():
            return None  # records of these topics before the checkpoint were left out, and their queues are served now
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    present = {queue_id: queue for queue_id, queue in table.items() if queue_id[0] not in found.hidden}
    for queue_id in left_alone:
        if present.pop(queue_id, None) is not None:
            table.leave_alone(queue_id)
    if state.get("replay"):
        return _resume_replay(found, saved, ext_firsts, present)
    for queue_id, (first, end, crc) in saved.items():
        queue = present.get(queue_id)
        if queue is not None and queue_id in table.as_saved:
            continue
        if queue is None or not queue.is_whole(first, end, ext_firsts.get(queue_id, -1)) or queue.units.end < end:
            return None
        if queue.units.end != end and is_clean:
            return None  # another program has written since the checkpoint
        if queue.tail_crc_before(end) != crc or queue.units.next_log_offset_before(end) > found.next_offset:
            return None
    if is_clean and present.keys() != saved.keys():
        return None
    unknown = [
        queue_id
        for queue_id, queue in present.items()
        if queue_id not in saved and not _is_ours(queue, found.next_offset, table)
    ]
    try:
        dispatched = {each for each in unknown if table.is_dispatched(each[0], present[each], log_first_offset)}
    except StoreRecoveringError:
        return None
    # Their topics were not hidden at the checkpoint, see above. So no record before it is of these queues, and nothing of the
    # log has to be applied again for them.
    for queue_id in unknown:
        queue = present.pop(queue_id)
        if queue_id in dispatched:
            table.leave_alone(queue_id)
        else:
            queue.keep_aside(UNKNOWN)
    for queue_id, queue in present.items():
        first, end, _ = saved.get(queue_id, (0, 0, 0))
        # What we wrote since the checkpoint is of records behind it, and is written again from there.
        if not is_clean or queue_id not in table.as_saved:
            is_older = end < queue.units.end and queue.units.unit(end).commit_log_offset < found.next_offset
            queue.cut(end, why_aside=OLDER if is_older else "")
            queue.drop_before(first, ext_firsts.get(queue_id, -1))
        if queue_id in written:
            first_byte, crc = written[queue_id]
            queue.learn(first_byte, end * UNIT_SIZE_BYTES - first_byte, crc)
    table.drop_empty()
    return found


def _is_ours(queue: ConsumeQueue, next_offset: int, table: ConsumeQueueTable) -> bool:
    """Whether a queue that a checkpoint does not name was begun by us since then, so that following the log makes it again."""
    if queue.units.end <= queue.units.begin:
        return True
    begin = queue.units.real_from(queue.units.begin)
    unit = queue.units.unit(begin)
    if begin >= queue.units.end or unit.is_empty or unit.commit_log_offset < next_offset:
        return False
    try:
        return not table.keeper.can_look or table.keeper.is_own(queue.units.directory, begin, unit)
    except StoreRecoveringError:
        return True  # of a record behind the checkpoint, so it is compared when the log comes to it


def _resume_replay(
    found: Resume,
    saved: dict[QueueId, tuple[int, int, int]],
    ext_firsts: dict[QueueId, int],
    present: dict[QueueId, ConsumeQueue],
) -> Resume | None:
    """Continues a replay; None if the files no longer hold what it had confirmed."""
    for queue_id, (first, end, crc) in saved.items():
        queue = present.get(queue_id)
        if queue is None or not queue.is_whole(first, end, ext_firsts.get(queue_id, -1)) or queue.units.end < end:
            return None
        if queue.tail_crc_before(end) != crc:
            return None
    for queue_id, (_, end, _) in saved.items():
        present[queue_id].replayed = end
    return replace(found, is_replay=True, is_ours=False)
