"""Joins the log files of an audit: `LogAudit` itself, with the results of the scan tasks in place of records."""

import os
from pathlib import Path

from pipeline.audit.scan import FileScan, Segment, UnitSpan
from store.audit.findings import Findings
from store.audit.log_audit import LogAudit, LogFileRun, LogFiles
from store.derive.dispatch import DispatchRequest
from store.files.file_system import FileSystem
from store.format.derived.queue_unit import UNIT_SIZE_BYTES, QueueUnit, decode_queue_unit


def request_of(span: UnitSpan, number: int, unit: QueueUnit) -> DispatchRequest:
    """A dispatch request with the fields that a unit has; the others are empty."""
    return DispatchRequest(
        span.topic,
        span.queue_id,
        span.position + number,
        unit.commit_log_offset,
        unit.record_size_bytes,
        unit.tags_code,
        0,
        (),
        "",
        0,
        0,
    )


class JoinedLogAudit(LogAudit):
    """One pass over the scan results of the log files.

    Args:
        files: the log's files.
        findings: receives the findings.
        scans: the result for each file by its first offset (bytes), with the path of its units.
        units_fs: the port to these.
        durable_offset: see LogAudit.
        watched: see LogAudit.
    """

    def __init__(
        self,
        files: LogFiles,
        findings: Findings,
        scans: dict[int, tuple[FileScan, Path]],
        *,
        durable_offset: int | None,
        watched: set[int],
        units_fs: FileSystem,
    ) -> None:
        super().__init__(files, findings, [], durable_offset=durable_offset, watched=watched, pulse=lambda done: None)
        self._scans = scans
        self._units_fs = units_fs
        self.summary.unguarded_count = sum(scan.unguarded_count for scan, _ in scans.values())
        self.summary.batch_topics = set[str]().union(*(scan.batch_topics for scan, _ in scans.values()))
        firsts = [scan.first_unguarded for scan, _ in scans.values() if scan.first_unguarded is not None]
        self._first_unguarded = min(firsts, default=None)

    def _run(self, run: LogFileRun) -> tuple[int, str]:
        end, why = run.first_offset, ""
        for file in run.files:
            scan, path = self._scans[file.first_offset]
            units = self._units_fs.open(path, os.O_RDONLY)
            try:
                for segments, stretch_end, stretch_why in scan.stretches:
                    records = [segment for segment in segments if segment.record_count]
                    if records:
                        if records[0].begin_offset != end:
                            self._lose(end, records[0].begin_offset, why, run)
                        for segment in records:
                            self._take(segment, units)
                        end, why = stretch_end, stretch_why
                    elif end == file.first_offset:
                        end, why = stretch_end, stretch_why
            finally:
                self._units_fs.close(units)
        return end, why

    def _take(self, segment: Segment, units: int) -> None:
        summary = self.summary
        summary.record_count += segment.record_count
        if not self._is_sound:
            summary.records_behind_damage += segment.record_count
        summary.last_store_time_millis = max(summary.last_store_time_millis, segment.last_store_time_millis)
        for span in segment.spans:
            self._follow_span(span, units)
        if self._is_sound and segment.end_offset in self._watched:
            assert segment.last_record is not None
            self.boundaries[segment.end_offset] = (dict(self._next), segment.last_record)

    def _follow_span(self, span: UnitSpan, units: int) -> None:
        """Equals `_follow_queue` for each of its records: after the first record that continues the queue, all others do."""
        queue = (span.topic, span.queue_id)
        for number in range(span.count):
            unit = self._units_fs.pread(units, UNIT_SIZE_BYTES, span.spill_at + number * UNIT_SIZE_BYTES)
            request = request_of(span, number, decode_queue_unit(unit))
            self._follow_queue(request)
            if self._next.get(queue) == request.queue_offset + 1:
                self._next[queue] = span.position + span.count
                return
