"""RocketMQ's files in `config/`: which may be written, what a crash leaves, what a broker would read."""

import errno
import json
import threading
from pathlib import Path

import pytest

from commitlog_svc.config_files import BACKED_UP_NAMES, CONFIG_FILE_BYTES_MAX, NAMES, ConfigFiles
from store.errors import DiskFullError, FlushFailedError, InvalidArgumentError, StoreReadOnlyError
from store.files.file_system import RealFileSystem
from tests.commitlog_svc.support import append, new_message, open_log
from tests.support.faulty_file_system import FaultyFileSystem
from tests.torture.memory_files import MemoryFileSystem

NAME = "consumerOffset.json"
FIRST, SECOND = b'{"offsetTable":{"T@first":{"0":1}}}', b'{"offsetTable":{"T@second":{"0":2}, "T@longer": {"0":3}}}'


def files(directory: Path) -> ConfigFiles:
    return ConfigFiles(RealFileSystem(), directory / "config", lambda: None)


def as_rocketmq_loads(directory: Path, name: str) -> bytes | None:
    """`ConfigManager.load` of RocketMQ 5.3.3: the file, or the `.bak` when it is missing or empty."""
    for path in (directory / "config" / name, directory / "config" / f"{name}.bak"):
        if path.exists() and path.read_bytes():
            return path.read_bytes()
    return None


def test_a_file_replaces_the_one_before_which_stays_as_its_bak(tmp_path: Path) -> None:
    config = files(tmp_path)
    assert config.read(NAME).content is None

    config.write(NAME, FIRST)
    assert not (tmp_path / "config" / f"{NAME}.bak").exists()
    config.write(NAME, SECOND)

    assert config.read(NAME).content == SECOND == as_rocketmq_loads(tmp_path, NAME)
    assert (tmp_path / "config" / f"{NAME}.bak").read_bytes() == FIRST
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == [NAME, f"{NAME}.bak"]


def test_the_same_content_again_keeps_the_bak_and_costs_no_flush(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    config = ConfigFiles(fs, tmp_path / "config", lambda: None)
    config.write(NAME, FIRST)
    config.write(NAME, SECOND)
    flush_count = fs.count("fdatasync")

    config.write(NAME, SECOND)

    assert fs.count("fdatasync") == flush_count
    assert (tmp_path / "config" / f"{NAME}.bak").read_bytes() == FIRST


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_is_read_from_its_bak_as_a_broker_does(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / f"{NAME}.bak").write_bytes(FIRST)
    if content is not None:
        (tmp_path / "config" / NAME).write_bytes(content)

    assert files(tmp_path).read(NAME).content == FIRST == as_rocketmq_loads(tmp_path, NAME)


def test_what_a_real_broker_wrote_can_be_read_and_replaced(broker_store: Path) -> None:
    """Every file of a real store's `config/` but the topic table, which has commands of its own."""
    found = {path.name for path in (broker_store / "config").iterdir()}
    config = files(broker_store)

    assert found - {"topics.json"} <= NAMES
    assert len(found) >= 6
    for name in sorted(found - {"topics.json"}):
        assert config.read(name).content == (broker_store / "config" / name).read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "topics.json",
        "consumerOffset.json.bak",
        "consumerOffset.json.tmp",
        "../checkpoint",
        "a/b",
        "broker.properties",
    ],
)
def test_another_name_is_refused_for_reading_and_for_writing(tmp_path: Path, name: str) -> None:
    config = files(tmp_path)
    for call in (lambda: config.read(name), lambda: config.write(name, FIRST)):
        with pytest.raises(InvalidArgumentError) as refused:
            call()
        assert refused.value.metadata["field"] == "name"
    assert not (tmp_path / "config").exists()


