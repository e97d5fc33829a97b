"""Explain: the work of a query in each shard: index files, candidates, and why candidates were rejected."""

from typing import Any

from console.calls import Calls
from console.pages.find import QUEUE_ID_MAX, split_topic_and_key
from console.pages.page import Page, Stopwatch, to_json
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb

MODES = ("find", "key", "unique", "id", "offset")
# Rows of each kind on a page.
SHOWN_LOOKUP_COUNT = 40
SHOWN_VISIT_COUNT = 30
SHOWN_REJECTED_COUNT = 20


def explain_page(calls: Calls, question: Question) -> Page:
    """The explanation of the query that Find makes for the same URL."""
    stopwatch = Stopwatch()
    mode = question.choice("mode", MODES, "find")
    answer = calls.ask(calls.gateway.ExplainQuery, explain_request(question, mode))
    took_millis = stopwatch.millis()
    values = {
        "mode": mode,
        "answer": answer,
        "find_href": question.link("/"),
        "passed_over": {1: "cursor", 2: "time", 3: "filter"},
        "rejections": {value: name.removeprefix("REJECTION_").lower() for name, value in pb.Rejection.items()},
        "shown": {"lookups": SHOWN_LOOKUP_COUNT, "visits": SHOWN_VISIT_COUNT, "rejected": SHOWN_REJECTED_COUNT},
        "took_millis": took_millis,
    }
    return Page("explain.html", values, {"mode": mode, "tookMillis": took_millis, "answer": to_json(answer)})


def explain_request(question: Question, mode: str) -> Any:
    """The request that Find makes for a URL, as an ExplainQueryRequest."""
    topic = question.text("topic")
    window = question.window().fields()
    if mode == "find":
        text = question.text("q")
        topic, key = split_topic_and_key(text)
        if not key:
            find = pb.FindMessageRequest(text=text, page_token=question.text("page"), **window)
            return pb.ExplainQueryRequest(find=find)
        return pb.ExplainQueryRequest(by_key=pb.QueryMessageByKeyRequest(topic=topic, key=key, **window))
    if mode == "key":
        by_key = pb.QueryMessageByKeyRequest(topic=topic, key=question.text("key"), **window)
        by_key.page_token = question.text("page")
        return pb.ExplainQueryRequest(by_key=by_key)
    if mode == "unique":
        by_unique_key = pb.QueryMessageByUniqueKeyRequest(topic=topic, unique_key=question.text("unique"))
        by_unique_key.page_token = question.text("page")
        return pb.ExplainQueryRequest(by_unique_key=by_unique_key)
    if mode == "id":
        by_id = pb.QueryMessageByIdRequest(
            offset_msg_id=question.text("id"), topic=topic, broker_name=question.text("broker")
        )
        return pb.ExplainQueryRequest(by_id=by_id)
    by_offset = pb.QueryMessageByOffsetRequest(
        topic=topic,
        queue_id=question.number("queue", 0, QUEUE_ID_MAX),
        queue_offset=question.number("offset", 0),
        broker_name=question.text("broker"),
    )
    return pb.ExplainQueryRequest(by_offset=by_offset)
