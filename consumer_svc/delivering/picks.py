"""What a pop picks from one queue: decides about units and their messages, and changes nothing."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from consumer_svc.delivering.life import Life
from consumer_svc.delivering.moves import attempts_of, dead_letter_of, is_foreign_retry
from consumer_svc.filters.message_filter import MessageFilter
from consumer_svc.state.group_states import GroupSettings
from consumer_svc.state.queue_state import Postponed, QueueRef, QueueState
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumer.v1 import consumer_service_pb2 as pb
from reput.message.v1.message_pb2 import StoredMessage
from services.reading.queue_reader import ANSWER_BODY_BYTES_MAX, checked, is_removed, too_large
from store.errors import StoreError
from store.format.derived.queue_unit import QueueUnit
from store.format.properties import SHARDING_KEY

MESSAGE_COUNT_MAX = 32
# A longer message group is kept as its SHA-256; RocketMQ's proxy takes at most 64 characters.
MESSAGE_GROUP_LENGTH_MAX = 64
# Dead letters of one pop: all are appended in one request.
DEAD_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class Pick:
    """The messages picked from one queue."""

    ref: QueueRef
    state: QueueState | None
    version: int
    next_offset: int
    first_offset: int
    begin_offset: int = 0  # the group begins in the queue, behind its first position
    picked: list[tuple[StoredMessage, Postponed]] = field(default_factory=list)
    passed: list[Postponed] = field(default_factory=list)
    dead: list[InternalRecord] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    body_bytes: int = 0
    dead_bytes: int = 0
    removed_count: int = 0
    is_full: bool = False  # no room for another body
    has_more: bool = False  # there may be messages that were not looked at
    is_unbuilt: bool = False  # there are messages whose units cannot be had yet


class Taking:
    """Decides about units, one after the other, which messages are picked."""

    def __init__(
        self,
        life: Life,
        request: pb.PopMessagesRequest,
        wanted: MessageFilter,
        settings: GroupSettings,
        pick: Pick,
        held: set[str],
        may_pass: int,
        room: int,
        body_bytes: int,
    ) -> None:
        self._life = life
        self._topic = request.topic
        self._wanted = wanted
        self._per_message_group_max = 0 if request.is_lite else request.max_per_message_group
        self._is_lite = request.is_lite  # all messages of a lite topic are one message group
        self._settings = settings
        self._pick = pick
        self._held = held
        self._may_pass = may_pass
        self._counts: dict[str, int] = {}
        self._body_bytes_left = body_bytes
        self._attempts_max = life.attempts_max(settings)
        self.room = room

    @property
    def has_room(self) -> bool:
        """Whether another message can be picked."""
        return self.room > 0 and not self._pick.is_full

    def take(self, units: Sequence[QueueUnit], waitings: Sequence[Postponed]) -> int:
        """Decide about units; returns how many of them were decided, from the first on."""
        pick, matches_unit = self._pick, self._wanted.matches_unit
        wanted = [at for at, unit in enumerate(units) if matches_unit(unit.tags_code)]
        outcomes = iter(self._life.reader.records([units[at] for at in wanted], max(1, self._body_bytes_left)))
        wanted_set = set(wanted)
        for at, waiting in enumerate(waitings):
            is_again = waiting.delivery_number > 0 or waiting.queue_offset < pick.first_offset
            if at not in wanted_set:
                pick.ended += [waiting.queue_offset] if is_again else []
                continue
            if not self.has_room:
                return at
            ref = pick.ref
            outcome = checked(next(outcomes), ref.topic, ref.queue_id, waiting.queue_offset)
            if isinstance(outcome, StoreError):
                if not is_removed(outcome):
                    if pick.picked or at:
                        pick.is_full = True
                        return at  # what comes before it is delivered; the next pop fails with it
                    raise outcome
                pick.removed_count += 1
                pick.ended += [waiting.queue_offset] if is_again else []
                continue
            if outcome.body_omitted:
                if self._body_bytes_left >= ANSWER_BODY_BYTES_MAX and not at:
                    raise too_large(outcome)
                pick.is_full = True
                return at
            if not self._take_one(outcome, waiting, is_again=is_again):
                return at
        return len(units)

    def _take_one(self, message: StoredMessage, waiting: Postponed, *, is_again: bool) -> bool:
        """Decide about one message; False when there is no room to pass it."""
        pick = self._pick
        if is_foreign_retry(message, self._topic) or not self._wanted.matches(message.tags, message.properties):
            pick.ended += [waiting.queue_offset] if is_again else []
            return True
        before = attempts_of(message, waiting.attempt_count)
        by_group = self._settings.ordered and not self._is_lite
        name = message.properties.get(SHARDING_KEY, "") if by_group else ""
        if len(name) > MESSAGE_GROUP_LENGTH_MAX:
            name = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
        if before >= self._attempts_max and name not in self._held:
            dead = dead_letter_of(message, pick.ref.consumer_group, before, self._life.clock.millis())
            if pick.dead and pick.dead_bytes + dead.ByteSize() > DEAD_BYTES_MAX:
                pick.is_full = True
                return False
            pick.dead.append(dead)
            pick.dead_bytes += dead.ByteSize()
            pick.ended.append(waiting.queue_offset)
            return True
        if self._settings.ordered:
            if not is_again or not waiting.message_group:
                waiting = Postponed(waiting.queue_offset, waiting.delivery_number, waiting.uncounted, name)
            if name in self._held:
                if not is_again:
                    if len(pick.passed) >= self._may_pass:
                        return False
                    pick.passed.append(waiting)
                return True
            self._counts[name] = self._counts.get(name, 0) + 1
            if self._per_message_group_max and self._counts[name] >= self._per_message_group_max:
                self._held.add(name)
        pick.picked.append((message, waiting))
        self.room -= 1
        body_bytes = len(message.body)
        pick.body_bytes += body_bytes
        self._body_bytes_left -= body_bytes
        return True
