"""Topics: by name, users' topics before RocketMQ's own; page by page, or those whose names contain a text."""

from dataclasses import dataclass
from typing import Any

from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import banner_of
from console.parts.message_row import topic_href, topic_kind
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb

PAGE_SIZE = 100
# The size of the rows, of 100 KiB for a page. A name may have 255 bytes, 765 in a link.
ROWS_BYTES_MAX = 80 * 1024
# The markup of a row.
ROW_BYTES = 480
SHOWN_SHARD_COUNT = 4


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic in the list."""

    topic: str
    href: str
    kind: str
    queue_count: int
    message_count: int
    broker_names: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """The approximate size of its row."""
        names = (self.topic[:96], *(name[:32] for name in self.broker_names[:SHOWN_SHARD_COUNT]))
        return ROW_BYTES + len(self.href) + sum(len(name.encode()) for name in names)


def topics_page(calls: Calls, question: Question) -> Page:
    """One page of topics; with `q`, of those whose names contain it."""
    stopwatch = Stopwatch()
    answer, lines = _answer(calls, question)
    took_millis = stopwatch.millis()
    given = question.given()
    values = {
        "given": given,
        "groups": (
            ("", [line for line in lines if not line.kind]),
            ("retry", [line for line in lines if line.kind in ("retry", "dead-letter")]),
            ("system", [line for line in lines if line.kind == "system"]),
        ),
        "topic_count": len(lines),
        "banner": banner_of(answer, took_millis),
        "shown_shard_count": SHOWN_SHARD_COUNT,
        "first_href": question.link("/topics", page=None) if "page" in given else "",
        "next_href": question.link("/topics", page=answer.next_page_token) if answer.next_page_token else "",
    }
    return Page("topics.html", values, {"answer": to_json(answer), "tookMillis": took_millis})


def _answer(calls: Calls, question: Question) -> tuple[Any, list[TopicLine]]:
    """As many topics as fit on a page."""
    request = pb.ListTopicsRequest(
        page_size=max(1, question.number("size", PAGE_SIZE, PAGE_SIZE)),
        page_token=question.text("page"),
        name_contains=question.text("q"),
    )
    while True:
        answer = calls.ask(calls.gateway.ListTopics, request)
        lines = [_line(row) for row in answer.topics]
        size_bytes = sum(line.size_bytes for line in lines)
        if size_bytes <= ROWS_BYTES_MAX or len(lines) <= 1:
            return answer, lines
        # The token continues behind the last topic of its answer. So when the rows are too large, a smaller page is requested.
        request.page_size = max(1, len(lines) * ROWS_BYTES_MAX // size_bytes - 1)


def _line(row: pb.ListTopicsResponse.Topic) -> TopicLine:
    return TopicLine(
        row.topic,
        topic_href(row.topic),
        topic_kind(row.topic),
        max(row.queue_count, len(row.queues)),
        sum(max(0, queue.max_offset - queue.min_offset) for queue in row.queues),
        tuple(sorted({queue.broker_name for queue in row.queues})),
    )
