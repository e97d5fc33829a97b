"""Find: one box for any id or key, and a form for each query of the gateway.

    find     any id or key; `TOPIC KEY` and `TOPIC#KEY` ask by key in that topic
    key      topic and key         id       offsetMsgId             offset   queue and position
    unique   topic and unique key  search   a scan: tag, text in the body, CEL

Every query has a URL: `/?q=...`, `/?mode=key&topic=...&key=...`. A page searches for a limited time; its link to the next
page has the page token (`page`) and two facts about earlier pages that are not in the token: matches may be missing from one
(`partial`), or one of a key with `#` had matches (`matched`). The script continues until the page is full: it requests only
the result (`part=result`) and gives the number of rows that it has (`have`).

A result without a message says which store times the store holds (`services/held_span.py`). Explain shows the work of the same
query in each shard: index files, candidates, and why candidates were rejected.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import banner_of
from console.parts.formats import time_text
from console.parts.message_row import MessageRow, message_row
from console.question import LAST_SECONDS, Question, parse_tags
from reput.gateway.v1 import gateway_service_pb2 as pb
from reput.message.v1 import message_pb2
from services.held_span import HELD, OLDER_GONE, HeldSpan, held_span, log_spans
from store.errors import InvalidArgumentError, PermissionDeniedError, StoreError, TopicNotFoundError

# Of further ranges only the number is shown.
SHOWN_RANGE_COUNT = 12


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """The progress of a search.

    Attributes:
        passed_count: messages searched or outside the window, since the search began.
        total_count: messages at the begin of the search; 0 when they were not counted.
        percent: `passed_count` of `total_count`, a whole number; below 100 until everything was searched.
        ranges: queues and positions `[begin, end)` that this step searched.
        more_range_count: the number of ranges that are not among `ranges`.
        is_end: whether this is the last step.
        is_done: whether everything was searched, also by the steps before.
        has_window: whether messages may have been passed because of their store time.
    """

    passed_count: int
    total_count: int
    percent: int
    ranges: tuple[Any, ...]
    more_range_count: int
    is_end: bool
    is_done: bool
    has_window: bool


def scan_progress(answer: Any, *, is_partial: bool) -> ScanProgress:
    """The progress of a search from its answer; `is_partial`: this answer or one before it is partial."""
    total_count = answer.total_record_count
    is_end = not answer.next_page_token
    is_done = is_end and not is_partial
    percent = 100 * answer.passed_record_count // total_count if total_count else 0
    ranges = tuple(answer.scanned_ranges)
    return ScanProgress(
        passed_count=answer.passed_record_count,
        total_count=total_count,
        percent=percent if is_done else min(percent, 99),
        ranges=ranges[:SHOWN_RANGE_COUNT],
        more_range_count=max(0, len(ranges) - SHOWN_RANGE_COUNT),
        is_end=is_end,
        is_done=is_done,
        has_window=answer.HasField("begin_time") or answer.HasField("end_time"),
    )


MODES = ("find", "key", "unique", "id", "offset", "search")
PAGE_SIZES = (25, 50)
MATCHED_BY = {1: "id", 2: "unique key", 3: "key"}
QUEUE_ID_MAX = (1 << 31) - 1
# The time to search, of the 200 ms in which a page should arrive: a batch that has begun (some 128 records) is finished,
# and fifty rows are rendered in 20 ms. The page token continues exactly there.
SEARCH_MILLIS_MAX = 140
# The same for Find in all topics: these must be listed before, and their messages must be read.
FIND_MILLIS_MAX = 80
# Parameters of the script, which are not part of the query.
STEP_PARAMETERS = {"part": None, "have": None}
# Facts about earlier pages in a link, which are not part of the query either.
BEFORE_PARAMETERS = {"partial": None, "matched": None}
# The longest text that becomes part of the link to a search by prefix.
PREFIX_CHARACTERS_MAX = 200
UNCHANGED: Mapping[str, str | None] = {}


@dataclass(frozen=True, slots=True)
class Found:
    """An answer, ready to be shown.

    Attributes:
        answer: the gateway's.
        rows: its messages.
        next_href: link to the next page; empty at the end.
        goes_on: whether the page has room for more rows, so that the script continues.
        count: rows so far, including those that the script has.
        progress: of a search; None in other modes.
        was_partial: whether matches may be missing from an earlier answer, such as the page before.
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
        """Whether matches may be missing from this answer or an earlier one."""
        return self.was_partial or _is_partial(self.answer)


