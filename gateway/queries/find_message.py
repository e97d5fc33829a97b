"""Find: looks a text up as everything that it may be.

    offset message id   the record that starts where it says, and only when that record has this very id
    unique key, key     through the index, topic by topic (it knows keys only together with their topic)

The record with the id comes first, the others newest first: within a shard by its log, between shards by store time. Pages
go down the logs, so appends during a find do not disturb it. Many topics are searched in groups, by name.

One shard's part (`ShardFind`): the record by its id, and the matches of all its topics in the order of its log, newest first.

topic A   ● ──────── ● ─── ●            a MatchStream each (by_key.py)
topic B      ● ─ ●                      the next match is the one that lies last in the log: so one byte, below which
topic C                    ● ── ●       the next page begins, is right for all topics at once
          ◀── page 2 ──┊── page 1 ──

Where it goes on in each shard (`Place`), inside a page token.

    from:SHARD          topics up to this one, by name, are done, but for what the rows below say
    to:SHARD            an open group: the topics behind `from` up to this one ...
    below:SHARD         ... of which only records that start below this byte of the log are left
    in:SHARD NUL TOPIC  of this topic only records that start below this byte are left; without an open group, these
                        topics are all that is left of those up to `from`
    end:SHARD           1: no topic follows

A shard that is not named has not been asked yet, or did not answer. Most of the time a text is in a few topics, and they
are named, so that a later page asks only for them. When it is in many, the group and one byte stand for all of them; then
only a topic is named whose matches lie behind so many candidates of other keys that one call did not get past them: the next
one must not begin with these again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from gateway.ports.shards import Shards, require_topic
from gateway.ports.time_window import TimeWindow
from gateway.queries.by_key import KeyQuestion, MatchStream, unknown_shard
from gateway.queries.completeness import ShardOutcome, judge, least_built, raise_first_error
from gateway.queries.page import Page, PageEntry, PageTokens, check_key, check_not_negative, check_topic, page_size
from reput.gateway.v1 import gateway_service_pb2 as gateway_pb
from reput.message.v1 import message_pb2
from reput.message.v1.message_pb2 import StoredMessage
from store.errors import (
    InvalidMessageIdError,
    OffsetOutOfRangeError,
    PermissionDeniedError,
    RecordNotFoundError,
    StoreError,
)
from store.format.message_id import decode_offset_msg_id

_TOPIC_MARK = "\0"


@dataclass(frozen=True, slots=True)
class Place:
    """See the module; `below` and the values of `named` are bytes of the log.

    Attributes:
        after: `from`; empty: no topic is done.
        last: `to`; empty: no group is open.
        below: of the open group.
        named: cursors by topic.
        is_last: `end`.
    """

    after: str = ""
    last: str = ""
    below: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    is_last: bool = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left in the shard."""
        return self.is_last and not self.last and not self.named

    def cursor_of(self, topic: str) -> int | None:
        """Below which byte records of a topic are left; None: all."""
        if not self.last:
            return self.named.get(topic)
        return min(self.below, self.named.get(topic, self.below))


def to_fields(places: Mapping[str, Place]) -> dict[str, str | int]:
    """What a page token holds, for places by shard name."""
    fields: dict[str, str | int] = {}
    for name, place in places.items():
        fields[f"from:{name}"] = place.after
        fields |= {f"in:{name}{_TOPIC_MARK}{topic}": cursor for topic, cursor in place.named.items()}
        if place.last:
            fields |= {f"to:{name}": place.last, f"below:{name}": place.below}
        if place.is_last:
            fields[f"end:{name}"] = 1
    return fields


def from_fields(fields: Mapping[str, str | int]) -> dict[str, Place]:
    """The other way. The fields come out of a seal and are what `to_fields` gave."""
    named: dict[str, dict[str, int]] = {}
    for key, value in fields.items():
        kind, _, rest = key.partition(":")
        name, _, topic = rest.partition(_TOPIC_MARK)
        if kind == "in":
            named.setdefault(name, {})[topic] = int(value)
    names = [key.removeprefix("from:") for key in fields if key.startswith("from:")]
    return {
        name: Place(
            str(fields[f"from:{name}"]),
            str(fields.get(f"to:{name}", "")),
            int(fields.get(f"below:{name}", 0)),
            named.get(name, {}),
            f"end:{name}" in fields,
        )
        for name in names
    }


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
