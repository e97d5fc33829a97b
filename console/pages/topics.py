"""Topics: by name page by page, or sorted; users' topics before RocketMQ's own; those whose names contain a text.

The gateway lists topics by name. Another order needs all of them, so it sorts the first SORTED_COUNT_MAX by name and says
when there are more. The time of the last message takes a call for each queue: the page asks for a short time, and the script
loads the table again with the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from console.actions.action import action_links
from console.actions.topics import CreateTopic
from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import banner_of
from console.parts.message_row import topic_href, topic_kind
from console.parts.rates import LATER_SECONDS, Asking, TopicQueue
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import DeadlineExceededError, StoreError

PAGE_SIZE = 100
# The size of the rows, of 100 KiB for a page. A name may have 255 bytes, 765 in a link.
ROWS_BYTES_MAX = 80 * 1024
# The markup of a row.
ROW_BYTES = 560
SHOWN_SHARD_COUNT = 4
SORTED_COUNT_MAX = 2_000
LAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic in the list.

    Attributes:
        queues: those with a row in the answer.
        last_millis: store time of its last message; None: it has none, or it is not known.
        is_left_out: whether there was no time to look for it.
    """

    topic: str
    href: str
    kind: str
    queue_count: int
    message_count: int
    broker_names: tuple[str, ...]
    queues: tuple[TopicQueue, ...]
    last_millis: int | None = None
    is_left_out: bool = False

    @property
    def size_bytes(self) -> int:
        """The approximate size of its row."""
        shown = escape(self.topic[:96])
        names = (shown, shown, *(escape(name[:32]) for name in self.broker_names[:SHOWN_SHARD_COUNT]))
        return ROW_BYTES + len(self.href) + sum(len(name.encode()) for name in names)


SORTS: dict[str, Callable[[TopicLine], Any]] = {
    "name": lambda line: line.topic,
    "queues": lambda line: (-line.queue_count, line.topic),
    "messages": lambda line: (-line.message_count, line.topic),
    "last": lambda line: (-(line.last_millis or 0), line.topic),
}


def topics_page(calls: Calls, question: Question) -> Page:
    """One page of topics; with `q`, of those whose names contain it; with `sort`, in another order than by name."""
    stopwatch = Stopwatch()
    sort = question.choice("sort", SORTS, "name")
    part = question.choice("part", ("all", "rows"), "all")
    is_final = part == "rows" or bool(question.text("whole"))
    seconds = LATER_SECONDS if is_final else LAST_SECONDS
    if sort == "name":
        answer, lines = _answer(calls, question)
        lines = _with_last_times(calls, lines, seconds)
        next_href = question.link("/topics", part=None, page=answer.next_page_token) if answer.next_page_token else ""
    else:
        answer, lines = _all(calls, question)
        lines = sorted(_with_last_times(calls, lines, seconds) if sort == "last" else lines, key=SORTS[sort])
        begin = question.number("from", 0)
        shown = _fitting(lines[begin : begin + PAGE_SIZE])
        end = begin + len(shown)
        next_href = question.link("/topics", part=None, **{"from": end}) if end < len(lines) else ""
        lines = shown if sort == "last" else _with_last_times(calls, shown, seconds)
    took_millis = stopwatch.millis()
    given = question.given()
    lacks = any(line.is_left_out for line in lines)
    values = {
        "given": given,
        "actions": action_links(calls, (CreateTopic(), {})),
        "sort": sort,
        "sort_hrefs": {
            name: question.link(
                "/topics", sort=None if name == "name" else name, page=None, part=None, **{"from": None}
            )
            for name in SORTS
        },
        "groups": (
            ("", [line for line in lines if not line.kind]),
            ("retry", [line for line in lines if line.kind in ("retry", "dead-letter")]),
            ("system", [line for line in lines if line.kind == "system"]),
        ),
        "topic_count": len(lines),
        "banner": banner_of(answer, took_millis),
        "is_cut": sort != "name" and bool(answer.next_page_token),
        "sorted_count_max": SORTED_COUNT_MAX,
        "shown_shard_count": SHOWN_SHARD_COUNT,
        "is_final": is_final,
        "rows_href": question.link("/topics", part="rows") if lacks and not is_final else "",
        "whole_href": question.link("/topics", whole="1") if lacks and not is_final else "",
        "first_href": question.link("/topics", part=None, page=None, **{"from": None})
        if "page" in given or "from" in given
        else "",
        "next_href": next_href,
    }
    template = "topics.html" if part == "all" else "topics_rows.html"
    return Page(template, values, {"answer": to_json(answer), "topics": _to_json(lines), "tookMillis": took_millis})


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
        fitting = _fitting(lines)
        if len(fitting) == len(lines):
            return answer, lines
        # The token continues behind the last topic of its answer. So when the rows are too large, a smaller page is requested.
        request.page_size = len(fitting)


