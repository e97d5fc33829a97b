"""The lite topics of a topic over all shards, in pages: a topic may have a million of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.groups.asking import (
    answered,
    ask_all,
    check_group,
    first_names,
    group_not_found,
    outcomes_of,
    raise_failure,
)
from gateway.ports.deadline import Deadline
from gateway.ports.groups import LIST_LITE_TOPICS
from gateway.ports.shards import Shards
from gateway.queries.completeness import ShardOutcome
from gateway.queries.page import PageTokens, check_topic, page_size
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import GroupNotFoundError

METHOD = "ListLiteTopics"
_AFTER = "after"


@dataclass(frozen=True, slots=True)
class LiteTopicPage:
    """A page of lite topics by name, each with its shard; the token is empty at the end."""

    rows: Sequence[tuple[str, pb.LiteTopic]]
    next_page_token: str
    outcomes: Sequence[ShardOutcome]


def list_lite_topics(
    shards: Shards, tokens: PageTokens, choice: pb.ListLiteTopicsRequest, page_token: str, deadline: Deadline
) -> LiteTopicPage:
    """A page of lite topics.

    Args:
        shards: all shards.
        tokens: seals and opens page tokens.
        choice: which ones; `page_size` is as a caller has it, and the token says behind which.
        page_token: of the page before.
        deadline: the caller's.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: the request is wrong.
        GroupNotFoundError: no shard knows the group.
        StoreError: no shard answered.
    """
    check_topic(choice.topic)
    if choice.consumer_group:
        check_group(choice.consumer_group)
    sealed = {
        "topic": choice.topic,
        "group": choice.consumer_group,
        "name_contains": choice.lite_topic_contains,
        "client": choice.client_id,
        "lite_topic": choice.lite_topic,
    }
    asked = pb.ListLiteTopicsRequest()
    asked.CopyFrom(choice)
    asked.page_size = page_size(choice.page_size, "page_size")
    asked.after = str(tokens.open(page_token, METHOD, sealed).get(_AFTER, ""))
    answers = ask_all(shards, LIST_LITE_TOPICS, asked, deadline)
    found = answered(answers)
    if not found:
        raise_failure(answers, (GroupNotFoundError,), "")
        raise group_not_found(choice.consumer_group)
    by_name: dict[str, list[tuple[str, pb.LiteTopic]]] = {}
    for broker_name, page in found:
        for each in page.lite_topics:
            by_name.setdefault(each.lite_topic, []).append((broker_name, each))
    shown, has_more = first_names(by_name, asked.page_size, has_more=any(page.has_more for _, page in found))
    token = tokens.seal(METHOD, sealed, {_AFTER: shown[-1]}) if shown and has_more else ""
    return LiteTopicPage([row for name in shown for row in _held(by_name[name])], token, outcomes_of(answers))


def _held(rows: Sequence[tuple[str, pb.LiteTopic]]) -> Sequence[tuple[str, pb.LiteTopic]]:
    """The shards that have messages of a lite topic: all have its subscriptions. The first one, when none has."""
    return [row for row in rows if row[1].max_offset] or rows[:1]
