"""Answers of queries besides messages: pages, scans of a search, tracks of a message, topics, states of services."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Generic, TypeVar

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.encoding import time_or_none
from reput_client.errors import PartialAnswerError, ReputClientError, error_or_none
from reput_client.querying.message import Message, message_of
from reput_client.topic_admin import TopicSettings, settings_of


class SearchStop(Enum):
    """Why a page of a search ends where it does."""

    END = pb.SEARCH_STOP_END  # everything was looked at
    PAGE = pb.SEARCH_STOP_PAGE  # the page is full
    RECORDS = pb.SEARCH_STOP_RECORDS  # `max_records` is used up
    BYTES = pb.SEARCH_STOP_BYTES  # `max_bytes` is used up
    TIME = pb.SEARCH_STOP_TIME  # `max_millis` is used up, or the call's time was nearly over


@dataclass(frozen=True, slots=True)
class ScannedRange:
    """Positions `[begin_offset, end_offset)` of a queue, in messages."""

    broker_name: str
    queue_id: int
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The scan that gave a page of a search.

    Attributes:
        ranges: what was looked at; over all pages each position once.
        stop: why it ends here.
        record_count: positions looked at.
        size_bytes: sizes of the records that were read.
        unreadable_count: messages that could not be read or inflated; the page is PARTIAL then.
        cel_error_count: messages for which the expression has no value; they are no matches.
        cel_error: why it had none for the first of them; empty when it always had one.
        total_record_count: positions that there were when the search began; 0 when they were not to be counted.
        passed_record_count: those of them that the pages so far have passed; 0 likewise.
    """

    ranges: tuple[ScannedRange, ...]
    stop: SearchStop
    record_count: int
    size_bytes: int
    unreadable_count: int
    cel_error_count: int
    cel_error: str
    total_record_count: int = 0
    passed_record_count: int = 0


def scan_of(response: pb.SearchMessagesResponse) -> Scan:
    """The scan of a page."""
    return Scan(
        tuple(
            ScannedRange(each.broker_name, each.queue_id, each.begin_offset, each.end_offset)
            for each in response.scanned_ranges
        ),
        SearchStop(response.stop),
        response.scanned_record_count,
        response.scanned_bytes,
        response.unreadable_count,
        response.cel_error_count,
        response.cel_error,
        response.total_record_count,
        response.passed_record_count,
    )


class TrackState(Enum):
    """The state of a message in a consumer group."""

    CONSUMED = pb.TRACK_STATE_CONSUMED  # acknowledged
    NOT_CONSUMED = pb.TRACK_STATE_NOT_CONSUMED  # not yet delivered
    IN_FLIGHT = pb.TRACK_STATE_IN_FLIGHT  # with a client
    RETRYING = pb.TRACK_STATE_RETRYING  # delivered without success; it comes again
    DEAD_LETTER = pb.TRACK_STATE_DEAD_LETTER  # given up
    FILTERED_OUT = pb.TRACK_STATE_FILTERED_OUT  # the group's current subscription does not want it
    SKIPPED = pb.TRACK_STATE_SKIPPED  # a reset went past it, or the group began behind it
    UNKNOWN = pb.TRACK_STATE_UNKNOWN  # it cannot be known


class MessageState(Enum):
    """The state of a message."""

    STORED = pb.MESSAGE_STATE_STORED  # in its topic
    SCHEDULED = pb.MESSAGE_STATE_SCHEDULED  # it waits for its time
    PENDING_TRANSACTION = pb.MESSAGE_STATE_PENDING_TRANSACTION  # it waits for the verdict of its transaction
    RECALLED = pb.MESSAGE_STATE_RECALLED  # it was recalled before its time
    ROLLED_BACK = pb.MESSAGE_STATE_ROLLED_BACK  # its transaction was rolled back
    GIVEN_UP = pb.MESSAGE_STATE_GIVEN_UP  # no producer gave a verdict on its transaction


@dataclass(frozen=True, slots=True)
class Track:
    """The state of a message in a consumer group, with what led to it.

    Attributes:
        consumer_group: the group; empty: the groups of the shard are not known.
        state: of the message in the group.
        delivery_attempts: deliveries so far.
        next_time: in flight or retrying, when it may come again; None: not known.
        copy_offset_msg_ids: its copies in the group's retry and dead-letter topics, oldest first.
        is_online: whether a member of the group lives.
        client_id: the client that has it in flight.
        reason: why it is UNKNOWN, and what to do.
    """

    consumer_group: str
    state: TrackState
    delivery_attempts: int
    next_time: datetime | None
    copy_offset_msg_ids: tuple[str, ...]
    is_online: bool
    client_id: str
    reason: str = ""


