"""Which records get a queue unit, and what it says.

QueuePlacement: runs are judged as their units one by one, and the builder and the rebuild write the same files.
"""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumequeue_svc.consume_queue_table import ConsumeQueueTable
from pipeline.rebuild.files import QueueFiles
from store.derive.dispatch_columns import DispatchColumns
from store.derive.queue_placement import (
    BURNT_POSITION_COUNT_MAX,
    FILL_UNIT_COUNT,
    FILLER_BYTES,
    Placement,
    QueuePlacement,
    UnitRun,
    fillers,
    light_position_max,
    place_light_units,
    place_unit,
)
from store.derive.queue_runs import place_runs
from store.files.file_system import RealFileSystem
from store.format.properties import LightPlace
from store.format.record import FRAME_SIZE_BYTES_MIN
from tests.support.dispatches import file_bytes, make_request


@pytest.mark.parametrize("sys_flag", [0, 0x8, 0x1, 0x30, 0x38])
def test_plain_and_committed_records_have_a_unit(sys_flag):
    placed = place_unit(make_request(7, queue_id=3, queue_offset=5, sys_flag=sys_flag))

    assert placed == ("orders", 3, 5, struct.pack(">qiq", 700, 100, 7))


@pytest.mark.parametrize("sys_flag", [0x4, 0xC, 0x34, 0x3C])
def test_prepared_and_rolled_back_records_have_none(sys_flag):
    assert place_unit(make_request(7, sys_flag=sys_flag)) is None


NEAR_FILE_SIZE, FAR_FILE_SIZE = 100, 2000  # 5 and 100 units: a step over 4,000 positions is to fill tens of files
NEAR_MAX = 40
LEFT_OUT = (Placement.TAKEN, Placement.DAMAGED)
# Mostly the next position; sometimes any near one, sometimes 0 again, sometimes one that cannot be.
STEPS = st.lists(
    st.one_of(
        st.none(),
        st.none(),
        st.integers(0, 30),
        st.just(0),
        st.sampled_from([-1, 4_000, 4_200, 10**6, 2**62]),
    ),
    min_size=1,
    max_size=30,
)


def _positions(first: int, steps: list[int | None]) -> list[int]:
    positions, expected = [], first
    for step in steps:
        position = expected if step is None else step
        positions.append(position)
        expected = position + 1
    return positions