def _all(calls: Calls, question: Question) -> tuple[Any, list[TopicLine]]:
    """The topics by name, up to SORTED_COUNT_MAX, and the answer with all of them."""
    request = pb.ListTopicsRequest(page_size=1_000, name_contains=question.text("q"))
    whole = calls.ask(calls.gateway.ListTopics, request)
    while whole.next_page_token and len(whole.topics) < SORTED_COUNT_MAX:
        request.page_token = whole.next_page_token
        answer = calls.ask(calls.gateway.ListTopics, request)
        whole.topics.extend(answer.topics)
        whole.next_page_token = answer.next_page_token
        whole.completeness = max(whole.completeness, answer.completeness)
    lines: dict[str, TopicLine] = {}
    for row in whole.topics:
        line = _line(row)
        before = lines.get(row.topic)  # a topic with many queues goes on in the next answer
        lines[row.topic] = line if before is None else _together(before, line)
    return whole, list(lines.values())


def _fitting(lines: Sequence[TopicLine]) -> list[TopicLine]:
    """The first lines, as many as fit on a page; at least one, if there is one."""
    fitting: list[TopicLine] = []
    size_bytes = 0
    for line in lines:
        size_bytes += line.size_bytes
        if fitting and size_bytes > ROWS_BYTES_MAX:
            break
        fitting.append(line)
    return fitting


def _line(row: pb.ListTopicsResponse.Topic) -> TopicLine:
    queues = tuple(TopicQueue(each.broker_name, each.queue_id, each.min_offset, each.max_offset) for each in row.queues)
    return TopicLine(
        row.topic,
        topic_href(row.topic),
        topic_kind(row.topic),
        max(row.queue_count, len(queues)),
        sum(queue.count for queue in queues),
        tuple(sorted({queue.broker_name for queue in queues})),
        queues,
    )


def _together(first: TopicLine, second: TopicLine) -> TopicLine:
    return replace(
        first,
        message_count=first.message_count + second.message_count,
        broker_names=tuple(sorted({*first.broker_names, *second.broker_names})),
        queues=(*first.queues, *second.queues),
    )


def _with_last_times(calls: Calls, lines: Sequence[TopicLine], seconds: float) -> list[TopicLine]:
    """The lines with the time of the last message, as far as the time is enough."""
    end_seconds = calls.context.time_remaining() - seconds
    found = []
    for line in lines:
        asking = Asking(calls, line.topic, calls.context.time_remaining() - end_seconds)
        last_millis, is_left_out = None, False
        for queue in line.queues:
            if not queue.count:
                continue
            try:
                answer = asking.search(queue, 0)
            except DeadlineExceededError:
                last_millis, is_left_out = None, True
                break
            except StoreError:
                continue  # the banner names the shard
            if answer.HasField("last_store_time"):
                last_millis = max(last_millis or 0, answer.last_store_time.ToMilliseconds())
        found.append(replace(line, last_millis=last_millis, is_left_out=is_left_out))
    return found


def _to_json(lines: Sequence[TopicLine]) -> list[dict[str, Any]]:
    return [
        {
            "topic": line.topic,
            "messageCount": str(line.message_count),
            "lastStoreMillis": None if line.last_millis is None else str(line.last_millis),
        }
        for line in lines
    ]
