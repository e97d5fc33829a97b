"""Find: one text of which nobody knows what it is, looked up as everything that it could be.

    offset message id   the record that starts where it says, and only when that record has this very id
    unique key, key     through the index, topic by topic (it knows keys only together with their topic)

Newest first. There is no page behind the first: every match names its topic, and there the other queries go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gateway.completeness import Completeness, ShardOutcome, judge, raise_first_error
from gateway.deadline import Deadline
from gateway.limits import check_not_empty, check_topic, page_size
from gateway.page import Page, PageEntry
from gateway.ports import BuildProgress, FoundRecord, Shard
from gateway.queries.matches import KeyQuestion, MatchStream, newest_of
from gateway.shards import Shards, require_topic
from gateway.time_window import TimeWindow
from store.errors import (
    InvalidMessageIdError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RecordNotFoundError,
    StoreError,
)
from store.format.message_id import decode_offset_msg_id

# Topics looked through in one call: a lookup each, of 0.2 to 1 ms.
TOPIC_COUNT_MAX = 2_000


class MatchedBy(Enum):
    """Values are the numbers of `reput.gateway.v1.MatchedBy`."""

    OFFSET_MSG_ID = 1
    UNIQUE_KEY = 2
    KEY = 3


@dataclass(frozen=True, slots=True)
class FindAnswer:
    """What was found, newest first.

    Attributes:
        entries: the messages, and what each matched by.
        completeness: TRUNCATED when there are more matches than fit, or more topics than are looked through.
        outcomes: how each shard took part.
        topic_count: topics looked through.
    """

    entries: tuple[tuple[PageEntry, MatchedBy], ...]
    completeness: Completeness
    outcomes: tuple[ShardOutcome, ...]
    topic_count: int


def find_message(
    shards: Shards, text: str, topic: str, window: TimeWindow, *, page_size_asked: int, deadline: Deadline
) -> FindAnswer:
    """Everything that the text names.

    Args:
        shards: all shards.
        text: an id or a key.
        topic: the only topic to look in; empty: all.
        window: store times.
        page_size_asked: at most so many messages.
        deadline: the caller's.

    Raises:
        InvalidArgumentError: by field.
        TopicNotFoundError: the topic is unknown.
        StoreError: no shard answered.
    """
    check_not_empty(text, "text")
    if topic:
        check_topic(topic)
    page = Page(page_size(page_size_asked, "page_size"))
    first = deadline.for_one_of(len(shards))
    searches = [_ShardSearch(shard, text, topic, window, page, first) for shard in shards]
    answers = shards.fan_out.ask(searches, _ShardSearch.begin)
    for search, answer in zip(searches, answers, strict=True):
        if isinstance(answer, StoreError):
            search.error = answer
    outcomes_before = [search.outcome() for search in searches]
    if all(outcome.error is not None for outcome in outcomes_before):
        raise_first_error(outcomes_before)
    for stream in (stream for search in searches for stream in search.streams):
        stream.deadline = deadline
    entries, is_cut = _merge(searches, page, text)
    outcomes = tuple(search.outcome() for search in searches)
    if topic and not entries and all(outcome.complete for outcome in outcomes):
        require_topic(shards, topic, deadline)
    more = is_cut or any(search.has_more for search in searches)
    return FindAnswer(
        tuple(entries),
        judge(outcomes, more=more),
        outcomes,
        len({topic for search in searches for topic in search.topics}),
    )


class _ShardSearch:
    """One shard's part; the streams are advanced by one thread at a time."""

    def __init__(self, shard: Shard, text: str, topic: str, window: TimeWindow, page: Page, deadline: Deadline) -> None:
        self.shard = shard
        self.error: StoreError | None = None
        self.topics: list[str] = [topic] if topic else []
        self.streams: list[MatchStream] = []
        self.by_id: FoundRecord | None = None
        self._text = text
        self._topic = topic
        self._window = window
        self._page = page
        self._deadline = deadline
        self._was_cut = False
        self._unknown_since: BuildProgress | None = None

    @property
    def has_more(self) -> bool:
        """Whether there are matches, or topics, that the answer has no room for."""
        return self._was_cut or any(stream.has_more and not stream.failed for stream in self.streams)

    def begin(self) -> None:
        """Look everywhere for the newest match."""
        self.by_id = self._read_by_id()
        if not self._topic:
            names = self._topic_names()
            self.topics = names[:TOPIC_COUNT_MAX]
            self._was_cut = len(names) > TOPIC_COUNT_MAX
        for number, topic in enumerate(self.topics):
            if number and self._deadline.is_near():
                self._was_cut = True
                self.topics = self.topics[:number]
                return
            question = KeyQuestion(topic, self._text, self._window, self._is_named)
            stream = MatchStream(self.shard, question, self._page, None, self._deadline)
            stream.advance()
            if stream.failed:
                raise stream.outcome().error or StoreError(f"shard {self.shard.broker_name} did not answer")
            self.streams.append(stream)

    def outcome(self) -> ShardOutcome:
        """How the shard took part: as the worst of its topics."""
        if self.error is not None:
            return ShardOutcome(self.shard.broker_name, self.error, complete=False)
        outcomes = [stream.outcome() for stream in self.streams]
        error = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        progress = outcomes[-1].progress if outcomes else self._unknown_since
        complete = self._unknown_since is None and all(outcome.complete for outcome in outcomes)
        return ShardOutcome(self.shard.broker_name, error, progress, complete)

    def _topic_names(self) -> list[str]:
        """The topics that the shard knows; also notes when there may be others."""
        names = set(self.shard.topics.queue_counts(self._deadline))
        built = None if names else self.shard.queues.progress(0, 0.0, self._deadline)
        names |= {queue.topic for queue in self.shard.queues.list_queues(None, self._deadline)}
        if built is not None and not built.is_behind and not names:
            built = self.shard.keys.progress(0, 0.0, self._deadline)
        # Where no topic is configured, only queues tell of topics, and they do once they are built.
        if built is not None and built.is_behind:
            self._unknown_since = built
        return sorted(names)

    def _is_named(self, record: FoundRecord) -> bool:
        return record.unique_key == self._text or self._text in record.keys

    def _read_by_id(self) -> FoundRecord | None:
        try:
            host, commit_log_offset = decode_offset_msg_id(self._text)
            record = self.shard.records.get(commit_log_offset, self._deadline)
        except (InvalidMessageIdError, OffsetOutOfRangeError, RecordNotFoundError, PermissionDeniedError):
            return None  # also when the record there is of a topic that the caller may not read
        is_it = record.store_host == str(host) and self._topic in ("", record.topic)
        return record if is_it and self._window.holds(record.store_time_millis) else None


def _merge(searches: Sequence[_ShardSearch], page: Page, text: str) -> tuple[list[tuple[PageEntry, MatchedBy]], bool]:
    """Fill the page, and whether it had no room for a message by its id.

    A message that has the text as its id and as its key is there once.
    """
    matched: list[MatchedBy] = []
    taken: set[tuple[str, int]] = set()
    is_cut = False
    for search in searches:
        if search.by_id is None:
            continue
        if not page.add(search.shard.broker_name, search.by_id):
            is_cut = True
            continue
        matched.append(MatchedBy.OFFSET_MSG_ID)
        taken.add((search.shard.broker_name, search.by_id.commit_log_offset))
    streams = [stream for search in searches for stream in search.streams]
    while page.missing_count > 0:
        newest = newest_of(streams)
        if newest is None or newest.head is None:
            break
        record, broker_name = newest.head, newest.shard.broker_name
        if (broker_name, record.commit_log_offset) not in taken:
            if not page.add(broker_name, record):
                break
            matched.append(MatchedBy.UNIQUE_KEY if record.unique_key == text else MatchedBy.KEY)
        newest.take()
        if page.missing_count > 0:
            newest.advance()
        else:
            newest.settle()
    return list(zip(page.entries, matched, strict=True)), is_cut
