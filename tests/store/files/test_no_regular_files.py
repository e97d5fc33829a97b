"""Directories, pipes, sockets and loops of links where state and locks belong: no read hangs, and nothing is removed."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from store.errors import UnsupportedStoreError
from store.files.file_system import RealFileSystem
from store.files.json_state import NoRegularFileError, read_bytes, read_derived, read_json_state, write_json_state
from store.files.locks import BrokerLock, OwnerLock, create_abort_marker, is_held_by_other
from store.files.overlay_file_system import OverlayFileSystem
from tests.support.waiting import WAIT_SECONDS_MAX


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


KINDS: dict[str, Callable[[Path], object]] = {
    "directory": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": a_socket,
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.fixture(params=KINDS)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "f"
    KINDS[request.param](path)
    return path


def ended(work: Callable[[], object]) -> object:
    """What the work returns; fails when it hangs."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS_MAX)
    assert outcome, "it hangs"
    return outcome[0]


@pytest.mark.parametrize("make", [RealFileSystem, OverlayFileSystem])
def test_a_pipe_where_state_belongs_stopped_a_start_for_ever(foreign: Path, make: Callable[[], RealFileSystem]) -> None:
    fs = make()
    assert ended(lambda: read_json_state(fs, foreign)) is None
    assert ended(lambda: read_derived(fs, foreign)) is None
    if foreign.is_symlink() and make is OverlayFileSystem:  # it sees a loop of links as absent
        return
    assert isinstance(ended(lambda: read_bytes(fs, foreign)), NoRegularFileError)


def test_state_is_written_where_something_else_was_and_that_is_renamed(foreign: Path) -> None:
    inode = foreign.lstat().st_ino
    fs = RealFileSystem()
    ended(lambda: write_json_state(fs, foreign, {"a": 1}))
    assert read_json_state(fs, foreign) == {"a": 1}
    assert foreign.with_name("f.foreign").lstat().st_ino == inode


@pytest.mark.parametrize("kind", [OwnerLock, BrokerLock])
def test_a_lock_is_taken_where_something_else_was(foreign: Path, kind: type[OwnerLock | BrokerLock]) -> None:
    assert ended(lambda: is_held_by_other(foreign)) is False
    lock = kind(foreign, wait_seconds=0.0)
    assert ended(lock.acquire) is None
    assert foreign.is_file()
    lock.release()


@pytest.mark.parametrize("kind", ["pipe", "socket", "loop"])
def test_an_abort_marker_that_is_a_pipe_stopped_a_start_for_ever(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "abort")
    assert ended(lambda: create_abort_marker(RealFileSystem(), tmp_path)) is None
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    assert os.path.lexists(tmp_path / "abort.foreign")


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"directory"}))
def test_what_stands_where_a_directory_belongs_was_an_error_without_words(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "f")
    for path in (tmp_path / "f", tmp_path / "f" / "below"):
        with pytest.raises(UnsupportedStoreError, match="move it away"):
            RealFileSystem().mkdirs(path)
