"""The second step of an audit: some queues, each against what the log has said of it; `QueueAudit` judges."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.jobs.audit_log import request_of
from pipeline.jobs.audit_scan import QueueId, UnitSpan
from store.audit.findings import Findings
from store.audit.queue_audit import QueueAudit
from store.files.file_system import RealFileSystem
from store.format.queue_unit import UNIT_SIZE_BYTES, decode_queue_unit

# Compared with one read of the queue's file.
SPAN_UNIT_COUNT = 65_536


@dataclass(frozen=True, slots=True)
class QueueTask:
    """Some queues.

    Attributes:
        root: the store root.
        queues: which.
        spans: what they must hold, in log order, with the path of the units.
        log_first_offset, log_end_offset: of the log (bytes).
        lost: damaged stretches of it.
        resumes_at: see QueueAudit.
    """

    root: str
    queues: frozenset[QueueId]
    spans: tuple[tuple[str, UnitSpan], ...]
    log_first_offset: int
    log_end_offset: int
    lost: tuple[tuple[int, int], ...]
    resumes_at: int | None


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What a task found."""

    findings: Findings
    unit_count: int
    total_bytes: int
    wrong_queues: frozenset[QueueId]


class SpanQueueAudit(QueueAudit):
    """`QueueAudit`, shown units that follow one another at once."""

    def see_span(self, span: UnitSpan, units: bytes) -> None:
        """The next units of a queue: compared as they are, and one by one from the first that differs."""
        number = 0
        while number < span.count:
            queue = self._queues.get((span.topic, span.queue_id))
            position = span.position + number
            if queue is not None and queue.next == position:
                self._compare(queue)
                count = min(SPAN_UNIT_COUNT, span.count - number)
                expected = units[number * UNIT_SIZE_BYTES : (number + count) * UNIT_SIZE_BYTES]
                if queue.units.read_bytes(position, position + count) == expected:
                    self.unit_count += count
                    number += count
                    queue.next = queue.pending_at = position + count
                    queue.log_end = decode_queue_unit(units, (number - 1) * UNIT_SIZE_BYTES).next_offset
                    continue
            else:
                count = 1
            for place in range(number, number + count):
                self.see(request_of(span, place, decode_queue_unit(units, place * UNIT_SIZE_BYTES)))
            number += count


def audit_queues(task: QueueTask) -> QueueOutcome:
    """Judges the queues of one task."""
    findings = Findings(Path(task.root))
    audit = SpanQueueAudit(
        RealFileSystem(), Path(task.root), task.log_first_offset, findings, resumes_at=task.resumes_at
    )
    for begin, end in task.lost:
        audit.lose(begin, end)
    for path, span in task.spans:
        with open(path, "rb") as file:
            file.seek(span.spill_at)
            audit.see_span(span, file.read(span.count * UNIT_SIZE_BYTES))
    audit.finish(task.log_end_offset, only=set(task.queues))
    return QueueOutcome(findings, audit.unit_count, audit.total_bytes, frozenset(audit.wrong_queues))
