"""Live tails: what comes into a topic, as server-sent events.

    id: broker-a:0:42;broker-a:1:17      where to go on, for a browser that comes back (`from`, or Last-Event-ID)
    event: rows                          rows of HTML, or with `format=json` an array of messages
    event: passed                        how far it is: so many more were looked at and have other tags
    event: skipped                       more came in than is shown: how many
    event: end                           the stream is over: its time, the server, or an error

Bounded: so many streams, queues of a topic, messages a look, and minutes. Nobody is followed by pushing: the queues are
looked at at a pace, in the threads that make pages. With tags it is a search of what is new: units of a queue are ruled
out by their tag codes, so that a rare tag of a busy topic is seen whole, and nothing is skipped for being many.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from gateway.console.calls import Calls
from gateway.console.desk import Desk
from gateway.console.message_row import message_row
from gateway.console.pages.page import to_json
from gateway.console.question import Question
from gateway.console.tag_expression import parse_tags
from gateway.console.topic_queues import TopicQueue, queues_of
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, ResourceBusyError, StoreError

STREAM_COUNT_MAX = 8
STREAM_SECONDS_MAX = 15 * 60.0
LOOK_SECONDS = 0.7
SHOWN_COUNT_MAX = 40
# Positions of a queue that are searched for tags in one look, and the time of it in milliseconds: with both, all queues of
# a topic are looked at before the look's own time is over.
SEARCHED_COUNT_MAX = 100_000
SEARCH_MILLIS_MAX = 50
QUEUE_COUNT_MAX = 64
HEARTBEAT_SECONDS = 15.0
LOOK_SECONDS_MAX = 5.0

Key = tuple[str, int]


@dataclass(slots=True)
class TailPosition:
    """The next position of each queue."""

    next_offsets: dict[Key, int] = field(default_factory=dict)

    def to_text(self) -> str:
        """For an event's id."""
        return ";".join(f"{quote(name, safe='')}:{queue}:{at}" for (name, queue), at in self.next_offsets.items())

    @classmethod
    def from_text(cls, text: str) -> "TailPosition":
        """InvalidArgumentError when it is none."""
        position = cls()
        try:
            for part in filter(None, text.split(";")):
                name, queue, at = part.split(":")
                position.next_offsets[unquote(name), int(queue)] = max(0, int(at))
        except ValueError as error:
            raise InvalidArgumentError(f"from is {text[:200]!r}, no position of a tail.", field="from") from error
        return position


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the queues found.

    Attributes:
        messages: oldest first.
        skipped_count: messages before them that are not shown.
        passed_count: messages that were looked at and have other tags.
        has_moved: whether the position is another.
    """

    messages: list[Any]
    skipped_count: int
    passed_count: int
    has_moved: bool


def look(calls: Calls, topic: str, position: TailPosition, tags: tuple[str, ...] = ()) -> Look:
    """The newest messages behind the position with one of the tags, if any; the position moves to the ends of the queues.

    It moves when all queues were looked at: after an error the next look sees the same again.
    """
    queues = queues_of(calls, topic).queues[:QUEUE_COUNT_MAX]
    before = position.next_offsets
    after = dict(before)
    messages: list[Any] = []
    skipped_count = passed_count = 0
    for queue in queues:
        key = (queue.broker_name, queue.queue_id)
        at = max(before.get(key, queue.min_offset if before else queue.max_offset), queue.min_offset)
        begin = max(at, queue.max_offset - (SEARCHED_COUNT_MAX if tags else SHOWN_COUNT_MAX))
        after[key] = max(at, queue.max_offset)
        if begin >= queue.max_offset:
            continue
        # What did not fit comes with the next look.
        part = _tagged(calls, topic, queue, begin, tags) if tags else _all(calls, topic, queue, begin)
        after[key] = part.next_offset
        messages.extend(part.messages)
        skipped_count += begin - at + part.unreadable_count
        passed_count += part.passed_count
    position.next_offsets = after
    messages.sort(key=lambda message: (message.store_time.ToMilliseconds(), message.commit_log_offset))
    skipped_count += max(0, len(messages) - SHOWN_COUNT_MAX)
    return Look(messages[-SHOWN_COUNT_MAX:], skipped_count, passed_count, after != before)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one queue had; `next_offset` is behind all that was looked at."""

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
        max_messages=min(SHOWN_COUNT_MAX, queue.max_offset - begin),
    )
    answer = calls.ask("QueryMessageByOffset", request)
    return _Part(answer.messages, max(answer.next_queue_offset, begin))


