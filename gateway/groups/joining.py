"""A group and a shard that does not know it, because it joined later, was away, or was restored empty.

Each shard keeps the settings of a group and its positions there. Calls that would make the group in a shard, and pops where it
has not begun, ask the shard with `known_only`. A shard that does not know the group answers GroupNotFoundError, once; then the
gateway tells it what the other shards know, and asks again:

    settings      those of the first shard in which somebody has set some (ADR 0115); the shard keeps its own if it has such
    a beginning   only where new groups begin at the end of a topic, for pops and send-backs (ADR 0104):
                  the group has a position in the topic in another shard    the first message: this shard came later
                  else it begins now, in all shards                         the end of each queue, as it was before the others
                                                                            were asked

So a message that was sent after the group began anywhere is never skipped, whatever happens meanwhile. A shard that does not
answer may know that the group has begun, or its settings: then nothing begins, and the poll is refused. Settings are waited for
so only until the shard has been away for LASTING_SECONDS; then the group gets defaults, and heartbeats bring the settings.

Two gateways may begin a group at once: each finds no position and sets ends, and the first ones stay. One may see another's
positions in a part of the shards, though. So a shard is believed to have come later only when it still has no position after
SETTLE_SECONDS, in which a beginning that was under way has ended. A send-back does not wait for that: its queue begins at the
first message in any case, and ends that another gateway sets meanwhile stay.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from gateway.groups.asking import ask_groups
from gateway.ports.deadline import Deadline
from gateway.ports.groups import (
    COMMIT_OFFSETS,
    GET_OFFSETS,
    LIST_GROUPS,
    MAKE_GROUP,
    default_settings,
    settings_that_count,
)
from gateway.ports.shard import Shard
from gateway.ports.shards import Shards, list_built_queues
from reput.consumequeue.v1.consumequeue_service_pb2 import Queue
from reput.consumer.v1 import consumer_service_pb2 as pb
from store.errors import GroupNotFoundError, ServiceUnavailableError, StoreError

# Of the calls of a join to all shards at once.
CALL_SECONDS = 1.0
# A call that fails after so long was not answered; one that is refused fails at once.
LATE_SECONDS = CALL_SECONDS / 2
# So long joins do not wait for a service that did not answer. Short: it may only have been slow.
SILENT_SECONDS = 3.0
# A shard that has been away for so long keeps no group from being made with default settings. Above SILENT_SECONDS and
# CALL_SECONDS: it was asked twice.
LASTING_SECONDS = 5.0
# Failures with more time between them are two: there was no question in between.
GAP_SECONDS = 30.0
# The services of a shard.
CONSUMERS, QUEUES = "consumer", "consumequeue"
# Longer than CALL_SECONDS: what another gateway has begun in the first shard, it has then begun in all, or it has failed.
SETTLE_SECONDS = 1.5
# A group begins in more queues by a `Beginning`, which a consumer service of an older release does not know. So many positions
# of one CommitOffsets are in the log together.
TOGETHER_COUNT_MAX = 1_000

Answer = TypeVar("Answer")

_log = structlog.get_logger("reput.gateway")


@dataclass(frozen=True, slots=True)
class Join:
    """A shard that does not know a group of which it got a poll, or a message back.

    Attributes:
        broker_name: the shard.
        consumer_group, topic: of the call.
        begins_at_end: where new groups begin, as the shard says.
        caller: for whom the group is made.
        sent_back_queue_id: the queue of a message that is sent back: it begins at its first message; None: a poll.
    """

    broker_name: str
    consumer_group: str
    topic: str
    begins_at_end: bool
    caller: str = ""
    sent_back_queue_id: int | None = None


class Silence:
    """Services of shards that did not answer a join in time; thread-safe.

    Joins do not wait for them again within SILENT_SECONDS.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By shard and service.
        self._until: dict[tuple[str, str], float] = {}
        self._failed: dict[tuple[str, str], tuple[float, float]] = {}  # the first and the newest time since it answered

    def ask(
        self,
        shards: Shards,
        asked: Sequence[Shard],
        service: str,
        call: Callable[[Shard, Deadline], Answer],
    ) -> list[Answer | StoreError]:
        """What a service of each shard answers within CALL_SECONDS, in order."""
        within = Deadline.after(CALL_SECONDS)

        def ask_one(shard: Shard) -> Answer:
            key = shard.broker_name, service
            begin = self._clock()
            if begin < self._until.get(key, -math.inf):
                raise ServiceUnavailableError(
                    f"shard {shard.broker_name} did not answer in time just now",
                    service=service,
                    brokerName=shard.broker_name,
                )
            try:
                answer = call(shard, within)
            except StoreError:
                self._note_failure(key, begin)
                raise
            self._failed.pop(key, None)
            return answer

        return shards.fan_out.ask(asked, ask_one)

    def ask_one(
        self,
        shards: Shards,
        shard: Shard,
        service: str,
        call: Callable[[Shard, Deadline], Answer],
    ) -> Answer:
        """What a service of one shard answers; its error is raised."""
        (answer,) = self.ask(shards, [shard], service, call)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def lasts(self, broker_name: str, service: str) -> bool:
        """Whether the service has answered nothing for LASTING_SECONDS."""
        now = self._clock()
        return now - self._failed.get((broker_name, service), (now, now))[0] >= LASTING_SECONDS

    def _note_failure(self, key: tuple[str, str], begin: float) -> None:
        now = self._clock()
        if now - begin >= LATE_SECONDS:
            self._until[key] = now + SILENT_SECONDS
        first, newest = self._failed.get(key, (now, now))
        self._failed[key] = (now if begin - newest >= GAP_SECONDS else first), now


