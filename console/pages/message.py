"""A message: all fields by RocketMQ's names, its body in five views, its position, related messages, and what became of it.

Other messages with its unique key are searched in all topics for a short time, because a store may have thousands of
topics. When the time is not enough, the page says so and links to Find.

Its position in the index is taken from the explanation of one lookup: hash, slot, chain and file.

hash 1 830 231  ──▶  slot 1 830 231 of 5 000 000  ──▶  ● ── ● ── ● ── ◉   the chain in the file, newest entry first

What happened to it is shown in the order of time, from the records that were made of it.

    born ── stored ── [waits for its time] ── retry ── retry ── dead letter        one event for each record
    now: group a consumed it, group b gets it again at ...                         from its tracks (`tracks_of`)

A consumer that acknowledges leaves no record with a time, so what groups have done is shown as the state now. What clients with
tracing on told stands between the records, by the clients' clocks.

    sent by group p, host, duration ── transaction ended ── handled by group a, host, duration, outcome

Its body can be saved as a file (`download`); the browser must not render or execute it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from console.actions.action import action_links
from console.actions.groups import Redeliver
from console.actions.sending import Copy, stored_of, topic_of
from console.bodies.body import HEX_BYTES_MAX, Body, ShownBody, View, inflated, show, show_by
from console.bodies.schemas import SCHEMA_BYTES_MAX, Schemas
from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import Banner, banner_of
from console.parts.charts import Scale, log_scale, queue_scale
from console.parts.message_row import MessageRow, message_href, message_row, topic_kind
from console.question import Question
from console.web.request_guard import DOWNLOAD_POLICY
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import timestamp_to_millis
from store.errors import InvalidArgumentError, ServiceUnavailableError, StoreError
from store.format.message_type import priority_of
from store.format.properties import LITE_TOPIC
from store.format.sys_flag import (
    BORN_HOST_V6,
    COMPRESSED,
    INNER_BATCH,
    MULTI_TAGS,
    NEED_UNWRAP,
    STORE_HOST_V6,
    TransactionType,
    transaction_type,
)

RELATED_SECONDS_MAX = 0.15
RELATED_COUNT_MAX = 50
SHOWN_RELATED_COUNT = 8
NEIGHBOUR_COUNT = 3
STATUS_SECONDS_MAX = 1.0
SHOWN_PROPERTY_COUNT = 100
# The property of a message that was sent back: the offsetMsgId of the one that a consumer got first.
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
SHOWN_PROPERTY_CHARACTERS = 1_000
# The choice of types on the page.
SHOWN_TYPE_COUNT = 300
_FLAG_NAMES = (
    (COMPRESSED, "COMPRESSED"),
    (MULTI_TAGS, "MULTI_TAGS"),
    (BORN_HOST_V6, "BORNHOST_V6"),
    (STORE_HOST_V6, "STOREHOSTADDRESS_V6"),
    (NEED_UNWRAP, "NEED_UNWRAP"),
    (INNER_BATCH, "INNER_BATCH"),
)


@dataclass(frozen=True, slots=True)
class Related:
    """Other messages with the same unique key.

    Attributes:
        groups: kind (`copy`, `retry`, `dead-letter`, `system`, `elsewhere`: of the same message; `batch`: only the unique key
            is the same) and the messages, newest first.
        problem: why some may be missing; empty when none are.
        answer: the gateway's; None when it failed.
    """

    groups: tuple[tuple[str, list[MessageRow]], ...] = ()
    problem: str = ""
    banner: Banner | None = None
    answer: Any = None


@dataclass(frozen=True, slots=True)
class ChosenSchema:
    """The schema by which the body is shown.

    Attributes:
        types: what it has.
        type_name: the one that is shown.
        digest: of an uploaded one; empty: the configured one of the topic.
        shown: the body; with the reason when it is not of this type.
    """

    types: Sequence[str]
    type_name: str
    digest: str
    shown: ShownBody


def message_page(schemas: Schemas, trace_url: str, calls: Calls, question: Question) -> Page:
    """The message of an offsetMsgId.

    Args:
        schemas: of bodies.
        trace_url: see `trace_contexts`.
        calls, question: the request.
    """
    stopwatch = Stopwatch()
    message = read_message(calls, question)
    body = Body.of(message.body, message.sys_flag)
    chosen, schema_problem = _by_schema(schemas, question, message.topic, body)
    best_view = View.SCHEMA if chosen is not None and not chosen.shown.problem else body.best_view
    view = View(question.choice("view", tuple(View), best_view))
    is_by_schema = view is View.SCHEMA and chosen is not None
    shown = chosen.shown if is_by_schema and chosen is not None else show(body, view, question.number("at", 0))
    related = _related(calls, message)
    neighbours, queue, neighbour_problem = _neighbours(calls, message)
    log = _scale_of_log(calls, message)
    explained = _explain(calls, message)
    trace_topic = question.text("trace_topic")
    tracks = tracks_of(calls, message, trace_topic)
    took_millis = stopwatch.millis()
    href = message_href(message.offset_msg_id, message.broker_name)
    if trace_topic:
        href += f"&trace_topic={quote(trace_topic, safe='')}"
    row = message_row(message)
    born_millis = timestamp_to_millis(message.born_time, "born_time")
    own = (each for kind, rows in related.groups if kind != "batch" for each in rows)
    traces = None if tracks.answer is None else tracks.answer.traces
    events = timeline_of(message, row, born_millis, own, () if traces is None else told_events(traces))
    at = question.number("at", 0) // 16 * 16 if view is View.HEX else 0
    named = {"id": message.offset_msg_id, "broker": message.broker_name}
    values = {
        "message": message,
        "row": row,
        "trace_contexts": trace_contexts(message.properties, trace_url),
        "actions": action_links(
            calls,
            (Copy(), {**named, "topic": topic_of(message)}),
            *(((Redeliver(), named),) if topic_kind(message.topic) == "" else ()),
        ),
        "events": events,
        "shown_event_count": SHOWN_EVENT_COUNT,
        "traces": traces,
        "href": href,
        "kind": topic_kind(message.topic),
        "store_time_millis": timestamp_to_millis(message.store_time, "store_time"),
        "born_time_millis": born_millis,
        "flags": flag_names(message.sys_flag),
        "properties": _properties(message.properties),
        "property_count": len(message.properties),
        "priority": priority_of(message.properties),
        "lite_topic": message.properties.get(LITE_TOPIC, ""),
        "body": body,
        "shown": shown,
        "views": tuple(View),
        "chosen": chosen,
        "schema_problem": schema_problem,
        "upload_bytes_max": SCHEMA_BYTES_MAX,
        "hex_begin": at,
        "hex_previous": max(0, at - HEX_BYTES_MAX) if at else None,
        "hex_next": at + HEX_BYTES_MAX if view is View.HEX and at + HEX_BYTES_MAX < len(body.content) else None,
        "related": related,
        "tracks": tracks,
        "shown_related_count": SHOWN_RELATED_COUNT,
        "neighbours": neighbours,
        "neighbour_problem": neighbour_problem,
        "queue": queue,
        "log": log,
        "index": None if explained is None else index_place(explained, message.broker_name),
        "origin_id": message.properties.get(ORIGIN_MESSAGE_ID, ""),
        "real_topic": message.properties.get("RETRY_TOPIC", "") or message.properties.get("REAL_TOPIC", ""),
        "took_millis": took_millis,
    }
    answer = {
        "message": to_json(message),
        "body": {
            "encoding": body.encoding,
            "compression": body.compression,
            "problem": body.problem,
            "storedSizeBytes": str(body.stored_size_bytes),
            "sizeBytes": str(len(body.content)),
        },
        "position": {
            "logFile": log.name if log else "",
            "logFileOffset": str(log.at) if log else "",
            "commitLogOffset": str(message.commit_log_offset),
        },
        "timeline": [event.to_json() for event in events],
        "tookMillis": took_millis,
    }
    if tracks.answer is not None:
        answer["tracks"] = to_json(tracks.answer)
    if related.answer is not None:
        answer["related"] = to_json(related.answer)
    if queue is not None:
        answer["queue"] = {"minOffset": str(queue.begin), "maxOffset": str(queue.end)}
    if explained is not None:
        answer["explained"] = to_json(explained)
    return Page("message.html", values, answer)


def _by_schema(
    schemas: Schemas, question: Question, topic: str, body: Body
) -> tuple[ChosenSchema | None, StoreError | None]:
    """The body by the schema that the URL names, otherwise by that of its topic; or why the schema cannot be used."""
    digest = question.text("schema")
    try:
        if digest:
            schema = schemas.uploaded(digest)
            type_name = question.text("type") or schema.types[0]
        else:
            found = schemas.of_topic(topic)
            if found is None:
                return None, None
            schema, type_name = found
            type_name = question.text("type") or type_name
    except InvalidArgumentError as error:
        return None, error
    return ChosenSchema(schema.types[:SHOWN_TYPE_COUNT], type_name, digest, show_by(schema, type_name, body)), None


def read_message(calls: Calls, question: Question) -> Any:
    """The message that the path names, with its body, also one that fits no answer."""
    return stored_of(calls, question.path_text("offset_msg_id"), question.text("broker"))


def flag_names(sys_flag: int) -> list[str]:
    """RocketMQ's names of the set bits. The type of compression is shown with the body."""
    names = [name for bit, name in _FLAG_NAMES if sys_flag & bit]
    kind = transaction_type(sys_flag)
    if kind is not TransactionType.NONE:
        names.append(f"TRANSACTION_{kind.name}")
    return names


