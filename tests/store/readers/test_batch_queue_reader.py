"""The range of a batch queue in its files: those of a broker, and small ones against a list of all units."""

import random
from pathlib import Path

from store.files.file_system import RealFileSystem
from store.format.derived.batch_unit import BATCH_UNIT, BATCH_UNIT_SIZE_BYTES, BatchUnit
from store.readers.batch_queue_reader import list_batch_queue_ids, read_batch_range
from tests.store.format.derived.test_batch_unit import WRITTEN

FS = RealFileSystem()


def write_queue(root: Path, data: bytes, *, topic: str = "bcq", queue_id: int = 0, file_unit_count: int = 300) -> Path:
    """Files of so many units each; the last one is filled with zeros, as a broker makes it."""
    directory = root / "batchconsumequeue" / topic / str(queue_id)
    directory.mkdir(parents=True)
    size = file_unit_count * BATCH_UNIT_SIZE_BYTES
    for at in range(0, len(data) or 1, size):
        (directory / f"{at:020}").write_bytes(data[at : at + size].ljust(size, b"\0"))
    return directory


def test_the_range_of_a_broker_s_files_is_what_its_topic_status_said(tmp_path: Path) -> None:
    """5.5.0 answered 0 and 12. Its `correctMinOffset` counts units of records before the log's first byte as removed."""
    write_queue(tmp_path, WRITTEN)
    found = read_batch_range(FS, tmp_path, "bcq", 0, 0, 10_000)
    assert found is not None
    assert (found.min_offset, found.max_offset, found.last.commit_log_offset) == (0, 12, 1032)
    firsts = [read_batch_range(FS, tmp_path, "bcq", 0, first, 10_000) for first in (1, 720, 721, 1032, 1033)]
    assert [each.min_offset for each in firsts if each is not None] == [3, 3, 5, 5, 12]


def test_every_range_is_that_of_a_list_of_all_units(tmp_path: Path) -> None:
    rng = random.Random(7)
    for number in range(60):
        units: list[BatchUnit] = []
        at, position = rng.randrange(1000), rng.randrange(50)
        for _ in range(rng.randrange(12)):
            unit = BatchUnit(at, rng.randrange(100, 900), 0, 1, position, rng.randrange(1, 9), -1, 0)
            units.append(unit)
            at, position = unit.next_offset + rng.randrange(500), position + unit.message_count
        root = tmp_path / str(number)
        write_queue(root, b"".join(BATCH_UNIT.pack(*unit) for unit in units), file_unit_count=rng.randrange(1, 5))
        for _ in range(10):
            first, end = sorted((rng.randrange(at + 100), rng.randrange(at + 100)))
            whole = [unit for unit in units if unit.next_offset <= end]
            found = read_batch_range(FS, root, "bcq", 0, first, end)
            if not whole:
                assert found is None
                continue
            max_offset = whole[-1].queue_offset + whole[-1].message_count
            min_offset = next((unit.queue_offset for unit in whole if unit.commit_log_offset >= first), max_offset)
            assert found == (min_offset, max_offset, whole[-1])


def test_what_is_no_queue_of_batches_is_not_listed(tmp_path: Path) -> None:
    assert list_batch_queue_ids(FS, tmp_path) == []
    write_queue(tmp_path, WRITTEN, queue_id=1)
    for name in ("bcq/x", "bcq/007", "other/2"):
        (tmp_path / "batchconsumequeue" / name).mkdir(parents=True)
    (tmp_path / "batchconsumequeue" / "file").write_bytes(b"x")
    assert list_batch_queue_ids(FS, tmp_path) == [("bcq", 1), ("other", 2)]
    assert read_batch_range(FS, tmp_path, "other", 2, 0, 10_000) is None
