"""`timerlog/` as this service writes it: whole, or so that a broker skips nothing."""

import struct
from pathlib import Path

import pytest

from commitlog_svc.config_files import ConfigFiles, TimerLogFiles
from services.observing.meters import Meters, show_moved_aside
from store.errors import InvalidArgumentError, StoreReadOnlyError
from store.files.file_system import RealFileSystem
from store.format.delivery.timer_files import UNIT_SIZE_BYTES, UnitChain, blank
from tests.commitlog_svc.support import open_log
from tests.commitlog_svc.test_config_files import CuttingFileSystem, PowerCutError

FILE_SIZE_BYTES = 3 * UNIT_SIZE_BYTES + 20  # three units, and the blank behind them
NOW = 1_795_000_000_000


def units(count: int) -> bytes:
    """Units in two slots."""
    return b"".join(
        struct.pack(">iqiqiqiiq", UNIT_SIZE_BYTES, 0, 1, NOW, number % 2 * 1000, number, 300, 0, 0)
        for number in range(count)
    )


def files(root: Path, fs: object = None) -> TimerLogFiles:
    file_system = fs or RealFileSystem()
    return TimerLogFiles(file_system, root, root / "reput" / "commitlog", FILE_SIZE_BYTES, lambda: None)  # type: ignore[arg-type]


def write(log: TimerLogFiles, *parts: bytes) -> None:
    writing = log.writing()
    for part in parts:
        writing.take(part)
    writing.finish()


def test_files_have_whole_units_and_say_where_the_next_one_begins(tmp_path: Path) -> None:
    write(files(tmp_path), units(7))
    linked = UnitChain(FILE_SIZE_BYTES).link(units(7)).tobytes()
    three = 3 * UNIT_SIZE_BYTES
    assert {path.name: path.read_bytes() for path in (tmp_path / "timerlog").iterdir()} == {
        f"{0:020}": (linked[:three] + blank(FILE_SIZE_BYTES)).ljust(FILE_SIZE_BYTES, b"\0"),
        f"{FILE_SIZE_BYTES:020}": (linked[three : 2 * three] + blank(FILE_SIZE_BYTES)).ljust(FILE_SIZE_BYTES, b"\0"),
        f"{2 * FILE_SIZE_BYTES:020}": linked[2 * three :].ljust(FILE_SIZE_BYTES, b"\0"),
    }


def test_parts_of_any_size_make_the_same_files(tmp_path: Path) -> None:
    write(files(tmp_path / "one"), units(8))
    parts = [units(8)[at * UNIT_SIZE_BYTES : end * UNIT_SIZE_BYTES] for at, end in ((0, 1), (1, 5), (5, 5), (5, 8))]
    write(files(tmp_path / "other"), *parts)
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "timerlog").iterdir()} for name in ("one", "other")
    )
    assert one == other


def test_what_a_broker_left_is_replaced_in_files_of_its_size(tmp_path: Path) -> None:
    (tmp_path / "timerlog").mkdir()
    (tmp_path / "timerwheel").write_bytes(b"slots")
    for name in (f"{8192:020}", f"{16384:020}"):
        (tmp_path / "timerlog" / name).write_bytes(bytes(8192))
    write(files(tmp_path), units(1))
    assert [path.name for path in (tmp_path / "timerlog").iterdir()] == [f"{0:020}"]
    assert (tmp_path / "timerlog" / f"{0:020}").stat().st_size == 8192
    assert not (tmp_path / "timerwheel").exists()
    write(files(tmp_path))
    assert not (tmp_path / "timerlog").exists()


def test_half_a_unit_is_refused_and_the_files_stay(tmp_path: Path) -> None:
    log = files(tmp_path)
    write(log, units(1))
    before = (tmp_path / "timerlog" / f"{0:020}").read_bytes()
    with pytest.raises(InvalidArgumentError):
        write(log, units(4), units(1)[:-1])
    assert (tmp_path / "timerlog" / f"{0:020}").read_bytes() == before


def test_after_a_crash_at_any_call_the_directory_is_the_old_one_the_new_one_or_is_gone(tmp_path: Path) -> None:
    """A broker goes on behind the last unit of the last file: a part of the files would hide timers that wait."""
    found: list[list[str]] = []
    for cut_at in range(1, 200):
        root = tmp_path / str(cut_at)
        (root / "timerlog").mkdir(parents=True)
        for number in range(2):
            (root / "timerlog" / f"{number * FILE_SIZE_BYTES:020}").write_bytes(bytes(FILE_SIZE_BYTES))
        (root / "timerwheel").write_bytes(b"slots")
        cut = CuttingFileSystem(RealFileSystem(), cut_at)  # type: ignore[arg-type]  # passes all on
        try:
            write(files(root, cut), units(7))
        except PowerCutError:
            names = sorted(path.name for path in root.glob("timerlog/*"))
            found.append(names)
            assert len(names) in (0, 2, 3)
            assert (root / "timerwheel").exists() or len(names) != 2
            write(files(root), units(7))  # goes on with what the crash left
        else:
            break
        assert len(list((root / "timerlog").iterdir())) == 3
    else:
        raise AssertionError("the write never came to its end")
    assert {len(names) for names in found} == {0, 2, 3}


def test_the_call_that_writes_files_of_config_writes_timerlog_too(tmp_path: Path) -> None:
    config = ConfigFiles(RealFileSystem(), tmp_path / "config", lambda: None, files(tmp_path))
    writing = config.writing()
    writing.take("timerlog", units(2), is_last=False)
    assert not (tmp_path / "timerlog").exists()
    writing.take("timerlog", units(2), is_last=True)
    assert len(list((tmp_path / "timerlog").iterdir())) == 2
    with pytest.raises(InvalidArgumentError):
        writing.take("timerlog", units(1), is_last=True)
    with pytest.raises(InvalidArgumentError):
        config.read("timerlog")


def test_a_store_that_is_only_read_keeps_its_timerlog(tmp_path: Path) -> None:
    with open_log(tmp_path):
        pass
    with open_log(tmp_path, read_only=True) as log, pytest.raises(StoreReadOnlyError):
        log.opened.config_files.writing().take("timerlog", units(1), is_last=True)
    assert not (tmp_path / "timerlog").exists()


def test_unknown_files_of_the_directory_and_snapshots_of_the_wheel_are_moved_aside(tmp_path: Path) -> None:
    write(files(tmp_path), units(3))
    (tmp_path / "timerlog" / "notes.txt").write_bytes(b"not ours")
    (tmp_path / "timerwheel.12800").write_bytes(b"a snapshot")
    (tmp_path / "timerwheel").write_bytes(b"the wheel")
    write(files(tmp_path), units(2))
    aside = tmp_path / "reput" / "aside" / "commitlog" / "1"
    assert (aside / "timerlog" / "notes.txt").read_bytes() == b"not ours"
    assert (aside / "timerwheel.12800").read_bytes() == b"a snapshot"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reput", "timerlog"]


def test_what_the_commit_log_moved_aside_is_named_by_its_status_and_counted_by_its_metric(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        meters = Meters()
        show_moved_aside(meters, RealFileSystem(), tmp_path, "commitlog")
        (shown,) = [gauge for gauge in meters.gauges if gauge.name == "reput_store_moved_aside"]
        assert (log.status.problem, shown.read()) == ("", {("commitlog",): 0.0})
        (tmp_path / "timerwheel.12800").write_bytes(b"a snapshot")
        write(files(tmp_path), units(2))
        assert "reput/aside/commitlog/ keeps" in log.status.problem
        assert shown.read() == {("commitlog",): 1.0}
