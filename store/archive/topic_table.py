"""The topics of an archived store: its `config/topics.json`, kept beside the manifests of its segments.

    segments/BROKER/topics.json     {"crc32": N, "topics": "..."}    the file's text, N the CRC-32 of its bytes

A log has the topics of its messages, but neither the number of queues nor the permissions of a topic. The table of the newest
run counts; archives of older versions have none.
"""

import json
import zlib
from pathlib import Path

from store.archive import layout
from store.errors import StoreCorruptedError
from store.files.config_file import read_config_file
from store.files.file_system import FileSystem
from store.files.json_state import read_bytes
from store.format.paths import topics_file
from store.format.topic import decode_topic_rows


def topic_document(fs: FileSystem, store: Path) -> tuple[bytes, int] | None:
    """The archive's file for a store's topic table, and how many topics it has; None without a table.

    Raises:
        StoreCorruptedError: the store's file is not a topic table; the archive keeps its previous one.
    """
    data = topic_table_of(fs, store)
    if data is None:
        return None
    document = json.dumps({"crc32": zlib.crc32(data), "topics": data.decode()}).encode()
    return document, len(decode_topic_rows(data).topics)


def topic_table_of(fs: FileSystem, store: Path) -> bytes | None:
    """The bytes of a store's topic table, or of its `.bak`; None without one, StoreCorruptedError when both are damaged."""
    path = Path(topics_file(str(store)))
    found = read_config_file(fs, path)
    if found.problem and (found.content is None or not found.is_backup):
        raise StoreCorruptedError(
            f"{path} is not a topic table ({found.problem}): bring it back from a copy", file=path, offset=0
        )
    return found.content


def read_topic_table(fs: FileSystem, archive: Path, broker_name: str) -> bytes | None:
    """The bytes of the archived `topics.json`; None when the archive has none.

    Raises:
        StoreCorruptedError: it is damaged.
    """
    path = Path(layout.topics_file(str(archive), broker_name))
    kept = read_bytes(fs, path)
    if kept is None:
        return None
    try:
        document = json.loads(kept)
        data: bytes = document["topics"].encode()
        if document["crc32"] != zlib.crc32(data):
            raise ValueError("its CRC-32 does not match")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreCorruptedError(
            f"{path} of the archive is damaged ({error}): bring it back from a copy, or remove it; a restore then makes "
            "a store without a topic table",
            file=path,
            offset=0,
        ) from error
    return data