@given(first=st.integers(0, NEAR_MAX), steps=STEPS, batch=st.integers(1, 30))
def test_any_sequence_of_positions_gives_the_online_builders_files(first, steps, batch):
    is_near = all(step is None or step <= NEAR_MAX for step in steps)
    file_size = NEAR_FILE_SIZE if is_near else FAR_FILE_SIZE
    requests = [
        make_request(number + 3, queue_offset=position) for number, position in enumerate(_positions(first, steps))
    ]
    with tempfile.TemporaryDirectory() as directory:
        online, ours = Path(directory) / "online", Path(directory) / "ours"
        fs = RealFileSystem()
        table = ConsumeQueueTable(online, fs, file_size)
        for at in range(0, len(requests), batch):
            table.apply(DispatchColumns.of(requests[at : at + batch]))
        files, placement = QueueFiles(fs, ours, file_size), QueuePlacement(file_size // 20)
        for topic, queue_id, runs in place_runs(DispatchColumns.of(requests)):
            for placed in placement.place(runs):
                files.write_placed(topic, queue_id, placed)
        files.close()
        table.close()

        assert file_bytes(ours) == file_bytes(online)


def unit(offset: int) -> bytes:
    return struct.pack(">qiq", offset, 100, 0)


@settings(deadline=None)
@given(
    runs=st.lists(
        st.tuples(st.integers(1, 12) | st.sampled_from([0, -1, 4_200, 2**62]), st.integers(1, 6)),
        min_size=1,
        max_size=12,
    ),
    end=st.none() | st.integers(0, 8),
    repeats=st.booleans(),
)
def test_a_run_is_placed_as_its_units_one_by_one(runs, end, repeats):
    offsets = iter(range(1000, 100_000, 100))
    made = [
        UnitRun(position, b"".join(unit(1000 if repeats and not position + n else next(offsets)) for n in range(count)))
        for position, count in ((position, count if position >= 0 else 1) for position, count in runs)
    ]
    whole, single = (QueuePlacement(5, end, log_end_offset=lambda: 900, number_0=lambda: unit(1000)) for _ in range(2))

    expected = []
    for position, units in made:
        for at in range(0, len(units), 20):
            one = units[at : at + 20]
            placement = single.judge(position + at // 20, one)
            placed = list(single.place([UnitRun(position + at // 20, one)]))
            assert [found.placement for found in placed] == ([] if placement in LEFT_OUT else [placement])
            expected += placed

    found = []
    for placement, fill_begin, position, units in whole.place(made):
        found.append((placement, fill_begin, position, units[:20]))
        later = range(position + 1, position + len(units) // 20)
        found += [(Placement.NEXT, at, at, units[(at - position) * 20 :][:20]) for at in later]
    assert found == expected
    for name in ("end", "filled_count", "taken_count", "damaged"):
        assert getattr(whole, name) == getattr(single, name), name


@pytest.mark.parametrize(
    ("position", "offset", "end", "expected"),
    [
        (0, 0, None, Placement.FIRST),
        (4096, 0, None, Placement.FIRST),
        (4097, 90, None, Placement.DAMAGED),
        (4097, 91, None, Placement.FIRST),
        (-1, 0, None, Placement.DAMAGED),
        (7, 500, 7, Placement.NEXT),
        (6, 500, 7, Placement.TAKEN),
        (-1, 500, 7, Placement.TAKEN),
        (8, 500, 7, Placement.BEHIND_GAP),
        (7 + 4096, 500, 7, Placement.BEHIND_GAP),
        (7 + 4097, 500, 7, Placement.DAMAGED),
        (7 + 4097, 591, 7, Placement.BEHIND_GAP),
        (7 + 4096, 0, 7, Placement.BEHIND_GAP),
        (7 + 4097, 0, 7, Placement.DAMAGED),
        (0, 600, 7, Placement.ANEW),
        (0, 400, 7, Placement.TAKEN),
    ],
)
def test_each_placement_at_its_edges(position, offset, end, expected):
    """The last record of a queue with units ends at byte 500 of the log; the smallest record takes 91 bytes."""
    placement = QueuePlacement(5, end, log_end_offset=lambda: 500, number_0=lambda: unit(400))

    assert placement.judge(position, unit(offset)) is expected


def test_fillers_come_in_pieces():
    runs = list(fillers(3, 3 + 2 * FILL_UNIT_COUNT + 1))

    assert [len(run.units) // 20 for run in runs] == [FILL_UNIT_COUNT, FILL_UNIT_COUNT, 1]
    assert [run.queue_offset for run in runs] == [3, 3 + FILL_UNIT_COUNT, 3 + 2 * FILL_UNIT_COUNT]
    assert runs[0].units == FILLER_BYTES * FILL_UNIT_COUNT
    assert list(fillers(7, 7)) == []


@pytest.mark.parametrize("sys_flag", [0, 0x8, 0x4, 0xC, 0x80])
def test_a_record_has_light_units_where_it_has_a_unit_of_its_own(sys_flag):
    places = (LightPlace("%LMQ%a", 7), LightPlace("%LMQ%b", 0))

    found = place_light_units(make_request(7, sys_flag=sys_flag)._replace(light_places=places))

    assert found == ([("%LMQ%a", 7, 700, 100, 7), ("%LMQ%b", 0, 700, 100, 7)] if sys_flag in (0, 0x8) else [])


def test_a_light_queue_has_no_more_positions_than_records_that_name_it():
    record_count = 1000
    assert record_count <= light_position_max(record_count * FRAME_SIZE_BYTES_MIN)
    assert light_position_max(0) == BURNT_POSITION_COUNT_MAX
