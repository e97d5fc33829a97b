"""ObjectRoot: a place in an object store, below which objects have the names that files have below a store root.

What object stores promise is little: an object appears whole when its upload is completed, the last completed upload of a
name wins, nothing can be renamed. `put_file` makes use of that. Where the store is a file system after all (`file`,
`hdfs`), it writes beside the goal and renames.
"""

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.jobs.rebuild_object_uri import connect, is_uri, refuse_no_bucket, shown, told

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# pyarrow sends parts of 10 MiB. Less than that goes in one request; of what is larger, four parts are under way at once.
PART_BYTES = 10 << 20
WHOLE_BYTES_MAX = 8 << 20
PIECE_BYTES = 4 * PART_BYTES
RENAMING_TYPES = ("local", "hdfs")
TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class ObjectRoot:
    """A place in an object store; it goes to executors as its URI, and each process connects by itself.

    Attributes:
        uri: `s3://BUCKET/PREFIX?region=...`, or another that pyarrow knows.
    """

    uri: str

    @classmethod
    def of(cls, out: Path | str) -> "Path | ObjectRoot":
        """What the goal of a job names: a directory, or a place in an object store."""
        return cls(out) if isinstance(out, str) and is_uri(out) else Path(out)

    def __str__(self) -> str:
        return shown(self.uri)

    @property
    def local_path(self) -> Path | None:
        """The directory that it is, for `file://`."""
        fs, path = connect(self.uri)
        return Path(path) if fs.type_name == "local" else None

    def top_names(self) -> set[str]:
        """What is directly below.

        Raises:
            InvalidArgumentError: there is no such bucket.
            PermissionDeniedError, ServiceUnavailableError: see `told`.
        """
        from pyarrow.fs import FileSelector

        fs, path = connect(self.uri)
        refuse_no_bucket(fs, path, self.uri)
        with told(self.uri, "list what is there"):
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
        """A small object; None when there is none."""
        fs, path = connect(self.uri)
        with told(self.uri, f"read {name}"):
            try:
                with fs.open_input_stream(f"{path}/{name}") as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def put_bytes(self, name: str, data: bytes) -> None:
        """Writes an object, whole or not at all, over one that is there."""
        with self._goal(name, len(data)) as goal:
            goal.write(data)

    def put_file(self, name: str, file: Path) -> int:
        """Writes an object with a local file's bytes, whole or not at all, over one that is there; how many bytes.

        An attempt that cannot read its file does not begin, so that it takes nothing from another one that could. Only
        what fails to be read behind the first piece is made an object, which is removed: see `_Goal`.
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
        """Removes an object; it may be gone already."""
        fs, path = connect(self.uri)
        with told(self.uri, f"delete {name}"), suppress(FileNotFoundError):
            fs.delete_file(f"{path}/{name}")

    def _goal(self, name: str, size_bytes: int) -> "_Goal":
        fs, path = connect(self.uri, is_whole=size_bytes <= WHOLE_BYTES_MAX)
        return _Goal(fs, f"{path}/{name}", self.uri, name)


class _Goal:
    """An object being written: a context manager whose end makes it appear, unless something failed."""

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
        """Some more; it is on its way when this returns, so that memory holds one piece."""
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
        """pyarrow cannot abandon an upload: closing the stream either fails, or makes an object, which is removed.

        Not closing it puts that off: its destructor closes.
        """
        with suppress(OSError, ValueError):
            if not self._stream.closed:
                self._stream.close()
                self._fs.delete_file(self._written)

    def _told(self) -> Any:
        return told(self._uri, f"write {self._name}")