# W3C Trace Context, `traceparent`: version, trace id, id of the parent span, flags; later versions may have more behind them.
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-[!-~]{0,200})?")
# The first one is OpenTelemetry's, the second RocketMQ's over gRPC.
TRACE_CONTEXT_PROPERTIES = ("traceparent", "TRACE_CONTEXT")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a message belongs to.

    Attributes:
        name: the property that says so.
        trace_id: its id.
        href: its page in a tracing tool; empty: none is known.
    """

    name: str
    trace_id: str
    href: str


def trace_contexts(properties: Mapping[str, str], trace_url: str) -> list[TraceContext]:
    """The traces that the properties of a message name.

    Args:
        properties: of the message.
        trace_url: where a tracing tool shows a trace, with `{trace_id}` and perhaps `{span_id}`; empty: nowhere.
    """
    found = []
    for name in TRACE_CONTEXT_PROPERTIES:
        matched = _TRACEPARENT.fullmatch(properties.get(name, ""))
        if matched is None or matched[1] == "ff" or not int(matched[2], 16) or not int(matched[3], 16):
            continue
        href = trace_url.replace("{trace_id}", matched[2]).replace("{span_id}", matched[3])
        found.append(TraceContext(name, matched[2], href))
    return found


def _properties(properties: Any) -> list[tuple[str, str, bool]]:
    """Name, value, and whether the value was cut; sorted by name."""
    rows = sorted(properties.items())[:SHOWN_PROPERTY_COUNT]
    return [(name, value[:SHOWN_PROPERTY_CHARACTERS], len(value) > SHOWN_PROPERTY_CHARACTERS) for name, value in rows]


def _related(calls: Calls, message: Any) -> Related:
    if not message.unique_key:
        return Related()
    stopwatch = Stopwatch()
    request = pb.FindMessageRequest(text=message.unique_key, page_size=RELATED_COUNT_MAX)
    try:
        answer = calls.ask(calls.gateway.FindMessage, request, RELATED_SECONDS_MAX)
    except StoreError as error:
        return Related(problem=error.message)
    groups: dict[str, list[MessageRow]] = {}
    for match in answer.matches:
        other = match.message
        is_itself = (other.broker_name, other.commit_log_offset) == (message.broker_name, message.commit_log_offset)
        if not is_itself and other.unique_key == message.unique_key:
            groups.setdefault(_kind(message, other, answer), []).append(message_row(other))
    kinds = ("copy", "retry", "dead-letter", "system", "elsewhere", "batch")
    ordered = tuple((kind, groups[kind]) for kind in kinds if kind in groups)
    banner = banner_of(answer, stopwatch.millis())
    return Related(ordered, "" if banner.kind == "complete" else banner.kind, banner, answer)


def _kind(message: Any, other: Any, answer: Any) -> str:
    """How another message with the same unique key belongs to a message.

    The messages of a batch may share a unique key. Those of one topic are told from copies by their places, and what was made
    from them by the property with which RocketMQ names the source of a retry or dead letter. A record that names none, as one
    of a POP consumer, or that waits in a system topic for its time or its transaction, is of the message.
    """
    sources = _source_id(message), _source_id(other)
    if all(sources):
        is_batch = sources[0] != sources[1]
    elif other.topic == message.topic:
        is_batch = _is_one_append(message, other, answer)
    else:
        is_batch = _is_of_another(message, other, answer) or _is_of_another(other, message, answer)
    if is_batch:
        return "batch"
    return "copy" if other.topic == message.topic else topic_kind(other.topic) or "elsewhere"


def _source_id(message: Any) -> str:
    """The offsetMsgId of the message that this one was made from; empty: it does not say."""
    source: str = message.properties.get(ORIGIN_MESSAGE_ID, "").upper()
    # A classic client that has no offsetMsgId sends the unique key back.
    return "" if source == message.unique_key.upper() else source


def _is_of_another(made: Any, message: Any, answer: Any) -> bool:
    """Whether a message was made from another one of the same topic as `message`, which is in the answer."""
    source = _source_id(made)
    return source not in ("", message.offset_msg_id.upper()) and any(
        match.message.offset_msg_id.upper() == source and match.message.topic == message.topic
        for match in answer.matches
    )


def _is_one_append(message: Any, other: Any, answer: Any) -> bool:
    """Whether two messages of a topic were appended at once: neighbours of a queue, stored at the same time.

    Where the answer has a further page, the messages between them may be on that.
    """
    place = _append_of(message)
    if _append_of(other) != place:
        return False
    found = {match.message.queue_offset for match in answer.matches if _append_of(match.message) == place}
    begin, end = sorted((message.queue_offset, other.queue_offset))
    return bool(answer.next_page_token) or found.issuperset(range(begin + 1, end))


def _append_of(message: Any) -> tuple[str, str, int, int]:
    millis = timestamp_to_millis(message.store_time, "store_time")
    return message.broker_name, message.topic, message.queue_id, millis


def _neighbours(
    calls: Calls, message: Any
) -> tuple[Sequence[tuple[MessageRow, bool]], Scale | None, StoreError | None]:
    """The messages around it, each with whether it is this message; the track of its queue; or why there are none."""
    request = pb.QueryMessageByOffsetRequest(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=max(0, message.queue_offset - NEIGHBOUR_COUNT),
        broker_name=message.broker_name,
        page_size=2 * NEIGHBOUR_COUNT + 1,
    )
    try:
        answer = calls.ask(calls.gateway.QueryMessageByOffset, request)
    except StoreError as error:
        return (), None, error
    rows = [(message_row(other), other.queue_offset == message.queue_offset) for other in answer.messages]
    if not answer.min_offset <= message.queue_offset < answer.max_offset:
        return rows, None, None
    name = f"{message.topic}/{message.queue_id}"
    return rows, queue_scale(name, answer.min_offset, answer.max_offset, message.queue_offset), None


def _scale_of_log(calls: Calls, message: Any) -> Scale | None:
    """The track in the log file; None when the file size is not known, or when the message is in the archive."""
    if message.source == 2 or not calls.sees_store:
        return None
    try:
        services = calls.ask(calls.gateway.GetStatus, pb.GetStatusRequest(), STATUS_SECONDS_MAX).services
    except StoreError:
        return None
    for service in services:
        if service.broker_name == message.broker_name and service.service == "commitlog" and service.file_size_bytes:
            return log_scale(message.commit_log_offset, message.store_size_bytes, service.file_size_bytes)
    return None


def _explain(calls: Calls, message: Any) -> Any:
    """How the index finds this message by one of its keys; None when it has no key or is in the archive."""
    if message.source == 2:
        return None
    if message.keys:
        asked = pb.QueryMessageByKeyRequest(topic=message.topic, key=message.keys[0], page_size=1)
        asked.begin_time.CopyFrom(message.store_time)
        asked.end_time.CopyFrom(message.store_time)
        request = pb.ExplainQueryRequest(by_key=asked)
    elif message.unique_key:
        by_unique_key = pb.QueryMessageByUniqueKeyRequest(
            topic=message.topic, unique_key=message.unique_key, page_size=1
        )
        request = pb.ExplainQueryRequest(by_unique_key=by_unique_key)
    else:
        return None
    try:
        return calls.ask(calls.gateway.ExplainQuery, request, STATUS_SECONDS_MAX)
    except StoreError:
        return None  # the page has no picture of the index then, as for a message without keys


# Entries of a chain that are drawn; a longer chain is cut in the middle and labelled with the number of hidden entries.
DRAWN_ENTRY_COUNT_MAX = 7
ENTRY_WIDTH, ENTRY_GAP = 26, 22
CHAIN_LEFT = 300


@dataclass(frozen=True, slots=True)
class DrawnEntry:
    """An entry of the chain; one with `same_hash` is drawn as a hit."""

    x: int
    same_hash: bool
    label: str


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """The position of a message in the index.

    Attributes:
        key: the key of the lookup.
        file_name: the index file that gave the candidate; empty when none did.
        chain_entry_count: entries of its chain that were read.
        same_hash_count: those with the key's hash.
        passed_over_count: files that were not read.
        visited_count: files that were read.
    """

    key: str
    key_hash: int
    slot: int
    slot_count: int
    file_name: str
    chain_entry_count: int
    same_hash_count: int
    visited_count: int
    passed_over_count: int
    entries: tuple[DrawnEntry, ...]


def index_place(explanation: Any, broker_name: str) -> IndexPlace | None:
    """The place in a shard's index, from the explanation of a lookup for one message; None when the shard was not asked."""
    for shard in explanation.shards:
        if shard.broker_name == broker_name:
            for lookup in shard.lookups:
                if lookup.slot_count:
                    return _place(lookup)
    return None


