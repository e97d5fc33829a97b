"""The records of a store's log, read from its files without a client; in the same way for both sides."""

import mmap
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from benchmarks.plain_decode import decode_file


class LogRecord(NamedTuple):
    """A record.

    Attributes:
        topic: of the record.
        stored_millis: when it was stored (ms since 1970).
        properties: by name.
    """

    topic: str
    stored_millis: int
    properties: Mapping[str, str]


def read_records(root: pathlib.Path, begin_offset: int = 0) -> Iterator[LogRecord]:
    """The records of a log, up to where it ends now.

    Args:
        root: the store root; a process may be writing to it.
        begin_offset: where a record begins (bytes).
    """
    for path in sorted((root / "commitlog").iterdir()):
        base, size_bytes = int(path.name), path.stat().st_size
        if base + size_bytes <= begin_offset:
            continue
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for fields in decode_file(data, max(begin_offset - base, 0)):
                topic, stored_millis, properties = fields[0], fields[9], fields[17]
                assert isinstance(topic, str)
                assert isinstance(stored_millis, int)
                assert isinstance(properties, dict)
                yield LogRecord(topic, stored_millis, properties)
