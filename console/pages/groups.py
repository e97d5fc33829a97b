"""Consumer groups with their lag; one with its queues; its members.

The lag takes a call for each group: the page asks for a short time, and the script loads the table again with the rest.

The dead letters of a consumer group, to be chosen, sent to their topics again, exported or dropped (actions/dead_letters.py).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar
from urllib.parse import quote

from console.actions.action import action_links
from console.actions.dead_letters import DropDeadLetters, ResendDeadLetters
from console.actions.groups import ResetOffset, UpdateGroup
from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.parts.banner import banner_of
from console.parts.formats import shortened, visible
from console.parts.message_row import DEAD_LETTER_PREFIX, message_row, queue_href
from console.parts.rates import LATER_SECONDS
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import StoreError, TopicNotFoundError

SHOWN_GROUP_COUNT = 200
SHOWN_QUEUE_COUNT = 200
SHOWN_MEMBER_COUNT = 100
SHOWN_TOPIC_COUNT = 200
SHOWN_PROPERTY_COUNT = 100
# A member that is asked what it does answers at once, or is not there any more.
RUNNING_SECONDS = 3.0
# The size of the rows, of 100 KiB for a page, and the markup of a row.
ROWS_BYTES_MAX = 80 * 1024
ROW_BYTES = 400
LAG_ROW_BYTES = 650
SUBSCRIPTION_BYTES = 70
# Of the rows of members, where one of them is shown with its queues, topics and properties.
MEMBERS_BYTES_MAX, RUNNING_QUEUES_BYTES_MAX, RUNNING_TOPICS_BYTES_MAX, PROPERTIES_BYTES_MAX = (
    part * 1024 for part in (28, 26, 14, 12)
)
SHOWN_SUBSCRIPTION_COUNT = 8
LAG_SECONDS = 0.1

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in the list.

    Attributes:
        settings: its settings.
        facts: its answer; None when there was no time to ask, or when it failed.
        lag_count: messages that are not consumed.
        lag_millis: the age of the oldest of them.
        problem: why there is no answer; empty when there was no time.
    """

    settings: Any
    facts: Any = None
    lag_count: int = 0
    lag_millis: int | None = None
    problem: str = ""


def groups_page(calls: Calls, question: Question) -> Page:
    """The groups by name with their lag; with `q`, those whose names contain it."""
    stopwatch = Stopwatch()
    part = question.choice("part", ("all", "rows"), "all")
    is_final = part == "rows" or bool(question.text("whole"))
    request = pb.ListConsumerGroupsRequest(name_contains=question.text("q"), page_size=SHOWN_GROUP_COUNT)
    answer = calls.ask(calls.gateway.ListConsumerGroups, request)
    lines = _lines(calls, _fitting(answer.groups, _group_bytes), LATER_SECONDS if is_final else LAG_SECONDS)
    lacks = not is_final and any(line.facts is None and not line.problem for line in lines)
    values = {
        "given": question.given(),
        "actions": action_links(calls, (UpdateGroup(), {})),
        "lines": lines,
        "has_more": bool(answer.next_page_token) or len(answer.groups) > len(lines),
        "missing": missing_of(answer.outcomes),
        "is_final": is_final,
        "rows_href": question.link("/groups", part="rows") if lacks else "",
        "whole_href": question.link("/groups", whole="1") if lacks else "",
        "took_millis": stopwatch.millis(),
    }
    lags = [
        {"consumerGroup": line.settings.consumer_group, "lagCount": str(line.lag_count)}
        for line in lines
        if line.facts is not None
    ]
    return Page(
        "groups.html" if part == "all" else "groups_rows.html", values, {"answer": to_json(answer), "lags": lags}
    )


def _fitting(rows: Iterable[Row], bytes_of: Callable[[Row], int], size_bytes_max: int = ROWS_BYTES_MAX) -> list[Row]:
    """The first rows, as many as fit on a page."""
    fitting = []
    size_bytes = 0
    for row in rows:
        size_bytes += bytes_of(row)
        if size_bytes > size_bytes_max:
            break
        fitting.append(row)
    return fitting


