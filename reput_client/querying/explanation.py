"""Explanations: the response of ExplainQuery as values."""

import datetime
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reput.gateway.v1 import gateway_service_pb2 as pb
from reput_client.errors import ReputClientError, error_or_none
from reput_client.querying.answers import Completeness


class PassedOver(Enum):
    """Why an index file was passed over, or a shard's index was not asked."""

    CURSOR = pb.PASSED_OVER_CURSOR  # the file begins at or behind where the page goes on
    TIME = pb.PASSED_OVER_TIME  # all its records were stored outside the window
    FILTER = pb.PASSED_OVER_FILTER  # its key filter does not hold the key's hash


class Rejection(Enum):
    """Why a candidate is no match."""

    OTHER_TOPIC = pb.REJECTION_OTHER_TOPIC  # of another topic whose `topic#key` has the same hash
    OTHER_KEY = pb.REJECTION_OTHER_KEY  # it has another key, of the same hash
    OUT_OF_WINDOW = pb.REJECTION_OUT_OF_WINDOW  # stored outside the window, within its second
    DROPPED = pb.REJECTION_DROPPED  # retention has dropped it from the log
    UNREADABLE = pb.REJECTION_UNREADABLE  # it cannot be read, or no record starts there


@dataclass(frozen=True, slots=True)
class FileVisit:
    """The use of one index file for a query.

    Attributes:
        name: the file's.
        passed_over: why it was; None when it was searched.
        entry_count: entries that it holds.
        chain_entry_count: entries of the slot's chain that were read.
        same_hash_count: those of them with the key's hash.
        outside_count: those of these whose second proves that they were stored outside the window.
        candidate_count: candidates that came from it.
        damaged: its chain had to be left because it is damaged.
        read_bytes: read of the file and its summary.
    """

    name: str
    passed_over: PassedOver | None
    entry_count: int
    chain_entry_count: int
    same_hash_count: int
    outside_count: int
    candidate_count: int
    damaged: bool
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate at a commit-log offset (bytes) that is no match, why, and what it is instead, in words."""

    commit_log_offset: int
    reason: Rejection
    detail: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """A search of a shard's index for one `topic#key`, all its rounds together.

    Attributes:
        topic: the topic.
        key: the key.
        key_hash: of `topic#key`; 0 when the index was not asked, as `slot` and `slot_count`.
        slot: in every index file.
        slot_count: slots of a file.
        passed_over: why it was needless to ask the index; None when it was asked.
        visits: index files, newest first, round by round; at most 1,000.
        round_count: rounds in which candidates were asked for.
        candidate_count: records whose key has the hash.
        match_count: candidates that are matches.
        rejected_count: candidates that are none.
        rejected: at most 100 of them.
        unread_count: candidates that did not have to be read.
        read_bytes: read of index files and their summaries.
        search_micros: time of the searches inside the index service.
    """

    topic: str
    key: str
    key_hash: int
    slot: int
    slot_count: int
    passed_over: PassedOver | None
    visits: tuple[FileVisit, ...]
    round_count: int
    candidate_count: int
    match_count: int
    rejected_count: int
    rejected: tuple[Rejected, ...]
    unread_count: int
    read_bytes: int
    search_micros: int


@dataclass(frozen=True, slots=True)
class Step:
    """Calls of one kind that a shard got, what they brought and how long they took, as seen from the gateway.

    Attributes:
        name: `index.search`, `log.read`, `queues.list`, `queues.read` or `topics.list`.
        call_count: how many.
        item_count: candidates, records, units or names that they brought.
        message_bytes: of messages that they brought (`log.read`).
        elapsed_micros: how long they took.
    """

    name: str
    call_count: int
    item_count: int
    message_bytes: int
    elapsed_micros: int


@dataclass(frozen=True, slots=True)
class ShardExplanation:
    """The part of one shard in the answer.

    Attributes:
        broker_name: the shard.
        error: why it is missing from the answer; None when it is not.
        lookups: its index lookups in order; at most 200.
        omitted_lookup_count: lookups made and not shown.
        steps: what it was asked.
        elapsed_micros: sum of its steps.
        replicas, staleness, known_lag_bytes: as in the answer's ShardOutcome.
    """

    broker_name: str
    error: ReputClientError | None
    lookups: tuple[Lookup, ...]
    omitted_lookup_count: int
    steps: tuple[Step, ...]
    elapsed_micros: int
    replicas: tuple[str, ...] = ()
    staleness: datetime.timedelta | None = None
    known_lag_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation: how a query was answered.

    Attributes:
        shards: the shards asked.
        error: with what the query fails, such as TopicNotFoundError; None when it is answered.
        message_count: messages of its answer.
        completeness: how complete its answer is; None when it fails.
        elapsed_micros: how long it took.
        next_page_token: of its answer; empty when there is no further page.
    """

    shards: tuple[ShardExplanation, ...]
    error: ReputClientError | None
    message_count: int
    completeness: Completeness | None
    elapsed_micros: int
    next_page_token: str = ""


def explanation_of(response: pb.ExplainQueryResponse) -> Explanation:
    """The explanation in a response."""
    return Explanation(
        tuple(map(_shard_of, response.shards)),
        error_or_none(response),
        response.message_count,
        Completeness(response.completeness) if response.completeness else None,
        response.elapsed_micros,
        response.next_page_token,
    )


def _shard_of(shard: pb.ShardExplanation) -> ShardExplanation:
    return ShardExplanation(
        shard.broker_name,
        error_or_none(shard),
        tuple(map(_lookup_of, shard.lookups)),
        shard.omitted_lookup_count,
        tuple(
            Step(each.name, each.call_count, each.item_count, each.message_bytes, each.elapsed_micros)
            for each in shard.steps
        ),
        shard.elapsed_micros,
        tuple(shard.replicas),
        shard.staleness.ToTimedelta() if shard.HasField("staleness") else None,
        shard.known_lag_bytes,
    )


def _lookup_of(lookup: pb.ShardExplanation.Lookup) -> Lookup:
    return Lookup(
        topic=lookup.topic,
        key=lookup.key,
        key_hash=lookup.key_hash,
        slot=lookup.slot,
        slot_count=lookup.slot_count,
        passed_over=_passed_over_of(lookup),
        visits=tuple(map(_visit_of, lookup.visits)),
        round_count=lookup.round_count,
        candidate_count=lookup.candidate_count,
        match_count=lookup.match_count,
        rejected_count=lookup.rejected_count,
        rejected=tuple(
            Rejected(each.commit_log_offset, Rejection(each.reason), each.detail) for each in lookup.rejected
        ),
        unread_count=lookup.unread_count,
        read_bytes=lookup.read_bytes,
        search_micros=lookup.search_micros,
    )


def _visit_of(visit: pb.ShardExplanation.FileVisit) -> FileVisit:
    return FileVisit(
        name=visit.name,
        passed_over=_passed_over_of(visit),
        entry_count=visit.entry_count,
        chain_entry_count=visit.chain_entry_count,
        same_hash_count=visit.same_hash_count,
        outside_count=visit.outside_count,
        candidate_count=visit.candidate_count,
        damaged=visit.damaged,
        read_bytes=visit.read_bytes,
    )


def _passed_over_of(row: Any) -> PassedOver | None:
    return PassedOver(row.passed_over) if row.passed_over else None
