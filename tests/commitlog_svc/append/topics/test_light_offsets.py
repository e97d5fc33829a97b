"""LightOffsets against a dictionary; keys are chosen so that tables have runs, also over their ends."""

import random
from pathlib import Path

import pytest

from commitlog_svc.append.topics import light_offsets
from commitlog_svc.append.topics.light_offsets import ROW, TABLE_COUNT, LightJournal, LightOffsets
from store.files.file_system import RealFileSystem

Rows = dict[str, tuple[int, int]]


@pytest.fixture
def named_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a queue is its key in hexadecimal digits."""
    monkeypatch.setattr(light_offsets, "_key_of", bytes.fromhex)


def drawn(chance: random.Random, count: int) -> list[str]:
    """Names of queues of three tables, most of which want one of the last slots of theirs."""
    return [
        bytes([chance.choice((0, 1, 255)), chance.choice((255, 255, 254, 3)), *chance.randbytes(14)]).hex()
        for _ in range(count)
    ]


def packed(rows: Rows) -> bytes:
    return b"".join(ROW.pack(bytes.fromhex(name), *place) for name, place in rows.items())


def assert_holds(light: LightOffsets, rows: Rows, unknown: list[str]) -> None:
    assert {name: light.next_of(name) for name in rows} == {name: place[0] for name, place in rows.items()}
    assert light.count == len(rows)
    assert [light.next_of(name) for name in unknown if name not in rows] == [None] * len(set(unknown) - set(rows))


@pytest.mark.usefixtures("named_by_key")
@pytest.mark.parametrize("seed", range(12))
def test_each_queue_is_found_after_loads_appends_and_removals(seed: int) -> None:
    chance = random.Random(seed)
    names = drawn(chance, chance.choice((1, 5, 9, 60, 400)))
    unknown = drawn(chance, 20)
    light, rows, floor = LightOffsets(), Rows(), 7

    for _ in range(chance.randrange(4)):  # the blocks of a journal; of two rows of a queue the later counts
        block = {name: (chance.randrange(99), chance.randrange(1000)) for name in chance.choices(names, k=len(names))}
        rows |= block
        light.load(packed(block), 7)
        assert_holds(light, rows, unknown)
    floor = light.floor
    for _ in range(6):
        for name in chance.choices(names, k=len(names) // 2 + 1):
            rows[name] = (chance.randrange(99), chance.randrange(1000))
            light.note(name, *rows[name])
        assert_holds(light, rows, unknown)
        log_first_offset = chance.randrange(600)
        for number in range(TABLE_COUNT):
            light.forget_before(log_first_offset, number)
        gone = [next_offset for next_offset, at in rows.values() if at < log_first_offset]
        floor = max([floor, *gone])
        rows = {name: place for name, place in rows.items() if place[1] >= log_first_offset}
        assert_holds(light, rows, unknown)
        assert light.floor == floor


@pytest.mark.usefixtures("named_by_key")
def test_a_start_with_more_queues_than_allowed_knows_as_many_as_allowed() -> None:
    names = drawn(random.Random(1), 50)
    light = LightOffsets(count_max=30)
    light.load(packed(dict.fromkeys(names, (5, 5))), 0)

    assert (light.count, light.left_out_count) == (30, 20)
    assert [light.next_of(name) for name in names].count(5) == 30


@pytest.mark.usefixtures("named_by_key")
def test_a_journal_that_is_written_anew_has_each_queue_once(tmp_path: Path) -> None:
    rows = {name: (number, number) for number, name in enumerate(drawn(random.Random(2), 300))}
    light, journal = LightOffsets(), LightJournal(RealFileSystem(), tmp_path)
    for name, place in rows.items():
        light.note(name, *place)
    journal.write(light.take_changes(), 100)
    light.write_all()
    journal.write(light.take_changes(), 200)

    (size_bytes,) = {path.stat().st_size for path in tmp_path.iterdir() if path.name.endswith(".2")}
    again = LightOffsets()
    assert LightJournal(RealFileSystem(), tmp_path).load(journal.place, again)
    assert_holds(again, rows, [])
    assert size_bytes // ROW.size == len(rows)
