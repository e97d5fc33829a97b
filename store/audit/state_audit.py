"""Audits checkpoints and other state: `checkpoint`, our own state in `reput/`, `abort`, `config/topics.json`.

Our own state can always be derived from the log: a file that contradicts the log is reported, and its owner ignores it. Files
are read before the walk over the log, because they name the offsets that the walk must watch, and checked after it.
"""

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.audit.findings import Findings
from store.audit.log_audit import LogAudit, LogFiles, LogSummary, QueueId
from store.errors import StoreCorruptedError
from store.features.signs import read_signs
from store.features.table import found_features, hidden_queues
from store.files.config_file import DAMAGED_SUFFIX, read_config_file
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes
from store.files.locks import has_abort_marker
from store.format.checkpoint import CHECKPOINT_SIZE_BYTES, DURABLE_MARK_NAME, decode_checkpoint, decode_durable_mark
from store.format.config_json import TABLES
from store.format.delivery.config_rows import unreadable_rows
from store.format.derived.index_layout import HEADER_SIZE, decode_index_header
from store.format.paths import checkpoint_file, commit_log_dir, config_dir, index_dir, own_state_dir, topics_file
from store.format.topic import TOPIC_NAME_SHOWN, decode_topic_rows, is_light_queue
from store.readers.index_reader import IndexLayout
from store.store_time import AHEAD_MILLIS_MAX

REBUILD_MARK = -1
TOPICS_NAME = "topics.json"


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """`reput/commitlog/snapshot.json`."""

    commit_log_offset: int
    last_record: tuple[int, int] | None
    last_record_crc: int
    queue_offsets: dict[QueueId, int]


@dataclass(frozen=True, slots=True)
class QueueState:
    """`reput/consumequeue/checkpoint.json`; `ends` are the queues' ends in units, the queues of `hidden` topics have none."""

    next_offset: int
    is_clean: bool
    ends: dict[QueueId, int]
    hidden: frozenset[str]


@dataclass(frozen=True, slots=True)
class IndexState:
    """`reput/index/checkpoint.json`."""

    next_offset: int
    is_clean: bool
    layout: IndexLayout
    files: list[str]
    header: list[int]
    tags_from: int | None


