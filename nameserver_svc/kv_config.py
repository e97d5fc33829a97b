"""KvConfig: texts that operators keep in a name server, by namespace and key, and their file.

The file is RocketMQ's `kvConfig.json`: `{"configTable":{namespace:{key:value}}}`. Without a file they are in memory only.
Source: `KVConfigManager` of RocketMQ 5.3.3.
"""

import json
import threading
from pathlib import Path

from store.errors import InvalidArgumentError, InvalidSettingError, ResourceBusyError
from store.files.file_system import FileSystem, RealFileSystem
from store.files.json_state import write_bytes_atomic

# An empty namespace counts like a key: RocketMQ keeps those whose last key was deleted.
ENTRY_COUNT_MAX = 10_000
NAME_CHARACTERS_MAX = 255
VALUE_CHARACTERS_MAX = 65_536
# The file is written whole at each change.
ALL_CHARACTERS_MAX = 4 << 20


class KvConfig:
    """See the top; thread-safe.

    Args:
        path: of the file; None: none.
        fs: where it lies.

    Raises:
        InvalidSettingError: the file cannot be read.
    """

    def __init__(self, path: Path | None, fs: FileSystem | None = None) -> None:
        self._path = path
        self._fs = fs or RealFileSystem()
        self._lock = threading.Lock()
        self._table: dict[str, dict[str, str]] = {} if path is None else _read(path)

    def value(self, namespace: str, key: str) -> str | None:
        """One text; None when there is none."""
        with self._lock:
            return self._table.get(namespace, {}).get(key)

    def values(self, namespace: str) -> dict[str, str] | None:
        """All texts of a namespace, by key; None when there never was one."""
        with self._lock:
            found = self._table.get(namespace)
            return None if found is None else dict(found)

    def namespaces(self) -> dict[str, dict[str, str]]:
        """All."""
        with self._lock:
            return {namespace: dict(values) for namespace, values in self._table.items()}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a text.

        Raises:
            InvalidArgumentError: it is too long.
            ResourceBusyError: there are too many.
            DiskFullError, FlushFailedError, OSError: the file cannot be written; nothing was changed.
        """
        if len(value) > VALUE_CHARACTERS_MAX or max(len(namespace), len(key)) > NAME_CHARACTERS_MAX:
            raise InvalidArgumentError(
                f"a value has at most {VALUE_CHARACTERS_MAX} characters, a namespace and a key {NAME_CHARACTERS_MAX}",
                field="value",
            )
        with self._lock:
            table = {name: dict(values) for name, values in self._table.items()}
            table.setdefault(namespace, {})[key] = value
            if sum(len(values) or 1 for values in table.values()) > ENTRY_COUNT_MAX:
                raise ResourceBusyError(f"{ENTRY_COUNT_MAX} keys are set, and no more are taken")
            if (
                sum(len(text) for values in table.values() for pair in values.items() for text in pair)
                > ALL_CHARACTERS_MAX
            ):
                raise ResourceBusyError(f"keys and values take {ALL_CHARACTERS_MAX} characters, and no more are taken")
            self._save(table)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a text; nothing happens when there is none. Errors of the file as `put`."""
        with self._lock:
            if key in self._table.get(namespace, {}):
                table = {name: dict(values) for name, values in self._table.items()}
                del table[namespace][key]
                self._save(table)

    def _save(self, table: dict[str, dict[str, str]]) -> None:
        if self._path is not None:
            text = json.dumps({"configTable": table}, ensure_ascii=False, sort_keys=True)
            write_bytes_atomic(self._fs, self._path, (text + "\n").encode("utf-8", "replace"))
        self._table = table


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        table = document["configTable"]
        return {
            str(namespace): {str(key): str(value) for key, value in values.items()}
            for namespace, values in table.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidSettingError(
            f"{path} cannot be read as the name server's key-value configuration: {error}",
            name="nameserver_kv_config_path",
            source=str(path),
        ) from error
