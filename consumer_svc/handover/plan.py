"""Plan: what RocketMQ's files and its revive topic must say so that a broker goes on where the groups are; pure.

                 offset in the file        next_offset
        open  done  open  done │ open  open │ never handed out
    ──────┼─────┼─────┼─────┼──┼─────┼──────┼──────────────────
        checkpoint  checkpoint    come again by the offset

`consumerOffset.json` has one number for a queue. With the lowest position that is not consumed, everything acknowledged behind
it would come again. So the number is the lowest position behind which nothing is consumed, and what is open before it becomes a
checkpoint, as if the broker itself had handed it out and its time was over: it comes again by the group's retry topic. What no
program got has `sp` there: since 5.5 a broker does not count such a delivery.

An ordered group has no checkpoints in RocketMQ: its number is the lowest position that is not consumed.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from consumer_svc.state.group_states import GroupStates
from consumer_svc.state.queue_state import Lease, QueueRef, QueueState, Waiting
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from store.format.delivery.pop_records import (
    CHECK_POINT_COUNT_MAX,
    CHECK_POINT_TAG,
    DELIVERED_BEFORE_MILLIS,
    TIMER_DELIVER_MS,
    CheckPoint,
    encode_check_point,
)
from store.format.properties import TAGS

REVIVE_QUEUE = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """See the top of this file.

    Attributes:
        offsets: for the file, by group and topic, then by queue.
        open: positions that need a checkpoint, by queue.
        unattempted: those of them that no program got, by queue; other queues are left out.
    """

    offsets: dict[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    open: dict[QueueRef, Sequence[int]] = field(default_factory=dict)
    unattempted: dict[QueueRef, frozenset[int]] = field(default_factory=dict)


def plan_of(states: GroupStates) -> Plan:
    """The plan for the state as it is now."""
    plan = Plan()
    for name, group in states.groups.items():
        for topic, queues in group.topics.items():
            offsets: dict[int, int] = {}
            for queue_id, queue in queues.items():
                offset = queue.consumer_offset if group.settings.ordered else _offset(queue)
                offsets[queue_id] = offset
                behind = sorted(at for at in itertools.chain(queue.leases, queue.waiting) if at < offset)
                if behind:
                    ref = QueueRef(name, topic, queue_id)
                    plan.open[ref] = behind
                    known: dict[int, Lease | Waiting] = {**queue.leases, **queue.waiting}
                    unattempted = frozenset(at for at in behind if not known[at].attempt_count)
                    if unattempted:
                        plan.unattempted[ref] = unattempted
            plan.offsets[name, topic] = offsets
    return plan


def check_points(plan: Plan, revive_topic: str, broker_name: str, now_millis: int) -> list[InternalRecord]:
    """The records of a plan for a revive topic, whose time is over now (ms since 1970).

    Times in the future would not do: a broker looks at the records of a revive topic in their order and waits for the first.
    """
    records: list[InternalRecord] = []
    for ref, is_suspended, some in _parts(plan):
        popped = now_millis - DELIVERED_BEFORE_MILLIS
        point = CheckPoint(
            ref.consumer_group,
            ref.topic,
            ref.queue_id,
            some[0],
            popped,
            DELIVERED_BEFORE_MILLIS,
            some,
            is_suspended=is_suspended,
        )
        records.append(
            InternalRecord(
                topic=revive_topic,
                queue_id=REVIVE_QUEUE,
                body=encode_check_point(point, broker_name),
                properties={TAGS: CHECK_POINT_TAG, TIMER_DELIVER_MS: str(popped)},
            )
        )
    return records


def _parts(plan: Plan) -> Iterator[tuple[QueueRef, bool, Sequence[int]]]:
    """What each checkpoint names, and whether these messages were not attempted."""
    for ref, offsets in plan.open.items():
        unattempted = plan.unattempted.get(ref, frozenset())
        for is_suspended in (False, True):
            chosen = [at for at in offsets if (at in unattempted) is is_suspended]
            for begin in range(0, len(chosen), CHECK_POINT_COUNT_MAX):
                yield ref, is_suspended, chosen[begin : begin + CHECK_POINT_COUNT_MAX]


def _offset(queue: QueueState) -> int:
    """The lowest position behind which nothing is consumed."""
    offset = queue.next_offset
    while offset - 1 in queue.leases or offset - 1 in queue.waiting:
        offset -= 1
    return offset
