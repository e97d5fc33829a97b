"""The process that holds a lock, and copies of its descriptor in children of a fork."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from store.errors import StoreLockedError
from store.files.locks import BrokerLock, OwnerLock

LOCKS = pytest.mark.parametrize("kind", [OwnerLock, BrokerLock])


@LOCKS
def test_a_lock_that_this_process_holds_was_said_to_be_another_process_s(
    kind: type[OwnerLock | BrokerLock], tmp_path: pathlib.Path
) -> None:
    lock = kind(tmp_path / "lock")
    lock.acquire()
    with pytest.raises(StoreLockedError, match="is held by this process: close what has it open first"):
        kind(tmp_path / "lock", wait_seconds=0).acquire()
    lock.release()
    kind(tmp_path / "lock", wait_seconds=0).acquire()


@LOCKS
def test_a_copy_of_its_descriptor_in_a_child_kept_a_lock_held(
    kind: type[OwnerLock | BrokerLock], tmp_path: pathlib.Path
) -> None:
    lock = kind(tmp_path / "lock")
    lock.acquire()
    assert lock._fd is not None
    copy = os.dup(lock._fd)  # as a fork makes one
    lock.release()
    kind(tmp_path / "lock", wait_seconds=0).acquire()
    os.close(copy)


@LOCKS
def test_a_child_that_closes_its_copy_leaves_the_lock_to_its_parent(
    kind: type[OwnerLock | BrokerLock], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = kind(tmp_path / "lock")
    lock.acquire()
    assert lock._fd is not None
    copy = os.dup(lock._fd)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        lock.release()
    with pytest.raises(StoreLockedError, match="is held by this process"):
        kind(tmp_path / "lock", wait_seconds=0).acquire()
    os.close(copy)


@LOCKS
def test_a_child_kept_the_lock_of_its_parent_that_was_killed(
    kind: type[OwnerLock | BrokerLock], tmp_path: pathlib.Path
) -> None:
    program = f"""
import os, pathlib, signal, sys
from store.files.locks import {kind.__name__}
lock = {kind.__name__}(pathlib.Path(sys.argv[1]))
lock.acquire()
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()  # it lives until the test has ended
    lock.release()
    os._exit(0)
signal.pause()
"""
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        with pytest.raises(StoreLockedError):
            kind(tmp_path / "lock", wait_seconds=0).acquire()
        parent.kill()
        assert parent.wait() == -signal.SIGKILL
        lock = kind(tmp_path / "lock", wait_seconds=0)
        lock.acquire()
        lock.release()