def test_content_that_is_empty_or_too_large_is_refused_and_the_file_stays(tmp_path: Path) -> None:
    config = files(tmp_path)
    config.write(NAME, FIRST)

    for content in (b"", bytes(CONFIG_FILE_BYTES_MAX + 1)):
        with pytest.raises(InvalidArgumentError) as refused:
            config.write(NAME, content)
        assert refused.value.metadata["field"] == "content"
    assert config.read(NAME).content == FIRST
    config.write(NAME, bytes(CONFIG_FILE_BYTES_MAX))


def test_only_what_rocketmqs_config_managers_write_has_a_bak(tmp_path: Path) -> None:
    config = files(tmp_path)
    for name in NAMES:
        config.write(name, FIRST)
        config.write(name, SECOND)

    baks = {path.name.removesuffix(".bak") for path in (tmp_path / "config").glob("*.bak")}
    assert baks == BACKED_UP_NAMES == NAMES - {"timercheck"}


def test_parts_are_one_file_that_appears_with_the_last_of_them(tmp_path: Path) -> None:
    config = files(tmp_path)
    writing = config.writing()
    writing.take(NAME, FIRST[:5], is_last=False)
    assert config.read(NAME).content is None
    writing.take(NAME, FIRST[5:], is_last=True)
    assert config.read(NAME).content == FIRST

    with pytest.raises(InvalidArgumentError):
        writing.take(NAME, SECOND, is_last=True)
    other = config.writing()
    other.take(NAME, b"x", is_last=False)
    with pytest.raises(InvalidArgumentError):
        other.take("delayOffset.json", b"y", is_last=True)
    large = config.writing()
    large.take(NAME, bytes(CONFIG_FILE_BYTES_MAX), is_last=False)
    with pytest.raises(InvalidArgumentError):
        large.take(NAME, b"1", is_last=False)
    assert config.read(NAME).content == FIRST


