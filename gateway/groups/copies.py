"""Finds the copies of a message by its unique key, and the original of a copy."""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.groups.tracked import (
    is_copy,
    is_recall,
    moved_from_topic_of,
    origin_offset_of,
    origin_topic_of,
    target_topic_of,
)
from gateway.ports.deadline import Deadline
from gateway.ports.shard import Shard, get_record
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import KeyQuestion, merge_matches
from gateway.queries.by_offset_msg_id import find_record
from gateway.queries.completeness import ShardOutcome, judge
from gateway.queries.page import PAGE_SIZE_MAX, check_key, check_topic
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RecordNotFoundError,
)
from store.format.topic import WAITING_TOPICS

# Copies of one message are few; a foreign client may give one key to all its messages.
COPY_COUNT_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Original:
    """A message whose tracks are asked for.

    Attributes:
        broker_name: its shard.
        record: the record.
    """

    broker_name: str
    record: StoredMessage


def find_original(
    shards: Shards,
    *,
    offset_msg_id: str,
    topic: str,
    unique_key: str,
    deadline: Deadline,
) -> tuple[Original | None, list[ShardOutcome], message_pb2.Completeness]:
    """The message by its offsetMsgId, or by topic and unique key; of a copy, the record that it was made of, if that is there.

    None: no message of the topic has that key.

    Raises:
        InvalidArgumentError: neither or both are given.
        RecordNotFoundError: no message has that offsetMsgId.
        StoreError: a shard that may have it did not answer.
    """
    if bool(offset_msg_id) == bool(unique_key) or (offset_msg_id and topic):
        raise InvalidArgumentError(
            "name the message by offset_msg_id, or by topic and unique_key.",
            field="offset_msg_id" if offset_msg_id else "unique_key",
        )
    outcomes: list[ShardOutcome] = []
    if offset_msg_id:
        addressed = find_record(shards, offset_msg_id, "", deadline)
        found: Original | None = Original(addressed.broker_name, addressed.record)
    else:
        found = _oldest(shards, topic, unique_key, outcomes, deadline)
    if found is not None:
        found = _followed_back(shards, found, deadline)
    return found, outcomes, judge(outcomes, more=False)


def copies_of(
    shards: Shards,
    topic: str,
    unique_key: str,
    outcomes: list[ShardOutcome],
    deadline: Deadline,
) -> Iterator[Original]:
    """The records of a topic with a unique key, newest first. What shards say of themselves goes to `outcomes`."""
    question = KeyQuestion(topic, unique_key, TimeWindow(), lambda record: record.unique_key == unique_key)
    cursors: dict[str, int] = {}
    count = 0
    while count < COPY_COUNT_MAX:
        page = merge_matches(shards, question, cursors, PAGE_SIZE_MAX, deadline)
        outcomes += page.outcomes
        for entry in page.entries:
            yield Original(entry.broker_name, entry.record)
        count += len(page.entries)
        if not page.cursors:
            return
        cursors = dict(page.cursors)


def only(shards: Shards, broker_name: str) -> Shards:
    """One shard alone."""
    shard: Shard = shards.named(broker_name)
    return Shards([shard], shards.fan_out)


def _oldest(
    shards: Shards,
    topic: str,
    unique_key: str,
    outcomes: list[ShardOutcome],
    deadline: Deadline,
) -> Original | None:
    """The oldest record of the topic with the key, else the one that still waits to get there."""
    check_topic(topic)
    check_key(unique_key, "unique_key")
    found = list(copies_of(shards, topic, unique_key, outcomes, deadline))
    if not found:
        found = _waiting(shards, topic, unique_key, outcomes, deadline)
    for outcome in outcomes:
        if outcome.error is not None:  # it may have an older one
            raise outcome.error
    return found[-1] if found else None


def _waiting(
    shards: Shards,
    topic: str,
    unique_key: str,
    outcomes: list[ShardOutcome],
    deadline: Deadline,
) -> list[Original]:
    found: list[Original] = []
    for waiting_topic in sorted(WAITING_TOPICS):
        try:
            copies = list(copies_of(shards, waiting_topic, unique_key, outcomes, deadline))
        except PermissionDeniedError:  # a topic that the caller may not see behaves as an absent one
            continue
        found += [each for each in copies if target_topic_of(each.record) == topic and not is_recall(each.record)]
    return found


def _followed_back(shards: Shards, found: Original, deadline: Deadline) -> Original:
    """The record that a copy was made of; of one that waited for its time or verdict, the one that came of it."""
    record = found.record
    within = only(shards, found.broker_name)
    if is_copy(record):
        return _origin_of(within, found, deadline) or found
    if record.topic not in WAITING_TOPICS or not record.unique_key or not target_topic_of(record):
        return found
    return find_later(within, found, deadline) or found


def find_later(within: Shards, waited: Original, deadline: Deadline) -> Original | None:
    """The record in its own topic that a record which waited has become; None: none yet, or never."""
    record = waited.record
    later: Original | None = None
    for each in copies_of(within, target_topic_of(record), record.unique_key, [], deadline):
        is_of_another = moved_from_topic_of(each.record) not in ("", record.topic)
        if each.record.commit_log_offset > record.commit_log_offset and not is_of_another:
            later = each
    return later


def _origin_of(within: Shards, copy: Original, deadline: Deadline) -> Original | None:
    record = copy.record
    (shard,) = within
    origin_offset = origin_offset_of(record)
    if origin_offset is not None:
        try:
            origin = get_record(shard, origin_offset, deadline)
        except (RecordNotFoundError, OffsetOutOfRangeError):  # retention removed it, or the caller may not see it
            return None
        return Original(copy.broker_name, origin) if origin.unique_key == record.unique_key else None
    origin_topic = origin_topic_of(record)
    if not origin_topic or not record.unique_key:
        return None
    try:
        found = list(copies_of(within, origin_topic, record.unique_key, [], deadline))
    except PermissionDeniedError:
        return None
    older = [each for each in found if each.record.commit_log_offset < record.commit_log_offset]
    return older[-1] if older else None


def is_copy_of(copy: StoredMessage, original: StoredMessage) -> bool:
    """Whether a record with the same unique key was made of this one, by what it says of itself."""
    if copy.commit_log_offset <= original.commit_log_offset:
        return False
    origin_offset = origin_offset_of(copy)
    if origin_offset is None or is_copy(original):
        return True
    return origin_offset == original.commit_log_offset
