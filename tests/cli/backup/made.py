"""Logs to back up, and what a restored log is to be, by brute force."""

from pathlib import Path

from store.format.checkpoint import encode_durable_mark
from store.format.record import PreparedMessage
from tests.support.archives import message, write_log
from tests.support.fixture_stores import walk_frames

FILE_BYTES = 1 << 12
BROKER = "broker-a"


def messages(count: int, first: int = 0) -> list[PreparedMessage]:
    return [message(n, keys=f"k{n}", queue_id=n % 2) for n in range(first, first + count)]


def log_end(root: Path) -> int:
    *_, (offset, frame) = walk_frames(root)
    return offset + len(frame)


def mark(root: Path, offset: int) -> None:
    """The owner has flushed so much of the log."""
    own = root / "reput" / "commitlog"
    own.mkdir(parents=True, exist_ok=True)
    (own / "durable").write_bytes(encode_durable_mark(offset))


def stopped_store(root: Path, count: int = 60, first: int = 0) -> Path:
    """A store that was stopped cleanly, with some log files."""
    write_log(root, messages(count, first), file_bytes=FILE_BYTES)
    mark(root, log_end(root))
    return root


def log_bytes(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def prefix(root: Path, end: int, file_bytes: int = FILE_BYTES) -> dict[str, bytes]:
    """The files of a log that ends there: zeros behind the end, no file behind it."""
    return {
        name: data[: max(end - int(name), 0)].ljust(file_bytes, b"\0")
        for name, data in log_bytes(root).items()
        if int(name) < end
    }
