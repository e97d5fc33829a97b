"""The dead letters of a consumer group, and sending them to their topics again.

    GET   ?check=1&tag=...   what would be sent: ResendDeadLetters with dry_run, which changes nothing
    POST  confirmed=1        sends it: for clients with the role admin, from the console's own page, after the check

It is the only page that changes the store. A step sends up to STEP_COUNT dead letters, as many as the check showed.
"""

from collections.abc import Mapping
from typing import Any

from console.calls import Calls
from console.pages.groups import group_values
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import banner_of
from console.parts.message_row import DEAD_LETTER_PREFIX, message_row
from console.question import Question, parse_time
from reput.gateway.v1 import gateway_service_pb2 as pb
from services.convert import millis_to_timestamp
from store.errors import InvalidArgumentError, TopicNotFoundError

PAGE_SIZE = 25
STEP_COUNT = 64
# As for a search of Find.
SEARCH_MILLIS_MAX = 140
_TEMPLATE = "dead_letters.html"
# The fields of the form: they name which dead letters.
FILTER_FIELDS = ("tag", "begin", "end")


def dead_letters_page(calls: Calls, question: Question) -> Page:
    """The dead letters, newest first; with `check`, also what would be sent again."""
    stopwatch = Stopwatch()
    name = question.path_text("consumer_group")
    group = calls.ask(calls.gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=name))
    topic = DEAD_LETTER_PREFIX + name
    request = pb.SearchMessagesRequest(
        topic=topic,
        order=pb.SEARCH_ORDER_NEWEST_FIRST,
        page_size=PAGE_SIZE,
        page_token=question.text("page"),
        max_millis=SEARCH_MILLIS_MAX,
    )
    try:
        found = calls.search(request)
    except TopicNotFoundError:
        found = pb.SearchMessagesResponse()
    fields = {field: question.text(field) for field in FILTER_FIELDS}
    planned = None
    if question.text("check"):
        planned = calls.ask(calls.gateway.ResendDeadLetters, _request(name, fields, dry_run=True))
    has_next = bool(found.next_page_token)
    values = {
        **_values(calls, name, group, fields),
        "topic": topic,
        "rows": [message_row(message) for message in found.messages],
        "banner": banner_of(found, stopwatch.millis(), has_next=has_next) if found.completeness else None,
        "first_href": question.link(page=None, check=None) if question.text("page") else "",
        "next_href": question.link(page=found.next_page_token, check=None) if has_next else "",
        "planned": planned,
    }
    answer = {"group": to_json(group), "answer": to_json(found)}
    if planned is not None:
        answer["planned"] = to_json(planned)
    return Page(_TEMPLATE, values, answer)


def resend_page(calls: Calls, question: Question, form: Mapping[str, str]) -> Page:
    """Sends dead letters again, and shows what was sent.

    Raises:
        InvalidArgumentError: the form was sent without the confirmation.
        PermissionDeniedError: the caller may not.
    """
    name = question.path_text("consumer_group")
    if form.get("confirmed") != "1":
        raise InvalidArgumentError("Confirm that the dead letters are to be sent again.", field="confirmed")
    fields = {field: form.get(field, "").strip() for field in FILTER_FIELDS}
    request = _request(name, fields, dry_run=False)
    request.page_token = form.get("page", "")
    sent = calls.ask(calls.gateway.ResendDeadLetters, request)
    group = calls.ask(calls.gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=name))
    values = {**_values(calls, name, group, fields), "sent": sent}
    return Page(_TEMPLATE, values, {"group": to_json(group), "sent": to_json(sent)})


def _values(calls: Calls, name: str, group: Any, fields: Mapping[str, str]) -> dict[str, Any]:
    return {
        **group_values(name, group),
        "tab": "dead-letters",
        "given": fields,
        "may_resend": calls.sees_store,
        "topic": DEAD_LETTER_PREFIX + name,
        "rows": [],
        "banner": None,
        "first_href": "",
        "next_href": "",
        "planned": None,
        "sent": None,
    }


def _request(name: str, fields: Mapping[str, str], *, dry_run: bool) -> pb.ResendDeadLettersRequest:
    request = pb.ResendDeadLettersRequest(consumer_group=name, max_messages=STEP_COUNT, dry_run=dry_run)
    if fields["tag"]:
        request.filter.tags = fields["tag"]
    for field, is_end in (("begin", False), ("end", True)):
        if fields[field]:
            millis = parse_time(fields[field], field, is_end=is_end)
            getattr(request, f"{field}_time").CopyFrom(millis_to_timestamp(millis))
    return request
