"""A topic: its queues with their ranges and times, the number of messages over time, and a live tail. A queue of it, page by
page: by position, by time, from either end.
"""

from typing import Any

from console.actions.action import action_links
from console.actions.sending import Send
from console.actions.topics import UpdateTopic
from console.calls import Calls
from console.pages.find import QUEUE_ID_MAX
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import banner_of
from console.parts.charts import bars, queue_scale
from console.parts.message_row import message_row, queue_href, topic_href, topic_kind
from console.parts.rates import LATER_SECONDS, Asking, QueueSpan, Rates, queues_of, rates_of, spans_of
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.convert import millis_to_timestamp

# Each queue costs calls and a row. Further queues are on the next pages.
SHOWN_QUEUE_COUNT = 64
LIST_PAGE_COUNT_MAX = 16
# The time that the page waits; the script's request has LATER_SECONDS.
RATES_SECONDS = 0.1
CHART_WIDTH, CHART_HEIGHT = 960, 96
SPARK_WIDTH, SPARK_HEIGHT = 120, 24


def topic_page(calls: Calls, question: Question) -> Page:
    """The topic of the path."""
    stopwatch = Stopwatch()
    topic = question.path_text("topic")
    found = queues_of(calls, topic, LIST_PAGE_COUNT_MAX)
    begin = question.number("from", 0)
    shown = found.queues[begin : begin + SHOWN_QUEUE_COUNT]
    part = question.choice("part", ("all", "rates"), "all")
    is_final = part == "rates" or bool(question.text("whole"))
    asking = Asking(calls, topic, LATER_SECONDS if is_final else RATES_SECONDS)
    spans = spans_of(asking, shown)
    rates = rates_of(asking, spans)
    took_millis = stopwatch.millis()
    sparks = {}
    if rates is not None:
        top = max((max(counts) for counts in rates.by_queue.values()), default=1)
        for name, counts in rates.by_queue.items():
            # All queues on one scale: the last value only sets it.
            sparks[name] = bars((*counts, top), SPARK_WIDTH * (len(counts) + 1) / len(counts), SPARK_HEIGHT)[:-1]
    lacks = not is_final and _lacks(spans, rates)
    end = begin + len(shown)
    href = topic_href(topic)
    values = {
        "topic": topic,
        "begin": begin,
        "end": end,
        "previous_href": question.link(href, part=None, **{"from": max(0, begin - SHOWN_QUEUE_COUNT) or None})
        if begin
        else "",
        "next_href": question.link(href, part=None, **{"from": end}) if shown and end < len(found.queues) else "",
        "is_final": is_final,
        "kind": topic_kind(topic),
        "actions": action_links(calls, (Send(), {"topic": topic}), (UpdateTopic(), {"topic": topic}))
        if topic_kind(topic) == ""
        else [],
        "spans": spans,
        "sparks": sparks,
        "queue_count": found.queue_count,
        "message_count": sum(queue.count for queue in found.queues),
        "rates": rates,
        "chart": bars(rates.totals, CHART_WIDTH, CHART_HEIGHT) if rates else [],
        # The script's request for the missing part; empty when nothing is missing or this is that request.
        "rates_href": question.link(href, part="rates") if lacks else "",
        "whole_href": question.link(href, whole="1") if lacks else "",
        "tail_href": f"{href}/tail",
        "tail_tag": question.text("tag"),
        "lite_href": f"{href}/lite-topics"
        if any(
            each.message_type == message_pb2.MESSAGE_TYPE_LITE for row in found.answer.topics for each in row.settings
        )
        else "",
        "banner": banner_of(found.answer, took_millis),
        "took_millis": took_millis,
    }
    answer = {
        "topic": topic,
        "queues": [
            {
                "brokerName": span.queue.broker_name,
                "queueId": span.queue.queue_id,
                "minOffset": str(span.queue.min_offset),
                "maxOffset": str(span.queue.max_offset),
                "firstStoreMillis": None if span.first_millis is None else str(span.first_millis),
                "lastStoreMillis": None if span.last_millis is None else str(span.last_millis),
            }
            for span in spans
        ],
        "queueCount": found.queue_count,
        "tookMillis": took_millis,
    }
    if rates is not None:
        answer["rates"] = {
            "beginMillis": str(rates.begin_millis),
            "endMillis": str(rates.end_millis),
            "counts": [str(count) for count in rates.totals],
            "leftOutQueueCount": rates.left_out_count,
        }
    return Page("topic.html" if part == "all" else "topic_queues.html", values, answer)


def _lacks(spans: list[QueueSpan], rates: Rates | None) -> bool:
    return any(span.is_left_out for span in spans) or (rates is not None and rates.left_out_count > 0)


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
        "scale": queue_scale(f"{topic}/{queue_id}", answer.min_offset, answer.max_offset, first),
        "banner": banner_of(answer, took_millis),
        "oldest_href": href(answer.min_offset) if first > answer.min_offset else "",
        "back_href": href(max(answer.min_offset, first - PAGE_SIZE)) if first > answer.min_offset else "",
        "next_href": href(end) if end < answer.max_offset else "",
        "newest_href": href(newest) if end < answer.max_offset else "",
    }
    return Page("queue.html", values, {"answer": to_json(answer), "tookMillis": took_millis})
