"""UriObjects: the object store that a URI names, read by pyarrow. Imported only by gateways with a cold tier."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from services.object_uri import connect, told
from store.errors import InvalidArgumentError, PermissionDeniedError, ServiceUnavailableError

if TYPE_CHECKING:
    from pyarrow import NativeFile

# pyarrow asks for the size of an object when it opens it. Objects that stay open are not asked for again.
OPEN_OBJECT_COUNT_MAX = 512
FIELD = "cold"  # the setting that names the URI


class UriObjects:
    """Objects of `store/cold/objects.py`. Thread-safe.

    Args:
        uri: `s3://BUCKET/PREFIX`, or another that pyarrow knows; without credentials, see `services/object_uri.py`.

    Raises:
        InvalidArgumentError: pyarrow does not know the URI, or it has options that are not accepted.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._fs, self._path = connect(uri, field=FIELD)
        self._lock = Lock()
        self._open: OrderedDict[str, NativeFile] = OrderedDict()

    def stamp(self, name: str) -> str | None:
        """See the port."""
        from pyarrow.fs import FileType

        with self._told(f"look for {name}"):
            info = self._fs.get_file_info(f"{self._path}/{name}")
        if info.type != FileType.File:
            return None
        with self._lock:
            self._open.pop(name, None)  # what is looked for may have been written again
        return f"{info.size} {info.mtime_ns}"

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes:
        """See the port."""
        with self._told(f"read {name}"):
            try:
                file = self._opened(name)
                size_bytes = min(size_bytes, file.size() - position)
                return bytes(file.read_at(size_bytes, position)) if size_bytes > 0 else b""
            except FileNotFoundError:
                pass
        raise FileNotFoundError(name)

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """As `told`; whoever asks the gateway is not to blame for a bucket that is gone or for its rights."""
        try:
            with told(self._uri, doing, FIELD):
                yield
        except (InvalidArgumentError, PermissionDeniedError) as error:
            raise ServiceUnavailableError(error.message, service="cold") from error

    def _opened(self, name: str) -> "NativeFile":
        with self._lock:
            file = self._open.get(name)
            if file is not None:
                self._open.move_to_end(name)
                return file
        file = self._fs.open_input_file(f"{self._path}/{name}")
        with self._lock:
            self._open[name] = file
            while len(self._open) > OPEN_OBJECT_COUNT_MAX:
                self._open.popitem(last=False)  # closes with its last reader
        return file
