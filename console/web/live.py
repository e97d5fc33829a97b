"""Live tails: new messages of a topic as server-sent events.

    id: broker-a:0:42;broker-a:1:17      the position from which a browser continues (`from`, or Last-Event-ID)
    event: rows                          rows of HTML, or with `format=json` an array of messages
    event: passed                        progress: the number of further messages with other tags
    event: skipped                       the number of messages that arrived and are not shown
    event: partial                       the parts that the tail does not read, at each change: `shards` without answer,
                                         `unfollowedQueueCount`, and whether the console is too `busy`
    event: end                           the stream has ended: its time, the server, or an error

The number of streams, queues of a topic, messages of one read and minutes is limited. The queues are read at intervals, in
the threads that make pages. With tags, the new messages are searched: tag codes rule out units of a queue, so for a rare tag
of a busy topic no message is skipped.

One look at the queues of a topic reads the new messages and keeps the position of each queue:

    queue       before  end     this look          after
    a 0         10      12      reads 10, 11       12
    a 1         7       9       fails, or no time  7, and the next look begins here
    b 0         -       1,000   nothing            1,000: its shard did not answer before, so its messages are not new
    b 1         -       3       reads 0, 1, 2      3: its shard answered before, so the queue is new
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from console.calls import Calls
from console.pages.page import to_json
from console.parts.message_row import message_row
from console.parts.rates import TopicQueue, queues_of
from console.question import Question, parse_tags
from console.web.page_threads import PageThreads
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import InvalidArgumentError, ResourceBusyError, StoreError

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


STREAM_COUNT_MAX = 8
STREAM_SECONDS_MAX = 15 * 60.0
LOOK_SECONDS = 0.7
HEARTBEAT_SECONDS = 15.0
LOOK_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class _Lack:
    """The parts that a tail does not read."""

    missing: tuple[str, ...] = ()
    unfollowed_count: int = 0
    is_busy: bool = False

    def to_text(self) -> str:
        """The JSON of an event."""
        lack = {"shards": self.missing, "unfollowedQueueCount": self.unfollowed_count, "busy": self.is_busy}
        return json.dumps(lack, ensure_ascii=False)


class LiveTails:
    """All streams of the console; used from one event loop.

    Args:
        threads: read the queues.
        clock: monotonic, in seconds.
    """

    def __init__(self, threads: PageThreads, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads = threads
        self._clock = clock
        self._count = 0
        self._is_closed = threading.Event()

    def close(self) -> None:
        """End all streams; from any thread."""
        self._is_closed.set()

    def stream(
        self,
        request: Request,
        calls_for: Callable[[float], Calls],
        question: Question,
        render: Callable[..., bytes],
    ) -> Response:
        """A stream of one topic; ResourceBusyError when STREAM_COUNT_MAX streams are open."""
        topic, tags = question.path_text("topic"), parse_tags(question.text("tag"), "tag")
        position = TailPosition.from_text(request.headers.get("last-event-id", "") or question.text("from"))
        if self._count >= STREAM_COUNT_MAX:
            raise ResourceBusyError(
                f"{STREAM_COUNT_MAX} live tails are open, which is the limit: close one or try again."
            )
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
        if self._count >= STREAM_COUNT_MAX:  # others were opened since `stream` checked the limit
            yield _event("end", "too many live tails are open")
            return
        self._count += 1
        try:
            end_seconds = self._clock() + STREAM_SECONDS_MAX
            said_seconds = self._clock()
            said_lack = lack = _Lack()
            yield "retry: 2000\n\n"
            while self._clock() < end_seconds and not self._is_closed.is_set():
                calls = calls_for(LOOK_SECONDS_MAX)
                found: tuple[Look, str] | None
                try:
                    found = await self._threads.work(partial(made, calls), calls.context)
                except ResourceBusyError:
                    # Pages have priority. The tail reads from its position later, so it loses nothing.
                    found, lack = None, replace(said_lack, is_busy=True)
                except StoreError as error:
                    yield _event("end", error.message)
                    return
                if found is not None:
                    seen, text = found
                    lack = _Lack(seen.missing, seen.unfollowed_count)
                    if seen.skipped_count:
                        yield _event("skipped", str(seen.skipped_count))
                    if text:
                        yield _event("rows", text, position.to_text())
                    if seen.passed_count or (seen.has_moved and not text):
                        yield _event("passed", str(seen.passed_count), position.to_text())
                    if seen.has_moved:
                        said_seconds = self._clock()
                if lack != said_lack:
                    said_lack = lack
                    yield _event("partial", lack.to_text())
                if self._clock() - said_seconds > HEARTBEAT_SECONDS:
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