def _place(lookup: Any) -> IndexPlace:
    looked = [visit for visit in lookup.visits if not visit.passed_over]
    hit = next((visit for visit in looked if visit.candidate_count), None)
    chain_entry_count = hit.chain_entry_count if hit is not None else 0
    same_hash_count = hit.same_hash_count if hit is not None else 0
    return IndexPlace(
        key=lookup.key,
        key_hash=lookup.key_hash,
        slot=lookup.slot,
        slot_count=lookup.slot_count,
        file_name=hit.name if hit is not None else "",
        chain_entry_count=chain_entry_count,
        same_hash_count=same_hash_count,
        visited_count=len(looked),
        passed_over_count=len(lookup.visits) - len(looked),
        entries=tuple(_entries(chain_entry_count, same_hash_count)),
    )


def _entries(chain_entry_count: int, same_hash_count: int) -> list[DrawnEntry]:
    """The chain. The walk ends at the entry that it looked for, so the last one is a hit; which others are is not known."""
    count = min(chain_entry_count, DRAWN_ENTRY_COUNT_MAX)
    drawn = []
    for number in range(count):
        is_cut = chain_entry_count > count and number == count // 2
        is_hit = chain_entry_count == same_hash_count or number == count - 1
        label = f"+{chain_entry_count - count + 1}" if is_cut else ""
        drawn.append(DrawnEntry(CHAIN_LEFT + number * (ENTRY_WIDTH + ENTRY_GAP), is_hit and not is_cut, label))
    return drawn