def ask_joined(
    shards: Shards,
    asked: Sequence[Shard],
    consumer_group: str,
    deadline: Deadline,
    call: Callable[[Shard], Answer],
) -> list[Answer | StoreError]:
    """What some shards answer to a call for a group, in order; each gets the group first when it does not know it."""
    answers = shards.fan_out.ask(asked, call)
    unknown = [at for at, answer in enumerate(answers) if isinstance(answer, GroupNotFoundError)]
    if not unknown:
        return answers
    settings = settings_elsewhere(shards, consumer_group)

    def call_again(shard: Shard) -> Answer:
        _make(shard, settings, deadline)
        return call(shard)

    again = shards.fan_out.ask([asked[at] for at in unknown], call_again)
    for at, answer in zip(unknown, again, strict=True):
        answers[at] = answer
    return answers


def settings_elsewhere(shards: Shards, consumer_group: str, silence: Silence | None = None) -> pb.GroupSettings:
    """The settings that a group shall have in a shard that does not know it.

    A shard that does not answer within CALL_SECONDS is left out: consumers of the others go on, and the settings follow with
    heartbeats. With `silence`, which knows how long it has been away, that is so only after LASTING_SECONDS, or where another
    shard has settings that somebody has set.

    Raises:
        ServiceUnavailableError: a shard that may know the settings does not answer.
    """
    only = pb.ListGroupsRequest(consumer_group=consumer_group, page_size=1)
    asked = _delivering(shards)
    answers = (silence or Silence()).ask(
        shards, asked, CONSUMERS, lambda shard, within: ask_groups(shard, LIST_GROUPS, only, within)
    )
    known = [each for page in answers if not isinstance(page, StoreError) for each in page.groups]
    settings = settings_that_count([*known, default_settings(consumer_group)])
    if settings.is_set or silence is None:
        return settings
    for shard, answer in zip(asked, answers, strict=True):
        if isinstance(answer, StoreError) and not silence.lasts(shard.broker_name, CONSUMERS):
            raise _not_known(f"which settings group {consumer_group[:64]} has", shard.broker_name, CONSUMERS, answer)
    return settings


