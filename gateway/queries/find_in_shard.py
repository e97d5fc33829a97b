"""One shard's part of a find: the record by its id, and the matches of all its topics in the order of its log, newest first.

topic A   ● ──────── ● ─── ●            a MatchStream each (matches.py)
topic B      ● ─ ●                      the next match is the one that lies last in the log: so one byte, below which
topic C                    ● ── ●       the next page begins, is right for all topics at once
          ◀── page 2 ──┊── page 1 ──
"""

from dataclasses import dataclass

from gateway.ports.deadline import Deadline
from gateway.ports.shard import (
    BuildProgress,
    Shard,
    get_record,
    keys_progress,
    list_queues,
    queues_progress,
    store_millis,
    topics_of,
)
from gateway.ports.time_window import TimeWindow
from gateway.queries.completeness import ShardOutcome, least_built
from gateway.queries.find_places import Place
from gateway.queries.matches import KeyQuestion, MatchStream
from gateway.queries.page import Page
from reput.message.v1.message_pb2 import StoredMessage
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
# Topics that a page token names; their names have up to 255 bytes, and a token is part of a URL.
NAMED_COUNT_MAX = 8
# Below it lies every record.
_EVERYWHERE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class FindQuestion:
    """What to look for.

    Attributes:
        text: an id or a key.
        topic: the only topic to look in; empty: all.
        window: store times.
    """

    text: str
    topic: str
    window: TimeWindow

    def is_named(self, record: StoredMessage) -> bool:
        """Whether the record has the text as its unique key or as one of its keys."""
        return record.unique_key == self.text or self.text in record.keys


