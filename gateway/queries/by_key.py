"""Queries by key and by unique key, over all shards, newest first.

By key: messages of a topic whose KEYS hold the key, or whose TAGS are the key.

A match has the topic, has the key as one whole of its space-separated KEYS, byte for byte, and was stored inside the
window to the millisecond: what Apache RocketMQ's Java client checks (`MQAdminImpl.queryMessage`), applied here before a
candidate counts, and without the index's rounding to seconds.

By unique key: every copy of what a producer sent once, newest first.

Copies come from resends, retries and transactions. There is no time window: the time inside a unique key is the
producer's clock, and deriving a window from it hides messages.

While a message waits for its time or for a verdict, its topic has no copy: then the records that wait are the answer.

The page is merged from the verified matches of each shard. The index answers with candidates: records whose key has the right
hash. Each candidate is read from the log and compared in full, so collisions neither appear on the page nor fill it.
Candidates are used strictly in their order. The cursor is the last one used, match or not; the next page begins below it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.ports.deadline import Deadline
from gateway.ports.shard import BuildProgress, Shard, get_records, search_key, store_millis
from gateway.ports.shards import Shards, require_topic
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome, judge, least_built, raise_first_error, was_dropped
from gateway.queries.page import (
    CANDIDATE_ROUND_COUNT,
    CANDIDATE_ROUNDS_MAX,
    PAGE_SIZE_MAX,
    Page,
    PageEntry,
    PageTokens,
    check_key,
    check_topic,
    page_size,
    shard_cursors,
)
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import BrokerNotFoundError, PermissionDeniedError, StoreError, TopicNotFoundError
from store.format.derived.index_layout import tag_key
from store.format.topic import WAITING_TOPICS

EXHAUSTED_CURSOR = 0


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """What to look for: a key of a topic in a window, and the test that makes a candidate a match.

    `of_tags`: see `search_key`.
    """

    topic: str
    key: str
    window: TimeWindow
    accepts: Callable[[StoredMessage], bool]
    of_tags: bool = False


class MatchStream:
    """The matches of one shard.

    Args:
        shard: the shard.
        question: what to look for.
        page: the page to be filled; bounds what is read ahead.
        cursor: only records that start below this byte count; None: all.
        deadline: until when; may be moved between two calls.
        stream_count: streams that fill the page together: what each reads ahead at first is its share of it, twice.
    """

    def __init__(
        self,
        shard: Shard,
        question: KeyQuestion,
        page: Page,
        cursor: int | None,
        deadline: Deadline,
        stream_count: int = 1,
    ) -> None:
        self.shard = shard
        self.cursor = cursor
        self._question = question
        self._page = page
        self.deadline = deadline
        self._stream_count = stream_count
        self._candidates: deque[int] = deque()
        self._more_candidates = cursor != EXHAUSTED_CURSOR
        self._below: int | None = cursor
        self._loaded: deque[tuple[int, StoredMessage | StoreError]] = deque()
        self._first_of_load = -1
        self._rounds = 0
        self._loads = 0
        self._error: StoreError | None = None
        self._failed = False
        self._progress: BuildProgress | None = None
        self._lossy = False

    @property
    def head(self) -> StoredMessage | None:
        """The next match as found by `advance`, not yet taken."""
        outcome = self._loaded[0][1] if self._loaded else None
        return None if isinstance(outcome, StoreError) else outcome

    @property
    def ended(self) -> bool:
        """Whether it cannot give more in this call: at its end, or failed."""
        return self._failed or not (self._loaded or self._candidates or self._more_candidates)

    @property
    def has_more(self) -> bool:
        """Whether asking again could give more."""
        return bool(self._loaded or self._candidates or self._more_candidates)

    @property
    def failed(self) -> bool:
        """Whether the shard did not answer."""
        return self._failed

    def advance(self) -> None:
        """Go to the next match. Without one, `head` stays None: `ended`, or enough work for one call."""
        try:
            while not self.settle():
                if not self._candidates and not self._search():
                    return
                self._load()
        except StoreError as error:
            self._error = error
            self._failed = True

    def take(self) -> None:
        """Consume the head."""
        self.cursor, _ = self._loaded.popleft()

    def outcome(self) -> ShardOutcome:
        """How the shard took part so far."""
        behind = self._progress is not None and self._progress.is_behind
        return ShardOutcome(
            self.shard.broker_name, self._error, self._progress, not (self._failed or self._lossy or behind)
        )

    def settle(self) -> bool:
        """Drop what is loaded up to the next match, without reading on; whether there is one."""
        while self._loaded:
            offset, record = self._loaded[0]
            if isinstance(record, StoreError):
                # A dropped record is no loss; any other unreadable record may be a match.
                if not was_dropped(record, offset):
                    self._lossy = True
                    self._error = record
            elif self._matches(record):
                if self._page.wants_body(record) and offset != self._first_of_load:
                    self._candidates.extendleft(offset for offset, _ in reversed(self._loaded))
                    self._loaded.clear()
                    return False
                return True
            self.cursor = offset
            self._loaded.popleft()
        return False

    def _matches(self, record: StoredMessage) -> bool:
        question = self._question
        return (
            record.topic == question.topic and question.window.holds(store_millis(record)) and question.accepts(record)
        )

    def _search(self) -> bool:
        """Ask the index for the next candidates; False at its end, or when this call has done enough."""
        if not self._more_candidates or self._rounds >= CANDIDATE_ROUNDS_MAX:
            return False
        if self._rounds and self.deadline.is_near():
            return False
        # One more than missing, so that the end needs no further round.
        count = self._page.missing_count + 1
        if self._rounds:
            count = max(count, CANDIDATE_ROUND_COUNT)
        elif self._stream_count > 1:
            count = self._share_of(count) + 1
        self._rounds += 1
        question = self._question
        found = search_key(
            self.shard,
            question.topic,
            question.key,
            question.window,
            below_offset=self._below,
            count_max=min(count, PAGE_SIZE_MAX),
            deadline=self.deadline,
            of_tags=question.of_tags,
        )
        # Later rounds ask for older candidates: what they reach says nothing about the newest ones.
        self._progress = least_built((self._progress, found.progress))
        offsets = found.answer.commit_log_offsets
        self._lossy = self._lossy or found.answer.damaged_chain_count > 0
        if found.problem is not None:
            self._lossy = True
            self._error = found.problem
        self._candidates.extend(offsets)
        if offsets:
            self._below = offsets[-1]
        self._more_candidates = bool(found.answer.next_page_token and offsets)
        return bool(self._candidates)

    def _share_of(self, count: int) -> int:
        """The part of `count` that this stream reads ahead; at least two, so that the next match is known early."""
        return min(count, max(-(-2 * count // self._stream_count), 2))

    def _load(self) -> None:
        """Read the next candidates from the log."""
        count = max(self._page.missing_count, CANDIDATE_ROUND_COUNT if self._loads else 1)
        free_bytes = self._page.free_bytes
        is_share = self._stream_count > 1 and not self._loads
        if is_share:  # all streams read at the same time; together little more than a page
            count = self._share_of(count)
            free_bytes = 2 * free_bytes // self._stream_count
        self._loads += 1
        offsets = [self._candidates[index] for index in range(min(count, len(self._candidates), PAGE_SIZE_MAX))]
        outcomes = get_records(self.shard, offsets, max(free_bytes, 1), self.deadline)
        assert outcomes, "a reader must answer at least one outcome"
        # A body that does not fit the share may fit the page; the record is read again then.
        self._first_of_load = -1 if is_share else offsets[0]
        for outcome in outcomes:
            self._loaded.append((self._candidates.popleft(), outcome))


@dataclass(frozen=True, slots=True)
class MatchPage:
    """Matches newest first, and where to go on: cursors by shard name, empty at the end."""

    entries: tuple[PageEntry, ...]
    cursors: Mapping[str, int]
    completeness: message_pb2.Completeness
    outcomes: tuple[ShardOutcome, ...]


def merge_matches(
    shards: Shards, question: KeyQuestion, cursors: Mapping[str, int], page_size: int, deadline: Deadline
) -> MatchPage:
    """One page of all shards' matches, newest first by store time, then shard, then offset.

    Each shard's matches keep their order in the log, also where its clock once stepped back.

    Raises:
        StoreError: when every shard failed; otherwise a failed shard is in the outcomes.
    """
    page: Page = Page(page_size)
    first = deadline.for_one_of(len(shards))
    streams = [
        MatchStream(shard, question, page, cursors.get(shard.broker_name), first, len(shards)) for shard in shards
    ]
    shards.fan_out.ask(streams, MatchStream.advance)
    for stream in streams:
        stream.deadline = deadline
    while page.missing_count > 0:
        newest = newest_of(streams)
        if newest is None or newest.head is None or not page.add(newest.shard.broker_name, newest.head):
            break
        newest.take()
        if page.missing_count > 0:
            newest.advance()
        else:
            newest.settle()
    outcomes = tuple(stream.outcome() for stream in streams)
    if all(stream.failed for stream in streams):
        raise_first_error(outcomes)
    left_out = _left_out(shards, cursors)
    outcomes += tuple(map(unknown_shard, left_out))
    # A failed shard alone gives no next page; otherwise a client that reads all pages would never end.
    more = any(stream.has_more and not stream.failed for stream in streams)
    return MatchPage(
        tuple(page.entries),
        {**_cursors(streams), **left_out} if more else {},
        judge(outcomes, more=more),
        outcomes,
    )


def newest_of(streams: Sequence[MatchStream]) -> MatchStream | None:
    """The stream whose next match comes next; None when there is none, or one is not known yet."""
    if len(streams) == 1:
        return streams[0] if streams[0].head else None
    if not all(stream.head or stream.ended for stream in streams):
        return None
    return max((stream for stream in streams if stream.head), key=_newness, default=None)


def _newness(stream: MatchStream) -> tuple[int, str, int]:
    head = stream.head
    assert head is not None
    return store_millis(head), stream.shard.broker_name, head.commit_log_offset


def _left_out(shards: Shards, cursors: Mapping[str, int]) -> dict[str, int]:
    """Cursors of shards that this gateway does not know; another one, or this one before a restart, did."""
    if not cursors:
        return {}
    known = {shard.broker_name for shard in shards}
    return {name: cursor for name, cursor in cursors.items() if name not in known and cursor != EXHAUSTED_CURSOR}


def unknown_shard(broker_name: str) -> ShardOutcome:
    """The outcome of a shard that the page token names and this gateway does not know."""
    error = BrokerNotFoundError(
        f"The page before had messages of the shard {broker_name!r}, which this gateway does not know.",
        brokerName=broker_name,
    )
    return ShardOutcome(broker_name, error, complete=False)


def _cursors(streams: list[MatchStream]) -> dict[str, int]:
    cursors: dict[str, int] = {}
    for stream in streams:
        if not stream.has_more:
            cursors[stream.shard.broker_name] = EXHAUSTED_CURSOR
        elif stream.cursor is not None:
            cursors[stream.shard.broker_name] = stream.cursor
    return cursors


KEY_METHOD = "QueryMessageByKey"


@dataclass(frozen=True, slots=True)
class MatchAnswer:
    """A page of verified matches, newest first; the token is empty at the end."""

    entries: tuple[PageEntry, ...]
    next_page_token: str
    completeness: message_pb2.Completeness
    outcomes: tuple[ShardOutcome, ...]


def tags_question(topic: str, tags: str, window: TimeWindow) -> KeyQuestion:
    """The messages of a topic that have these TAGS, through the index entries that RocketMQ 5.5 has for them."""
    return KeyQuestion(topic, tag_key(tags), window, lambda record: record.tags == tags, of_tags=True)


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
    of_tags: bool = False,
) -> MatchAnswer:
    """One page; `of_tags`: the key is the TAGS of the messages, whole.

    Raises:
        InvalidArgumentError, InvalidPageTokenError: by field.
        TopicNotFoundError: no shard knows the topic.
        StoreError: no shard answered.
    """
    check_key(key, "key")
    question = KeyQuestion(topic, key, window, lambda record: key in record.keys)
    if of_tags:
        question = tags_question(topic, key, window)
    query: dict[str, str | int | None] = {
        "topic": topic,
        "key": key,
        "begin": window.begin_millis,
        "end": window.end_millis,
        **({"of_tags": 1} if of_tags else {}),
    }
    return answer_matches(
        shards,
        tokens,
        KEY_METHOD,
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


UNIQUE_KEY_METHOD = "QueryMessageByUniqueKey"
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
            UNIQUE_KEY_METHOD,
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
