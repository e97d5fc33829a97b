"""Repair of a store root: queues, indexes and checkpoints are made again from the log; the log is changed only on request.

The root is locked as its services lock it and marked as open (`abort`): a service or broker that starts after a crash
of the repair recovers. The owners' checkpoints are replaced by marks that fit no files. Wrong files move to
`reput/fsck/<n>/`. The builders of the services write them again, from the part of the log that recovery would accept.
Then the audit runs again; it decides whether the store is clean.

Rules:
- `commitlog/` is not touched without `--repair-log`. While good records lie behind a damaged place, nothing is
  rebuilt: queues and indexes have entries that the readable log does not have.
- Queues that agree with the log stay; all index files are made again, because each begins where the one before ends.
- A queue without a record in the log is repaired in place (`mend_retired_queue`): only its files have its end.

A log is cut (`cut_log`) at its first damage: the bytes before it stay in place, the bytes behind it are kept aside. The steps,
each on the disk before the next: copy the bytes behind the cut; move later files away, the last one first;
remove what records the old end; zero the rest of the cut file. After a crash in between the log is still damaged at
that place and can be cut again.

Of a queue whose records were all removed by retention the log no longer has the content. Its units point to records that cannot
be read. Its end is what must be right, because the next message continues there. So a unit that cannot be right becomes a
filler, and the end stays behind the last plausible unit and what directly follows it.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from store.audit.findings import Findings, Repair
from store.audit.log_audit import LogFiles, walk_sound_part
from store.audit.store_audit import StoreAudit, audit_store
from store.derive.dispatch import DispatchRequest
from store.errors import StoreCorruptedError
from store.files.aside import Aside
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, write_bytes_atomic
from store.files.locks import BrokerLock, OwnerLock, create_abort_marker, has_abort_marker, remove_abort_marker
from store.files.mapped_files import MappedFile
from store.files.open_files import OpenFiles
from store.format.checkpoint import StoreCheckpoint, decode_checkpoint, encode_checkpoint
from store.format.derived.queue_unit import FILLER, UNIT_SIZE_BYTES, decode_queue_units, encode_queue_unit
from store.format.paths import (
    CONSUME_QUEUE_EXT,
    checkpoint_file,
    index_dir,
    lock_file,
    log_file_name,
    own_state_dir,
    queue_dir,
)
from store.format.properties import dispatched_to
from store.readers.index_reader import IndexLayout
from store.readers.queue_reader import file_offsets

BATCH_REQUEST_COUNT = 8192
QUEUE_CODES = (
    "QUEUE_MISSING_UNITS", "QUEUE_BEHIND_LOG", "QUEUE_SURPLUS_UNITS", "QUEUE_UNIT_WRONG", "QUEUE_UNIT_ORDER",
    "QUEUE_FILE_SIZE", "QUEUE_FILE_NAME", "QUEUE_FILE_MISSING", "QUEUE_UNITS_OF_DAMAGED_RECORDS",
    "LIGHT_UNIT_WRONG", "LIGHT_UNIT_MISSING",
)  # fmt: skip
INDEX_CODES = (
    "INDEX_MISSING_KEYS", "INDEX_BEHIND_LOG", "INDEX_SURPLUS_ENTRIES", "INDEX_ENTRY_WRONG", "INDEX_CYCLE",
    "INDEX_CHAIN_WRONG", "INDEX_SLOT_WRONG", "INDEX_HEADER_WRONG", "INDEX_UNREADABLE", "INDEX_FILE_SIZE", "INDEX_FILE_NAME",
    "INDEX_UNFLUSHED", "INDEX_ENTRIES_OF_DAMAGED_RECORDS",
)  # fmt: skip
CHECKPOINT_CODES = ("CHECKPOINT_AHEAD", "CHECKPOINT_DAMAGED")
STATE_CODES = ("STATE_DAMAGED", "STATE_AHEAD", "STATE_WRONG")


@dataclass(slots=True)
class RepairReport:
    """The steps that a repair took, in order."""

    before: Findings
    lines: list[str] = field(default_factory=list)
    directory: str | None = None
    moved: list[str] = field(default_factory=list)
    has_repaired: bool = False
    log_cut_offset: int | None = None
    records_cut: int = 0

    def as_json(self) -> dict[str, Any]:
        """For the command's JSON."""
        return {
            "found_counts": dict(sorted(self.before.counts.items())),
            "log_cut_offset": self.log_cut_offset,
            "records_cut": self.records_cut,
            "kept_in": self.directory,
            "moved": self.moved,
            "steps": self.lines,
        }


