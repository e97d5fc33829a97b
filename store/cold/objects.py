"""What the cold tier needs from an object store; `gateway/shards/cold_objects.py` implements it."""

from collections.abc import Callable
from typing import Protocol

from store.cold.cache import PageCache
from store.errors import StoreCorruptedError


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
