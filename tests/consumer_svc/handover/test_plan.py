"""The number in the file and the checkpoints together say exactly what is open."""

import random

from consumer_svc.handover.plan import check_points, plan_of
from consumer_svc.state.group_states import GroupSet, GroupSettings, GroupStates
from consumer_svc.state.queue_state import Ended, HandedOut, Lease, QueueRef, Released, Returned, Waiting
from store.format.delivery.pop_records import CHECK_POINT_COUNT_MAX, CHECK_POINT_TAG, decode_check_point
from store.format.properties import TAGS

REF = QueueRef("g", "t", 2)
NOW = 1_700_000_000_000


def states_with(next_offset: int, leased: list[int], waiting: list[int], *, ordered: bool = False) -> GroupStates:
    states = GroupStates()
    states.apply(GroupSet(GroupSettings("g", ordered=ordered)))
    every = sorted([*leased, *waiting])
    states.apply(HandedOut(REF, next_offset, [Lease(at, 1, 0, NOW) for at in every]))
    states.apply(Returned(REF, [Waiting(at, 1, 1) for at in waiting]))
    return states


def come_again(states: GroupStates, end: int) -> list[int]:
    """What a broker delivers: what its checkpoints name, and what lies behind the number of the file."""
    plan = plan_of(states)
    offset = plan.offsets["g", "t"][2]
    points = [decode_check_point(record.body) for record in check_points(plan, "rmq_sys_REVIVE_LOG_c", "b", NOW)]
    named = [at for point in points if point is not None for at in point.queue_offsets]
    return sorted([*named, *range(offset, end)])


def test_a_broker_delivers_what_is_open_and_nothing_else() -> None:
    for seed in range(200):
        chosen = random.Random(seed)
        next_offset = chosen.randrange(0, 200)
        opened = chosen.sample(range(next_offset), chosen.randrange(0, next_offset + 1))
        cut = chosen.randrange(0, len(opened) + 1)
        states = states_with(next_offset, opened[:cut], opened[cut:])
        assert come_again(states, 210) == [*sorted(opened), *range(next_offset, 210)], seed


def test_messages_that_the_number_brings_again_need_no_checkpoint() -> None:
    plan = plan_of(states_with(10, [8, 9], [7]))
    assert (plan.offsets["g", "t"], plan.open) == ({2: 7}, {})


def test_an_ordered_group_goes_on_at_its_first_open_message() -> None:
    plan = plan_of(states_with(10, [3], [5], ordered=True))
    assert (plan.offsets["g", "t"], plan.open) == ({2: 3}, {})


def test_a_checkpoint_is_over_when_it_is_written_and_has_no_more_than_its_bits() -> None:
    states = states_with(101, list(range(0, 100, 2)), [])
    states.apply(Ended(REF, [0]))
    records = check_points(plan_of(states), "rmq_sys_REVIVE_LOG_c", "b", NOW)
    points = [decode_check_point(record.body) for record in records]
    assert [len(point.queue_offsets) for point in points if point is not None] == [CHECK_POINT_COUNT_MAX, 17]
    for record, point in zip(records, points, strict=True):
        assert point is not None
        assert point.pop_millis + point.invisible_millis == NOW
        assert record.properties[TAGS] == CHECK_POINT_TAG
        # PopReviveService compares it with the end of the invisible time; without it nothing is delivered again.
        assert int(record.properties["TIMER_DELIVER_MS"]) == NOW - 1_000


def test_a_broker_counted_deliveries_that_no_program_got() -> None:
    states = states_with(10, [0, 2, 4], [3])
    states.apply(Released(REF, [2]))
    states.apply(HandedOut(REF, 10, [Lease(6, 2, 1, NOW)]))  # given back once, and with a program now
    records = check_points(plan_of(states), "rmq_sys_REVIVE_LOG_c", "b", NOW)
    points = [decode_check_point(record.body) for record in records]
    named = {(at, point.is_suspended) for point in points if point is not None for at in point.queue_offsets}
    assert named == {(0, False), (2, True), (3, True), (4, False), (6, False)}
    assert len({point.key for point in points if point is not None}) == len(points), "a broker tells them by these"