def _text_bytes(text: str, characters_max: int = 64) -> int:
    """What a text takes on a page, as the templates cut it."""
    return len(escape(shortened(visible(text), characters_max)).encode())


def _group_bytes(settings: Any) -> int:
    name = settings.consumer_group
    # Twice in links, where it has dead letters.
    return ROW_BYTES + 2 * len(quote(name, safe="")) + len(escape(name[:96]).encode())


def _member_bytes(member: Any, name: str) -> int:
    links = len(quote(name, safe="")) + len(quote(member.client_id, safe=""))
    texts = _text_bytes(member.client_id, 96) + _text_bytes(member.address) + 3 * 32
    wants = sum(
        SUBSCRIPTION_BYTES + _text_bytes(each.topic) + _text_bytes(each.filter.tags or each.filter.sql)
        for each in member.subscriptions[:SHOWN_SUBSCRIPTION_COUNT]
    )
    return ROW_BYTES + links + texts + wants


def _queue_bytes(queue: Any) -> int:
    return ROW_BYTES + _queue_texts_bytes(queue)


def _queue_texts_bytes(queue: Any) -> int:
    return _text_bytes(queue.topic, 96) + _text_bytes(queue.broker_name, 32)


def _topic_bytes(topic: Any) -> int:
    return ROW_BYTES + _text_bytes(topic.topic, 96)


def _property_bytes(row: tuple[str, str]) -> int:
    name, value = row
    return SUBSCRIPTION_BYTES + _text_bytes(name) + _text_bytes(value, 200)


def _lines(calls: Calls, groups: Sequence[Any], seconds: float) -> list[GroupLine]:
    """The groups with their lag, as far as the time is enough."""
    end_seconds = calls.context.time_remaining() - seconds
    lines = []
    for settings in groups:
        seconds_left = calls.context.time_remaining() - end_seconds
        if seconds_left <= 0:
            lines.append(GroupLine(settings))
            continue
        request = pb.GetConsumerGroupRequest(consumer_group=settings.consumer_group)
        try:
            facts = calls.ask(calls.gateway.GetConsumerGroup, request, seconds_left)
        except StoreError as error:
            is_over = calls.context.time_remaining() <= end_seconds
            lines.append(GroupLine(settings, problem="" if is_over else error.message))
            continue
        lines.append(GroupLine(settings, facts, _lag_count(facts), _lag_millis(facts)))
    return lines


def group_page(calls: Calls, question: Question) -> Page:
    """A group: settings, queues with their lag, retries and dead letters."""
    answer, values = _asked(calls, question)
    # The queues that are furthest behind first.
    queues = sorted(answer.queues, key=lambda queue: -queue.lag_count)
    rows = (
        (
            queue,
            queue_href(queue.topic, queue.queue_id, queue.broker_name, queue.consumer_offset),
            age_millis(queue),
        )
        for queue in queues[:SHOWN_QUEUE_COUNT]
    )
    values |= {
        "tab": "queues",
        "rows": _fitting(rows, lambda row: LAG_ROW_BYTES + len(escape(row[1])) + _queue_texts_bytes(row[0])),
        "queue_count": len(queues),
        "removed_count": sum(queue.removed_count for queue in queues),
        "lite_topics": answer.lite_topics[:SHOWN_QUEUE_COUNT],
    }
    return Page("group.html", values, {"answer": to_json(answer)})


