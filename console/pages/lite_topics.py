"""The lite topics of a topic by name, page by page; with `q`, those whose names contain it, with `group`, those of a group.

A topic may have a million of them, so there is neither another order nor a count.
"""

from urllib.parse import quote

from console.calls import Calls
from console.pages.groups import missing_of
from console.pages.page import Page, Stopwatch, to_json
from console.parts.message_row import queue_href, topic_href
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.format.topic import lite_queue_name

PAGE_SIZE = 100
# The size of the rows, of 100 KiB for a page, and the markup of a row without the name of the topic in its link.
ROWS_BYTES_MAX = 80 * 1024
ROW_BYTES = 1_200
SHOWN_GROUP_COUNT = 3


def lite_topics_page(calls: Calls, question: Question) -> Page:
    """One page of lite topics, with what groups have still to consume."""
    stopwatch = Stopwatch()
    topic = question.path_text("topic")
    href = f"{topic_href(topic)}/lite-topics"
    request = pb.ListLiteTopicsRequest(
        topic=topic,
        consumer_group=question.text("group"),
        name_contains=question.text("q"),
        page_size=min(PAGE_SIZE, ROWS_BYTES_MAX // (ROW_BYTES + len(quote(topic, safe="")))),
        page_token=question.text("page"),
    )
    answer = calls.ask(calls.gateway.ListLiteTopics, request)
    took_millis = stopwatch.millis()
    values = {
        "topic": topic,
        "topic_href": topic_href(topic),
        "given": question.given(),
        "rows": [
            (
                each,
                queue_href(lite_queue_name(topic, each.lite_topic), 0, each.broker_name, each.min_offset),
                each.last_store_time.ToMilliseconds() if each.HasField("last_store_time") else None,
                sum(group.lag_count for group in each.groups),
                sum(group.in_flight_count for group in each.groups),
            )
            for each in answer.lite_topics
        ],
        "missing": missing_of(answer.outcomes),
        "shown_group_count": SHOWN_GROUP_COUNT,
        "first_href": question.link(href, page=None) if question.text("page") else "",
        "next_href": question.link(href, page=answer.next_page_token) if answer.next_page_token else "",
    }
    return Page("lite_topics.html", values, {"answer": to_json(answer), "tookMillis": took_millis})
