"""A commit log on a directory, and messages for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commitlog_svc.append.records import AppendReceipt
from commitlog_svc.commit_log import CommitLog
from commitlog_svc.settings import CommitLogSettings
from reput.message.v1.message_pb2 import NewMessage
from store.errors import StoreError
from store.files.file_system import FileSystem
from store.format.host import Host

BORN_HOST = Host("10.0.0.9", 4711)


def new_message(body: bytes = b"hello", topic: str = "orders", **fields: Any) -> NewMessage:
    """A message that can be stored."""
    return NewMessage(topic=topic, body=body, **fields)


def make_log(
    root: Path,
    fs: FileSystem | None = None,
    *,
    on_fenced: Callable[[StoreError], None] = lambda error: None,
    **settings: Any,
) -> CommitLog:
    """A log that is not recovered yet; small files, so that it rolls."""
    settings = {"file_size_bytes": 16384} | settings
    return CommitLog(root, CommitLogSettings(store=root, **settings), fs, on_fenced=on_fenced)


@contextmanager
def open_log(root: Path, fs: FileSystem | None = None, **settings: Any) -> Iterator[CommitLog]:
    """A recovered log, closed cleanly at the end."""
    log = make_log(root, fs, **settings)
    log.recover()
    try:
        yield log
    finally:
        log.close()


def append(log: CommitLog, *messages: NewMessage, sync: bool | None = True) -> list[AppendReceipt]:
    """Appends messages, by default waiting for the disk."""
    return log.opened.appends.append_messages(messages, sync=sync, born_host=BORN_HOST)


def read_tree(root: Path) -> dict[str, bytes]:
    """Every file below a directory with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
