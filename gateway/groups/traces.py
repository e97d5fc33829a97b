"""What clients with tracing on said of a message: the trace messages that have its unique key among their keys, of all shards.

A client sends its traces to any broker, so every shard is asked. Traces are read newest first; what limits them, the oldest are
missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.ports.deadline import Deadline
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow, set_millis
from gateway.queries.by_key import KeyQuestion, merge_matches
from gateway.queries.completeness import ShardOutcome
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.format.body_compression import BodyNotInflatedError, inflate
from store.format.message_trace import ConsumeReturn, TraceEntry, TraceEvent, TraceKind, decode_trace_body, join_traces

# A message has a few traces for each time that it is consumed; RocketMQ's own tools read 64.
TRACE_MESSAGE_COUNT_MAX = 256
ENTRY_COUNT_MAX = 500
# A trace message has 128,000 bytes in RocketMQ's clients, and may be any message.
BODY_BYTES_MAX = 4 << 20
ALL_BODIES_BYTES_MAX = 16 << 20

_KINDS = {
    TraceKind.SEND: pb.TRACE_KIND_SEND,
    TraceKind.END_TRANSACTION: pb.TRACE_KIND_END_TRANSACTION,
    TraceKind.BEFORE_CONSUMING: pb.TRACE_KIND_CONSUME,
    TraceKind.AFTER_CONSUMING: pb.TRACE_KIND_CONSUME,
    TraceKind.RECALL: pb.TRACE_KIND_RECALL,
}
_FAILURES: Mapping[int | None, pb.TraceOutcome] = {
    ConsumeReturn.TIME_OUT: pb.TRACE_OUTCOME_TIMED_OUT,
    ConsumeReturn.EXCEPTION: pb.TRACE_OUTCOME_EXCEPTION,
    ConsumeReturn.RETURN_NULL: pb.TRACE_OUTCOME_RETURNED_NULL,
}


@dataclass(frozen=True, slots=True)
class TraceQuestion:
    """The trace topic, and the unique key of the message."""

    topic: str
    unique_key: str


def read_traces(
    shards: Shards, question: TraceQuestion, deadline: Deadline
) -> tuple[pb.MessageTraces, tuple[ShardOutcome, ...]]:
    """What clients said of a message, and how the shards took part.

    Raises:
        StoreError: no shard answered, or the caller may not see the trace topic.
    """
    unique_key = question.unique_key
    if not unique_key:
        problem = "the message has no unique key, by which traces are found"
        return pb.MessageTraces(topic=question.topic, problem=problem), ()
    of_message = KeyQuestion(question.topic, unique_key, TimeWindow(), lambda record: unique_key in record.keys)
    page = merge_matches(shards, of_message, {}, TRACE_MESSAGE_COUNT_MAX, deadline)
    traces = pb.MessageTraces(topic=question.topic, has_more=bool(page.cursors))
    entries: list[TraceEntry] = []
    free_bytes = ALL_BODIES_BYTES_MAX
    for each in page.entries:
        left = ENTRY_COUNT_MAX - len(entries) - traces.damaged_count
        if each.body_omitted or left <= 0 or free_bytes <= 0:
            traces.has_more = True
            break
        record = each.record
        try:
            body = inflate(record.body, record.sys_flag, min(BODY_BYTES_MAX, free_bytes))
        except BodyNotInflatedError:
            traces.damaged_count += 1
            continue
        free_bytes -= len(body)
        found = decode_trace_body(body, unique_key, record.born_host, left)
        entries += found.entries
        traces.damaged_count += found.damaged_count
        traces.has_more = traces.has_more or found.is_cut
    traces.events.extend(map(_event, join_traces(entries)))
    return traces, page.outcomes


def _event(event: TraceEvent) -> pb.MessageTraces.Event:
    entry, end = event.entry, event.end or event.entry
    made = pb.MessageTraces.Event(
        kind=_KINDS[entry.kind],
        outcome=_outcome_of(end),
        group=entry.group,
        client_host=entry.client_host,
        store_host=entry.store_host,
        offset_msg_id=entry.offset_msg_id,
        retry_count=entry.retry_count or 0,
        verdict=entry.verdict,
        from_check=entry.is_from_check,
    )
    if event.begin_millis is not None:
        set_millis(made.begin_time, event.begin_millis)
    if event.end is not None and event.end.time_millis is not None:
        set_millis(made.end_time, event.end.time_millis)
    if end.cost_millis is not None:
        made.cost.FromMilliseconds(end.cost_millis)
    return made


def _outcome_of(entry: TraceEntry) -> pb.TraceOutcome:
    """How it ended; an entry of a beginning does not say so."""
    if entry.is_success is None:
        return pb.TRACE_OUTCOME_UNSPECIFIED
    if entry.is_success:
        return pb.TRACE_OUTCOME_SUCCESS
    return _FAILURES.get(entry.consume_return, pb.TRACE_OUTCOME_FAILED)
