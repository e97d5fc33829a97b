"""LightAudit: compares Reput's files of light queues (LMQ), `reput/consumequeue/light/`, with the log (ADR 0154).

The files have an entry for each unit of a light queue, in the order of the log: both are walked side by side, up to where the
checkpoint of the consumequeue service says that they are built. Without such a checkpoint nothing is compared: the next start
builds them anew.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from store.audit.findings import Findings
from store.derive.dispatch import DispatchRequest
from store.derive.queue_placement import LightUnit, Placement, QueuePlacement, place_light_units
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes, read_json_state
from store.format.derived.light_unit import ENTRY_SIZE_BYTES, decode_light_entry, decode_light_names
from store.format.derived.queue_unit import QueueUnit, encode_queue_unit
from store.format.paths import own_state_dir
from store.format.topic import TOPIC_NAME_SHOWN


class _Entry(NamedTuple):
    """An entry as the unit of its queue, and where it lies."""

    unit: LightUnit
    path: Path
    at: int


class LightAudit:
    """See the top of this file; an observer of the log (`log_audit.Observer`).

    Args:
        fs: the disk port.
        root: the store root.
        log_first_offset: the log's first byte; entries of older records may still be there.
        findings: gets what is wrong.
    """

    def __init__(self, fs: FileSystem, root: Path, log_first_offset: int, findings: Findings) -> None:
        self._fs = fs
        self._findings = findings
        own = Path(own_state_dir(str(root), "consumequeue"))
        self._directory = own / "light"
        state = read_json_state(fs, own / "checkpoint.json") or {}
        light = state.get("light")
        self._next_offset = -1
        self._first_offset = log_first_offset
        self._begin = self._end = 0
        self._count = 1
        if isinstance(light, dict) and isinstance(state.get("next_offset"), int) and not state.get("replay"):
            numbers = [light.get(name) for name in ("begin", "end", "file_entry_count")]
            known = [number for number in numbers if isinstance(number, int) and number >= 0]
            if len(known) == len(numbers) and known[2]:
                self._begin, self._end, self._count = known
                next_offset = light.get("next_offset", -1)  # -1: they are as far as the other queues
                self._next_offset = (
                    next_offset if isinstance(next_offset, int) and next_offset >= 0 else state["next_offset"]
                )
        self._ends: dict[str, int] = {}
        self._number_0: dict[str, int] = {}  # offset of the record at position 0 of a queue (bytes)
        self._lost: list[tuple[int, int]] = []
        self._surplus: list[_Entry] = []
        self._entries = self._read()
        self._entry = next(self._entries, None)

    def see(self, request: DispatchRequest) -> None:
        """See `log_audit.Observer`."""
        for unit in place_light_units(request):
            if self._first_offset <= unit.commit_log_offset < self._next_offset:
                self._see(unit)

    def lose(self, begin_offset: int, end_offset: int) -> None:
        """See `log_audit.Observer`."""
        self._lost.append((begin_offset, end_offset))

    def finish(self) -> None:
        """Adds the findings of entries without a record."""
        while self._entry is not None:
            self._surplus.append(self._entry)
            self._entry = next(self._entries, None)
        for unit, path, at in self._surplus:
            if not any(begin <= unit.commit_log_offset < end for begin, end in self._lost):
                what = f"no record of the log is at position {unit.queue_offset} of light queue {_shown(unit.queue)}"
                self._findings.add("LIGHT_UNIT_WRONG", path, at, what, commit_log_offset=unit.commit_log_offset)

    def _see(self, unit: LightUnit) -> None:
        data = encode_queue_unit(QueueUnit(*unit[2:]))
        is_number_0 = self._number_0.get(unit.queue) == unit.commit_log_offset  # a record may name a queue twice
        judge = QueuePlacement(1, self._ends.get(unit.queue), number_0=lambda: data if is_number_0 else b"")
        placement = judge.judge(unit.queue_offset, data)
        if placement in (Placement.TAKEN, Placement.DAMAGED):
            return
        self._ends[unit.queue] = unit.queue_offset + 1
        if unit.queue_offset == 0:
            self._number_0[unit.queue] = unit.commit_log_offset
        while self._entry is not None and self._entry.unit != unit:
            if self._entry.unit.commit_log_offset >= unit.commit_log_offset:
                what = f"position {unit.queue_offset} of light queue {_shown(unit.queue)} is missing"
                at = unit.commit_log_offset
                self._findings.add("LIGHT_UNIT_MISSING", self._directory, 0, what, commit_log_offset=at)
                return
            self._surplus.append(self._entry)
            self._entry = next(self._entries, None)
        if self._entry is None:
            what = f"position {unit.queue_offset} of light queue {_shown(unit.queue)} is missing"
            self._findings.add("LIGHT_UNIT_MISSING", self._directory, 0, what, commit_log_offset=unit.commit_log_offset)
            return
        self._entry = next(self._entries, None)

    def _read(self) -> Iterator[_Entry]:
        """The entries of records that the log still has, as far as they are sound."""
        for first in range(self._begin, self._end, self._count):
            path = self._directory / f"units.{first:020d}"
            data = read_bytes(self._fs, path) or b""
            names = dict(decode_light_names(read_bytes(self._fs, self._directory / f"names.{first:020d}") or b""))
            for at in range(0, min(self._end - first, self._count) * ENTRY_SIZE_BYTES, ENTRY_SIZE_BYTES):
                entry = decode_light_entry(data[at : at + ENTRY_SIZE_BYTES])
                name = None if entry is None else names.get(entry.queue_number)
                if entry is None or name is None:
                    what = "it has no unit of a light queue there" if entry is None else "its queue has no name"
                    self._findings.add("LIGHT_UNIT_WRONG", path, at, what)
                elif entry.commit_log_offset >= self._first_offset:
                    yield _Entry(LightUnit(name, entry.queue_offset, *entry[:3]), path, at)


def _shown(queue: str) -> str:
    return queue[:TOPIC_NAME_SHOWN]
