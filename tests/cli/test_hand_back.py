"""`reput hand-back` writes the files of light queues that a broker needs: the bytes that a broker would have written."""

import json
import shutil
import struct
from pathlib import Path

import pytest

import cli.main
from cli.exits import Exit
from consumequeue_svc.light_files import LightFiles
from consumequeue_svc.light_queues import LightQueues
from store.derive.queue_placement import LightUnit
from store.files.aside import Aside
from store.files.file_system import RealFileSystem
from store.files.locks import OwnerLock
from store.files.open_files import OpenFiles
from tests.commitlog_svc.append.test_light_appends import to_queues
from tests.commitlog_svc.support import append, new_message
from tests.support.fixture_stores import unpack_store
from tests.support.stack import hosted_stack
from tests.torture.local_shard import open_shard

UNIT = struct.Struct(">qiq")
FILLER = UNIT.pack(0, (1 << 31) - 1, 0)
FILE_BYTES = 4000  # 200 units


def hand_back(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    """The exit code, and what the command prints."""
    capsys.readouterr()
    code = cli.main.main(["hand-back", str(root), "-o", "json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out.startswith("{") else {}


def files(root: Path, queue: str) -> dict[str, bytes]:
    """The files of a light queue."""
    return {path.name: path.read_bytes() for path in sorted((root / "consumequeue" / queue / "0").glob("*"))}


def fill(root: Path, *queues: tuple[str, ...]) -> list[bytes]:
    """Appends a message for each tuple of light queues; their units."""
    with open_shard(root, enable_lmq=True, queue_file_size_bytes=FILE_BYTES, file_size_bytes=1 << 20) as shard:
        receipts = [
            receipt for names in queues for receipt in append(shard.log, to_queues(*names) if names else new_message())
        ]
        shard.catch_up()
    return [UNIT.pack(receipt.commit_log_offset, receipt.store_size_bytes, 0) for receipt in receipts]


def test_each_queue_has_a_file_of_the_whole_size_and_a_second_run_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    units = fill(tmp_path, ("%LMQ%a",), ("%LMQ%a", "%LMQ%b"), (), ("%LMQ%a",))
    code, said = hand_back(tmp_path, capsys)
    assert (code, said) == (0, {"queues_written": 2, "units_written": 4, "queues_aside": 0, "kept_in": None})
    a = (units[0] + units[1] + units[3]).ljust(FILE_BYTES, b"\0")
    assert files(tmp_path, "%LMQ%a") == {f"{0:020d}": a}
    assert files(tmp_path, "%LMQ%b") == {f"{0:020d}": units[1].ljust(FILE_BYTES, b"\0")}
    assert hand_back(tmp_path, capsys)[1]["units_written"] == 0


def test_what_came_since_is_written_behind_what_a_queue_has_over_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    units = fill(tmp_path, *[("%LMQ%a",)] * 3)
    hand_back(tmp_path, capsys)
    units += fill(tmp_path, *[("%LMQ%a",)] * 450)
    assert hand_back(tmp_path, capsys)[1]["units_written"] == 450
    found = files(tmp_path, "%LMQ%a")
    assert list(found) == [f"{first:020d}" for first in (0, 4000, 8000)]
    assert b"".join(found.values()) == b"".join(units).ljust(12_000, b"\0")


@pytest.mark.parametrize("kept", [0, 1, 60, FILE_BYTES - 1])
def test_a_run_that_was_killed_in_a_file_is_finished_by_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: int
) -> None:
    fill(tmp_path, *[("%LMQ%a", "%LMQ%b")] * 250)
    hand_back(tmp_path, capsys)
    expected = files(tmp_path, "%LMQ%a"), files(tmp_path, "%LMQ%b")
    path = tmp_path / "consumequeue/%LMQ%a/0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:kept].ljust(FILE_BYTES, b"\0"))
    (path.parent / f"{FILE_BYTES:020d}").unlink()
    shutil.rmtree(tmp_path / "consumequeue/%LMQ%b/0")
    hand_back(tmp_path, capsys)
    assert (files(tmp_path, "%LMQ%a"), files(tmp_path, "%LMQ%b")) == expected


def test_files_that_say_something_else_are_moved_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, *[("%LMQ%a",)] * 3)
    hand_back(tmp_path, capsys)
    expected = files(tmp_path, "%LMQ%a")
    path = tmp_path / "consumequeue/%LMQ%a/0" / f"{0:020d}"
    wrong = UNIT.pack(7, 100, 0) + path.read_bytes()[UNIT.size :]
    for data in (wrong, path.read_bytes()[: 3 * UNIT.size].ljust(80, b"\1").ljust(FILE_BYTES, b"\0")):
        path.write_bytes(data)
        code, said = hand_back(tmp_path, capsys)
        assert (code, said["queues_aside"]) == (0, 1)
        assert files(tmp_path, "%LMQ%a") == expected
        assert (tmp_path / str(said["kept_in"]) / path.relative_to(tmp_path)).read_bytes() == data


def test_a_store_that_is_open_or_not_built_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, ("%LMQ%a",))
    lock = OwnerLock(tmp_path / "reput/consumequeue/lock", wait_seconds=0)
    lock.acquire()
    assert hand_back(tmp_path, capsys)[0] == Exit.USAGE
    lock.release()
    (tmp_path / "reput/consumequeue/checkpoint.json").unlink()
    assert hand_back(tmp_path, capsys)[0] == Exit.USAGE
    assert not list((tmp_path / "consumequeue").glob("%LMQ%*"))
    assert hand_back(tmp_path / "none", capsys)[0] == Exit.USAGE


def test_the_files_are_those_that_a_broker_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack_store("light", tmp_path / "store")
    # The broker puts a unit of the first into a wrong place, rolled back messages into the second, and messages of other topics
    # into lite topics (ADR 0154, 0156).
    brokers = {
        path.name: files(root, path.name)
        for path in (root / "consumequeue").glob("%LMQ%*")
        if path.name not in ("%LMQ%twice", "%LMQ%tx", "%LMQ%$orders$lite-1", "%LMQ%$orders$lite-2")
    }
    assert len(brokers) >= 3
    with hosted_stack(root) as stack:
        stack.wait_until_built()
    shutil.rmtree(root / "consumequeue/%LMQ%a")
    code, said = hand_back(root, capsys)
    assert code == 0
    assert {name: files(root, name) for name in brokers} == brokers
    assert said["queues_aside"] == 4


def test_a_queue_that_went_on_far_behind_removed_messages_got_a_file_for_each_of_the_positions_between(
    tmp_path: Path,
) -> None:
    file_size_bytes = 20 * 100
    light = LightQueues(OpenFiles(RealFileSystem()), tmp_path / "light")
    far = 1_000_000
    light.apply([LightUnit("%LMQ%a", 0, 0, 100, 0), LightUnit("%LMQ%gone", 7, 100, 100, 0)])
    light.apply([LightUnit("%LMQ%a", far + at, 10**9 + at * 100, 100, 0) for at in range(2)])

    LightFiles(RealFileSystem(), tmp_path, file_size_bytes, Aside(RealFileSystem(), tmp_path), 10**9).write(
        light, lambda *_: None, lambda: None
    )
    units = UNIT.pack(10**9, 100, 0) + UNIT.pack(10**9 + 100, 100, 0)
    assert files(tmp_path, "%LMQ%a") == {f"{far * 20:020d}": units.ljust(file_size_bytes, b"\0")}
    gone = FILLER * 7 + UNIT.pack(100, 100, 0)
    assert files(tmp_path, "%LMQ%gone") == {f"{0:020d}": gone.ljust(file_size_bytes, b"\0")}
