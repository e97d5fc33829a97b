"""Consumer groups with their lag; one with its queues; its members.

The lag takes a call for each group: the page asks for a short time, and the script loads the table again with the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from console.calls import Calls
from console.pages.page import Page, Stopwatch, to_json
from console.parts.message_row import queue_href
from console.parts.rates import LATER_SECONDS
from console.question import Question
from reput.gateway.v1 import gateway_service_pb2 as pb
from store.errors import StoreError

SHOWN_GROUP_COUNT = 200
SHOWN_QUEUE_COUNT = 200
SHOWN_MEMBER_COUNT = 100
# The size of the rows, of 100 KiB for a page, and the markup of a row.
ROWS_BYTES_MAX = 80 * 1024
ROW_BYTES = 400
LAG_SECONDS = 0.1


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
    lines = _lines(calls, _fitting(answer.groups), LATER_SECONDS if is_final else LAG_SECONDS)
    lacks = not is_final and any(line.facts is None and not line.problem for line in lines)
    values = {
        "given": question.given(),
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


def _fitting(groups: Sequence[Any]) -> list[Any]:
    """The first groups, as many as fit on a page."""
    fitting = []
    size_bytes = 0
    for settings in groups:
        name = settings.consumer_group
        # Twice in links, where it has dead letters.
        size_bytes += ROW_BYTES + 2 * len(quote(name, safe="")) + len(escape(name[:96]).encode())
        if size_bytes > ROWS_BYTES_MAX:
            break
        fitting.append(settings)
    return fitting


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
    values |= {
        "tab": "queues",
        "rows": [
            (
                queue,
                queue_href(queue.topic, queue.queue_id, queue.broker_name, queue.consumer_offset),
                age_millis(queue),
            )
            for queue in queues[:SHOWN_QUEUE_COUNT]
        ],
        "queue_count": len(queues),
        "removed_count": sum(queue.removed_count for queue in queues),
    }
    return Page("group.html", values, {"answer": to_json(answer)})


def members_page(calls: Calls, question: Question) -> Page:
    """The members of a group that live, and what they want."""
    answer, values = _asked(calls, question)
    values |= {"tab": "members", "members": answer.members[:SHOWN_MEMBER_COUNT]}
    return Page("members.html", values, {"answer": to_json(answer)})


def _asked(calls: Calls, question: Question) -> tuple[Any, dict[str, Any]]:
    """The group of the path, and the values of all its pages."""
    name = question.path_text("consumer_group")
    answer = calls.ask(calls.gateway.GetConsumerGroup, pb.GetConsumerGroupRequest(consumer_group=name))
    return answer, group_values(name, answer)


def group_values(name: str, answer: Any) -> dict[str, Any]:
    """The values that all pages of a group have."""
    return {
        "name": name,
        "answer": answer,
        "settings": answer.settings,
        "lag_count": _lag_count(answer),
        "in_flight_count": sum(queue.in_flight_count for queue in answer.queues),
        "lag_millis": _lag_millis(answer),
        "missing": missing_of(answer.outcomes),
    }


def _lag_count(answer: Any) -> int:
    return sum(max(queue.lag_count, 0) for queue in answer.queues)


def _lag_millis(answer: Any) -> int | None:
    return max((age for queue in answer.queues if (age := age_millis(queue)) is not None), default=None)


def age_millis(queue: Any) -> int | None:
    """The age of the oldest message of a queue that is not consumed; None: there is none."""
    age = queue.lag_age
    return age.seconds * 1000 + age.nanos // 1_000_000 if queue.HasField("lag_age") else None


def missing_of(outcomes: Any) -> list[tuple[str, Any]]:
    """The shards that did not answer, and why."""
    return [(each.broker_name, each.error) for each in outcomes if each.HasField("error")]
