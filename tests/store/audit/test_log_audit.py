"""Each kind of damage to the log, and what the audit calls it."""

import shutil
import struct
import zlib
from pathlib import Path

import pytest

from store.format.record import decode_record, patch_record
from tests.store.audit.support import audit, bad_codes, find, flip, patch, records
from tests.support.fixture_stores import STORE_NAMES, unpack_store

MIDDLE = 250


@pytest.mark.parametrize("name", STORE_NAMES)
def test_stores_of_rocketmq_are_clean(name: str, tmp_path: Path) -> None:
    found = audit(unpack_store(name, tmp_path / name))

    assert [finding for finding in found.findings.kept if finding.severity != "info"] == []
    assert found.unit_count == found.log.record_count == {"broker": 2784, "crashed": 2784}.get(name, 500)
    assert found.key_count == found.entry_count
    assert ("LOG_RECORD_UNGUARDED" in found.findings.counts) == (name != "engine_crc")
    assert ("ABORT_FOUND" in found.findings.counts) == (name == "crashed")


@pytest.mark.parametrize("part", ["first", "body", "properties", "last"])
def test_a_flipped_bit_of_a_record_is_damage_at_that_record(part: str, copy_of_engine_crc_store: Path) -> None:
    next_offset = records(copy_of_engine_crc_store)[MIDDLE + 1][2]
    path, byte, offset, frame = records(copy_of_engine_crc_store)[MIDDLE]
    record = decode_record(frame)
    at = {"first": 0, "body": frame.index(record.body), "properties": len(frame) - 40, "last": len(frame) - 1}[part]
    flip(path, byte + at)

    finding = find(copy_of_engine_crc_store, "LOG_DAMAGED")

    assert (finding.file, finding.byte, finding.commit_log_offset) == (f"commitlog/{path.name}", byte, offset)
    assert finding.severity == "error"
    assert f"the next whole record is at {next_offset}" in finding.what
    assert bad_codes(copy_of_engine_crc_store) == {"LOG_DAMAGED"}
    log = audit(copy_of_engine_crc_store).log
    assert (log.end_offset, log.record_count, log.records_behind_damage) == (offset, 499, 499 - MIDDLE)


def test_two_damaged_records_are_two_findings(copy_of_engine_crc_store: Path) -> None:
    all_records = records(copy_of_engine_crc_store)
    for number in (100, 400):
        path, byte, _, _ = all_records[number]
        flip(path, byte + 60)

    found = audit(copy_of_engine_crc_store)

    offsets = [f.commit_log_offset for f in found.findings.kept if f.code == "LOG_DAMAGED"]
    assert offsets == [all_records[100][2], all_records[400][2]]
    assert found.log.record_count == 498
    assert found.findings.counts["QUEUE_UNITS_OF_DAMAGED_RECORDS"] == 2
    assert "INDEX_ENTRIES_OF_DAMAGED_RECORDS" in found.findings.counts


def test_a_zeroed_record_with_records_behind_is_a_hole(copy_of_engine_crc_store: Path) -> None:
    path, byte, offset, frame = records(copy_of_engine_crc_store)[MIDDLE]
    patch(path, byte, bytes(len(frame)))

    finding = find(copy_of_engine_crc_store, "LOG_HOLE")

    assert (finding.byte, finding.commit_log_offset) == (byte, offset)


def test_a_torn_last_record_is_a_torn_tail_and_its_unit_and_keys_are_surplus(copy_of_engine_crc_store: Path) -> None:
    path, byte, offset, frame = records(copy_of_engine_crc_store)[-1]
    patch(path, byte + len(frame) - 37, bytes(37))

    finding = find(copy_of_engine_crc_store, "LOG_TORN_TAIL")

    assert (finding.file, finding.byte, finding.severity) == (f"commitlog/{path.name}", byte, "warning")
    assert bad_codes(copy_of_engine_crc_store) <= {"LOG_TORN_TAIL", "QUEUE_SURPLUS_UNITS", "INDEX_SURPLUS_ENTRIES"}
    assert find(copy_of_engine_crc_store, "QUEUE_SURPLUS_UNITS").commit_log_offset == offset


def test_noise_behind_the_last_record_is_a_torn_tail(copy_of_engine_crc_store: Path) -> None:
    path, byte, offset, frame = records(copy_of_engine_crc_store)[-1]
    patch(path, byte + len(frame), b"\x01\x02\x03\x04noise that nobody wrote")

    finding = find(copy_of_engine_crc_store, "LOG_TORN_TAIL")

    assert (finding.byte, finding.commit_log_offset) == (byte + len(frame), offset + len(frame))


def test_rmq_10017_a_whole_record_of_a_reused_file_is_no_record_at_another_place(
    copy_of_engine_crc_store: Path,
) -> None:
    path, byte, offset, frame = records(copy_of_engine_crc_store)[-1]
    patch(path, byte + len(frame), frame)

    found = audit(copy_of_engine_crc_store)

    assert found.log.end_offset == offset + len(frame)
    assert bad_codes(copy_of_engine_crc_store) == {"LOG_TORN_TAIL"}


