"""The third step of an audit: compares each index file with the keys that it must hold.

A sound file equals the file that a rebuild would write. A task for each file compares the two. If a file differs, or the
log no longer has the first file's records, `IndexAudit` compares all keys with all entries and reports what is wrong.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.audit.scratch import Scratch
from pipeline.log_scan import load_kernels
from pipeline.object_files import open_root
from pipeline.rebuild.files import FILL_KEY_COUNT, IndexFilePlan, KeyPart, read_keys
from store.audit.findings import Findings
from store.audit.index_audit import IndexAudit
from store.derive.index_fill import IndexFiller
from store.derive.index_state import IndexFileState
from store.files.open_files import OpenFiles
from store.format.derived.index_layout import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, encode_index_header, entry_position
from store.readers.index_reader import IndexLayout

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexTask:
    """The input of the audit of the whole index.

    Attributes:
        root: the store root, or its URI.
        scratch: where the keys lie.
        layout: slots and entries of its files; None if it is not known.
        parts: all keys, in log order.
        log_first_offset, log_end_offset: the range of the log (bytes).
        lost: begin and end of the damaged parts of the log (bytes).
        resumes_at, unflushed_from: see IndexAudit.
    """

    root: str
    scratch: Scratch
    layout: IndexLayout | None
    parts: tuple[KeyPart, ...]
    log_first_offset: int
    log_end_offset: int
    lost: tuple[tuple[int, int], ...]
    resumes_at: int | None
    unflushed_from: str | None


@dataclass(frozen=True, slots=True)
class IndexOutcome:
    """The result of the task."""

    findings: Findings
    entry_count: int
    key_count: int


def is_as_rebuilt(plan: IndexFilePlan, root: str, scratch: Scratch) -> bool:
    """Whether an index file equals, byte for byte, the file that a rebuild makes from its keys.

    Args:
        plan: the file's name and its keys.
        root: the store root, or its URI.
        scratch: where the keys lie.
    """
    load_kernels()
    fs, layout = open_root(root)[0], plan.layout
    if fs.stat_size(plan.path) != layout.file_size_bytes:
        return False
    state = IndexFileState.seeded(
        layout.slot_count,
        layout.entry_count_max,
        end_time_millis=plan.before_time_millis,
        end_commit_log_offset=plan.before_offset,
    )
    file = OpenFiles(fs).get(Path(plan.path))
    fs.will_read(file.fd, entry_position(0, layout.slot_count), layout.file_size_bytes)
    filler = IndexFiller(state, min(FILL_KEY_COUNT, sum(part.key_count for part in plan.parts)))
    for hashes, offsets, times_millis in read_keys(scratch.opened()[0], plan.parts):
        position = entry_position(state.header.entry_count, layout.slot_count)
        entries = filler.fill(hashes, offsets, times_millis)
        if file.read(position, len(entries)) != entries:
            return False
    slots = file.read(HEADER_SIZE, layout.slot_count * SLOT_SIZE)
    if not np.array_equal(np.frombuffer(slots, dtype=">i4"), state.heads):
        return False
    if any(file.read(entry_position(0, layout.slot_count), ENTRY_SIZE)):
        return False
    if file.read(0, HEADER_SIZE) != encode_index_header(state.header):
        return False
    behind: int | None = entry_position(state.header.entry_count, layout.slot_count)
    while behind is not None and behind < layout.file_size_bytes:
        behind = fs.next_data(file.fd, behind)
        if behind is None or behind >= layout.file_size_bytes:
            break
        data = file.read(behind, READ_BYTES)
        if data.strip(b"\0"):
            return False
        behind += len(data)
    return True


def audit_index(task: IndexTask) -> IndexOutcome:
    """Audits the whole index, key by key."""
    fs, root = open_root(task.root)
    findings = Findings(root)
    audit = IndexAudit(
        fs, root, task.layout, task.log_first_offset, findings,
        resumes_at=task.resumes_at, unflushed_from=task.unflushed_from,
    )  # fmt: skip
    for begin, end in task.lost:
        audit.lose(begin, end)
    for hashes, offsets, times_millis in read_keys(task.scratch.opened()[0], task.parts):
        audit.see_keys(hashes.astype(np.int64), offsets, times_millis)
    audit.finish(task.log_end_offset)
    return IndexOutcome(findings, audit.entry_count, audit.key_count)
