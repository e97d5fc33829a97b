"""Find: one box for whoever has an id or a key, and a form for each query that the gateway answers.

    find     any id or key; `TOPIC KEY` and `TOPIC#KEY` ask by key in that topic
    key      topic and key         id       offsetMsgId             offset   queue and position
    unique   topic and unique key  search   a scan: tag, text in the body, CEL

Every question is its URL: `/?q=...`, `/?mode=key&topic=...&key=...`. One page looks for a bounded time and says where it
goes on (`page`), and what no token knows of the pages before: that matches may be missing from one (`partial`), or that one
of a key with `#` had some (`matched`). The script goes on by itself until the page is full: it asks for the result alone
(`part=result`), and says how many rows it has (`have`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.console.banner import banner_of
from gateway.console.calls import Calls
from gateway.console.formats import time_text
from gateway.console.message_row import MessageRow, message_row
from gateway.console.pages.page import Page, Stopwatch, to_json
from gateway.console.question import LAST_SECONDS, Question
from gateway.console.scan_progress import ScanProgress, scan_progress
from gateway.console.tag_expression import parse_tags
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from store.errors import InvalidArgumentError, PermissionDeniedError, StoreError, TopicNotFoundError

MODES = ("find", "key", "unique", "id", "offset", "search")
PAGE_SIZES = (25, 50)
MATCHED_BY = {1: "id", 2: "unique key", 3: "key"}
QUEUE_ID_MAX = (1 << 31) - 1
# What a page looks for, of the 200 ms in which it is to be there: a batch that was begun (some 128 records) is finished,
# and fifty rows are drawn in 20 ms. The token goes on exactly there.
SEARCH_MILLIS_MAX = 140
# The same for topics that are looked in one by one: they must be listed before, and what they have be read.
FIND_MILLIS_MAX = 80
# Parameters of the script, which belong to no question.
STEP_PARAMETERS = {"part": None, "have": None}
# What a link says of the pages before it, which belongs to no question either.
BEFORE_PARAMETERS = {"partial": None, "matched": None}
UNCHANGED: Mapping[str, str | None] = {}


@dataclass(frozen=True, slots=True)
class Found:
    """An answer, ready to be shown.

    Attributes:
        answer: the gateway's.
        rows: its messages.
        next_href: the page behind; empty at the end.
        goes_on: whether the page has room for what is found there.
        count: rows so far, with those that the script has.
        progress: of a search; None of any other mode.
        was_partial: whether what was asked before it, such as the page before, said that matches may be missing.
    """

    answer: Any
    rows: list[MessageRow]
    next_href: str = ""
    goes_on: bool = False
    count: int = 0
    progress: ScanProgress | None = None
    was_partial: bool = False

    @property
    def is_partial(self) -> bool:
        """Whether matches may be missing from it or what was before."""
        return self.was_partial or _is_partial(self.answer)


def find_page(calls: Calls, question: Question) -> Page:
    """The form, and the answer when something is asked. An answer that fails leaves the form and says why."""
    mode = question.choice("mode", MODES, "find")
    part = question.choice("part", ("all", "result"), "all")
    left_out = ("lang", "mode", *STEP_PARAMETERS, *BEFORE_PARAMETERS)
    asked = {name: value for name, value in question.given().items() if name not in left_out}
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
    answer: dict[str, Any] = {"mode": mode, "question": asked, "tookMillis": took_millis}
    if found is not None:
        answer["answer"] = to_json(found.answer)
        answer["partial"] = found.is_partial
        if found.next_href:
            answer["next"] = found.next_href
    template = "find.html" if part == "all" or found is None else "find_result.html"
    return Page(template, _values(question, mode, found, took_millis, can_explain=can_explain), answer)


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
    banner = None
    if found is not None and hasattr(found.answer, "completeness"):
        has_next = bool(found.next_href)
        banner = banner_of(found.answer, took_millis, has_next=has_next, was_partial=found.was_partial)
    return {
        "mode": mode,
        "modes": MODES,
        "given": given,
        "page_sizes": PAGE_SIZES,
        "ranges": tuple(LAST_SECONDS),
        "found": found,
        "banner": banner,
        "took_millis": took_millis,
        "is_first_page": "page" not in given,
        "first_href": question.link("/", page=None, **STEP_PARAMETERS, **BEFORE_PARAMETERS),
        "page_size": _page_size(question),
        # A scan looks at no index: what it looked at stands in its answer.
        "explain_href": question.link("/explain", **STEP_PARAMETERS) if mode != "search" and can_explain else "",
    }


def _by_anything(calls: Calls, question: Question) -> Found:
    text = question.text("q")
    topic, key = split_topic_and_key(text)
    if key:
        return _key(calls, question, topic, key, question.text("page"))
    request = pb.FindMessageRequest(
        text=text,
        page_size=_wanted_count(question),
        page_token=question.text("page"),
        max_millis=FIND_MILLIS_MAX,
        **question.window().fields(),
    )
    answer = calls.ask("FindMessage", request)
    topic, _, key = text.partition("#")
    changed = UNCHANGED
    if topic and key:
        if answer.matches:
            changed = {"matched": "1"}
        elif not answer.next_page_token and not question.text("matched") and not _have_count(question):
            # Only now is it known that nothing has the whole text as its key.
            found = _topic_and_key(calls, question, topic, key, "1" if _is_partial(answer) else None)
            if found is not None:
                return found
    rows = [message_row(match.message, MATCHED_BY.get(match.matched_by, "")) for match in answer.matches]
    return _paged(answer, rows, question, changed)


def _topic_and_key(calls: Calls, question: Question, topic: str, key: str, partial: str | None) -> Found | None:
    """What `TOPIC#KEY` finds; None when that is nothing, or what is before the `#` is no topic that this caller has."""
    changed = {"mode": "key", "q": None, "topic": topic, "key": key, "partial": partial or question.text("partial")}
    try:
        found = _key(calls, question, topic, key, "", changed)
    except (TopicNotFoundError, InvalidArgumentError, PermissionDeniedError):
        return None
    return found if found.rows or found.next_href else None


def split_topic_and_key(text: str) -> tuple[str, str]:
    """`TOPIC KEY` as its two parts; no id and no key holds a blank. One part only: it and an empty key."""
    topic, _, key = text.partition(" ")
    return topic, key.strip()


def _by_key(calls: Calls, question: Question) -> Found:
    return _key(calls, question, question.text("topic"), question.text("key"), question.text("page"))


def _key(
    calls: Calls,
    question: Question,
    topic: str,
    key: str,
    page_token: str,
    changed: Mapping[str, str | None] = UNCHANGED,
) -> Found:
    request = pb.QueryMessageByKeyRequest(
        topic=topic,
        key=key,
        page_size=_wanted_count(question),
        page_token=page_token,
        **question.window().fields(),
    )
    answer = calls.ask("QueryMessageByKey", request)
    return _paged(answer, _rows(answer), question, changed)


def _by_unique_key(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByUniqueKeyRequest(
        topic=question.text("topic"),
        unique_key=question.text("unique"),
        page_size=_wanted_count(question),
        page_token=question.text("page"),
    )
    answer = calls.ask("QueryMessageByUniqueKey", request)
    return _paged(answer, _rows(answer), question)


def _by_id(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByIdRequest(
        offset_msg_id=question.text("id"), topic=question.text("topic"), broker_name=question.text("broker")
    )
    answer = calls.ask("QueryMessageById", request)
    return Found(answer, [message_row(answer.message)], count=1)


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
    return Found(answer, _rows(answer), next_href, count=len(answer.messages))


def _by_search(calls: Calls, question: Question) -> Found:
    order = question.choice("order", ("newest", "oldest"), "newest")
    request = pb.SearchMessagesRequest(
        topic=question.text("topic"),
        broker_name=question.text("broker"),
        order=pb.SEARCH_ORDER_NEWEST_FIRST if order == "newest" else pb.SEARCH_ORDER_OLDEST_FIRST,
        tags=parse_tags(question.text("tag"), "tag"),
        cel=question.text("cel"),
        page_size=_wanted_count(question),
        page_token=question.text("page"),
        max_millis=SEARCH_MILLIS_MAX,
        count_total=True,
        **question.window().fields(),
    )
    if question.text("queue"):
        request.queue_id = question.number("queue", 0, QUEUE_ID_MAX)
    if question.text("body"):
        form = question.choice("body_as", ("text", "hex"), "text")
        setattr(request, f"body_{form}", question.whole_text("body"))
    answer = calls.ask("SearchMessages", request)
    found = _paged(answer, _rows(answer), question)
    return replace(found, progress=scan_progress(answer, is_partial=found.is_partial))


def _rows(answer: Any) -> list[MessageRow]:
    return [message_row(message) for message in answer.messages]


def _paged(
    answer: Any, rows: list[MessageRow], question: Question, changed: Mapping[str, str | None] = UNCHANGED
) -> Found:
    """A page; `changed` is what the next one is asked for with."""
    next_href = ""
    was_partial = bool(question.text("partial") or changed.get("partial"))
    if answer.next_page_token:
        if question.text("last") in LAST_SECONDS:
            # The token is of this window; the next request's `last` would be of another.
            begin = time_text(question.window().begin_millis).replace(" ", "T")
            changed = {**changed, "last": None, "begin": begin, "end": None}
        if was_partial or _is_partial(answer):
            changed = {**changed, "partial": "1"}
        next_href = question.link("/", **{**STEP_PARAMETERS, **changed, "page": answer.next_page_token})
    goes_on = bool(next_href) and len(rows) < _wanted_count(question)
    return Found(answer, rows, next_href, goes_on, _have_count(question) + len(rows), was_partial=was_partial)


def _is_partial(answer: Any) -> bool:
    return getattr(answer, "completeness", None) == message_pb2.COMPLETENESS_PARTIAL


def _have_count(question: Question) -> int:
    """Rows of this page that the script has already."""
    return question.number("have", 0, _page_size(question) - 1)


def _wanted_count(question: Question) -> int:
    """Rows that the page has room for."""
    return _page_size(question) - _have_count(question)


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
