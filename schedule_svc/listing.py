"""Listing: the messages that wait for a time, the next one that is due first, page by page.

A page token says for each source, the timers and each delay level, where the next page goes on. What is delivered between two
pages is missing in the second; nothing is twice.
"""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reput.message.v1.message_pb2 import StoredMessage
from schedule_svc.batches import BatchReader, is_lost
from schedule_svc.delay_levels import DelayLevels
from schedule_svc.life import Life
from schedule_svc.state.schedule_state import Passed
from schedule_svc.timers.timer_book import TimerBook
from schedule_svc.timers.timer_record import facts_of
from services.reading.queue_reader import Outcome, checked
from store.errors import InvalidPageTokenError, ServiceUnavailableError, StoreError
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import REAL_TOPIC
from store.format.topic import RETRY_PREFIX, SCHEDULE_TOPIC, name_matcher

# Messages that one call looks at when it is asked for a topic, or when many are lost.
LOOKED_COUNT_MAX = 10_000
# Messages of a step behind the first one, which has not filled the page: the next ones may be of other topics, or lost, too. A
# step takes two calls for each source, so steps of a small page would take them for every few messages.
STEP_COUNT_MIN = 256


class ScheduledOne(NamedTuple):
    """A message that waits. `level`: 0 for a timer."""

    due_millis: int
    level: int
    queue_offset: int
    message: StoredMessage

    def recall_millis(self) -> int:
        """The time that its recall handle has, as on its receipt; 0 when it cannot be recalled."""
        facts = facts_of(self.message) if not self.level and self.message.unique_key else None
        is_retry = self.message.properties.get(REAL_TOPIC, "").startswith(RETRY_PREFIX)
        return facts.slot_millis + 1 if facts is not None and not is_retry else 0


class _Entry(NamedTuple):
    """A place of a source. `message`: None when it is lost; then `due_millis` is not later than it was due."""

    due_millis: int
    level: int
    queue_offset: int
    message: StoredMessage | None


