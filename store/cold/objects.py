"""What the cold tier needs from an object store, and what was read from it, kept on the disk.

`gateway/shards/cold_objects.py` implements the port.
"""

import hashlib
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol

from store.errors import StoreCorruptedError

_TEMPORARY = ".tmp"


class Objects(Protocol):
    """Reads objects by name. Thread-safe. ServiceUnavailableError when the store does not answer, or refuses."""

    def stamp(self, name: str) -> str | None:
        """Changes when the object is written again; None when there is no such object. One request."""

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes:
        """The bytes from a position on; fewer at the end. FileNotFoundError when there is no such object.

        One request, and another one when the object is opened: once for each object that stays open.
        """


def log_name(broker_name: str, first_offset: int) -> str:
    """The object with the bytes of a log file."""
    return f"{broker_name}/{first_offset:020d}.log"


def index_name(broker_name: str, first_offset: int) -> str:
    """The object with its pages."""
    return f"{broker_name}/{first_offset:020d}.index"


def manifest_name(broker_name: str) -> str:
    """The object that says what there is."""
    return f"{broker_name}/cold.json"


def damaged(name: str, offset: int, what: str) -> StoreCorruptedError:
    """The error for a damaged object."""
    return StoreCorruptedError(
        f"{name} of the cold tier is damaged at byte {offset}: {what}. Bring the object back from a copy, or remove "
        "the objects of this log file and cold.json, and ship the log files again while there are any",
        file=name,
        offset=offset,
    )


class PageCache:
    """What was read, in files of a directory, within a limit; the oldest use goes first. Thread-safe.

    A piece that a disk loses or refuses is read from the store again.

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


class CachedObjects:
    """Reads through a cache of aligned blocks.

    Args:
        objects: the store.
        cache: keeps what was read.
    """

    def __init__(self, objects: Objects, cache: PageCache) -> None:
        self._objects = objects
        self._cache = cache

    def read(
        self, name: str, position: int, size_bytes: int, block_bytes: int, is_sound: Callable[[bytes], bool]
    ) -> bytes:
        """The bytes from a position on; what the cache lacks in one request.

        Args:
            name: an object that is never written again with other bytes.
            position: of its first byte.
            size_bytes: how many.
            block_bytes: reads begin and end at multiples of it.
            is_sound: whether the bytes are right. A cached piece that is not is read again.

        Raises:
            StoreCorruptedError: the object is missing, or its bytes are not right.
            ServiceUnavailableError: the object store does not answer.
        """
        first, end = position // block_bytes, -(-(position + size_bytes) // block_bytes)
        skipped = position - first * block_bytes
        blocks = [self._cache.get(f"{name} {block_bytes} {number}") for number in range(first, end)]
        missing = [number for number, block in enumerate(blocks, first) if block is None]
        for is_again in (False, True):
            if missing:
                low, high = missing[0], missing[-1] + 1
                try:
                    data = self._objects.read_at(name, low * block_bytes, (high - low) * block_bytes)
                except FileNotFoundError as error:
                    raise damaged(name, 0, "it is missing") from error
                for number in range(low, high):
                    at = (number - low) * block_bytes
                    blocks[number - first] = data[at : at + block_bytes]
            joined = b"".join(block or b"" for block in blocks)[skipped : skipped + size_bytes]
            if len(joined) == size_bytes and is_sound(joined):
                for number in missing:
                    self._cache.put(f"{name} {block_bytes} {number}", blocks[number - first] or b"")
                return joined
            if is_again or len(missing) == end - first:
                break
            for number in range(first, end):
                self._cache.drop(f"{name} {block_bytes} {number}")
            missing = list(range(first, end))
        raise damaged(name, position, f"the CRC-32 of the {size_bytes} bytes there does not match")
