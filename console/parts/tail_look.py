"""One look at the queues of a topic for a live tail: reads the new messages and keeps the position of each queue.

queue       before  end     this look          after
a 0         10      12      reads 10, 11       12
a 1         7       9       fails, or no time  7, and the next look begins here
b 0         -       1,000   nothing            1,000: its shard did not answer before, so its messages are not new
b 1         -       3       reads 0, 1, 2      3: its shard answered before, so the queue is new

"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from console.calls import Calls
from console.parts.topic_queues import TopicQueue, queues_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, StoreError

SHOWN_COUNT_MAX = 40
QUEUE_COUNT_MAX = 64
# Positions of a queue that one look searches for tags, and its time in milliseconds. With many queues each gets less, so
# that all have a turn, but at least the time in which a search moves on.
SEARCHED_COUNT_MAX = 100_000
SEARCH_MILLIS_MAX = 50
SEARCH_MILLIS_MIN = 5
# A look holds a page thread for this time, which is shorter than the pause after it. The next look begins with the queues
# that were not reached.
LOOK_MILLIS_MAX = 600

Key = tuple[str, int]


@dataclass(slots=True)
class TailPosition:
    """The next position of each queue.

    Attributes:
        next_offsets: by shard and queue.
        turn: the queue with which the next look begins; None: any. `to_text` leaves it out.
    """

    next_offsets: dict[Key, int] = field(default_factory=dict)
    turn: Key | None = None

    def to_text(self) -> str:
        """The text for an event's id."""
        return ";".join(f"{quote(name, safe='')}:{queue}:{at}" for (name, queue), at in self.next_offsets.items())

    @classmethod
    def from_text(cls, text: str) -> "TailPosition":
        """The position of a text from `to_text`; InvalidArgumentError for any other text."""
        position = cls()
        try:
            for part in filter(None, text.split(";")):
                name, queue, at = part.split(":")
                position.next_offsets[unquote(name), int(queue)] = max(0, int(at))
        except ValueError as error:
            raise InvalidArgumentError(
                f"from is {text[:200]!r}, which is not a position of a tail.", field="from"
            ) from error
        return position


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look at the queues.

    Attributes:
        messages: oldest first.
        skipped_count: messages before them that are not shown.
        passed_count: messages that were read and have other tags.
        has_moved: whether the position has changed.
        missing: shards that did not answer.
        unfollowed_count: queues beyond the limit, which are not followed.
    """

    messages: list[Any]
    skipped_count: int
    passed_count: int
    has_moved: bool
    missing: tuple[str, ...] = ()
    unfollowed_count: int = 0


def look(calls: Calls, topic: str, position: TailPosition, tags: tuple[str, ...] = ()) -> Look:
    """The newest messages behind the position, with one of the tags if tags are given. Moves the position.

    A queue that fails, or for which no time is left, ends the look; the next look begins with it.

    Raises:
        StoreError: the first queue of the look failed.
    """
    listed = queues_of(calls, topic)
    followed = _followed(listed.queues, position)
    before = position.next_offsets
    known_names = {name for name, _ in before}
    after = dict(before)
    behind: list[tuple[TopicQueue, int]] = []
    for queue in followed:
        # If the shard did not answer before, its messages may be old.
        begin = queue.min_offset if queue.broker_name in known_names else queue.max_offset
        at = max(before.get(queue.key, begin), queue.min_offset)
        after[queue.key] = at
        if at < queue.max_offset:
            behind.append((queue, at))
    messages: list[Any] = []
    skipped_count = passed_count = 0
    end_seconds = calls.context.time_remaining() - LOOK_MILLIS_MAX / 1000
    search_millis = max(SEARCH_MILLIS_MIN, min(SEARCH_MILLIS_MAX, LOOK_MILLIS_MAX // max(1, len(behind))))
    for number, (queue, at) in enumerate(behind):
        if number and calls.context.time_remaining() < end_seconds:
            position.turn = queue.key
            break
        begin = max(at, queue.max_offset - (SEARCHED_COUNT_MAX if tags else SHOWN_COUNT_MAX))
        try:
            part = (
                _tagged(calls, topic, queue, begin, tags, search_millis) if tags else _all(calls, topic, queue, begin)
            )
        except StoreError:
            if not number:
                raise
            position.turn = queue.key
            break
        # Messages that did not fit are read by the next look.
        after[queue.key] = part.next_offset
        messages.extend(part.messages)
        skipped_count += begin - at + part.unreadable_count
        passed_count += part.passed_count
    position.next_offsets = after
    messages.sort(key=lambda message: (message.store_time.ToMilliseconds(), message.commit_log_offset))
    skipped_count += max(0, len(messages) - SHOWN_COUNT_MAX)
    return Look(
        messages[-SHOWN_COUNT_MAX:],
        skipped_count,
        passed_count,
        after != before,
        listed.missing_names,
        len(listed.queues) - len(followed),
    )


def _followed(queues: Sequence[TopicQueue], position: TailPosition) -> list[TopicQueue]:
    """The queues to look at, beginning with the one whose turn it is; queues with a position are preferred."""
    known = [queue for queue in queues if queue.key in position.next_offsets][:QUEUE_COUNT_MAX]
    room_count = max(0, QUEUE_COUNT_MAX - len(position.next_offsets))
    followed = known + [queue for queue in queues if queue.key not in position.next_offsets][:room_count]
    first = next((number for number, queue in enumerate(followed) if queue.key == position.turn), 0)
    return followed[first:] + followed[:first]


@dataclass(frozen=True, slots=True)
class _Part:
    """The result of one queue; `next_offset` is behind all positions that were read."""

    messages: Sequence[Any]
    next_offset: int
    passed_count: int = 0
    unreadable_count: int = 0


def _all(calls: Calls, topic: str, queue: TopicQueue, begin: int) -> _Part:
    """Messages of a queue from a position on."""
    request = pb.QueryMessageByOffsetRequest(
        topic=topic,
        queue_id=queue.queue_id,
        queue_offset=begin,
        broker_name=queue.broker_name,
        page_size=min(SHOWN_COUNT_MAX, queue.max_offset - begin),
    )
    answer = calls.ask(calls.gateway.QueryMessageByOffset, request)
    return _Part(answer.messages, max(answer.next_queue_offset, begin))


def _tagged(calls: Calls, topic: str, queue: TopicQueue, begin: int, tags: tuple[str, ...], millis: int) -> _Part:
    """Messages of a queue with one of the tags, from a position on."""
    request = pb.SearchMessagesRequest(
        topic=topic,
        broker_name=queue.broker_name,
        queue_id=queue.queue_id,
        begin_queue_offset=begin,
        end_queue_offset=queue.max_offset,
        order=pb.SEARCH_ORDER_OLDEST_FIRST,
        tags=tags,
        page_size=SHOWN_COUNT_MAX,
        max_records=SEARCHED_COUNT_MAX,
        max_millis=millis,
    )
    answer = calls.search(request)
    next_offset = max((scanned.end_offset for scanned in answer.scanned_ranges), default=begin)
    if next_offset == begin:
        for shard in answer.shards:
            if shard.HasField("error"):
                raise StoreError(f"shard {shard.broker_name} did not answer: {shard.error.message}")
    passed_count = next_offset - begin - len(answer.messages) - answer.unreadable_count
    return _Part(answer.messages, next_offset, passed_count, answer.unreadable_count)
