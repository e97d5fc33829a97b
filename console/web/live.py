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
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from console.calls import Calls
from console.pages.page import to_json
from console.parts.message_row import message_row
from console.parts.tag_expression import parse_tags
from console.parts.tail_look import Look, TailPosition, look
from console.question import Question
from console.web.page_threads import PageThreads
from store.errors import ResourceBusyError, StoreError

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
