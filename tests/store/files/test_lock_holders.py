"""Who holds a lock, and copies of its descriptor in children of a fork."""

import os
import pathlib

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
