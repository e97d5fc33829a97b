"""Reads a state from the log: the newest whole full state, and every change behind it (`state_records.py`).

The units of the state topic's queue say by their tags code what each record is, so only the records that are needed are read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from services.following.state_topic.state_records import CHANGE, FULL, FULL_BEGIN, FULL_END, State, StateTopic
from store.errors import ServiceUnavailableError
from store.format.derived.queue_ext import is_ext_address
from store.format.derived.queue_unit import QueueUnit
from store.format.java_text import java_string_hash

PAGE_UNIT_COUNT = 1_000
KIND_BY_TAGS_CODE = {java_string_hash(kind): kind for kind in (CHANGE, FULL_BEGIN, FULL, FULL_END)}

# Units of the state topic from a position on, at most so many; empty at the end.
ReadUnits = Callable[[int, int], Sequence[QueueUnit]]
# The bodies of the records of units.
ReadBodies = Callable[[Sequence[QueueUnit]], Sequence[bytes]]


@dataclass(slots=True)
class LoadedState(Generic[State]):
    """The state as the log has it.

    Attributes:
        states: the state.
        epoch: of the newest life; 0 when there was none.
        first_offset: the first record that the state needs (bytes): the begin of the newest full state, or the first change; -1
            for none.
        change_count: changes behind it.
        begun_offset: where the newest full state begins, whole or not.
    """

    states: State
    epoch: int = 0
    first_offset: int = -1
    change_count: int = 0
    begun_offset: int = -1


def load_state(
    topic: StateTopic[State], min_offset: int, max_offset: int, read_units: ReadUnits, read_bodies: ReadBodies
) -> LoadedState[State]:
    """The state.

    Args:
        topic: where it is.
        min_offset: first position of the state topic's queue.
        max_offset: its end.
        read_units: reads units.
        read_bodies: reads bodies.

    Raises:
        StoreCorruptedError: a record is none of this topic.
        StoreError: the log or the queue cannot be read.
    """
    units = _units_from_full(topic.name, min_offset, max_offset, read_units)
    loaded = LoadedState(topic.new_state())
    for begin in range(0, len(units), PAGE_UNIT_COUNT):
        page = units[begin : begin + PAGE_UNIT_COUNT]
        for unit, body in zip(page, read_bodies(page), strict=True):
            _apply(topic, loaded, unit, body)
    return loaded


def _units_from_full(topic_name: str, min_offset: int, max_offset: int, read_units: ReadUnits) -> list[QueueUnit]:
    """The units from the begin of the newest whole full state on; all units when there is none."""
    units: list[QueueUnit] = []
    begin = max_offset
    while begin > min_offset:
        end, begin = begin, max(min_offset, begin - PAGE_UNIT_COUNT)
        page: list[QueueUnit] = []
        while begin + len(page) < end:
            found = read_units(begin + len(page), end - begin - len(page))
            if not found:
                raise ServiceUnavailableError(
                    f"topic {topic_name} has no unit at {begin + len(page)}, but ends at {max_offset}: retention removed it "
                    "meanwhile, or the queue is being built again"
                )
            page += found
        units = page + units
        last_end = _last(units, FULL_END, len(units))
        first = _last(units, FULL_BEGIN, last_end)
        if last_end >= 0 and first >= 0:
            return units[first:]
    return units


def _last(units: Sequence[QueueUnit], kind: str, before: int) -> int:
    """The index of the last unit of a kind before an index; -1 when there is none."""
    return next((at for at in range(before - 1, -1, -1) if KIND_BY_TAGS_CODE.get(units[at].tags_code) == kind), -1)


def _apply(topic: StateTopic[Any], loaded: LoadedState[Any], unit: QueueUnit, body: bytes) -> None:
    if is_ext_address(unit.tags_code):
        raise ServiceUnavailableError(
            f"topic {topic.name}: the tags code of the record at {unit.commit_log_offset} is not to be found in "
            "consumequeue_ext: the queue is being built again"
        )
    record = topic.record_of(unit.commit_log_offset, body)
    kind = KIND_BY_TAGS_CODE.get(unit.tags_code, CHANGE)
    loaded.epoch = max(loaded.epoch, record.epoch)
    if loaded.first_offset < 0:
        loaded.first_offset = unit.commit_log_offset
    if kind == FULL_BEGIN:
        loaded.begun_offset = unit.commit_log_offset
    change_count = topic.apply(loaded.states, kind, record)
    if kind == FULL_END:
        loaded.first_offset, loaded.change_count = loaded.begun_offset, 0
    else:
        loaded.change_count += change_count
