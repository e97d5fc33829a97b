"""`reput fsck` of stores with ConsumeQueueExt: damage is found, and a repair keeps what the services had."""

import shutil
from pathlib import Path

import pytest

import cli.main
from tests.consumequeue_svc.test_queue_ext_files import EXT_FILE_SIZE, built, files_of
from tests.support.dispatches import requests_of

CLEAN, FOUND, _, REPAIRED = range(4)


@pytest.fixture
def ext_store(broker_store: Path, tmp_path: Path) -> Path:
    """A store with the files of ConsumeQueueExt, as we write them."""
    root = tmp_path / "store"
    shutil.copytree(broker_store, root, ignore=shutil.ignore_patterns("consumequeue"))
    built(root, requests_of(root))
    return root


def fsck(*arguments: object) -> int:
    return cli.main.main(["fsck", *map(str, arguments)])


def flip_a_tags_code(root: Path) -> None:
    path = root / f"consumequeue_ext/b_order/0/{EXT_FILE_SIZE:020d}"
    data = bytearray(path.read_bytes())
    data[49] ^= 1
    path.write_bytes(data)


def test_a_wrong_tags_code_is_found_and_repaired(ext_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(ext_store)
    assert fsck(ext_store) == CLEAN
    flip_a_tags_code(ext_store)

    assert fsck(ext_store) == FOUND
    assert "QUEUE_UNIT_WRONG" in capsys.readouterr().out
    assert fsck(ext_store, "--repair") == REPAIRED

    assert files_of(ext_store) == before
    assert fsck(ext_store) == CLEAN


def test_a_repair_of_a_brokers_store_puts_its_ext_files_aside(ext_store: Path) -> None:
    shutil.rmtree(ext_store / "reput")  # nothing says that these files are ours
    flip_a_tags_code(ext_store)

    assert fsck(ext_store, "--repair") == REPAIRED

    assert not (ext_store / "consumequeue_ext").exists()
    assert list((ext_store / "reput/fsck").glob("*/consumequeue_ext/b_order/0/*"))
    assert fsck(ext_store) == CLEAN
