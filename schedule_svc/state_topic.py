"""The topic of the state: what its records are (`state/codec.py`)."""

from reput.schedule.v1 import state_pb2 as pb
from schedule_svc.state.codec import apply_change, apply_piece
from schedule_svc.state.schedule_state import ScheduleState
from services.following.state_topic.state_writer import FULL, FULL_BEGIN, FULL_END, StateTopic

FOLLOWER = "schedule"
STATE_TOPIC = "rmq_sys_REPUT_SCHEDULE_STATE"


def _apply(state: ScheduleState, kind: str, record: pb.StateRecord) -> int:
    if kind == FULL_BEGIN:
        state.begin_full()
    elif kind == FULL_END:
        state.end_full()
    elif kind == FULL:
        if state.draft is not None:
            apply_piece(state.draft, record.full)
    else:
        state.draft = None  # a full state that was not finished: nothing is written between the records of one
        for change in record.changes:
            apply_change(state, change)
    return len(record.changes)


TOPIC = StateTopic(
    STATE_TOPIC,
    FOLLOWER,
    ScheduleState,
    pb.StateRecord.FromString,
    lambda epoch, changes: pb.StateRecord(epoch=epoch, changes=changes).SerializeToString(),
    lambda epoch, piece: pb.StateRecord(epoch=epoch, full=piece).SerializeToString(),
    _apply,
)
