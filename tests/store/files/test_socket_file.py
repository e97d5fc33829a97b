"""A socket's name: it takes the place of a dead process's socket, and is removed only by the process that made it."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from store.files.socket_file import PATH_BYTES_MAX, SocketFile


def bound(file: SocketFile) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(file.bind_path)
    return made


def test_a_published_socket_is_found_at_its_path_by_its_user_alone(tmp_path: Path) -> None:
    file = SocketFile(str(tmp_path / "s"))
    with bound(file) as listener:
        listener.listen(1)
        file.publish()
        assert os.listdir(tmp_path) == ["s"]
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(tmp_path / "s"))

    file.remove()

    assert os.listdir(tmp_path) == []


def test_what_a_dead_process_left_is_replaced_and_a_file_is_not(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "left"))
    (tmp_path / "file").write_text("mine")

    left, file = SocketFile(str(tmp_path / "left")), SocketFile(str(tmp_path / "file"))
    with bound(left), bound(file):
        left.publish()
        with pytest.raises(OSError, match="not a socket"):
            file.publish()

    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "left"]


def test_a_socket_that_has_taken_the_path_since_is_not_removed(tmp_path: Path) -> None:
    first, second = SocketFile(str(tmp_path / "s")), SocketFile(str(tmp_path / "s"))
    with bound(first), bound(second):
        first.publish()
        second.publish()

        first.remove()
        assert (tmp_path / "s").exists()
        second.remove()
        assert not (tmp_path / "s").exists()


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=str(PATH_BYTES_MAX)):
        SocketFile(f"/tmp/{'x' * PATH_BYTES_MAX}")  # never made


def test_processes_with_equal_numbers_bind_to_different_names(tmp_path: Path) -> None:
    # A process number is unique in its PID namespace only.
    code = (
        "import os, sys; os.getpid = lambda: 7; from store.files.socket_file import SocketFile;"
        "print(SocketFile(sys.argv[1]).bind_path)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    assert len({subprocess.check_output(command) for _ in range(2)}) == 2


def test_a_path_beside_which_nothing_can_be_bound_is_refused() -> None:
    with pytest.raises(OSError, match="at most 107 bytes"):
        SocketFile(f"/{'x' * (PATH_BYTES_MAX - 4)}/s")  # never made
