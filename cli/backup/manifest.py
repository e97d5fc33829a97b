r"""The manifest of a backup: which pieces of the log and which files belong to it. Pure.

    PLACE/BROKER/log/FILE/BEGIN-END-SHA      bytes [BEGIN, END) of the log file FILE; commit-log offsets of 20 digits
    PLACE/BROKER/files/SHA-256               a file beside the log: of config/, or of reput/commitlog/
    PLACE/BROKER/backups/END-MILLIS.json     a backup: the log up to END, taken at MILLIS; it names the pieces and files

    manifest    JSON in one line \n SHA-256 of that line, 64 hex digits \n

Pieces and files never change, and backups share them: each byte of the log is copied once. The manifest is written last, so
a backup is there whole or not at all. One whose checksum does not match is no backup. Names sort in the order of the log.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from commitlog_svc.append.topics.light_offsets import NAME as LIGHT_POSITIONS_NAME
from commitlog_svc.recovery.safe_point import SNAPSHOT_NAME
from commitlog_svc.replication.epochs import EPOCHS_NAME
from store.errors import StoreCorruptedError

VERSION = 1
LOG_FOLDER, FILES_FOLDER, BACKUPS_FOLDER = "log", "files", "backups"
OFFSET_MAX = (1 << 63) - 1
# Of the SHA-256 in the name of a piece: enough that bytes of two logs never meet under one name.
NAME_DIGIT_COUNT = 16
# Files beside the log: in one of these folders and nowhere else.
KEPT_FOLDERS = ("config", "reput/commitlog")
_SHA = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[^/\0]{1,255}")
_OBJECT_NAME = re.compile(
    rf"{LOG_FOLDER}/\d{{20}}/\d{{20}}-\d{{20}}-[0-9a-f]{{{NAME_DIGIT_COUNT}}}|{FILES_FOLDER}/[0-9a-f]{{64}}"
)
# No hidden name: file systems put `.DS_Store`, `._NAME` and `.nfs...` beside what is there.
_MANIFEST_NAME = re.compile(rf"{BACKUPS_FOLDER}/[^/.][^/]*\.json")


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes `[begin, end)` of the log, within one log file.

    Attributes:
        file_offset: first commit-log offset of the file.
        file_size_bytes: of the file.
        begin: commit-log offset of the first byte.
        end: of the first byte behind.
        sha256: of the bytes, hex.
        damage: where its records were damaged when it was copied (commit-log offset); None: they were whole, or the
            manifest is of the release that did not note it.
    """

    file_offset: int
    file_size_bytes: int
    begin: int
    end: int
    sha256: str
    damage: int | None = None

    @property
    def size_bytes(self) -> int:
        """How many bytes of the log."""
        return self.end - self.begin

    @property
    def name(self) -> str:
        """Of the object."""
        return (
            f"{LOG_FOLDER}/{self.file_offset:020d}/{self.begin:020d}-{self.end:020d}-{self.sha256[:NAME_DIGIT_COUNT]}"
        )


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file beside the log.

    Attributes:
        path: below the store root.
        size_bytes: its length.
        sha256: of its bytes, hex.
    """

    path: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """Of the object."""
        return f"{FILES_FOLDER}/{self.sha256}"


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup.

    Attributes:
        broker_name: the shard.
        taken_millis: when it was taken, milliseconds since 1970.
        pieces: of the log, in order and without a gap; at least one.
        files: beside the log.
    """

    broker_name: str
    taken_millis: int
    pieces: tuple[LogPiece, ...]
    files: tuple[KeptFile, ...]

    @property
    def begin_offset(self) -> int:
        """The first commit-log offset."""
        return self.pieces[0].begin

    @property
    def end_offset(self) -> int:
        """The commit-log offset behind the last byte."""
        return self.pieces[-1].end

    @property
    def name(self) -> str:
        """Of the manifest."""
        return f"{BACKUPS_FOLDER}/{self.end_offset:020d}-{self.taken_millis:013d}.json"

    @property
    def items(self) -> list[LogPiece | KeptFile]:
        """What it needs: pieces, then files."""
        return [*self.pieces, *self.files]

    @property
    def sizes(self) -> dict[str, int]:
        """Name and size in bytes of each object that it needs."""
        return {item.name: item.size_bytes for item in self.items}

    def file(self, path: str) -> KeptFile | None:
        """The file of that path."""
        return next((file for file in self.files if file.path == path), None)


