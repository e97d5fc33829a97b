"""The second step of an audit: `QueueAudit` compares a group of queues with the units that follow from the log."""

import os
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from pipeline.audit.scan import QueueId, UnitSpan
from pipeline.audit.scratch import Scratch
from pipeline.object_files import open_root
from store.audit.findings import Findings
from store.audit.log_audit import LogFiles
from store.audit.queue_audit import QueueAudit
from store.derive.queue_placement import UnitRun
from store.format.derived.queue_unit import UNIT_SIZE_BYTES


@dataclass(frozen=True, slots=True)
class QueueTask:
    """A group of queues to audit.

    Attributes:
        root: the store root, or its URI.
        scratch: where the units lie.
        queues: topic and queue id of each queue.
        spans: the units that they must hold, in log order, with the name of the units' scratch file.
        log_first_offset, log_end_offset: the range of the log (bytes).
        lost: begin and end of the damaged parts of the log (bytes).
        resumes_at: see QueueAudit.
        batch_topics: topics of which the log has an inner batch.
    """

    root: str
    scratch: Scratch
    queues: frozenset[QueueId]
    spans: tuple[tuple[str, UnitSpan], ...]
    log_first_offset: int
    log_end_offset: int
    lost: tuple[tuple[int, int], ...]
    resumes_at: int | None
    batch_topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """The result of one task."""

    findings: Findings
    unit_count: int
    total_bytes: int
    wrong_queues: frozenset[QueueId]


def audit_queues(task: QueueTask) -> QueueOutcome:
    """Audits the queues of one task."""
    fs, root = open_root(task.root)
    findings = Findings(root)

    @cache
    def log_files() -> LogFiles:  # opened for a queue without a record of its own only
        return LogFiles(fs, root, Findings(root))

    audit = QueueAudit(
        fs, root, task.log_first_offset, findings,
        resumes_at=task.resumes_at, dispatched_to=lambda offset: log_files().dispatched_to(offset),
    )  # fmt: skip
    for topic in task.batch_topics:
        audit.hide(topic)
    for begin, end in task.lost:
        audit.lose(begin, end)
    units_fs, units_root = task.scratch.opened()
    # In log order: one file is read after the other.
    for name, spans in groupby(task.spans, lambda pair: pair[0]):
        file = units_fs.open(units_root / name, os.O_RDONLY)
        try:
            for _, span in spans:
                units = units_fs.pread(file, span.count * UNIT_SIZE_BYTES, span.spill_at)
                audit.see_units(span.topic, span.queue_id, UnitRun(span.position, units))
        finally:
            units_fs.close(file)
    audit.finish(task.log_end_offset, only=set(task.queues))
    return QueueOutcome(findings, audit.unit_count, audit.total_bytes, frozenset(audit.wrong_queues))
