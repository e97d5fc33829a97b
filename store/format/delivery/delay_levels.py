"""Delay levels: RocketMQ's `messageDelayLevel`, a list of delays; level 1 is the first.

    1s 5s 10s 30s 1m 2m ...      numbers with `s`, `m`, `h` or `d`, with single spaces between them

The queue units of `SCHEDULE_TOPIC_XXXX` hold times of delivery that follow from the list (`queue_unit.tags_code`). A store has
one list, so a process that works on a store of a broker with a list of its own says so once, before it reads the log:
`use_delay_levels`. Source: `ScheduleMessageService.parseDelayLevel`, RocketMQ 5.3.3.
"""

import re
import threading
from collections.abc import Callable

from store.errors import InvalidArgumentError

DELAY_LEVELS_DEFAULT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
# RocketMQ has 18 and no limit; each level is a queue, that is a folder, of the store.
LEVEL_COUNT_MAX = 256
_UNIT_MILLIS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"([0-9]{1,6})([smhd])")  # at most a million days, so that a time stays one of 64 bits


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The delays of a list in milliseconds.

    Raises:
        InvalidArgumentError: it is no such list.
    """
    levels: list[int] = []
    for number, word in enumerate(text.split(" "), 1):
        found = _DELAY.fullmatch(word)
        if found is None:
            raise InvalidArgumentError(
                f"level {number} of the delay levels is {word!r}: a number of at most 6 digits with s, m, h or d is a delay; "
                "one space stands between two of them",
                level=number,
            )
        levels.append(int(found[1]) * _UNIT_MILLIS[found[2]])
    if len(levels) > LEVEL_COUNT_MAX:
        raise InvalidArgumentError(f"there are {len(levels)} delay levels: at most {LEVEL_COUNT_MAX} are allowed")
    return tuple(levels)


DELAY_LEVELS_MILLIS = parse_delay_levels(DELAY_LEVELS_DEFAULT)


class _InUse:
    """The list of this process's store."""

    levels_millis = DELAY_LEVELS_MILLIS
    lock = threading.Lock()
    holder_count = 0
    levels_before_millis = DELAY_LEVELS_MILLIS


def use_delay_levels(levels_millis: tuple[int, ...]) -> None:
    """Says which list the store of this process has; 1 delay or more."""
    _InUse.levels_millis = levels_millis


def hold_delay_levels(levels_millis: tuple[int, ...]) -> Callable[[], None]:
    """As `use_delay_levels`, for a store beside others in one process, until the function returned is called.

    Once the last one has let go the process has the list of before.

    Raises:
        InvalidArgumentError: another store of this process is held with another list.
    """
    with _InUse.lock:
        if not _InUse.holder_count:
            _InUse.levels_before_millis = _InUse.levels_millis
        elif levels_millis != _InUse.levels_millis:
            raise InvalidArgumentError(
                "a stack with other delay levels runs in this process: their times would be mixed up; give both the same "
                "delay_levels, or run this one in a process of its own"
            )
        _InUse.holder_count += 1
        _InUse.levels_millis = levels_millis

    def let_go() -> None:
        with _InUse.lock:
            _InUse.holder_count -= 1
            if not _InUse.holder_count:
                _InUse.levels_millis = _InUse.levels_before_millis

    return let_go


def delay_levels_in_use() -> tuple[int, ...]:
    """The list of this process's store."""
    return _InUse.levels_millis


def delay_millis(level: int) -> int:
    """The delay of a level, 1 or more, by the list of this process's store; a level above the largest is the largest."""
    levels = _InUse.levels_millis
    return levels[min(level, len(levels)) - 1]
