"""ObjectRoot: a place in an object store. Objects below it have the names that files have below a store root.

Object stores promise this: an object appears whole when its upload is completed, and the last completed upload of a name
wins. They have no rename. `put_file` relies on this. If the store is a file system (`file`, `hdfs`), it writes beside the
goal and renames.
"""

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.object_uri import connect, is_uri, refuse_no_bucket, shown, told
from store.errors import InvalidArgumentError

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
        field: the argument that the URI was given as, for errors.
    """

    uri: str
    field: str = "out"

    @classmethod
    def of(cls, out: Path | str, field: str = "out") -> "Path | ObjectRoot":
        """The goal of a job: a directory, or a place in an object store if `out` is a URI."""
        return cls(out, field) if isinstance(out, str) and is_uri(out) else Path(out)

    @classmethod
    def place(cls, place: "Path | str | ObjectRoot", field: str = "out") -> "Path | ObjectRoot":
        """As `of`; a `file://` URI is the directory that it names."""
        root = cls.of(place, field) if isinstance(place, str) else place
        return root if isinstance(root, Path) else root.local_path or root

    @classmethod
    def parted(cls, uri: str, field: str = "out") -> "tuple[ObjectRoot, str]":
        """The place that one object lies in, and its name there; InvalidArgumentError if the URI names none."""
        path, question, options = uri.partition("?")
        folder, _, name = path.rpartition("/")
        if not name or not folder.partition("://")[2]:
            raise InvalidArgumentError(f"{shown(uri)} names no object: name s3://BUCKET/PREFIX/NAME.", field=field)
        return cls(f"{folder}{question}{options}", field), name

    def below(self, name: str) -> "ObjectRoot":
        """The place of that name in this one."""
        path, question, options = self.uri.partition("?")
        return ObjectRoot(f"{path.rstrip('/')}/{name}{question}{options}", self.field)

    def __str__(self) -> str:
        return shown(self.uri)

    @property
    def local_path(self) -> Path | None:
        """The directory of a `file://` URI; None for other schemes."""
        fs, path = self._connect()
        return Path(path) if fs.type_name == "local" else None

    def top_names(self) -> set[str]:
        """Names of the objects and folders directly below.

        Raises:
            InvalidArgumentError: the bucket does not exist.
            PermissionDeniedError, ServiceUnavailableError: see `told`.
        """
        from pyarrow.fs import FileSelector

        fs, path = self._connect()
        refuse_no_bucket(fs, path, self.uri, self.field)
        with self._told("list its objects"):
            entries = fs.get_file_info(FileSelector(path, recursive=False, allow_not_found=True))
        return {entry.base_name for entry in entries}

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Name and size in bytes of every object below a folder, or below the place."""
        from pyarrow.fs import FileSelector, FileType

        fs, path = self._connect()
        with self._told(f"list {folder}/"):
            entries = fs.get_file_info(
                FileSelector(f"{path}/{folder}".rstrip("/"), recursive=True, allow_not_found=True)
            )
        skipped = len(path) + 1
        return {entry.path[skipped:]: entry.size for entry in entries if entry.type == FileType.File}

    def read(self, name: str) -> bytes | None:
        """The bytes of a small object; None if it does not exist."""
        fs, path = self._connect()
        with self._told(f"read {name}"):
            try:
                with fs.open_input_stream(f"{path}/{name}") as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def get_file(self, name: str, file: Path) -> None:
        """Writes the bytes of an object to a local file. ServiceUnavailableError if it does not exist any more."""
        fs, path = self._connect()
        with self._told(f"read {name}"), fs.open_input_stream(f"{path}/{name}") as stream, file.open("wb") as target:
            while piece := stream.read(PIECE_BYTES):
                target.write(piece)

    def parts(self, name: str) -> Iterator[bytes]:
        """The bytes of an object, in parts of PIECE_BYTES. FileNotFoundError if it does not exist."""
        fs, path = self._connect()
        with self._told(f"read {name}"):
            try:
                stream = fs.open_input_stream(f"{path}/{name}")
            except FileNotFoundError:
                stream = None
        if stream is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self}/{name}")
        with stream:
            while True:
                with self._told(f"read {name}"):
                    part = bytes(stream.read(PIECE_BYTES))
                if not part:
                    return
                yield part

    def put_bytes(self, name: str, data: bytes | memoryview) -> None:
        """Writes an object, whole or not at all; an existing one is replaced."""
        with self._goal(name, len(data)) as goal:
            for at in range(0, len(data), PIECE_BYTES):
                goal.write(data[at : at + PIECE_BYTES])

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
        fs, path = self._connect()
        with self._told(f"delete {name}"), suppress(FileNotFoundError):
            fs.delete_file(f"{path}/{name}")

    def _connect(self, *, is_whole: bool = False) -> "tuple[FileSystem, str]":
        return connect(self.uri, is_whole=is_whole, field=self.field)

    def _told(self, doing: str) -> AbstractContextManager[None]:
        return told(self.uri, doing, self.field)

    def _goal(self, name: str, size_bytes: int) -> "_Goal":
        fs, path = self._connect(is_whole=size_bytes <= WHOLE_BYTES_MAX)
        return _Goal(fs, f"{path}/{name}", partial(self._told, f"write {name}"))


class _Goal:
    """An object being written. A context manager: the object appears at its end, unless the body failed."""

    def __init__(self, fs: "FileSystem", path: str, told: Callable[[], AbstractContextManager[None]]) -> None:
        self._fs = fs
        self._path = path
        self._told = told
        self._is_renamed = fs.type_name in RENAMING_TYPES
        self._written = f"{path}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}" if self._is_renamed else path
        self._stream: Any = None

    def __enter__(self) -> "_Goal":
        with self._told():
            if self._is_renamed:
                self._fs.create_dir(self._path.rpartition("/")[0], recursive=True)
            self._stream = self._fs.open_output_stream(self._written)
        return self

    def write(self, piece: bytes | memoryview) -> None:
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
