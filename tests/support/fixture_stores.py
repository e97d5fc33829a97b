"""Stores that Apache RocketMQ 5.3.3 or 5.5.0 wrote, and its own answers about them (see tests/fixtures/README.md)."""

import json
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
STORE_NAMES = ("broker", "engine", "engine_crc", "crashed")
BLANK_MAGIC = -875286124


def unpack_store(name: str, directory: Path) -> Path:
    """Unpack the store `name` so that `directory` is its root; returns it."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            archive.extractall(directory, filter="data")
        else:
            archive.extractall(directory)
    return directory


def read_rows(file_name: str) -> list[dict[str, Any]]:
    """The rows of a .jsonl fixture."""
    with (FIXTURES / file_name).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_recoveries() -> dict[str, Any]:
    """What the real broker made of the crashed store, by case."""
    recoveries: dict[str, Any] = json.loads((FIXTURES / "crashed.recoveries.json").read_text(encoding="utf-8"))
    return recoveries


def walk_frames(root: Path) -> Iterator[tuple[int, bytes]]:
    """Every frame of a clean log with its commit-log offset, cut by sizes alone: no code under test takes part."""
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">ii", data, at)
            if size == 0 or magic == BLANK_MAGIC:
                break
            yield int(path.name) + at, data[at : at + size]
            at += size
