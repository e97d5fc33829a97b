"""Inputs from the fixtures: files and records that the real RocketMQ wrote."""

import functools
import json
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

from store.format.record import decode_record, encode_record
from tests.support.fixture_stores import unpack_store, walk_frames

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
STORES = ("broker", "rocketmq-5.5", "light")
FRAME_BYTES_MAX = 2048  # longer ones are of large bodies
FRAME_COUNT_MAX = 40
# Pieces of records.
FRAME_TOKENS = (
    b"\xda\xa3\x20\xa7",
    b"\xda\xa3\x20\xa8",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x02KEYS\x01",
    b"__CRC32#\x01",
    b"TAGS\x01",
)


@functools.cache
def config_files(name: str) -> list[bytes]:
    """The file of that name in `config/` of each store that has one."""
    found = []
    for store in STORES:
        with tarfile.open(FIXTURES / f"{store}.tar.xz") as archive:
            for member in archive:
                file = archive.extractfile(member) if Path(member.name).parts[-2:] == ("config", name) else None
                if file is not None:
                    found.append(file.read())
    return found


@functools.cache
def frames() -> list[bytes]:
    """Records of RocketMQ's own stores, each as it would lie at offset 0."""
    found: list[bytes] = []
    for store in ("broker", "engine_crc"):
        with tempfile.TemporaryDirectory() as scratch:
            root = unpack_store(store, Path(scratch))
            some = [(offset, frame) for offset, frame in walk_frames(root) if len(frame) <= FRAME_BYTES_MAX]
            for offset, frame in some[:: max(1, len(some) // FRAME_COUNT_MAX)]:
                record = decode_record(frame, commit_log_offset=offset)
                found.append(encode_record(replace(record, commit_log_offset=0)))
    return found


@functools.cache
def trace_bodies() -> list[bytes]:
    """Bodies of trace messages of RocketMQ's clients."""
    releases = json.loads((FIXTURES / "traces.json").read_bytes())
    return [bytes.fromhex(body) for release in releases.values() for body in release["bodies"]]
