"""Compares the logs of the replicas of one shard: ranges by their SHA-256, then byte by byte where these differ."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.log_scan import LogSplit, load_kernels, sound_stretches
from store.derive.dispatch_columns import DispatchColumns
from store.errors import StoreError
from store.files.file_system import RealFileSystem

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HashTask:
    """A range of a log file; `position` and `size_bytes` in bytes of the file."""

    path: str
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Hashed:
    """The result.

    Attributes:
        sha256: in hexadecimal digits; empty if the file could not be read.
        stamp: size (bytes), modification time (nanoseconds since 1970) and inode, as they were before the file was read.
        problem: why it could not be read; empty if the file does not exist.
    """

    sha256: str
    stamp: tuple[int, int, int] | None
    problem: str = ""


def stamp_of(path: Path | str) -> tuple[int, int, int] | None:
    """What changes when a program writes to a file; None without the file."""
    try:
        stamp = RealFileSystem().stamp(path)
    except OSError:
        return None
    return stamp.size_bytes, stamp.modified_nanos, stamp.inode


def hash_range(task: HashTask) -> Hashed:
    """The SHA-256 of a range; bytes behind the file's end count as zeros."""
    stamp, digest, left = stamp_of(task.path), hashlib.sha256(), task.size_bytes
    try:
        with open(task.path, "rb", buffering=0) as file:
            file.seek(task.position)
            while left:
                data = file.read(min(READ_BYTES, left)) or bytes(min(READ_BYTES, left))
                digest.update(data)
                left -= len(data)
    except FileNotFoundError:
        return Hashed("", None)
    except OSError as error:
        return Hashed("", stamp, str(error))
    return Hashed(digest.hexdigest(), stamp)


@dataclass(frozen=True, slots=True)
class Side:
    """One of two logs; see LogSplit for `root`, `file_offset` and `file_size_bytes`."""

    root: str
    path: str
    file_offset: int
    file_size_bytes: int


@dataclass(frozen=True, slots=True)
class CompareTask:
    """A range in which two logs differ; `begin` and `end` are commit-log offsets (bytes)."""

    begin: int
    end: int
    one: Side
    other: Side


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two logs differ. Offsets are commit-log offsets in bytes.

    Attributes:
        first, last: the first and the last byte that differ.
        count: bytes that differ.
        one, other: begin and end of the sound record that has the first byte; None where no sound record has it.
    """

    first: int
    last: int
    count: int
    one: tuple[int, int] | None
    other: tuple[int, int] | None


def compare(task: CompareTask) -> Difference | None:
    """Compares a range byte by byte; None if nothing differs."""
    first = last = -1
    count = 0
    with open(task.one.path, "rb") as one, open(task.other.path, "rb") as other:
        one.seek(task.begin - task.one.file_offset)
        other.seek(task.begin - task.other.file_offset)
        for at in range(task.begin, task.end, READ_BYTES):
            size = min(READ_BYTES, task.end - at)
            left, right = one.read(size).ljust(size, b"\0"), other.read(size).ljust(size, b"\0")
            if left != right:
                places = np.flatnonzero(np.frombuffer(left, np.uint8) != np.frombuffer(right, np.uint8))
                first = at + int(places[0]) if first < 0 else first
                last, count = at + int(places[-1]), count + len(places)
    if first < 0:
        return None
    return Difference(first, last, count, sound_record(task.one, first), sound_record(task.other, first))


class _FoundError(Exception):
    """Ends a walk: the record is found."""


def sound_record(side: Side, offset: int) -> tuple[int, int] | None:
    """Begin and end of the record that has a byte of the log (bytes), if the record is sound; None otherwise."""
    load_kernels()
    found: list[tuple[int, int]] = []

    def see(columns: DispatchColumns) -> None:
        begins = columns.commit_log_offsets
        at = int(np.searchsorted(begins, offset, side="right")) - 1
        if at >= 0 and offset < int(begins[at]) + int(columns.record_sizes_bytes[at]):
            found.append((int(begins[at]), int(begins[at]) + int(columns.record_sizes_bytes[at])))
            raise _FoundError

    file_end = side.file_offset + side.file_size_bytes
    try:
        for end in sound_stretches(
            LogSplit(side.root, side.file_offset, side.file_size_bytes, side.file_offset, file_end), see
        ):
            if end.end_offset > offset:
                break
    except (_FoundError, StoreError, OSError):
        pass  # a log that cannot be walked has no sound record there
    return found[0] if found else None
