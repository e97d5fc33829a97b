"""Find: looks a text up as everything that it may be.

    offset message id   the record that starts where it says, and only when that record has this very id
    unique key, key     through the index, topic by topic (it knows keys only together with their topic)

The record with the id comes first, the others newest first: within a shard by its log, between shards by store time. Pages
go down the logs, so appends during a find do not disturb it. Many topics are searched in groups, by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.ports.deadline import Deadline
from gateway.ports.shard import store_millis
from gateway.ports.shards import Shards, require_topic
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome, judge, raise_first_error
from gateway.queries.find_in_shard import FindQuestion, ShardFind
from gateway.queries.find_places import Place, from_fields, to_fields
from gateway.queries.limits import check_key, check_not_negative, check_topic, page_size
from gateway.queries.matches import MatchStream, unknown_shard
from gateway.queries.page import Page, PageEntry
from gateway.queries.page_token import PageTokens
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from store.errors import StoreError

METHOD = "FindMessage"


@dataclass(frozen=True, slots=True)
class FindAnswer:
    """A page of what was found.

    Attributes:
        entries: the messages, and what each matched by.
        next_page_token: goes on behind them; empty at the end.
        completeness: TRUNCATED when there is a token.
        outcomes: how each shard took part.
        topic_count: topics looked through for this page.
    """

    entries: tuple[tuple[PageEntry, gateway_pb.MatchedBy], ...]
    next_page_token: str
    completeness: message_pb2.Completeness
    outcomes: tuple[ShardOutcome, ...]
    topic_count: int


def find_message(
    shards: Shards,
    tokens: PageTokens,
    text: str,
    topic: str,
    window: TimeWindow,
    *,
    page_size_asked: int,
    page_token: str = "",
    max_millis: int = 0,
    deadline: Deadline,
) -> FindAnswer:
    """One page of everything that the text names.

    Args:
        shards: all shards.
        tokens: what seals page tokens.
        text: an id or a key.
        topic: the only topic to look in; empty: all.
        window: store times.
        page_size_asked: at most so many messages.
        page_token: of the page before, with the same text, topic and window.
        max_millis: after which no further topic is looked in, once it is known which there are; 0: no such time.
        deadline: the caller's.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: by field.
        TopicNotFoundError: the topic is unknown.
        StoreError: no shard answered.
    """
    check_key(text, "text")
    check_not_negative(max_millis, "max_millis")
    if topic:
        check_topic(topic)
    sealed: dict[str, str | int | None] = {
        "text": text,
        "topic": topic,
        "begin": window.begin_millis,
        "end": window.end_millis,
    }
    places = from_fields(tokens.open(page_token, METHOD, sealed))
    page: Page = Page(page_size(page_size_asked, "page_size"))
    finds = _begin(shards, FindQuestion(text, topic, window), page, places, deadline, max_millis)
    entries, later = _merge(finds, page, text)
    outcomes = [find.outcome() for find in finds]
    if topic and not entries and not page_token and all(outcome.complete for outcome in outcomes):
        require_topic(shards, topic, deadline)
    known = {shard.broker_name for shard in shards}
    left_out = {name: place for name, place in places.items() if name not in known and not place.is_done}
    outcomes += map(unknown_shard, left_out)
    # A failed shard alone gives no next page; otherwise a client that reads all pages would never end.
    more = bool(later) or any(find.has_more for find in finds if find.error is None)
    token = ""
    if more:
        # A new shard that failed stays new, so that its record by id is asked for, unless this page shows it.
        asked = [find for find in finds if find.error is None or find.by_id is not None]
        ahead = {find.shard.broker_name: find.next_place() for find in asked}
        ahead = {name: place for name, place in ahead.items() if name not in later}
        token = tokens.seal(METHOD, sealed, to_fields(places | ahead))
    topic_count = len({name for find in finds for name in find.topics})
    return FindAnswer(tuple(entries), token, judge(outcomes, more=more), tuple(outcomes), topic_count)


def _begin(
    shards: Shards,
    question: FindQuestion,
    page: Page,
    places: dict[str, Place],
    deadline: Deadline,
    max_millis: int,
) -> list[ShardFind]:
    """Every shard's part, its newest match known or its error noted; the first shard's error when all failed."""
    first = deadline.for_one_of(len(shards))
    finds = [ShardFind(shard, question, page, places.get(shard.broker_name), first, max_millis) for shard in shards]
    for find, answer in zip(finds, shards.fan_out.ask(finds, ShardFind.begin), strict=True):
        if isinstance(answer, StoreError):
            find.leave_out(answer)
    if all(find.error is not None for find in finds):
        raise_first_error(find.outcome() for find in finds)
    for stream in (stream for find in finds for stream in find.streams):
        stream.deadline = deadline
    return finds


def _merge(
    finds: Sequence[ShardFind], page: Page, text: str
) -> tuple[list[tuple[PageEntry, gateway_pb.MatchedBy]], set[str]]:
    """Fill the page; the shards of which a message by its id had no room, which begin on the next page."""
    matched: list[gateway_pb.MatchedBy] = []
    later: set[str] = set()
    for find in finds:
        if find.by_id is None:
            continue
        if not later and page.add(find.shard.broker_name, find.by_id):
            matched.append(gateway_pb.MATCHED_BY_OFFSET_MSG_ID)
        else:
            later.add(find.shard.broker_name)
    while page.missing_count > 0 and not later:
        found = _next(finds)
        if found is None:
            break
        find, newest = found
        assert newest.head is not None
        if not find.is_by_id(newest.head):
            if not page.add(find.shard.broker_name, newest.head):
                break
            matched.append(
                gateway_pb.MATCHED_BY_UNIQUE_KEY if newest.head.unique_key == text else gateway_pb.MATCHED_BY_KEY
            )
        newest.take()
        if page.missing_count > 0:
            newest.advance()
        else:
            newest.settle()
    return list(zip(page.entries, matched, strict=True)), later


def _next(finds: Sequence[ShardFind]) -> tuple[ShardFind, MatchStream] | None:
    """The match that comes next; None when there is none, or one is not known yet."""
    if not all(find.knows_next for find in finds):
        return None
    heads = [(find, stream) for find in finds if (stream := find.newest) is not None]
    return max(heads, key=_newness, default=None)


def _newness(found: tuple[ShardFind, MatchStream]) -> tuple[int, str]:
    find, stream = found
    assert stream.head is not None
    return store_millis(stream.head), find.shard.broker_name
