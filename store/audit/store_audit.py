"""The audit of a whole store root: compares log, queues, indexes and state. Reads only.

Memory does not grow with the store: the log is read in order, queues and indexes are compared along with it. Memory
holds the slot table of one index file (4 bytes a slot, 20 MB by default), the next offset of each queue, and at most
64 MB of buffers and hashes.

refuse_held_root refuses a store root that a process holds now, and takes no lock for longer than the test.
"""

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from store.audit.findings import Findings
from store.audit.index_audit import IndexAudit
from store.audit.index_files import find_index_layout
from store.audit.light_audit import LightAudit
from store.audit.log_audit import LogAudit, LogFiles, LogSummary, QueueId
from store.audit.queue_audit import QueueAudit
from store.audit.state_audit import StateAudit
from store.errors import StoreLockedError
from store.features.signs import read_signs
from store.features.table import Support, found_features, with_batch_topics
from store.files.file_system import FileSystem
from store.files.locks import FLOCK
from store.format.paths import OWN_COMPONENTS, lock_file, own_state_dir
from store.readers.index_reader import IndexLayout
from store.readers.queue_reader import list_queue_ids


def refuse_held_root(fs: FileSystem, root: Path) -> None:
    """StoreLockedError when a broker or one of our services has the root open for writing."""
    held = _broker_lock_path(root)
    if held is None:
        held = next((path for path in _owner_locks(fs, root) if _is_flocked(path)), None)
    if held is not None:
        raise StoreLockedError(
            f"{held} is held by a running process, whose writes would look like damage: stop it first", file=held
        )


def _broker_lock_path(root: Path) -> Path | None:
    path = Path(lock_file(str(root)))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    finally:
        os.close(fd)
    return path if FLOCK.unpack(answer)[0] != fcntl.F_UNLCK else None


def _owner_locks(fs: FileSystem, root: Path) -> list[Path]:
    paths = [Path(own_state_dir(str(root), component)) / "lock" for component in OWN_COMPONENTS]
    return [path for path in paths if fs.exists(path)]


def _is_flocked(path: Path) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """The result of an audit.

    Attributes:
        findings: all findings.
        log: the log as it was found.
        queue_count: queues on the disk.
        unit_count: queue units compared.
        wrong_queues: queues with an error.
        queues_with_records: queues with a record in the log.
        hidden_queues: topics of which consumequeue/ may have no queue, each with the reason.
        queue_file_size_bytes: size of queue files.
        index_layout: how index files are divided; None when there is none or it cannot be found out.
        index_file_count: index files on the disk.
        key_count: keys of the log.
        entry_count: index entries compared.
        total_bytes: length of all files read.
        seconds: how long it took.
    """

    findings: Findings
    log: LogSummary
    queue_count: int
    unit_count: int
    wrong_queues: frozenset[QueueId]
    queues_with_records: frozenset[QueueId]
    hidden_queues: Mapping[str, str]
    queue_file_size_bytes: int
    index_layout: IndexLayout | None
    index_file_count: int
    key_count: int
    entry_count: int
    total_bytes: int
    seconds: float


def tell_features(fs: FileSystem, root: Path, summary: LogSummary, findings: Findings) -> None:
    """Adds what the store uses that is not wholly supported, by its signs and by its log."""
    for found in with_batch_topics(found_features(read_signs(fs, root)), summary.batch_topics):
        if found.feature.support is not Support.SUPPORTED:
            findings.add("STORE_FEATURE", root, 0, found.text)


def audit_store(
    fs: FileSystem,
    root: Path,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    clock: Callable[[], float] = time.monotonic,
) -> StoreAudit:
    """Audits a root that no process writes to; changes nothing.

    Args:
        fs: the disk port.
        root: the store root.
        on_progress: gets the bytes of log read, and the bytes of the whole log.
        clock: seconds, rising.

    Raises:
        OSError, StoreError: the disk cannot be read.
    """
    began = clock()
    findings = Findings(root)
    state = StateAudit(fs, root, findings)
    files = LogFiles(fs, root, findings)
    try:
        queues = QueueAudit(
            fs, root, files.first_offset, findings,
            resumes_at=state.queues.next_offset if state.queues is not None else None,
            dispatched_to=files.dispatched_to,
        )  # fmt: skip
        layout = find_index_layout(fs, root, state.index.layout if state.index is not None else None)
        index = IndexAudit(
            fs, root, layout, files.first_offset, findings,
            resumes_at=state.index.next_offset if state.index is not None else None,
            unflushed_from=state.index_unflushed_from,
        )  # fmt: skip
        light = LightAudit(fs, root, files.first_offset, findings)
        log = LogAudit(
            files, findings, [queues, index, light],
            durable_offset=state.durable_offset,
            watched=state.watched,
            pulse=lambda done: on_progress(done, files.total_bytes),
        )  # fmt: skip
        summary = log.run()
        on_progress(files.total_bytes, files.total_bytes)
        tell_features(fs, root, summary, findings)
        queues.finish(summary.end_offset)
        index.finish(summary.end_offset)
        light.finish()
        queue_ids = [queue_id for queue_id in list_queue_ids(fs, root) if queue_id not in queues.left_alone]
        state.finish(log, files, {topic for topic, _ in queues.queue_ids} | {topic for topic, _ in queue_ids})
    finally:
        files.close()
    return StoreAudit(
        findings=findings,
        log=summary,
        queue_count=len(queue_ids),
        unit_count=queues.unit_count,
        wrong_queues=frozenset(queues.wrong_queues),
        queues_with_records=frozenset(queues.queue_ids),
        hidden_queues=queues.hidden,
        queue_file_size_bytes=queues.file_size_bytes,
        index_layout=layout,
        index_file_count=index.file_count,
        key_count=index.key_count,
        entry_count=index.entry_count,
        total_bytes=files.total_bytes + queues.total_bytes + index.total_bytes,
        seconds=clock() - began,
    )
