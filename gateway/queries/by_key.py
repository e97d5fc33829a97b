"""Query by key: messages of a topic whose KEYS hold the key, newest first.

A match has the topic, has the key as one whole of its space-separated KEYS, byte for byte, and was stored inside the
window to the millisecond: what Apache RocketMQ's Java client checks (`MQAdminImpl.queryMessage`), applied here before a
candidate counts, and without the index's rounding to seconds.
"""

from dataclasses import dataclass

from gateway.ports.deadline import Deadline
from gateway.ports.shards import Shards, require_topic
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome
from gateway.queries.limits import check_key, check_topic, page_size
from gateway.queries.matches import KeyQuestion, merge_matches
from gateway.queries.page import PageEntry
from gateway.queries.page_token import PageTokens, shard_cursors
from reput.message.v1 import message_pb2

METHOD = "QueryMessageByKey"


@dataclass(frozen=True, slots=True)
class MatchAnswer:
    """A page of verified matches, newest first; the token is empty at the end."""

    entries: tuple[PageEntry, ...]
    next_page_token: str
    completeness: message_pb2.Completeness
    outcomes: tuple[ShardOutcome, ...]


def query_by_key(
    shards: Shards,
    tokens: PageTokens,
    topic: str,
    key: str,
    window: TimeWindow,
    *,
    page_size_asked: int,
    page_token: str,
    deadline: Deadline,
) -> MatchAnswer:
    """One page.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: by field.
        TopicNotFoundError: no shard knows the topic.
        StoreError: no shard answered.
    """
    check_key(key, "key")
    question = KeyQuestion(topic, key, window, lambda record: key in record.keys)
    query: dict[str, str | int | None] = {
        "topic": topic,
        "key": key,
        "begin": window.begin_millis,
        "end": window.end_millis,
    }
    return answer_matches(
        shards,
        tokens,
        METHOD,
        question,
        query,
        page_size_asked=page_size_asked,
        page_token=page_token,
        deadline=deadline,
    )


def answer_matches(
    shards: Shards,
    tokens: PageTokens,
    method: str,
    question: KeyQuestion,
    query: dict[str, str | int | None],
    *,
    page_size_asked: int,
    page_token: str,
    deadline: Deadline,
) -> MatchAnswer:
    """One page of a question that is answered through the key index; `query` is what its tokens are bound to."""
    check_topic(question.topic)
    count_max = page_size(page_size_asked, "page_size")
    cursors = shard_cursors(tokens.open(page_token, method, query))
    page = merge_matches(shards, question, cursors, count_max, deadline)
    # A topic with a match is known: only the empty answer needs the extra calls that tell "no match" from "no topic".
    if not page.entries and not page_token and all(outcome.complete for outcome in page.outcomes):
        require_topic(shards, question.topic, deadline)
    token = tokens.seal(method, query, page.cursors) if page.cursors else ""
    return MatchAnswer(page.entries, token, page.completeness, page.outcomes)
