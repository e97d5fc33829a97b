"""`reput fsck --release`: names what a store has that an earlier release does not support, before a downgrade to it.

Only files are read, so a store that is served may be asked, too. The rows of docs/upgrade.md say what becomes of each kind.
"""

from array import array
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state_topic import STATE_TOPIC, TOPIC, LoadedState, load_state
from services.following.state_topic.state_log import KIND_BY_TAGS_CODE
from services.following.state_topic.state_writer import FULL_BEGIN, FULL_END, STATE_QUEUE
from store.audit.findings import Findings
from store.audit.state_audit import REBUILD_MARK
from store.errors import RecordCorruptedError, ServiceUnavailableError, StoreCorruptedError, UnsupportedStoreError
from store.features.signs import read_signs
from store.features.table import found_features
from store.files.config_file import read_config_file
from store.files.file_system import FileSystem
from store.files.json_state import read_json_state
from store.files.open_files import OpenFiles
from store.format.delivery.consumer_files import PRIORITY_FACTOR_MAX
from store.format.derived.queue_unit import QueueUnit
from store.format.paths import commit_log_dir, log_file_name, own_state_dir, queue_dir, topics_file
from store.format.topic import decode_deleted_topics, decode_topic_rows
from store.readers.queue_reader import QueueExtUnits, QueueUnits
from store.walk.log_reader import LogReader

# Of each release that may follow this one on a store: the level of the states that it knows (`StateRecord.level`).
RELEASES = {"0.2.0": 0}
_LITE_LEVEL = 1  # lite topics, light queues, priorities, request modes, topics made anew, entries of tags
_TYPED = {"lite-topics": "LITE", "priority-topics": "PRIORITY"}
_SHOWN = 5
# Found in a log without queues: 24 bytes each. A service writes its full state again after 50,000 changes.
STATE_RECORD_COUNT_MAX = 10_000_000
# Records of state that the queue lacks, kept one by one; with more, the whole log is read.
BEHIND_COUNT_MAX = 100_000
_PROGRESS_RECORD_COUNT = 8_192