@pytest.mark.parametrize("kind", ["open", "pwrite", "fdatasync", "rename", "fsync_dir"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_failure_at_any_call_leaves_the_old_file_or_the_new_one(tmp_path: Path, kind: str, nth: int) -> None:
    fs = FaultyFileSystem()
    config = ConfigFiles(fs, tmp_path / "config", lambda: None)
    config.write(NAME, FIRST)
    number = errno.EIO if kind in ("fdatasync", "fsync_dir") else errno.ENOSPC
    fault = fs.fail(kind, number, nth=nth, path=f"config{'' if kind == 'fsync_dir' else '/'}")

    with pytest.raises((DiskFullError, FlushFailedError)):
        config.write(NAME, SECOND)

    assert fault.hits == 1
    assert as_rocketmq_loads(tmp_path, NAME) in (FIRST, SECOND)
    config.write(NAME, SECOND)
    assert as_rocketmq_loads(tmp_path, NAME) == SECOND


def test_after_a_power_cut_there_is_a_whole_file() -> None:
    """At every call of the write, with several outcomes each: what a broker loads is the old content or the new one."""
    root = Path("/store")
    outcomes = set()
    for cut_at in range(1, 40):
        fs = MemoryFileSystem()
        fs.mkdirs(root / "config")
        ConfigFiles(fs, root / "config", lambda: None).write(NAME, FIRST)
        cut = CuttingFileSystem(fs, cut_at)
        try:
            ConfigFiles(cut, root / "config", lambda: None).write(NAME, SECOND)  # type: ignore[arg-type]  # passes all on
        except PowerCutError:
            for number in range(8):
                found = ConfigFiles(fs.power_cut(number, root), root / "config", lambda: None).read(NAME).content
                assert found in (FIRST, SECOND), (cut_at, number)
                outcomes.add(found)
        else:
            break
    else:
        raise AssertionError("the write never came to its end")
    assert outcomes == {FIRST, SECOND}


class PowerCutError(Exception):
    """The machine is gone."""


class CuttingFileSystem:
    """Passes calls on until the Nth, which is not made."""

    def __init__(self, fs: MemoryFileSystem, cut_at: int) -> None:
        self._fs = fs
        self._left = cut_at

    def __getattr__(self, name: str) -> object:
        call = getattr(self._fs, name)

        def counted(*arguments: object) -> object:
            self._left -= 1
            if self._left <= 0:
                raise PowerCutError
            return call(*arguments)

        return counted


def test_writers_at_the_same_time_leave_one_content_and_one_bak(tmp_path: Path) -> None:
    config = files(tmp_path)
    contents = [b'{"offsetTable":{},"n":"%s"}' % (bytes([number]) * (1 << 16)) for number in range(65, 81)]
    threads = [threading.Thread(target=config.write, args=(NAME, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    now, before = config.read(NAME).content, (tmp_path / "config" / f"{NAME}.bak").read_bytes()
    assert now in contents
    assert before in contents
    assert now != before


def test_a_read_only_store_shows_its_files_and_takes_none(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.opened.config_files.write(NAME, FIRST)

    with open_log(tmp_path, read_only=True) as log:
        assert log.opened.config_files.read(NAME).content == FIRST
        with pytest.raises(StoreReadOnlyError):
            log.opened.config_files.write(NAME, SECOND)
        with pytest.raises(StoreReadOnlyError):
            log.opened.config_files.writing().take(NAME, SECOND, is_last=False)
    assert as_rocketmq_loads(tmp_path, NAME) == FIRST


@pytest.mark.parametrize("is_read_only", [False, True])
def test_with_every_file_of_config_damaged_the_log_is_served_and_each_file_is_named(
    tmp_path: Path, is_read_only: bool
) -> None:
    with open_log(tmp_path) as log:
        append(log, new_message(b"found"))
    damaged = {name: bytes(64) for name in ("topics.json", *BACKED_UP_NAMES)} | {"timercheck": b"\xff" * 64}
    for name, content in damaged.items():
        (tmp_path / "config" / name).write_bytes(content)

    with open_log(tmp_path, read_only=is_read_only) as log:
        assert log.status.unreadable_config_file_count == len(damaged)
        assert all(f"config/{name} cannot be read" in log.status.problem for name in damaged)
        assert all(log.opened.config_files.read(name).content is None for name in NAMES)
        assert log.status.end_offset > 0
        if not is_read_only:
            log.opened.config_files.write(NAME, FIRST)
            assert log.opened.config_files.read(NAME) == (FIRST, "", False)
            assert f"config/{NAME} cannot be read" in log.status.problem  # until the next start

    kept = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir() if "tmp" not in path.name}
    assert kept == damaged | ({} if is_read_only else {NAME: FIRST, f"{NAME}.damaged-1": bytes(64)})


def test_a_position_that_cannot_be_read_is_told_and_taken_from_the_bak(tmp_path: Path) -> None:
    config = files(tmp_path)
    config.write(NAME, b'{"offsetTable":{"T@a":{0:3}}}')
    config.write(NAME, b'{"offsetTable":{"T@a":"?","T@b":{0:4}}}')

    found = config.read(NAME)

    assert json.loads(found.content or b"")["offsetTable"] == {"T@a": {"0": 3}, "T@b": {"0": 4}}
    assert found.problem == (
        "config/consumerOffset.json has rows that cannot be read (1: 'T@a' (it is no object)); "
        "1 of them are taken from consumerOffset.json.bak"
    )
    assert config.problems == {NAME: found.problem}


def test_a_row_that_nobody_can_read_is_told_and_makes_the_file_no_damaged_one(tmp_path: Path) -> None:
    """A service that follows a broker takes a file with a problem for one that is half written, and waits for the next."""
    content = b'{"offsetTable":{"T@a":"?","T@b":{0:4}}}'
    config = files(tmp_path)
    config.write(NAME, content)
    assert config.read(NAME) == (content, "", False)
    assert config.problems == {
        NAME: "config/consumerOffset.json has rows that cannot be read (1: 'T@a' (it is no object)); the others are used"
    }