@dataclass(slots=True)
class Places:
    """Where a page begins: a place in the order of the timers, and a position in each level."""

    timers: Passed = field(default_factory=Passed)
    levels: dict[int, int] = field(default_factory=dict)

    def token(self) -> str:
        """As a page token."""
        text = json.dumps([list(self.timers), sorted(self.levels.items())], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def of(cls, token: str) -> "Places":
        """From a page token; InvalidPageTokenError when it is none."""
        if not token:
            return cls()
        try:
            timers, levels = json.loads(base64.urlsafe_b64decode(token.encode()))
            due_millis, queue_offset = map(_whole, timers)
            return cls(Passed(due_millis, queue_offset), {_whole(level): _whole(offset) for level, offset in levels})
        except (ValueError, TypeError, binascii.Error, RecursionError) as error:
            raise InvalidPageTokenError("the page token is none of this list: leave it out to begin anew") from error


class Listing:
    """See the top of this file.

    Args:
        life: what the kinds share.
        levels: the delay levels.
        book: what is known of the timers.
        batches: reads messages.
    """

    def __init__(self, life: Life, levels: DelayLevels, book: TimerBook, batches: BatchReader) -> None:
        self._life = life
        self._levels = levels
        self._book = book
        self._batches = batches

    def page(
        self,
        topic: str,
        count: int,
        token: str,
        is_late: Callable[[], bool] = lambda: False,
        holds: Callable[[str], object] | None = None,
    ) -> tuple[Sequence[ScheduledOne], str]:
        """A page, and the token of the next one; empty at the end. A page may have fewer messages than asked for, or none.

        Messages that are lost for good are left out.

        Args:
            topic: only messages to it; empty: all.
            count: of messages, at most.
            token: from the page before; empty: the first page.
            is_late: whether the caller's time is nearly over: the page ends with what was found.
            holds: only messages to topics for which it is true; None: all.

        Raises:
            InvalidPageTokenError: the token is none.
            StoreError: a message cannot be read now.
        """
        places = Places.of(token)
        found: list[ScheduledOne] = []
        looked_count = 0
        step_count = count
        while len(found) < count and looked_count < LOOKED_COUNT_MAX:
            step = sorted(self._next(places, step_count), key=lambda entry: entry[:3])[:step_count]
            if not step:
                return found, ""
            for due_millis, level, queue_offset, message in step:
                if level:
                    places.levels[level] = queue_offset + 1
                else:
                    places.timers = Passed(due_millis, queue_offset + 1)
                if message is not None and _is_wanted(message.properties.get(REAL_TOPIC, ""), topic, holds):
                    found.append(ScheduledOne(due_millis, level, queue_offset, message))
                if len(found) == count:
                    break
            looked_count += len(step)
            step_count = max(count, STEP_COUNT_MIN)
            if is_late():
                break
        return found, places.token()

    def _next(self, places: Places, count: int) -> list[_Entry]:
        """The first entries of each source, at most so many of each."""
        found = self._next_timers(places.timers, count)
        for queue_id, end in sorted(self._life.reader.recent.ends(SCHEDULE_TOPIC).items()):
            level = queue_id + 1
            begin = max(places.levels.get(level, 0), self._levels.next_offset(level))
            if begin < end:
                found += self._next_of_level(level, begin, end, count)
        return found

    def _next_timers(self, begin: Passed, count: int) -> list[_Entry]:
        rows: list[tuple[int, int, QueueUnit]] = []
        while len(rows) < count and len(entries := self._book.index.page(begin, count)):
            begin = Passed(int(entries.dues_millis[-1]), int(entries.queue_offsets[-1]) + 1)
            with self._life.lock:
                waits = [
                    at for at, offset in enumerate(entries.queue_offsets.tolist()) if offset not in self._book.done
                ]
            for at in waits:
                unit = QueueUnit(int(entries.commit_log_offsets[at]), int(entries.sizes_bytes[at]), 0)
                rows.append((int(entries.dues_millis[at]), int(entries.queue_offsets[at]), unit))
        del rows[count:]
        outcomes = self._batches.read_headers([unit for _, _, unit in rows]) if rows else ()
        return [
            _Entry(due_millis, 0, queue_offset, _unless_lost(outcome))
            for (due_millis, queue_offset, _), outcome in zip(rows, outcomes, strict=True)
        ]

    def _next_of_level(self, level: int, begin: int, end: int, count: int) -> list[_Entry]:
        run = self._life.reader.units(SCHEDULE_TOPIC, level - 1, begin, count)
        if not run.units and run.queue_offset < end:
            raise ServiceUnavailableError(f"queue {level - 1} of topic {SCHEDULE_TOPIC} is being built: try again")
        outcomes = self._batches.read_headers(run.units) if run.units else ()
        found: list[_Entry] = []
        due_millis = 0
        for queue_offset, outcome in enumerate(outcomes, run.queue_offset):
            message = _unless_lost(checked(outcome, SCHEDULE_TOPIC, level - 1, queue_offset))
            if message is not None:
                due_millis = self._levels.due_of(message)
            found.append(_Entry(due_millis, level, queue_offset, message))
        return found


def topics_asked(patterns: Sequence[str]) -> Callable[[str], object] | None:
    """Tells whether a list is to have messages of a topic; None: those of all."""
    return name_matcher(patterns).fullmatch if patterns else None


def _is_wanted(name: str, topic: str, holds: Callable[[str], object] | None) -> bool:
    return topic in ("", name) and (holds is None or bool(holds(name)))


def _unless_lost(outcome: Outcome) -> StoredMessage | None:
    """The message; None when it is lost for good. StoreError when it cannot be read now."""
    if not isinstance(outcome, StoreError):
        return outcome
    if not is_lost(outcome):
        raise outcome
    return None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError("it is no position")
    return value
