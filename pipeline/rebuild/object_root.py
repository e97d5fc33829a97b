"""ObjectRoot: a place in an object store. Objects below it have the names that files have below a store root.

Object stores promise this: an object appears whole when its upload is completed, and the last completed upload of a name
wins. They have no rename. `put_file` relies on this. If the store is a file system (`file`, `hdfs`), it writes beside the
goal and renames.
"""

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.object_uri import connect, is_uri, refuse_no_bucket, shown, told

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# pyarrow sends parts of 10 MiB. A smaller object goes in one request; of a larger one, four parts are sent at once.
PART_BYTES = 10 << 20
WHOLE_BYTES_MAX = 8 << 20
PIECE_BYTES = 4 * PART_BYTES
RENAMING_TYPES = ("local", "hdfs")
TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class ObjectRoot:
    """A place in an object store. Executors receive its URI, and each process opens its own connection.

    Attributes:
        uri: `s3://BUCKET/PREFIX?region=...`, or another that pyarrow knows.
    """

    uri: str

    @classmethod
    def of(cls, out: Path | str) -> "Path | ObjectRoot":
        """The goal of a job: a directory, or a place in an object store if `out` is a URI."""
        return cls(out) if isinstance(out, str) and is_uri(out) else Path(out)

    def __str__(self) -> str:
        return shown(self.uri)

    @property
    def local_path(self) -> Path | None:
        """The directory of a `file://` URI; None for other schemes."""
        fs, path = connect(self.uri)
        return Path(path) if fs.type_name == "local" else None

    def top_names(self) -> set[str]:
        """Names of the objects and folders directly below.

        Raises:
            InvalidArgumentError: the bucket does not exist.
            PermissionDeniedError, ServiceUnavailableError: see `told`.
        """
        from pyarrow.fs import FileSelector

        fs, path = connect(self.uri)
        refuse_no_bucket(fs, path, self.uri)
        with told(self.uri, "list its objects"):
            entries = fs.get_file_info(FileSelector(path, recursive=False, allow_not_found=True))
        return {entry.base_name for entry in entries}

    def sizes(self, folder: str) -> dict[str, int]:
        """Name and size in bytes of every object below a folder."""
        from pyarrow.fs import FileSelector, FileType

        fs, path = connect(self.uri)
        with told(self.uri, f"list {folder}/"):
            entries = fs.get_file_info(FileSelector(f"{path}/{folder}", recursive=True, allow_not_found=True))
        skipped = len(path) + 1
        return {entry.path[skipped:]: entry.size for entry in entries if entry.type == FileType.File}

    def read(self, name: str) -> bytes | None:
        """The bytes of a small object; None if it does not exist."""
        fs, path = connect(self.uri)
        with told(self.uri, f"read {name}"):
            try:
                with fs.open_input_stream(f"{path}/{name}") as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def put_bytes(self, name: str, data: bytes) -> None:
        """Writes an object, whole or not at all; an existing one is replaced."""
        with self._goal(name, len(data)) as goal:
            goal.write(data)

    def put_file(self, name: str, file: Path) -> int:
        """Writes an object with the bytes of a local file, whole or not at all; returns its size in bytes.

        An existing object is replaced. The first piece is read before the upload begins, so that a file that cannot be
        read never replaces the object of another attempt. When a later piece cannot be read, pyarrow makes an object
        of the pieces before, which is removed: see `_Goal`.
        """
        size_bytes = os.path.getsize(file)
        with open(file, "rb", buffering=0) as source:
            piece = source.read(PIECE_BYTES)
            with self._goal(name, size_bytes) as goal:
                while piece:
                    goal.write(piece)
                    piece = source.read(PIECE_BYTES)
        return size_bytes

    def delete(self, name: str) -> None:
        """Removes an object; it may be missing."""
        fs, path = connect(self.uri)
        with told(self.uri, f"delete {name}"), suppress(FileNotFoundError):
            fs.delete_file(f"{path}/{name}")

    def _goal(self, name: str, size_bytes: int) -> "_Goal":
        fs, path = connect(self.uri, is_whole=size_bytes <= WHOLE_BYTES_MAX)
        return _Goal(fs, f"{path}/{name}", self.uri, name)


class _Goal:
    """An object being written. A context manager: the object appears at its end, unless the body failed."""

    def __init__(self, fs: "FileSystem", path: str, uri: str, name: str) -> None:
        self._fs = fs
        self._path = path
        self._uri = uri
        self._name = name
        self._is_renamed = fs.type_name in RENAMING_TYPES
        self._written = f"{path}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}" if self._is_renamed else path
        self._stream: Any = None

    def __enter__(self) -> "_Goal":
        with self._told():
            if self._is_renamed:
                self._fs.create_dir(self._path.rpartition("/")[0], recursive=True)
            self._stream = self._fs.open_output_stream(self._written)
        return self

    def write(self, piece: bytes) -> None:
        """Adds a piece; it is sent when this returns, so that memory holds one piece."""
        try:
            with self._told():
                self._stream.write(piece)
                self._stream.flush()
        except BaseException:
            self._drop()
            raise

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is not None:
            self._drop()
            return
        with self._told():
            self._stream.close()
            if self._is_renamed:
                self._fs.move(self._written, self._path)

    def _drop(self) -> None:
        """Drops the upload. pyarrow cannot abandon one: closing the stream fails, or makes an object, which is removed.

        The stream must be closed here, because its destructor would close it later.
        """
        with suppress(OSError, ValueError):
            if not self._stream.closed:
                self._stream.close()
                self._fs.delete_file(self._written)

    def _told(self) -> Any:
        return told(self._uri, f"write {self._name}")