@contextlib.contextmanager
def locked_root(root: Path) -> Iterator[None]:
    """Lock every part of a root, as its services do; StoreLockedError when a process has it open."""
    with contextlib.ExitStack() as held:
        for component in ("commitlog", "consumequeue", "index", "consumer", "schedule"):
            owner = OwnerLock(Path(own_state_dir(str(root), component)) / "lock", wait_seconds=0)
            owner.acquire()
            held.callback(owner.release)
        broker = BrokerLock(Path(lock_file(str(root))), wait_seconds=0)
        broker.acquire()
        held.callback(broker.release)
        yield


class Repairer:
    """Repairs one root.

    Args:
        fs: the file system.
        root: the store root.
        on_progress: called with the bytes of log read, and all bytes of log.
    """

    def __init__(self, fs: FileSystem, root: Path, on_progress: Callable[[int, int], None]) -> None:
        self._fs = fs
        self._root = root
        self._on_progress = on_progress
        self._aside = Aside(fs, root)

    def run(self, confirm_cut: Callable[[str], bool] | None) -> tuple[StoreAudit, RepairReport]:
        """Audit, repair, and audit again.

        Args:
            confirm_cut: called before the log is cut; None: it must not be cut.

        Raises:
            StoreLockedError: a process has the root open.
            OSError, StoreError: the disk failed.
        """
        with locked_root(self._root):
            audit = audit_store(self._fs, self._root, on_progress=self._on_progress)
            report = RepairReport(audit.findings)
            lacks_tags = self._lacks_tags(audit)
            if audit.findings.is_clean and not lacks_tags:
                report.lines.append("nothing to repair")
                return audit, report
            with self._marked_open():
                if confirm_cut is not None and audit.findings.concerns(Repair.LOG):
                    audit = self._cut(audit, report, confirm_cut)
                if audit.log.lost:
                    report.lines.append(
                        "queues and indexes are unchanged: they may have entries for records behind the damaged part of the log"
                    )
                else:
                    self._repair_derived(audit, report, lacks_tags=lacks_tags)
            if self._aside.is_used:
                report.directory = str(self._aside.directory.relative_to(self._root))
                report.moved = self._aside.moved
                report.lines.append(f"{len(report.moved)} files and folders are kept in {report.directory}")
            if report.has_repaired:
                audit = audit_store(self._fs, self._root, on_progress=self._on_progress)
            return audit, report

    @contextlib.contextmanager
    def _marked_open(self) -> Iterator[None]:
        """Set the abort marker, and remove it after success unless it was there before."""
        was_there = has_abort_marker(self._fs, self._root)
        if not was_there:
            create_abort_marker(self._fs, self._root)
        yield
        if not was_there:
            remove_abort_marker(self._fs, self._root)

    # -- the log

    def _cut(self, audit: StoreAudit, report: RepairReport, confirm: Callable[[str], bool]) -> StoreAudit:
        log = audit.log
        lost = (
            f"{log.records_behind_damage} whole records behind it are lost to readers"
            if log.lost
            else "no whole record is lost"
        )
        if not confirm(
            f"Cut the log at {log.end_offset}? {lost[0].upper()}{lost[1:]}; all bytes are kept in reput/fsck/."
        ):
            report.lines.append("the log was not cut: it was not confirmed")
            return audit
        cut_log(self._fs, self._root, log.end_offset, self._aside)
        report.has_repaired = True
        report.log_cut_offset, report.records_cut = log.end_offset, log.records_behind_damage
        report.lines.append(f"the log was cut at {log.end_offset}: {lost}")
        return audit_store(self._fs, self._root, on_progress=self._on_progress)

    # -- what is derived from it

    def _lacks_tags(self, audit: StoreAudit) -> bool:
        """Whether messages have no entry of their tags that the setting or the index service's checkpoint promises."""
        wanted = _setting("index", "tags", "auto")
        if audit.index_layout is None or wanted == "off":
            return False
        if wanted == "auto":
            return audit.findings.has(["INDEX_TAGS_FROM"])
        from store.readers.tag_entries import tag_entries_on_disk

        found = tag_entries_on_disk(self._fs, self._root, audit.index_layout)
        return found.complete_from is not None and found.complete_from > audit.log.first_offset

    def _repair_derived(self, audit: StoreAudit, report: RepairReport, *, lacks_tags: bool) -> None:
        findings = audit.findings
        state_files = {finding.file for finding in findings.kept if finding.code in STATE_CODES}
        queues = findings.has(QUEUE_CODES) or any(file.startswith("reput/consumequeue/") for file in state_files)
        index = lacks_tags or findings.has(INDEX_CODES)
        index = index or any(file.startswith("reput/index/") for file in state_files)
        for file in sorted(file for file in state_files if file.startswith("reput/commitlog/")):
            self._aside.move(self._root / file)
            report.lines.append(f"{file} was moved aside: its owner does without")
            report.has_repaired = True
        if findings.has(CHECKPOINT_CODES):
            self._write_checkpoint(audit)
            report.lines.append("checkpoint was written anew")
            report.has_repaired = True
        builders: list[Any] = []
        if queues:
            builders.append(self._queue_builder(audit, report))
        if index:
            builders.append(self._index_builder(audit, report))
        if builders:
            self._feed(builders, audit)
            report.has_repaired = True

    def _write_checkpoint(self, audit: StoreAudit) -> None:
        """Limit every number to the log; an unreadable one becomes 0, which makes a broker recover more."""
        path = Path(checkpoint_file(str(self._root)))
        try:
            old = decode_checkpoint(read_bytes(self._fs, path) or b"")
        except StoreCorruptedError:
            old = StoreCheckpoint()
        newest, end = audit.log.last_store_time_millis, audit.log.end_offset
        times = (old.physic_msg_timestamp, old.logics_msg_timestamp, old.index_msg_timestamp)
        physic, logics, index = (max(min(millis, newest), 0) for millis in times)
        fixed = StoreCheckpoint(
            physic, logics, index, min(old.master_flushed_offset, end), min(old.confirm_phy_offset, end), old.rest
        ).limited_to(end)
        self._aside.copy(path)
        write_bytes_atomic(self._fs, path, encode_checkpoint(fixed))

    def _queue_builder(self, audit: StoreAudit, report: RepairReport) -> Any:
        from consumequeue_svc.builder import ConsumeQueueBuilder
        from consumequeue_svc.consume_queue_table import ConsumeQueueTable
        from consumequeue_svc.recovery import save_replay_mark, saved_ext_file_size_bytes, saved_file_size_bytes
        from consumequeue_svc.unexplained import Keeper, RecordPlace
        from store.readers.queue_reader import detect_queue_file_size

        state = Path(own_state_dir(str(self._root), "consumequeue")) / "checkpoint.json"
        # A repair that ended in the middle may have left queue files that do not tell it.
        size = detect_queue_file_size(self._fs, self._root) or saved_file_size_bytes(self._fs, state)
        size = size or int(_setting("consumequeue", "file_size_bytes", audit.queue_file_size_bytes))
        ext_size = saved_ext_file_size_bytes(self._fs, state)

        def place_of(offset: int) -> RecordPlace | None:
            files = LogFiles(self._fs, self._root, Findings(self._root))
            try:
                record = files.record_at(offset)
            finally:
                files.close()
            if record is None:
                return None
            return RecordPlace(record.topic, record.queue_id, record.queue_offset, dispatched_to(record.properties))

        keeper = Keeper(self._aside, place_of)
        table = ConsumeQueueTable(
            self._root, self._fs, size, ext_file_size_bytes=ext_size, keeper=keeper, hidden=audit.hidden_queues
        )
        ext_directory = self._root / CONSUME_QUEUE_EXT
        if not ext_size:
            self._aside.move(ext_directory)  # a broker's: the units get their tags codes back
        if self._fs.exists(state):
            self._aside.copy(state)
        # Written first: it fits no files, and a repeated repair reads their size from it.
        save_replay_mark(self._fs, state, table)
        for topic, queue_id in sorted(audit.wrong_queues):
            directory = Path(queue_dir(str(self._root), topic, queue_id))
            if (topic, queue_id) in audit.queues_with_records:
                self._aside.move(directory)
                self._aside.move(ext_directory.joinpath(*directory.parts[-2:]))
            else:
                mend_retired_queue(self._fs, directory, table.file_size_bytes, audit.log.first_offset, self._aside)
        table.load()
        builder = ConsumeQueueBuilder(table, state)
        builder.recover(
            is_clean_store=False, log_first_offset=audit.log.first_offset, log_end_offset=audit.log.end_offset
        )
        builder.begin()
        report.lines.append(f"queues were built from the log, {len(audit.wrong_queues)} of them anew")
        return builder

    def _index_builder(self, audit: StoreAudit, report: RepairReport) -> Any:
        from index_svc.builder import IndexBuilder
        from index_svc.index_file_set import IndexFileSet
        from index_svc.recovery import TagsWanted, save_rebuild_mark, saved_layout, tags_from
        from store.readers.index_reader import list_index_files
        from store.readers.tag_entries import TagEntries, has_tag_entries

        state = Path(own_state_dir(str(self._root), "index")) / "checkpoint.json"
        layout = audit.index_layout or saved_layout(self._fs, state)
        if layout is None:
            slots, entries = (
                int(_setting("index", "hash_slot_count", 5_000_000)),
                int(_setting("index", "entry_count_max", 20_000_000)),
            )
            layout = IndexLayout(slots, entries)
        tags = cast(TagsWanted, _setting("index", "tags", "auto"))
        # All files are built again, so that from the log's begin on each record gets the entries that some had.
        had = TagEntries(has_tag_entries(self._fs, self._root, layout), 0)
        if self._fs.exists(state):
            self._aside.copy(state)
        save_rebuild_mark(self._fs, state, layout, tags_from=tags_from(tags, had, -1))
        for path in list_index_files(self._fs, self._root):
            self._aside.move(path)
        self._fs.mkdirs(Path(index_dir(str(self._root))))
        files = IndexFileSet(self._root, self._fs, layout, lambda: time.time_ns() // 1_000_000)
        builder = IndexBuilder(files, state)
        builder.recover(
            is_clean_store=False,
            log_first_offset=audit.log.first_offset,
            log_end_offset=audit.log.end_offset,
            first_indexed=lambda offset: None,
            find_tags=lambda: had,
            tags=tags,
        )
        builder.begin()
        of_tags = ", with entries of tags, as RocketMQ 5.5 writes them" if files.tags_from is not None else ""
        report.lines.append(f"indexes were built anew from the log{of_tags}")
        return builder

    def _feed(self, builders: list[Any], audit: StoreAudit) -> None:
        """Feed the sound part of the log to builders, in one pass."""
        first, end = audit.log.first_offset, audit.log.end_offset
        batch: list[DispatchRequest] = []

        def hand_over(next_offset: int) -> None:
            for builder in builders:
                builder.apply(batch, next_offset, first, end)
            batch.clear()

        def see(request: DispatchRequest) -> None:
            batch.append(request)
            if len(batch) >= BATCH_REQUEST_COUNT and request.next_offset < end:
                hand_over(request.next_offset)

        files = LogFiles(self._fs, self._root, Findings(self._root))
        try:
            walk_sound_part(files, end, see, lambda reached: self._on_progress(reached - first, audit.log.total_bytes))
        finally:
            files.close()
        hand_over(end)
        for builder in builders:
            builder.stop()


def _setting(component: str, name: str, default: object) -> str:
    """A setting as the service reads it, for what the store's own files do not tell."""
    from services.settings.setting_sources import config_rows

    environ = {key: value for key, value in os.environ.items() if key != "REPUT_ADDRESS"}
    for row in config_rows(environ=environ)[0]:
        if (row.setting.component, row.setting.name) == (component, name):
            return row.value
    return str(default)


def cut_log(fs: FileSystem, root: Path, end_offset: int, aside: Aside) -> None:
    """Make `end_offset` (bytes) the end of the log.

    Raises:
        OSError, StoreError: the disk failed; finished steps stay.
    """
    files = LogFiles(fs, root, Findings(root))
    files.close()
    size = files.file_size_bytes
    kept = {offset for offset in files.sizes if offset < end_offset} or set(list(files.sizes)[:1])
    for offset in sorted(kept):
        _keep_bytes_behind(fs, files, offset, end_offset, aside)
    for path in files.misplaced:
        aside.move(path)
    for offset in sorted(files.sizes.keys() - kept, reverse=True):
        aside.move(files.directory / f"{offset:020d}")
    state = Path(own_state_dir(str(root), "commitlog"))
    aside.move(state / "snapshot.json")
    aside.move(state / "durable")
    for offset in sorted(kept):
        _give_right_size(fs, files, offset)
    last = max(kept, default=None)
    if last is not None and last + size > end_offset:
        file = MappedFile(fs, files.directory / f"{last:020d}", last, size)
        try:
            file.zero(max(end_offset, last), file.last_offset)
            file.flush()
        finally:
            file.close()


def _keep_bytes_behind(fs: FileSystem, files: LogFiles, offset: int, end_offset: int, aside: Aside) -> None:
    """Copy the bytes of a kept file behind the cut, or behind its proper size."""
    length, size = files.sizes[offset], files.file_size_bytes
    cut = min(max(end_offset - offset, 0), size)
    if length > cut:
        aside.copy(files.directory / f"{offset:020d}", begin=cut, suffix=f".from.{offset + cut}")


def _give_right_size(fs: FileSystem, files: LogFiles, offset: int) -> None:
    size = files.file_size_bytes
    if files.sizes[offset] == size:
        return
    path = files.directory / f"{offset:020d}"
    fd = fs.open(path, os.O_RDWR)
    try:
        if files.sizes[offset] > size:
            fs.ftruncate(fd, size)
        else:
            fs.fallocate(fd, 0, size)
        fs.fdatasync(fd)
    finally:
        fs.close(fd)


FILLER_BYTES = encode_queue_unit(FILLER)


def mend_retired_queue(
    fs: FileSystem, directory: Path, file_size_bytes: int, log_first_offset: int, aside: Aside
) -> None:
    """Rewrite the files of a queue in place; copies of the old files are kept aside.

    Args:
        fs: the file system.
        directory: the queue's folder.
        file_size_bytes: proper size of its files.
        log_first_offset: units must point before it (bytes).
        aside: keeps the old files.
    """
    files = OpenFiles(fs)
    offsets = file_offsets(fs, directory)
    kept: list[int] = []  # the last run of files without a gap that has a plausible unit
    for offset in reversed(offsets):
        if kept and offset != kept[-1] - file_size_bytes:
            break
        data = files.get(directory / log_file_name(offset)).read(0, file_size_bytes)
        if offset % file_size_bytes == 0 and (kept or _last_right(data, log_first_offset) >= 0):
            kept.append(offset)
    for offset in offsets:
        if offset not in kept:
            aside.move(directory / log_file_name(offset))
    before = -1
    end_is_found = False
    tail_last = {
        offset: _last_right(_read(files, directory, offset, file_size_bytes), log_first_offset) for offset in kept
    }
    last_file = max((offset for offset in kept if tail_last[offset] >= 0), default=-1)
    for offset in sorted(kept):
        data = _read(files, directory, offset, file_size_bytes)
        parts = []
        for number, unit in enumerate(decode_queue_units(data)):
            found = data[number * UNIT_SIZE_BYTES : (number + 1) * UNIT_SIZE_BYTES]
            is_behind = offset > last_file or (offset == last_file and number > tail_last[offset])
            end_is_found |= is_behind and unit.is_empty
            if end_is_found:
                parts.append(bytes(UNIT_SIZE_BYTES))
            elif unit.is_filler or _is_right(unit.commit_log_offset, unit.record_size_bytes, before, log_first_offset):
                before = before if unit.is_filler else unit.commit_log_offset
                parts.append(found)
            else:
                parts.append(FILLER_BYTES)
        path, mended = directory / log_file_name(offset), b"".join(parts)
        if files.get(path).read(0, file_size_bytes + 1) != mended:
            aside.copy(path)
            file = files.create(path, file_size_bytes)
            file.write(0, mended)
            file.flush()


def _read(files: OpenFiles, directory: Path, offset: int, size_bytes: int) -> bytes:
    return files.get(directory / log_file_name(offset)).read(0, size_bytes).ljust(size_bytes, b"\0")


def _is_right(offset: int, size_bytes: int, before: int, log_first_offset: int) -> bool:
    return size_bytes > 0 and before < offset < log_first_offset


def _last_right(data: bytes, log_first_offset: int) -> int:
    """The last plausible unit of a file; -1 for none."""
    whole = data[: len(data) // UNIT_SIZE_BYTES * UNIT_SIZE_BYTES]
    return max(
        (
            number
            for number, unit in enumerate(decode_queue_units(whole))
            if unit.is_filler or _is_right(unit.commit_log_offset, unit.record_size_bytes, -1, log_first_offset)
        ),
        default=-1,
    )