def unknown_to(
    fs: FileSystem, root: Path, release: str, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> Findings:
    """What a store has of which a release of RELEASES knows nothing, as findings; none: it goes on with all of it.

    What cannot be read is a finding, too. Of the log only that is read which the queues do not have, or all of it where they
    are not beside it, as in the volume of a commit log on Kubernetes.

    Args:
        fs: the file system.
        root: the store root.
        release: a name of RELEASES.
        on_progress: called with the bytes of log read, and all bytes of log; not where queues save reading it.

    Raises:
        UnsupportedStoreError: there are too many records of state behind the newest full state.
        ServiceUnavailableError: retention removed what was being read, or a queue is being built.
    """
    findings = Findings(root)
    if RELEASES[release] >= _LITE_LEVEL:
        return findings
    index = Path(own_state_dir(str(root), "index")) / "checkpoint.json"
    if (read_json_state(fs, index) or {}).get("tags_from") is not None:
        findings.add("RELEASE_INDEX_TAGS", index, 0, "the index has entries of tags")
    log = LogReader(root, fs)
    try:
        _add_topics(fs, root, findings)
        known = _of_queues(fs, root, log) or _of_log(fs, root, log, on_progress)
        loaded = load_state(known.first, known.end, known.read_units, partial(_bodies, log))
    except FileNotFoundError as error:
        raise ServiceUnavailableError(f"{error.filename} was removed while it was read: run this again") from error
    except (StoreCorruptedError, RecordCorruptedError) as error:
        findings.add("RELEASE_NOT_READ", commit_log_dir(str(root)), 0, error.message)
        return findings
    if known.light_count > 0:
        what = f"light queues (%LMQ%...) have {known.light_count} messages"
        findings.add("RELEASE_LIGHT_QUEUES", commit_log_dir(str(root)), 0, what, count=known.light_count)
    _add_groups(root, log, loaded, findings)
    return findings


def _add_topics(fs: FileSystem, root: Path, findings: Findings) -> None:
    path = Path(topics_file(str(root)))
    for found in found_features(read_signs(fs, root)):
        kind = _TYPED.get(found.feature.name)
        if kind is not None:
            what = f"{_named('topics', found.evidence)} of the type {kind}"
            findings.add("RELEASE_TOPIC_TYPES", path, 0, what, count=len(found.evidence))
    content, problem, _ = read_config_file(fs, path)
    if problem:
        findings.add("RELEASE_NOT_READ", path, 0, problem)
    if content is None:
        return
    first = min(LogReader(root, fs).file_offsets(), default=0)
    deleted = decode_deleted_topics(content)
    again = sorted(name for name in decode_topic_rows(content).topics if deleted.get(name, 0) > first)
    if again:
        what = f"{_named('topics', again)} deleted and made again, and the log still has messages of before"
        findings.add("RELEASE_TOPICS_MADE_AGAIN", path, 0, what, count=len(again))


def _add_groups(root: Path, log: LogReader, loaded: LoadedState, findings: Findings) -> None:
    groups = loaded.states.groups.values()
    at = max(loaded.first_offset, 0)
    path = Path(commit_log_dir(str(root))) / log_file_name(max((n for n in log.file_offsets() if n <= at), default=0))

    def add(code: str, what: str, has: Callable[[GroupSettings], bool]) -> None:
        names = sorted(group.settings.consumer_group for group in groups if has(group.settings))
        if names:
            text = f"{_named('groups', names)} {what}; the log has their state from byte {at} on"
            findings.add(code, path, at - int(path.name), text, commit_log_offset=at, count=len(names))

    add("RELEASE_LITE_GROUPS", "consume lite topics", lambda settings: settings.lite is not None)
    add("RELEASE_REQUEST_MODES", "have request modes", lambda settings: bool(settings.request_modes))
    add(
        "RELEASE_PRIORITY_FACTORS",
        "have a priority factor",
        lambda settings: settings.priority_factor != PRIORITY_FACTOR_MAX,
    )


class _Known(NamedTuple):
    """What is read of a store: messages in light queues, and the state topic's queue, as `load_state` takes it."""

    light_count: int
    first: int
    end: int
    read_units: Callable[[int, int], Sequence[QueueUnit]]


def _of_queues(fs: FileSystem, root: Path, log: LogReader) -> _Known | None:
    """From the files of the queues, and from the log behind them; None where they are not built, not whole, or not there."""
    state = read_json_state(fs, Path(own_state_dir(str(root), "consumequeue")) / "checkpoint.json") or {}
    log_first_offset = min(log.file_offsets(), default=0)
    try:
        next_offset, file_size_bytes = int(state["next_offset"]), int(state["file_size_bytes"])
        light = state.get("light") or {"begin": 0, "end": 0}
        light_count = int(light["end"]) - int(light["begin"])
        if next_offset == REBUILD_MARK or state.get("replay") or int(light.get("next_offset", -1)) >= 0:
            return None
    except (KeyError, TypeError, ValueError):
        return None
    files = OpenFiles(fs)
    directory = Path(queue_dir(str(root), STATE_TOPIC, STATE_QUEUE))
    queue, ext = QueueUnits(files, directory, file_size_bytes), QueueExtUnits(files, directory)
    queue.load()
    if not queue.end:  # no group has state, or somebody removed the queue
        return None
    behind: list[QueueUnit] = []
    for request in log.dispatch_requests(next_offset, whole=True):
        light_count += len(request.light_places)
        if (request.topic, request.queue_id) == (STATE_TOPIC, STATE_QUEUE) and request.queue_offset >= queue.end:
            behind.append(QueueUnit(request.commit_log_offset, request.record_size_bytes, request.tags_code))
            if request.queue_offset != queue.end + len(behind) - 1 or len(behind) > BEHIND_COUNT_MAX:
                return None

    def read_units(at: int, count: int) -> Sequence[QueueUnit]:
        stored = max(min(count, queue.end - at), 0)
        units = list(ext.resolved(unit for _, unit in queue.units(at, stored, log_first_offset))) if stored else []
        from_log = max(at - queue.end, 0)
        return units + behind[from_log : from_log + count - stored]

    return _Known(light_count, queue.min_offset(log_first_offset), queue.end + len(behind), read_units)


def _of_log(fs: FileSystem, root: Path, log: LogReader, on_progress: Callable[[int, int], None]) -> _Known:
    """The same, from all records of the log; what lies before the newest full state of this release is not kept."""
    numbers = array("q")  # three for each unit
    first = begin = light_count = 0
    total = sum(fs.stat_size(Path(commit_log_dir(str(root))) / log_file_name(each)) for each in log.file_offsets())
    for count, request in enumerate(log.dispatch_requests(whole=True)):
        if count % _PROGRESS_RECORD_COUNT == 0:
            on_progress(request.commit_log_offset - min(log.file_offsets(), default=0), total)
        light_count += len(request.light_places)
        if (request.topic, request.queue_id) != (STATE_TOPIC, STATE_QUEUE):
            continue
        if not numbers:
            first = begin = request.queue_offset
        unit = QueueUnit(request.commit_log_offset, request.record_size_bytes, request.tags_code)
        numbers.extend(unit)
        kind = KIND_BY_TAGS_CODE.get(unit.tags_code)
        if kind == FULL_BEGIN:
            begin = request.queue_offset
        elif kind == FULL_END and _level_of(log, unit) >= TOPIC.level:
            del numbers[: 3 * (begin - first)]
            first = begin
        if len(numbers) > 3 * STATE_RECORD_COUNT_MAX:
            raise UnsupportedStoreError(
                f"the log of {root} has more than {STATE_RECORD_COUNT_MAX} records of state behind the newest full state: "
                "serve the store with this release until its consumer service has started, and run this again",
                directory=root,
            )

    def read_units(at: int, count: int) -> Sequence[QueueUnit]:
        found = numbers[3 * (at - first) : 3 * (at - first + count)]
        return [QueueUnit(*found[place : place + 3]) for place in range(0, len(found), 3)]

    return _Known(light_count, first, first + len(numbers) // 3, read_units)


def _level_of(log: LogReader, unit: QueueUnit) -> int:
    (body,) = _bodies(log, [unit])
    return TOPIC.level_of(TOPIC.record_of(unit.commit_log_offset, body))


def _bodies(log: LogReader, units: Sequence[QueueUnit]) -> Sequence[bytes]:
    return [log.record(unit.commit_log_offset, unit.record_size_bytes).body for unit in units]


def _named(kind: str, names: Collection[str]) -> str:
    """`3 topics (a, b, c)`; of many the first few."""
    shown = ", ".join(list(names)[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{len(names)} {kind} ({shown})"
