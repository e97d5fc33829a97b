"""A group and a shard that does not know it, because it joined later, was away, or was restored empty.

Each shard keeps the settings of a group and its positions there. Calls that would make the group in a shard, and pops where it
has not begun, ask the shard with `known_only`. A shard that does not know the group answers GroupNotFoundError, once; then the
gateway tells it what the other shards know, and asks again:

    settings      those of the first shard in which somebody has set some (ADR 0115); the shard keeps its own if it has such
    a beginning   only where new groups begin at the end of a topic, and for pops (ADR 0104):
                  the group has a position in the topic in another shard    the first message: this shard came later
                  else it begins now, in all shards                         the end of each queue, as it was before the others
                                                                            were asked

So a message that was sent after the group began anywhere is never skipped, whatever happens meanwhile. A shard that does not
answer may know that the group has begun: then nothing begins, and the poll is refused.

Two gateways may begin a group at once: each finds no position and sets ends, and the first ones stay. One may see another's
positions in a part of the shards, though. So a shard is believed to have come later only when it still has no position after
SETTLE_SECONDS, in which a beginning that was under way has ended.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TypeVar

import structlog

from gateway.groups.asking import keeper_of
from gateway.ports.deadline import Deadline
from gateway.ports.delivery import GroupSettings, settings_that_count
from gateway.ports.groups import GroupChoice, Position
from gateway.ports.shard import QueueRange, Shard
from gateway.ports.shards import Shards, ShardsSource, list_built_queues
from services.serving.admission.callers import note_in_context
from services.serving.admission.shares import client_of_name
from store.errors import GroupNotFoundError, ServiceUnavailableError, StoreError

# Of the calls of a join to all shards at once.
CALL_SECONDS = 1.0
# Longer: what another gateway has begun in the first shard, it has then begun in all, or it has failed.
SETTLE_SECONDS = 1.5
# Of one CommitOffsets.
POSITION_COUNT_MAX = 1_024

Answer = TypeVar("Answer")
Then = Callable[[StoreError | None], object]

_log = structlog.get_logger("reput.gateway")


@dataclass(frozen=True, slots=True)
class Join:
    """A shard that does not know a group of which it got a poll.

    Attributes:
        broker_name: the shard.
        consumer_group, topic: of the poll.
        begins_at_end: where new groups begin, as the shard says.
        caller: for whom the group is made.
    """

    broker_name: str
    consumer_group: str
    topic: str
    begins_at_end: bool
    caller: str = ""


def ask_joined(
    shards: Shards[object],
    asked: Sequence[Shard[object]],
    consumer_group: str,
    deadline: Deadline,
    call: Callable[[Shard[object]], Answer],
) -> list[Answer | StoreError]:
    """What some shards answer to a call for a group, in order; each gets the group first when it does not know it."""
    answers = shards.fan_out.ask(asked, call)
    unknown = [at for at, answer in enumerate(answers) if isinstance(answer, GroupNotFoundError)]
    if not unknown:
        return answers
    settings = settings_elsewhere(shards, consumer_group, deadline)

    def call_again(shard: Shard[object]) -> Answer:
        keeper_of(shard).make(settings, deadline)
        return call(shard)

    again = shards.fan_out.ask([asked[at] for at in unknown], call_again)
    for at, answer in zip(unknown, again, strict=True):
        answers[at] = answer
    return answers


def settings_elsewhere(shards: Shards[object], consumer_group: str, deadline: Deadline) -> GroupSettings:
    """The settings that a group shall have in a shard that does not know it.

    A shard that does not answer is left out: consumers of the others go on, and the settings follow with heartbeats.
    """
    choice = GroupChoice(1, only=consumer_group)
    answers = shards.fan_out.ask(shards, lambda shard: keeper_of(shard).settings(choice, deadline))
    known = [each for page in answers if not isinstance(page, StoreError) for each in page.items]
    return settings_that_count([*known, GroupSettings(consumer_group)])


def join(shards: Shards[object], one: Join) -> bool:
    """Tell a shard what the others know; False: the group has begun elsewhere, and `begin_later` follows.

    Raises:
        StoreError: the shard, or one that may know where the group began, does not answer.
    """
    shard = shards.named(one.broker_name)
    asked = [each for each in shards if each.groups is not None]  # the others deliver nothing
    # Before the others are asked: what comes meanwhile is not skipped.
    ends: Sequence[Sequence[QueueRange] | StoreError] = []
    if one.begins_at_end:
        ends = _ask(shards, asked, lambda each, within: list_built_queues(each, one.topic, within))
    settings = settings_elsewhere(shards, one.consumer_group, Deadline.after(CALL_SECONDS))
    keeper_of(shard).make(settings, Deadline.after(CALL_SECONDS))
    if not one.begins_at_end:
        return True
    begun = _ask(shards, asked, lambda each, within: _has_begun(each, one, within))
    names = [each.broker_name for each in asked]
    if begun[names.index(one.broker_name)] is True:
        return True
    if True in begun:
        return False
    for name, answer in zip(names, begun, strict=True):
        if isinstance(answer, StoreError):
            raise ServiceUnavailableError(
                f"it is not known whether group {one.consumer_group[:64]} has begun in topic {one.topic[:64]}, because shard "
                f"{name} does not answer: the group begins when all shards answer. {answer.message}",
                service="consumer",
                brokerName=name,
            ) from answer
    ends_by_name = dict(zip(names, ends, strict=True))

    def begin(each: Shard[object], within: Deadline) -> None:
        queues = ends_by_name[each.broker_name]
        if isinstance(queues, StoreError):
            raise queues
        positions = [Position(one.topic, queue.queue_id, queue.max_offset) for queue in queues]
        if not positions and each.broker_name != one.broker_name:  # the topic comes later there, if it comes
            return
        keeper_of(each).make(settings, within)
        _begin(each, one.consumer_group, positions or [Position(one.topic, 0, 0)], within)

    for name, outcome in zip(names, _ask(shards, asked, begin), strict=True):
        if isinstance(outcome, StoreError) and name == one.broker_name:
            raise outcome
        if isinstance(outcome, StoreError):  # there it begins at the first message, when it is asked for
            _log.warning("group.not_begun", consumer_group=one.consumer_group, topic=one.topic, broker_name=name)
    return True


def begin_later(shards: Shards[object], one: Join) -> None:
    """Let the group begin at the first message of a shard, unless it has begun there meanwhile; StoreError as `join`."""
    shard = shards.named(one.broker_name)
    if _has_begun(shard, one, Deadline.after(CALL_SECONDS)):
        return
    within = Deadline.after(CALL_SECONDS)
    queues = list_built_queues(shard, one.topic, within)
    # A position in one queue says that it has begun; the others then begin at their first messages.
    at = [Position(one.topic, queue.queue_id, queue.min_offset) for queue in queues[:1]]
    _begin(shard, one.consumer_group, at or [Position(one.topic, 0, 0)], within)


class Joins:
    """Joins of polls, one after the other in a thread: those of one group must not meet.

    Args:
        shards: all shards, whoever asks.
        pause: waits for so many seconds.
    """

    def __init__(self, shards: ShardsSource[object], pause: Callable[[float], object] = time.sleep) -> None:
        self._shards = shards
        self._pause = pause
        self._lock = threading.Lock()
        self._waiting: dict[Join, list[Then]] = {}
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, "joins")

    def join(self, one: Join, then: Then) -> None:
        """Call `then` with None when the shard knows the group and where it begins, else with the error; once, later.

        Polls wait in the waiting room, which limits how many there are.
        """
        with self._lock:
            is_open = not self._is_closed
            if is_open:
                is_first = not self._waiting
                self._waiting.setdefault(one, []).append(then)
                if is_first:
                    self._thread.submit(self._run)
        if not is_open:
            then(ServiceUnavailableError("this gateway ends: ask another one", service="gateway"))

    def close(self) -> None:
        """Begin no more joins; one that is under way ends."""
        with self._lock:
            self._is_closed = True
        self._thread.shutdown(wait=False)

    def _run(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        later = {one: thens for one, thens in waiting.items() if not _told(one, thens, self._join)}
        if later:  # together, so that a shard with many new groups costs one pause
            self._pause(SETTLE_SECONDS)
        for one, thens in later.items():
            _told(one, thens, self._begin_later)

    def _join(self, one: Join) -> bool:
        return join(self._shards.now(), one)

    def _begin_later(self, one: Join) -> bool:
        begin_later(self._shards.now(), one)
        return True


def _told(one: Join, thens: Sequence[Then], step: Callable[[Join], bool]) -> bool:
    """Whether the step ended the join; then the polls are told."""

    def done() -> bool:
        note_in_context(client_of_name(one.caller))
        return step(one)

    error: StoreError | None = None
    try:
        if not copy_context().run(done):
            return False
    except StoreError as failure:
        error = failure
    except Exception as failure:  # a bug; the polls must not wait for ever
        _log.exception("group.join_failed")
        error = StoreError(f"the shard was not told of the group: {failure!r}")
    for then in thens:
        then(error)
    return True


def _ask(
    shards: Shards[object], asked: Sequence[Shard[object]], call: Callable[[Shard[object], Deadline], Answer]
) -> list[Answer | StoreError]:
    within = Deadline.after(CALL_SECONDS)
    return shards.fan_out.ask(asked, lambda shard: call(shard, within))


def _has_begun(shard: Shard[object], one: Join, within: Deadline) -> bool:
    try:
        return bool(keeper_of(shard).positions(one.consumer_group, one.topic, within))
    except GroupNotFoundError:
        return False


def _begin(shard: Shard[object], consumer_group: str, positions: Sequence[Position], within: Deadline) -> None:
    for at in range(0, len(positions), POSITION_COUNT_MAX):
        keeper_of(shard).commit(consumer_group, positions[at : at + POSITION_COUNT_MAX], within, begins=True)
