"""Changes and full states survive the way through their records."""

from hypothesis import given
from hypothesis import strategies as st

from consumer_svc.state.codec import PIECE_BYTES_MAX, apply_piece, change_from_proto, change_to_proto, pieces_of
from consumer_svc.state.group_states import Began, Change, GroupDeleted, GroupSet, GroupSettings, GroupStates
from consumer_svc.state.queue_state import (
    Delivered,
    Ended,
    HandedOut,
    Hidden,
    Lease,
    Moved,
    Postponed,
    QueueRef,
    Released,
    Returned,
)
from reput.consumer.v1.state_pb2 import Change as ChangeProto
from reput.consumer.v1.state_pb2 import StateRecord

NAMES = st.text("abc%_é", min_size=1, max_size=5)
NUMBERS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 20)
MILLIS = st.integers(0, 2**62)
REFS = st.builds(QueueRef, st.sampled_from(("g", "h")), st.sampled_from(("t", "u")), st.integers(0, 2))
LEASES = st.builds(
    Lease, OFFSETS, NUMBERS, NUMBERS, MILLIS, MILLIS, NAMES, NAMES, NAMES, st.booleans(), NUMBERS, st.booleans()
)
WAITING = st.builds(Postponed, OFFSETS, NUMBERS, NUMBERS, NAMES, MILLIS)
SETTINGS = st.builds(GroupSettings, st.sampled_from(("g", "h")), st.booleans(), NUMBERS, st.booleans(), st.booleans())
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(HandedOut, REFS, OFFSETS, st.lists(LEASES, max_size=3), st.lists(WAITING, max_size=3)),
    st.builds(Delivered, REFS, st.lists(OFFSETS, max_size=3).map(tuple)),
    st.builds(Ended, REFS, st.lists(OFFSETS, max_size=3).map(tuple), st.booleans()),
    st.builds(Hidden, REFS, OFFSETS, MILLIS, st.booleans()),
    st.builds(Released, REFS, st.lists(OFFSETS, max_size=3).map(tuple)),
    st.builds(Returned, REFS, st.lists(WAITING, max_size=3)),
    st.builds(Moved, REFS, OFFSETS, st.booleans()),
    st.builds(Began, NAMES, NAMES, st.lists(st.integers(-1, 20), max_size=3).map(tuple)),
    st.builds(GroupSet, SETTINGS),
    st.builds(GroupDeleted, st.sampled_from(("g", "h"))),
)


def durable(states: GroupStates) -> object:
    """Everything that a restart must have."""
    return {
        name: (
            group.settings,
            {
                ref: (queue.next_offset, queue.leases, queue.waiting, queue.resets, list(queue.moved))
                for ref, queue in group.queues()
            },
        )
        for name, group in states.groups.items()
    }


@given(CHANGES)
def test_a_change_is_the_same_behind_its_record(change: Change) -> None:
    data = StateRecord(changes=[change_to_proto(change)]).SerializeToString()
    assert change_from_proto(StateRecord.FromString(data).changes[0]) == change


def test_a_change_of_a_later_version_is_passed_over() -> None:
    assert change_from_proto(ChangeProto()) is None


@given(st.lists(CHANGES, max_size=30))
def test_a_full_state_says_what_its_changes_said(changes: list[Change]) -> None:
    states, again = GroupStates(), GroupStates()
    for change in changes:
        states.apply(change)
    for piece in pieces_of(states):
        apply_piece(again, StateRecord.FromString(StateRecord(groups=piece).SerializeToString()).groups)
    assert durable(again) == durable(states)


@given(st.lists(CHANGES, max_size=20), st.integers(0, 3))
def test_a_full_state_that_was_not_finished_changes_nothing(changes: list[Change], piece_count: int) -> None:
    states = GroupStates()
    for change in changes:
        states.apply(change)
    before = repr(durable(states))
    for piece in list(pieces_of(states))[:piece_count]:
        apply_piece(states, StateRecord.FromString(StateRecord(groups=piece).SerializeToString()).groups)
    assert repr(durable(states)) == before


def test_a_queue_with_very_much_in_flight_is_written_in_pieces_that_fit() -> None:
    states = GroupStates()
    ref = QueueRef("g" * 200, "t" * 100, 0)
    leases = [Lease(at, 1, 0, 10**13, 10**13, "c" * 100, "a" * 100, "k" * 64) for at in range(100_000)]
    states.apply(HandedOut(ref, 200_000, leases, [Postponed(at, 1, 0, "k" * 64) for at in range(100_000, 130_000)]))
    pieces = [StateRecord(groups=piece).SerializeToString() for piece in pieces_of(states)]
    assert max(map(len, pieces)) < 2 * PIECE_BYTES_MAX
    again = GroupStates()
    for data in pieces:
        apply_piece(again, StateRecord.FromString(data).groups)
    assert durable(again) == durable(states)