SHOWN_EVENT_COUNT = 100
WAITING_TOPICS = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
# What producers and consumers did with records of other system topics is no part of the life of a message.
_KINDS_BY_TOPIC = {**dict.fromkeys(WAITING_TOPICS, "waits"), HALF_TOPIC: "half", GIVEN_UP_TOPIC: "given-up"}


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    Attributes:
        kind: `born`, `stored`, `again` (stored once more), `waits`, `half`, `given-up`, `retry` or `dead-letter`; of what a
            client told `sent`, `verdict`, `handled` or `recalled`.
        millis: when, since 1970.
        topic: where its record is; empty for `born`, and for what a client told.
        href: the page of the record; empty for `born`, and for the message of the page.
        detail: of `born` the address of the producer.
        trace: what a client told; None: it is of a record.
    """

    kind: str
    millis: int
    topic: str = ""
    href: str = ""
    detail: str = ""
    trace: "Trace | None" = None

    def to_json(self) -> dict[str, str]:
        """For the page's JSON."""
        return {"kind": self.kind, "millis": str(self.millis), "topic": self.topic, "href": self.href}


@dataclass(frozen=True, slots=True)
class Trace:
    """What a client with tracing on told.

    Attributes:
        group: the producer's or the consumer's.
        host: where the client is.
        outcome: the name in the contract without its prefix; of a verdict RocketMQ's word.
        cost_millis: how long it took; None: not told.
        retry_count: of `handled`: how often the message came before.
        from_check: of `verdict`: the broker had asked.
    """

    group: str
    host: str
    outcome: str
    cost_millis: int | None
    retry_count: int
    from_check: bool


