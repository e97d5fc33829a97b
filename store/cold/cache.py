"""PageCache: what was read from an object store, in files of a directory, within a limit; the oldest use goes first."""

import hashlib
import os
import secrets
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock

_TEMPORARY = ".tmp"


class PageCache:
    """Keeps pieces of objects. Thread-safe. A piece that a disk loses or refuses is read from the store again.

    Args:
        directory: its own; made if absent. What an earlier process left is used, so far as it fits.
        bytes_max: the limit of all pieces; 0: keeps nothing.
    """

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory = directory
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._total_bytes = 0
        directory.mkdir(parents=True, exist_ok=True)
        files = []
        for path in directory.iterdir():
            if path.name.endswith(_TEMPORARY):
                path.unlink(missing_ok=True)
            else:
                stat = path.stat()
                files.append((stat.st_mtime_ns, path.name, stat.st_size))
        for _, name, size in sorted(files):
            self._sizes[name] = size
            self._total_bytes += size
        with self._lock:
            self._shrink()

    @property
    def total_bytes(self) -> int:
        """Bytes of all pieces."""
        with self._lock:
            return self._total_bytes

    def get(self, piece: str) -> bytes | None:
        """A piece; None when it is not here."""
        name = _name_of(piece)
        with self._lock:
            if name not in self._sizes:
                return None
            self._sizes.move_to_end(name)
        try:
            return (self._directory / name).read_bytes()
        except OSError:
            self.drop(piece)
            return None

    def put(self, piece: str, data: bytes) -> None:
        """Keeps a piece; one above the whole limit is not kept."""
        if not 0 < len(data) <= self._bytes_max:
            return
        name = _name_of(piece)
        temporary = self._directory / f"{name}.{secrets.token_hex(4)}{_TEMPORARY}"
        try:
            temporary.write_bytes(data)
            with self._lock:
                os.replace(temporary, self._directory / name)
                self._total_bytes += len(data) - self._sizes.pop(name, 0)
                self._sizes[name] = len(data)
                self._shrink()
        except OSError:  # a full disk costs speed, never an answer
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def drop(self, piece: str) -> None:
        """Forgets a piece, such as one whose CRC does not match."""
        name = _name_of(piece)
        with self._lock:
            self._total_bytes -= self._sizes.pop(name, 0)
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)

    def _shrink(self) -> None:
        while self._total_bytes > self._bytes_max:
            name, size = self._sizes.popitem(last=False)
            self._total_bytes -= size
            with suppress(OSError):
                (self._directory / name).unlink(missing_ok=True)


def _name_of(piece: str) -> str:
    return hashlib.sha256(piece.encode()).hexdigest()[:40]
