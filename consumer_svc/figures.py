"""Figures: how many messages came and went lately, by topic and group; RocketMQ's BrokerStatsManager.

    row     a count that only rises, with what it was at times before
    span    the count now, less what it was at the begin of the span

              ◀───────────── minute: 50 to 60 s ────────────▶
    ── s ──── s ──── s ──── s ──── s ──── s ──── s ──── now        s: a row keeps its 6 newest counts of every 10 s,
       dropped                                                     likewise 6 of every 10 min and 24 of every hour

A new row was 0 for 10 s, so its first messages are no endless rate. What a row was in between is written down when it changes
next, or is asked for: a row that rests costs nothing. All is in memory, and begins anew with the process.
"""

import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import InvalidArgumentError
from store.format.topic import is_system_topic

if TYPE_CHECKING:
    from store.derive.dispatch_columns import DispatchColumns

# Rows that are kept: some 1,500 bytes each when they have counted for a day. The one that changed longest ago goes first.
ROW_COUNT_MAX = 16_384
# Figures of one answer.
KEY_COUNT_MAX = 16_384
# How often the counts are kept (ms), and how many of them.
SECONDS, MINUTES, HOURS = (10_000, 6), (600_000, 6), (3_600_000, 24)
SPANS = (SECONDS, MINUTES, HOURS)
# Reput's own records, of which RocketMQ has none.
OWN_TOPICS = "rmq_sys_REPUT_"
NUMBERS = 4  # of a count that is kept: its time (ms), messages, bytes, calls

APPENDED, DELIVERED, SENT_BACK = pb.FIGURE_KIND_APPENDED, pb.FIGURE_KIND_DELIVERED, pb.FIGURE_KIND_SENT_BACK


class FigureKey(NamedTuple):
    """Which row; see the proto."""

    kind: "pb.FigureKind"
    topic: str = ""
    consumer_group: str = ""
    without_system_topics: bool = False


class Row:
    """A count.

    Args:
        now_millis: when it begins.
        morning_millis: the count at the begin of the day belongs to the day that ends then (ms since 1970).

    Attributes:
        message_count: messages.
        size_bytes: bytes of their records.
        call_count: calls that had them.
        today_count: messages before this day.
        yesterday_count: messages before the day before.
    """

    __slots__ = (
        "_kept",
        "_next",
        "_next_millis",
        "call_count",
        "message_count",
        "morning_millis",
        "size_bytes",
        "today_count",
        "yesterday_count",
    )

    def __init__(self, now_millis: int, morning_millis: int) -> None:
        self.message_count = self.size_bytes = self.call_count = 0
        self.today_count = self.yesterday_count = 0
        self.morning_millis = morning_millis
        self._kept = [array("q", (now_millis - SECONDS[0], 0, 0, 0)) for _ in SPANS]
        self._next = [now_millis + period for period, _ in SPANS]
        self._next_millis = min(self._next)

    def roll(self, now_millis: int) -> None:
        """Write down what the count was at the times that are over."""
        if now_millis < self._next_millis:
            return
        for number, (period, count_max) in enumerate(SPANS):
            kept, at = self._kept[number], self._next[number]
            if now_millis < at:
                continue
            over_count = (now_millis - at) // period + 1
            at += period * max(over_count - count_max, 0)
            while at <= now_millis:
                kept.extend((at, self.message_count, self.size_bytes, self.call_count))
                at += period
            del kept[: -NUMBERS * count_max]
            self._next[number] = at
        self._next_millis = min(self._next)

    def span(self, number: int, now_millis: int, newest: int = 0) -> pb.FigureSpan:
        """What was counted since the oldest of the counts that are kept; of the `newest` ones, unless that is 0."""
        kept = self._kept[number]
        begin = max(len(kept) - NUMBERS * newest, 0) if newest else 0
        millis, message_count, size_bytes, call_count = kept[begin : begin + NUMBERS]
        return pb.FigureSpan(
            duration_millis=now_millis - millis,
            message_count=self.message_count - message_count,
            size_bytes=self.size_bytes - size_bytes,
            call_count=self.call_count - call_count,
        )


def next_morning(wall_seconds: float) -> int:
    """The begin of the next day in local time (ms since 1970)."""
    day = datetime.fromtimestamp(wall_seconds).replace(hour=0, minute=0, second=0, microsecond=0)  # local
    return int((day + timedelta(days=1)).timestamp() * 1_000)


