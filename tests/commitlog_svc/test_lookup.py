"""Whether a record starts at an offset: told by a walk from a known start."""

import pytest

from commitlog_svc import lookup
from commitlog_svc.lookup import FrameStarts, TailStarts
from tests.store.walk.logs import closed, frames_of, message, open_files

FILE_BYTES = 4000
INNER = b"".join(frames_of([message()], base=0))
FRAMES = frames_of([message(body=INNER) for _ in range(8)], base=0)
SIZE = len(FRAMES[0])
LOG = closed(*FRAMES, size_bytes=FILE_BYTES)


@pytest.mark.parametrize("step_bytes", [1, 500, 1 << 20])
def test_records_start_where_records_end_and_nowhere_else(step_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "STEP_BYTES", step_bytes)
    file = open_files(LOG).files[0]
    starts = FrameStarts()
    found = [offset for offset in range(len(FRAMES) * SIZE + 1) if starts.is_start(file, offset)]
    assert found == [number * SIZE for number in range(9)]
    assert [offset for offset in reversed(range(8 * SIZE)) if starts.is_start(file, offset)] == found[-2::-1]


def test_no_record_starts_behind_the_blank() -> None:
    file = open_files(LOG).files[0]
    assert not FrameStarts().is_start(file, len(FRAMES) * SIZE + 8)


@pytest.mark.parametrize("damage", [bytes(8), b"\xff" * 8, (1 << 20).to_bytes(4, "big")])
def test_behind_damage_any_offset_may_be_a_start(damage: bytes) -> None:
    data = bytearray(LOG)
    data[SIZE : SIZE + len(damage)] = damage
    file, starts = open_files(bytes(data)).files[0], FrameStarts()
    assert starts.is_start(file, SIZE)
    assert not starts.is_start(file, SIZE - 1)
    assert starts.is_start(file, 2 * SIZE + 1)


def test_what_was_found_in_a_file_is_forgotten_with_it() -> None:
    files = open_files(LOG, b"".join(frames_of([message()], base=FILE_BYTES)))
    starts = FrameStarts()
    assert starts.is_start(files.files[0], SIZE)
    assert starts.is_start(files.files[1], FILE_BYTES)
    starts.forget(FILE_BYTES)
    assert list(starts._starts) == [FILE_BYTES]


def test_a_walk_over_the_tail_begins_at_the_last_start_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "TAIL_STEP_BYTES", 1000)
    monkeypatch.setattr(lookup, "TAIL_START_COUNT_MAX", 3)
    files = open_files(LOG, LOG)
    starts = TailStarts()
    assert [0, FILE_BYTES, 2 * FILE_BYTES] == [starts.nearest(files, at) for at in (1, FILE_BYTES + 5, 2 * FILE_BYTES)]

    for offset in (100, 1099, 1100, 4500, 5499, 5600):
        starts.note(offset)

    assert (1100, 4500, 5600) == starts.offsets  # each well behind the one before, and the newest of them
    assert [0, 1100, 1100] == [starts.nearest(files, at) for at in (1099, 1100, 3999)]
    assert [FILE_BYTES, 4500, 5600] == [starts.nearest(files, at) for at in (4499, 4500, 7000)]  # none of another file
    starts.cut(5599)
    assert (1100, 4500) == starts.offsets
