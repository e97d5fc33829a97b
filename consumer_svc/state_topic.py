"""The topic of the groups' state: what its records are (`state/codec.py`), its writer and its reader."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain

from consumer_svc.state.codec import (
    apply_floors,
    apply_piece,
    change_from_proto,
    change_to_proto,
    floors_of,
    light_pieces,
    pieces_of,
)
from consumer_svc.state.group_states import Change, GroupStates
from reput.commitlog.v1.commitlog_service_pb2 import InternalRecord
from reput.consumer.v1 import state_pb2
from services.following.state_topic import state_log, state_writer
from services.following.state_topic.state_writer import FULL, FULL_END, REQUEST_BYTES_MAX, Append, StateTopic
from store.errors import StoreError

FOLLOWER = "consumer"
STATE_TOPIC = "rmq_sys_REPUT_CONSUMER_STATE"
# Changes after which the full state is written again: a start reads at most so many.
FULL_CHANGE_COUNT = 50_000
# Raised with each kind of state that releases before know nothing of, so that they cannot make this one forget it.
STATE_LEVEL = 1

LoadedState = state_log.LoadedState[GroupStates]


def _apply(states: GroupStates, kind: str, record: state_pb2.StateRecord) -> int:
    if kind == FULL:
        apply_piece(states, record.groups)
        apply_floors(states, record.lite_expired)
        return 0
    states.from_later_count += kind == FULL_END and record.level > STATE_LEVEL
    for change in map(change_from_proto, record.changes):
        if change is not None:
            states.apply(change)
        else:
            states.from_later_count += 1
    return len(record.changes)


def _piece_body(epoch: int, piece: Sequence[state_pb2.GroupState | state_pb2.LiteExpired] | None) -> bytes:
    groups = [one for one in piece or () if isinstance(one, state_pb2.GroupState)]
    floors = [one for one in piece or () if isinstance(one, state_pb2.LiteExpired)]
    return state_pb2.StateRecord(epoch=epoch, groups=groups, lite_expired=floors, level=STATE_LEVEL).SerializeToString()


TOPIC = StateTopic(
    STATE_TOPIC,
    FOLLOWER,
    GroupStates,
    state_pb2.StateRecord.FromString,
    lambda epoch, changes: state_pb2.StateRecord(epoch=epoch, changes=changes, level=STATE_LEVEL).SerializeToString(),
    _piece_body,
    _apply,
    lambda record: record.level,
    STATE_LEVEL,
)


load_state = partial(state_log.load_state, TOPIC)


class StateWriter(state_writer.StateWriter):
    """A StateWriter for changes of groups; see there."""

    def __init__(
        self,
        append: Append,
        epoch: int,
        on_broken: Callable[[StoreError], None] = lambda _error: None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
    ) -> None:
        super().__init__(TOPIC, append, epoch, on_broken, request_bytes_max)

    def submit_changes(
        self, changes: Sequence[Change], records: Sequence[InternalRecord] = (), *, may_lose: bool = False
    ) -> "Future[int]":
        """Have changes written. They are made into bytes' form now: leases change in memory while they wait here."""
        return self.submit([change_to_proto(change) for change in changes], records, may_lose=may_lose)

    def submit_states(self, states: GroupStates) -> "Future[int]":
        """Have the full state written, as it is now; the caller holds the state's lock."""
        return self.submit_full(chain(list(pieces_of(states)), list(floors_of(states)), light_pieces(states)))
