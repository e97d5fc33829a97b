"""BrokerMarks: what the files of a broker say that it has done of the messages that wait."""

from collections.abc import Mapping
from dataclasses import dataclass

from schedule_svc.state.schedule_state import Passed, ScheduleState
from services.calling.commitlog import CommitLogClient
from store.format.config_json import is_own
from store.format.delivery.consumer_files import decode_offsets, joined_offsets
from store.format.delivery.delay_offset_file import TRANSACTION_GROUP, TransactionOffsets, decode_delay_offsets
from store.format.delivery.timer_files import TimerCheckpoint, decode_timer_checkpoint, is_own_timer_checkpoint
from store.format.topic import HALF_TOPIC, OP_HALF_TOPIC

DELAY_OFFSETS, TIMER_CHECK = "delayOffset.json", "timercheck"
CONSUMER_OFFSETS = ("consumerOffset.json", "lmqConsumerOffset.json")
CALL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class BrokerMarks:
    """See the top of this file.

    Attributes:
        levels: the position of the next message, by delay level; None: the file is ours.
        timers: `config/timercheck`; None: the page is ours, or there is none.
        transactions: positions in the half topic and the operation topic.
    """

    levels: Mapping[int, int] | None
    timers: TimerCheckpoint | None
    transactions: TransactionOffsets


def read_broker_marks(commitlog: CommitLogClient) -> BrokerMarks | None:
    """What a broker wrote since this service wrote the files; None when none has been on the store.

    Raises:
        StoreError: a file cannot be read: what a broker delivered would be delivered again.
    """
    levels = commitlog.read_config_file(DELAY_OFFSETS, timeout_seconds=CALL_SECONDS)
    timers = commitlog.read_config_file(TIMER_CHECK, timeout_seconds=CALL_SECONDS)
    has_levels = bool(levels) and not is_own(levels or b"")
    has_timers = bool(timers) and not is_own_timer_checkpoint(timers or b"")
    if not has_levels and not has_timers:
        return None
    files = [commitlog.read_config_file(name, timeout_seconds=CALL_SECONDS) for name in CONSUMER_OFFSETS]
    offsets = joined_offsets(decode_offsets(content) for content in files if content)
    half = offsets.get((TRANSACTION_GROUP, HALF_TOPIC), {}).get(0, 0)
    operation = offsets.get((TRANSACTION_GROUP, OP_HALF_TOPIC), {}).get(0, 0)
    return BrokerMarks(
        decode_delay_offsets(levels) if levels and has_levels else None,
        decode_timer_checkpoint(timers) if timers and has_timers else None,
        TransactionOffsets(half, operation),
    )


def apply_broker_marks(state: ScheduleState, marks: BrokerMarks) -> None:
    """Note in a state what a broker has done.

    Nothing goes back: what one of us has done is done. A broker that was killed may say less than the log.
    """
    for level, position in (marks.levels or {}).items():
        state.levels[level] = max(state.levels.get(level, 0), position)
    if marks.timers is not None:
        timers = state.timers
        # A message of the slot before is due a second after its begin at the latest.
        passed = Passed(marks.timers.last_read_millis + 1)
        timers.next_queue_offset = max(timers.next_queue_offset, marks.timers.queue_offset)
        if passed >= timers.passed:
            timers.passed = passed
            timers.pending.clear()  # what was overdue here is delivered there first
    transactions = state.transactions
    transactions.half_offset = max(transactions.half_offset, marks.transactions.half)
    transactions.op_offset = max(transactions.op_offset, marks.transactions.operation)
