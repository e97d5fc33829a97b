"""The index gives every entry once, in order, whatever is added, merged, dropped and loaded; against a sorted list."""

import pathlib
import random
from collections.abc import Callable

import numpy as np
import pytest

from schedule_svc.state.schedule_state import Passed, TimersState
from schedule_svc.timers import timer_index
from schedule_svc.timers.runs import Entries, RunFiles
from schedule_svc.timers.timer_index import TimerIndex
from store.errors import ServiceUnavailableError
from store.files.file_system import RealFileSystem

Row = tuple[int, int, int, int, int]


def row(due_millis: int, offset: int) -> Row:
    """An entry."""
    return due_millis, offset, offset * 100, due_millis * 31 + 7, 90


def rows_of(entries: Entries) -> list[tuple[int, int]]:
    """Due times and positions."""
    return list(zip(entries.dues_millis.tolist(), entries.queue_offsets.tolist(), strict=True))


def all_shown() -> Callable[[], bool]:
    """Reput has shown every change."""
    return lambda: True


def new_index(directory: pathlib.Path) -> TimerIndex:
    """An index with the files of a directory."""
    files = RunFiles(RealFileSystem(), directory)
    index = TimerIndex(files, all_shown)
    index.load(files.load(), TimersState(), 0)
    return index


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written and merged after a few entries."""
    monkeypatch.setattr(timer_index, "MEMORY_COUNT_MAX", 16)
    monkeypatch.setattr(timer_index, "FRESH_COUNT_MAX", 4)
    monkeypatch.setattr(timer_index, "FILE_COUNT_MAX", 128)
    monkeypatch.setattr(timer_index, "CONFIRM_SECONDS_MAX", 0.01)


@pytest.mark.parametrize("seed", range(20))
def test_an_index_is_a_sorted_list(tmp_path: pathlib.Path, seed: int) -> None:
    chance = random.Random(seed)
    index, model, taken = new_index(tmp_path), list[Row](), list[tuple[int, int]]()
    next_offset = 0
    for _ in range(120):
        match chance.randrange(4):
            case 0 | 1:
                new = [row(chance.randrange(1_000), next_offset + at) for at in range(chance.randint(1, 9))]
                next_offset += len(new)
                index.add(Entries.of(new), next_offset, new[-1][2])
                index.settle()
                model += new
            case 2:
                until, count = chance.randrange(1_000), chance.randint(1, 12)
                found = index.take(until, count)
                expected = sorted(one[:2] for one in model if one[0] <= until)[:count]
                assert rows_of(found) == expected
                model = [one for one in model if one[:2] not in expected]
                taken += expected
                index.confirm(len(found))
            case _:
                dropped = {one[1] for one in model if chance.random() < 0.1}
                assert index.drop(np.array(sorted(dropped), dtype=np.int64)) == len(dropped)
                assert index.settle()
                model = [one for one in model if one[1] not in dropped]
        assert index.count() == len(model)
        assert index.first_due_millis() == min((one[0] for one in model), default=None)
        assert index.oldest_offset() == min((one[2] for one in model), default=None)
        late = sorted(one[1] for one in model if one[:2] < index.passed)
        assert index.summary() == (next_offset, index.passed, late)
    index.settle(even_little=True)
    passed = index.passed
    files = RunFiles(RealFileSystem(), tmp_path)
    again = TimerIndex(files, all_shown)
    late_offsets = {one[1] for one in model if one[:2] < passed}
    again.load(files.load(), TimersState(next_offset, passed, late_offsets, {}), 0)
    found = again.take(10_000, 100_000)
    assert [one for one in rows_of(found) if one not in taken] == sorted(one[:2] for one in model)
    assert not [one for one in rows_of(found) if one in taken and one < passed]


def test_entries_in_hand_are_not_forgotten_by_the_files(tmp_path: pathlib.Path) -> None:
    """A crash after the files were replaced would lose what was taken and not yet delivered."""
    index = new_index(tmp_path)
    index.add(Entries.of([row(at, at) for at in range(40)]), 40, 3_900)
    index.take(5, 10)
    with pytest.raises(ServiceUnavailableError):
        index.settle()
    index.confirm(6)
    index.settle()
    assert index.count() == 34


def test_a_find_gives_those_of_a_key_and_a_time_only(tmp_path: pathlib.Path) -> None:
    index = new_index(tmp_path)
    index.add(Entries.of([(5, 0, 0, 7, 9), (5, 1, 0, 8, 9), (6, 2, 0, 7, 9), (9, 3, 0, 7, 9), (10, 4, 0, 7, 9)]), 5, 0)
    assert rows_of(index.find(5, 9, 7)) == [(6, 2), (9, 3)]
    assert (index.has(5, 1), index.has(5, 2)) == (True, False)
    assert rows_of(index.page(Passed(6, 0), 2)) == [(6, 2), (9, 3)]


@pytest.mark.parametrize("damage", ["shorter", "bit", "gone", "table"])
def test_damaged_files_are_not_used(tmp_path: pathlib.Path, damage: str) -> None:
    index = new_index(tmp_path)
    index.add(Entries.of([row(at, at) for at in range(40)]), 40, 3_900)
    index.settle()
    assert RunFiles(RealFileSystem(), tmp_path).load() is not None
    (file,) = tmp_path.glob("*.run")
    data = file.read_bytes()
    if damage == "shorter":
        file.write_bytes(data[:-1])
    elif damage == "bit":
        file.write_bytes(data[:100] + bytes((data[100] ^ 1,)) + data[101:])
    elif damage == "gone":
        file.unlink()
    else:
        (tmp_path / "runs.json").write_text('{"version": 1, "runs": [["../x", -1, 0]], "next_queue_offset": 1}')
    assert RunFiles(RealFileSystem(), tmp_path).load() is None
    assert not list(tmp_path.glob("*.run"))


def test_an_entry_that_was_put_back_survives_a_drop_from_its_file_and_a_kill(tmp_path: pathlib.Path) -> None:
    """It is in memory only, and the file that it was taken of is written anew without it."""
    index = new_index(tmp_path)
    rows = [row(100 + number, number) for number in range(20)]
    index.add(Entries.of(rows), 20, rows[-1][2])
    index.settle()
    taken = index.take(101, 10)
    assert rows_of(taken) == [(100, 0), (101, 1)]
    index.confirm(1)
    index.put_back(Entries.of([(5_000, *rows[1][1:])]))
    next_queue_offset, passed, late = index.summary()
    assert index.drop(np.array([7], dtype=np.int64)) == 1
    assert index.settle()
    files = RunFiles(RealFileSystem(), tmp_path)
    later = TimerIndex(files, all_shown)
    state = TimersState(next_queue_offset, passed, pending={*late, 1})
    later.load(files.load(), state, 0)
    assert [offset for _, offset in rows_of(later.take(10_000, 100))] == [*(n for n in range(2, 20) if n != 7), 1]
