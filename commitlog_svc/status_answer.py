"""The answer of GetStatus, from a log's status."""

from importlib.metadata import PackageNotFoundError, version

from commitlog_svc.commit_log import CommitLog
from commitlog_svc.reput.checkpoint import INDEX_BUILDER, QUEUE_BUILDER
from commitlog_svc.reput.followers import Follower
from commitlog_svc.retention.retention_state import RetentionEvent
from reput.commitlog.v1 import commitlog_service_pb2 as pb
from services.convert import millis_to_timestamp


def status_answer(log: CommitLog, broker_name: str) -> pb.GetStatusResponse:
    """The GetStatus response for a log, recovered or not."""
    status = log.status
    answer = pb.GetStatusResponse(
        broker_name=broker_name,
        read_only=log.root.read_only,
        state=status.state,
        problem=status.problem,
        version=_version(),
    )
    if status.is_ready:
        _add_log(answer, log)
    else:
        _add_recovery(answer, log)
    return answer


def _add_recovery(answer: pb.GetStatusResponse, log: CommitLog) -> None:
    progress = log.recovery_progress
    answer.recovery.begin_offset = progress.begin_offset
    answer.recovery.next_offset = progress.next_offset
    answer.recovery.end_offset = progress.end_offset
    answer.recovery.record_count = progress.record_count
    answer.recovery.is_followable = log.status.is_followable
    if log.status.is_followable:
        answer.log_first_offset = log.status.first_offset


def _add_log(answer: pb.GetStatusResponse, log: CommitLog) -> None:
    status = log.status
    answer.log_first_offset = status.first_offset
    answer.log_end_offset = status.end_offset
    answer.log_flushed_offset = status.flushed_offset
    answer.confirm_offset = status.confirm_offset
    answer.readable_offset = log.opened.reads.readable_offset
    answer.file_size_bytes = status.file_size_bytes
    answer.file_count = status.file_count
    if status.last_store_time_millis:
        answer.last_store_time.CopyFrom(millis_to_timestamp(status.last_store_time_millis))
    for follower in log.followers.all():
        answer.followers.append(_follower(follower))
        if follower.name in (QUEUE_BUILDER, INDEX_BUILDER) and follower.next_offset is not None:
            answer.builder_next_offsets[follower.name] = follower.next_offset
    usage = status.disk_usage
    if usage is not None:
        answer.disk.total_bytes = usage.total_bytes
        answer.disk.free_bytes = usage.free_bytes
        answer.disk.level = usage.level.word
    answer.retention_events.extend(map(_retention_event, reversed(status.retention_events)))


def _follower(follower: Follower) -> pb.Follower:
    return pb.Follower(
        name=follower.name,
        expected=follower.is_expected,
        next_offset=follower.next_offset,
        store_time=millis_to_timestamp(follower.store_time_millis) if follower.store_time_millis else None,
    )


def _retention_event(event: RetentionEvent) -> pb.RetentionEvent:
    return pb.RetentionEvent(
        time=millis_to_timestamp(event.time_millis),
        begin_offset=event.begin_offset,
        end_offset=event.end_offset,
        file_count=event.file_count,
        reason=event.reason,
        lost_builder_next_offsets=event.lost_builder_next_offsets,
    )


def _version() -> str:
    try:
        return version("reput")
    except PackageNotFoundError:
        return "unknown"
