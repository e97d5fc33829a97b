"""Messages that wait for their time, the next due one first; half messages that wait for the verdict of their transaction."""

from collections.abc import Callable
from typing import Any

from console.calls import Calls
from console.pages.groups import missing_of
from console.pages.page import Page, Stopwatch, to_json
from console.parts.message_row import message_href
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import timestamp_to_millis

# Half messages with long names of topics, groups and shards take 1.5 KiB each, of 100 KiB for a page.
PAGE_SIZE = 50


def scheduled_page(calls: Calls, question: Question) -> Page:
    """The messages that wait for their time, in all shards; with `topic`, of this topic."""
    stopwatch = Stopwatch()
    request = pb.ListScheduledMessagesRequest(
        topic=question.text("topic"), page_size=PAGE_SIZE, page_token=question.text("page")
    )
    answer = calls.ask(calls.gateway.ListScheduledMessages, request)
    may_end = _may_end(calls, "RecallMessage", pb.RecallMessageRequest)
    rows = [
        (each, _href(each), _millis(each, "delivery_time"), bool(each.recall_handle) and may_end(each.topic))
        for each in answer.messages
    ]
    values = _values(question, "/waiting", answer, rows, stopwatch)
    return Page("waiting.html", values, {"scheduled": to_json(answer)})


def half_messages_page(calls: Calls, question: Question) -> Page:
    """The half messages without a verdict, in all shards; with `topic`, of this topic."""
    stopwatch = Stopwatch()
    request = pb.ListPendingTransactionsRequest(
        topic=question.text("topic"), page_size=PAGE_SIZE, page_token=question.text("page")
    )
    answer = calls.ask(calls.gateway.ListPendingTransactions, request)
    may_end = _may_end(calls, "EndTransaction", pb.EndTransactionRequest)
    rows = [
        (each, _href(each), _millis(each, "born_time"), _millis(each, "next_check_time"), may_end(each.topic))
        for each in answer.transactions
    ]
    values = _values(question, "/half-messages", answer, rows, stopwatch)
    return Page("half_messages.html", values, {"transactions": to_json(answer)})


def _values(question: Question, path: str, answer: Any, rows: list[Any], stopwatch: Stopwatch) -> dict[str, Any]:
    given = question.given()
    return {
        "given": given,
        "path": path,
        "rows": rows,
        "has_actions": any(row[-1] for row in rows),
        "pending_count": answer.pending_count,
        "missing": missing_of(answer.shards),
        "first_href": question.link(path, page=None) if "page" in given else "",
        "next_href": question.link(path, page=answer.next_page_token) if answer.next_page_token else "",
        "took_millis": stopwatch.millis(),
    }


def _may_end(calls: Calls, method: str, request: Callable[..., Any]) -> Callable[[str], bool]:
    """Whether the caller may end what waits of a topic; each topic is looked up once."""
    known: dict[str, bool] = {}

    def may_end(topic: str) -> bool:
        if topic not in known:
            known[topic] = calls.acts and calls.may(method, request(topic=topic))
        return known[topic]

    return may_end


def _href(each: Any) -> str:
    return message_href(each.offset_msg_id, each.broker_name)


def _millis(each: Any, field: str) -> int | None:
    return timestamp_to_millis(getattr(each, field), field) if each.HasField(field) else None
