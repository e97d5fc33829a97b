"""The manifest of a backup: it is read back as it was, and any other bytes are no backup."""

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.backup.manifest import Backup, KeptFile, LogPiece, decode_backup, encode_backup
from store.errors import StoreCorruptedError

SHA = hashlib.sha256(b"x").hexdigest()
PIECES = (LogPiece(0, 100, 0, 40, SHA), LogPiece(0, 100, 40, 100, SHA), LogPiece(100, 100, 100, 130, SHA))
BACKUP = Backup("broker-a", 1_700_000_000_000, PIECES, (KeptFile("config/topics.json", 3, SHA),))


def signed(document: object) -> bytes:
    line = json.dumps(document).encode()
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def test_a_manifest_is_read_back_as_it_was_written() -> None:
    assert decode_backup(encode_backup(BACKUP), BACKUP.name) == BACKUP
    assert (BACKUP.begin_offset, BACKUP.end_offset) == (0, 130)
    assert sum(BACKUP.sizes.values()) == 40 + 60 + 30 + 3


def test_names_sort_in_the_order_of_the_log() -> None:
    shorter = dataclasses.replace(BACKUP, pieces=PIECES[:1], taken_millis=1_900_000_000_000)
    later = dataclasses.replace(BACKUP, taken_millis=BACKUP.taken_millis + 1)
    assert shorter.name < BACKUP.name < later.name


@given(st.integers(0, len(encode_backup(BACKUP)) - 1), st.integers(1, 255))
def test_any_changed_byte_makes_it_no_backup(at: int, change: int) -> None:
    data = bytearray(encode_backup(BACKUP))
    data[at] ^= change
    with pytest.raises(StoreCorruptedError, match="no whole backup"):
        decode_backup(bytes(data), BACKUP.name)


@given(st.integers(0, len(encode_backup(BACKUP)) - 1))
def test_a_manifest_that_was_cut_is_no_backup(size: int) -> None:
    with pytest.raises(StoreCorruptedError, match="no whole backup"):
        decode_backup(encode_backup(BACKUP)[:size], BACKUP.name)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 2}, "version"),
        ({"pieces": []}, "does not begin"),
        ({"pieces": [dataclasses.asdict(piece) for piece in PIECES[1:]]}, "does not begin"),
        ({"pieces": [dataclasses.asdict(piece) for piece in (PIECES[0], PIECES[2])]}, "gap at 40"),
        ({"pieces": [dataclasses.asdict(dataclasses.replace(PIECES[0], end=101))]}, "does not lie in its file"),
        ({"files": [{"path": "config/../../x", "size_bytes": 1, "sha256": SHA}]}, "no path"),
        ({"files": [{"path": "config/..", "size_bytes": 1, "sha256": SHA}]}, "no path"),
        ({"files": [{"path": "reput/commitlog/cut.json", "size_bytes": 1, "sha256": SHA}]}, "no path"),
        ({"files": [{"path": "commitlog/0", "size_bytes": 1, "sha256": SHA}]}, "no path"),
        ({"files": [{"path": "config/a", "size_bytes": True, "sha256": SHA}]}, "no number"),
        ({"files": [{"path": "config/a", "size_bytes": 1, "sha256": "ab"}]}, "no SHA-256"),
        ({"files": 7}, "no whole backup"),
        ({"taken_millis": 5}, "it is the manifest of"),
    ],
)
def test_a_signed_manifest_that_names_what_cannot_be_is_no_backup(change: dict, why: str) -> None:
    document = {"version": 1, **dataclasses.asdict(BACKUP), **change}
    with pytest.raises(StoreCorruptedError, match=why):
        decode_backup(signed(document), BACKUP.name)


def test_a_manifest_that_nests_without_end_is_no_backup() -> None:
    line = b"[" * 200_000
    with pytest.raises(StoreCorruptedError, match="no whole backup"):
        decode_backup(line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n", BACKUP.name)
