"""Each kind of damage to a consume queue, and what the audit calls it."""

import shutil
import struct
from pathlib import Path

import pytest

from store.format.derived.queue_ext import QueueExtUnit, lay_out
from tests.store.audit.support import audit, bad_codes, find, flip, patch

UNIT = struct.Struct(">qiq")
FILE_SIZE = 1280  # 64 units


def longest_queue(root: Path) -> Path:
    """The queue folder with the most files."""
    return max(
        sorted((root / "consumequeue").glob("*/*")), key=lambda directory: len(units_of(directory).rstrip(b"\0"))
    )


def units_of(directory: Path) -> bytes:
    """All files of a queue end to end."""
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


def unit_count(directory: Path) -> int:
    """How many units a queue has."""
    return -(-len(units_of(directory).rstrip(b"\0")) // 20)


def place(directory: Path, number: int) -> tuple[Path, int]:
    """The file and byte of a unit."""
    first, byte = divmod(number * 20, FILE_SIZE)
    return directory / f"{first * FILE_SIZE:020d}", byte


@pytest.mark.parametrize(("field", "word"), [(3, "commit-log offset"), (11, "size"), (19, "tags code")])
def test_each_field_of_a_unit_is_compared(field: int, word: str, copy_of_engine_crc_store: Path) -> None:
    queue = longest_queue(copy_of_engine_crc_store)
    path, byte = place(queue, 30)
    flip(path, byte + field)

    finding = find(copy_of_engine_crc_store, "QUEUE_UNIT_WRONG")

    assert (finding.file, finding.byte) == (str(path.relative_to(copy_of_engine_crc_store)), byte)
    assert word in finding.what
    assert "unit 30" in finding.what
    assert bad_codes(copy_of_engine_crc_store) == {"QUEUE_UNIT_WRONG"}


def test_swapped_units_are_wrong(copy_of_engine_crc_store: Path) -> None:
    queue = longest_queue(copy_of_engine_crc_store)
    path, byte = place(queue, 10)
    data = path.read_bytes()
    patch(path, byte, data[byte + 20 : byte + 40] + data[byte : byte + 20])

    assert find(copy_of_engine_crc_store, "QUEUE_UNIT_WRONG").count == 2


def test_zeroed_units_are_missing(copy_of_engine_crc_store: Path) -> None:
    queue = longest_queue(copy_of_engine_crc_store)
    path, byte = place(queue, 30)
    lost = UNIT.unpack_from(path.read_bytes(), byte)
    patch(path, byte, bytes(60))

    finding = find(copy_of_engine_crc_store, "QUEUE_MISSING_UNITS")

    assert (finding.byte, finding.count, finding.severity) == (byte, 3, "error")
    assert finding.commit_log_offset == lost[0]


def test_a_unit_behind_the_end_is_surplus(copy_of_engine_crc_store: Path) -> None:
    queue = longest_queue(copy_of_engine_crc_store)
    end = unit_count(queue)
    path, byte = place(queue, end)
    patch(path, byte, UNIT.pack(10**9, 100, 0))

    finding = find(copy_of_engine_crc_store, "QUEUE_SURPLUS_UNITS")

    assert (finding.byte, finding.commit_log_offset) == (byte, 10**9)
    assert "behind the log's end" in finding.what


def test_a_unit_left_behind_an_empty_one_is_surplus_too(copy_of_engine_crc_store: Path) -> None:
    queue = longest_queue(copy_of_engine_crc_store)
    path, byte = place(queue, unit_count(queue) + 1)
    patch(path, byte, UNIT.pack(0, 100, 0))

    assert find(copy_of_engine_crc_store, "QUEUE_SURPLUS_UNITS").byte == byte


def test_rmq_7355_a_lost_file_is_named_with_all_its_units(copy_of_engine_crc_store: Path) -> None:
    queue = longest_queue(copy_of_engine_crc_store)
    lost = sorted(queue.iterdir())[-1]
    lost.unlink()

    finding = find(copy_of_engine_crc_store, "QUEUE_MISSING_UNITS")

    assert (finding.file, finding.byte) == (str(lost.relative_to(copy_of_engine_crc_store)), 0)


def test_a_lost_file_in_the_middle_is_named(copy_of_broker_store: Path) -> None:
    queue = longest_queue(copy_of_broker_store)
    (queue / f"{8000:020d}").write_bytes(bytes(4000))  # made ahead
    lost = queue / f"{4000:020d}"
    count = -(-len(lost.read_bytes().rstrip(b"\0")) // 20)
    lost.unlink()

    assert find(copy_of_broker_store, "QUEUE_FILE_MISSING").file == str(lost.relative_to(copy_of_broker_store))
    assert find(copy_of_broker_store, "QUEUE_MISSING_UNITS").count == count


@pytest.mark.parametrize("size", [0, 1, 19, 20, 21, FILE_SIZE - 1, FILE_SIZE + 1])
def test_rmq_6904_a_file_of_a_wrong_length_is_named(size: int, copy_of_engine_crc_store: Path) -> None:
    path = sorted(longest_queue(copy_of_engine_crc_store).iterdir())[0]
    path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])

    finding = find(copy_of_engine_crc_store, "QUEUE_FILE_SIZE")

    assert (finding.file, finding.byte) == (str(path.relative_to(copy_of_engine_crc_store)), min(size, FILE_SIZE))