_KINDS_BY_TRACE = {
    pb.TRACE_KIND_SEND: "sent",
    pb.TRACE_KIND_END_TRANSACTION: "verdict",
    pb.TRACE_KIND_CONSUME: "handled",
    pb.TRACE_KIND_RECALL: "recalled",
}


def told_events(traces: Any) -> list[Event]:
    """What clients told, as events; one of a kind of a later release, or without a time, has none."""
    events = []
    for each in traces.events:
        kind = _KINDS_BY_TRACE.get(each.kind)
        name = "begin_time" if each.HasField("begin_time") else "end_time"
        if kind is None or not each.HasField(name):
            continue
        trace = Trace(
            each.group,
            each.client_host,
            each.verdict or pb.TraceOutcome.Name(each.outcome).removeprefix("TRACE_OUTCOME_"),
            each.cost.ToMilliseconds() if each.HasField("cost") else None,
            each.retry_count,
            each.from_check,
        )
        events.append(Event(kind, timestamp_to_millis(getattr(each, name), name), trace=trace))
    return events


def timeline_of(
    message: Any, row: MessageRow, born_millis: int, others: Iterable[MessageRow], told: Sequence[Event] = ()
) -> list[Event]:
    """The events of a message; those that clients told are put among those of records by their times.

    Args:
        message: the message of the page.
        row: the same as a row.
        born_millis: when its producer made it.
        others: the other records that are of this message: copies, retries, dead letters, those of system topics.
        told: what clients told.
    """
    records = sorted([row, *others], key=lambda each: (each.store_time_millis, each.offset_msg_id))
    events = [Event("born", born_millis, detail=message.born_host)]
    is_stored = False
    for each in records:
        kind = _KINDS_BY_TOPIC.get(each.topic) or topic_kind(each.topic)
        if kind == "system":
            continue
        if not kind:
            kind, is_stored = "again" if is_stored else "stored", True
        events.append(Event(kind, each.store_time_millis, each.topic, "" if each is row else each.href))
    if told:
        events = sorted([*events, *told], key=lambda event: event.millis)
    return events[:SHOWN_EVENT_COUNT]