def test_bytes_behind_zeros_are_stale_and_named_to_the_byte(copy_of_engine_crc_store: Path) -> None:
    path, byte, offset, frame = records(copy_of_engine_crc_store)[-1]
    patch(path, byte + len(frame) + 1000, b"old")

    finding = find(copy_of_engine_crc_store, "LOG_STALE_BYTES")

    assert (finding.byte, finding.commit_log_offset) == (byte + len(frame) + 1000, offset + len(frame) + 1000)


def test_a_damaged_blank_is_damage(copy_of_engine_crc_store: Path) -> None:
    path, byte, offset, frame = max(
        (record for record in records(copy_of_engine_crc_store) if record[0].name == "0" * 20), key=lambda one: one[1]
    )
    flip(path, byte + len(frame) + 3)

    finding = find(copy_of_engine_crc_store, "LOG_DAMAGED")

    assert (finding.byte, finding.commit_log_offset) == (byte + len(frame), offset + len(frame))


def test_a_missing_file_is_named(copy_of_engine_crc_store: Path) -> None:
    (copy_of_engine_crc_store / "commitlog" / f"{262144:020d}").unlink()

    finding = find(copy_of_engine_crc_store, "LOG_FILE_MISSING")

    assert (finding.file, finding.byte) == (f"commitlog/{262144:020d}", 0)
    assert audit(copy_of_engine_crc_store).log.records_behind_damage > 0


def test_short_long_and_misnamed_files_are_named(copy_of_engine_crc_store: Path) -> None:
    directory = copy_of_engine_crc_store / "commitlog"
    first, second, third = sorted(directory.iterdir())
    first.write_bytes(first.read_bytes() + b"more")
    second.write_bytes(second.read_bytes()[:1000])
    shutil.copy(third, directory / f"{1000:020d}")
    (directory / "notes.txt").write_text("mine")

    found = audit(copy_of_engine_crc_store).findings

    sizes = {(f.file, f.byte) for f in found.kept if f.code == "LOG_FILE_SIZE"}
    assert sizes == {(f"commitlog/{first.name}", 262144), (f"commitlog/{second.name}", 1000)}
    assert [f.file for f in found.kept if f.code == "LOG_FILE_NAME"] == [f"commitlog/{1000:020d}"]
    assert [(f.file, f.severity) for f in found.kept if f.code == "LOG_FOREIGN_FILE"] == [
        ("commitlog/notes.txt", "info")
    ]


@pytest.mark.parametrize("name", ["90000000000000000000", f"{1 << 62:020d}"])
def test_a_first_file_whose_new_name_is_no_offset_was_taken_for_a_log_that_begins_later(
    copy_of_engine_crc_store: Path, name: str
) -> None:
    directory = copy_of_engine_crc_store / "commitlog"
    min(directory.iterdir()).rename(directory / name)

    assert find(copy_of_engine_crc_store, "LOG_FILE_NAME").file == f"commitlog/{name}"


def test_a_last_file_that_was_never_finished_is_a_warning(copy_of_engine_crc_store: Path) -> None:
    (copy_of_engine_crc_store / "commitlog" / f"{3 * 262144:020d}").write_bytes(b"")

    assert find(copy_of_engine_crc_store, "LOG_FILE_UNFINISHED").severity == "warning"
    assert bad_codes(copy_of_engine_crc_store) == {"LOG_FILE_UNFINISHED"}


@pytest.mark.parametrize(("step", "code"), [(1, "LOG_QUEUE_OFFSET_GAP"), (-1, "LOG_QUEUE_OFFSET_TAKEN")])
def test_rmq_467_queue_offsets_with_a_hole_or_twice_are_found(
    step: int, code: str, copy_of_engine_crc_store: Path
) -> None:
    decoded = [(*record, decode_record(record[3])) for record in records(copy_of_engine_crc_store)]
    path, byte, offset, frame, record = [one for one in decoded if one[4].queue_offset > 1][-1]
    changed = bytearray(frame)
    patch_record(changed, record.queue_offset + step, offset, record.store_time_millis)
    patch(path, byte, bytes(changed))

    finding = find(copy_of_engine_crc_store, code)

    assert (finding.byte, finding.commit_log_offset, finding.count) == (byte, offset, 1)


def test_a_log_shorter_than_what_was_flushed_is_damage(copy_of_engine_crc_store: Path) -> None:
    end = audit(copy_of_engine_crc_store).log.end_offset
    state = copy_of_engine_crc_store / "reput" / "commitlog"
    state.mkdir(parents=True)
    offset = (end + 1).to_bytes(8, "big")
    (state / "durable").write_bytes(offset + struct.pack(">I", zlib.crc32(offset)))

    finding = find(copy_of_engine_crc_store, "LOG_SHORTER_THAN_FLUSHED")

    assert (finding.severity, finding.commit_log_offset) == ("error", end)


def test_an_empty_root_is_clean(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    found = audit(tmp_path)

    assert found.findings.is_clean
    assert (found.log.record_count, found.total_bytes) == (0, 0)
