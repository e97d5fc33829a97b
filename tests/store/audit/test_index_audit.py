"""Each kind of damage to an index, and what the audit calls it."""

import shutil
import struct
from pathlib import Path

import pytest

from tests.store.audit.support import audit, bad_codes, find, flip, patch

SLOT_COUNT, ENTRY_COUNT_MAX = 97, 200
ENTRIES_AT = 40 + SLOT_COUNT * 4


def files(root: Path) -> list[Path]:
    """The index files, oldest first."""
    return sorted((root / "index").iterdir())


def entry_at(number: int) -> int:
    """The byte of an entry."""
    return ENTRIES_AT + number * 20


def entry_of(path: Path, number: int) -> tuple[int, int, int, int]:
    """An entry's four numbers."""
    return struct.unpack_from(">iqii", path.read_bytes(), entry_at(number))


@pytest.mark.parametrize(
    ("field", "code", "at"),
    [
        (3, "INDEX_ENTRY_WRONG", 0),
        (11, "INDEX_ENTRY_WRONG", 0),
        (15, "INDEX_ENTRY_WRONG", 0),
        (19, "INDEX_CHAIN_WRONG", 16),
        (16, "INDEX_CYCLE", 16),
    ],
)
def test_each_field_of_an_entry_is_compared(field: int, code: str, at: int, copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[1]
    flip(path, entry_at(50) + field)

    finding = find(copy_of_engine_crc_store, code)

    assert (finding.file, finding.byte) == (f"index/{path.name}", entry_at(50) + at)
    assert "entry 50" in finding.what
    assert bad_codes(copy_of_engine_crc_store) == {code}


@pytest.mark.parametrize("number", [1, 50, 199])
def test_rmq_8018_an_entry_that_points_to_itself_is_a_cycle(number: int, copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[2]
    patch(path, entry_at(number) + 16, struct.pack(">i", number))

    assert find(copy_of_engine_crc_store, "INDEX_CYCLE").byte == entry_at(number) + 16


def test_rmq_8018_two_entries_that_point_to_each_other_are_a_cycle(copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[0]
    patch(path, entry_at(20) + 16, struct.pack(">i", 30))
    patch(path, entry_at(30) + 16, struct.pack(">i", 20))

    found = [f for f in audit(copy_of_engine_crc_store).findings.kept if f.severity == "error"]

    assert ("INDEX_CYCLE", entry_at(20) + 16) in {(f.code, f.byte) for f in found}
    assert len(found) == 2


@pytest.mark.parametrize("field", range(6))
def test_each_field_of_a_header_is_compared(field: int, copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[1]
    flip(path, (7, 15, 23, 31, 35, 39)[field])

    finding = find(copy_of_engine_crc_store, "INDEX_HEADER_WRONG")

    word = ("begin time", "end time", "begin offset", "end offset", "used slots", "entries")[field]
    assert (finding.file, finding.byte) == (f"index/{path.name}", 0)
    assert word in finding.what
    assert bad_codes(copy_of_engine_crc_store) == {"INDEX_HEADER_WRONG"}


@pytest.mark.parametrize("value", [0, 1, 199, 200, -1, 2**31 - 1])
def test_each_slot_is_compared(value: int, copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[1]
    slot = next(
        slot for slot in range(SLOT_COUNT) if struct.unpack_from(">i", path.read_bytes(), 40 + slot * 4)[0] != value
    )
    patch(path, 40 + slot * 4, struct.pack(">i", value))

    finding = find(copy_of_engine_crc_store, "INDEX_SLOT_WRONG")

    assert finding.byte == 40 + slot * 4
    assert bad_codes(copy_of_engine_crc_store) == {"INDEX_SLOT_WRONG"}


def test_a_key_without_an_entry_is_missing(copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[-1]
    count = struct.unpack_from(">i", path.read_bytes(), 36)[0] - 1
    offset = entry_of(path, count)[1]
    patch(path, entry_at(count), bytes(20))

    finding = find(copy_of_engine_crc_store, "INDEX_MISSING_KEYS")

    assert (finding.commit_log_offset, finding.count, finding.severity) == (offset, 1, "error")


def test_rmq_3868_a_thrown_away_last_file_is_missing_keys(copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[-1]
    count = struct.unpack_from(">i", path.read_bytes(), 36)[0] - 1
    path.unlink()

    assert find(copy_of_engine_crc_store, "INDEX_MISSING_KEYS").count == count


def test_a_lost_file_in_the_middle_is_missing_keys(copy_of_engine_crc_store: Path) -> None:
    files(copy_of_engine_crc_store)[2].unlink()

    finding = find(copy_of_engine_crc_store, "INDEX_MISSING_KEYS")

    assert (finding.count, finding.byte) == (ENTRY_COUNT_MAX - 1, entry_at(1))
    assert finding.file == f"index/{files(copy_of_engine_crc_store)[2].name}"


def test_a_lost_index_is_all_its_keys(copy_of_engine_crc_store: Path) -> None:
    shutil.rmtree(copy_of_engine_crc_store / "index")

    found = audit(copy_of_engine_crc_store).findings

    assert found.counts["INDEX_MISSING_KEYS"] == 1009
    assert not found.is_clean


def test_keys_of_the_newest_record_written_twice_are_told_and_harmless(copy_of_engine_crc_store: Path) -> None:
    """What RocketMQ's re-dispatch after a crash does: 6,250 entries for 6,249 keys."""
    import numpy as np

    from store.derive.index_state import IndexFileState
    from store.format.derived.index_layout import decode_index_header, encode_index_header

    path = files(copy_of_engine_crc_store)[-1]
    data = bytearray(path.read_bytes())
    header = decode_index_header(data)
    heads = np.frombuffer(bytes(data[40:ENTRIES_AT]), dtype=">i4").astype(np.int32)
    state = IndexFileState(SLOT_COUNT, ENTRY_COUNT_MAX, header, heads)
    last = entry_of(path, header.entry_count - 1)
    run = state.plan(np.array([last[0]]), np.array([last[1]]), np.array([header.end_time_millis]))
    state.commit(run)
    data[entry_at(run.first_number) : entry_at(run.first_number) + 20] = run.data
    data[40:ENTRIES_AT] = state.heads.astype(">i4").tobytes()
    data[:40] = encode_index_header(state.header)
    path.write_bytes(data)

    found = audit(copy_of_engine_crc_store)

    assert found.findings.is_clean
    assert found.findings.counts["INDEX_KEYS_TWICE"] == 1
    assert found.entry_count == found.key_count + 1


@pytest.mark.parametrize("size", [0, 39, 40, 1000, 4427, 4429])
def test_a_file_of_a_wrong_length_is_named(size: int, copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[1]
    assert path.stat().st_size == 4428
    path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])

    finding = find(copy_of_engine_crc_store, "INDEX_FILE_SIZE")

    assert (finding.file, finding.byte) == (f"index/{path.name}", min(size, 4428))


def test_files_that_say_nothing_are_unreadable(copy_of_engine_crc_store: Path) -> None:
    for path in files(copy_of_engine_crc_store):
        path.write_bytes(b"\xff" * 4428)

    assert {"INDEX_UNREADABLE", "INDEX_MISSING_KEYS"} <= bad_codes(copy_of_engine_crc_store)


def test_the_layout_is_found_in_the_log_when_the_headers_are_gone(copy_of_engine_crc_store: Path) -> None:
    for path in files(copy_of_engine_crc_store):
        patch(path, 0, bytes(40))

    found = audit(copy_of_engine_crc_store)

    assert (found.index_layout.slot_count, found.index_layout.entry_count_max) == (SLOT_COUNT, ENTRY_COUNT_MAX)
    assert bad_codes(copy_of_engine_crc_store) == {"INDEX_HEADER_WRONG"}


def test_bytes_behind_the_last_entry_and_in_entry_0_are_found(copy_of_engine_crc_store: Path) -> None:
    path = files(copy_of_engine_crc_store)[-1]
    patch(path, 4400, b"x")
    patch(files(copy_of_engine_crc_store)[0], entry_at(0) + 5, b"x")

    assert {"INDEX_SURPLUS_ENTRIES", "INDEX_ENTRY_WRONG"} <= bad_codes(copy_of_engine_crc_store)


def test_entries_of_retired_records_are_no_damage(copy_of_engine_crc_store: Path) -> None:
    sorted((copy_of_engine_crc_store / "commitlog").iterdir())[0].unlink()

    found = audit(copy_of_engine_crc_store)

    assert found.findings.is_clean, found.findings.kept
    assert found.key_count < found.entry_count