TRACK_SECONDS_MAX = 1.0
SHOWN_TRACK_COUNT = 50


@dataclass(frozen=True, slots=True)
class TrackRow:
    """How the message stands with a group; `state` is the name in the contract without its prefix."""

    consumer_group: str
    state: str
    delivery_attempts: int
    next_millis: int | None
    client_id: str
    is_online: bool
    copy_hrefs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tracks:
    """The first rows, whether there are more, where the message is, and why they are not known; None when they are."""

    rows: tuple[TrackRow, ...] = ()
    has_more: bool = False
    state: str = ""
    due_millis: int | None = None
    problem: StoreError | None = None
    answer: Any = None


def tracks_of(calls: Calls, message: Any, trace_topic: str = "") -> Tracks:
    """The tracks of a message; of a retry or dead letter those of the message that it was made of.

    `trace_topic`: where traces lie; empty: as the gateway is set.
    """
    request = pb.TrackMessageRequest(
        offset_msg_id=message.offset_msg_id, page_size=SHOWN_TRACK_COUNT, with_traces=True, trace_topic=trace_topic
    )
    try:
        answer = calls.ask(calls.gateway.TrackMessage, request, TRACK_SECONDS_MAX)
    except StoreError as error:
        return Tracks(problem=error)
    known = [track for track in answer.tracks if track.consumer_group]
    reasons = (track.reason for track in answer.tracks if not track.consumer_group)
    problem = next((ServiceUnavailableError(reason) for reason in reasons), None)
    rows = tuple(_row(track, message.broker_name) for track in known)
    state = pb.MessageState.Name(answer.state).removeprefix("MESSAGE_STATE_")
    due_millis = timestamp_to_millis(answer.due_time, "due_time") if answer.HasField("due_time") else None
    return Tracks(rows, bool(answer.next_page_token), state, due_millis, problem, answer=answer)


def _row(track: Any, broker_name: str) -> TrackRow:
    return TrackRow(
        track.consumer_group,
        pb.TrackState.Name(track.state).removeprefix("TRACK_STATE_"),
        track.delivery_attempts,
        timestamp_to_millis(track.next_time, "next_time") if track.HasField("next_time") else None,
        track.client_id,
        track.is_online,
        tuple(message_href(each, broker_name) for each in track.copy_offset_msg_ids),
    )


def download(calls: Calls, question: Question) -> Response:
    """The body, inflated if possible; with `stored=1` the stored bytes."""
    message = read_message(calls, question)
    content = message.body if question.text("stored") else inflated(message.body, message.sys_flag)[0]
    headers = {
        "Content-Disposition": f'attachment; filename="{_safe(message.offset_msg_id)}.body"',
        "Content-Security-Policy": DOWNLOAD_POLICY,
    }
    return Response(content, 200, headers, "application/octet-stream")


def _safe(offset_msg_id: str) -> str:
    return "".join(character for character in offset_msg_id if character.isascii() and character.isalnum())[:64]
