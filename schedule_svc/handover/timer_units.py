"""The units of `timerlog/` for timers that wait, as a broker would have written them; pure.

A slot is a second, and its messages go in the second after it. A timer that is far away gets a slot before its own, at which
the broker stores its record again, to wait on (`TimerMessageStore.doEnqueue` of RocketMQ 5.3.3). A broker looks no further back
than seven days, so what is overdue longer gets a later slot.
"""

from schedule_svc.timers.entries import Entries
from store.format.delivery.timer_files import MAGIC_DEFAULT, MAGIC_ROLL, SLOT_MILLIS, UNIT_DTYPE, UNIT_SIZE_BYTES

# RocketMQ's timerRollWindowSlot.
ROLL_WINDOW_MILLIS = 2 * 24 * 3600 * SLOT_MILLIS
LOOK_BACK_MILLIS = 6 * 24 * 3600 * SLOT_MILLIS


def first_slot(oldest_due_millis: int | None, now_millis: int) -> int:
    """The slot that a broker is to read first (ms since 1970), if the oldest timer that waits is due at a time; None: none."""
    now_slot = now_millis // SLOT_MILLIS * SLOT_MILLIS
    slot = now_slot if oldest_due_millis is None else (oldest_due_millis - 1) // SLOT_MILLIS * SLOT_MILLIS
    return max(min(slot, now_slot), now_slot - LOOK_BACK_MILLIS)


def encode_units(timers: Entries, first_slot_millis: int, now_millis: int) -> bytes:
    """Units of timers that wait.

    Args:
        timers: in any order.
        first_slot_millis: see `first_slot`.
        now_millis: the time (ms since 1970).
    """
    import numpy as np

    slots = np.maximum((timers.dues_millis - 1) // SLOT_MILLIS * SLOT_MILLIS, first_slot_millis)
    now_slot = now_millis // SLOT_MILLIS * SLOT_MILLIS
    delays = slots - now_slot
    is_far = delays >= ROLL_WINDOW_MILLIS
    is_soon_after = delays < ROLL_WINDOW_MILLIS + ROLL_WINDOW_MILLIS // 3
    roll_delays = np.where(is_soon_after, ROLL_WINDOW_MILLIS // 2, ROLL_WINDOW_MILLIS)
    units = np.zeros(len(timers), UNIT_DTYPE)
    units["size"] = UNIT_SIZE_BYTES
    units["magic"] = np.where(is_far, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT)
    units["enqueue_millis"] = now_slot
    units["delay_millis"] = np.where(is_far, roll_delays, delays)
    units["commit_log_offset"] = timers.commit_log_offsets
    units["record_size_bytes"] = timers.sizes_bytes
    return units.tobytes()


def encode_last_unit(commit_log_offset: int, record_size_bytes: int, first_slot_millis: int) -> bytes:
    """The unit that says how far a broker has read the timer topic: its newest record, in a slot that is over.

    Args:
        commit_log_offset: of the record (bytes).
        record_size_bytes: of it.
        first_slot_millis: see `first_slot`.
    """
    import numpy as np

    unit = np.zeros(1, UNIT_DTYPE)
    unit["size"], unit["magic"] = UNIT_SIZE_BYTES, MAGIC_DEFAULT
    unit["enqueue_millis"] = first_slot_millis - SLOT_MILLIS
    unit["commit_log_offset"], unit["record_size_bytes"] = commit_log_offset, record_size_bytes
    return unit.tobytes()