def join(shards: Shards, one: Join, silence: Silence | None = None) -> bool:
    """Tell a shard what the others know; False: the group has begun elsewhere, and `begin_later` follows.

    Raises:
        StoreError: the shard, or one that may know where the group began, does not answer.
    """
    asking = silence or Silence()
    shard = shards.named(one.broker_name)
    asked = _delivering(shards)
    # Before the others are asked: what comes meanwhile is not skipped.
    ends: Sequence[Sequence[Queue] | StoreError] = []
    if one.begins_at_end:
        ends = asking.ask(shards, asked, QUEUES, lambda each, within: list_built_queues(each, one.topic, within))
    settings = settings_elsewhere(shards, one.consumer_group, silence)
    asking.ask_one(shards, shard, CONSUMERS, lambda each, within: _make(each, settings, within))
    if not one.begins_at_end:
        return True
    begun = asking.ask(shards, asked, CONSUMERS, lambda each, within: _has_begun(each, one, within))
    names = [each.broker_name for each in asked]
    if begun[names.index(one.broker_name)] is True:
        return True
    if True in begun:
        if one.sent_back_queue_id is None:
            return False
        begin_later(shards, one, silence)
        return True
    ends_by_name: dict[str, Sequence[Queue]] = {}
    for name, answer, queues in zip(names, begun, ends, strict=True):
        if isinstance(answer, StoreError):
            raise _not_known(
                f"whether group {one.consumer_group[:64]} has begun in topic {one.topic[:64]}", name, CONSUMERS, answer
            )
        if isinstance(queues, StoreError):
            raise _not_known(f"where the queues of topic {one.topic[:64]} end", name, QUEUES, queues)
        ends_by_name[name] = queues

    def begin(each: Shard) -> None:
        within = Deadline.after(CALL_SECONDS)
        queues = ends_by_name[each.broker_name]
        from_first = one.sent_back_queue_id if each.broker_name == one.broker_name else None
        positions = {
            queue.queue_id: queue.min_offset if queue.queue_id == from_first else queue.max_offset for queue in queues
        }
        if not positions and each.broker_name != one.broker_name:  # the topic comes later there, if it comes
            return
        _make(each, settings, within)
        begin_in(each, one.consumer_group, one.topic, positions or {0: 0}, within)

    # All are asked, also one that was slow for another group: what is not begun now comes from its first message.
    for name, outcome in zip(names, shards.fan_out.ask(asked, begin), strict=True):
        if isinstance(outcome, StoreError) and name == one.broker_name:
            raise outcome
        if isinstance(outcome, StoreError):  # there it begins at the first message, when it is asked for
            _log.warning("group.not_begun", consumer_group=one.consumer_group, topic=one.topic, broker_name=name)
    return True


def begin_later(shards: Shards, one: Join, silence: Silence | None = None) -> None:
    """Let the group begin at the first message of a shard, unless it has begun there meanwhile; StoreError as `join`."""
    silence = silence or Silence()
    shard = shards.named(one.broker_name)
    if silence.ask_one(shards, shard, CONSUMERS, lambda each, within: _has_begun(each, one, within)):
        return

    def begin(each: Shard) -> None:
        within = Deadline.after(CALL_SECONDS)
        queues = list_built_queues(each, one.topic, within)
        # A position in one queue says that it has begun; the others then begin at their first messages.
        first = [queue for queue in queues if queue.queue_id == one.sent_back_queue_id] or queues[:1]
        at = {queue.queue_id: queue.min_offset for queue in first}
        begin_in(each, one.consumer_group, one.topic, at or {0: 0}, within)

    for outcome in shards.fan_out.ask([shard], begin):
        if isinstance(outcome, StoreError):
            raise outcome


def _delivering(shards: Shards) -> list[Shard]:
    """Those with a consumer service: the others know no group."""
    return [each for each in shards if each.has(LIST_GROUPS)]


def _not_known(what: str, broker_name: str, service: str, error: StoreError) -> ServiceUnavailableError:
    refusal = ServiceUnavailableError(
        f"it is not known {what}, because shard {broker_name} does not answer: ask again. {error.message}",
        service=service,
        brokerName=broker_name,
    )
    refusal.__cause__ = error
    return refusal


def _has_begun(shard: Shard, one: Join, within: Deadline) -> bool:
    try:
        request = pb.GetOffsetsRequest(consumer_group=one.consumer_group, topic=one.topic)
        return bool(ask_groups(shard, GET_OFFSETS, request, within).offsets)
    except GroupNotFoundError:
        return False


def _make(shard: Shard, settings: pb.GroupSettings, within: Deadline) -> None:
    ask_groups(shard, MAKE_GROUP, pb.UpdateGroupRequest(settings=settings, if_unset=True), within)


def begin_in(shard: Shard, consumer_group: str, topic: str, positions: Mapping[int, int], within: Deadline) -> None:
    """Let a group that the shard knows begin in a topic there, in all queues or in none; positions that it has are kept.

    Args:
        positions: the next message to consume, by queue.
    """
    request = pb.CommitOffsetsRequest(consumer_group=consumer_group, begins=True, known_only=True)
    if len(positions) <= TOGETHER_COUNT_MAX:
        for queue_id, queue_offset in positions.items():
            request.offsets.add(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
    else:
        offsets = [positions.get(queue_id, -1) for queue_id in range(max(positions) + 1)]
        request.beginning.MergeFrom(pb.Beginning(topic=topic, queue_offsets=offsets))
    ask_groups(shard, COMMIT_OFFSETS, request, within)
