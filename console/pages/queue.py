"""A queue, page by page: by position, by time, from either end."""

from typing import Any

from console.calls import Calls
from console.pages.find import QUEUE_ID_MAX
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import banner_of
from console.parts.message_row import message_row, queue_href
from console.parts.position import queue_track
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import millis_to_timestamp

PAGE_SIZE = 25


def queue_page(calls: Calls, question: Question) -> Page:
    """Messages from `offset` or `time` on; without either, the newest."""
    stopwatch = Stopwatch()
    topic, queue_id = question.path_text("topic"), question.path_number("queue_id", QUEUE_ID_MAX)
    broker_name = question.text("broker")
    time_millis = question.time_millis("time")
    where: dict[str, Any] = {"topic": topic, "queue_id": queue_id, "broker_name": broker_name}
    if time_millis is not None:
        time = millis_to_timestamp(time_millis)
        begin = calls.ask(calls.gateway.SearchOffset, pb.SearchOffsetRequest(time=time, **where)).queue_offset
    elif question.text("offset"):
        begin = question.number("offset", 0)
    else:
        edge = calls.ask(calls.gateway.QueryMessageByOffset, pb.QueryMessageByOffsetRequest(page_size=1, **where))
        begin = max(edge.min_offset, edge.max_offset - PAGE_SIZE)
    request = pb.QueryMessageByOffsetRequest(queue_offset=begin, page_size=PAGE_SIZE, **where)
    answer = calls.ask(calls.gateway.QueryMessageByOffset, request)
    took_millis = stopwatch.millis()
    first = (
        answer.messages[0].queue_offset if answer.messages else min(max(begin, answer.min_offset), answer.max_offset)
    )
    end = answer.next_queue_offset if answer.messages else first

    def href(offset: int) -> str:
        return queue_href(topic, queue_id, broker_name, offset)

    newest = max(answer.min_offset, answer.max_offset - PAGE_SIZE)
    values = {
        "topic": topic,
        "queue_id": queue_id,
        "broker_name": broker_name,
        "given": question.given(),
        "answer": answer,
        "rows": [message_row(message) for message in answer.messages],
        "first": first,
        "end": end,
        "track": queue_track(f"{topic}/{queue_id}", answer.min_offset, answer.max_offset, first),
        "banner": banner_of(answer, took_millis),
        "oldest_href": href(answer.min_offset) if first > answer.min_offset else "",
        "back_href": href(max(answer.min_offset, first - PAGE_SIZE)) if first > answer.min_offset else "",
        "next_href": href(end) if end < answer.max_offset else "",
        "newest_href": href(newest) if end < answer.max_offset else "",
    }
    return Page("queue.html", values, {"answer": to_json(answer), "tookMillis": took_millis})
