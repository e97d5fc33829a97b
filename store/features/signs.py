"""StoreSigns: what is read of a store root to recognise the features that it uses. Names of files, and two small files.

    /                         names
    config/                   names; of topics.json the attributes, of topicQueueMapping.json the topics
    consumequeue/             names of the folders of topics
    batchconsumequeue/        likewise
    compaction/compactionLog/ likewise; compaction/ itself is made by every broker of 5.1 or later
    rocksdbstore/ ...         names
    dledger-NAME/data/        whether there is anything in it

No file is opened but the two, and nothing is written. A file that cannot be read shows no sign here: the program that
needs its content says what is wrong with it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from store.errors import StoreCorruptedError
from store.files.config_file import BACKUP_SUFFIX, read_config_file
from store.files.file_system import FileSystem
from store.files.json_state import NoRegularFileError, read_bytes
from store.format import paths
from store.format.config_json import load_document
from store.format.topic import MESSAGE_TYPE_ATTRIBUTE, decode_topic_rows, is_light_queue

# Directories in which the mere presence of a name is a sign.
LISTED = (
    "batchconsumequeue",
    "compaction/compactionLog",
    "consumequeue_ext",
    "tieredstore",
)
# Attributes of topics that are signs. Their values are looked for first: a table of 100,000 topics without any is not decoded.
TOPIC_ATTRIBUTES = (
    ("queue.type", "BatchCQ"),
    ("cleanup.policy", "COMPACTION"),
    (MESSAGE_TYPE_ATTRIBUTE, "LITE"),
    (MESSAGE_TYPE_ATTRIBUTE, "PRIORITY"),
)
_ATTRIBUTE_VALUES = (*(value.encode() for _, value in TOPIC_ATTRIBUTES), b"\\u")
# Of a directory with more names no more are looked at.
NAME_COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class StoreSigns:
    """The signs that were seen; empty where there was nothing.

    Attributes:
        root: names in the root.
        config: names in `config/`.
        listed: by name of a directory of LISTED that has content: the names in it.
        queue_folders: names in `consumequeue/` that are no folder of an ordinary topic: `%LMQ%...`, files of RocksDB.
        dledger: `dledger-NAME/data` directories with content, as paths under the root.
        rocksdb_files: files of `rocksdbstore/` that hold data: every 5.5 makes the database, and leaves it empty by default.
        topics: of each configured topic that has any of TOPIC_ATTRIBUTES: its attributes.
        static_topics: topics of `topicQueueMapping.json`.
    """

    root: frozenset[str] = frozenset()
    config: frozenset[str] = frozenset()
    listed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queue_folders: tuple[str, ...] = ()
    dledger: tuple[str, ...] = ()
    rocksdb_files: tuple[str, ...] = ()
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    static_topics: tuple[str, ...] = ()


def read_signs(fs: FileSystem, root: Path) -> StoreSigns:
    """The signs of a root now; a root that does not exist has none."""
    names = _listdir(fs, root)
    config = root / "config"
    rows = _topic_rows(fs, config)
    return StoreSigns(
        root=frozenset(names),
        config=frozenset(_listdir(fs, config)),
        listed={name: found for name in LISTED if (found := tuple(_listdir(fs, root / name)))},
        queue_folders=tuple(
            name
            for name in _listdir(fs, Path(paths.consume_queue_dir(str(root))))
            if is_light_queue(name) or name == "CURRENT"
        ),
        dledger=tuple(
            f"{name}/data" for name in names if name.startswith("dledger-") and _listdir(fs, root / name / "data")
        ),
        rocksdb_files=tuple(_data_files(fs, root / "rocksdbstore")),
        topics={name: row for name, row in rows.items() if not row.items().isdisjoint(TOPIC_ATTRIBUTES)},
        static_topics=tuple(_static_topics(fs, config)),
    )


def _listdir(fs: FileSystem, directory: Path) -> list[str]:
    return sorted(fs.listdir(directory)[:NAME_COUNT_MAX]) if fs.is_dir(directory) else []


def _topic_rows(fs: FileSystem, config: Path) -> Mapping[str, Mapping[str, str]]:
    """The attributes of each topic, of what is used of the file; see config_file.py."""
    path = config / "topics.json"
    with suppress(StoreCorruptedError, OSError):
        files = (path, path.with_name(path.name + BACKUP_SUFFIX))
        if not any(value in data for file in files if (data := _bytes(fs, file)) for value in _ATTRIBUTE_VALUES):
            return {}
        content = read_config_file(fs, path).content
        if content:
            return {topic: row.attributes for topic, row in decode_topic_rows(content).topics.items()}
    return {}


def _bytes(fs: FileSystem, path: Path) -> bytes | None:
    with suppress(NoRegularFileError, OSError):
        return read_bytes(fs, path)
    return None


def _data_files(fs: FileSystem, directory: Path) -> list[str]:
    """The tables of a RocksDB, and its logs that are not empty."""
    names = _listdir(fs, directory)
    return [
        name
        for name in names
        if name.endswith(".sst") or (name.endswith(".log") and fs.stat_size(directory / name) > 0)
    ]


def _static_topics(fs: FileSystem, config: Path) -> list[str]:
    with suppress(StoreCorruptedError, OSError):
        content = read_config_file(fs, config / "topicQueueMapping.json").content
        table = load_document(content).get("topicQueueMappingInfoMap") if content else None
        if isinstance(table, dict):
            return sorted(table)
    return []
