"""Ext units read from the files that RocketMQ wrote (`tests/rocketmq/queue_ext_probe.py`)."""

import json
from pathlib import Path

import pytest

from store.files.file_system import RealFileSystem
from store.files.open_files import OpenFiles
from store.format.derived.queue_ext import QueueExtUnit, ext_address
from store.format.derived.queue_unit import QueueUnit
from store.format.paths import queue_dir
from store.readers.queue_reader import QueueExtUnits

WRITTEN = json.loads((Path(__file__).parents[1] / "format" / "derived" / "data" / "queue_ext.json").read_text())
UNITS = [QueueExtUnit(code, time, bytes.fromhex(bit_map)) for code, time, bit_map in WRITTEN["units"]]
ADDRESSES = WRITTEN["addresses"]
NAMES = sorted(WRITTEN["files"])


def write_files(root: Path, names: list[str]) -> Path:
    folder = root / "consumequeue_ext" / "t" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(bytes.fromhex(WRITTEN["files"][name]))
    return folder


@pytest.fixture
def ext(tmp_path: Path) -> QueueExtUnits:
    return QueueExtUnits(OpenFiles(RealFileSystem()), Path(queue_dir(str(tmp_path), "t", 0)))


def units_of(addresses: list[int]) -> list[QueueUnit]:
    return [QueueUnit(1000 * number, 100, address) for number, address in enumerate(addresses)]


def test_every_address_leads_to_its_unit(ext: QueueExtUnits, tmp_path: Path) -> None:
    write_files(tmp_path, NAMES)
    assert [ext.unit(address) for address in ADDRESSES] == UNITS


@pytest.mark.parametrize("order", [1, -1])
def test_queue_units_get_their_tags_codes_back(ext: QueueExtUnits, tmp_path: Path, order: int) -> None:
    write_files(tmp_path, NAMES)
    units = units_of(ADDRESSES)[::order]
    codes = [unit.tags_code for unit in UNITS][::order]
    assert list(ext.resolved(units)) == [unit._replace(tags_code=code) for unit, code in zip(units, codes, strict=True)]


def test_units_that_hold_a_tags_code_stay_as_they_are_without_any_file(ext: QueueExtUnits) -> None:
    units = units_of([0, 2112, -(2**31), 1_700_000_000_000])
    assert list(ext.resolved(units)) == units


def test_an_address_that_leads_nowhere_stays(ext: QueueExtUnits, tmp_path: Path) -> None:
    assert list(ext.resolved(units_of(ADDRESSES))) == units_of(ADDRESSES)  # no folder
    folder = write_files(tmp_path, NAMES[1:])
    expired = WRITTEN["file_size_bytes"]
    for address, unit in zip(ADDRESSES, UNITS, strict=True):
        assert ext.unit(address) == (None if address < ext_address(expired) else unit)
    (folder / NAMES[1]).write_bytes(b"")
    assert ext.unit(ext_address(expired)) is None
    assert ext.unit(ext_address(10**15)) is None


def test_files_that_appear_and_expire_are_noticed(ext: QueueExtUnits, tmp_path: Path) -> None:
    folder = write_files(tmp_path, NAMES[:1])
    assert ext.unit(ADDRESSES[-1]) is None
    write_files(tmp_path, NAMES)
    assert ext.unit(ADDRESSES[-1]) == UNITS[-1]
    (folder / NAMES[0]).unlink()
    assert ext.unit(ADDRESSES[-1]) == UNITS[-1]
