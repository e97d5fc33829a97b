"""Changes and full states survive the way through their records."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_svc.state.codec import (
    PIECE_BYTES_MAX,
    apply_floors,
    apply_piece,
    change_from_proto,
    change_to_proto,
    floors_of,
    light_pieces,
    pieces_of,
)
from consumer_svc.state.group_states import (
    Began,
    Change,
    GroupDeleted,
    GroupSet,
    GroupSettings,
    GroupStates,
    LiteExpired,
)
from consumer_svc.state.lite_subscriptions import LiteSubscribed
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
from store.format.delivery.consumer_files import LiteConfig
from store.format.topic import lite_queue_name

NAMES = st.text("abc%_é", min_size=1, max_size=5)
NUMBERS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 20)
MILLIS = st.integers(0, 2**62)
LITE = st.sampled_from([lite_queue_name("p", name) for name in ("a", "b")])
LITES = st.lists(LITE, max_size=2, unique=True).map(tuple)
REFS = st.one_of(
    st.builds(QueueRef, st.sampled_from(("g", "h")), st.sampled_from(("t", "u")), st.integers(0, 2)),
    st.builds(QueueRef, st.sampled_from(("g", "h")), LITE, st.just(0)),
)
LEASES = st.builds(
    Lease, OFFSETS, NUMBERS, NUMBERS, MILLIS, MILLIS, NAMES, NAMES, NAMES, st.booleans(), NUMBERS, st.booleans()
)
WAITING = st.builds(Postponed, OFFSETS, NUMBERS, NUMBERS, NAMES, MILLIS)
LITE_CONFIGS = st.builds(LiteConfig, st.just("p"), *[st.booleans()] * 2, *[NUMBERS] * 2, *[st.booleans()] * 2)
SETTINGS = st.builds(
    GroupSettings,
    *(st.sampled_from(("g", "h")), st.booleans(), NUMBERS, st.booleans(), st.booleans()),
    lite=st.none() | LITE_CONFIGS,
)
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
    st.builds(
        LiteSubscribed,
        *(st.sampled_from(("g", "h")), st.just("p"), st.sampled_from(("c", "d")), LITES, LITES),
        *(st.booleans(), st.booleans(), st.booleans()),
    ),
    st.builds(LiteExpired, st.just("p"), LITES, st.lists(OFFSETS, min_size=2, max_size=2).map(tuple), OFFSETS).map(
        lambda one: replace(one, queue_offsets=one.queue_offsets[: len(one.queues)])
    ),
)


def durable(states: GroupStates) -> object:
    """Everything that a restart must have."""
    groups = {
        name: (
            group.settings,
            sorted(group.light.items()),
            sorted((each, sorted(client.queues), client.is_wildcard) for each, client in group.lite.clients.items()),
            sorted((queue, sorted(group.lite.subscribers(queue))) for queue in group.lite.queues()),
            {
                ref: (queue.next_offset, queue.leases, queue.waiting, queue.resets, list(queue.moved))
                for ref, queue in group.queues()
            },
        )
        for name, group in sorted(states.groups.items())
    }
    return groups, sorted((topic, sorted(names)) for topic, names in states.bound.items()), states.lite_floors


def read_back(states: GroupStates, again: GroupStates, piece_count: int | None = None) -> None:
    """Put the full state of one into another, by way of its records."""
    pieces: list[StateRecord] = [StateRecord(groups=piece) for piece in pieces_of(states)]
    pieces += [StateRecord(lite_expired=piece) for piece in floors_of(states)]
    pieces += [StateRecord(groups=piece) for piece in light_pieces(states)]
    for piece in pieces[:piece_count]:
        record = StateRecord.FromString(piece.SerializeToString())
        apply_piece(again, record.groups)
        apply_floors(again, record.lite_expired)


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
    read_back(states, again)
    assert durable(again) == durable(states)


@given(st.lists(CHANGES, max_size=20), st.integers(0, 3))
def test_a_full_state_that_was_not_finished_changes_nothing(changes: list[Change], piece_count: int) -> None:
    states = GroupStates()
    for change in changes:
        states.apply(change)
    before = repr(durable(states))
    read_back(states, states, piece_count)
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


def test_very_many_positions_and_subscriptions_are_written_in_pieces_that_fit() -> None:
    states = GroupStates()
    states.apply(GroupSet(GroupSettings("g", lite=LiteConfig("p"))))
    queues = [lite_queue_name("p", f"{number:064}") for number in range(30_000)]
    for queue in queues:
        states.apply(Moved(QueueRef("g", queue, 0), 7))
    states.apply(Moved(QueueRef("g", queues[0], 0), 9, is_reset=True))
    states.apply(LiteSubscribed("g", "p", "c", queues))
    states.apply(LiteExpired("p", queues[:10_000], range(10_000), 100))
    pieces = [StateRecord(groups=piece) for piece in (*pieces_of(states), *light_pieces(states))]
    assert max(piece.ByteSize() for piece in pieces) < 2 * PIECE_BYTES_MAX
    again = GroupStates()
    read_back(states, again)
    assert durable(again) == durable(states)
    assert len(again.groups["g"].light) == 20_000


def test_a_full_state_that_breaks_off_among_subscriptions_takes_none_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer_svc.state.codec.PIECE_BYTES_MAX", 1)
    monkeypatch.setattr("consumer_svc.state.codec.LIGHT_COUNT_MAX", 2)
    states = GroupStates()
    states.apply(GroupSet(GroupSettings("g", lite=LiteConfig("p"))))
    queues = [lite_queue_name("p", f"{number}") for number in range(5)]
    states.apply(LiteSubscribed("g", "p", "c", queues))
    states.apply(LiteSubscribed("g", "p", "d", queues[:1]))
    states.apply(LiteSubscribed("g", "p", "e"))
    before = durable(states)
    pieces = list(light_pieces(states))
    assert len(pieces) > 5
    for piece in pieces:
        apply_piece(states, piece)
        assert durable(states) == before


def test_subscriptions_of_a_full_state_are_those_of_the_moment_and_made_into_pieces_later() -> None:
    states, again = GroupStates(), GroupStates()
    states.apply(GroupSet(GroupSettings("g", lite=LiteConfig("p"))))
    states.apply(LiteSubscribed("g", "p", "c", [lite_queue_name("p", "a")]))
    before, pieces = durable(states), light_pieces(states)
    states.apply(LiteSubscribed("g", "p", "c", is_ended=True))
    for piece in pieces:
        apply_piece(again, piece)
    assert durable(again) == before


def test_a_position_in_a_light_queue_is_a_number_while_nothing_is_in_flight() -> None:
    states, ref = GroupStates(), QueueRef("g", lite_queue_name("p", "a"), 0)
    states.apply(HandedOut(ref, 3, [Lease(at, 1, 0, 10**13) for at in range(3)]))
    assert states.groups["g"].light == {}
    states.apply(Ended(ref, (0, 1, 2)))
    assert (states.groups["g"].light, states.groups["g"].topics) == ({ref.topic: 3}, {})
    found = states.find(ref)
    assert found is not None
    assert (found.next_offset, found.consumer_offset) == (3, 3)
    states.apply(HandedOut(ref, 4, [Lease(3, 1, 0, 10**13)]))
    found = states.find(ref)
    assert found is not None
    assert (found.next_offset, found.consumer_offset, states.groups["g"].light) == (4, 3, {})


def test_a_full_state_has_the_positions_of_when_it_was_asked_for() -> None:
    """The pieces are made while the state changes."""
    states = GroupStates()
    refs = [QueueRef("g", lite_queue_name("p", f"{number}"), 0) for number in range(3)]
    for ref in refs:
        states.apply(Moved(ref, 7))
    pieces = light_pieces(states)
    states.apply(Moved(refs[0], 8))
    states.apply(HandedOut(refs[1], 9, [Lease(7, 1, 0, 10**13)]))
    states.apply(GroupDeleted("g"))
    again = GroupStates()
    for piece in pieces:
        apply_piece(again, piece)
    assert again.groups["g"].light == {ref.topic: 7 for ref in refs}