def find_page(calls: Calls, question: Question) -> Page:
    """The form, and the answer if the URL has a query. When the query fails, the form stays with the error."""
    mode = question.choice("mode", MODES, "find")
    part = question.choice("part", ("all", "result"), "all")
    left_out = ("lang", "mode", *STEP_PARAMETERS, *BEFORE_PARAMETERS)
    asked = {name: value for name, value in question.given().items() if name not in left_out}
    is_asked = bool(asked) and (mode != "find" or bool(question.text("q")))
    stopwatch = Stopwatch()
    found, error = None, None
    if is_asked:
        try:
            found = ASKING[mode](calls, question)
        except StoreError as failure:
            error = failure
    took_millis = stopwatch.millis()
    if error is not None:
        raise FindFailedError(error, _values(question, mode, None, took_millis))
    answer: dict[str, Any] = {"mode": mode, "question": asked, "tookMillis": took_millis}
    if found is not None:
        answer["answer"] = to_json(found.answer)
        answer["partial"] = found.is_partial
        if found.next_href:
            answer["next"] = found.next_href
    template = "find.html" if part == "all" or found is None else "find_result.html"
    values = _values(question, mode, found, took_millis)
    if found is not None and not found.rows and not found.next_href and "page" not in asked:
        values["held"] = held_by(calls)
        values["other_cases"], values["prefix_href"] = _next_steps(question, mode)
    return Page(template, values, answer)


def _next_steps(question: Question, mode: str) -> tuple[list[tuple[str, str]], str]:
    """What to ask when nothing was found: the text in another case with its link, and the link to keys that begin with it."""
    name = {"find": "q", "key": "key", "unique": "unique"}.get(mode, "")
    text = question.text(name) if name else ""
    cases = [other for other in dict.fromkeys((text.upper(), text.lower())) if other != text]
    topic, key = (question.text("topic"), text) if mode == "key" else split_topic_and_key(text)
    prefix_href = ""
    if mode in ("find", "key") and topic and key and len(key) <= PREFIX_CHARACTERS_MAX:
        begins = f"message.keys.exists(k, k.startsWith({json.dumps(key)}))"
        prefix_href = f"/?{urlencode({'mode': 'search', 'topic': topic, 'cel': begins})}"
    return [(other, question.link("/", **{name: other})) for other in cases], prefix_href


class FindFailedError(Exception):
    """A query failed; the page shows the error with the form.

    Args:
        error: the reason.
        values: of the template.
    """

    def __init__(self, error: StoreError, values: dict[str, Any]) -> None:
        super().__init__(error.message)
        self.error = error
        self.values = values


def _values(question: Question, mode: str, found: Found | None, took_millis: float) -> dict[str, Any]:
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
        "held": None,
        "held_texts": (HELD, OLDER_GONE),
        "other_cases": [],
        "prefix_href": "",
        "first_href": question.link("/", page=None, **STEP_PARAMETERS, **BEFORE_PARAMETERS),
        "page_size": _page_size(question),
        # A scan uses no index, and its answer names the positions that it searched.
        "explain_href": question.link("/explain", **STEP_PARAMETERS) if mode != "search" else "",
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
    answer = calls.ask(calls.gateway.FindMessage, request)
    topic, _, key = text.partition("#")
    changed = UNCHANGED
    if topic and key:
        if answer.matches:
            changed = {"matched": "1"}
        elif not answer.next_page_token and not question.text("matched") and not _have_count(question):
            # All topics are searched now: no message has the whole text as its key.
            found = _topic_and_key(calls, question, topic, key, "1" if _is_partial(answer) else None)
            if found is not None:
                return found
    rows = [message_row(match.message, MATCHED_BY.get(match.matched_by, "")) for match in answer.matches]
    return _paged(answer, rows, question, changed)


