"""RocketMQ's files of timers: the page `config/timercheck`, and the files of 100 MiB in `timerlog/`.

    timercheck    8 last read time (ms)   8 flushed end of timerlog   8 queue offset   8 master's queue offset
                  8 state version   8 timestamp (ms)   8 counter      then, if this project wrote it: 32 a digest of these

    timerlog      units of 52 bytes, from the begin of each file on; where the next one does not fit: 16 bytes that say so
    unit          4 size   8 position of the unit before with the same slot, -1: none   4 magic   8 enqueue time (ms)
                  4 delay (ms)   8 commit log offset   4 size of the record   4 hash code of the topic   8 reserved
    blank         4 bytes left   8 zero   4 magic

A unit stands for a record of the timer topic: it is due at enqueue time + delay, and its slot is that second. The last units of
the slots are in the file `timerwheel`; a broker that starts with `flushed end` 0 and without that file finds them in the units.
It goes on in the queue of the timer topic behind the record of the last unit, and with the slot of the last read time.

A broker changes the page in place and does so in its first second, so a page with the right digest is as we wrote it. Sources:
`TimerCheckpoint`, `TimerLog` and `TimerMessageStore` of RocketMQ 5.3.3.
"""

import hashlib
import struct
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from store.errors import StoreCorruptedError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAGE_SIZE_BYTES = 4096
MILLIS_MAX = 253_402_300_800_000  # the year 10,000
_PAGE = struct.Struct(">7q")
_DIGEST_SIZE_BYTES = 32

UNIT_SIZE_BYTES = 52
BLANK_SIZE_BYTES = 16
FILE_SIZE_BYTES_DEFAULT = 100 << 20
SLOT_MILLIS = 1_000
MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE = 1, 2, 4
BLANK_MAGIC = (0xBBCCDDEE ^ 1_880_681_594) - (1 << 32)  # a negative int of Java
_BLANK = struct.Struct(">iqi")
NO_POSITION = -1
UNIT_DTYPE = [
    ("size", ">i4"),
    ("previous_position", ">i8"),
    ("magic", ">i4"),
    ("enqueue_millis", ">i8"),
    ("delay_millis", ">i4"),
    ("commit_log_offset", ">i8"),
    ("record_size_bytes", ">i4"),
    ("topic_hash", ">i4"),
    ("reserved", ">i8"),
]


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """`config/timercheck`.

    Attributes:
        last_read_millis: every slot before this time has been delivered (ms since 1970).
        timer_log_end: how far timerlog is on the disk (bytes).
        queue_offset: every record of the timer topic before this position is in timerlog, or delivered.
        master_queue_offset: the same on the master; a broker goes on before it.
        state_version, timestamp_millis, counter: the file's `DataVersion`.
    """

    last_read_millis: int = 0
    timer_log_end: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp_millis: int = 0
    counter: int = 0


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """The numbers.

    Raises:
        StoreCorruptedError: the page is too short.
    """
    if len(data) < _PAGE.size:
        raise StoreCorruptedError(
            f"config/timercheck has {len(data)} bytes instead of {PAGE_SIZE_BYTES}", file="config/timercheck", offset=0
        )
    return TimerCheckpoint(*_PAGE.unpack_from(data))


def check_timer_page(data: bytes, name: str = "timercheck") -> None:
    """Raises StoreCorruptedError for a page that neither a broker nor this project writes.

    A broker that never delivered a timer has zeros there; a time of the far future would end timers that wait.
    """
    page = decode_timer_checkpoint(data)
    if min(page.last_read_millis, page.timer_log_end, page.queue_offset) < 0 or page.last_read_millis > MILLIS_MAX:
        raise StoreCorruptedError(
            f"config/{name} cannot be read: it says {page.last_read_millis} ms, queue offset {page.queue_offset}",
            file=f"config/{name}",
            offset=0,
        )


def encode_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The page, with the digest that says that this project wrote it."""
    numbers = _PAGE.pack(*astuple(checkpoint))
    return (numbers + hashlib.sha256(numbers).digest()).ljust(PAGE_SIZE_BYTES, b"\0")


def is_own_timer_checkpoint(data: bytes) -> bool:
    """Whether no broker has written the page since this project did."""
    digest = data[_PAGE.size : _PAGE.size + _DIGEST_SIZE_BYTES]
    return hashlib.sha256(data[: _PAGE.size]).digest() == digest


def unit_count_of_file(file_size_bytes: int) -> int:
    """How many units a file of timerlog holds."""
    return (file_size_bytes - BLANK_SIZE_BYTES) // UNIT_SIZE_BYTES


def blank(file_size_bytes: int) -> bytes:
    """The bytes behind the last unit of a file that is followed by another one."""
    left = file_size_bytes - unit_count_of_file(file_size_bytes) * UNIT_SIZE_BYTES
    return _BLANK.pack(left, 0, BLANK_MAGIC)


class UnitChain:
    """Gives units, as they come, the position of the unit before with the same slot.

    Args:
        file_size_bytes: of a file of timerlog.
    """

    def __init__(self, file_size_bytes: int) -> None:
        self._file_size_bytes = file_size_bytes
        self._per_file = unit_count_of_file(file_size_bytes)
        self._count = 0
        self._last: dict[int, int] = {}

    def link(self, data: bytes) -> "NDArray[np.void]":
        """The next units, which came without positions.

        Raises:
            StoreCorruptedError: these are no whole units.
        """
        import numpy as np

        if len(data) % UNIT_SIZE_BYTES:
            raise StoreCorruptedError(f"{len(data)} bytes are no units of timerlog", file="timerlog", offset=0)
        units = np.frombuffer(data, UNIT_DTYPE).copy()
        if (units["size"] != UNIT_SIZE_BYTES).any():
            raise StoreCorruptedError("a unit of timerlog does not say its size", file="timerlog", offset=0)
        numbers = self._count + np.arange(len(units), dtype=np.int64)
        positions = numbers // self._per_file * self._file_size_bytes + numbers % self._per_file * UNIT_SIZE_BYTES
        slots = (units["enqueue_millis"] + units["delay_millis"].astype(np.int64)) // SLOT_MILLIS
        order = np.argsort(slots, kind="stable")
        slots, positions = slots[order], positions[order]
        before = np.full(len(units), NO_POSITION, dtype=np.int64)
        before[1:] = positions[:-1]
        firsts = np.flatnonzero(np.diff(slots, prepend=-1))
        lasts = np.append(firsts[1:], len(units)) - 1
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=False):
            slot = int(slots[first])
            before[first] = self._last.get(slot, NO_POSITION)
            self._last[slot] = int(positions[last])
        units["previous_position"][order] = before
        self._count += len(units)
        return units