class TraceKind(Enum):
    """What of a message's life a client with tracing on told."""

    OTHER = pb.TRACE_KIND_UNSPECIFIED  # of a later release
    SEND = pb.TRACE_KIND_SEND  # a producer sent it
    END_TRANSACTION = pb.TRACE_KIND_END_TRANSACTION  # a producer ended its transaction
    CONSUME = pb.TRACE_KIND_CONSUME  # a consumer gave it to its handler
    RECALL = pb.TRACE_KIND_RECALL  # a producer recalled it

    @classmethod
    def _missing_(cls, value: object) -> "TraceKind":
        return cls.OTHER


class TraceOutcome(Enum):
    """How it ended, by the client."""

    NOT_TOLD = pb.TRACE_OUTCOME_UNSPECIFIED  # or not yet
    SUCCESS = pb.TRACE_OUTCOME_SUCCESS
    FAILED = pb.TRACE_OUTCOME_FAILED  # of a consumption: the handler wants it again
    TIMED_OUT = pb.TRACE_OUTCOME_TIMED_OUT  # the handler took longer than the client allows
    EXCEPTION = pb.TRACE_OUTCOME_EXCEPTION  # the handler raised an exception
    RETURNED_NULL = pb.TRACE_OUTCOME_RETURNED_NULL  # the handler returned null

    @classmethod
    def _missing_(cls, value: object) -> "TraceOutcome":
        return cls.NOT_TOLD


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """What a client told. Times are by its clock.

    Attributes:
        kind: what happened.
        outcome: how it ended.
        begin_time: when it began; None: only the end of a consumption was told.
        end_time: of a consumption, when it ended; None: not told.
        cost: how long it took; of a consumption by the number of messages that the handler got at once; None: not told.
        group: the producer's or the consumer's.
        client_host: address from which the trace came.
        store_host: of SEND and END_TRANSACTION: the broker.
        offset_msg_id: of SEND: of the record that the broker made.
        retry_count: of CONSUME: how often it came before.
        verdict: of END_TRANSACTION: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
        is_from_check: of END_TRANSACTION: the broker had asked for the verdict.
    """

    kind: TraceKind
    outcome: TraceOutcome
    begin_time: datetime | None
    end_time: datetime | None
    cost: timedelta | None
    group: str
    client_host: str
    store_host: str = ""
    offset_msg_id: str = ""
    retry_count: int = 0
    verdict: str = ""
    is_from_check: bool = False


@dataclass(frozen=True, slots=True)
class MessageTraces:
    """What clients with tracing on told of a message. They may lose traces, and most send none.

    Attributes:
        events: in the order of the clients' clocks.
        damaged_count: entries that name the message and cannot be read.
        has_more: there are more than are read: the oldest are missing.
        problem: why some may be missing; empty: none is for a reason that is known.
        topic: where they were looked for; empty: the gateway is of an earlier release.
    """

    events: tuple[TraceEvent, ...]
    damaged_count: int = 0
    has_more: bool = False
    problem: str = ""
    topic: str = ""


@dataclass(frozen=True, slots=True)
class MessageTracks:
    """The state of a message, when it is due, its tracks by group, and whether there are more groups than were asked for.

    `traces`: what clients told; None: it was not asked for, or the gateway is of an earlier release.
    """

    message: Message
    state: MessageState
    due_time: datetime | None
    tracks: tuple[Track, ...]
    has_more: bool = False
    traces: MessageTraces | None = None


def tracks_of(answer: pb.TrackMessageResponse) -> MessageTracks:
    """The answer of TrackMessage."""
    return MessageTracks(
        message_of(answer.message),
        MessageState(answer.state),
        time_or_none(answer, "due_time"),
        tuple(map(track_of, answer.tracks)),
        bool(answer.next_page_token),
        traces_of(answer.traces) if answer.HasField("traces") else None,
    )


def traces_of(traces: pb.MessageTraces) -> MessageTraces:
    """What clients told."""
    return MessageTraces(
        tuple(map(_trace_event_of, traces.events)),
        traces.damaged_count,
        traces.has_more,
        traces.problem,
        traces.topic,
    )