class StateAudit:
    """Reads the small files of a root, and checks them once the log is known.

    Args:
        fs: the disk port.
        root: the store root.
        findings: gets what is wrong.

    Attributes:
        durable_offset: the offset in the durable mark (bytes); None without one.
        snapshot, queues, index: None when absent or damaged.
    """

    def __init__(self, fs: FileSystem, root: Path, findings: Findings) -> None:
        self._fs = fs
        self._root = root
        self._findings = findings
        self.paths = {
            "snapshot": Path(own_state_dir(str(root), "commitlog")) / "snapshot.json",
            "durable": Path(own_state_dir(str(root), "commitlog")) / DURABLE_MARK_NAME,
            "queues": Path(own_state_dir(str(root), "consumequeue")) / "checkpoint.json",
            "index": Path(own_state_dir(str(root), "index")) / "checkpoint.json",
        }
        self.durable_offset = self._read_durable()
        self.snapshot: SnapshotState | None = self._read("snapshot", _snapshot_of)
        self.queues: QueueState | None = self._read("queues", _queues_of)
        self.index: IndexState | None = self._read("index", _index_of)

    @property
    def watched(self) -> set[int]:
        """Offsets that the walk must watch (bytes)."""
        offsets = {state.next_offset for state in (self.queues, self.index) if state is not None}
        return offsets | ({self.snapshot.commit_log_offset} if self.snapshot is not None else set())

    @property
    def index_unflushed_from(self) -> str | None:
        """Name of the index file that was being filled when its owner was killed; None when there was none."""
        if self.index is None or self.index.is_clean:
            return None
        return self.index.files[-1] if self.index.files else ""

    def finish(self, log: LogAudit, files: LogFiles, topics: Iterable[str]) -> None:
        """Checks everything.

        Args:
            log: after its run.
            files: the log's files.
            topics: topics with a queue or a record.
        """
        summary = log.summary
        self._judge_checkpoint(summary)
        self._judge_snapshot(log, files)
        self._judge_queues(log, files)
        self._judge_index(log, files)
        self._judge_topics(set(topics))
        self._judge_config()
        self._judge_times(log.summary.last_store_time_millis)
        if has_abort_marker(self._fs, self._root):
            self._findings.add("ABORT_FOUND", self._root / "abort", 0, "the marker of a running store exists")

    # -- reading

    def _read(self, name: str, decode: Callable[[Any], Any]) -> Any:
        data = read_bytes(self._fs, self.paths[name])
        if data is None:
            return None
        try:
            state = json.loads(data)
            # A rebuild has begun: its owner continues it in any case.
            return None if state.get("next_offset") == REBUILD_MARK else decode(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
            self._findings.add(
                "STATE_DAMAGED", self.paths[name], 0, f"it cannot be read ({type(error).__name__}: {error})"
            )
            return None

    def _read_durable(self) -> int | None:
        data = read_bytes(self._fs, self.paths["durable"])
        if not data:
            return None
        offset = decode_durable_mark(data)
        if offset is None:
            self._findings.add("STATE_DAMAGED", self.paths["durable"], 0, "its CRC does not match its offset")
        return offset

    # -- checking

    def _judge_checkpoint(self, summary: LogSummary) -> None:
        path = Path(checkpoint_file(str(self._root)))
        data = read_bytes(self._fs, path)
        if data is None:
            if summary.record_count:
                self._findings.add("CHECKPOINT_MISSING", path, 0, "it does not exist")
            return
        try:
            checkpoint = decode_checkpoint(data)
        except StoreCorruptedError:
            self._findings.add(
                "CHECKPOINT_DAMAGED", path, len(data), f"it has {len(data)} bytes, not {CHECKPOINT_SIZE_BYTES}"
            )
            return
        if len(data) != CHECKPOINT_SIZE_BYTES:
            self._findings.add(
                "CHECKPOINT_DAMAGED", path, len(data), f"it has {len(data)} bytes, not {CHECKPOINT_SIZE_BYTES}"
            )
        times = (
            ("log", checkpoint.physic_msg_timestamp),
            ("queues", checkpoint.logics_msg_timestamp),
            ("index", checkpoint.index_msg_timestamp),
        )
        for number, (name, millis) in enumerate(times):
            if millis < 0:
                self._findings.add("CHECKPOINT_DAMAGED", path, number * 8, f"its time for the {name} is {millis}")
            elif millis > summary.last_store_time_millis:
                self._findings.add(
                    "CHECKPOINT_AHEAD", path, number * 8,
                    f"its time for the {name} is {millis}, the newest record of the log is of {summary.last_store_time_millis}",
                )  # fmt: skip
        if checkpoint.confirm_phy_offset > summary.end_offset:
            self._findings.add(
                "CHECKPOINT_AHEAD", path, 32,
                f"its confirmed offset is {checkpoint.confirm_phy_offset}, the log ends at {summary.end_offset}",
            )  # fmt: skip

    def _judge_snapshot(self, log: LogAudit, files: LogFiles) -> None:
        snapshot, path = self.snapshot, self.paths["snapshot"]
        if snapshot is None or snapshot.last_record is None:
            return
        offset = snapshot.commit_log_offset
        if offset <= log.summary.first_offset:
            return  # its part of the log was removed: recovery ignores it
        if offset > log.summary.end_offset:
            self._findings.add(
                "STATE_AHEAD", path, 0, f"its offset is {offset}, the log ends at {log.summary.end_offset}",
                commit_log_offset=offset,
            )  # fmt: skip
            return
        here = log.boundaries.get(offset)
        if here is None or here[1] != snapshot.last_record:
            self._findings.add("STATE_WRONG", path, 0, f"no record ends at {offset}", commit_log_offset=offset)
            return
        if zlib.crc32(files.runs[0].read(*snapshot.last_record)) != snapshot.last_record_crc:
            self._findings.add(
                "STATE_WRONG", path, 0, f"the record before {offset} is a different one", commit_log_offset=offset
            )
            return
        wrong = [key for key, end in here[0].items() if snapshot.queue_offsets.get(key) != end]
        for topic, queue_id in wrong[:1]:
            self._findings.add(
                "STATE_WRONG", path, 0,
                f"queue {topic}/{queue_id} continues at {here[0][topic, queue_id]}, "
                f"it says {snapshot.queue_offsets.get((topic, queue_id))} ({len(wrong)} queues differ)",
                commit_log_offset=offset, count=len(wrong),
            )  # fmt: skip

    def _judge_queues(self, log: LogAudit, files: LogFiles) -> None:
        state, path = self.queues, self.paths["queues"]
        if state is None or not self._judge_next_offset(path, state.next_offset, log, files):
            return
        here = log.boundaries.get(state.next_offset)
        if here is None:
            return
        hidden = hidden_queues(found_features(read_signs(self._fs, self._root))).keys() | state.hidden
        wrong = [
            (topic, queue_id)
            for (topic, queue_id), end in here[0].items()
            if topic not in hidden and not is_light_queue(topic) and state.ends.get((topic, queue_id)) != end
        ]
        for topic, queue_id in wrong[:1]:
            self._findings.add(
                "STATE_WRONG", path, 0,
                f"queue {topic}/{queue_id} ends at {here[0][topic, queue_id]}, it says {state.ends.get((topic, queue_id))} "
                f"({len(wrong)} queues differ)",
                commit_log_offset=state.next_offset, count=len(wrong),
            )  # fmt: skip

    def _judge_index(self, log: LogAudit, files: LogFiles) -> None:
        state, path = self.index, self.paths["index"]
        if state is None or not self._judge_next_offset(path, state.next_offset, log, files):
            return
        if state.tags_from is not None and state.tags_from > log.summary.first_offset:
            self._findings.add(
                "INDEX_TAGS_FROM", path, 0, f"messages before {state.tags_from} may have no entry of their tags",
                commit_log_offset=state.tags_from,
            )  # fmt: skip
        directory = Path(index_dir(str(self._root)))
        missing = [name for name in state.files if not self._fs.exists(directory / name)]
        if missing:
            self._findings.add("STATE_WRONG", path, 0, f"index file {missing[0]} is missing", count=len(missing))
        elif state.files and state.is_clean:
            data = self._header(directory / state.files[-1])
            if data is not None and list(decode_index_header(data)) != state.header:
                self._findings.add("STATE_WRONG", path, 0, f"the header of index file {state.files[-1]} is different")

    def _header(self, path: Path) -> bytes | None:
        fd = self._fs.open(path, os.O_RDONLY)
        try:
            data = self._fs.pread(fd, HEADER_SIZE, 0)
        finally:
            self._fs.close(fd)
        return data if len(data) == HEADER_SIZE else None

    def _judge_next_offset(self, path: Path, offset: int, log: LogAudit, files: LogFiles) -> bool:
        """Whether an owner can continue at that offset."""
        summary = log.summary
        if offset > summary.end_offset:
            self._findings.add(
                "STATE_AHEAD", path, 0, f"it continues at {offset}, the log ends at {summary.end_offset}",
                commit_log_offset=offset,
            )  # fmt: skip
            return False
        # Records begin at the start of a file and behind a record; behind a blank a file starts.
        if offset < summary.first_offset or offset in log.boundaries or offset in files.sizes:
            return True
        if offset == summary.end_offset:
            return True
        self._findings.add(
            "STATE_WRONG", path, 0, f"it continues at {offset}, where no record begins", commit_log_offset=offset
        )
        return False

    def _judge_times(self, greatest_millis: int) -> None:
        ahead_millis = greatest_millis - time.time_ns() // 1_000_000
        if ahead_millis > AHEAD_MILLIS_MAX:
            path = Path(commit_log_dir(str(self._root)))
            self._findings.add("LOG_TIME_AHEAD", path, 0, f"a record is {ahead_millis // 1000} s ahead of the clock")

    def _judge_config(self) -> None:
        directory = Path(config_dir(str(self._root)))
        names = sorted(self._fs.listdir(directory)) if self._fs.is_dir(directory) else []
        for name in names:
            if DAMAGED_SUFFIX in name:
                self._findings.add("CONFIG_KEPT_ASIDE", directory / name, 0, "a damaged file was kept")
            elif name in TABLES and name != TOPICS_NAME:
                found = read_config_file(self._fs, directory / name)
                if found.problem:
                    self._findings.add("CONFIG_DAMAGED", directory / name, 0, found.problem)
                for row, why in unreadable_rows(name, found.content).items():
                    self._findings.add(
                        "CONFIG_ROW_UNREADABLE", directory / name, 0, f"{row[:TOPIC_NAME_SHOWN]!r}: {why}"
                    )

    def _judge_topics(self, topics: set[str]) -> None:
        path = Path(topics_file(str(self._root)))
        found = read_config_file(self._fs, path)
        if found.problem:
            self._findings.add("TOPICS_DAMAGED", path, 0, found.problem)
        if found.content is None:
            return
        known, unreadable = decode_topic_rows(found.content)
        for name, row in unreadable.items():
            shown = repr(name[:TOPIC_NAME_SHOWN])
            self._findings.add("TOPIC_ROW_UNREADABLE", path, 0, f"topic {shown}: {row.problem}")
        missing = sorted(topics - known.keys() - unreadable.keys())
        if missing:
            names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            self._findings.add(
                "TOPICS_MISSING",
                path,
                0,
                f"{len(missing)} topics with messages are not in it: {names}",
                count=len(missing),
            )


def _snapshot_of(state: dict[str, Any]) -> SnapshotState:
    last = state["last_record"]
    return SnapshotState(
        int(state["commit_log_offset"]),
        (int(last[0]), int(last[1])) if last else None,
        int(state["last_record_crc"]),
        {
            (topic, int(queue_id)): int(end)
            for topic, queues in state["queue_offsets"].items()
            for queue_id, end in queues.items()
        },
    )


def _queues_of(state: dict[str, Any]) -> QueueState:
    return QueueState(
        _offset(state["next_offset"]),
        bool(state["clean"]),
        {
            (topic, int(queue_id)): int(end)
            for topic, queues in state["queues"].items()
            for queue_id, _, end, *_ in queues
        },
        frozenset(map(str, state.get("hidden", ()))),
    )


def _index_of(state: dict[str, Any]) -> IndexState:
    layout = IndexLayout(int(state["slot_count"]), int(state["entry_count_max"]))
    if layout.slot_count < 1 or layout.entry_count_max < 2:
        raise ValueError(f"{layout} is not a layout")
    return IndexState(
        _offset(state["next_offset"]),
        bool(state["clean"]),
        layout,
        [_plain_name(name) for name in state["files"]],
        [int(number) for number in state["header"]],
        _offset(state["tags_from"]) if state.get("tags_from") is not None else None,
    )


def _offset(value: Any) -> int:
    number = int(value)
    if number < 0:
        raise ValueError(f"{number} is not an offset")
    return number


def _plain_name(value: Any) -> str:
    """The name of an index file, from it alone or from a row that begins with it."""
    name = str(value[0] if isinstance(value, list) else value)
    if not name.isascii() or not name.isdigit():
        raise ValueError(f"{name!r} is not the name of an index file")
    return name