def test_a_misnamed_file_is_named(copy_of_engine_crc_store: Path) -> None:
    path = sorted(longest_queue(copy_of_engine_crc_store).iterdir())[0]
    path.rename(path.with_name(f"{7:020d}"))

    assert {"QUEUE_FILE_NAME", "QUEUE_MISSING_UNITS"} <= bad_codes(copy_of_engine_crc_store)


def test_lost_queues_are_all_missing(copy_of_engine_crc_store: Path) -> None:
    shutil.rmtree(copy_of_engine_crc_store / "consumequeue")

    found = audit(copy_of_engine_crc_store)

    assert found.findings.counts["QUEUE_MISSING_UNITS"] == 500
    assert len(found.wrong_queues) == len(found.queues_with_records)


def test_a_retired_front_of_the_log_is_no_damage_and_its_units_must_rise(copy_of_engine_crc_store: Path) -> None:
    root = copy_of_engine_crc_store
    sorted((root / "commitlog").iterdir())[0].unlink()
    assert bad_codes(root) == set()
    found = audit(root)
    assert found.log.first_offset == 262144

    queue = longest_queue(root)
    path, byte = place(queue, 1)
    first = UNIT.unpack_from(path.read_bytes())
    patch(path, byte, UNIT.pack(*first))  # twice the same

    assert find(root, "QUEUE_UNIT_ORDER").byte == byte


def test_rmq_2571_units_of_a_queue_that_the_log_does_not_know_are_surplus(copy_of_engine_crc_store: Path) -> None:
    queue = copy_of_engine_crc_store / "consumequeue" / "nobody" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(UNIT.pack(0, 100, 0).ljust(FILE_SIZE, b"\0"))

    finding = find(copy_of_engine_crc_store, "QUEUE_SURPLUS_UNITS")

    assert finding.file == f"consumequeue/nobody/0/{0:020d}"


def test_strangers_in_the_folders_are_told_and_harmless(copy_of_engine_crc_store: Path) -> None:
    queue = longest_queue(copy_of_engine_crc_store)
    (queue / "notes.txt").write_text("mine")
    (queue.parent / "x").mkdir()
    (queue.parent.parent / "file").write_text("")

    found = audit(copy_of_engine_crc_store)

    assert found.findings.is_clean
    assert found.findings.counts["QUEUE_FOREIGN_FILE"] == 3


def test_tags_codes_in_consumequeue_ext_are_compared_like_those_in_units(copy_of_engine_crc_store: Path) -> None:
    directory = longest_queue(copy_of_engine_crc_store)
    count = unit_count(directory)
    codes = []
    for number in range(count):
        path, at = place(directory, number)
        codes.append(struct.unpack_from(">q", path.read_bytes(), at + 12)[0])
    data, addresses = lay_out([QueueExtUnit(code, 0) for code in codes], 0)
    for number, address in enumerate(addresses):
        path, at = place(directory, number)
        patch(path, at + 12, struct.pack(">q", address))
    assert bad_codes(copy_of_engine_crc_store) == {"QUEUE_UNIT_WRONG"}  # without the files that the addresses name

    folder = copy_of_engine_crc_store.joinpath("consumequeue_ext", *directory.parts[-2:])
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(data)
    assert bad_codes(copy_of_engine_crc_store) == set()

    flip(folder / "00000000000000000000", 9)  # the last byte of the first tags code
    assert bad_codes(copy_of_engine_crc_store) == {"QUEUE_UNIT_WRONG"}