def members_page(calls: Calls, question: Question) -> Page:
    """The members of a group that live, and what they want; with `member`, what that one does now."""
    answer, values = _asked(calls, question)
    client_id = question.text("member")
    name = values["name"]
    room = MEMBERS_BYTES_MAX if client_id else ROWS_BYTES_MAX
    values |= {
        "tab": "members",
        "members": _fitting(answer.members[:SHOWN_MEMBER_COUNT], lambda each: _member_bytes(each, name), room),
        "asked": client_id,
        "running": None,
        "running_error": None,
    }
    document: dict[str, Any] = {"answer": to_json(answer)}
    if client_id:
        request = pb.GetConsumerRunningInfoRequest(consumer_group=name, client_id=client_id)
        try:
            running = calls.ask(calls.gateway.GetConsumerRunningInfo, request, RUNNING_SECONDS)
        except StoreError as error:  # the members are shown all the same
            values["running_error"], document["runningError"] = error, error.message
        else:
            values |= {
                "running": running,
                "running_queues": _fitting(running.queues[:SHOWN_QUEUE_COUNT], _queue_bytes, RUNNING_QUEUES_BYTES_MAX),
                "running_topics": _fitting(running.topics[:SHOWN_TOPIC_COUNT], _topic_bytes, RUNNING_TOPICS_BYTES_MAX),
            }
            rows = sorted(running.properties.items())[:SHOWN_PROPERTY_COUNT]
            values["properties"] = _fitting(rows, _property_bytes, PROPERTIES_BYTES_MAX)
            document["running"] = to_json(running)
    return Page("members.html", values, document)


def _asked(calls: Calls, question: Question) -> tuple[Any, dict[str, Any]]:
    """The group of the path, and the values of all its pages."""
    name = question.path_text("consumer_group")
    answer = calls.ask(calls.gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=name))
    return answer, group_values(calls, name, answer)


def group_values(calls: Calls, name: str, answer: Any) -> dict[str, Any]:
    """The values that all pages of a group have."""
    named = {"group": name}
    return {
        "name": name,
        "actions": action_links(calls, (ResetOffset(), named), (UpdateGroup(), named)),
        "answer": answer,
        "settings": answer.settings,
        "lag_count": _lag_count(answer),
        "in_flight_count": sum(each.in_flight_count for each in (*answer.queues, *answer.lite_topics)),
        "lag_millis": _lag_millis(answer),
        "missing": missing_of(answer.outcomes),
    }


def _lag_count(answer: Any) -> int:
    of_queues = sum(max(queue.lag_count, 0) for queue in answer.queues)
    return int(of_queues + sum(each.lag_count for each in answer.lite_topics))


def _lag_millis(answer: Any) -> int | None:
    return max((age for queue in answer.queues if (age := age_millis(queue)) is not None), default=None)


def age_millis(queue: Any) -> int | None:
    """The age of the oldest message of a queue that is not consumed; None: there is none."""
    age = queue.lag_age
    return age.seconds * 1000 + age.nanos // 1_000_000 if queue.HasField("lag_age") else None


def missing_of(outcomes: Any) -> list[tuple[str, Any]]:
    """The shards that did not answer, and why."""
    return [(each.broker_name, each.error) for each in outcomes if each.HasField("error")]


PAGE_SIZE = 25
# As for a search of Find.
SEARCH_MILLIS_MAX = 140
RESEND, DROP = ResendDeadLetters(), DropDeadLetters()


def dead_letters_page(calls: Calls, question: Question) -> Page:
    """The dead letters, newest first, to choose from."""
    stopwatch = Stopwatch()
    name = question.path_text("consumer_group")
    group = calls.ask(calls.gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=name))
    request = pb.SearchMessagesRequest(
        topic=DEAD_LETTER_PREFIX + name,
        order=pb.SEARCH_ORDER_NEWEST_FIRST,
        page_size=PAGE_SIZE,
        page_token=question.text("page"),
        max_millis=SEARCH_MILLIS_MAX,
    )
    try:
        found = calls.search(request)
    except TopicNotFoundError:
        found = pb.SearchMessagesResponse()
    has_next = bool(found.next_page_token)
    resends, drops = (dict(action_links(calls, (each, {"group": name}))) for each in (RESEND, DROP))
    values = {
        **group_values(calls, name, group),
        "tab": "dead-letters",
        "may_resend": bool(resends),
        "drop_href": drops.get(DROP.name, ""),
        "has_roles": calls.acts and not calls.sees_store,
        "rows": [message_row(message) for message in found.messages],
        "banner": banner_of(found, stopwatch.millis(), has_next=has_next) if found.completeness else None,
        "first_href": question.link(page=None) if question.text("page") else "",
        "next_href": question.link(page=found.next_page_token) if has_next else "",
    }
    return Page("dead_letters.html", values, {"group": to_json(group), "answer": to_json(found)})
