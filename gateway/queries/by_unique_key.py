"""Query by unique key: every copy of what a producer sent once, newest first.

Copies come from resends, retries and transactions. There is no time window: the time inside a unique key is the
producer's clock, and deriving a window from it hides messages.

While a message waits for its time or for a verdict, its topic has no copy: then the records that wait are the answer.
"""

from collections.abc import Callable
from dataclasses import replace

from gateway.ports.deadline import Deadline
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import MatchAnswer, answer_matches
from gateway.queries.completeness import judge
from gateway.queries.limits import check_key
from gateway.queries.matches import KeyQuestion, merge_matches
from gateway.queries.page_token import PageTokens
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import PermissionDeniedError, TopicNotFoundError
from store.format.topic import WAITING_TOPICS

METHOD = "QueryMessageByUniqueKey"
# Records of one message that waits: it is stored again at each check of its transaction, of which there are 15.
WAITING_COUNT_MAX = 16

WaitsFor = Callable[[StoredMessage], str]


def query_by_unique_key(
    shards: Shards,
    tokens: PageTokens,
    topic: str,
    unique_key: str,
    *,
    page_size_asked: int,
    page_token: str,
    deadline: Deadline,
    waits_for: WaitsFor | None = None,
) -> MatchAnswer:
    """One page; errors as `query_by_key`.

    Args:
        shards: all shards.
        tokens: seals and opens page tokens.
        topic: the topic.
        unique_key: the message's own id.
        page_size_asked: as the request has it.
        page_token: of the page before.
        deadline: the caller's.
        waits_for: the topic for which a record of a system topic waits, or waited; empty when it is no such message. None: only
            the topic is looked at.
    """
    check_key(unique_key, "unique_key")
    question = KeyQuestion(topic, unique_key, TimeWindow(), lambda record: record.unique_key == unique_key)
    query: dict[str, str | int | None] = {"topic": topic, "unique_key": unique_key}
    absent: TopicNotFoundError | None = None
    answer: MatchAnswer | None = None
    try:
        answer = answer_matches(
            shards,
            tokens,
            METHOD,
            question,
            query,
            page_size_asked=page_size_asked,
            page_token=page_token,
            deadline=deadline,
        )
    except TopicNotFoundError as error:  # its first message may be one that waits
        absent = error
    if answer is not None and (answer.entries or page_token or answer.next_page_token):
        return answer
    waiting = None if waits_for is None else _waiting(shards, topic, unique_key, deadline, waits_for)
    if answer is None:
        if waiting is None:
            assert absent is not None, "there is an answer, or none"
            raise absent
        return waiting
    if waiting is None:
        return answer
    outcomes = answer.outcomes
    return replace(waiting, outcomes=outcomes, completeness=judge(outcomes, more=False))


def _waiting(
    shards: Shards,
    topic: str,
    unique_key: str,
    deadline: Deadline,
    waits_for: WaitsFor,
) -> MatchAnswer | None:
    """The records of a message that waits; None when there are none, or the caller may not see them."""
    for waiting_topic in sorted(WAITING_TOPICS):
        question = KeyQuestion(
            waiting_topic,
            unique_key,
            TimeWindow(),
            lambda record: record.unique_key == unique_key and waits_for(record) == topic,
        )
        try:
            page = merge_matches(shards, question, {}, WAITING_COUNT_MAX, deadline)
        except PermissionDeniedError:
            continue
        if page.entries:
            return MatchAnswer(page.entries, "", page.completeness, page.outcomes)
    return None
