"""`reput fsck` compares the files of light queues with the log, and `--repair` builds them again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from store.format.derived.light_unit import ENTRY_SIZE_BYTES, decode_light_entry, encode_light_entry
from tests.cli.test_fsck import CLEAN, FOUND, REPAIRED, fsck
from tests.commitlog_svc.append.test_light_appends import to_queues
from tests.commitlog_svc.support import append, new_message
from tests.store.audit.support import bad_codes
from tests.torture.local_shard import open_shard


def units_file(root: Path) -> Path:
    """The entries."""
    return next((root / "reput/consumequeue/light").glob("units.*"))


def damage_an_entry(root: Path) -> None:
    data = bytearray(units_file(root).read_bytes())
    data[ENTRY_SIZE_BYTES + 20] ^= 1
    units_file(root).write_bytes(data)


def move_a_unit(root: Path) -> None:
    """A sound entry of another position."""
    data = bytearray(units_file(root).read_bytes())
    entry = decode_light_entry(bytes(data[ENTRY_SIZE_BYTES : 2 * ENTRY_SIZE_BYTES]))
    assert entry is not None
    data[ENTRY_SIZE_BYTES : 2 * ENTRY_SIZE_BYTES] = encode_light_entry(entry._replace(queue_offset=77))
    units_file(root).write_bytes(data)


def lose_the_names(root: Path) -> None:
    next((root / "reput/consumequeue/light").glob("names.*")).write_bytes(b"")


def lose_the_last_entry(root: Path) -> None:
    units_file(root).write_bytes(units_file(root).read_bytes()[:-ENTRY_SIZE_BYTES])


def lose_the_folder(root: Path) -> None:
    for path in (root / "reput/consumequeue/light").iterdir():
        path.unlink()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_shard(tmp_path, enable_lmq=True, file_size_bytes=1 << 20) as shard:
        for number in range(20):
            append(shard.log, to_queues("%LMQ%a", f"%LMQ%{number}") if number % 3 else new_message())
        shard.catch_up()
    return tmp_path


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (damage_an_entry, {"LIGHT_UNIT_WRONG", "LIGHT_UNIT_MISSING"}),
        (move_a_unit, {"LIGHT_UNIT_WRONG", "LIGHT_UNIT_MISSING"}),
        (lose_the_names, {"LIGHT_UNIT_WRONG", "LIGHT_UNIT_MISSING"}),
        (lose_the_last_entry, {"LIGHT_UNIT_WRONG", "LIGHT_UNIT_MISSING"}),
        (lose_the_folder, {"LIGHT_UNIT_WRONG", "LIGHT_UNIT_MISSING"}),
    ],
)
def test_what_differs_from_the_log_is_found_and_built_again(
    root: Path, change: Callable[[Path], None], codes: set[str]
) -> None:
    assert fsck(root) == CLEAN
    before = units_file(root).read_bytes()
    change(root)
    assert bad_codes(root) == codes
    assert fsck(root) == FOUND
    assert fsck(root, "--repair") == REPAIRED
    assert fsck(root) == CLEAN
    assert units_file(root).read_bytes() == before


def test_a_record_that_the_log_lost_is_no_fault_of_the_light_queues(root: Path) -> None:
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    at = data.index(b"%LMQ%7\x02")
    data[at] ^= 1
    log.write_bytes(data)
    codes = bad_codes(root)
    assert codes
    assert not {code for code in codes if code.startswith("LIGHT")}


def test_files_that_the_next_start_builds_anew_are_not_compared(root: Path) -> None:
    damage_an_entry(root)
    (root / "reput/consumequeue/checkpoint.json").unlink()
    assert not {code for code in bad_codes(root) if code.startswith("LIGHT")}


def test_a_repair_of_ordinary_queues_keeps_the_light_ones(root: Path) -> None:
    """It built all queues from records without their places in light queues, which were empty then."""
    before = units_file(root).read_bytes()
    path = next((root / "consumequeue/orders").rglob(f"{0:020d}"))
    path.write_bytes(bytes(len(path.read_bytes())))
    assert fsck(root, "--repair") == REPAIRED
    assert units_file(root).read_bytes() == before