def is_state_of_log(name: str) -> bool:
    """Whether a backup has the file of that name of `reput/commitlog/`."""
    return name in (SNAPSHOT_NAME, EPOCHS_NAME) or name.startswith(LIGHT_POSITIONS_NAME)


def is_object_name(name: str) -> bool:
    """Whether a piece or a kept file has such a name; other names in the same folders are of other programs."""
    return _OBJECT_NAME.fullmatch(name) is not None


def is_manifest_name(name: str) -> bool:
    """Whether a manifest may have this name, also one that was copied or renamed."""
    return _MANIFEST_NAME.fullmatch(name) is not None


def encode_backup(backup: Backup) -> bytes:
    """The bytes of the manifest."""
    line = json.dumps({"version": VERSION, **asdict(backup)}, ensure_ascii=False, separators=(",", ":")).encode()
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def decode_backup(data: bytes, name: str) -> Backup:
    """The backup of a manifest.

    Args:
        data: its bytes.
        name: its name, for errors; it must be that of the backup.

    Raises:
        StoreCorruptedError: it is damaged, incomplete, or of a later version.
    """
    line, newline, rest = data.partition(b"\n")
    if not newline or rest != hashlib.sha256(line).hexdigest().encode() + b"\n":
        raise _damaged(name, "its SHA-256 does not match")
    try:
        document = json.loads(line)
        if document["version"] != VERSION:
            raise ValueError(f"it has the version {document['version']}, and {VERSION} is known")
        pieces = tuple(_piece(row) for row in document["pieces"])
        backup = Backup(
            str(document["broker_name"]),
            _number(document["taken_millis"]),
            pieces,
            tuple(_file(row) for row in document["files"]),
        )
        _check_order(pieces)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(name, str(error)) from error
    if backup.name != name:
        raise _damaged(name, f"it is the manifest of {backup.name}")
    return backup


def _piece(row: Any) -> LogPiece:
    piece = LogPiece(
        _number(row["file_offset"]),
        _number(row["file_size_bytes"]),
        _number(row["begin"]),
        _number(row["end"]),
        _sha(row["sha256"]),
        None if row.get("damage") is None else _number(row["damage"]),
    )
    if not piece.file_offset <= piece.begin < piece.end <= piece.file_offset + piece.file_size_bytes:
        raise ValueError(f"a piece {piece.begin} to {piece.end} does not lie in its file")
    return piece


def _check_order(pieces: Sequence[LogPiece]) -> None:
    if not pieces or pieces[0].begin != pieces[0].file_offset:
        raise ValueError("the log does not begin where a file begins")
    for before, after in pairwise(pieces):
        is_in_one = before.file_offset == after.file_offset and before.file_size_bytes == after.file_size_bytes
        is_next = after.begin == after.file_offset == before.file_offset + before.file_size_bytes
        if before.end != after.begin or not (is_in_one or is_next):
            raise ValueError(f"the log has a gap at {before.end}")


def _file(row: Any) -> KeptFile:
    path = row["path"]
    folder, _, name = path.rpartition("/")
    is_kept = folder == KEPT_FOLDERS[0] or (folder == KEPT_FOLDERS[1] and is_state_of_log(name))
    if not is_kept or not _NAME.fullmatch(name) or name in (".", ".."):
        raise ValueError(f"{path!r} is no path of a file beside the log")
    return KeptFile(path, _number(row["size_bytes"]), _sha(row["sha256"]))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= OFFSET_MAX:
        raise ValueError(f"{value!r} is no number of bytes or milliseconds")
    return value


def _sha(value: Any) -> str:
    if not isinstance(value, str) or not _SHA.fullmatch(value):
        raise ValueError(f"{value!r} is no SHA-256")
    return value


def _damaged(name: str, why: str) -> StoreCorruptedError:
    return StoreCorruptedError(
        f"{name} is no whole backup: {why}. Bring it back from a copy, or remove it, and use another backup",
        file=name,
        offset=0,
    )