def _tagged(calls: Calls, topic: str, queue: TopicQueue, begin: int, tags: tuple[str, ...]) -> _Part:
    """The same of messages with one of the tags."""
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
        max_millis=SEARCH_MILLIS_MAX,
    )
    answer = calls.ask("SearchMessages", request)
    next_offset = max((scanned.end_offset for scanned in answer.scanned_ranges), default=begin)
    if next_offset == begin:
        for shard in answer.shards:
            if shard.HasField("error"):
                raise StoreError(f"shard {shard.broker_name} did not answer: {shard.error.message}")
    passed_count = next_offset - begin - len(answer.messages) - answer.unreadable_count
    return _Part(answer.messages, next_offset, passed_count, answer.unreadable_count)


class LiveTails:
    """All streams of the console; used from one event loop.

    Args:
        desk: makes the looks.
        clock: monotonic, in seconds.
    """

    def __init__(self, desk: Desk, clock: Callable[[], float] = time.monotonic) -> None:
        self._desk = desk
        self._clock = clock
        self._count = 0
        self._is_closed = threading.Event()

    def close(self) -> None:
        """End all; from any thread."""
        self._is_closed.set()

    def stream(
        self,
        request: Request,
        calls_for: Callable[[float], Calls],
        question: Question,
        render: Callable[..., bytes],
    ) -> Response:
        """A stream of one topic; ResourceBusyError when there are enough."""
        topic, tags = question.path_text("topic"), parse_tags(question.text("tag"), "tag")
        position = TailPosition.from_text(request.headers.get("last-event-id", "") or question.text("from"))
        if self._count >= STREAM_COUNT_MAX:
            raise ResourceBusyError(f"{STREAM_COUNT_MAX} live tails are open, the most that the console takes.")
        is_json = request.query_params.get("format") == "json"

        def rows(messages: list[Any]) -> str:
            if is_json:
                return json.dumps([to_json(message) for message in messages], ensure_ascii=False)
            return render(values={"rows": [message_row(message) for message in messages]}).decode()

        def made(calls: Calls) -> tuple[Look, str]:
            found = look(calls, topic, position, tags)
            return found, rows(found.messages) if found.messages else ""

        events = self._events(position, calls_for, made)
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(
        self, position: TailPosition, calls_for: Callable[[float], Calls], made: Callable[[Calls], tuple[Look, str]]
    ) -> AsyncIterator[str]:
        if self._count >= STREAM_COUNT_MAX:  # others came between the answer's head and here
            yield _event("end", "too many live tails are open")
            return
        self._count += 1
        try:
            end_seconds = self._clock() + STREAM_SECONDS_MAX
            said_seconds = self._clock()
            yield "retry: 2000\n\n"
            while self._clock() < end_seconds and not self._is_closed.is_set():
                calls = calls_for(LOOK_SECONDS_MAX)
                found: tuple[Look, str] | None
                try:
                    found = await self._desk.work(partial(made, calls), calls.context)
                except ResourceBusyError:
                    found = None  # pages come first; what is behind the position is not lost
                except StoreError as error:
                    yield _event("end", error.message)
                    return
                if found is not None:
                    seen, text = found
                    if seen.skipped_count:
                        yield _event("skipped", str(seen.skipped_count))
                    if text:
                        yield _event("rows", text, position.to_text())
                    if seen.passed_count or (seen.has_moved and not text):
                        yield _event("passed", str(seen.passed_count), position.to_text())
                    if seen.has_moved:
                        said_seconds = self._clock()
                    elif self._clock() - said_seconds > HEARTBEAT_SECONDS:
                        said_seconds = self._clock()
                        yield ": here\n\n"
                await asyncio.sleep(LOOK_SECONDS)
            yield _event("end", "the time is over" if not self._is_closed.is_set() else "the server is stopping")
        finally:
            self._count -= 1


def _event(name: str, data: str, identifier: str = "") -> str:
    head = f"id: {identifier}\n" if identifier else ""
    # A carriage return would end a line of the protocol as well.
    lines = "".join(f"data: {part}\n" for part in data.replace("\r", " ").split("\n"))
    return f"{head}event: {name}\n{lines}\n"
