"""Topics: by name, what people made before what RocketMQ keeps for itself."""

from dataclasses import dataclass

from gateway.console.banner import banner_of
from gateway.console.calls import Calls
from gateway.console.message_row import topic_href, topic_kind
from gateway.console.pages.page import Page, Stopwatch, to_json
from gateway.console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb

PAGE_SIZE = 200
# With a filter, pages of topics looked through at once.
FILTER_PAGE_COUNT_MAX = 10


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic in the list."""

    topic: str
    href: str
    kind: str
    queue_count: int
    message_count: int
    broker_names: tuple[str, ...]


def topics_page(calls: Calls, question: Question) -> Page:
    """One page of topics; with `q`, those whose names hold it."""
    stopwatch = Stopwatch()
    wanted = question.text("q").lower()
    if wanted:
        answer = pb.ListTopicsResponse()
        for part in calls.topics(FILTER_PAGE_COUNT_MAX):
            answer.topics.extend(row for row in part.topics if wanted in row.topic.lower())
            del answer.shards[:]
            answer.shards.extend(part.shards)
            answer.completeness = part.completeness
        del answer.topics[PAGE_SIZE:]
    else:
        request = pb.ListTopicsRequest(page_size=PAGE_SIZE, page_token=question.text("page"))
        answer = calls.ask("ListTopics", request)
    lines = [_line(row) for row in answer.topics]
    took_millis = stopwatch.millis()
    values = {
        "given": question.given(),
        "groups": (
            ("", [line for line in lines if not line.kind]),
            ("retry", [line for line in lines if line.kind in ("retry", "dead-letter")]),
            ("system", [line for line in lines if line.kind == "system"]),
        ),
        "topic_count": len(lines),
        "banner": banner_of(answer, took_millis),
        "next_href": question.link("/topics", page=answer.next_page_token) if answer.next_page_token else "",
    }
    return Page("topics.html", values, {"answer": to_json(answer), "tookMillis": took_millis})


def _line(row: pb.ListTopicsResponse.Topic) -> TopicLine:
    return TopicLine(
        row.topic,
        topic_href(row.topic),
        topic_kind(row.topic),
        len(row.queues),
        sum(max(0, queue.max_offset - queue.min_offset) for queue in row.queues),
        tuple(sorted({queue.broker_name for queue in row.queues})),
    )