class Figures:
    """See the top of this file; thread-safe.

    Args:
        clock: seconds, rising.
        wall: seconds since 1970, for the begins of days.
        row_count_max: rows that are kept.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        row_count_max: int = ROW_COUNT_MAX,
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._row_count_max = row_count_max
        self._lock = threading.Lock()
        self._rows: OrderedDict[FigureKey, Row] = OrderedDict()
        self._morning_millis = next_morning(wall())

    def add(self, kind: "pb.FigureKind", topic: str, consumer_group: str, message_count: int, size_bytes: int) -> None:
        """Messages of a topic came or went with one call; also counted for the shard.

        Args:
            kind: what is counted.
            topic: their topic.
            consumer_group: the group that they are for; empty: of the topic, or of no group.
            message_count: how many.
            size_bytes: of their records together.
        """
        if not message_count or topic.startswith(OWN_TOPICS):
            return
        with self._lock:
            now_millis = self._begin()
            if consumer_group or kind == APPENDED:
                self._add(FigureKey(kind, topic, consumer_group), now_millis, message_count, size_bytes)
            self._add(FigureKey(kind), now_millis, message_count, size_bytes)
            if not is_system_topic(topic):
                key = FigureKey(kind, without_system_topics=True)
                self._add(key, now_millis, message_count, size_bytes)

    def add_records(self, columns: "DispatchColumns") -> None:
        """Records came over Reput."""
        import numpy as np  # with the first record: it takes memory

        counts = np.bincount(columns.topic_numbers, minlength=len(columns.topics)).tolist()
        sizes = np.bincount(columns.topic_numbers, columns.record_sizes_bytes, len(columns.topics)).tolist()
        everything, without_system_topics = [0, 0, 0], [0, 0, 0]
        with self._lock:  # once for all topics: there may be one for each record
            now_millis = self._begin()
            for topic, count, size in zip(columns.topics, counts, sizes, strict=True):
                if not count or topic.startswith(OWN_TOPICS):
                    continue
                size_bytes = int(size)
                self._add(FigureKey(APPENDED, topic), now_millis, count, size_bytes)
                for sums in (everything,) if is_system_topic(topic) else (everything, without_system_topics):
                    sums[0] += count
                    sums[1] += size_bytes
                    sums[2] += 1
            if everything[0]:
                self._add(FigureKey(APPENDED), now_millis, *everything)
            if without_system_topics[0]:
                self._add(FigureKey(APPENDED, without_system_topics=True), now_millis, *without_system_topics)

    def answer(self, request: pb.GetFiguresRequest) -> pb.GetFiguresResponse:
        """See the proto; InvalidArgumentError."""
        if not 1 <= len(request.keys) <= KEY_COUNT_MAX:
            raise InvalidArgumentError(f"{len(request.keys)} keys: 1 to {KEY_COUNT_MAX} are possible", field="keys")
        with self._lock:
            now_millis = self._begin()
            return pb.GetFiguresResponse(figures=[self._figure(key, now_millis) for key in request.keys])

    def _begin(self) -> int:
        """The time of the clock (ms); counts of the day are taken over when it is over. The lock is held."""
        if self._wall() * 1_000 >= self._morning_millis:
            self._morning_millis = next_morning(self._wall())
        return int(self._clock() * 1_000)

    def _add(self, key: FigureKey, now_millis: int, message_count: int, size_bytes: int, call_count: int = 1) -> None:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(now_millis, self._morning_millis)
            if len(self._rows) > self._row_count_max:
                self._rows.popitem(last=False)
        else:
            self._rows.move_to_end(key)
            self._see(row, now_millis)
        row.message_count += message_count
        row.size_bytes += size_bytes
        row.call_count += call_count

    def _see(self, row: Row, now_millis: int) -> None:
        row.roll(now_millis)
        if row.morning_millis != self._morning_millis:
            row.morning_millis = self._morning_millis
            row.yesterday_count, row.today_count = row.today_count, row.message_count

    def _figure(self, key: pb.FigureKey, now_millis: int) -> pb.Figure:
        row = self._rows.get(FigureKey(key.kind, key.topic, key.consumer_group, key.without_system_topics))
        if row is None:
            return pb.Figure()
        self._see(row, now_millis)
        return pb.Figure(
            is_known=True,
            # The newest count may be of just now, and no stretch of time.
            ten_seconds=row.span(0, now_millis, newest=2),
            minute=row.span(0, now_millis),
            ten_minutes=row.span(1, now_millis, newest=2),
            hour=row.span(1, now_millis),
            day=row.span(2, now_millis),
            total=pb.FigureSpan(message_count=row.message_count, size_bytes=row.size_bytes, call_count=row.call_count),
            message_count_today=row.today_count,
            message_count_yesterday=row.yesterday_count,
        )