def _topic_and_key(calls: Calls, question: Question, topic: str, key: str, partial: str | None) -> Found | None:
    """The messages for `TOPIC#KEY`; None when there are none, or when the caller can see no topic of this name."""
    changed = {"mode": "key", "q": None, "topic": topic, "key": key, "partial": partial or question.text("partial")}
    try:
        found = _key(calls, question, topic, key, "", changed)
    except (TopicNotFoundError, InvalidArgumentError, PermissionDeniedError):
        return None
    return found if found.rows or found.next_href else None


def split_topic_and_key(text: str) -> tuple[str, str]:
    """The two parts of `TOPIC KEY`. Ids and keys contain no blank, so a text without one is returned with an empty key."""
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
    answer = calls.ask(calls.gateway.QueryMessageByKey, request)
    return _paged(answer, _rows(answer), question, changed)


def _by_unique_key(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByUniqueKeyRequest(
        topic=question.text("topic"),
        unique_key=question.text("unique"),
        page_size=_wanted_count(question),
        page_token=question.text("page"),
    )
    answer = calls.ask(calls.gateway.QueryMessageByUniqueKey, request)
    return _paged(answer, _rows(answer), question)


def _by_id(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByIdRequest(
        offset_msg_id=question.text("id"), topic=question.text("topic"), broker_name=question.text("broker")
    )
    answer = calls.ask(calls.gateway.QueryMessageById, request)
    return Found(answer, [message_row(answer.message)], count=1)


def _by_offset(calls: Calls, question: Question) -> Found:
    request = pb.QueryMessageByOffsetRequest(
        topic=question.text("topic"),
        queue_id=question.number("queue", 0, QUEUE_ID_MAX),
        queue_offset=question.number("offset", 0),
        broker_name=question.text("broker"),
        page_size=_page_size(question),
    )
    answer = calls.ask(calls.gateway.QueryMessageByOffset, request)
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
    answer = calls.search(request)
    found = _paged(answer, _rows(answer), question)
    return replace(found, progress=scan_progress(answer, is_partial=found.is_partial))


def _rows(answer: Any) -> list[MessageRow]:
    return [message_row(message) for message in answer.messages]


def _paged(
    answer: Any, rows: list[MessageRow], question: Question, changed: Mapping[str, str | None] = UNCHANGED
) -> Found:
    """A page; `changed` has the other parameters of the link to the next page."""
    next_href = ""
    was_partial = bool(question.text("partial") or changed.get("partial"))
    if answer.next_page_token:
        if question.text("last") in LAST_SECONDS:
            # The token is bound to this window. `last` would mean another window in the next request.
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
    """The rows of this page that the script already has."""
    return question.number("have", 0, _page_size(question) - 1)


def _wanted_count(question: Question) -> int:
    """The rows for which the page has room."""
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


# An optional line of a page: it may cost this much of the page's time.
CALL_SECONDS_MAX = 0.2


def held_by(calls: Calls) -> HeldSpan | None:
    """The store times that the store holds; None when they are not known, or the caller may not know them."""
    if not calls.sees_store:
        return None

    def newest_millis(row: Any) -> int | None:
        is_known = not row.HasField("error") and row.HasField("newest_store_time")
        return int(row.newest_store_time.ToMilliseconds()) if is_known else None

    def first_millis(offset_msg_id: str, broker_name: str) -> int:
        request = pb.QueryMessageByIdRequest(offset_msg_id=offset_msg_id, broker_name=broker_name)
        message = calls.ask(calls.gateway.QueryMessageById, request, CALL_SECONDS_MAX).message
        return int(message.store_time.ToMilliseconds())

    try:
        services = calls.ask(calls.gateway.GetStatus, pb.GetStatusRequest(), CALL_SECONDS_MAX).services
        return held_span(log_spans(services, newest_millis), first_millis)
    except StoreError:
        return None


EXPLAINED_MODES = ("find", "key", "unique", "id", "offset")
# Rows of each kind on a page.
SHOWN_LOOKUP_COUNT = 40
SHOWN_VISIT_COUNT = 30
SHOWN_REJECTED_COUNT = 20


def explain_page(calls: Calls, question: Question) -> Page:
    """The explanation of the query that Find makes for the same URL."""
    stopwatch = Stopwatch()
    mode = question.choice("mode", EXPLAINED_MODES, "find")
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