class ShardFind:
    """One shard's part; the streams are advanced by one thread at a time.

    Args:
        shard: the shard.
        question: what to look for.
        page: to be filled; bounds what is read ahead.
        place: where the page before ended here; None: the shard was not asked yet.
        deadline: until when.
        max_millis: time after which to look in no further topic; 0: no such time.

    Attributes:
        error: why the shard is missing; None when it is not.
        topics: looked in.
        streams: their matches.
        by_id: the record that has the text as its id, on the first page.
    """

    def __init__(
        self,
        shard: Shard,
        question: FindQuestion,
        page: Page,
        place: Place | None,
        deadline: Deadline,
        max_millis: int,
    ) -> None:
        self.shard = shard
        self.error: StoreError | None = None
        self.topics: list[str] = []
        self.streams: list[MatchStream] = []
        self.by_id: StoredMessage | None = None
        self._question = question
        self._page = page
        self._place = place or Place()
        self._is_new = place is None
        self._is_last = self._place.is_last
        self._deadline = deadline
        self._max_millis = max_millis
        self._unknown_since: BuildProgress | None = None
        self._id = _decoded(question.text)

    @property
    def has_more(self) -> bool:
        """Whether there are matches left, or topics."""
        return not self._is_last or any(stream.has_more and not stream.failed for stream in self.streams)

    @property
    def knows_next(self) -> bool:
        """Whether it is known which match comes next: not behind a topic that failed, whose next may be that one."""
        return all(stream.head or (stream.ended and not stream.failed) for stream in self.streams)

    @property
    def newest(self) -> MatchStream | None:
        """The stream whose match comes next; None when there is none."""
        return max((stream for stream in self.streams if stream.head), key=_position, default=None)

    def begin(self) -> None:
        """Look everywhere for the newest match."""
        if self._is_new:
            self.by_id = self._read_by_id()
        if self._place.is_done:
            return
        topics = self._group()
        is_new_group = not self._place.last and not self._place.named
        # From here on, so that a page gets on however long the list of topics took.
        stop_at_seconds = self._deadline.clock() + self._max_millis / 1000
        for number, topic in enumerate(topics):
            # A group that earlier pages have shown matches of stays what it was.
            time_is_over = self._max_millis > 0 and self._deadline.clock() >= stop_at_seconds
            if number and is_new_group and (time_is_over or self._deadline.is_near()):
                self._is_last = False
                break
            asked = KeyQuestion(topic, self._question.text, self._question.window, self._question.is_named)
            cursor = self._place.cursor_of(topic)
            stream = MatchStream(self.shard, asked, self._page, cursor, self._deadline, len(topics))
            stream.advance()
            if stream.failed:
                raise stream.outcome().error or StoreError(f"shard {self.shard.broker_name} did not answer")
            self.streams.append(stream)
            self.topics.append(topic)

    def leave_out(self, error: StoreError) -> None:
        """The shard is missing from the page, but for the record by its id; a later page begins where this one did."""
        self.error = error
        self.streams.clear()
        self.topics.clear()

    def is_by_id(self, record: StoredMessage) -> bool:
        """Whether the text is the record's id: then it is shown as that, once."""
        return (record.store_host, record.commit_log_offset) == self._id

    def outcome(self) -> ShardOutcome:
        """How the shard took part: as the worst of its topics."""
        if self.error is not None:
            return ShardOutcome(self.shard.broker_name, self.error, complete=False)
        outcomes = [stream.outcome() for stream in self.streams]
        error = next((outcome.error for outcome in outcomes if outcome.error is not None), None)
        progress = least_built((self._unknown_since, *(outcome.progress for outcome in outcomes)))
        complete = self._unknown_since is None and all(outcome.complete for outcome in outcomes)
        return ShardOutcome(self.shard.broker_name, error, progress, complete)

    def next_place(self) -> Place:
        """Where the next page goes on here."""
        place = self._place
        if self.error is not None:
            return place
        left = {topic: stream for topic, stream in zip(self.topics, self.streams, strict=True) if stream.has_more}
        bounds = {topic: _bound(stream) for topic, stream in left.items()}
        is_named = bool(place.named) and not place.last
        last = place.after if is_named else place.last or (self.topics[-1] if self.topics else place.after)
        if is_named or len(bounds) <= NAMED_COUNT_MAX:
            return Place(last, named=bounds, is_last=self._is_last)
        below = max(bounds.values())
        lagging = {
            topic: bounds[topic]
            for topic, stream in left.items()
            if bounds[topic] < below and (stream.head is None or topic in place.named)
        }
        return Place(place.after, last, below, lagging, self._is_last)

    def _group(self) -> list[str]:
        """The topics to look in, by name."""
        place = self._place
        if place.named and not place.last:
            return sorted(place.named)
        names = [self._question.topic] if self._question.topic else self._topic_names()
        if place.last:
            return [name for name in names if place.after < name <= place.last]
        names = [name for name in names if name > place.after]
        self._is_last = len(names) <= TOPIC_COUNT_MAX
        return names[:TOPIC_COUNT_MAX]

    def _topic_names(self) -> list[str]:
        """The topics that the shard knows; also notes when there may be others."""
        names = set(topics_of(self.shard, self._deadline))
        built = None if names else queues_progress(self.shard, self._deadline)
        names |= {queue.topic for queue in list_queues(self.shard, None, self._deadline)}
        if built is not None and not built.is_behind and not names:
            built = keys_progress(self.shard, self._deadline)
        # Where no topic is configured, only queues tell of topics, and they do once they are built.
        if built is not None and built.is_behind:
            self._unknown_since = built
        return sorted(names)

    def _read_by_id(self) -> StoredMessage | None:
        if self._id is None:
            return None
        try:
            record = get_record(self.shard, self._id[1], self._deadline)
        except (OffsetOutOfRangeError, RecordNotFoundError, PermissionDeniedError):
            return None  # also when the record there is of a topic that the caller may not read
        is_it = self.is_by_id(record) and self._question.topic in ("", record.topic)
        return record if is_it and self._question.window.holds(store_millis(record)) else None


def _decoded(text: str) -> tuple[str, int] | None:
    """Store host and commit-log offset of an id; None when the text is none."""
    try:
        host, commit_log_offset = decode_offset_msg_id(text)
    except InvalidMessageIdError:
        return None
    return str(host), commit_log_offset


def _position(stream: MatchStream) -> int:
    assert stream.head is not None
    return stream.head.commit_log_offset


def _bound(stream: MatchStream) -> int:
    """Below which byte lies what the stream has left."""
    if stream.head is not None:
        return stream.head.commit_log_offset + 1
    return _EVERYWHERE if stream.cursor is None else stream.cursor
