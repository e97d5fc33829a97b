"""Query by unique key: every copy of what a producer sent once, newest first.

Copies come from resends, retries and transactions. There is no time window: the time inside a unique key is the
producer's clock, and deriving a window from it hides messages.
"""

from gateway.ports.deadline import Deadline
from gateway.ports.shard import Message
from gateway.ports.shards import Shards
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import MatchAnswer, answer_matches
from gateway.queries.limits import check_not_empty
from gateway.queries.matches import KeyQuestion
from gateway.queries.page_token import PageTokens

METHOD = "QueryMessageByUniqueKey"


def query_by_unique_key(
    shards: Shards[Message],
    tokens: PageTokens,
    topic: str,
    unique_key: str,
    *,
    page_size_asked: int,
    page_token: str,
    deadline: Deadline,
) -> MatchAnswer[Message]:
    """One page; errors as `query_by_key`."""
    check_not_empty(unique_key, "unique_key")
    question = KeyQuestion(topic, unique_key, TimeWindow(), lambda record: record.unique_key == unique_key)
    query: dict[str, str | int | None] = {"topic": topic, "unique_key": unique_key}
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
