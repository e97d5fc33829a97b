"""Find: one box for whoever has an id or a key, and a form for each query that the gateway answers.

    find     any id or key; `TOPIC KEY` and `TOPIC#KEY` ask by key in that topic
    key      topic and key         id       offsetMsgId             offset   queue and position
    unique   topic and unique key  search   a scan: tag, text in the body, CEL

Every question is its URL: `/?q=...`, `/?mode=key&topic=...&key=...`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.console.banner import banner_of
from gateway.console.calls import Calls
from gateway.console.message_row import MessageRow, message_row
from gateway.console.pages.page import Page, Stopwatch, to_json
from gateway.console.question import LAST_SECONDS, Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import StoreError

MODES = ("find", "key", "unique", "id", "offset", "search")
PAGE_SIZES = (25, 50)
TOPIC_SUGGESTION_COUNT_MAX = 200
MATCHED_BY = {1: "id", 2: "unique key", 3: "key"}
QUEUE_ID_MAX = (1 << 31) - 1
# A person rather goes on than waits: the token continues exactly there.
SEARCH_MILLIS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Found:
    """An answer, ready to be shown.

    Attributes:
        answer: the gateway's.
        rows: its messages.
        next_href: the page behind; empty at the end.
        further: where to go on after a find that had more: topic and URL.
    """

    answer: Any
    rows: list[MessageRow]
    next_href: str = ""
    further: tuple[tuple[str, str], ...] = ()


def find_page(calls: Calls, question: Question) -> Page:
    """The form, and the answer when something is asked. An answer that fails leaves the form and says why."""
    mode = question.choice("mode", MODES, "find")
    asked = {name: value for name, value in question.given().items() if name not in ("lang", "mode")}
    is_asked = bool(asked) and (mode != "find" or bool(question.text("q")))
    can_explain = calls.has("ExplainQuery")
    stopwatch = Stopwatch()
    found, error = None, None
    if is_asked:
        try:
            found = ASKING[mode](calls, question)
        except StoreError as failure:
            error = failure
    took_millis = stopwatch.millis()
    if error is not None:
        raise FindFailedError(error, _values(question, mode, None, took_millis, can_explain=can_explain))
    answer = {"mode": mode, "question": asked, "tookMillis": took_millis}
    if found is not None:
        answer["answer"] = to_json(found.answer)
    return Page("find.html", _values(question, mode, found, took_millis, can_explain=can_explain), answer)


class FindFailedError(Exception):
    """An answer that failed, with the form around it.

    Args:
        error: why.
        values: of the template.
    """

    def __init__(self, error: StoreError, values: dict[str, Any]) -> None:
        super().__init__(error.message)
        self.error = error
        self.values = values


def _values(
    question: Question, mode: str, found: Found | None, took_millis: float, *, can_explain: bool
) -> dict[str, Any]:
    given = question.given()
    return {
        "mode": mode,
        "modes": MODES,
        "given": given,
        "page_sizes": PAGE_SIZES,
        "ranges": tuple(LAST_SECONDS),
        "found": found,
        "banner": None
        if found is None or not hasattr(found.answer, "completeness")
        else banner_of(found.answer, took_millis, has_next=bool(found.next_href)),
        "took_millis": took_millis,
        "is_first_page": "page" not in given,
        "first_href": question.link("/", page=None),
        # A scan looks at no index: what it looked at stands in its answer.
        "explain_href": question.link("/explain") if mode != "search" and can_explain else "",
    }


def _by_anything(calls: Calls, question: Question) -> Found:
    text = question.text("q")
    topic, key = split_topic_and_key(text)
    if key:
        return _key(calls, question, topic, key)
    request = pb.FindMessageRequest(text=text, page_size=_page_size(question), **question.window().fields())
    answer = calls.ask("FindMessage", request)
    if not answer.matches and "#" in text:
        topic, _, key = text.partition("#")
        if topic and key:
            return _key(calls, question, topic, key)
    rows = [message_row(match.message, MATCHED_BY.get(match.matched_by, "")) for match in answer.matches]
    further: dict[str, str] = {}
    if answer.completeness == 2:
        for match in answer.matches:
            parameter = "unique" if match.matched_by == pb.MATCHED_BY_UNIQUE_KEY else "key"
            href = question.link("/", mode=parameter, q=None, topic=match.message.topic, **{parameter: text})
            further.setdefault(match.message.topic, href)
    return Found(answer, rows, further=tuple(further.items()))


def split_topic_and_key(text: str) -> tuple[str, str]:
    """`TOPIC KEY` as its two parts; no id and no key holds a blank. One part only: it and an empty key."""
    topic, _, key = text.partition(" ")
    return topic, key.strip()


def _by_key(calls: Calls, question: Question) -> Found:
    return _key(calls, question, question.text("topic"), question.text("key"))


def _key(calls: Calls, question: Question, topic: str, key: str) -> Found:
    request = pb.QueryMessageByKeyRequest(
        topic=topic,
        key=key,
        page_size=_page_size(question),
        page_token=question.text("page"),
        **question.window().fields(),
    )
    return _paged(calls.ask("QueryMessageByKey", request), question)


def _by_unique_key(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByUniqueKeyRequest(
        topic=question.text("topic"),
        unique_key=question.text("unique"),
        page_size=_page_size(question),
        page_token=question.text("page"),
    )
    return _paged(calls.ask("QueryMessageByUniqueKey", request), question)


def _by_id(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByIdRequest(
        offset_msg_id=question.text("id"), topic=question.text("topic"), broker_name=question.text("broker")
    )
    answer = calls.ask("QueryMessageById", request)
    return Found(answer, [message_row(answer.message)])


def _by_offset(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByOffsetRequest(
        topic=question.text("topic"),
        queue_id=question.number("queue", 0, QUEUE_ID_MAX),
        queue_offset=question.number("offset", 0),
        broker_name=question.text("broker"),
        max_messages=_page_size(question),
    )
    answer = calls.ask("QueryMessageByOffset", request)
    has_more = answer.messages and answer.next_queue_offset < answer.max_offset
    next_href = question.link("/", offset=answer.next_queue_offset) if has_more else ""
    return Found(answer, [message_row(message) for message in answer.messages], next_href)


def _by_search(calls: Calls, question: Question) -> Found:
    order = question.choice("order", ("newest", "oldest"), "newest")
    request = pb.SearchMessagesRequest(
        topic=question.text("topic"),
        broker_name=question.text("broker"),
        order=pb.SEARCH_ORDER_NEWEST_FIRST if order == "newest" else pb.SEARCH_ORDER_OLDEST_FIRST,
        tags=[tag for part in question.text("tag").split("||") if (tag := part.strip())],
        cel=question.text("cel"),
        page_size=_page_size(question),
        page_token=question.text("page"),
        max_millis=SEARCH_MILLIS_MAX,
        **question.window().fields(),
    )
    if question.text("queue"):
        request.queue_id = question.number("queue", 0, QUEUE_ID_MAX)
    if question.text("body"):
        form = question.choice("body_as", ("text", "hex"), "text")
        setattr(request, f"body_{form}", question.whole_text("body"))
    return _paged(calls.ask("SearchMessages", request), question)


def _paged(answer: Any, question: Question) -> Found:
    next_href = question.link("/", page=answer.next_page_token) if answer.next_page_token else ""
    return Found(answer, [message_row(message) for message in answer.messages], next_href)


def _page_size(question: Question) -> int:
    return int(question.choice("size", tuple(str(size) for size in PAGE_SIZES), str(PAGE_SIZES[0])))


ASKING: dict[str, Callable[[Calls, Question], Found]] = {
    "find": _by_anything,
    "key": _by_key,
    "unique": _by_unique_key,
    "id": _by_id,
    "offset": _by_offset,
    "search": _by_search,
}