def _trace_event_of(event: pb.MessageTraces.Event) -> TraceEvent:
    return TraceEvent(
        TraceKind(event.kind),
        TraceOutcome(event.outcome),
        time_or_none(event, "begin_time"),
        time_or_none(event, "end_time"),
        event.cost.ToTimedelta() if event.HasField("cost") else None,
        event.group,
        event.client_host,
        event.store_host,
        event.offset_msg_id,
        event.retry_count,
        event.verdict,
        event.from_check,
    )


def track_of(track: pb.TrackMessageResponse.Track) -> Track:
    """The track of a group."""
    return Track(
        track.consumer_group,
        TrackState(track.state),
        track.delivery_attempts,
        time_or_none(track, "next_time"),
        tuple(track.copy_offset_msg_ids),
        track.is_online,
        track.client_id,
        track.reason,
    )


Item = TypeVar("Item")


class Completeness(Enum):
    """The completeness of an answer."""

    COMPLETE = message_pb2.COMPLETENESS_COMPLETE  # every match
    TRUNCATED = message_pb2.COMPLETENESS_TRUNCATED  # there are more, or may be: go on
    PARTIAL = message_pb2.COMPLETENESS_PARTIAL  # a shard did not answer or has not built all of its index


class Boundary(Enum):
    """Which side of equal store times `search_offset` answers."""

    LOWER = pb.BOUNDARY_LOWER  # the first message stored at or after the time
    UPPER = pb.BOUNDARY_UPPER  # the last message stored at or before the time


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """The part of one shard in an answer.

    Attributes:
        broker_name: the shard.
        error: why it is missing; None when it answered.
        catching_up: it is still building what it should answer from.
        indexed_up_to_offset: its log is searchable before this (bytes).
        indexed_up_to_time: store time of its newest searchable record.
        log_end_offset: end of its log as last seen (bytes).
        replicas: the replicas that took part instead of the one that leads.
        staleness: with an `error` and `replicas`: what was confirmed longer before the query is there all the same; None: not
            known.
        known_lag_bytes: likewise: what the replicas are known to lack of the log.
    """

    broker_name: str
    error: ReputClientError | None
    catching_up: bool
    indexed_up_to_offset: int
    indexed_up_to_time: datetime | None
    log_end_offset: int
    replicas: tuple[str, ...] = ()
    staleness: timedelta | None = None
    known_lag_bytes: int = 0


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The positions `[min_offset, max_offset)` that a queue holds, in messages."""

    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """One answer.

    Attributes:
        items: messages, matches, or topics.
        completeness: how complete this page is.
        shards: the shards asked.
        scan: what a search looked at for this page; None for other queries.
        next_page_token: the query continues behind this page when it is given this token as `page_token`; empty on the last
            page.
        queue_range: what the queue of `by_offset` holds; None for other queries.
    """

    items: tuple[Item, ...]
    completeness: Completeness
    shards: tuple[ShardOutcome, ...]
    scan: Scan | None = None
    next_page_token: str = ""
    queue_range: QueueRange | None = None


class MatchedBy(Enum):
    """The part of a message that is the text asked for."""

    OFFSET_MSG_ID = pb.MATCHED_BY_OFFSET_MSG_ID
    UNIQUE_KEY = pb.MATCHED_BY_UNIQUE_KEY  # also when it is one of its business keys
    KEY = pb.MATCHED_BY_KEY  # one of its business keys


@dataclass(frozen=True, slots=True)
class Match:
    """A message found by a text, and what of it the text is.

    Attributes:
        message: the message.
        matched_by: what of it the text is.
        state: where it is; None: not asked, or its shard could not tell.
        due_time: of one that waits for its time, until when.
        tracks: how it stands with each consumer group.
    """

    message: Message
    matched_by: MatchedBy
    state: MessageState | None = None
    due_time: datetime | None = None
    tracks: tuple[Track, ...] = ()


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue and its range `[min_offset, max_offset)`, in messages."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic on all its shards.

    Attributes:
        topic: its name.
        queues: all that have messages; of the others at most the first 1,024 on each shard.
        queue_count: how many there are.
        settings: how each shard has it configured; none of a deleted topic whose messages are still there.
    """

    topic: str
    queues: tuple[Queue, ...]
    queue_count: int = 0
    settings: tuple[TopicSettings, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A position of a queue, and the queue's range `[min_offset, max_offset)`.

    Attributes:
        queue_offset: the position.
        min_offset: the queue's first message.
        max_offset: behind its last one.
        completeness: PARTIAL when what is not built yet could move the position.
        first_store_time: of the queue's first message; None when it has none.
        last_store_time: of its last one, likewise.
        shards: the shard asked.
    """

    queue_offset: int
    min_offset: int
    max_offset: int
    completeness: Completeness
    first_store_time: datetime | None = None
    last_store_time: datetime | None = None
    shards: tuple[ShardOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica of a shard, as its leader knows it.

    Attributes:
        replica: its name.
        in_sync: it must have a record before that is confirmed; only such a replica may lead.
        connected: it is connected to the leader; the leader itself is.
        lag_bytes: what it lacks of the leader's log.
        lag_millis: how long ago it had everything that the leader had then.
        fetched_bytes: while it is far behind: what it has got of what it lacked when its stream began.
        fetch_total_bytes: what it lacked then; 0 when it is near.
        fetched_bytes_per_second: what it got in the last 5 seconds.
    """

    replica: str
    in_sync: bool
    connected: bool
    lag_bytes: int
    lag_millis: int
    fetched_bytes: int = 0
    fetch_total_bytes: int = 0
    fetched_bytes_per_second: int = 0


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One service of one shard; offsets in bytes of the log.

    Attributes:
        broker_name: the shard.
        service: `commitlog`, `consumequeue`, `index`, `consumer` or `schedule`.
        address: where it is served.
        error: why it did not answer; None when it did.
        state: the state in words.
        problem: what is wrong and what to do; empty when all is well.
        catching_up: it is catching up after a start.
        log_first_offset: the log's first record (commitlog only).
        log_end_offset: end of the log.
        next_offset: end of what is on the disk (commitlog), built (consumequeue, index) or known (consumer, schedule).
        recovery_begin_offset: where a recovery began (commitlog, while recovering).
        recovery_next_offset: end of what the recovery has checked.
        recovery_end_offset: where the recovery will end.
        group_count: consumer groups (consumer only).
        in_flight_count: messages with clients (consumer only).
        client_count: clients that live (consumer only).
        scheduled_count: messages that wait for a time (schedule only).
        transaction_count: half messages that wait for a verdict (schedule only).
        oldest_due_time: when the oldest message was due that is due and not delivered (schedule only); None: there is none.
        replica: of a shard with replicas, the one that this is (commitlog only).
        role: `leader`, `follower` or `unknown`; empty for a shard without replicas (commitlog only).
        epoch: of the leader; each new leader has a larger one (commitlog only).
        replicas: all replicas as the leader knows them (commitlog only).
        coordinator: address of the coordinator of its leadership; empty for a shard without replicas (commitlog only).
        features: what the store uses that is not wholly supported, a sentence each (commitlog only).
        nameservers: by address of a name server of RocketMQ, whether the shard is registered there (commitlog only).
        broker_address: where clients of RocketMQ's remoting protocol reach the shard; name servers tell it (commitlog only).
        followed_lag_bytes: what a broker has written and is not shown yet (commitlog that follows or mirrors one);
            None: not known.
        followed_lag_seconds: how old the newest record is that is shown, while something is not (the same); else None.
        newest_store_time: of the newest record in the log (commitlog) or built (builders); None: there is none.
        disk_total_bytes: size of the disk under the log (commitlog only).
        disk_free_bytes: what may still be written to it (commitlog only).
        disk_level: `ok`, `clean`, `clean-forcibly` or `full`; empty while recovering (commitlog only).
    """

    broker_name: str
    service: str
    address: str
    error: ReputClientError | None
    state: str
    problem: str
    catching_up: bool
    log_first_offset: int
    log_end_offset: int
    next_offset: int
    recovery_begin_offset: int = 0
    recovery_next_offset: int = 0
    recovery_end_offset: int = 0
    group_count: int = 0
    in_flight_count: int = 0
    client_count: int = 0
    scheduled_count: int = 0
    transaction_count: int = 0
    oldest_due_time: datetime | None = None
    replica: str = ""
    role: str = ""
    epoch: int = 0
    replicas: tuple[ReplicaStatus, ...] = ()
    coordinator: str = ""
    features: tuple[str, ...] = ()
    nameservers: Mapping[str, bool] = field(default_factory=dict)
    broker_address: str = ""
    followed_lag_bytes: int | None = None
    followed_lag_seconds: float | None = None
    newest_store_time: datetime | None = None
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    disk_level: str = ""


@dataclass(frozen=True, slots=True)
class Installation:
    """The gateway's version and the state of every service behind it.

    Attributes:
        version: of the gateway.
        services: of every shard.
        sees_everything: the client may see every topic and group, so no list leaves one out; False from an older gateway.
    """

    version: str
    services: tuple[ServiceStatus, ...]
    sees_everything: bool = False


def partial_answer(shards: Iterable[ShardOutcome]) -> PartialAnswerError:
    """The error that says what is missing."""
    missing = []
    for shard in shards:
        if shard.error is not None:
            missing.append((shard.broker_name, str(shard.error)))
        elif shard.catching_up or shard.indexed_up_to_offset < shard.log_end_offset:
            missing.append(
                (shard.broker_name, f"built up to {shard.indexed_up_to_offset} of {shard.log_end_offset} bytes")
            )
    what = "; ".join(f"{name}: {why}" for name, why in missing) or "part of the store was not asked"
    return PartialAnswerError(f"the answer is not whole: {what}", missing)


def messages_of(response: Any) -> tuple[Message, ...]:
    """The messages of a page."""
    return tuple(map(message_of, response.messages))


def matches_of(response: pb.FindMessageResponse) -> tuple[Match, ...]:
    """The matches of a page."""
    return tuple(
        Match(
            message_of(each.message),
            MatchedBy(each.matched_by),
            MessageState(each.state) if each.HasField("state") else None,
            time_or_none(each, "due_time"),
            tuple(map(track_of, each.tracks)),
        )
        for each in response.matches
    )


def topics_of(response: pb.ListTopicsResponse) -> tuple[Topic, ...]:
    """The topics of a page."""
    return tuple(
        Topic(
            row.topic,
            tuple(Queue(each.broker_name, each.queue_id, each.min_offset, each.max_offset) for each in row.queues),
            row.queue_count,
            settings_of(row.settings),
        )
        for row in response.topics
    )


def found_offset_of(response: pb.SearchOffsetResponse) -> FoundOffset:
    """The position found."""
    return FoundOffset(
        response.queue_offset,
        response.min_offset,
        response.max_offset,
        Completeness(response.completeness),
        time_or_none(response, "first_store_time"),
        time_or_none(response, "last_store_time"),
        shards_of(response.shards),
    )


def shards_of(outcomes: Iterable[pb.ShardOutcome]) -> tuple[ShardOutcome, ...]:
    """The parts of the shards in an answer."""
    return tuple(
        ShardOutcome(
            each.broker_name,
            error_or_none(each),
            each.catching_up,
            each.indexed_up_to_offset,
            time_or_none(each, "indexed_up_to_time"),
            each.log_end_offset,
            tuple(each.replicas),
            each.staleness.ToTimedelta() if each.HasField("staleness") else None,
            each.known_lag_bytes,
        )
        for each in outcomes
    )


def statuses_of(response: pb.GetStatusResponse) -> tuple[ServiceStatus, ...]:
    """The state of every service."""
    made = (
        "error",
        "oldest_due_time",
        "replicas",
        "features",
        "nameservers",
        "followed_lag_bytes",
        "followed_lag_seconds",
        "newest_store_time",
    )
    plain = [each.name for each in dataclasses.fields(ServiceStatus) if each.name not in made]
    return tuple(
        ServiceStatus(
            error=error_or_none(row),
            oldest_due_time=time_or_none(row, "oldest_due_time"),
            newest_store_time=time_or_none(row, "newest_store_time"),
            replicas=tuple(
                ReplicaStatus(
                    one.replica,
                    one.in_sync,
                    one.connected,
                    one.lag_bytes,
                    one.lag_millis,
                    one.fetched_bytes,
                    one.fetch_total_bytes,
                    one.fetched_bytes_per_second,
                )
                for one in row.replicas
            ),
            features=tuple(row.features),
            nameservers=dict(row.nameservers),
            followed_lag_bytes=row.followed_lag_bytes if row.HasField("followed_lag_bytes") else None,
            followed_lag_seconds=row.followed_lag_age.ToMilliseconds() / 1000
            if row.HasField("followed_lag_age")
            else None,
            **{name: getattr(row, name) for name in plain},
        )
        for row in response.services
    )


def installation_of(response: pb.GetStatusResponse) -> Installation:
    """The version and the state of every service."""
    return Installation(response.version, statuses_of(response), response.sees_everything)
