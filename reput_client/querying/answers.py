"""Answers of queries besides messages: pages, topics, states of services."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from reput_client.encoding import from_timestamp
from reput_client.errors import PartialAnswerError, ReputClientError
from reput_client.querying.message import Message, message_of
from reput_client.querying.scan import Scan
from reput_client.status import error_or_none

Item = TypeVar("Item")


class Completeness(Enum):
    """How complete an answer is."""

    COMPLETE = message_pb2.COMPLETENESS_COMPLETE  # every match
    TRUNCATED = message_pb2.COMPLETENESS_TRUNCATED  # there are more, or may be: go on
    PARTIAL = message_pb2.COMPLETENESS_PARTIAL  # a shard did not answer or has not built all of its index


class Boundary(Enum):
    """Which side of equal store times `search_offset` answers."""

    LOWER = pb.BOUNDARY_LOWER  # the first message stored at or after the time
    UPPER = pb.BOUNDARY_UPPER  # the last message stored at or before the time


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """How one shard took part in an answer.

    Attributes:
        broker_name: the shard.
        error: why it is missing; None when it answered.
        catching_up: it is still building what it should answer from.
        indexed_up_to_offset: its log is searchable before this (bytes).
        indexed_up_to_time: store time of its newest searchable record.
        log_end_offset: end of its log as last seen (bytes).
    """

    broker_name: str
    error: ReputClientError | None
    catching_up: bool
    indexed_up_to_offset: int
    indexed_up_to_time: datetime | None
    log_end_offset: int


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
    """What of a message the text asked for is."""

    OFFSET_MSG_ID = pb.MATCHED_BY_OFFSET_MSG_ID
    UNIQUE_KEY = pb.MATCHED_BY_UNIQUE_KEY  # also when it is one of its business keys
    KEY = pb.MATCHED_BY_KEY  # one of its business keys


@dataclass(frozen=True, slots=True)
class Match:
    """A message found by a text, and what of it the text is."""

    message: Message
    matched_by: MatchedBy


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
    """

    topic: str
    queues: tuple[Queue, ...]
    queue_count: int = 0


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
class ServiceStatus:
    """One service of one shard; offsets in bytes of the log.

    Attributes:
        broker_name: the shard.
        service: `commitlog`, `consumequeue` or `index`.
        address: where it is served.
        error: why it did not answer; None when it did.
        state: the state in words.
        problem: what is wrong and what to do; empty when all is well.
        catching_up: it is catching up after a start.
        log_first_offset: the log's first record (commitlog only).
        log_end_offset: end of the log.
        next_offset: end of what is on the disk (commitlog) or built (the others).
        recovery_begin_offset: where a recovery began (commitlog, while recovering).
        recovery_next_offset: end of what the recovery has checked.
        recovery_end_offset: where the recovery will end.
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


@dataclass(frozen=True, slots=True)
class Installation:
    """The gateway's version and the state of every service behind it."""

    version: str
    services: tuple[ServiceStatus, ...]


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
    return tuple(Match(message_of(each.message), MatchedBy(each.matched_by)) for each in response.matches)


def topics_of(response: pb.ListTopicsResponse) -> tuple[Topic, ...]:
    """The topics of a page."""
    return tuple(
        Topic(
            row.topic,
            tuple(Queue(each.broker_name, each.queue_id, each.min_offset, each.max_offset) for each in row.queues),
            row.queue_count,
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
        from_timestamp(response.first_store_time) if response.HasField("first_store_time") else None,
        from_timestamp(response.last_store_time) if response.HasField("last_store_time") else None,
        shards_of(response.shards),
    )


def shards_of(outcomes: Iterable[pb.ShardOutcome]) -> tuple[ShardOutcome, ...]:
    """How the shards took part."""
    return tuple(
        ShardOutcome(
            each.broker_name,
            error_or_none(each),
            each.catching_up,
            each.indexed_up_to_offset,
            from_timestamp(each.indexed_up_to_time) if each.HasField("indexed_up_to_time") else None,
            each.log_end_offset,
        )
        for each in outcomes
    )


def statuses_of(response: pb.GetStatusResponse) -> tuple[ServiceStatus, ...]:
    """The state of every service."""
    plain = [each.name for each in dataclasses.fields(ServiceStatus) if each.name != "error"]
    return tuple(
        ServiceStatus(
            error=error_or_none(row),
            **{name: getattr(row, name) for name in plain},
        )
        for row in response.services
    )


def installation_of(response: pb.GetStatusResponse) -> Installation:
    """The version and the state of every service."""
    return Installation(response.version, statuses_of(response))
